"""What a descent has learnt, as the refit uses it: public numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.row_map import RowMap
from dperm.objective import Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.solvers.central.auto.constants import RULE, SMALLEST
from dperm.types import FloatArray

__all__ = ["NOISE_SCORE", "Learnt", "PenaltyOfFactors", "largest_score", "map_of"]

#: mean size of normal noise in its standard deviations: no typical score is smaller
NOISE_SCORE = math.sqrt(2.0 / math.pi)

#: a map whose largest entry is below this, or above its inverse, says nothing about the rows: its squares would vanish
_SMALLEST_MAP = SMALLEST**0.25


def largest_score(rows_times_mu: float) -> float:
    """Return the largest score that the refit is prepared for, in standard deviations of its noise."""
    return max(RULE.clear, RULE.duration * rows_times_mu)


@dataclass(frozen=True, eq=False)
class Learnt:
    """A direction that was learnt: a weight for each column, and what is known about them.

    Attributes
    ----------
    weights : array of shape (p,)
        A weight for each column.
    deviation : float
        Standard deviation of the noise of a weight without a penalty: the unit of scores.
    noise : float
        What an l2 penalty leaves of it.
    own : float
        Mean product of slope and score that a person's own gradient causes: it looks like signal in the rows that the
        descent has seen, and helps nobody else.
    time : float
        Sum of the step lengths, less what an l2 penalty takes away; 0 where the weights are no plain sum of gradients,
        as with an l1 penalty.
    """

    weights: FloatArray
    deviation: float
    noise: float
    own: float
    time: float = 0.0

    @property
    def signal(self) -> float:
        """Root of the share of the weights' squared length that is not noise; at least one deviation of that share."""
        noisy = np.count_nonzero(self.weights)  # an l1 penalty leaves few
        if not noisy:
            return 1.0
        square = float(np.square(self.weights / max(self.noise, SMALLEST)).sum())
        return math.sqrt(min(max(1.0 - noisy / square, math.sqrt(2.0 / noisy)), 1.0))

    def best_factor(self, square: float, curvature: float) -> float:
        """Factor of the weights that minimises the loss, as far as the weights themselves and public numbers tell.

        The weights are the time of the descent times the mean gradient on its way, plus noise. So their squared length
        without noise and own part, over the time, is the slope of the loss along them; ``square``, the mean square of a
        score, times ``curvature`` is its second derivative (one Newton step).
        """
        p = self.weights.size
        noise = self.noise**2 * (p + RULE.clear * math.sqrt(2.0 * p))
        signal = float(np.square(self.weights).sum()) - noise - self.time * self.own
        if not (self.time > 0.0 and square > 0.0 and signal > 0.0):
            return 0.0
        return signal / (self.time * curvature * square)


@dataclass(frozen=True, eq=False)
class PenaltyOfFactors:
    """The penalty as a function of the refit's coordinates, ``share`` of it because clipping shortens gradients too.

    The length of weights is mostly that of their noise, which says nothing about how large weights should be. So an l2
    penalty counts what is left of their squared length without the known noise.
    """

    matrix: FloatArray
    #: strength of the l1 penalty for each weight
    l1: FloatArray
    #: second derivative of an l2 penalty
    ridge: FloatArray

    @classmethod
    def of(cls, objective: Objective, matrix: FloatArray, signal: FloatArray, share: float) -> PenaltyOfFactors:
        """Build it; ``signal`` is the part of ``matrix`` that is not noise."""
        penalty = SeparablePenalty.of(objective.penalty)
        penalised = np.full(len(matrix), share)
        penalised[list(objective.unpenalised)] = 0.0
        return cls(matrix, penalty.l1 * penalised, signal.T @ (penalty.l2 * penalised[:, None] * signal))

    def slope_of_l1(self, weights: FloatArray) -> FloatArray:
        slope: FloatArray = self.matrix.T @ (self.l1 * np.sign(weights))
        return slope

    def prox(self, v: FloatArray, step: float) -> FloatArray:
        """Return the proximal point of the l2 penalty, which may be far steeper than the loss."""
        values, vectors = np.linalg.eigh(self.ridge)
        out: FloatArray = vectors @ ((vectors.T @ v) / (1.0 + step * np.maximum(values, 0.0)))
        return out


def map_of(matrix: FloatArray, facts: Facts) -> RowMap:
    """Return a map of rows; where nothing is left of the columns, one that lets every release be made nevertheless."""
    largest = float(np.abs(matrix).max(initial=0.0))
    usable = _SMALLEST_MAP <= largest <= 1.0 / _SMALLEST_MAP
    return RowMap(matrix if usable else np.ones_like(matrix), facts.grids)
