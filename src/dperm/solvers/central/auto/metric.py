"""The metric built from released second moments, and the proximal step in it: public numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dperm.data.design.row_map import RowMap
from dperm.errors import Unsupported
from dperm.kernels.exact import Grids
from dperm.objective import Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.solvers.central.auto.constants import RULE, TINY
from dperm.solvers.central.auto.row_length import combined
from dperm.types import FloatArray

__all__ = ["Metric", "MetricProx"]


@dataclass(frozen=True, eq=False)
class Metric:
    """A linear map under which the rows are isotropic, as far as the noise of the second moments allows.

    Attributes
    ----------
    row_map : RowMap
        The map B.
    row_moments : array of shape (d,)
        Estimated second moment of the mapped rows in each direction, between 0 (only noise) and 1.
    row_length : float
        Typical L2 norm of a mapped row.
    mean_row : array of shape (d,)
        Mean row before mapping, in units of its last entry; long rows count less. Meaningless without an intercept.
    """

    row_map: RowMap
    row_moments: FloatArray
    row_length: float
    mean_row: FloatArray

    @classmethod
    def of(cls, moments: FloatArray, heights: FloatArray, noise: float, row_clip: float, grids: Grids) -> Metric:
        """Build it from released second moments.

        ``heights`` are the factors by which columns were scaled before the moments were computed, ``noise`` is the
        standard deviation of the noise of a diagonal entry, and ``row_clip`` the length at which rows were clipped.
        """
        d = len(moments)
        # a dry run's moments are zero, and every direction is an eigenvector
        values, vectors = np.linalg.eigh(moments) if moments.any() else (np.zeros(d), np.eye(d))
        # a symmetric matrix of such noise has a spectral norm of about noise sqrt(2 d): smaller eigenvalues are noise
        floor = max(noise * math.sqrt(2.0 * d), TINY * row_clip**2)
        # the sum of all second moments; rows are about as long as their clipping threshold
        trace = combined(float(values.sum()), noise * math.sqrt(d), row_clip**2)
        trace = min(max(trace, RULE.least_kept * row_clip**2), row_clip**2)
        denoised = _denoise(values, floor, trace)
        floored = np.maximum(denoised, floor)
        row_moments = denoised / floored
        row_length = math.sqrt(max(float(row_moments.sum()), TINY))
        mean_row = moments[:, -1] / heights * (heights[-1] / max(float(moments[-1, -1]), floor))
        mean_row[-1] = 1.0  # the intercept column is public, however noisy its released second moment is
        return cls(RowMap(heights[:, None] * vectors / np.sqrt(floored), grids), row_moments, row_length, mean_row)


def _denoise(values: FloatArray, floor: float, trace: float) -> FloatArray:
    """Second moments along the released eigenvectors, estimated from the noisy eigenvalues.

    Noise of spectral norm f moves eigenvalues away from the bulk. If an eigenvalue lies x from the bulk level, the
    data differ from that level along its eigenvector by sqrt(x^2 - f^2), or by nothing if |x| <= f (Benaych-Georges &
    Nadakuditi 2011; Donoho, Gavish & Johnstone 2018). Bulk eigenvalues share equally what is left of the trace.
    """
    d = len(values)
    level, distances = trace / d, np.zeros(d)
    for _ in range(RULE.most_rounds):  # the level depends on which eigenvalues differ from it, and those on the level
        away = values - level
        distances = np.sign(away) * np.sqrt(np.maximum(away * away - floor * floor, 0.0))
        bulk = distances == 0.0
        if not bulk.any():
            break
        left = max(trace - float((level + distances)[~bulk].sum()), RULE.least_kept * trace / d)
        level = left / int(bulk.sum())
    out: FloatArray = np.maximum(level + distances, 0.0)
    return out


class MetricProx:
    """Proximal step in mapped coordinates: argmin over u of |u - v|^2 / (2 step) + share * penalty(start + B u)."""

    def __init__(self, objective: Objective, matrix: FloatArray, start: FloatArray, share: float = 1.0) -> None:
        penalty = self.check(objective)
        d = len(matrix)
        penalised = np.ones(d)
        penalised[list(objective.unpenalised)] = 0.0
        self._matrix, self._start = matrix, start
        self._l1, self._l2 = share * penalty.l1 * penalised, share * penalty.l2 * penalised

    # Decompositions are made when they are first needed: a dry run stops before that.
    @cached_property
    def penalty_curvature(self) -> FloatArray:
        """Second derivative of the penalty in each direction."""
        out: FloatArray = self._l2 @ np.square(self._matrix)
        return out

    @cached_property
    def _inverse(self) -> FloatArray:
        out: FloatArray = np.asarray(np.linalg.inv(self._matrix), np.float64)
        return out

    @cached_property
    def _metric(self) -> FloatArray:
        out: FloatArray = self._inverse.T @ self._inverse
        return out

    @cached_property
    def _eigen(self) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues and eigenvectors of an l2 penalty's second derivative."""
        root = np.sqrt(self._l2)[:, None] * self._matrix
        values, vectors = np.linalg.eigh(root.T @ root)
        return values, vectors

    @cached_property
    def _start_gradient(self) -> FloatArray:
        out: FloatArray = self._matrix.T @ (self._l2 * self._start.T).T
        return out

    @staticmethod
    def check(objective: Objective) -> SeparablePenalty:
        """Refuse penalties for which this proximal step is not implemented."""
        penalty = SeparablePenalty.of(objective.penalty)
        if objective.constraint is not None or not (math.isinf(penalty.low) and math.isinf(penalty.high)):
            raise Unsupported(
                "this solver supports the penalties none, l1, l2 and elastic-net only: choose another solver."
            )
        return penalty

    def __call__(self, v: FloatArray, before: FloatArray, step: float) -> FloatArray:
        """Return the proximal point; ``before`` is the starting value of the iteration for l1."""
        if self._l1.any():
            return self._sparse(v, before, step)
        if not self._l2.any():
            return v
        values, vectors = self._eigen
        moved = vectors.T @ (v - step * self._start_gradient)
        factor = 1.0 / (1.0 + step * np.maximum(values, 0.0))
        out: FloatArray = vectors @ (factor * moved.T).T
        return out

    def _sparse(self, v: FloatArray, before: FloatArray, step: float) -> FloatArray:
        from dperm.kernels.metric import metric_prox  # compiled code: imported only when needed

        # in units of weights; all outputs at once, as reading a large matrix takes longer than multiplying by it
        weights = self._start + self._matrix @ before
        gradient = self._inverse.T @ (before - v)
        centre = self._inverse @ self._start + v
        outputs = (one.reshape(len(v), -1) for one in (weights, gradient, centre))
        for w, slope, c in zip(*(one.T for one in outputs), strict=True):
            w[:] = metric_prox(self._metric, slope, w, step * self._l1, step * self._l2, float(c @ c))
        out: FloatArray = self._inverse @ (weights - self._start)
        return out
