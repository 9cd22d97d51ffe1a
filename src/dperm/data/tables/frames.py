"""Tables of other libraries: what their types say in public, and their values as plain arrays.

Names and types of columns are public; values are not: a sentence about bad data names a column, never a row or a value.
pandas, polars and pyarrow are never imported here unless the caller's own object comes from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from dperm.errors import InvalidData, NotNumbers
from dperm.types import BoolArray, FloatArray

__all__ = [
    "arrow_numbers",
    "boolean_columns",
    "column_names",
    "not_finite",
    "not_numbers",
    "numbers_only",
    "plain_labels",
    "plain_matrix",
    "refuse_types",
]


NUMBERS_ONLY = "X must hold numbers only: encode text columns by a rule that is public."

_TEXT = "holds text or categories: encode it by a rule that is public"
_DATES = "holds dates or times: turn it into numbers by a rule that is public, such as days since a public date"
_OBJECTS = "holds objects: every cell of this argument must be a number, or a string that is a number"


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


def boolean_columns(X: Any) -> BoolArray | None:
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

    Columns that cannot be numbers by their type are refused.

    >>> plain_matrix([[1, 2]])
    [[1, 2]]
    """
    library = _library(X)
    if _lazy(X):
        raise InvalidData("X is a polars LazyFrame: collect() it first.")
    if library in ("pandas", "pyarrow"):
        _refuse_twins(list(X.columns if library == "pandas" else X.schema.names))
    if library == "pandas":
        refuse_types(X.columns, map(_pandas_kind, X.dtypes))
    elif library == "polars":
        refuse_types(X.columns, map(_polars_kind, X.dtypes))
        return _columnwise([X[name].cast(_polars().Float64).to_numpy() for name in X.columns])
    elif library == "pyarrow":
        return arrow_numbers(X)
    elif getattr(getattr(X, "dtype", None), "kind", None) in ("M", "m"):
        raise InvalidData(f"X {_DATES}.")
    return X


def _refuse_twins(names: list[Any]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise InvalidData(f"X has more than one column named {name!r}: give every column a name of its own.")
        seen.add(name)


def plain_labels(y: Any) -> Any:
    """Return a polars, pyarrow or dask column as a numpy array; others as they are."""
    home = type(y).__module__.partition(".")[0]
    if home == "dask":
        y = y.compute()
    return np.asarray(y) if home in ("polars", "pyarrow") else y


def arrow_numbers(X: Any) -> FloatArray:
    """Return a pyarrow table or batch as an array of doubles; a missing value is NaN."""
    import pyarrow as pa

    refuse_types(X.schema.names, (_arrow_kind(pa.types, kind) for kind in X.schema.types))
    # a null needs a value of its own before the conversion, as a batch without copies has none
    doubles = [X.column(j).cast(pa.float64(), safe=False) for j in range(X.num_columns)]
    return _columnwise([np.asarray(column.to_numpy(zero_copy_only=False)) for column in doubles])


def refuse_types(names: Sequence[Any], problems: Iterator[str]) -> None:
    """Refuse the first column whose type has a problem, by its name."""
    for name, problem in zip(names, problems, strict=True):
        if problem:
            raise InvalidData(f"X must hold numbers only, and column {name!r} {problem}.")


def numbers_only(names: Sequence[Any], types: Sequence[Any]) -> None:
    """Refuse columns that are not of a type of numbers: objects too, in whose cells anything may stand."""
    advice = "is of type {}: convert it to a type of numbers"
    refuse_types(names, ("" if getattr(kind, "kind", "O") in "biuf" else advice.format(kind) for kind in types))


def not_finite(X: Any, names: Sequence[str] | None = None) -> str | None:
    """Return a sentence about the first column with NaN or infinite values, or None if there is none.

    >>> not_finite(np.array([[1.0, np.inf]]), ["age", "dose"])
    "X contains NaN or infinite values in column 'dose': fill or remove them by a rule that is public."
    """
    stored = X.data if sp.issparse(X) else X
    with np.errstate(all="ignore"):
        if np.isfinite(np.sum(stored)):  # no finite number comes out of anything else, and nothing is copied
            return None
    if sp.issparse(X):
        entries = X.tocoo()
        bad = np.bincount(entries.col[~np.isfinite(entries.data)], minlength=X.shape[1]) > 0
    else:
        bad = np.array([not np.isfinite(X[:, j]).all() for j in range(X.shape[1])], bool)
    if not bad.any():
        return None
    where = _named(int(np.argmax(bad)), names)
    return f"X contains NaN or infinite values in {where}: fill or remove them by a rule that is public."


def not_numbers(X: Any) -> InvalidData:
    """Return the error about a table that could not be turned into numbers, naming the first such column."""
    names = column_names(X)
    try:
        cells = X.to_numpy(object) if _library(X) == "pandas" else np.asarray(X, object)
    except ValueError:
        cells = np.empty(0, object)
    for j in range(cells.shape[1] if cells.ndim == 2 else 0):
        try:
            cells[:, j].astype(np.float64)
        except (TypeError, ValueError):
            where = f"X must hold numbers only, and {_named(j, names)}"
            text = any(isinstance(cell, str | bytes) for cell in cells[:, j])
            return InvalidData(f"{where} {_TEXT}.") if text else NotNumbers(f"{where} {_OBJECTS}.")
    return InvalidData(NUMBERS_ONLY)


def _named(column: int, names: Sequence[str] | None) -> str:
    return f"column {column}" if names is None else f"column {names[column]!r}"


def _columnwise(columns: list[FloatArray]) -> FloatArray:
    # by columns, which is how a design is stored
    values = np.empty((len(columns[0]) if columns else 0, len(columns)), order="F")
    for j, column in enumerate(columns):
        values[:, j] = column
    return values


def _lazy(X: Any) -> bool:
    return type(X).__name__ == "LazyFrame" and _library(X) == "polars"


def _polars() -> Any:
    import polars

    return polars


def _pandas_kind(kind: Any) -> str:
    """What is wrong with a column of this type; cells of type object are looked at later."""
    if str(kind) in ("category", "string", "str") or str(kind).startswith("string["):
        return _TEXT
    kind = getattr(kind, "numpy_dtype", getattr(kind, "subtype", kind))
    if getattr(kind, "kind", None) in ("M", "m") or str(kind).startswith(("period", "interval")):
        return _DATES
    return ""


def _polars_kind(kind: Any) -> str:
    if kind.is_numeric() or kind == _polars().Boolean:
        return ""
    return _DATES if kind.is_temporal() else _TEXT


def _arrow_kind(is_a: Any, kind: Any) -> str:
    if is_a.is_boolean(kind) or is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind):
        return ""
    return _DATES if is_a.is_temporal(kind) else _TEXT
