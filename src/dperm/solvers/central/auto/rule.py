"""``solver="auto"``: chooses solver, step counts and budget shares from public facts alone.

``docs/automatic.md`` derives the rule and its constants. The choice releases nothing, so its privacy guarantee is that
of the chosen solver. Proof: ``rule.proof.md``.
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
from dperm.solvers.central.auto.costs import cost_in_metric, cost_without_metric
from dperm.solvers.central.auto.pursuit import SparsePursuit
from dperm.solvers.central.auto.recipes import noise_fraction, recipe_for
from dperm.solvers.central.auto.whitened import WhitenedDescent
from dperm.solvers.central.auto.wide import WideDescent
from dperm.solvers.central.auto.wide_or_sparse import WideOrSparse
from dperm.solvers.central.gradient import GradientDescent

__all__ = ["Automatic"]

#: `whitened` releases all second moments and is not chosen above this number of columns
_MAX_WHITENED_COLUMNS = 1500
#: largest budget share of a regression's target mean, and the wanted share above which the mean gets more than usual
_MAX_MEAN_SHARE, _FEW_ROWS = 0.7, 1.5
#: noise fraction below which the metric is taken: with so little noise a fit should resemble one without privacy, and a
#: descent without a metric would never learn the directions in which rows vary little
_SOME_NOISE = 1.0 / 3.0
#: rows are short if their squared length is at most this share of what columns of the public spread would give
_SHORT_ROWS = 0.25
#: `wide`: rows times mu at which the refit would take the whole budget, and the limits of its share
_ROWS_FOR_REFIT, _REFIT_SHARES = 60.0, (0.05, 0.1)
#: `wide`: rows times mu for which one step is long enough, the limits of the number of steps, the budget share of the
#: mean row length, and the largest one of class frequencies and of a target's mean
_ROWS_OF_A_STEP, _STEPS_OF_WIDE, _LENGTH_SHARE, _MAX_TARGETS_OF_WIDE = 4.5, (80, 256), 0.01, (0.2, 0.6)
#: `wide-or-sparse`: rows times mu at which the test would take the whole budget; rows times mu below which test and
#: refit take too much of it; and the number of columns up to which even a single one of them does not stand out
_ROWS_FOR_TEST, _LEAST_ROWS_FOR_TEST, _COLUMNS_FOR_TEST = 40.0, 150.0, 100
#: weight of the intercept's noise against that of one column when the budget is balanced between them
_INTERCEPT_WEIGHT = 2.0


@dataclass(frozen=True)
class Automatic(Solver):
    """The automatic rule: ``configured`` returns the solver it chooses once facts and budget are known."""

    name: ClassVar[str] = "auto"

    def configured(self, objective: Objective, facts: Facts, budget: Budget, neighbours: Neighbours) -> Solver:
        loss, mu = objective.loss, budget.mu
        separable = isinstance(objective.penalty, NoPenalty | L1 | L2 | ElasticNet)
        if not separable or objective.constraint is not None:
            return GradientDescent()
        noise_dominates = noise_fraction(loss, facts, mu, neighbours) > 0.5
        sparse = SeparablePenalty.of(objective.penalty).l1 > 0.0
        tested = loss.n_outputs == 1 and _worth_a_test(facts, mu, neighbours, sparse)
        if sparse and noise_dominates and loss.n_outputs == 1 and not _short_rows(facts):
            return (self._wide_or_sparse if tested else self._pursuit)(loss, facts, mu, neighbours)
        if facts.d > _MAX_WHITENED_COLUMNS or _without_metric(loss, facts, mu, neighbours):
            return (self._wide_or_sparse if tested else self._wide)(loss, facts, mu, neighbours)
        return self._whitened(loss, facts, mu, neighbours)

    @staticmethod
    def _pursuit(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> SparsePursuit:
        """As many steps as columns can be detected."""
        target = _target_share(loss, facts, mu, neighbours)
        return SparsePursuit(
            n_steps=_n_detectable(facts, mu, neighbours), target_share=max(target, 0.08), deviation_share=0.03, clip=1.5
        )

    def _wide_or_sparse(self, loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> WideOrSparse:
        """As `wide`, less the test; the steps of the descent are divided equally among those of the pursuit."""
        wide = self._wide(loss, facts, mu, neighbours)
        test = _ROWS_FOR_TEST * neighbours.records_apart / (facts.n * mu)
        before = wide.target_share + (wide.deviation_share if loss.task == "regression" else 0.0)
        rest = 1.0 - before - wide.length_share - wide.refit_share - test
        n_columns = max(2, _n_detectable(facts, mu * math.sqrt(rest), neighbours))
        quarters = 4 * n_columns  # a step of the pursuit measures with a quarter of its part
        return WideOrSparse(
            min(math.ceil(wide.n_steps / quarters), _STEPS_OF_WIDE[1] // quarters) * quarters,
            wide.target_share,
            wide.deviation_share,
            wide.length_share,
            wide.refit_share,
            n_columns=n_columns,
            test_share=test,
        )

    @staticmethod
    def _wide(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> WideDescent:
        """As many steps as the descent needs for its time; a refit that is precise enough."""
        rows_times_mu = facts.n * mu / neighbours.records_apart
        refit = min(max((_ROWS_FOR_REFIT / rows_times_mu) ** 2, _REFIT_SHARES[0]), _REFIT_SHARES[1])
        target = min(_target_share(loss, facts, mu, neighbours), _MAX_TARGETS_OF_WIDE[loss.task == "regression"])
        deviation = min(target, 0.05)
        rest = 1.0 - target - refit - _LENGTH_SHARE - (deviation if loss.task == "regression" else 0.0)
        n_steps = math.ceil(rows_times_mu * math.sqrt(rest) / _ROWS_OF_A_STEP)
        fewest, most = _STEPS_OF_WIDE
        return WideDescent(min(max(n_steps, fewest), most), target, deviation, _LENGTH_SHARE, refit)

    def _whitened(self, loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> WhitenedDescent:
        recipe = recipe_for(loss)
        fraction = noise_fraction(loss, facts, mu, neighbours)
        target = _target_share(loss, facts, mu, neighbours)
        length = min(max(target / (2.0 if loss.task == "classification" else 4.0), 0.005), 0.04)
        target = max(target, min(_balanced_target_share(loss, facts), recipe.target_shares[1]))
        moments = recipe.interpolate(recipe.moment_shares, fraction)
        deviation = min(target, 0.05)
        rest = 1.0 - target - length - moments - (deviation if loss.task == "regression" else 0.0)
        resolution = facts.n * math.sqrt(rest) * mu / (neighbours.records_apart * facts.d * math.sqrt(loss.n_outputs))
        # rows are seldom isotropic: plan for a quarter of the largest possible squared length
        time = recipe.total_time(fraction, 0.25, resolution)
        mean_decay = float(recipe.step_decay(fraction, 100).mean())
        wanted = time / mean_decay / (recipe.max_step / min(1.0, recipe.clip(fraction)))
        momentum = 0.0 if wanted <= 48 else 0.5
        # more steps would not change the result by more than its noise
        max_steps = 64 if fraction > 1e-3 else 128
        n_steps = min(max(8 * math.ceil(wanted * (1.0 - momentum) / 8.0), 40), max_steps)
        return WhitenedDescent(n_steps, fraction, momentum, target, deviation, length, moments)

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
    """Whether a descent without a metric has the smaller predicted cost."""
    if noise_fraction(loss, facts, mu, neighbours) < _SOME_NOISE:
        return False
    rows_times_mu = facts.n * mu / neighbours.records_apart
    duration = WideDescent(_STEPS_OF_WIDE[1]).duration(loss, rows_times_mu)
    without = cost_without_metric(loss, facts.d, duration, rows_times_mu)
    return without < cost_in_metric(loss, facts, mu, neighbours)


def _n_detectable(facts: Facts, mu: float, neighbours: Neighbours) -> int:
    """Number of columns that can stand out from the largest of d Gumbel noises, which grows like log d."""
    n_detectable = 0.29 * facts.n * mu / (neighbours.records_apart * math.log(max(3, facts.d)))
    return min(max(round(n_detectable), 1), 40)


def _worth_a_test(facts: Facts, mu: float, neighbours: Neighbours, sparse: bool) -> bool:
    """Whether there are rows enough for a test whether few columns matter, and columns enough for a difference.

    An l1 penalty says already that few matter: then the test takes twice as many rows to be worth its share.
    """
    rows_times_mu = facts.n * mu / neighbours.records_apart
    least = _LEAST_ROWS_FOR_TEST * (2.0 if sparse else 1.0)
    return facts.n_features > _COLUMNS_FOR_TEST and rows_times_mu > least and not _short_rows(facts)


def _short_rows(facts: Facts) -> bool:
    """Whether rows are declared so short that most entries must be near zero, as in texts."""
    return facts.block_bound(facts.n_features) ** 2 <= _SHORT_ROWS * facts.n_features * facts.spread**2


def _balanced_target_share(loss: Loss, facts: Facts) -> float:
    """Budget share of the target mean that minimises the total harm of its noise and the columns' noise.

    The former is proportional to 1 / share, the latter to d^2 / (1 - share), for any number of rows and any budget.
    """
    weight = _INTERCEPT_WEIGHT * math.sqrt(max(2, loss.n_outputs) / 2.0)
    return weight / (weight + facts.d)


def _target_share(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """Budget share of the target mean; it grows where few rows make the mean noisy."""
    recipe = recipe_for(loss)
    wanted = (recipe.rows_for_target * neighbours.records_apart / (facts.n * mu)) ** 2
    smallest, largest = recipe.target_shares
    if loss.task == "regression" and facts.d > facts.n_features:  # without an intercept the mean is not released
        # with so few rows that no column stands out from the noise, the mean is all that can be estimated
        largest = min(largest * max(1.0, math.sqrt(wanted / _FEW_ROWS)), _MAX_MEAN_SHARE)
    return min(max(wanted, smallest), largest)
