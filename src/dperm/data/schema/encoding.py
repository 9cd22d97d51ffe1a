"""Encoding of tables by a schema: every encoded value depends on its own cell and on public numbers alone.

Proof: ``encoding.proof.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.schema.schema import BOOLEAN, CATEGORY, CLASSES, MIDDLE, NO_CATEGORY, REFUSE, Column, Schema
from dperm.data.tables.files import TableFile
from dperm.data.tables.raw_columns import DATE, NUMBER, OTHER, RawColumn, canonical_text, table_chunks
from dperm.errors import InvalidData
from dperm.types import FloatArray

__all__ = ["BOOLEAN_WORDS", "Encoded", "encode", "encoded_chunks", "encoded_targets", "parse_numbers"]


#: words for true and false, in any case
BOOLEAN_WORDS = {
    "true": 1.0,
    "yes": 1.0,
    "y": 1.0,
    "t": 1.0,
    "1": 1.0,
    "false": 0.0,
    "no": 0.0,
    "n": 0.0,
    "f": 0.0,
    "0": 0.0,
}


@dataclass(frozen=True)
class Encoded:
    """Encoded rows: ``X`` with one column per name, and the target if it was requested."""

    X: FloatArray
    y: NDArray[Any] | None
    names: list[str]


def encode(schema: Schema, table: Any, *, with_target: bool = False) -> Encoded:
    """Encode a whole table; see :meth:`dperm.data.schema.schema.Schema.encode`."""
    parts, targets = [], []
    for X, y in encoded_chunks(schema, table, with_target=with_target):
        parts.append(X)
        targets.append(y)
    if not parts or not sum(len(part) for part in parts):
        raise InvalidData(f"{_table_name(table)} has column names but no rows.")
    n_rows = sum(len(part) for part in parts)
    whole = np.empty((n_rows, len(schema.encoded_names)), order="F")  # column by column, as a design is stored
    start = 0
    for i, part in enumerate(parts):
        whole[start : start + len(part)] = part
        start += len(part)
        parts[i] = part[:0]  # freed at once, so that the table is in memory only once
    return Encoded(whole, np.concatenate(targets) if with_target else None, schema.encoded_names)


def encoded_chunks(schema: Schema, table: Any, *, with_target: bool = False) -> Iterator[tuple[FloatArray, Any]]:
    """Yield encoded rows and targets, some at a time; the target is None unless it is requested."""
    names = [column.name for column in schema.used]
    wanted = [*names, schema.target.name] if with_target else names
    if isinstance(table, TableFile):
        table.require(wanted)
        _check_types(schema, table, wanted)
    chunks = table.chunks(wanted) if isinstance(table, TableFile) else table_chunks(table, wanted)
    missing = frozenset(schema.missing_values)
    for chunk in chunks:
        parts = [_encode_column(column, chunk[column.name], missing) for column in schema.used]
        X = np.concatenate(parts, axis=1)
        yield X, _target(schema, chunk[schema.target.name], missing) if with_target else None


def encoded_targets(schema: Schema, table: TableFile) -> Iterator[NDArray[Any]]:
    """Yield the targets alone, some at a time."""
    table.require([schema.target.name])
    _check_types(schema, table, [schema.target.name])
    for chunk in table.chunks([schema.target.name]):
        yield _target(schema, chunk[schema.target.name], frozenset(schema.missing_values))


def _check_types(schema: Schema, table: TableFile, names: Sequence[str]) -> None:
    """Refuse dates and nested values by their type, before any value is read."""
    for name in names:
        if table.kind(name) == DATE:
            raise InvalidData(
                f"column {name!r} holds dates: derive a number, such as an age or the days since a public date, or "
                'write kind = "ignore" in the schema.'
            )
        if table.kind(name) == OTHER:
            raise InvalidData(
                f'column {name!r} holds neither numbers nor text: write kind = "ignore" for it in the schema.'
            )


def _encode_column(column: Column, raw: RawColumn, missing: frozenset[str]) -> FloatArray:
    if column.kind == CATEGORY:
        return _indicators(column, _texts(raw), missing)
    values = _booleans(raw, missing, column) if column.kind == BOOLEAN else _numbers(raw, missing, column.name)
    low, high = column.range
    is_missing = np.isnan(values)
    if column.missing == REFUSE and is_missing.any():
        raise InvalidData(_missing_message(column))
    replacement = low / 2.0 + high / 2.0 if column.missing == MIDDLE else column.missing
    filled = np.where(is_missing, replacement, values).astype(np.float64)
    return _clip(filled, low, high)[:, None]


def _clip(values: FloatArray, low: float, high: float) -> FloatArray:
    """Clip; -0.0 becomes 0.0, because their canonical text is the same."""
    clipped: FloatArray = np.clip(values, low, high) + 0.0
    return clipped


def _missing_to_nan(numbers: FloatArray, missing: frozenset[str]) -> FloatArray:
    """Replace numbers whose canonical text is a missing value by NaN, as in a column of texts."""
    missing_numbers = []
    for text in missing:
        with suppress(ValueError):
            if canonical_text(float(text)) == text:
                missing_numbers.append(float(text))
    return np.where(np.isin(numbers, missing_numbers), np.nan, numbers) if missing_numbers else numbers


def parse_numbers(texts: Iterable[Any]) -> FloatArray:
    """Convert texts to doubles one by one, because numpy's own conversion ignores Ctrl-C.

    >>> parse_numbers(["1", "0.5"]).tolist()
    [1.0, 0.5]
    """
    return np.array([float(text) for text in texts], np.float64)


def _numbers(raw: RawColumn, missing: frozenset[str], name: str) -> FloatArray:
    if isinstance(raw, np.ndarray):
        return _missing_to_nan(raw, missing)
    plain = [text.strip() if text is not None else "" for text in raw]
    try:
        return parse_numbers("nan" if text in missing or not text else text for text in plain)
    except ValueError:
        pass
    # outside the except block: an error's context would keep the value
    raise InvalidData(
        f"column {name!r} contains text, but the schema says number: declare it as a category, list the text in "
        "missing_values if it means that the value is missing, or correct the file."
    )


def _booleans(raw: RawColumn, missing: frozenset[str], column: Column) -> FloatArray:
    if isinstance(raw, np.ndarray):
        values = _missing_to_nan(raw, missing)
        known = np.isnan(values) | (values == 0.0) | (values == 1.0)
    else:
        words = [None if one is None or one.strip() in missing else one.strip().lower() for one in raw]
        known = np.array([word is None or word in BOOLEAN_WORDS for word in words], bool)
        values = np.array([np.nan if word is None else BOOLEAN_WORDS.get(word, np.nan) for word in words], np.float64)
    if not known.all():
        raise InvalidData(
            f"column {column.name!r} contains more than true and false: declare it as a category or number."
        )
    return values


def _texts(raw: RawColumn) -> list[Any]:
    """Return texts; a whole number has no decimal point, so that a category "3" means 3 in every kind of file."""
    return [canonical_text(value) for value in raw.tolist()] if isinstance(raw, np.ndarray) else raw


def _indicators(column: Column, texts: list[Any], missing: frozenset[str]) -> FloatArray:
    positions = {str(one): k for k, one in enumerate(column.categories)}
    no_match = len(positions)
    # a declared category has precedence over the list of missing values
    codes = np.array([no_match if one is None else positions.get(one.strip(), no_match) for one in texts], np.intp)
    if (codes == no_match).any():
        if column.missing == REFUSE:
            raise InvalidData(_missing_message(column))
        if column.missing != NO_CATEGORY:  # the rule "none" is not a category, even if one has that name
            codes[codes == no_match] = positions[str(column.missing)]
    if no_match == 2:  # one indicator is enough, and a missing value is 1/2
        return np.array([0.0, 1.0, 0.5])[codes][:, None]
    table = np.vstack([np.eye(no_match), np.zeros(no_match)])
    return table[codes]


def _target(schema: Schema, raw: RawColumn, missing: frozenset[str]) -> NDArray[Any]:
    target = schema.target
    if target.kind == NUMBER:
        values = _numbers(raw, missing, target.name)
        if np.isnan(values).any():
            raise InvalidData(_NO_TARGET.format(target.name))
        assert target.low is not None
        assert target.high is not None
        return _clip(values, target.low, target.high)
    assert target.kind == CLASSES
    texts = _texts(raw)
    if any(one is None or (one.strip() in missing and one.strip() not in map(str, target.classes)) for one in texts):
        raise InvalidData(_NO_TARGET.format(target.name))
    positions = {_label_text(label): k for k, label in enumerate(target.classes)}
    codes = np.array([positions.get(_cell_label_text(one, target.classes), -1) for one in texts], np.intp)
    if (codes < 0).any():
        raise InvalidData(f"target {target.name!r} contains a label that is not one of the classes in the schema.")
    return schema.labels()[codes]


_NO_TARGET = "target {!r} has missing values: remove those rows first, by a rule that is public."


def _label_text(label: Any) -> str:
    """Return the text by which a label is looked up, for all kinds of files: true is 1, and 2.0 is 2."""
    if isinstance(label, str):
        return label.strip()
    return repr(float(label))


def _cell_label_text(text: str, classes: tuple[Any, ...]) -> str:
    text = text.strip()
    if isinstance(classes[0], str):
        return text
    if isinstance(classes[0], bool):
        return repr(BOOLEAN_WORDS.get(text.lower(), -1.0))
    try:
        return repr(float(text))
    except ValueError:
        return text


def _missing_message(column: Column) -> str:
    what = "missing or unknown categories" if column.kind == CATEGORY else "missing values"
    rule = '"none" or a category' if column.kind == CATEGORY else '"middle" or a number'
    return f"column {column.name!r} has {what}, which the schema refuses: write missing = {rule} for it in the schema."


def _table_name(table: Any) -> str:
    return table.path.name if isinstance(table, TableFile) else "the table"
