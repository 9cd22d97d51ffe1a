"""Scores of single coordinates for greedy descent, all with one sensitivity. Proof: ``greedy.proof.md``.

Method: Mangold, Bellet, Salmon & Tommasi, AISTATS 2023 (DP-GCD). Its rules GS-s, GS-r and GS-q say how much a step
along one coordinate would achieve; here the noise is added to the score itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.weights import SparseWeights
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import Query, added
from dperm.errors import InvalidInput
from dperm.kernels.exact import toward_zero
from dperm.objective import Loss
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.mechanisms.selection import TwoLevelRace
from dperm.queries.gradients import GradientCoordinate, check_weights, clipped_slopes, slope_spacing
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = ["RULES", "ColumnConstants", "GradientCoordinateL1", "GreedyGradients", "GreedyScores"]


RULES = ("GS-s", "GS-r", "GS-q")  # in the order of the kernels' numbers for them

_ROUNDING = 2.0**-46  # error of a computed score, in public bounds


@dataclass(frozen=True, eq=False)
class ColumnConstants:
    """One public positive number for every column, the intercept's last.

    Compared by identity: a run passes one object from query to query, and its numbers are not compared again.

    >>> ColumnConstants((1.0, 0.5)).values.tolist()
    [1.0, 0.5]
    """

    values: FloatArray

    def __post_init__(self) -> None:
        values = np.array(self.values, np.float64)
        if values.ndim != 1 or not (np.isfinite(values) & (values > 0.0)).all():
            raise InvalidInput("constants of columns must be finite and above 0, one for each column.")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)


def _array(number: float | ColumnConstants) -> FloatArray:
    """Return an array with one number for all columns or one for each."""
    return number.values if isinstance(number, ColumnConstants) else np.array([float(number)])


@lru_cache(maxsize=4)  # a run needs the same public numbers at every step
def _extremes(
    smoothness: float | ColumnConstants,
    l2: float,
    limit: float | ColumnConstants | None,
    natural: float,
    intercept: float,
) -> tuple[float, float, float, float]:
    """Return largest person bound / root curvature, least and largest root, largest person bound, over all columns.

    ``natural`` bounds an unclipped product, ``intercept`` that of the constant column (0 without one).
    """
    roots = np.sqrt(_array(smoothness) + l2)
    person = np.minimum(natural, _array(math.inf if limit is None else limit))
    if intercept:
        person = np.broadcast_to(person, max(person.size, roots.size, 2)).copy()
        person[-1] = min(person[-1], intercept)
    return float((person / roots).max()), float(roots.min()), float(roots.max()), float(person.max())


@dataclass(frozen=True, eq=False)
class GreedyScores(Query):
    """For every coordinate, the value of a step along it by one of the greedy rules.

    Parameters
    ----------
    loss, weights
        Where the gradient is taken; weights are public.
    smoothness : float or ColumnConstants
        Public curvature of every coordinate: it sets the unit step of the rule.
    penalty : SeparablePenalty
        Enters the rule; not applied to ``unpenalised`` coordinates.
    rule : {"GS-s", "GS-r", "GS-q"}
        Largest violation of optimality, longest proximal step, largest decrease of the model. At a zero weight with an
        l1 penalty all three score the margin, gradient size less l1, without cutting it off at zero.
    limit : float or ColumnConstants, optional
        Bound on one person's product slope times value, each clipped on its own; by default nothing is clipped. The
        common sensitivity is the largest limit / sqrt(curvature) of any column.
    race : (noise multiplier, sensitivity), optional
        Public numbers of the selection that will follow. On sparse designs the scores are then kept between queries
        in a two-level race, and the cost of an update depends on what changed.
    excluded : tuple of int
        Public coordinates that are left out (chosen before); candidate k is the k-th of the others.
    """

    loss: Loss
    weights: SparseWeights
    smoothness: float | ColumnConstants
    penalty: SeparablePenalty
    unpenalised: tuple[int, ...] = ()
    rule: str = "GS-r"
    limit: float | ColumnConstants | None = None
    race: tuple[float, float] | None = None
    excluded: tuple[int, ...] = ()

    name: ClassVar[str] = "greedy scores"
    norm: ClassVar[str] = "linf"

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise InvalidInput(f"rule must be one of {', '.join(RULES)}, not {self.rule!r}.")
        for what in ("smoothness", "limit"):
            value = getattr(self, what)
            if not (value is None or isinstance(value, ColumnConstants)):
                positive(what, value)
        if not math.isfinite(self.loss.slope_bound) or self.loss.n_outputs != 1:
            raise InvalidInput("greedy scores need a loss with bounded slopes and one output.")
        low, high = self.penalty.low, self.penalty.high
        if not low <= 0.0 <= high:
            raise InvalidInput("greedy descent starts at zero, so the box must contain it.")
        if not (math.isinf(low) and math.isinf(high)) and any(
            not low <= v <= high for j, v in self.weights.entries.items() if j not in self.unpenalised
        ):
            raise InvalidInput("weights must lie inside the penalty's box: outside it the rules are not Lipschitz.")

    # ------------------------------------------------------------------------------------------- the rule
    @property
    def curvature(self) -> FloatArray:
        """Curvature, the l2 part of the penalty included: one number for all coordinates, or one for each."""
        return _array(self.smoothness) + self.penalty.l2

    @property
    def _rule(self) -> tuple[Any, ...]:
        """Arguments of the kernels that describe the rule."""
        free = np.zeros(self.weights.d, np.bool_)
        free[list(self.unpenalised)] = True
        penalty = self.penalty
        part = (float(penalty.l1), float(penalty.l2), float(penalty.low), float(penalty.high))
        return np.sqrt(self.curvature), self.curvature, free, part, RULES.index(self.rule)

    def _boxed_weights(self) -> FloatArray:
        """Return the weights as they enter the rule: clipped to their public box."""
        return np.clip(self.weights.dense(), -self.weights.box, self.weights.box)

    def scores_of(self, gradients: FloatArray, factor: float = 1.0) -> FloatArray:
        """Return all scores from all mean gradients, which are ``gradients * factor``."""
        from dperm.kernels.greedy import column_scores  # compiled: only when needed

        all_columns = np.arange(self.weights.d)
        out: FloatArray = column_scores(all_columns, gradients, factor, self._boxed_weights(), *self._rule)
        return out

    # --------------------------------------------------------------------------------------- evaluation
    def evaluate(self, data: Any) -> Any:
        whole = None if self.race is None or self.excluded else data.only_block
        if whole is not None and whole.design.compressed_columns is not None:
            # one block of sparse rows: scores are kept in a race, whose update costs what changed
            with whole.cache.lock:
                return _RaceState.of(whole, self).race
        return super().evaluate(data)

    def part(self, block: DesignData) -> FloatArray:
        """Return the gradient sums of all coordinates in grid steps, each product clipped."""
        slopes = clipped_slopes(block, self.loss, self.weights, np.inf)
        return self.sums_of(block, slopes, block.design.spacing * slope_spacing(block.design, self.loss))

    def total(self, parts: Iterable[FloatArray], facts: Facts) -> FloatArray:
        scores = self.scores_of(added(parts), self.step(facts) / facts.n)
        return np.delete(scores, self.excluded) if self.excluded else scores

    def step(self, facts: Facts) -> float:
        """Return the length of a grid step of the gradient sums."""
        return facts.spacing * facts.grids.spacing(self.loss.slope_bound, facts.grids.slope_bits)

    def coordinate(self, candidate: int) -> int:
        """Return the coordinate of a candidate that was chosen."""
        for j in sorted(self.excluded):
            candidate += candidate >= j
        return candidate

    def sums_of(self, data: DesignData, slopes: FloatArray, step: float) -> FloatArray:
        """The same from the slopes of all rows in grid steps."""
        if self.limit is None:
            return data.design.sums(slopes)
        return data.design.clipped_sums(slopes, self.limits(step))

    def limits(self, step: float) -> FloatArray:
        """Return the limit in whole grid steps: one number for all columns, or one for each."""
        return np.floor(_array(math.inf if self.limit is None else self.limit) / step)

    # --------------------------------------------------------------------------------------- sensitivity
    def _extremes(self, facts: Facts) -> tuple[float, float, float, float]:
        natural = self.loss.slope_bound * facts.block_bound(1) * (1.0 + 2.0**-50)
        intercept = self.loss.slope_bound * facts.intercept_height * (1.0 + 2.0**-50)
        return _extremes(self.smoothness, self.penalty.l2, self.limit, natural, intercept)

    def person_bound(self, facts: Facts) -> float:
        """Bound on one person's clipped product in any coordinate."""
        return self._extremes(facts)[3]

    def zero_out_sensitivity(self, facts: Facts) -> float:
        exact = self._extremes(facts)[0] / facts.n
        return exact * (1.0 + 2.0**-48) + 2.0 * _ROUNDING * self.bound(facts)

    def bound(self, facts: Facts) -> float:
        # public and the same at every step of a run: weights lie in the box
        worst, least, largest, _ = self._extremes(facts)
        return 4.0 * (worst + self.penalty.l1 / least + largest * self.weights.box)

    def size(self, facts: Facts) -> int:
        check_weights(self.weights, self.loss, facts)
        for what in (self.smoothness, self.limit):
            if isinstance(what, ColumnConstants) and len(what.values) != facts.d:
                raise InvalidInput(
                    f"smoothness and limit must be one number or {facts.d}, one per column, not {len(what.values)}."
                )
        if self.race is not None:  # refused before the charge if the race does not support these numbers
            multiplier, sensitivity = self.race
            TwoLevelRace.public_parameters(facts.d, sensitivity, multiplier, self.bound(facts))
        return facts.d - len(set(self.excluded))

    def part_size(self, facts: Facts) -> int:
        return facts.d  # excluded ones are left out of the total


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

    def part(self, block: DesignData) -> FloatArray:
        return self._rule().part(block)

    def total(self, parts: Iterable[FloatArray], facts: Facts) -> FloatArray:
        return added(parts) * self._rule().step(facts) / facts.n

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return self._rule().person_bound(facts) / facts.n * (1.0 + 2.0**-48) + _ROUNDING * self.bound(facts)

    def bound(self, facts: Facts) -> float:
        return self._rule().person_bound(facts) * (1.0 + 2.0**-48)

    def size(self, facts: Facts) -> int:
        return self._rule().size(facts)


