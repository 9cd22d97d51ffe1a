"""Small data sets and neighbour pairs for the checks, random and worst-case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.party import LabelData, PartyData, ReceivedValues
from dperm.data.holding.table_data import TableData
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.queries.sharing import RESIDUAL

__all__ = ["Layout", "as_labels", "as_party", "design_data", "design_pairs", "layouts", "table_pairs"]


@dataclass(frozen=True)
class Layout:
    """Public shape of a test data set."""

    n: int = 12
    n_features: int = 4
    clip: float = 1.0
    row_norm: float | None = None
    intercept: float = 1.0
    sparse: bool = False
    centre: float = 0.0
    mostly_zero: bool = False

    def scaling(self) -> Scaling:
        """Public constants of the layout."""
        ones = np.ones(self.n_features)
        return Scaling(self.centre * ones, ones, self.clip, self.row_norm)


def layouts() -> list[Layout]:
    """Return layouts that cover all properties of a design."""
    plain = Layout()
    return [
        plain,
        replace(plain, n=1, n_features=1, intercept=0.0),
        replace(plain, n=37, n_features=9, clip=3.0, intercept=0.25),
        replace(plain, row_norm=1.3),
        replace(plain, n=20, n_features=6, sparse=True),
        replace(plain, n=20, n_features=6, sparse=True, centre=0.4, clip=0.7),
        replace(plain, n=20, n_features=6, sparse=True, row_norm=0.9, intercept=0.0),
        # dense data for which a single row decides whether they are stored as sparse
        replace(plain, mostly_zero=True, row_norm=1.6),
        replace(plain, mostly_zero=True, centre=0.4, clip=0.7),
    ]


def design_data(layout: Layout, X: Any, target: Any) -> DesignData:
    """Build a design from raw rows; the target is a class code or lies in [0, 1]."""
    raw = sp.csc_array(X) if layout.sparse else np.asarray(X, float)
    design = DesignMatrix.from_array(raw, layout.scaling(), layout.intercept)
    return DesignData(design, np.asarray(target, float), 0.0, max(1.0, float(np.max(target, initial=1.0))))


def as_party(data: DesignData) -> PartyData:
    """Return the same rows at a party that received one number per person, of either sign, some beyond any clip."""
    received = ReceivedValues()
    received.put(RESIDUAL, 3.0 * (data.target - 0.5))
    return PartyData(data.design, received)


def as_labels(data: DesignData) -> LabelData:
    """Return the same targets at a label holder."""
    return LabelData(data.target, data.design.n, data.target_low, data.target_high)


def _rows(rng: Any, layout: Layout, n: int) -> Any:
    rows = rng.normal(0.0, layout.clip, (n, layout.n_features)) + layout.centre
    if layout.sparse or layout.mostly_zero:
        rows[rng.random(rows.shape) < (0.85 if layout.mostly_zero else 0.6)] = 0.0
    return rows


def _extreme_rows(rng: Any, layout: Layout) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of rows as far apart as the bounds allow: opposite corners, equal corners, axis and corner, tiny."""
    far = 1e6 * layout.clip
    corner = far * np.where(rng.random(layout.n_features) < 0.5, -1.0, 1.0)
    axis = np.zeros(layout.n_features)
    axis[rng.integers(layout.n_features)] = far
    other = np.zeros(layout.n_features)
    other[rng.integers(layout.n_features)] = -far
    inner = layout.centre + 1e-9 * corner / far
    yield corner, -corner
    yield corner, corner
    yield np.full(layout.n_features, far), np.full(layout.n_features, -far)
    yield corner, axis
    yield axis, other
    yield corner, inner
    yield axis, -axis


def design_pairs(
    rng: Any, layout: Layout, neighbours: Neighbours, n_classes: int, n_random: int
) -> Iterator[tuple[DesignData, DesignData]]:
    """Yield neighbouring designs: random rows replaced by random rows, then extremes with opposite labels."""
    labels = list(range(n_classes))
    swaps = [(_rows(rng, layout, 1)[0], _rows(rng, layout, 1)[0]) for _ in range(n_random)]
    swaps += list(_extreme_rows(rng, layout))
    for old, new in swaps:
        X = _rows(rng, layout, layout.n)
        target = rng.integers(0, n_classes, layout.n).astype(float)
        i = int(rng.integers(layout.n))
        for old_label, new_label in ((labels[0], labels[-1]), (labels[-1], labels[0]), (labels[0], labels[0])):
            X[i], target[i] = old, old_label
            one = design_data(layout, X, target)
            if neighbours is Neighbours.ZERO_OUT:
                yield one, replace(one, design=one.design.without_row(i), target=np.delete(one.target, i))
                continue
            X2, target2 = X.copy(), target.copy()
            X2[i], target2[i] = new, new_label
            yield one, replace(one, design=design_data(layout, X2, target2).design, target=target2)


def table_pairs(rng: Any, neighbours: Neighbours, sparse: bool, n_random: int) -> Iterator[tuple[TableData, TableData]]:
    """Yield neighbouring raw tables, with values on and off a grid of powers of two."""
    make = sp.csc_array if sparse else np.asarray
    for trial in range(n_random + 4):
        n = 15
        X = np.where(rng.random((n, 2)) < 0.5, rng.normal(0, 3, (n, 2)), 2.0 ** rng.integers(-2, 3, (n, 2)))
        if trial % 4 == 0:
            X[:] = 0.0
        i = int(rng.integers(n))
        X[i] = (1e6, -1e6, 0.0)[trial % 3]
        one = TableData(make(X))
        if neighbours is Neighbours.ZERO_OUT:
            yield one, TableData(make(np.delete(X, i, axis=0)), n=n)
            continue
        X2 = X.copy()
        X2[i] = (-1e6, 0.0, 1e6)[trial % 3]
        yield one, TableData(make(X2))
