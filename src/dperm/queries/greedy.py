"""Scores of single coordinates for greedy descent, each with the same sensitivity. Proof: ``greedy.proof.md``.

Method: Mangold, Bellet, Salmon & Tommasi, AISTATS 2023 (DP-GCD). Its rules GS-s, GS-r and GS-q say how much a step
along one coordinate would achieve; here the noise is added to the score itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dperm.data.facts import Facts
from dperm.data.holder import DesignData
from dperm.data.query import Query
from dperm.data.weights import SparseWeights
from dperm.errors import InvalidInput
from dperm.kernels.exact import toward_zero
from dperm.objective import Loss
from dperm.objective.separable import SeparablePenalty
from dperm.privacy.selection import TwoLevelRace
from dperm.queries.gradients import GradientCoordinate, check_weights, clipped_slopes

__all__ = ["RULES", "GradientCoordinateL1", "GreedyGradients", "GreedyScores"]

FloatArray = NDArray[np.float64]

RULES = ("GS-s", "GS-r", "GS-q")

_ROUNDING = 2.0**-48  # a score takes a dozen operations, each of relative error 2^-53


@dataclass(frozen=True, eq=False)
class GreedyScores(Query):
    """For every coordinate, what a step along it is worth by one of the greedy rules.

    Parameters
    ----------
    loss, weights
        Where the gradient is taken; weights are public.
    smoothness : float
        Public curvature of every coordinate, the same for all: it sets the unit step of the rule.
    penalty : SeparablePenalty
        Enters the rule; not applied to ``unpenalised`` coordinates.
    rule : {"GS-s", "GS-r", "GS-q"}
        Largest violation of optimality, longest proximal step, largest decrease of the model. At a zero weight with an
        l1 penalty all three score the margin, gradient size less l1, without cutting it off at zero.
    limit : float, optional
        Bound on one person's product slope times value, each clipped on its own; by default nothing is clipped.
    race : (noise multiplier, sensitivity), optional
        Public numbers of the selection that will follow: on sparse designs scores are then kept up to date between
        queries inside a two-level race, at a cost by what changed.
    excluded : tuple of int
        Public coordinates that take no part (chosen before); candidate k is the k-th of the others.
    """

    loss: Loss
    weights: SparseWeights
    smoothness: float
    penalty: SeparablePenalty
    unpenalised: tuple[int, ...] = ()
    rule: str = "GS-r"
    limit: float | None = None
    race: tuple[float, float] | None = None
    excluded: tuple[int, ...] = ()

    name: ClassVar[str] = "greedy scores"
    norm: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise InvalidInput(f"rule must be one of {', '.join(RULES)}, not {self.rule!r}.")
        for what in ("smoothness", "limit"):
            value = getattr(self, what)
            if value is not None and not (math.isfinite(value) and value > 0.0):
                raise InvalidInput(f"{what} must be positive, not {value!r}.")
        if not math.isfinite(self.loss.slope_bound) or self.loss.n_outputs != 1:
            raise InvalidInput("greedy scores need a loss with bounded slopes and one output.")
        if not self.penalty.low <= 0.0 <= self.penalty.high:
            raise InvalidInput("greedy descent starts at zero, so the box must contain it.")
        inside = (self.penalty.low, self.penalty.high)
        if self._boxed and any(
            not inside[0] <= v <= inside[1] for j, v in self.weights.entries.items() if j not in self.unpenalised
        ):
            raise InvalidInput("weights must lie inside the penalty's box: outside it the rules are not Lipschitz.")

    # ------------------------------------------------------------------------------------------- the rule
    @property
    def curvature(self) -> float:
        """Curvature of a coordinate, the l2 part of the penalty included."""
        return self.smoothness + self.penalty.l2

    def at_zero(self, gradients: FloatArray) -> FloatArray:
        """Scores of coordinates whose weight is zero, from their mean gradients."""
        root = math.sqrt(self.curvature)
        if self._boxed:
            return root * np.abs(np.clip(gradients / -self.curvature, self.penalty.low, self.penalty.high))
        # without cutting off at zero: coordinates below the threshold keep their order, at the same sensitivity
        margin: FloatArray = (np.abs(gradients) - self.penalty.l1) / root
        return margin

    @property
    def _boxed(self) -> bool:
        return not (math.isinf(self.penalty.low) and math.isinf(self.penalty.high))

    def special(self) -> list[int]:
        """Coordinates that need the full rule: those with a weight and those without a penalty."""
        return sorted(self.weights.entries.keys() | set(self.unpenalised))

    def one(self, gradient: float, column: int) -> float:
        """Score of one coordinate by the full rule."""
        curvature, part = self.curvature, self.penalty
        root = math.sqrt(curvature)
        if column in self.unpenalised:
            return abs(gradient) / root
        weight = self.weights.entries.get(column, 0.0)
        gradient = gradient + part.l2 * weight
        if part.smooth:
            return abs(gradient) / root
        if weight == 0.0:
            if self._boxed:
                return root * abs(min(max(gradient / -curvature, part.low), part.high))
            return (abs(gradient) - part.l1) / root
        if self.rule == "GS-s" and not self._boxed:
            return abs(gradient + math.copysign(part.l1, weight)) / root
        moved = part.prox_one(weight - gradient / curvature, 1.0 / curvature)
        step = moved - weight
        if self.rule != "GS-q":
            return root * abs(step)
        decrease = -(gradient * step + 0.5 * curvature * step * step + part.l1 * (abs(moved) - abs(weight)))
        return math.sqrt(2.0 * max(decrease, 0.0))

    # --------------------------------------------------------------------------------------- evaluation
    def evaluate(self, data: DesignData) -> Any:
        if self.race is not None and not self.excluded and data.design.compressed_columns is not None:
            return _State.of(data, self).race
        scores = self.scores(data)
        return np.delete(scores, self.excluded) if self.excluded else scores

    def coordinate(self, candidate: int) -> int:
        """Return the coordinate of a candidate that was chosen."""
        for j in sorted(self.excluded):
            candidate += candidate >= j
        return candidate

    def scores(self, data: DesignData) -> FloatArray:
        """All scores, by a full pass."""
        sums, step = self.sums(data)
        return self.scores_of(sums * step / data.facts.n)

    def scores_of(self, gradients: FloatArray) -> FloatArray:
        """All scores from all mean gradients."""
        out = self.at_zero(gradients)
        for j in self.special():
            out[j] = self.one(float(gradients[j]), j)
        return out

    def sums(self, data: DesignData) -> tuple[FloatArray, float]:
        """Gradient sums of all coordinates in grid steps, each product clipped, and their spacing."""
        slopes, spacing = clipped_slopes(data, self.loss, self.weights, np.inf)
        step = data.design.spacing * spacing
        if self.limit is None:
            return data.design.sums(slopes), step
        return data.design.clipped_sums(slopes, self.limits(data, step)), step

    def limits(self, data: DesignData, step: float) -> FloatArray:
        """The limit in whole grid steps, for every column."""
        top = math.inf if self.limit is None else math.floor(self.limit / step)
        return np.full(data.design.d, float(top))

    # --------------------------------------------------------------------------------------- sensitivity
    def _person(self, facts: Facts) -> float:
        natural = self.loss.slope_bound * facts.value_bound * (1.0 + 2.0**-50)
        return natural if self.limit is None else min(natural, self.limit)

    def zero_out_sensitivity(self, facts: Facts) -> float:
        exact = self._person(facts) / (facts.n * math.sqrt(self.curvature))
        return exact * (1.0 + 2.0**-48) + 2.0 * _ROUNDING * self.bound(facts)

    def bound(self, facts: Facts) -> float:
        # public and the same at every step of a run: weights lie in the box
        farthest = self._person(facts) + self.penalty.l1 + self.curvature * self.weights.box
        return 4.0 * farthest / math.sqrt(self.curvature)

    def size(self, facts: Facts) -> int:
        check_weights(self.weights, self.loss, facts)
        if self.race is not None:  # refused before the charge if these numbers cannot be raced
            multiplier, sensitivity = self.race
            TwoLevelRace.numbers(facts.d, sensitivity, multiplier, self.bound(facts))
        return facts.d - len(set(self.excluded))


@dataclass(frozen=True, eq=False)
class GreedyGradients(Query):
    """Mean gradients of all coordinates; each changes by at most twice the limit over n when a person is replaced.

    For the printed noise of the DP-GCD paper only, which is added to every coordinate on its own.
    """

    loss: Loss
    weights: SparseWeights
    limit: float | None = None

    name: ClassVar[str] = "greedy gradients"
    norm: ClassVar[str] = "coordinatewise"

    def _rule(self) -> GreedyScores:
        return GreedyScores(self.loss, self.weights, 1.0, SeparablePenalty(), limit=self.limit)

    def evaluate(self, data: DesignData) -> FloatArray:
        sums, step = self._rule().sums(data)
        return sums * step / data.facts.n

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return self._rule()._person(facts) / facts.n * (1.0 + 2.0**-48) + _ROUNDING * self.bound(facts)

    def bound(self, facts: Facts) -> float:
        return self._rule()._person(facts) * (1.0 + 2.0**-48)

    def size(self, facts: Facts) -> int:
        return self._rule().size(facts)


class GradientCoordinateL1(GradientCoordinate):
    """One coordinate's gradient sum for Laplace noise: in one dimension the L1 and L2 sensitivities agree."""

    norm: ClassVar[str] = "l1"


