"""Variance-reduced descent: corrections vanish at the reference, their noise follows the distance, bugs are caught."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dperm import Ledger
from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import L2, Huber, Logistic, Multinomial, Objective, SmoothedHinge, Squared
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.sampled_noise import SampledGaussianNoise, Summands
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.queries import FullGradient, SampledCorrection
from dperm.solvers import SOLVERS, GradientDescent
from dperm.solvers.central.svrg import VarianceReducedDescent
from dperm.testing import (
    ContractViolation,
    check_gradient_canary,
    check_ledger_is_plan,
    check_non_interference,
    check_query,
)
from dperm.testing.data import Layout, design_data
from dperm.testing.solvers import problem

SAMPLED = VarianceReducedDescent(n_steps=6, epoch=3, rate=0.25, step=0.5)


def objective_of(data):
    return Objective(Logistic(), L2(0.01), unpenalised=(data.design.n_features,))


def run(solver, objective, data, scale=1e-8, seed=0):
    calibrated = CalibratedPlan(solver.plan(objective, data.facts), scale, Budget(1e8, 1e-6))
    scope = Scope(calibrated, Ledger(neighbours="zero-out"), Neighbours.ZERO_OUT, "test", unbounded="seeded")
    with scope:
        holder = DataHolder(data, scope, RandomSource(seed), Neighbours.ZERO_OUT)
        return solver.solve(objective, holder, calibrated), holder


def everyone(data):
    return np.ones(data.design.n_rows, bool)


# ----------------------------------------------------------------------------------------------------- the correction
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), SmoothedHinge(0.5)], ids=repr)
def test_a_correction_is_the_difference_of_two_gradients(loss):
    data = problem()
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=4), rng.normal(size=4)
    found = SampledCorrection(loss, one, two, 1e9).evaluate(data).total(everyone(data))
    wanted = FullGradient(loss, one).evaluate(data) - FullGradient(loss, two).evaluate(data)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    np.testing.assert_array_equal(SampledCorrection(loss, one, one, 1e9).evaluate(data).total(everyone(data)), 0.0)


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), SmoothedHinge(0.5)], ids=repr)
def test_the_public_bound_of_a_close_correction_cuts_nothing(loss):
    """Curvature times distance bounds every difference, and its own grid keeps their digits."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (50, 3))
    data = design_data(Layout(n=50, n_features=3), X, rng.integers(0, 2, 50))
    two = rng.normal(size=4)
    for distance in (1.0, 1e-2, 1e-4):
        one = two + distance * rng.normal(size=4)
        query = VarianceReducedDescent._correction(loss, data.facts, one, two, 1e9)
        rows = np.concatenate([block * data.design.spacing for _, block in data.design.row_chunks()])
        slopes = loss.slope(rows @ one, data.target) - loss.slope(rows @ two, data.target)
        np.testing.assert_allclose(
            query.evaluate(data).total(everyone(data)), rows.T @ slopes, atol=1e-4 * query.clip + 1e-9
        )
        assert query.zero_out_sensitivity(data.facts) <= loss.curvature_bound * data.facts.row_bound**2 * math.hypot(
            *(one - two)
        ) * (1.0 + 1e-9)


def test_at_the_reference_a_correction_is_still_a_release():
    data = problem()
    query = VarianceReducedDescent._correction(Logistic(), data.facts, np.zeros(4), np.zeros(4), 1.0)
    assert query.zero_out_sensitivity(data.facts) > 0.0


# --------------------------------------------------------------------------------------------------------- the solver
def test_with_everyone_in_the_batch_it_is_gradient_descent():
    data = problem()
    ours, _ = run(VarianceReducedDescent(n_steps=30, epoch=5, rate=1.0, clip=1e9, step=0.5), objective_of(data), data)
    theirs, _ = run(GradientDescent(n_steps=30, clip=1e9, step=0.5, momentum=0.0), objective_of(data), data)
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-4)


def test_batches_vary_less_than_those_of_plain_sgd():
    from dperm.solvers import StochasticGradientDescent

    data = problem(n=60)
    objective = objective_of(data)
    spread = {}
    for solver in (
        VarianceReducedDescent(n_steps=60, epoch=6, rate=0.2, clip=1e9, step=0.5),
        StochasticGradientDescent(n_steps=60, rate=0.2, clip=1e9, step=0.5),
    ):
        found = [run(solver, objective, data, seed=seed)[0].weights for seed in range(12)]
        spread[solver.name] = float(np.linalg.norm(np.std(found, axis=0)))
    assert spread["svrg"] < 0.3 * spread["sgd"]


def test_the_noise_of_a_correction_follows_the_distance():
    data = problem()
    _, holder = run(replace(SAMPLED, n_steps=30, epoch=3, clip=1e9), objective_of(data), data)
    corrections = [line for line in holder.released if line.query == "gradient correction"]
    gradients = [line for line in holder.released if line.query == "gradient"]
    assert len(gradients) == 10
    assert len(corrections) == 20
    assert len({line.noise_multiplier for line in corrections}) == 1  # planned in advance; only the clip moves
    assert corrections[-1].sensitivity < 0.5 * corrections[0].sensitivity < gradients[0].sensitivity


