"""The released metric, the prox in it, and how much of its noise a descent hands on: public numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dperm.data.design.row_map import RowMap
from dperm.errors import Unsupported
from dperm.kernels.exact import Grids
from dperm.objective import Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.types import FloatArray

__all__ = ["Metric", "MetricProx", "handed_on"]


@dataclass(frozen=True, eq=False)
class Metric:
    """A map under which the rows are as round as the noise lets one see.

    Attributes
    ----------
    rows : RowMap
        The map B.
    seen : array of shape (d,)
        Second moment of the mapped rows in each direction, between 0 (only noise) and 1.
    length : float
        Typical L2 norm of a mapped row.
    middle : array of shape (d,)
        Mean row, not mapped, in units of its last entry; long rows count less. It means nothing without a constant.
    """

    rows: RowMap
    seen: FloatArray
    length: float
    middle: FloatArray

    @classmethod
    def of(cls, moments: FloatArray, heights: FloatArray, noise: float, row_clip: float, grids: Grids) -> Metric:
        """Build it from released second moments.

        ``heights`` scales the columns before the moments were taken, ``noise`` is the standard deviation of a diagonal
        entry, ``row_clip`` the length at which rows were clipped.
        """
        d = len(moments)
        values, vectors = np.linalg.eigh(moments)
        # a symmetric matrix of such noise has a spectral norm of about noise sqrt(2 d): below it nothing can be seen
        floor = max(noise * math.sqrt(2.0 * d), 1e-9 * row_clip**2)
        found = _without_noise(values, floor, _trace(float(values.sum()), noise * math.sqrt(d), row_clip**2))
        floored = np.maximum(found, floor)
        seen = found / floored
        length = math.sqrt(max(float(seen.sum()), 1e-6))
        middle = moments[:, -1] / heights * (heights[-1] / max(float(moments[-1, -1]), floor))
        middle[-1] = 1.0  # known, however noisy its square was released
        return cls(RowMap(heights[:, None] * vectors / np.sqrt(floored), grids), seen, length, middle)


def _trace(released: float, noise: float, largest: float) -> float:
    """Sum of all second moments: rows are about as long as they were clipped, which counts as a guess with an error."""
    guess, error = 0.85 * largest, 0.15 * largest
    trace = (released * error**2 + guess * noise**2) / (error**2 + noise**2)
    return min(max(trace, 0.05 * largest), largest)


def _without_noise(values: FloatArray, floor: float, trace: float) -> FloatArray:
    """Second moments along released eigenvectors, given the eigenvalues.

    An eigenvalue that lies x from the level of the rest owes part of that to noise of spectral norm f: along its
    eigenvector the data themselves differ from the level by sqrt(x^2 - f^2), by nothing where |x| <= f (Benaych-Georges
    & Nadakuditi 2011; Donoho, Gavish & Johnstone 2018). Those that do not differ share what is left of the trace.
    """
    d = len(values)
    level, apart = trace / d, np.zeros(d)
    for _ in range(20):  # the level depends on what differs from it, and that on the level
        away = values - level
        apart = np.sign(away) * np.sqrt(np.maximum(away * away - floor * floor, 0.0))
        rest = apart == 0.0
        if not rest.any():
            break
        before, level = level, max(trace - float((level + apart)[~rest].sum()), 0.1 * trace / d) / int(rest.sum())
        if abs(level - before) <= 1e-3 * floor:
            break
    out: FloatArray = np.maximum(level + apart, 0.0)
    return out


class MetricProx:
    """argmin over u of |u - v|^2 / (2 step) + share * penalty(start + B u)."""

    def __init__(self, objective: Objective, matrix: FloatArray, start: FloatArray, share: float = 1.0) -> None:
        penalty = self.check(objective)
        d = len(matrix)
        penalised = np.ones(d)
        penalised[list(objective.unpenalised)] = 0.0
        self._matrix, self._start = matrix, start
        self._l1, self._l2 = share * penalty.l1 * penalised, share * penalty.l2 * penalised
        #: second derivative of the penalty in each direction
        self.bend: FloatArray = np.einsum("ij,i,ij->j", matrix, self._l2, matrix)
        if penalty.l1:
            self._inverse = np.linalg.inv(matrix)
            self._metric = self._inverse.T @ self._inverse
        elif penalty.l2:
            self._values, self._vectors = np.linalg.eigh(matrix.T @ (self._l2[:, None] * matrix))
            self._pull = matrix.T @ (self._l2[:, None] * start if start.ndim == 2 else self._l2 * start)

    @staticmethod
    def check(objective: Objective) -> SeparablePenalty:
        """Refuse penalties that have no prox in a metric here."""
        penalty = SeparablePenalty.of(objective.penalty)
        if objective.constraint is not None or not (math.isinf(penalty.low) and math.isinf(penalty.high)):
            raise Unsupported("this solver takes the penalties none, l1, l2 and elastic-net: choose another solver.")
        return penalty

    def __call__(self, v: FloatArray, before: FloatArray, step: float) -> FloatArray:
        """Return the proximal point; ``before`` starts the search."""
        if self._l1.any():
            return self._sparse(v, before, step)
        if not self._l2.any():
            return v
        moved = self._vectors.T @ (v - step * self._pull)
        factor = 1.0 / (1.0 + step * np.maximum(self._values, 0.0))
        out: FloatArray = self._vectors @ (moved * (factor if v.ndim == 1 else factor[:, None]))
        return out

    def _sparse(self, v: FloatArray, before: FloatArray, step: float) -> FloatArray:
        if v.ndim == 2:
            columns = [self._sparse_column(v[:, k], before[:, k], self._start[:, k], step) for k in range(v.shape[1])]
            return np.stack(columns, axis=1)
        return self._sparse_column(v, before, self._start, step)

    def _sparse_column(self, v: FloatArray, before: FloatArray, start: FloatArray, step: float) -> FloatArray:
        from dperm.kernels.metric import metric_prox  # compiled: only when needed

        w = metric_prox(
            self._metric, start + self._matrix @ v, start + self._matrix @ before, step * self._l1, step * self._l2
        )
        out: FloatArray = self._inverse @ (w - start)
        return out


def handed_on(
    curvature: FloatArray, steps: FloatArray, momentum: float, n_averaged: int, penalised: FloatArray | float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """What a descent hands on to its averaged iterate in directions of these curvatures.

    First the variance per unit of variance of noise that every step has anew, then the move per unit of a slope that
    all steps have in common: times the curvature it is the share of the way to the optimum that was gone.

    The iterates follow x <- ((1 + momentum - step h) x - momentum (x before) - step noise) / (1 + step q), with the
    second derivative q of what is ``penalised``; derivatives of the output are carried backwards through it.

    >>> handed_on(np.array([0.0, 0.5, 1.0]), np.ones(2), 0.0, 1)[1] * [0.0, 0.5, 1.0]
    array([0.  , 0.75, 1.  ])
    """
    n_steps = len(steps)
    later, latest = np.zeros_like(curvature), np.zeros_like(curvature)
    anew, common = np.zeros_like(curvature), np.zeros_like(curvature)
    next_step = 0.0
    for t in range(n_steps - 1, -1, -1):
        own = 1.0 / n_averaged if t >= n_steps - n_averaged else 0.0
        now = (own + (1.0 + momentum - next_step * curvature) * later - momentum * latest) / (
            1.0 + steps[t] * penalised
        )
        anew += (steps[t] * now) ** 2
        common += steps[t] * now
        later, latest, next_step = now, later, float(steps[t])
    return anew, common
