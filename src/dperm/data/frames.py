"""Tables of other libraries: what their types say in public, and their values as plain arrays.

Names and types of columns are public; values are not. pandas, polars and pyarrow are never imported here unless the
caller's own object comes from them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.errors import InvalidData

__all__ = ["boolean_columns", "column_names", "plain_labels", "plain_matrix"]

NUMBERS_ONLY = "X must hold numbers only: encode text columns by a rule that is public."


def _library(X: Any) -> str:
    """Library that an object comes from, if it is a table we know."""
    home = type(X).__module__.partition(".")[0]
    kinds = {
        "pandas": ("DataFrame",),
        "polars": ("DataFrame", "LazyFrame"),
        "pyarrow": ("Table", "RecordBatch"),
    }
    return home if type(X).__name__ in kinds.get(home, ()) else ""


def column_names(X: Any) -> list[str] | None:
    """Names of a table's columns, or None where there are none.

    >>> column_names(np.zeros((3, 2))) is None
    True
    """
    library = _library(X)
    if not library:
        return None
    names = list(X.schema.names if library == "pyarrow" else X.collect_schema() if _lazy(X) else X.columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def boolean_columns(X: Any) -> NDArray[np.bool_] | None:
    """Which columns hold true and false by their type, or None if no column does.

    Such a column lies between 0 and 1 whatever the data, so its bounds need neither a declaration nor a purchase.

    >>> boolean_columns(np.zeros((3, 2), bool)).tolist()
    [True, True]
    """
    library = _library(X)
    if library == "pandas":
        found = [str(getattr(kind, "subtype", kind)) in ("bool", "boolean", "bool[pyarrow]") for kind in X.dtypes]
    elif library == "polars":
        found = [str(kind) == "Boolean" for kind in (() if _lazy(X) else X.dtypes)]
    elif library == "pyarrow":
        found = [str(kind) == "bool" for kind in X.schema.types]
    else:
        shape: tuple[int, ...] = getattr(X, "shape", ())
        found = [getattr(X, "dtype", None) == np.bool_] * (shape[1] if len(shape) == 2 else 0)
    return np.array(found) if any(found) else None


def plain_matrix(X: Any) -> Any:
    """Return a polars or pyarrow table as an array of doubles (a missing value is NaN); others as they are.

    >>> plain_matrix([[1, 2]])
    [[1, 2]]
    """
    library = _library(X)
    if library not in ("polars", "pyarrow"):
        return X
    if _lazy(X):
        raise InvalidData("X is a polars LazyFrame: collect() it first.")
    columns = _polars_columns(X) if library == "polars" else _arrow_columns(X)
    # by columns, which is how a design is stored
    values = np.empty((len(columns[0]) if columns else 0, len(columns)), order="F")
    for j, column in enumerate(columns):
        values[:, j] = column
    return values


def plain_labels(y: Any) -> Any:
    """Return a polars or pyarrow column as a numpy array; others as they are."""
    if type(y).__module__.partition(".")[0] not in ("polars", "pyarrow"):
        return y
    return np.asarray(y)


def _lazy(X: Any) -> bool:
    return type(X).__name__ == "LazyFrame"


def _polars_columns(X: Any) -> list[NDArray[np.float64]]:
    import polars as pl

    if not all(kind.is_numeric() or kind == pl.Boolean for kind in X.dtypes):
        raise InvalidData(NUMBERS_ONLY)
    return [X[name].cast(pl.Float64).to_numpy() for name in X.columns]


def _arrow_columns(X: Any) -> list[NDArray[np.float64]]:
    import pyarrow as pa

    def is_number(kind: Any) -> bool:
        is_a = pa.types
        return bool(is_a.is_boolean(kind) or is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind))

    if not all(is_number(kind) for kind in X.schema.types):
        raise InvalidData(NUMBERS_ONLY)
    # a null needs a value of its own before the conversion, as a batch without copies has none
    doubles = [X.column(j).cast(pa.float64(), safe=False) for j in range(X.num_columns)]
    return [np.asarray(column.to_numpy(zero_copy_only=False)) for column in doubles]
