"""A paid test whether few columns matter, then greedy pursuit or the descent for wide data.

Greedy pursuit costs what selecting and measuring k columns costs, the descent what learning one direction in all
columns costs. So which one is better depends on how much of the gradient at the best constant is in its largest
coordinate, which public numbers do not tell. A release tells (``queries/sparsity.py``). The plan reserves one group of
equal Gaussian releases. The descent uses them one by one; pursuit makes fewer and more precise releases, each in the
place of several. Where the noise of the test leaves doubt, each gets half of them. The refit follows in any case.

**Guarantee.** Released to whoever sees the model or any step: target mean, for regression the mean deviation of the
target, mean row length, the test, ``n_steps`` clipped gradient sums of the columns or ``n_columns`` selected
coordinates and as many gradient sums of one coordinate, or half of both, and the refit's releases, all at the cost of
Gaussian noise. Composition is exact. Everything is fixed in advance except what enters queries, and which of them are
made: both use earlier releases only. Proof: ``wide_or_sparse.proof.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput
from dperm.objective import Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.units import gaussian_in_units, selection_in_units
from dperm.privacy.mechanisms.standard import GaussianNoise, NoisyMax
from dperm.queries.gradients import FeatureGradient
from dperm.queries.sparsity import GradientSparsity
from dperm.solvers.base import Progress
from dperm.solvers.central.auto.constants import RULE
from dperm.solvers.central.auto.learnt import Learnt
from dperm.solvers.central.auto.pursuit import SelectionCost, SparsePursuit
from dperm.solvers.central.auto.starting_point import BestConstant
from dperm.solvers.central.auto.wide import WideDescent
from dperm.solvers.option_checks import require_rest, require_share, require_whole
from dperm.types import FloatArray

__all__ = ["WideOrSparse"]


@dataclass(frozen=True)
class _SharedDescent(WideDescent):
    """The descent with its part of the planned releases that it shares with the pursuit."""

    group: ClassVar[str] = "descent or pursuit"


@dataclass(frozen=True)
class WideOrSparse(_SharedDescent):
    """The descent for many columns, or greedy pursuit where a paid test says that few of them matter.

    Parameters
    ----------
    n_steps, target_share, deviation_share, length_share, refit_share, clip, correct_overfit
        As for :class:`~dperm.solvers.WideDescent`.
    n_columns : int
        Number of steps of the pursuit, at least 2; ``n_steps`` is a multiple of it, at least four times as large.
    selection_share : float
        Share of the pursuit's budget that is spent on selecting columns.
    test_share : float
        Share of the budget for the test, taken from that of the gradients.
    """

    n_columns: int = RULE.n_steps // 4
    selection_share: float = RULE.selection_share
    test_share: float = RULE.most_test_share

    name: ClassVar[str] = "wide-or-sparse"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, "n_columns")
        require_share(self, "selection_share", "test_share")
        if self.n_columns < 2 or self.n_steps < 4 * self.n_columns or self.n_steps % self.n_columns:
            raise InvalidInput(
                "n_steps must be a multiple of n_columns, at least 4 times it, and n_columns at least 2."
            )
        require_rest(self, "target_share", "deviation_share", "length_share", "refit_share", "test_share")

    def shortened(self, n_steps: int) -> WideOrSparse:
        return replace(self, n_steps=max(4 * 2, n_steps - n_steps % 2), n_columns=2)

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        self.require_one_output(objective)
        self.require_no_constraint(objective)
        test = PlannedRelease(GradientSparsity.name, "gaussian", 1, self.test_share)
        releases: list[PlannedRelease] = []
        for release in super().plan(objective, facts).releases:
            if release.query == self.group:
                releases += [test, replace(release, share=release.share - self.test_share)]
            else:
                releases.append(release)
        return Plan(tuple(releases))

    def _descend(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        best: BestConstant,
        start: FloatArray,
        row_length: float,
        progress: Progress | None,
    ) -> list[Learnt]:
        """Return what the descent, the pursuit or both have learnt."""
        choice = self._choice(calibrated)
        # before the test, so that no refusal depends on its outcome
        self._pursuit(self.n_columns).check(objective, holder.facts, holder.neighbours, best, choice)
        facts, clip = holder.facts, self._gradient_clip(objective.loss, holder.facts, best, row_length)
        descent = FeatureGradient(objective.loss, start, clip)
        unit = GaussianNoise(calibrated.noise_multiplier(self.group))
        unit.noise_scale(descent.sensitivity(facts, holder.neighbours), descent.bound(facts), descent.size(facts))
        value = self._test(objective, holder, calibrated, best, start, row_length)
        expected = SeparablePenalty.of(objective.penalty).l1 > 0.0  # an l1 penalty says that few columns matter
        n_columns = self.n_columns if value > 0.5 or expected else self.n_columns // 2
        if value < -0.5:
            n_columns = 0
        units = self.n_steps // self.n_columns
        left, directions = self.n_steps - n_columns * units, list[Learnt]()

        def of_pursuit(done: int, _: int) -> None:
            if progress is not None:
                progress(left + done * units, self.n_steps + RULE.n_steps)

        def of_descent(done: int, _: int) -> None:
            if progress is not None:
                progress(done, self.n_steps + RULE.n_steps)

        if left:
            shared = _SharedDescent(left, clip=self.clip, correct_overfit=self.correct_overfit)
            directions += shared._descend(objective, holder, calibrated, best, start, row_length, of_descent)
        if n_columns:
            directions.append(
                self._pursue(self._pursuit(n_columns), objective, holder, best, choice, row_length, of_pursuit)
            )
        return directions

    @staticmethod
    def _pursuit(n_columns: int) -> SparsePursuit:
        return SparsePursuit(n_columns, clip=RULE.pursuit_clip, box=RULE.largest_contribution)

    def _test(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        best: BestConstant,
        start: FloatArray,
        row_length: float,
    ) -> float:
        """Release the test, in standard deviations of its noise: above 0 if pursuit is better."""
        facts, loss = holder.facts, objective.loss
        limit = min(RULE.pursuit_clip * best.slope * facts.spread, loss.slope_bound * facts.value_bound)
        clip = min(best.slope * row_length, loss.slope_bound * facts.block_bound(facts.n_features))
        # in typical products of slope and value, and typical gradients
        of_largest, of_length = (
            limit / (best.slope * facts.spread),
            RULE.sparse_ratio * clip / (best.slope * row_length),
        )
        query = GradientSparsity(loss, start, limit, clip, of_largest, of_length)
        mechanism = GaussianNoise(calibrated.noise_multiplier(GradientSparsity.name))
        deviation = mechanism.noise_multiplier * query.sensitivity(facts, holder.neighbours)
        return float(holder.release(query, mechanism)[0]) / deviation

    def _choice(self, calibrated: CalibratedPlan) -> SelectionCost:
        """Divide the planned releases equally among the steps of a pursuit of ``n_columns``."""
        unit, units = calibrated.noise_multiplier(self.group), self.n_steps // self.n_columns
        selecting = min(max(round(self.selection_share * units), 2), units - 1)
        select = NoisyMax(selection_in_units(unit, selecting))
        measure = GaussianNoise(gaussian_in_units(unit, units - selecting))
        return SelectionCost(select, measure, self.group, selecting, units - selecting)

    def _pursue(
        self,
        pursuit: SparsePursuit,
        objective: Objective,
        holder: DataHolder,
        best: BestConstant,
        choice: SelectionCost,
        row_length: float,
        progress: Progress,
    ) -> Learnt:
        """Return what the pursuit has learnt; nothing if no released gradient stands out from its noise."""
        n_features = holder.facts.n_features
        found = pursuit.pursue(objective, holder, best, choice, progress)
        weights = np.zeros(n_features)
        for j, weight in found.entries.items() if found.n_significant else ():
            if j < n_features:
                weights[j] = weight
        # the refit multiplies it by the length of a row, for the size of a score
        unit = found.typical_score / row_length
        return Learnt(weights, unit, unit, 0.0)
