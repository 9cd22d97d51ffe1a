"""Tables that differ in everything private and agree in everything public, to be compared with each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

__all__ = ["Table", "as_bits", "as_sparse", "class_tables", "number_tables", "record_tables", "sparse_tables"]

#: of a small table; large enough that every class of three occurs
N_ROWS = 90
N_COLUMNS = 3
#: of a large one: code may take another branch for many people, usually at a round number
MANY_ROWS = 3000
#: declared range of a numeric target
TARGET = (-5.0, 5.0)


class Table(NamedTuple):
    """Rows and target."""

    X: Any
    y: Any


def class_tables(
    n_classes: int = 2, n: int = N_ROWS, n_columns: int = N_COLUMNS, reach: float = 1.0, *, declared: bool = True
) -> dict[str, Any]:
    """Return tables with the same number of rows and columns and the same public labels; columns lie in +-reach mostly.

    The neighbour differs in one person. The strange table is unlike any: see :func:`_strange`. All its people have the
    same label; if labels are not declared, and so taken from the data as public, one person has each of the others.
    """
    rng = np.random.default_rng(1)
    X, score = _columns(rng, n, n_columns, reach)
    ends = np.quantile(score, np.linspace(0.0, 1.0, n_classes + 1)[1:-1])
    y = np.searchsorted(ends, score + 0.3 * rng.normal(size=n))
    strange = np.zeros(n, y.dtype)
    if not declared:
        strange[: n_classes - 1] = np.arange(1, n_classes)
    replaced = np.where(np.arange(n) == n - 1, (y + 1) % n_classes, y)
    return {
        "usual": Table(X, y),
        "neighbour": Table(_with_other_person(X), replaced),
        "strange": Table(_strange(n, n_columns), strange),
    }


def number_tables(n: int = N_ROWS, n_columns: int = N_COLUMNS, reach: float = 1.0) -> dict[str, Any]:
    """Return tables with a numeric target; that of the strange one lies at one end, with a value far outside."""
    rng = np.random.default_rng(2)
    X, score = _columns(rng, n, n_columns, reach)
    y = np.clip(score + 0.3 * rng.normal(size=n), *TARGET)
    replaced = np.where(np.arange(n) == n - 1, TARGET[1], y)
    strange = np.full(n, TARGET[0])
    strange[0] = 1e300
    return {
        "usual": Table(X, y),
        "neighbour": Table(_with_other_person(X), replaced),
        "strange": Table(_strange(n, n_columns), strange),
    }


def sparse_tables(n: int = 120, n_columns: int = 900) -> dict[str, Any]:
    """Return sparse tables with many columns; the strange one has a person without entries and one with all."""
    rng = np.random.default_rng(3)
    X = sp.random_array((n, n_columns), density=0.01, rng=rng, format="csr")
    y = (np.asarray(X[:, :20].sum(axis=1)).ravel() > 0.02).astype(np.int64)
    other = X.tolil()
    other[-1] = 1.0
    strange = sp.lil_array((n, n_columns))
    strange[0] = 7.0
    strange[1:, 3] = 1.0
    flat = np.zeros(n, np.int64)
    flat[1] = 1
    return {
        "usual": Table(X, y),
        "neighbour": Table(other.tocsr(), np.where(np.arange(n) == n - 1, 1 - y, y)),
        "strange": Table(strange.tocsr(), flat),
    }


def as_sparse(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables as sparse ones with the same rows; the strange one stores no more than a few entries."""
    found = {name: Table(sp.csr_array(np.where(np.abs(X) < 0.5, 0.0, X)), y) for name, (X, y) in tables.items()}
    few = np.zeros(tables["strange"].X.shape)
    few[1] = 1.0
    return {**found, "strange": Table(sp.csr_array(few), tables["strange"].y)}


def as_bits(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables of yes and no; in the strange one everybody but one person says no."""
    found = {name: Table(X > 0.0, y) for name, (X, y) in tables.items()}
    few = np.zeros(tables["strange"].X.shape, np.bool_)
    few[1] = True
    return {**found, "strange": Table(few, tables["strange"].y)}


def record_tables(n: int, n_columns: int = 4, *, bits: bool = False) -> dict[str, Any]:
    """Return tables without a target: bits, or numbers between -1 and 1."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.0, 1.0, (n, n_columns))
    tables = {"usual": X, "strange": np.full((n, n_columns), 0.99)}
    return {name: (one > 0.0) if bits else one for name, one in tables.items()}


def _columns(rng: np.random.Generator, n: int, n_columns: int, reach: float) -> tuple[Any, Any]:
    X = reach * rng.uniform(-1.0, 1.0, (n, n_columns))
    return X, X @ np.linspace(2.0, -1.0, n_columns) / reach


def _with_other_person(X: Any) -> Any:
    """Return the rows with the last person replaced by one with the largest numbers that there are."""
    other = X.copy()
    other[-1] = np.finfo(np.float64).max * np.where(np.arange(X.shape[1]) % 2, -1.0, 1.0)
    return other


def _strange(n: int, n_columns: int) -> Any:
    """Return a constant column, one of tiny values and others far outside of any bounds; two people are equal."""
    rng = np.random.default_rng(5)
    X = rng.standard_cauchy((n, n_columns)) * 1e3
    X[2] = X[1]
    X[3] = 0.0
    X[:, -1] = np.where(np.arange(n) % 2, 5e-324, -1e-300)
    X[:, 0] = 0.3
    return X
