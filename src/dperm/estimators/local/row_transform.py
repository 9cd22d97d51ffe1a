"""Public transform from a person's features to the row they report on, and from fitted weights back to user units."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dperm.data.design.matrix import Scaling
from dperm.data.design.target_range import TargetRange
from dperm.data.tables.row_source import RowSource
from dperm.types import FloatArray

__all__ = ["RowTransform", "dense_blocks"]


_CHUNK = 1 << 18  # rows at a time, to bound memory


@dataclass(frozen=True)
class RowTransform:
    """Rows in the unit ball: features clipped and scaled, with a 1 for the intercept, divided by the row bound."""

    scaling: Scaling
    intercept: bool

    @property
    def n_columns(self) -> int:
        """Length of a row."""
        return self.scaling.n_features + self.intercept

    @cached_property
    def bound(self) -> float:
        """Bound on the length of a scaled row, including the intercept's constant 1."""
        longest = math.sqrt(self.scaling.n_features) * self.scaling.clip
        return math.hypot(min(longest, self.scaling.row_norm or math.inf), float(self.intercept))

    @property
    def reach(self) -> tuple[float, ...]:
        """Bound on every entry."""
        features = (min(1.0, self.scaling.clip / self.bound),) * self.scaling.n_features
        return features + (1.0 / self.bound,) * self.intercept

    @property
    def mean_squared_length(self) -> float:
        """Public guess of the mean of a row's sum of squares."""
        return min(1.0, (self.scaling.n_features * self.scaling.spread**2 + self.intercept) / self.bound**2)

    @property
    def mean_squares(self) -> FloatArray:
        """Public guess of the mean square of every entry; sums to :attr:`mean_squared_length`."""
        squares = np.append(np.full(self.scaling.n_features, self.scaling.spread**2), [1.0] * self.intercept)
        return np.asarray(squares * (self.mean_squared_length / squares.sum()))

    def apply(self, X: FloatArray) -> FloatArray:
        """Turn features into rows of the unit ball."""
        scaling = self.scaling
        with np.errstate(all="ignore"):  # an error that only some values raise would reveal them
            rows = np.clip((X - scaling.centre) / scaling.scale, -scaling.clip, scaling.clip)
            if scaling.row_norm is not None:
                length = np.linalg.norm(rows, axis=1, keepdims=True)
                rows *= np.minimum(1.0, scaling.row_norm / np.maximum(length, 1e-300))
            if self.intercept:
                rows = np.column_stack([rows, np.ones(len(rows))])
            return np.asarray(rows / self.bound)

    def to_user_units(self, target: TargetRange) -> tuple[FloatArray, FloatArray]:
        """Return A and b such that row weights w are A w + b in the user's units, the intercept last."""
        columns = []
        for unit in np.eye(self.n_columns):
            weights = target.half_width * unit / self.bound
            coefficients, intercept = self.scaling.coefficients_in_user_units(weights, float(self.intercept))
            columns.append(np.append(coefficients, intercept))
        return np.column_stack(columns), np.append(np.zeros(self.scaling.n_features), target.centre)

    def inputs(self, names: Any) -> dict[str, Any]:
        """Return plain data from which a device computes a row."""
        return {
            "names": None if names is None else [str(name) for name in names],
            "centre": self.scaling.centre.tolist(),
            "scale": self.scaling.scale.tolist(),
            "clip": self.scaling.clip,
            "row_norm": self.scaling.row_norm,
            "intercept": self.intercept,
            "divide_by": self.bound,
        }


def dense_blocks(X: Any) -> Iterator[FloatArray]:
    """Yield the rows in order as dense arrays, in blocks."""
    if isinstance(X, RowSource):
        yield from X.blocks()
        return
    table = X.tocsr() if sp.issparse(X) else X
    for start in range(0, table.shape[0], _CHUNK):
        part = table[start : start + _CHUNK]
        yield part.toarray() if sp.issparse(part) else np.asarray(part, np.float64)
