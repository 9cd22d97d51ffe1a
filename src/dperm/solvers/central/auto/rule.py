"""``solver="auto"``: solver, counts and budget shares from public facts alone.

The rule, and why each of its numbers is what it is, is derived in ``docs/automatic.md``.
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
from dperm.solvers.central.auto.pursuit import SparsePursuit
from dperm.solvers.central.auto.recipes import noise_dominance, recipe_for
from dperm.solvers.central.auto.whitened import WhitenedDescent
from dperm.solvers.central.gradient import GradientDescent

__all__ = ["Automatic"]

_MOST_COLUMNS = 1500
#: most of the budget that the mean of a regression's target may take, and the wanted share from which it takes more
_MOST_FOR_MEAN, _TOO_FEW = 0.7, 1.5
#: noise of the constant is weighed against that of a column as if it did so many times the harm
_CONSTANT_COUNTS = 2.0


@dataclass(frozen=True)
class Automatic(Solver):
    """The automatic rule; it turns itself into another solver once facts and budget are known."""

    name: ClassVar[str] = "auto"

    def configured(self, objective: Objective, facts: Facts, budget: Budget, neighbours: Neighbours) -> Solver:
        loss, mu = objective.loss, budget.mu
        noisy = noise_dominance(loss, facts, mu, neighbours) > 0.5
        separable = isinstance(objective.penalty, NoPenalty | L1 | L2 | ElasticNet)
        sparse = separable and SeparablePenalty.of(objective.penalty).l1 > 0.0
        wide = facts.d > _MOST_COLUMNS
        if not separable or objective.constraint is not None:
            return GradientDescent()
        if loss.n_outputs == 1 and noisy and (sparse or wide):
            return self._pursuit(loss, facts, mu, neighbours)
        if wide:
            return GradientDescent()
        return self._whitened(loss, facts, mu, neighbours)

    @staticmethod
    def _pursuit(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> SparsePursuit:
        """As many steps as columns can be told from the largest of d Gumbel noises, about log d in size."""
        wanted = 0.29 * facts.n * mu / (neighbours.records_apart * math.log(max(3, facts.d)))
        target = _target_share(loss, facts, mu, neighbours)
        return SparsePursuit(
            n_steps=min(max(round(wanted), 1), 40), target_share=max(target, 0.08), deviation_share=0.03, clip=1.5
        )

    def _whitened(self, loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> WhitenedDescent:
        recipe = recipe_for(loss)
        dominance = noise_dominance(loss, facts, mu, neighbours)
        target = _target_share(loss, facts, mu, neighbours)
        length = min(max(target / (2.0 if loss.task == "classification" else 4.0), 0.005), 0.04)
        target = max(target, min(_balanced_share(loss, facts), recipe.target_shares[1]))
        moments = recipe.mixed(recipe.moment_shares, dominance)
        deviation = min(target, 0.05)
        rest = 1.0 - target - length - moments - (deviation if loss.task == "regression" else 0.0)
        resolution = facts.n * math.sqrt(rest) * mu / (neighbours.records_apart * facts.d * math.sqrt(loss.n_outputs))
        # rows are seldom round: a quarter of the possible squared length is planned for
        time = recipe.total_time(dominance, 0.25, resolution)
        mean_decay = float(recipe.decay(dominance, 100).mean())
        wanted = time / mean_decay / (recipe.longest_step / min(1.0, recipe.clip(dominance)))
        momentum = 0.0 if wanted <= 48 else 0.5
        # more steps than these gain nothing that noise would let one see
        most = 64 if dominance > 1e-3 else 128
        n_steps = min(max(8 * math.ceil(wanted * (1.0 - momentum) / 8.0), 40), most)
        return WhitenedDescent(n_steps, dominance, momentum, target, deviation, length, moments)

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


def _balanced_share(loss: Loss, facts: Facts) -> float:
    """Share of the target's mean with which its noise and that of all columns together do least harm.

    The first harms in proportion to 1 / share, the second to d^2 / (1 - share), whatever rows and budget are.
    """
    counts = _CONSTANT_COUNTS * math.sqrt(max(2, loss.n_outputs) / 2.0)
    return counts / (counts + facts.d)


def _target_share(loss: Loss, facts: Facts, mu: float, neighbours: Neighbours) -> float:
    """The mean of the target gets more of the budget where few rows make it noisy."""
    recipe = recipe_for(loss)
    few = (recipe.rows_for_target * neighbours.records_apart / (facts.n * mu)) ** 2
    least, most = recipe.target_shares
    if loss.task == "regression" and facts.d > facts.n_features:  # without an intercept it is not released
        # with so few rows that columns cannot be told from noise, the mean is all that can be had
        most = min(most * max(1.0, math.sqrt(few / _TOO_FEW)), _MOST_FOR_MEAN)
    return min(max(few, least), most)