class _State:
    """Slopes, sums and race of one run on a sparse design, equal at every moment to a full recomputation."""

    def __init__(self, data: DesignData, query: GreedyScores) -> None:
        design = data.design
        self.columns = design.compressed_columns
        self.rows = self.columns.tocsr()
        self.slopes, slope_spacing = clipped_slopes(data, query.loss, query.weights, np.inf)
        self.step = design.spacing * slope_spacing
        self.limits = query.limits(data, self.step)
        self.sums = query.sums(data)[0]
        self.entries = dict(query.weights.entries)
        self.stamp = np.full(design.d, -1, np.int64)
        self.touched = np.empty(design.d, np.int64)
        self.mark = 0
        assert query.race is not None
        multiplier, sensitivity = query.race
        scores = query.scores_of(self.sums * self.step / data.facts.n)
        self.race = TwoLevelRace(scores, sensitivity, multiplier, query.bound(data.facts))

    @classmethod
    def of(cls, data: DesignData, query: GreedyScores) -> _State:
        """Return the state for a query, brought up to date if one of the same run is kept."""
        run = (query.weights.d, query.weights.box, query.smoothness, query.penalty, query.unpenalised)
        key = (query.loss, *run, query.rule, query.limit, query.race)
        kept: dict[Any, _State] = data.memory.incremental
        state = kept.get(key)
        changed = [] if state is None else query.weights.changed(state.entries)
        if state is None or data.design.n_features in changed:  # the intercept touches every row: start afresh
            kept.clear()
            state = kept[key] = cls(data, query)
        elif changed:
            state._move(data, query, changed)
        return state

    def _move(self, data: DesignData, query: GreedyScores, changed: list[int]) -> None:
        from dperm.kernels.greedy import update_sums  # compiled: only when needed

        parts = [self.columns.indices[self.columns.indptr[j] : self.columns.indptr[j + 1]] for j in changed]
        rows = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
        new = self._slopes(data, query, rows)
        old = self.slopes[rows]
        self.mark += 1
        n_touched = update_sums(
            rows, old, new, self.rows.data, self.rows.indices, self.rows.indptr,
            self.limits, self.sums, self.stamp, self.mark, self.touched,
        )  # fmt: skip
        self.slopes[rows] = new
        touched = self.touched[:n_touched].copy()
        intercept = data.design.n_features
        if data.design.d > intercept:
            limit, height = self.limits[intercept], data.design.intercept_steps
            change = np.clip(height * new, -limit, limit) - np.clip(height * old, -limit, limit)
            self.sums[intercept] += change.sum()
        self.entries = dict(query.weights.entries)
        moved = [j for j in query.special() if self.stamp[j] == self.mark or j >= intercept]
        special = np.array(sorted({*moved, *changed}), dtype=np.int64)
        n = data.facts.n
        exact = [query.one(float(self.sums[j] * self.step / n), int(j)) for j in special]
        # those with the full rule come last and overwrite
        columns = np.concatenate([touched, special])
        self.race.update(columns, np.concatenate([query.at_zero(self.sums[touched] * self.step / n), exact]))

    def _slopes(self, data: DesignData, query: GreedyScores, rows: Any) -> FloatArray:
        scores, spacing = data.memory.scores(data.design, query.weights)
        raw = query.loss.slope(scores[rows] * spacing, data.target[rows])
        raw = np.clip(raw, -query.loss.slope_bound, query.loss.slope_bound)
        grids = data.design.grids
        return toward_zero(raw, grids.spacing(query.loss.slope_bound, grids.slope_bits))
