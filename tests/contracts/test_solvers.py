"""Every registered solver keeps its plan, depends on data through releases only, converges and passes the canary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from planted import private_data

from dperm.objective import L2, Logistic, Objective
from dperm.privacy.accounting.calibration import Plan, PlannedRelease
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries import FullGradient, TargetMoment
from dperm.solvers import SOLVERS, GradientDescent, Solution, WhitenedDescent, WideDescent
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
    # `wide` learns the columns beside a constant and the intercept afterwards, with one factor for all columns: that is
    # the optimum only where rows are centred
    check_solver(SOLVER_EXAMPLES[name], tolerance=1e-3 if name.startswith("wide") else 1e-4)


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
@pytest.mark.parametrize(
    ("kind", "options"),
    [(WhitenedDescent, {"noise_fraction": 0.3}), (WideDescent, {"n_steps": 4})],
    ids=["whitened", "wide"],
)
def test_a_start_that_reads_the_data_is_caught(kind, options, attribute, task):
    """Leaks that binary labels do not show: in the mean of a regression, in its skew, in the shares of many classes."""

    class Leaks(kind):
        @property
        def starting_point(self):
            return ReadsTheData(self.target_share, self.deviation_share, attribute, task)

    with pytest.raises(ContractViolation, match=r"different|depends on the data"):
        check_non_interference(Leaks(**options))


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
    """Charges for the full noise, adds half of it: the ledger alone cannot show that."""

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
    with pytest.raises(ContractViolation, match="other noise than was charged"):
        check_ledger_is_plan(SkimpsOnNoise())
    with pytest.raises(ContractViolation, match="leaks more than it claims"):
        check_gradient_canary(SkimpsOnNoise(), objective, data)


class PeeksWithoutPaying(GradientDescent):
    """Writes the exact sum of the targets into the last digits of the first weight: no noise, no charge."""

    def solve(self, objective, holder, calibrated, progress=None):
        solution = super().solve(objective, holder, calibrated, progress)
        exact = TargetMoment().evaluate(private_data(holder))[0] + 0.5 * holder.facts.n
        solution.weights[0] = np.rint(solution.weights[0] * 1e6) / 1e6 + exact * 1e-12
        return solution


def test_an_unpaid_value_is_caught_by_its_evaluation_and_by_its_effect():
    with pytest.raises(ContractViolation, match="evaluated 4 queries, was charged for 3 and released 3"):
        check_ledger_is_plan(PeeksWithoutPaying(n_steps=3))
    with pytest.raises(ContractViolation, match="result depends on the data in other ways"):
        check_non_interference(PeeksWithoutPaying(n_steps=3))


class LeaksInItsNoise(GaussianNoise):
    """Draws its own noise and hides the value in it."""

    def draw(self, value, sensitivity, bound, source):
        return super().draw(value, sensitivity, bound, source) + 1e-9 * value


class LeaksAfterItsNoise(GaussianNoise):
    def apply(self, value, sensitivity, bound, source):
        return super().apply(value, sensitivity, bound, source) + 1e-9 * value


def with_noise(noise):
    class OtherNoise(GradientDescent):
        def solve(self, objective, holder, calibrated, progress=None):
            honest = holder.release
            holder.release = lambda query, mechanism, group=None: honest(
                query, noise(mechanism.noise_multiplier), group
            )
            return super().solve(objective, holder, calibrated, progress)

    return OtherNoise(n_steps=3)


def test_a_mechanism_that_leaks_is_caught():
    check_non_interference(with_noise(GaussianNoise))
    for noise in (LeaksAfterItsNoise, LeaksInItsNoise):
        for check in (check_ledger_is_plan, check_non_interference):
            with pytest.raises(ContractViolation, match="not in MECHANISMS"):
                check(with_noise(noise))


class KeepsTheTargets:
    """Wraps each query in a class whose ``evaluate`` keeps an exact value: the result does not show it."""

    def __init__(self, by):
        self.by, self.seen = by, []

    def __call__(self, query):
        usual = type(query)

        def evaluate(one, data):
            self.seen.append(float(data.target.sum()))
            return usual.evaluate(one, data)

        other = object.__new__(type(usual.__name__, (usual,), {"evaluate": evaluate} if self.by == "class" else {}))
        vars(other).update(vars(query))
        if self.by == "instance":
            vars(other)["evaluate"] = evaluate.__get__(other)
        return other


def with_queries(wrap):
    class OtherQueries(GradientDescent):
        def solve(self, objective, holder, calibrated, progress=None):
            honest = holder.release
            holder.release = lambda query, mechanism, group=None: honest(wrap(query), mechanism, group)
            return super().solve(objective, holder, calibrated, progress)

    return OtherQueries(n_steps=3)


@pytest.mark.parametrize("by", ["class", "instance"])
@pytest.mark.parametrize("check", [check_ledger_is_plan, check_non_interference])
def test_a_query_that_keeps_private_data_is_caught(check, by):
    wrap = KeepsTheTargets(by)
    with pytest.raises(ContractViolation, match="not in QUERIES"):
        check(with_queries(wrap))
    assert wrap.seen  # it does see them: only the check refuses it


def test_a_loss_that_keeps_private_data_is_caught():
    class Keeps(Logistic):
        pass

    with pytest.raises(ContractViolation, match="the field 'loss' of FullGradient holds code"):
        check_ledger_is_plan(with_queries(lambda query: replace(query, loss=Keeps())))