class GradientCoordinateL1(GradientCoordinate):
    """One coordinate's gradient sum for Laplace noise: in one dimension the L1 and L2 sensitivities agree."""

    norm: ClassVar[str] = "l1"


class _RaceState:
    """Slopes, sums and race of one run on a sparse design, always equal to a full recomputation."""

    def __init__(self, data: DesignData, query: GreedyScores) -> None:
        design = data.design
        self.columns = design.compressed_columns
        self.rows = self.columns.tocsr()
        self.grid = slope_spacing(design, query.loss)
        self.step = design.spacing * self.grid
        self.factor = self.step / data.facts.n
        self.limits = query.limits(self.step)
        self.rule = query._rule
        self.stamp = np.full(design.d, -1, np.int64)
        self.touched = np.empty(design.d, np.int64)
        self.mark = 0
        scores = self._start(data, query)
        assert query.race is not None
        multiplier, sensitivity = query.race
        self.race = TwoLevelRace(scores, sensitivity, multiplier, query.bound(data.facts))

    @classmethod
    def of(cls, data: DesignData, query: GreedyScores) -> _RaceState:
        """Return the state for a query, brought up to date if one of the same run is kept."""
        run = (query.weights.d, query.weights.box, query.smoothness, query.penalty, query.unpenalised)
        key = (query.loss, *run, query.rule, query.limit, query.race)
        kept: dict[Any, _RaceState] = data.cache.incremental
        # removed while it is updated: an interruption leaves no state in which a person counts twice
        state = kept.pop(key, None)
        if state is None:
            kept.clear()
            state = cls(data, query)
        else:
            changed = query.weights.changed_columns(state.entries)
            if data.design.n_features in changed:  # the intercept changes every row
                state.race.update(np.arange(data.design.d), state._start(data, query))
            elif changed:
                state._move(data, query, changed)
        kept[key] = state
        return state

    def _start(self, data: DesignData, query: GreedyScores) -> FloatArray:
        """Recompute everything and return all scores."""
        self.slopes = clipped_slopes(data, query.loss, query.weights, np.inf)
        self.sums = query.sums_of(data, self.slopes, self.step)
        self.weights = query._boxed_weights()
        self.entries = dict(query.weights.entries)
        return query.scores_of(self.sums, self.factor)

    def _move(self, data: DesignData, query: GreedyScores, changed: list[int]) -> None:
        from dperm.kernels.greedy import column_scores, update_sums  # compiled: only when needed

        parts = [self.columns.indices[self.columns.indptr[j] : self.columns.indptr[j + 1]] for j in changed]
        rows = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
        new = self._slopes(data, query, rows)
        old = self.slopes[rows]
        self.mark += 1
        intercept = data.design.n_features
        first = changed if data.design.d == intercept else [*changed, intercept]
        self.touched[: len(first)] = first
        self.stamp[first] = self.mark
        n_touched = update_sums(
            rows, old, new, self.rows.data, self.rows.indices, self.rows.indptr,
            self.limits, self.sums, self.stamp, self.mark, self.touched, len(first),
        )  # fmt: skip
        self.slopes[rows] = new
        if data.design.d > intercept:
            limit, height = self.limits[-1], data.design.intercept_steps
            change = np.clip(height * new, -limit, limit) - np.clip(height * old, -limit, limit)
            self.sums[intercept] += change.sum()
        for j in changed:
            self.weights[j] = min(max(query.weights.entries.get(j, 0.0), -query.weights.box), query.weights.box)
        self.entries = dict(query.weights.entries)
        touched = self.touched[:n_touched]
        self.race.update(touched, column_scores(touched, self.sums, self.factor, self.weights, *self.rule))

    def _slopes(self, data: DesignData, query: GreedyScores, rows: Any) -> FloatArray:
        scores, spacing = data.cache.scores(data.design, query.weights)
        raw = query.loss.slope(scores[rows] * spacing, data.target[rows])
        bound = query.loss.slope_bound
        return toward_zero(np.minimum(np.maximum(raw, -bound), bound), self.grid)
