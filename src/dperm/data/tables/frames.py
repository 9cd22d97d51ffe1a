"""Tables of other libraries as plain arrays, and checks of their column names and types.

Names and types of columns are public, values are not: an error message names a column, never a row or a value. pandas,
polars and pyarrow are imported only if the caller's own object comes from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from dperm.errors import InvalidData, NotNumbers
from dperm.types import BoolArray, FloatArray

__all__ = [
    "NUMBERS_ONLY",
    "arrow_numbers",
    "boolean_columns",
    "column_names",
    "non_finite_message",
    "not_numbers_error",
    "plain_labels",
    "plain_matrix",
    "require_numeric_types",
]


NUMBERS_ONLY = "X must hold numbers only: encode text columns by a rule that is public."

_TEXT = "holds text or categories: encode it by a rule that is public"
_DATES = "holds dates or times: turn it into numbers by a rule that is public, such as days since a public date"
#: scikit-learn's own checks look for "argument must be a string or a number" in this sentence
_OBJECTS = "holds objects: every cell of this argument must be a number, or a string that is a number"


def _library(X: Any) -> str:
    """Name of the library of a supported table; an empty string for anything else."""
    library = type(X).__module__.partition(".")[0]
    tables = {
        "pandas": ("DataFrame",),
        "polars": ("DataFrame", "LazyFrame"),
        "pyarrow": ("Table", "RecordBatch"),
    }
    return library if type(X).__name__ in tables.get(library, ()) else ""


def column_names(X: Any) -> list[str] | None:
    """Return the names of a table's columns, or None if it has none.

    >>> column_names(np.zeros((3, 2))) is None
    True
    """
    library = _library(X)
    if not library:
        return None
    names = list(X.schema.names if library == "pyarrow" else X.collect_schema() if _lazy(X) else X.columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def boolean_columns(X: Any) -> BoolArray | None:
    """Return which columns are of type bool, or None if no column is.

    Such a column lies between 0 and 1 for any data, so its bounds need neither a declaration nor a purchase.

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
    """Return a polars or pyarrow table as an array of doubles (a missing value is NaN), any other object unchanged.

    Columns whose type rules out numbers are refused.

    >>> plain_matrix([[1, 2]])
    [[1, 2]]
    """
    library = _library(X)
    if _lazy(X):
        raise InvalidData("X is a polars LazyFrame: collect() it first.")
    if library in ("pandas", "pyarrow"):
        _refuse_duplicate_names(list(X.columns if library == "pandas" else X.schema.names))
    if library == "pandas":
        _refuse_columns(X.columns, map(_pandas_problem, X.dtypes))
    elif library == "polars":
        _refuse_columns(X.columns, map(_polars_problem, X.dtypes))
        return _columnwise([X[name].cast(_polars().Float64).to_numpy() for name in X.columns])
    elif library == "pyarrow":
        return arrow_numbers(X)
    elif getattr(getattr(X, "dtype", None), "kind", None) in ("M", "m"):
        raise InvalidData(f"X {_DATES}.")
    return X


