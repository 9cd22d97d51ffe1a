"""The minimiser of a perturbed objective, a private function that only a mechanism may minimise.

Proof: ``perturbed.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DesignData
from dperm.errors import InvalidInput, Unsupported
from dperm.kernels.exact import Grids, toward_zero, weights_on_grid
from dperm.objective import Loss
from dperm.privacy.mechanisms.objective_perturbation import PerturbedObjective, PrivateObjective
from dperm.queries.sampled import ZeroOutQuery
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = ["PeopleObjective", "PerturbedMinimum"]


_UP = 1.0 + 2.0**-48
_SLOPE_ERROR = 2.0**-49  # of a computed slope, relative to its bound: several times the rounding of its few operations
_PIECES = 4  # a weight is split into this many whole numbers of at least 20 bits
MOST_DIRECT = 384  # more columns than this: conjugate gradients instead of a matrix
NEWTON_STEPS = 60  # then plain gradient steps, which always converge


def _passes(grids: Grids) -> int:
    """Return into how many whole numbers a slope is split, so that the rest is below 2^-52 of it."""
    return -(-52 // grids.slope_bits)


@dataclass(frozen=True, eq=False)
class PerturbedMinimum(ZeroOutQuery):
    """Sum of the losses plus sum_j strengths_j w_j^2 / 2, to be minimised with a random linear term.

    Parameters
    ----------
    loss : Loss
        Convex, one output, bounded slopes and curvature.
    strengths : array of shape (d,)
        Public curvature of the quadratic in every weight, all positive, for the *sum* of the losses.
    radius : float
        Public bound on the minimiser's length, exceeded only for noise of negligible probability and then clipped.
    """

    loss: Loss
    strengths: FloatArray
    radius: float

    name: ClassVar[str] = "perturbed minimiser"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        if self.loss.n_outputs != 1:
            raise Unsupported("objective perturbation is proved for losses of one output only.")
        if not (math.isfinite(self.loss.slope_bound) and math.isfinite(self.loss.curvature_bound)):
            raise Unsupported(
                f"objective perturbation needs bounded slopes and curvature; the {self.loss.name} loss lacks them."
            )
        strengths = np.asarray(self.strengths, np.float64)
        if strengths.ndim != 1 or not (np.isfinite(strengths).all() and (strengths > 0.0).all()):
            raise InvalidInput("strengths must be above 0, one for each weight.")
        positive("radius", self.radius)
        object.__setattr__(self, "strengths", strengths)

    # ------------------------------------------------------------------------------------------- public numbers
    def curvature_ratio(self, facts: Facts) -> float:
        """Bound on curvature times sum_j x_j^2 / strengths_j over all allowed rows."""
        height = facts.intercept_height
        features = facts.row_bound**2 * _UP - height**2
        ratio = features / float(self.strengths[: facts.n_features].min(initial=math.inf))
        if facts.d > facts.n_features:
            ratio += height**2 / float(self.strengths[facts.n_features])
        return self.loss.curvature_bound * ratio * _UP

    def rounding(self, facts: Facts, length: float, linear: float) -> float:
        """Bound on the error of a computed gradient at a point of this length, with a linear term of that length."""
        scores = 2.0**-50 * (1.0 + facts.row_bound * length)
        slopes = _SLOPE_ERROR * self.loss.slope_bound + self.loss.curvature_bound * scores
        total = facts.n * self.loss.slope_bound * facts.row_bound + float(self.strengths.max()) * length + linear
        additions = _passes(facts.grids) + 4.0
        return (facts.n * facts.row_bound * slopes + 2.0**-52 * additions * total) * _UP

    def mechanism(self, noise_multiplier: float, facts: Facts) -> PerturbedObjective:
        """Return the mechanism that fits this query's public numbers."""
        # four times the largest rounding error within the radius: the search can always reach it
        far = self.rounding(facts, self.radius, self.radius * float(self.strengths.max()))
        return PerturbedObjective(
            noise_multiplier,
            curvature_ratio=self.curvature_ratio(facts),
            strength=float(self.strengths.min()),
            precision=4.0 * far,
        )

    # ------------------------------------------------------------------------------------------------ the query
    def evaluate(self, data: DesignData) -> Any:
        return PeopleObjective(data, self)

    def zero_out_sensitivity(self, facts: Facts) -> float:
        """Bound on one person's gradient, the sensitivity that scales the noise b."""
        return self.loss.slope_bound * facts.row_bound * _UP

    def bound(self, facts: Facts) -> float:
        return self.radius

    def size(self, facts: Facts) -> int:
        if self.strengths.shape != (facts.d,):
            raise InvalidInput(f"strengths must have shape {(facts.d,)}, not {self.strengths.shape}.")
        return facts.d


