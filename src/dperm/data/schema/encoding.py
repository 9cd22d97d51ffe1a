"""Tables as arrays, by a declared schema: every value depends on its own cell and on public numbers alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.schema.schema import CATEGORY, CLASSES, MIDDLE, NONE_OF_THEM, REFUSE, TRUTH, Column, Schema
from dperm.data.tables.files import TableFile
from dperm.data.tables.raw_columns import DATE, NUMBER, OTHER, RawColumn, spelled, table_chunks
from dperm.errors import InvalidData
from dperm.types import FloatArray

__all__ = ["TRUTH_WORDS", "Encoded", "encode", "encoded_chunks", "parsed"]


#: words for true and false, in any case
TRUTH_WORDS = {
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
    """Encoded rows: ``X`` with one column per name, and the target if it was asked for."""

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
        raise InvalidData(f"{_name(table)} has column names and no rows.")
    n_rows = sum(len(part) for part in parts)
    whole = np.empty((n_rows, len(schema.encoded_names)), order="F")  # by columns, which is how a design is stored
    start = 0
    for i, part in enumerate(parts):
        whole[start : start + len(part)] = part
        start += len(part)
        parts[i] = part[:0]  # given back at once: a table is held about once, not twice
    return Encoded(whole, np.concatenate(targets) if with_target else None, schema.encoded_names)


def encoded_chunks(schema: Schema, table: Any, *, with_target: bool = False) -> Iterator[tuple[FloatArray, Any]]:
    """Yield encoded rows and targets, some at a time; the target is None unless it is asked for."""
    names = [column.name for column in schema.used]
    wanted = [*names, schema.target.name] if with_target else names
    if isinstance(table, TableFile):
        table.require(wanted)
        _check_types(schema, table, wanted)
    chunks = table.chunks(wanted) if isinstance(table, TableFile) else table_chunks(table, wanted)
    missing = frozenset(schema.missing_values)
    for chunk in chunks:
        parts = [_encoded(column, chunk[column.name], missing) for column in schema.used]
        X = np.concatenate(parts, axis=1)
        yield X, _target(schema, chunk[schema.target.name], missing) if with_target else None


def _check_types(schema: Schema, table: TableFile, names: Sequence[str]) -> None:
    """Refuse dates and nested values by their type, before anything is read."""
    for name in names:
        if table.kind(name) == DATE:
            raise InvalidData(
                f"column {name!r} holds dates: derive a number that matters, such as an age or the days since a public "
                'day, or write kind = "ignore" in the schema.'
            )
        if table.kind(name) == OTHER:
            raise InvalidData(
                f'column {name!r} holds neither numbers nor text: write kind = "ignore" for it in the schema.'
            )


def _encoded(column: Column, raw: RawColumn, missing: frozenset[str]) -> FloatArray:
    if column.kind == CATEGORY:
        return _indicators(column, _texts(raw), missing)
    values = _truths(raw, missing, column) if column.kind == TRUTH else _numbers(raw, missing, column.name)
    low, high = column.range
    absent = np.isnan(values)
    if column.missing == REFUSE and absent.any():
        raise InvalidData(_absent(column))
    stand_in = low / 2.0 + high / 2.0 if column.missing == MIDDLE else column.missing
    filled = np.where(absent, stand_in, values).astype(np.float64)
    return _within(filled, low, high)[:, None]


def _within(values: FloatArray, low: float, high: float) -> FloatArray:
    """Clip; -0.0 becomes 0.0, as their spelling is the same."""
    clipped: FloatArray = np.clip(values, low, high) + 0.0
    return clipped


def _given(numbers: FloatArray, missing: frozenset[str]) -> FloatArray:
    """Make NaN of the numbers whose spelling stands for nothing, as it does in a file of texts."""
    nothing = []
    for text in missing:
        with suppress(ValueError):
            if spelled(float(text)) == text:
                nothing.append(float(text))
    return np.where(np.isin(numbers, nothing), np.nan, numbers) if nothing else numbers


def parsed(texts: Iterable[Any]) -> FloatArray:
    """Read texts as doubles, one by one: numpy's own conversion loses a Ctrl-C that comes while it runs.

    >>> parsed(["1", "0.5"]).tolist()
    [1.0, 0.5]
    """
    return np.array([float(text) for text in texts], np.float64)


def _numbers(raw: RawColumn, missing: frozenset[str], name: str) -> FloatArray:
    if isinstance(raw, np.ndarray):
        return _given(raw, missing)
    plain = [text.strip() if text is not None else "" for text in raw]
    try:
        return parsed("nan" if text in missing or not text else text for text in plain)
    except ValueError:
        pass
    # raised out here: an error's context would keep the value that its sentence hides
    raise InvalidData(
        f"column {name!r} holds text where the schema says number: declare it as a category, add the text to "
        "missing_values if it stands for nothing, or correct the file."
    )


def _truths(raw: RawColumn, missing: frozenset[str], column: Column) -> FloatArray:
    if isinstance(raw, np.ndarray):
        values = _given(raw, missing)
        known = np.isnan(values) | (values == 0.0) | (values == 1.0)
    else:
        words = [None if one is None or one.strip() in missing else one.strip().lower() for one in raw]
        known = np.array([word is None or word in TRUTH_WORDS for word in words], bool)
        values = np.array([np.nan if word is None else TRUTH_WORDS.get(word, np.nan) for word in words], np.float64)
    if not known.all():
        raise InvalidData(f"column {column.name!r} holds more than true and false: declare it as a category or number.")
    return values


def _texts(raw: RawColumn) -> list[Any]:
    """Return texts; a whole number is written as one, so that a category "3" means 3 in every kind of file."""
    return [spelled(value) for value in raw.tolist()] if isinstance(raw, np.ndarray) else raw


def _indicators(column: Column, texts: list[Any], missing: frozenset[str]) -> FloatArray:
    places = {str(one): k for k, one in enumerate(column.categories)}
    nobody = len(places)
    # a declared category wins over the list of texts that stand for nothing
    codes = np.array([nobody if one is None else places.get(one.strip(), nobody) for one in texts], np.intp)
    if (codes == nobody).any():
        if column.missing == REFUSE:
            raise InvalidData(_absent(column))
        if column.missing != NONE_OF_THEM:  # a rule's word is not a category, even if there is one of that name
            codes[codes == nobody] = places[str(column.missing)]
    if nobody == 2:  # one indicator tells both, and what is missing lies between
        return np.array([0.0, 1.0, 0.5])[codes][:, None]
    table = np.vstack([np.eye(nobody), np.zeros(nobody)])
    return table[codes]


def _target(schema: Schema, raw: RawColumn, missing: frozenset[str]) -> NDArray[Any]:
    target = schema.target
    if target.kind == NUMBER:
        values = _numbers(raw, missing, target.name)
        if np.isnan(values).any():
            raise InvalidData(_NO_TARGET.format(target.name))
        assert target.low is not None
        assert target.high is not None
        return _within(values, target.low, target.high)
    assert target.kind == CLASSES
    texts = _texts(raw)
    if any(one is None or (one.strip() in missing and one.strip() not in map(str, target.classes)) for one in texts):
        raise InvalidData(_NO_TARGET.format(target.name))
    places = {_spelled(label): k for k, label in enumerate(target.classes)}
    codes = np.array([places.get(_respelled(one, target.classes), -1) for one in texts], np.intp)
    if (codes < 0).any():
        raise InvalidData(f"target {target.name!r} contains a label that is not among the classes of the schema.")
    return schema.labels()[codes]


_NO_TARGET = "target {!r} has missing values: remove those rows before anything else, by a rule that is public."


def _spelled(label: Any) -> str:
    """One spelling of a label for all kinds of files: true is 1, and 2.0 is 2."""
    if isinstance(label, str):
        return label.strip()
    return repr(float(label))


def _respelled(text: str, classes: tuple[Any, ...]) -> str:
    text = text.strip()
    if isinstance(classes[0], str):
        return text
    if isinstance(classes[0], bool):
        return repr(TRUTH_WORDS.get(text.lower(), -1.0))
    try:
        return repr(float(text))
    except ValueError:
        return text


def _absent(column: Column) -> str:
    other = "or unknown categories" if column.kind == CATEGORY else "values"
    rule = '"none" or a category' if column.kind == CATEGORY else '"middle" or a number'
    return f"column {column.name!r} has missing {other}, which its rule refuses: write missing = {rule} in the schema."


def _name(table: Any) -> str:
    return table.path.name if isinstance(table, TableFile) else "the table"
