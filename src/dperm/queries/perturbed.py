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
from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import added
from dperm.errors import InvalidInput, Unsupported
from dperm.kernels.exact import Grids, toward_zero, weights_on_grid
from dperm.objective import Loss
from dperm.privacy.mechanisms.objective_perturbation import PerturbedObjective, PrivateObjective
from dperm.queries.gradients import predictions
from dperm.queries.sampled import ZeroOutQuery
from dperm.queries.statistics import Curvature, unpack_symmetric
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


def _scores(design: DesignMatrix, weights: FloatArray) -> FloatArray:
    """Rows times weights, rounded a few times at the very end: pieces of the weights have exact scores."""
    out, rest = np.zeros(design.n_rows), weights
    for _ in range(_PIECES):
        steps, spacing = weights_on_grid(rest, design.grids.weight_bits)
        out = out + design.scores(steps) * (design.spacing * spacing)
        rest = rest - steps * spacing
    return out


def _exact_sums(design: DesignMatrix, factors: FloatArray, bound: float, passes: int) -> FloatArray:
    """Sums of the rows times one factor each, of magnitude ``bound`` at most.

    Factors are taken apart into whole numbers of few bits, the largest first, whose sums are exact; so the results are
    the same for any order of the rows and their errors are those of the factors alone.
    """
    rest, out = factors, np.empty((passes, design.d))
    spacing = design.grids.spacing(bound, design.grids.slope_bits)
    for sums in out:
        steps = toward_zero(rest, spacing)
        sums[:] = design.sums(steps) * (design.spacing * spacing)
        rest = rest - steps * spacing
        spacing = math.ldexp(spacing, -design.grids.slope_bits)
    return out


@dataclass(frozen=True, eq=False)
class _SlopeSums:
    """Gradient of the sum of the losses, in pieces of decreasing size."""

    loss: Loss
    weights: FloatArray

    name: ClassVar[str] = "slope sums"
    reads_columns: ClassVar[bool] = False

    def part_size(self, facts: Facts) -> int:
        return _passes(facts.grids) * facts.d

    def part(self, block: DesignData) -> FloatArray:
        slopes = self.loss.slope(_scores(block.design, self.weights), block.target)
        return _exact_sums(block.design, slopes, self.loss.slope_bound, _passes(block.design.grids))


@dataclass(frozen=True, eq=False)
class _LossSums:
    """Sum of the losses in two pieces; it decides how long a step is, and no guarantee depends on it."""

    loss: Loss
    weights: FloatArray
    bound: float

    name: ClassVar[str] = "loss sums"
    reads_columns: ClassVar[bool] = False

    def part_size(self, facts: Facts) -> int:
        return 2

    def part(self, block: DesignData) -> FloatArray:
        rest = np.clip(self.loss.value(_scores(block.design, self.weights), block.target), 0.0, self.bound)
        out, spacing = np.empty(2), block.design.grids.count_spacing(self.bound)
        for k in range(2):
            steps = toward_zero(rest, spacing)
            out[k] = steps.sum() * spacing
            rest = rest - steps * spacing
            spacing *= block.design.grids.count_spacing(1.0)
        return out


@dataclass(frozen=True, eq=False)
class _CurvatureProducts:
    """The sum's second derivative at ``weights`` times a direction, in two pieces."""

    loss: Loss
    weights: FloatArray
    direction: FloatArray
    #: on the magnitude of a person's factor; one number for all blocks, whatever rounds it
    bound: float

    name: ClassVar[str] = "curvature products"
    reads_columns: ClassVar[bool] = False

    def part_size(self, facts: Facts) -> int:
        return 2 * facts.d

    def part(self, block: DesignData) -> FloatArray:
        curvature = self.loss.curvature(predictions(block, self.weights), block.target)
        factors = np.clip(curvature * predictions(block, self.direction), -self.bound, self.bound)
        return _exact_sums(block.design, factors, self.bound, 2)


