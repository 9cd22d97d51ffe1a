"""Columns as they come out of files and tables, before a schema encodes them: doubles, or texts.

A missing number is NaN and a missing text is None, whatever library the column comes from. Where one cell is a text the
whole column is a list of texts; what another cell then reads is its own one spelling (:func:`spelled`), from which its
double comes back bit for bit, so no cell says anything about its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from dperm.errors import InvalidData
from dperm.types import FloatArray

__all__ = [
    "BOOLEAN",
    "DATE",
    "NUMBER",
    "OTHER",
    "TEXT",
    "RawColumn",
    "arrow_column",
    "arrow_kind",
    "spelled",
    "table_chunks",
]

RawColumn = FloatArray | list[Any]

NUMBER, BOOLEAN, TEXT, DATE, OTHER = "number", "boolean", "text", "date", "other"


def arrow_kind(kind: Any) -> str:
    """What a column of this Arrow type holds."""
    import pyarrow as pa

    is_a = pa.types
    if is_a.is_dictionary(kind):
        return arrow_kind(kind.value_type)
    if is_a.is_boolean(kind):
        return BOOLEAN
    if is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind):
        return NUMBER
    # views came with pyarrow 16
    is_view = getattr(is_a, "is_string_view", lambda _: False)
    if is_a.is_string(kind) or is_a.is_large_string(kind) or is_view(kind):
        return TEXT
    return DATE if is_a.is_temporal(kind) else OTHER


def arrow_column(column: Any) -> RawColumn:
    """Return an Arrow column as doubles or texts; dates and nested values become texts that no number matches."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if arrow_kind(column.type) in (NUMBER, BOOLEAN):
        doubles = column.cast(pa.float64(), safe=False)
        return np.asarray(doubles.to_numpy(zero_copy_only=False), np.float64)
    if arrow_kind(column.type) != TEXT:
        raise InvalidData(NEITHER)
    texts: list[Any] = column.to_pylist()
    return texts


NEITHER = "a column holds neither numbers nor text: leave it out, or make numbers of it by a rule that is public."


def table_chunks(table: Any, names: Sequence[str]) -> Iterator[dict[str, RawColumn]]:
    """Yield the wanted columns of a pandas, polars or Arrow table, or of a dict of columns, as one chunk."""
    yield {name: _column(table, name) for name in names}


def _column(table: Any, name: str) -> RawColumn:
    home = type(table).__module__.partition(".")[0]
    try:
        column = table.column(name) if home == "pyarrow" else table[name]
    except (KeyError, TypeError, IndexError, ValueError):
        column = None
    except Exception as error:
        if type(error).__name__ != "ColumnNotFoundError":  # of polars, which is not imported for this
            raise
        column = None
    if column is None:
        raise InvalidData(f"the table has no column {name!r}.")
    if home == "pyarrow":
        whole = column.combine_chunks() if hasattr(column, "combine_chunks") else column
        return arrow_column(whole)
    values = column.to_list() if hasattr(column, "to_list") else list(column)
    return _plain(values)


def spelled(number: float) -> str | None:
    """Return the one spelling of a number, which is that of a whole one if it is; NaN has none.

    >>> spelled(3.0), spelled(-0.0), spelled(0.1), spelled(float("inf")), spelled(float("nan"))
    ('3', '0', '0.1', 'inf', None)
    """
    if number != number:
        return None
    return str(int(number)) if number.is_integer() else repr(number)


def _plain(values: list[Any]) -> RawColumn:
    """Return numbers as doubles if there is no text among them, else texts; each from its own cell alone."""
    cells = [_cell(value) for value in values]
    if any(isinstance(cell, str) for cell in cells):
        return [spelled(cell) if isinstance(cell, float) else cell for cell in cells]
    return np.array([np.nan if cell is None else cell for cell in cells], np.float64)


def _cell(value: Any) -> float | str | None:
    """Return a cell as a double (true is 1), a text, or None if it is missing."""
    if isinstance(value, str):
        return value
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, Real | Decimal | np.bool_):
        number = _double(value)
        return None if number != number else number
    if hasattr(value, "isoformat"):
        raise InvalidData(NEITHER)
    return str(value)


def _double(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # as large as any text of so many digits
        return np.inf if value > 0 else -np.inf
    except ValueError:  # a decimal that signals that it is not a number
        return np.nan
