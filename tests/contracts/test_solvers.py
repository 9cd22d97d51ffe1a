"""Every registered solver keeps its plan, depends on data through releases only, converges and passes the canary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from dperm.objective import L2, Logistic, Objective
from dperm.privacy.accounting.calibration import Plan, PlannedRelease
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries import FullGradient
from dperm.solvers import SOLVERS, GradientDescent, Solution, WhitenedDescent
from dperm.solvers.base import Solver
from dperm.solvers.central.auto.starting_point import StartingPoint
from dperm.testing import (
    SOLVER_EXAMPLES,
    ContractViolation,
    check_gradient_canary,
    check_ledger_is_plan,
    check_noise_free_limit,
    check_non_interference,
    check_solver,
)
from dperm.testing.solvers import problem


def test_every_solver_has_an_example():
    assert set(SOLVER_EXAMPLES) == set(SOLVERS)


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_solver_keeps_every_contract(name):
    check_solver(SOLVER_EXAMPLES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_canary_with_fresh_entropy(name):
    data = problem(n=8)
    objective = Objective(Logistic(), L2(0.01), unpenalised=(data.design.n_features,))
    check_gradient_canary(SOLVER_EXAMPLES[name], objective, data, n_runs=4000, seed=None)


class OneReleaseMore(GradientDescent):
    def solve(self, objective, holder, calibrated, progress=None):
        solution = super().solve(objective, holder, calibrated, progress)
        holder.release(FullGradient(objective.loss, solution.weights), GaussianNoise(1.0))
        return solution


class ForgetsItsCount(GradientDescent):
    def plan(self, objective, facts):
        return Plan((PlannedRelease(FullGradient.name, "gaussian", 1),))


class UsesLessNoiseThanPlanned(GradientDescent):
    def solve(self, objective, holder, calibrated, progress=None):
        return super().solve(objective, holder, replace(calibrated, scale=calibrated.scale / 2), progress)


class PlansMoreThanItDoes(GradientDescent):
    def plan(self, objective, facts):
        return Plan((PlannedRelease(FullGradient.name, "gaussian", self.n_steps + 1),))


@pytest.mark.parametrize("bug", [OneReleaseMore, ForgetsItsCount, UsesLessNoiseThanPlanned, PlansMoreThanItDoes])
def test_leaving_the_plan_is_caught(bug):
    with pytest.raises(ContractViolation, match=r"left its plan|never made"):
        check_ledger_is_plan(bug(n_steps=3))


def private_data(holder):
    """Bypasses the holder, which no correct solver does."""
    return holder._DataHolder__data


class KeepsATrueCoefficient(GradientDescent):
    def solve(self, objective, holder, calibrated, progress=None):
        solution = super().solve(objective, holder, calibrated, progress)
        solution.weights[0] = private_data(holder).target.mean()
        return solution


class ClipsAtTheDataMedian(GradientDescent):
    def solve(self, objective, holder, calibrated, progress=None):
        clip = float(np.median(private_data(holder).design.norms()))
        return GradientDescent(self.n_steps, clip=clip).solve(objective, holder, calibrated, progress)


class StartsFromTheLabels(GradientDescent):
    def solve(self, objective, holder, calibrated, progress=None):
        start = np.full(holder.facts.d, private_data(holder).target.mean())
        holder.release(FullGradient(objective.loss, start), GaussianNoise(calibrated.noise_multiplier("gradient")))
        return Solution(np.zeros(holder.facts.d), 1)


class StopsWhenItLooksGood(GradientDescent):
    def solve(self, objective, holder, calibrated, progress=None):
        steps = 1 + int(private_data(holder).target.sum()) % 3
        return GradientDescent(steps).solve(objective, holder, calibrated, progress)


@pytest.mark.parametrize(
    "bug", [KeepsATrueCoefficient, ClipsAtTheDataMedian, StartsFromTheLabels, StopsWhenItLooksGood]
)
def test_interference_is_caught(bug):
    with pytest.raises(ContractViolation, match=r"different|depends on the data"):
        check_non_interference(bug(n_steps=3))


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_solver_is_blind_with_its_defaults_too(name):
    """Examples clip next to nothing, so that a clip that looks at the data would not show."""
    check_non_interference(SOLVERS[name]())


@dataclass(frozen=True)
class ReadsTheData(StartingPoint):
    """Its field of that name also tells the true mean of a target of this kind."""

    attribute: str = ""
    task: str = ""

    def release(self, loss, holder, calibrated):
        best = super().release(loss, holder, calibrated)
        if loss.task != self.task or (self.task == "classification" and loss.n_outputs == 1):
            return best
        secret = 0.1 * float(private_data(holder).target.mean())
        value = getattr(best, self.attribute)
        return replace(best, **{self.attribute: value + (secret * np.arange(len(value)) if np.ndim(value) else secret)})


@pytest.mark.parametrize(
    ("attribute", "task"),
    [("noise", "regression"), ("skew", "regression"), ("slope", "regression"), ("constant", "classification")],
)
def test_a_start_that_reads_the_data_is_caught(attribute, task):
    """Leaks that binary labels do not show: in the mean of a regression, in its skew, in the shares of many classes."""

    class Leaks(WhitenedDescent):
        @property
        def starting_point(self):
            return ReadsTheData(self.target_share, self.deviation_share, attribute, task)

    with pytest.raises(ContractViolation, match=r"different|depends on the data"):
        check_non_interference(Leaks(noise_fraction=0.3))


class PenalisesTheIntercept(GradientDescent):
    def solve(self, objective, holder, calibrated, progress=None):
        return super().solve(replace(objective, unpenalised=()), holder, calibrated, progress)


class StepsTheWrongWay(GradientDescent):
    def solve(self, objective, holder, calibrated, progress=None):
        solution = super().solve(objective, holder, calibrated, progress)
        return Solution(-solution.weights, solution.n_steps)


@pytest.mark.parametrize("bug", [PenalisesTheIntercept, StepsTheWrongWay])
def test_wrong_arithmetic_is_caught(bug):
    with pytest.raises(ContractViolation, match="without noise reaches"):
        check_noise_free_limit(bug(n_steps=400, clip=1e9, step=0.5, momentum=0.0, averaging=0.0))


@dataclass(frozen=True)
class Skimped(GaussianNoise):
    """Charges for the full noise, adds half of it: no plan and no ledger can see that."""

    def apply(self, value, sensitivity, bound, source):
        return GaussianNoise(self.noise_multiplier / 2).apply(value, sensitivity, bound, source)


@dataclass(frozen=True)
class SkimpsOnNoise(Solver):
    n_steps: int = 4
    name: ClassVar[str] = "skimps"

    def plan(self, objective, facts):
        return GradientDescent(self.n_steps).plan(objective, facts)

    def solve(self, objective, holder, calibrated, progress=None):
        honest = holder.release
        holder.release = lambda query, mechanism, group=None: honest(query, Skimped(mechanism.noise_multiplier), group)
        return GradientDescent(self.n_steps).solve(objective, holder, calibrated, progress)


def test_the_canary_catches_halved_noise():
    data = problem(n=8)
    objective = Objective(Logistic(), L2(0.01), unpenalised=(data.design.n_features,))
    check_ledger_is_plan(SkimpsOnNoise())
    with pytest.raises(ContractViolation, match="leaks more than it claims"):
        check_gradient_canary(SkimpsOnNoise(), objective, data)
