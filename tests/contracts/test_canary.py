"""The canary detects halved noise in every solver, which plan and ledger do not show."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import ClassVar

import pytest

from dperm.errors import Unsupported
from dperm.objective import L2, Logistic, NoPenalty, Objective, SmoothedHinge
from dperm.privacy.accounting.budget import Budget
from dperm.solvers import SOLVERS, PerturbedMinimiser
from dperm.solvers.base import Solver
from dperm.testing import SOLVER_EXAMPLES, ContractViolation, check_gradient_canary
from dperm.testing.solvers import problem


@dataclass(frozen=True)
class AddsTooLittleNoise(Solver):
    """Charges for the full noise and adds half of it (or less) in all releases, or in those of one kind."""

    honest: Solver
    factor: float = 2.0
    kind: str | None = None
    name: ClassVar[str] = "too-little-noise"

    def plan(self, objective, facts):
        return self.honest.plan(objective, facts)

    def shortened(self, n_steps):
        return replace(self, honest=self.honest.shortened(n_steps))

    def solve(self, objective, holder, calibrated, progress=None):
        release = holder.release

        def release_with_less_noise(query, mechanism, group=None, units=1):
            if self.kind in (None, mechanism.kind):
                mechanism = replace(mechanism, noise_multiplier=mechanism.noise_multiplier / self.factor)
            if is_dataclass(query) and any(f.name == "race" for f in fields(query)):
                query = replace(query, race=None)
            return release(query, mechanism, group, units)

        holder.release = release_with_less_noise
        return self.honest.solve(objective, holder, calibrated, progress)


def setting(solver):
    data = problem(n=8)
    if isinstance(solver, PerturbedMinimiser):
        # Where its accounting is nearly tight: under a strong penalty curvature costs next to nothing, and weights stay
        # where the hinge's slope is at its bound, along the one direction in which the canary's row lies.
        return Objective(SmoothedHinge(0.5), L2(20.0), unpenalised=(data.design.n_features,)), data
    for penalty in (L2(0.01), NoPenalty()):
        objective = Objective(Logistic(), penalty, unpenalised=(data.design.n_features,))
        try:
            solver.plan(objective, data.facts)
        except Unsupported:
            continue
        return objective, data
    raise AssertionError("no setting suits this solver")


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_too_little_noise_is_caught_in_every_solver(name):
    solver = SOLVER_EXAMPLES[name]
    # one release shows best at a large epsilon, and this one has an intercept as strong as the rest
    budget = Budget(6.0, 1e-3) if name == "objective" else None
    solver = PerturbedMinimiser() if name == "objective" else solver
    check = partial(check_gradient_canary, n_runs=1500, n_steps=2, budget=budget)
    with pytest.raises(ContractViolation, match="leaks more than it claims"):
        check(AddsTooLittleNoise(solver), *setting(solver))


def test_the_canary_of_a_perturbed_objective_passes_the_honest_one():
    """At the very setting in which halved noise is caught."""
    solver = PerturbedMinimiser()
    check_gradient_canary(solver, *setting(solver), n_runs=1500, budget=Budget(6.0, 1e-3))


def test_selection_without_noise_is_caught():
    solver = SOLVER_EXAMPLES["greedy"]
    with pytest.raises(ContractViolation, match="leaks more than it claims"):
        check_gradient_canary(AddsTooLittleNoise(solver, 1e6, "selection"), *setting(solver), n_runs=1500, n_steps=2)
