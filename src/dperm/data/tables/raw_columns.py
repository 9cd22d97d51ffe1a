"""Columns as read from files and tables, before a schema encodes them: arrays of doubles, or lists of texts.

A missing number is NaN and a missing text is None, for every library. If one cell is a text, the whole column becomes a
list of texts. A number in it then becomes its canonical text (:func:`canonical_text`), from which the same double is
read back bit for bit, so the value of a cell does not depend on other cells.
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
    "canonical_text",
    "table_chunks",
]

RawColumn = FloatArray | list[Any]

NUMBER, BOOLEAN, TEXT, DATE, OTHER = "number", "boolean", "text", "date", "other"


def arrow_kind(kind: Any) -> str:
    """Return the kind of values that a column of this Arrow type holds."""
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
    """Return an Arrow column as doubles or texts; dates and nested values are refused."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if arrow_kind(column.type) in (NUMBER, BOOLEAN):
        doubles = column.cast(pa.float64(), safe=False)
        return np.asarray(doubles.to_numpy(zero_copy_only=False), np.float64)
    if arrow_kind(column.type) != TEXT:
        raise InvalidData(NEITHER_NUMBERS_NOR_TEXT)
    texts: list[Any] = column.to_pylist()
    return texts


NEITHER_NUMBERS_NOR_TEXT = (
    "a column holds neither numbers nor text: leave it out, or convert it to numbers by a rule that is public."
)


def table_chunks(table: Any, names: Sequence[str]) -> Iterator[dict[str, RawColumn]]:
    """Yield the named columns of a pandas, polars or Arrow table, or of a dict of columns, as one chunk."""
    yield {name: _column(table, name) for name in names}


def _column(table: Any, name: str) -> RawColumn:
    library = type(table).__module__.partition(".")[0]
    try:
        column = table.column(name) if library == "pyarrow" else table[name]
    except (KeyError, TypeError, IndexError, ValueError):
        column = None
    except Exception as error:
        if type(error).__name__ != "ColumnNotFoundError":  # the polars error, without importing polars
            raise
        column = None
    if column is None:
        raise InvalidData(f"the table has no column {name!r}.")
    if library == "pyarrow":
        whole = column.combine_chunks() if hasattr(column, "combine_chunks") else column
        return arrow_column(whole)
    values = column.to_list() if hasattr(column, "to_list") else list(column)
    return _plain(values)


def canonical_text(number: float) -> str | None:
    """Return the canonical text of a number, without a decimal point if it is whole; None for NaN.

    >>> canonical_text(3.0), canonical_text(-0.0), canonical_text(0.1), canonical_text(float("nan"))
    ('3', '0', '0.1', None)
    """
    if number != number:
        return None
    return str(int(number)) if number.is_integer() else repr(number)


def _plain(values: list[Any]) -> RawColumn:
    """Return doubles if no cell is a text, else texts; each from its own cell alone."""
    cells = [plain_cell(value) for value in values]
    if any(isinstance(cell, str) for cell in cells):
        return [canonical_text(cell) if isinstance(cell, float) else cell for cell in cells]
    return np.array([np.nan if cell is None else cell for cell in cells], np.float64)


def plain_cell(value: Any) -> float | str | None:
    """Return a cell as a double (true is 1), a text, or None if it is missing."""
    if isinstance(value, str):
        return value
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, Real | Decimal | np.bool_):
        number = _double(value)
        return None if number != number else number
    if hasattr(value, "isoformat"):
        raise InvalidData(NEITHER_NUMBERS_NOR_TEXT)
    return str(value)


def _double(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer too large for a double
        return np.inf if value > 0 else -np.inf
    except ValueError:  # a signalling NaN of type Decimal
        return np.nan