def _widest(facts: Facts) -> float:
    """Return a number that no target is further from zero than."""
    return max(1.0, abs(facts.target_low), abs(facts.target_high))


class PeopleObjective(PrivateObjective):
    """The private function of :class:`PerturbedMinimum`, with gradients whose error is bounded."""

    def __init__(self, data: Any, query: PerturbedMinimum) -> None:
        self._data, self._query = data, query
        self._facts = data.facts
        self.size = query.size(self._facts)
        self.strength = float(query.strengths.min())
        self.curvature_ratio = query.curvature_ratio(self._facts)

    def gradient(self, weights: FloatArray, linear: FloatArray | None = None) -> FloatArray:
        """Gradient of the sum, the quadratic and the linear term."""
        out = self._query.strengths * weights
        if linear is not None:
            out = out + linear
        for sums in added(self._data.parts(_SlopeSums(self._query.loss, weights))):  # the largest first
            out = out + sums
        return out

    def _value(self, weights: FloatArray, linear: FloatArray) -> float:
        reach = self._facts.row_bound * float(np.linalg.norm(weights)) + _widest(self._facts)
        bound = self._query.loss.slope_bound * reach
        losses = float(added(self._data.parts(_LossSums(self._query.loss, weights, bound))).sum())
        return float(losses + (0.5 * self._query.strengths * weights + linear) @ weights)

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
        return float(facts.n * query.loss.curvature_bound * facts.row_bound**2 + query.strengths.max())

    def _search(self, weights: FloatArray, gradient: FloatArray, linear: FloatArray) -> FloatArray:
        """One Newton step, halved until the function falls (Nocedal & Wright 2006, section 3.1)."""
        direct = self.size <= MOST_DIRECT
        move = -(self._solve(weights, gradient) if direct else self._conjugate(weights, gradient))
        start, fall, length = self._value(weights, linear), float(gradient @ move), 1.0
        slack = 2.0**-40 * (abs(start) + 1.0)  # near the minimum the decrease is smaller than the rounding
        while length > 2.0**-30 and self._value(weights + length * move, linear) > start + 1e-4 * length * fall + slack:
            length /= 2.0
        return weights + length * move

    def _solve(self, weights: FloatArray, gradient: FloatArray) -> FloatArray:
        # rounded to whole steps, so that it is the same for every split of the rows
        curvature = Curvature(loss=self._query.loss, weights=weights)
        packed = curvature.total(self._data.parts(curvature), self._facts)
        matrix = np.diag(self._query.strengths) + unpack_symmetric(packed, self.size)
        try:
            solved: FloatArray = linalg.cho_solve(linalg.cho_factor(matrix, check_finite=False), gradient)
        except linalg.LinAlgError:  # ill-conditioned; an error would reveal something about the data: a short step
            return gradient / self._largest_curvature
        return solved

    def _conjugate(self, weights: FloatArray, gradient: FloatArray) -> FloatArray:
        """Solve for the Newton step by conjugate gradients, to a limited accuracy (Nocedal & Wright 2006, 7.1)."""
        strengths = self._query.strengths
        found, rest = np.zeros(self.size), gradient.copy()
        scaled = rest / strengths
        way, square = scaled.copy(), float(rest @ scaled)
        goal = square * 1e-6
        for _ in range(min(self.size, 500)):
            if not square > goal:
                break
            length = self._query.loss.curvature_bound * self._facts.row_bound * float(np.linalg.norm(way))
            bound = max(length, np.finfo(np.float64).tiny)
            products = added(self._data.parts(_CurvatureProducts(self._query.loss, weights, way, bound)))
            moved = products.sum(axis=0) + strengths * way
            share = square / float(way @ moved)
            found, rest = found + share * way, rest - share * moved
            scaled = rest / strengths
            before, square = square, float(rest @ scaled)
            way = scaled + (square / before) * way
        return found
