"""``solver="auto"``: chooses solver, step counts and budget shares from public facts alone.

``docs/automatic.md`` derives the rule and lists its constants. The choice releases nothing, so its privacy guarantee is
that of the chosen solver. Proof: ``rule.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.errors import PlanViolation
from dperm.objective import L1, L2, ElasticNet, Loss, NoPenalty, Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.solvers.base import Progress, Solution, Solver
from dperm.solvers.central.auto.constants import RULE
from dperm.solvers.central.auto.costs import cost_in_metric, cost_without_metric, noise_fraction
from dperm.solvers.central.auto.pursuit import SparsePursuit
from dperm.solvers.central.auto.shares import n_detectable, rows_times_mu, share_for_test, target_share
from dperm.solvers.central.auto.whitened import WhitenedDescent
from dperm.solvers.central.auto.wide import WideDescent, wanted_duration
from dperm.solvers.central.auto.wide_or_sparse import WideOrSparse
from dperm.solvers.central.gradient import GradientDescent

__all__ = ["Automatic"]


@dataclass(frozen=True)
class Automatic(Solver):
    """The automatic rule: ``configured`` returns the solver it chooses once facts and budget are known."""

    name: ClassVar[str] = "auto"

    def configured(self, objective: Objective, facts: Facts, budget: Budget, neighbours: Neighbours) -> Solver:
        loss, mu = objective.loss, budget.mu
        separable = isinstance(objective.penalty, NoPenalty | L1 | L2 | ElasticNet)
        if not separable or objective.constraint is not None:
            return GradientDescent()
        noise_dominates = noise_fraction(loss, facts, mu, neighbours) > RULE.much_noise
        sparse = SeparablePenalty.of(objective.penalty).l1 > 0.0
        pursued = sparse and noise_dominates and loss.n_outputs == 1 and not _short_rows(facts)
        if not pursued and not _without_metric(loss, facts, mu, neighbours):
            return self._whitened(loss, facts, mu, neighbours)
        if loss.n_outputs == 1 and _worth_a_test(facts, mu, neighbours, sparse):
            return self._wide_or_sparse(loss, facts, mu, neighbours)
        return (self._pursuit if pursued else self._wide)(loss, facts, mu, neighbours)

    @staticmethod
    def _whitened(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> WhitenedDescent:
        fraction = noise_fraction(loss, facts, mu, neighbours)
        return WhitenedDescent(
            RULE.n_steps,
            fraction,
            RULE.momentum,
            target_share(loss, facts, mu, neighbours),
            RULE.small_share,
            RULE.small_share,
            RULE.small_share * fraction + RULE.moment_share * (1.0 - fraction),
        )

    @staticmethod
    def _pursuit(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> SparsePursuit:
        """As many steps as columns can be detected."""
        return SparsePursuit(
            n_detectable(facts, mu, neighbours),
            RULE.selection_share,
            target_share(loss, facts, mu, neighbours),
            RULE.small_share,
            RULE.pursuit_clip,
            RULE.largest_contribution,
        )

    @staticmethod
    def _wide(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> WideDescent:
        """As many steps as the descent needs for its time."""
        one = WideDescent(n_steps=1)
        n_steps = math.ceil(wanted_duration(loss, rows_times_mu(facts, mu, neighbours)) / one.longest_duration(loss))
        return WideDescent(
            min(max(n_steps, RULE.n_steps), RULE.most_steps),
            target_share(loss, facts, mu, neighbours),
            RULE.small_share,
            RULE.small_share,
            RULE.refit_share,
        )

    def _wide_or_sparse(self, loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> WideOrSparse:
        """As `wide`, less the test; the steps of the descent are divided equally among those of the pursuit."""
        wide, test = self._wide(loss, facts, mu, neighbours), share_for_test(facts, mu, neighbours)
        rest = 1.0 - wide.share_before(loss) - wide.refit_share - test
        n_columns = max(2, n_detectable(facts, mu * math.sqrt(rest), neighbours))
        # a step of the pursuit selects with most of its releases and measures with at least one
        units = math.ceil(1.0 / (1.0 - RULE.selection_share)) * n_columns
        n_steps = min(math.ceil(wide.n_steps / units), RULE.most_steps // units) * units
        return WideOrSparse(
            n_steps,
            wide.target_share,
            wide.deviation_share,
            wide.length_share,
            wide.refit_share,
            n_columns=n_columns,
            selection_share=RULE.selection_share,
            test_share=test,
        )

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        raise PlanViolation("the automatic rule must be configured with a budget before it can plan.")

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        raise PlanViolation("the automatic rule must be configured with a budget before it can solve.")


def _without_metric(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> bool:
    """Whether a descent without a metric has the smaller predicted cost, or there are too many second moments.

    With little noise the metric is taken: then a fit should resemble one without privacy, and a descent without a
    metric would never learn the directions in which rows vary little.
    """
    if facts.d > RULE.most_columns_of_metric:
        return True
    if noise_fraction(loss, facts, mu, neighbours) < RULE.much_noise:
        return False
    rows = rows_times_mu(facts, mu, neighbours)
    without = cost_without_metric(loss, facts.d, WideDescent(n_steps=RULE.most_steps).duration(loss, rows), rows)
    return without < cost_in_metric(loss, facts, mu, neighbours)


def _worth_a_test(facts: Facts, mu: float, neighbours: Neighbours, sparse: bool) -> bool:
    """Whether there are rows enough for a test whether few columns matter, and columns enough for a difference.

    An l1 penalty says already that few matter: then the test must be cheaper to be worth its share.
    """
    most = RULE.most_test_share / (2.0 if sparse else 1.0)
    enough = share_for_test(facts, mu, neighbours) <= most
    return enough and facts.n_features > RULE.columns_for_test and not _short_rows(facts)


def _short_rows(facts: Facts) -> bool:
    """Whether rows are declared so short that most entries must be near zero, as in texts."""
    return facts.block_bound(facts.n_features) ** 2 <= RULE.short_rows * facts.n_features * facts.spread**2