class PeopleObjective(PrivateObjective):
    """The private function of :class:`PerturbedMinimum`, with gradients whose error is bounded."""

    def __init__(self, data: DesignData, query: PerturbedMinimum) -> None:
        self._data, self._query = data, query
        self._facts = data.facts
        self.size = query.size(self._facts)
        self.strength = float(query.strengths.min())
        self.curvature_ratio = query.curvature_ratio(self._facts)

    def _scores(self, weights: FloatArray) -> FloatArray:
        """Rows times weights, rounded a few times at the very end: pieces of the weights have exact scores."""
        design, rest = self._data.design, weights
        out = np.zeros(design.n_rows)
        for _ in range(_PIECES):
            steps, spacing = weights_on_grid(rest, design.grids.weight_bits)
            out = out + design.scores(steps) * (design.spacing * spacing)
            rest = rest - steps * spacing
        return out

    def gradient(self, weights: FloatArray, linear: FloatArray | None = None) -> FloatArray:
        """Gradient of the sum, the quadratic and the linear term.

        Slopes are taken apart into whole numbers of few bits whose sums are exact, so the result is the same for any
        order of the rows and its error is that of the slopes alone.
        """
        design, loss = self._data.design, self._query.loss
        rest = loss.slope(self._scores(weights), self._data.target)
        spacing = design.grids.spacing(loss.slope_bound, design.grids.slope_bits)
        out = self._query.strengths * weights
        if linear is not None:
            out = out + linear
        for _ in range(_passes(design.grids)):
            steps = toward_zero(rest, spacing)
            out = out + design.sums(steps) * (design.spacing * spacing)
            rest = rest - steps * spacing
            spacing = math.ldexp(spacing, -design.grids.slope_bits)
        return out

    def _value(self, weights: FloatArray, linear: FloatArray) -> float:
        losses = float(self._query.loss.value(self._scores(weights), self._data.target).sum())
        return losses + float((0.5 * self._query.strengths * weights + linear) @ weights)

    def _certified(self, weights: FloatArray, gradient: FloatArray, linear: FloatArray) -> float:
        """Upper bound on the norm of the true gradient."""
        # a sum of d squares is off by at most d roundings, however it is split
        outward = 1.0 + (self.size + 8) * 2.0**-52
        lengths = [float(np.linalg.norm(part)) * outward for part in (weights, gradient, linear)]
        return lengths[1] + self._query.rounding(self._facts, lengths[0], lengths[2])

    def minimise(self, linear: FloatArray, tolerance: float) -> FloatArray:
        weights = np.zeros(self.size)
        gradient = self.gradient(weights, linear)
        step = 0
        while not self._certified(weights, gradient, linear) <= tolerance:
            if step < NEWTON_STEPS:
                weights = self._search(weights, gradient, linear)
            else:
                weights = weights - gradient / self._largest_curvature
            gradient = self.gradient(weights, linear)
            step += 1
        return weights

    @property
    def _largest_curvature(self) -> float:
        query, facts = self._query, self._facts
        return facts.n * query.loss.curvature_bound * facts.row_bound**2 + float(query.strengths.max())

    def _search(self, weights: FloatArray, gradient: FloatArray, linear: FloatArray) -> FloatArray:
        """One Newton step, halved until the function falls (Nocedal & Wright 2006, section 3.1)."""
        curvature = self._query.loss.curvature(self._scores(weights), self._data.target)
        direct = self.size <= MOST_DIRECT
        move = -(self._solve(curvature, gradient) if direct else self._conjugate(curvature, gradient))
        start, fall, length = self._value(weights, linear), float(gradient @ move), 1.0
        slack = 2.0**-40 * (abs(start) + 1.0)  # near the minimum the decrease is smaller than the rounding
        while length > 2.0**-30 and self._value(weights + length * move, linear) > start + 1e-4 * length * fall + slack:
            length /= 2.0
        return weights + length * move

    def _solve(self, curvature: FloatArray, gradient: FloatArray) -> FloatArray:
        matrix = np.diag(self._query.strengths)
        for part, steps in self._data.design.row_chunks():
            rows = steps * self._data.design.spacing
            matrix += (rows * curvature[part][:, None]).T @ rows
        try:
            solved: FloatArray = linalg.cho_solve(linalg.cho_factor(matrix, check_finite=False), gradient)
        except linalg.LinAlgError:  # ill-conditioned; an error would reveal something about the data: a short step
            return gradient / self._largest_curvature
        return solved

    def _conjugate(self, curvature: FloatArray, gradient: FloatArray) -> FloatArray:
        """Solve for the Newton step by conjugate gradients, to a limited accuracy (Nocedal & Wright 2006, 7.1)."""
        design, strengths = self._data.design, self._query.strengths
        found, rest = np.zeros(self.size), gradient.copy()
        scaled = rest / strengths
        way, square = scaled.copy(), float(rest @ scaled)
        goal = square * 1e-6
        for _ in range(min(self.size, 500)):
            if not square > goal:
                break
            moved = design.sums(curvature * design.scores(way)) * design.spacing**2 + strengths * way
            share = square / float(way @ moved)
            found, rest = found + share * way, rest - share * moved
            scaled = rest / strengths
            before, square = square, float(rest @ scaled)
            way = scaled + (square / before) * way
        return found