def _refuse_duplicate_names(names: list[Any]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise InvalidData(f"X has more than one column named {name!r}: give every column its own name.")
        seen.add(name)


def plain_labels(y: Any) -> Any:
    """Return a polars, pyarrow or dask column as a numpy array, any other object unchanged."""
    library = type(y).__module__.partition(".")[0]
    if library == "dask":
        y = y.compute()
    return np.asarray(y) if library in ("polars", "pyarrow") else y


def arrow_numbers(X: Any) -> FloatArray:
    """Return a pyarrow table or batch as an array of doubles; a missing value is NaN."""
    import pyarrow as pa

    _refuse_columns(X.schema.names, (_arrow_problem(pa.types, kind) for kind in X.schema.types))
    # cast first: nulls become NaN only in a column of doubles
    doubles = [X.column(j).cast(pa.float64(), safe=False) for j in range(X.num_columns)]
    return _columnwise([np.asarray(column.to_numpy(zero_copy_only=False)) for column in doubles])


def _refuse_columns(names: Sequence[Any], problems: Iterator[str]) -> None:
    """Refuse the first column that has a problem, naming it."""
    for name, problem in zip(names, problems, strict=True):
        if problem:
            raise InvalidData(f"X must hold numbers only, and column {name!r} {problem}.")


def require_numeric_types(names: Sequence[Any], types: Sequence[Any]) -> None:
    """Refuse columns that are not of a numeric type; columns of objects are refused too, as they may hold anything."""
    advice = "is of type {}: convert it to a numeric type"
    _refuse_columns(names, ("" if getattr(kind, "kind", "O") in "biuf" else advice.format(kind) for kind in types))


def non_finite_message(X: Any, names: Sequence[str] | None = None) -> str | None:
    """Return an error message about the first column with NaN or infinite values, or None if there is none.

    >>> non_finite_message(np.array([[1.0, np.inf]]), ["age", "dose"])
    "X contains NaN or infinite values in column 'dose': fill or remove them by a rule that is public."
    """
    stored = X.data if sp.issparse(X) else X
    with np.errstate(all="ignore"):
        if np.isfinite(np.sum(stored)):  # the sum is finite only if all values are; nothing is copied
            return None
    if sp.issparse(X):
        entries = X.tocoo()
        bad = np.bincount(entries.col[~np.isfinite(entries.data)], minlength=X.shape[1]) > 0
    else:
        bad = np.array([not np.isfinite(X[:, j]).all() for j in range(X.shape[1])], bool)
    if not bad.any():
        return None
    where = _column_label(int(np.argmax(bad)), names)
    return f"X contains NaN or infinite values in {where}: fill or remove them by a rule that is public."


def not_numbers_error(X: Any) -> InvalidData:
    """Return the error for a table that could not be converted to numbers; it names the first such column."""
    names = column_names(X)
    try:
        cells = X.to_numpy(object) if _library(X) == "pandas" else np.asarray(X, object)
    except ValueError:
        cells = np.empty(0, object)
    for j in range(cells.shape[1] if cells.ndim == 2 else 0):
        try:
            cells[:, j].astype(np.float64)
        except (TypeError, ValueError):
            where = f"X must hold numbers only, and {_column_label(j, names)}"
            text = any(isinstance(cell, str | bytes) for cell in cells[:, j])
            return InvalidData(f"{where} {_TEXT}.") if text else NotNumbers(f"{where} {_OBJECTS}.")
    return InvalidData(NUMBERS_ONLY)


def _column_label(column: int, names: Sequence[str] | None) -> str:
    return f"column {column}" if names is None else f"column {names[column]!r}"


def _columnwise(columns: list[FloatArray]) -> FloatArray:
    # column by column, as a design is stored
    values = np.empty((len(columns[0]) if columns else 0, len(columns)), order="F")
    for j, column in enumerate(columns):
        values[:, j] = column
    return values


def _lazy(X: Any) -> bool:
    return type(X).__name__ == "LazyFrame" and _library(X) == "polars"


def _polars() -> Any:
    import polars

    return polars


def _pandas_problem(kind: Any) -> str:
    """Return the problem of a column of this type, or an empty string; cells of type object are checked later."""
    if str(kind) in ("category", "string", "str") or str(kind).startswith("string["):
        return _TEXT
    kind = getattr(kind, "numpy_dtype", getattr(kind, "subtype", kind))
    if getattr(kind, "kind", None) in ("M", "m") or str(kind).startswith(("period", "interval")):
        return _DATES
    return ""


def _polars_problem(kind: Any) -> str:
    if kind.is_numeric() or kind == _polars().Boolean:
        return ""
    return _DATES if kind.is_temporal() else _TEXT


def _arrow_problem(is_a: Any, kind: Any) -> str:
    if is_a.is_boolean(kind) or is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind):
        return ""
    return _DATES if is_a.is_temporal(kind) else _TEXT