@pytest.mark.parametrize(
    ("n_steps", "epoch", "counts"), [(6, 3, (2, 4)), (7, 3, (3, 4)), (5, 1, (5,)), (1, 8, (1,)), (2, 8, (1, 1))]
)
def test_the_plan_counts_epochs_and_corrections(n_steps, epoch, counts):
    data = problem()
    solver = VarianceReducedDescent(n_steps=n_steps, epoch=epoch, rate=0.5)
    plan = solver.plan(objective_of(data), data.facts)
    assert tuple(release.count for release in plan.releases) == counts
    _, holder = run(solver, objective_of(data), data, scale=1.0)
    assert len(holder.released) == sum(counts) == n_steps


def test_refusals():
    facts = Facts(n=1000, n_features=2, d=2, value_bound=1.0, row_bound=1.0)
    with pytest.raises(InvalidInput, match="unbounded slopes"):
        VarianceReducedDescent().plan(Objective(Squared()), facts)
    with pytest.raises(Unsupported, match="two classes"):
        VarianceReducedDescent().plan(Objective(Multinomial(3)), facts)
    with pytest.raises(Unsupported, match="zero-out"):
        VarianceReducedDescent().check_neighbours(Neighbours.REPLACE_ONE)
    with pytest.raises(InvalidInput, match="not both"):
        VarianceReducedDescent(rate=0.1, batch_size=10)
    for wrong in ({"epoch": 0}, {"gradient_share": 0.0}, {"gradient_share": 1.0}, {"rate": 2.0}, {"step": -1.0}):
        with pytest.raises(InvalidInput, match=f"^{next(iter(wrong))} must be"):
            VarianceReducedDescent(**wrong)
    for wrong in ({"clip": 0.0}, {"clip": 1.0, "limit": -1.0}):
        with pytest.raises(InvalidInput, match="must be above 0"):
            SampledCorrection(Logistic(), np.zeros(2), np.zeros(2), **wrong)


# ------------------------------------------------------------------------------------ contracts with real samples, bugs
def test_the_solver_is_registered():
    assert SOLVERS["svrg"] is VarianceReducedDescent


def test_ledger_and_interference_with_batches(coarse):
    check_ledger_is_plan(SAMPLED)
    check_non_interference(SAMPLED)


class ThinGradient(GaussianNoise):
    def apply(self, value, sensitivity, bound, source):
        return GaussianNoise(self.noise_multiplier / 4).apply(value, sensitivity, bound, source)


class ThinCorrection(SampledGaussianNoise):
    def apply(self, value, sensitivity, bound, source):
        thin = SampledGaussianNoise(self.noise_multiplier / 4, rate=self.rate)
        return thin.apply(value, sensitivity, bound, source)


class Skimps(VarianceReducedDescent):
    """Charges for its noise and adds a quarter of it."""

    def solve(self, objective, holder, calibrated, progress=None):
        honest = holder.release

        def release(query, mechanism, group=None):
            thin = ThinGradient if isinstance(query, FullGradient) else ThinCorrection
            return honest(query, thin(**vars(mechanism)), group)

        holder.release = release
        return super().solve(objective, holder, calibrated, progress)


def test_the_canary_passes_batches_and_catches_thin_noise(coarse):
    data = problem(n=8)
    check_gradient_canary(SAMPLED, objective_of(data), data, n_runs=800)
    with pytest.raises(ContractViolation, match="leaks more than it claims"):
        check_gradient_canary(Skimps(**vars(SAMPLED)), objective_of(data), data, n_runs=1600)


class OneStepTooMany(VarianceReducedDescent):
    def solve(self, objective, holder, calibrated, progress=None):
        return VarianceReducedDescent(**(vars(self) | {"n_steps": self.n_steps + 1})).solve(
            objective, holder, calibrated, progress
        )


def test_one_step_too_many_is_caught(coarse):
    with pytest.raises(ContractViolation, match="left its plan"):
        check_ledger_is_plan(OneStepTooMany(**vars(SAMPLED)))


class TrustsSmoothness(SampledCorrection):
    """Derives its bound from the distance instead of enforcing it."""

    def evaluate(self, data):
        return SampledCorrection(self.loss, self.weights, self.reference, 1e9).evaluate(data)


class ForgetsTheReference(SampledCorrection):
    def evaluate(self, data):
        honest = super().evaluate(data)
        return Summands(honest.n_people, honest.size, lambda sample: 2.0 * honest.total(sample))


@pytest.mark.parametrize("bug", [TrustsSmoothness, ForgetsTheReference])
def test_planted_queries_are_caught(bug):
    with pytest.raises(ContractViolation, match="times its declared"):
        check_query(lambda rng, facts: [bug(Logistic(), w, -w, 0.1, 0.2) for w in (np.full(facts.d, 1e3),)], n_random=1)


def test_corrections_are_scaled_by_the_public_rate():
    """Without noise the mean over many batches is the step with everyone."""
    data = problem(n=40)
    objective = objective_of(data)
    solver = VarianceReducedDescent(n_steps=2, epoch=2, rate=0.3, clip=1e9, step=1.0, averaging=0.0)
    moves = [run(solver, objective, data, seed=seed)[0].weights for seed in range(600)]
    full, _ = run(replace(solver, rate=1.0), objective, data)
    error = np.std(moves, axis=0) / math.sqrt(len(moves))
    assert (np.abs(np.mean(moves, axis=0) - full.weights) < 5.0 * error).all()
    assert np.std(moves, axis=0).min() > 0.0
