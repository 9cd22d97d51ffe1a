"""Stochastic gradient descent: exact and secret samples; with rate 1 plain descent; planted bugs are caught."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dperm import Bounds, DPLogisticRegression, Ledger
from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import L2, Logistic, Multinomial, Objective, Squared
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.events import Gaussian, PoissonGaussian
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.sampled_noise import PoissonSample, SampledGaussianNoise, Summands
from dperm.privacy.mechanisms.standard import MECHANISMS, GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.queries import FullGradient, SampledCorrection, SampledGradient
from dperm.queries.gradients import clipped_slopes, slope_spacing
from dperm.solvers import SOLVERS, GradientDescent, StochasticGradientDescent
from dperm.solvers.central.sgd import default_step
from dperm.testing import (
    ContractViolation,
    check_gradient_canary,
    check_ledger_is_plan,
    check_mechanism,
    check_non_interference,
    check_query,
)
from dperm.testing.data import Layout, design_data
from dperm.testing.solvers import problem

SAMPLED = StochasticGradientDescent(n_steps=6, rate=0.25, step=0.5)


def objective_of(data):
    return Objective(Logistic(), L2(0.01), unpenalised=(data.design.n_features,))


def run(solver, objective, data, scale=1e-8, seed=0):
    calibrated = CalibratedPlan(solver.plan(objective, data.facts), scale, Budget(1e8, 1e-6))
    scope = Scope(calibrated, Ledger(neighbours="zero-out"), Neighbours.ZERO_OUT, "test", unbounded="seeded")
    with scope:
        holder = DataHolder(data, scope, RandomSource(seed), Neighbours.ZERO_OUT)
        return solver.solve(objective, holder, calibrated), holder


# -------------------------------------------------------------------------------------------------------- the sample
class Words:
    def __init__(self, *words):
        self.given = np.array(words, np.uint64)

    def words(self, start, stop):
        return self.given[start:stop]


@pytest.mark.parametrize("rate", [0.5, 0.1, 1 / 3, 2.0**-40, 1.0 - 2.0**-53])
def test_a_person_is_taken_by_an_exact_threshold(rate):
    threshold = math.floor(rate * 2**64)  # a double times a power of two is exact
    taken = PoissonSample(rate, Words(0, threshold - 1, threshold, 2**64 - 1)).people(0, 4)
    assert taken.tolist() == [True, True, False, False]
    assert threshold / 2**64 <= rate


def test_a_rate_of_one_takes_everyone():
    assert PoissonSample(1.0, Words(0, 2**64 - 1, 5)).people(0, 3).all()
    assert SampledGaussianNoise(2.0).event(2.0) == Gaussian(2.0)
    assert SampledGaussianNoise(2.0, rate=0.5).event(2.0) == PoissonGaussian(2.0, 0.5)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, 1e-15, math.nan])
def test_bad_rates(rate):
    with pytest.raises(InvalidInput, match="rate must be"):
        SampledGaussianNoise(1.0, rate=rate)


def test_summands_stay_inside():
    summands = Summands.of_rows(np.ones((3, 2)))
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(summands)
    with pytest.raises(TypeError, match="not an array"):
        np.asarray(summands, dtype=float)
    with pytest.raises(InvalidInput, match="True or False for every person"):
        summands.total(np.ones(2, bool))
    with pytest.raises(InvalidInput, match="each person's summand separately"):
        SampledGaussianNoise(1.0).apply(np.zeros(2), 1.0, 1.0, RandomSource(0))
    assert repr(summands) == "Summands(size=2)"


def test_subset_sums_are_those_of_the_people_in_the_subset():
    for loss, classes in ((Logistic(), 2), (Multinomial(3), 3)):
        rng = np.random.default_rng(0)
        data = design_data(Layout(n=15, n_features=3), rng.normal(size=(15, 3)), rng.integers(0, classes, 15))
        weights = rng.normal(size=(4,) if classes == 2 else (4, 3))
        summands = SampledGradient(loss, weights, 0.5).evaluate(data)
        assert summands.size == weights.size
        np.testing.assert_array_equal(
            summands.total(np.ones(15, bool)), FullGradient(loss, weights, 0.5).evaluate(data)
        )
        single = [summands.total(np.arange(15) == i) for i in range(15)]
        mask = rng.random(15) < 0.4
        np.testing.assert_array_equal(
            summands.total(mask), sum(part for part, m in zip(single, mask, strict=True) if m)
        )


@pytest.mark.parametrize(
    "layout",
    [
        Layout(n=40, n_features=4),
        Layout(n=40, n_features=6, sparse=True, centre=0.4, clip=0.7),
        Layout(n=40, n_features=5, sparse=True, row_norm=1.3, intercept=0.0),
    ],
    ids=["dense", "sparse and centred", "sparse"],
)
def test_a_sum_over_a_batch_is_that_of_all_rows_with_the_others_silent(layout):
    """Bit for bit, for every size of batch, none included."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(layout.n, layout.n_features))
    X[rng.random(X.shape) < 0.5] = 0.0
    data = design_data(layout, X, rng.integers(0, 2, layout.n))
    one, two = rng.normal(size=(2, data.design.d))
    with np.errstate(divide="ignore"):  # rows of zeros
        slopes = clipped_slopes(data, Logistic(), one, 0.5 * (1.0 - 2.0**-50) / data.design.norms())
    spacing = slope_spacing(data.design, Logistic())
    gradient = SampledGradient(Logistic(), one, 0.5).evaluate(data)
    correction = SampledCorrection(Logistic(), one, two, 0.5, 0.3).evaluate(data)
    everyone = correction.total(np.ones(layout.n, bool))
    for rate in (0.0, 0.03, 0.3, 0.97, 1.0):
        mask = rng.random(layout.n) < rate
        wanted = data.design.sums(np.where(mask, slopes, 0.0)) * (data.design.spacing * spacing)
        np.testing.assert_array_equal(gradient.total(mask), wanted)
        np.testing.assert_array_equal(correction.total(mask) + correction.total(~mask), everyone)


def test_a_step_reads_the_rows_of_its_batch_only(monkeypatch):
    data = problem(n=60)
    read = []
    honest = DesignMatrix.scores
    monkeypatch.setattr(DesignMatrix, "scores", lambda self, *args: read.append(self.n_rows) or honest(self, *args))
    mask = np.arange(60) < 7
    for query in (
        SampledGradient(Logistic(), np.ones(4), 0.5),
        SampledCorrection(Logistic(), np.ones(4), np.zeros(4), 0.5),
    ):
        query.evaluate(data).total(mask)
    assert read == [7, 7, 7]


def test_an_empty_batch_is_a_release_like_any_other():
    data = problem(n=8)
    solver = replace(SAMPLED, n_steps=2, rate=2.0**-40)
    solution, holder = run(solver, objective_of(data), data, scale=2.0**40)
    assert np.isfinite(solution.weights).all()
    assert [line.size for line in holder.released] == [4, 4]  # the size of the sum, never that of the batch


def test_a_batch_is_drawn_anew_and_never_reported():
    data = problem()
    solution, holder = run(replace(SAMPLED, n_steps=3), objective_of(data), data)
    assert {line.kind for line in holder.released} == {"poisson-gaussian"}
    assert not any("mask" in name or "sample" in name for name in vars(solution))


# -------------------------------------------------------------------------------------------------------- the solver
def test_with_everyone_in_the_batch_it_is_gradient_descent():
    data = problem()
    options = {"n_steps": 30, "clip": 1e9, "step": 0.5, "momentum": 0.4, "averaging": 0.5}
    ours, _ = run(StochasticGradientDescent(rate=1.0, **options), objective_of(data), data)
    theirs, _ = run(GradientDescent(**options), objective_of(data), data)
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-6)


def test_batches_are_scaled_by_the_public_rate():
    """Without noise the mean step over many batches is the full gradient step."""
    data = problem(n=40)
    objective = objective_of(data)
    step = StochasticGradientDescent(n_steps=1, rate=0.3, clip=1e9, step=1.0, averaging=0.0)
    moves = [run(step, objective, data, seed=seed)[0].weights for seed in range(600)]
    full, _ = run(replace(step, rate=1.0), objective, data)
    error = np.std(moves, axis=0) / math.sqrt(len(moves))
    assert (np.abs(np.mean(moves, axis=0) - full.weights) < 5.0 * error).all()
    assert np.std(moves, axis=0).min() > 0.0


def test_the_default_step_follows_the_curvature_of_typical_rows():
    facts = Facts(n=100, n_features=4, d=5, value_bound=0.5, row_bound=1.5)
    step = default_step(Objective(Logistic(), L2(0.25)), facts)
    assert step == pytest.approx(1.0 / (0.25 * 0.5**2 + 0.25), rel=1e-12)  # the curvature of the logistic loss is 1/4


def test_the_plan_is_about_public_numbers():
    facts = Facts(n=2000, n_features=2, d=2, value_bound=1.0, row_bound=1.0)
    objective = Objective(Logistic())
    (release,) = StochasticGradientDescent(n_steps=9, batch_size=100).plan(objective, facts).releases
    assert (release.query, release.kind, release.count, release.rate) == (
        "sampled gradient",
        "poisson-gaussian",
        9,
        0.05,
    )
    (release,) = StochasticGradientDescent().plan(objective, facts).releases
    assert release.rate == 0.128  # 256 people
    (release,) = StochasticGradientDescent().plan(objective, replace(facts, n=100)).releases
    assert (release.kind, release.rate) == ("gaussian", None)  # fewer than a batch: everyone
    with pytest.raises(InvalidInput, match="unbounded slopes"):
        StochasticGradientDescent().plan(Objective(Squared()), facts)


@pytest.mark.parametrize(
    "wrong",
    [{"n_steps": v} for v in (0, 1.5, None, True)]
    + [{"rate": v} for v in (0.0, 1.5, "1")]
    + [{"batch_size": v} for v in (0.0, math.inf)]
    + [{"clip": -1.0}, {"step": 0.0}, {"momentum": 1.0}, {"averaging": None}],
)
def test_bad_options(wrong):
    with pytest.raises(InvalidInput, match=f"^{next(iter(wrong))} must be"):
        StochasticGradientDescent(**wrong)


def test_rate_and_batch_size_exclude_each_other():
    with pytest.raises(InvalidInput, match="not both"):
        StochasticGradientDescent(rate=0.1, batch_size=10)


def classifier(**others):
    bounds = Bounds(features=(-1.0, 1.0), row_norm=1.0, classes=(0, 1))
    return DPLogisticRegression(3.0, 1e-5, bounds=bounds, strength=1e-4, **others)


def test_an_estimator_carries_its_guarantee(coarse):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (2000, 3))
    y = (X @ [3.0, -2.0, 1.0] > 0.0).astype(int)
    solver = StochasticGradientDescent(n_steps=40, rate=0.1, step=8.0)
    model = classifier(solver=solver, neighbours="zero-out").fit(X, y)
    assert model.privacy_report_.guarantee.epsilon <= 3.0
    assert model.privacy_report_.releases[0].kind == "poisson-gaussian"
    assert model.score(X, y) > 0.85


def test_replace_one_is_refused_before_anything_is_reserved(coarse):
    X, y = np.zeros((600, 2)), np.arange(600) % 2
    ledger = Ledger()
    for rate in (0.25, 1.0):
        solver = replace(SAMPLED, rate=rate)
        with pytest.raises(Unsupported, match="proved for neighbours='zero-out' only"):
            classifier(solver=solver, ledger=ledger, neighbours="replace-one").fit(X, y)
    with pytest.raises(Unsupported, match="zero-out only"):
        classifier(solver=SAMPLED, ledger=ledger, neighbours="zero-out").fit(X, y)
    assert ledger.spent().epsilon == 0.0


def test_a_huge_epsilon_does_not_fill_the_memory():
    made = calibrate(Plan((PlannedRelease("a", "poisson-gaussian", 50, rate=0.1),)), Budget(1e9, 1e-6))
    assert composition.upper_epsilon(made.event, 1e-6)[0] <= 1e9
    assert composition.epsilon(made.event, 1e-6).lower <= 1e9
    assert composition.delta(made.event, 1.0) <= 1.0


# ----------------------------------------------------------------------------------------- contracts with real samples
def test_the_solver_is_registered():
    assert SOLVERS["sgd"] is StochasticGradientDescent
    assert MECHANISMS["poisson-gaussian"] is SampledGaussianNoise


def test_ledger_and_interference_with_batches(coarse):
    check_ledger_is_plan(SAMPLED)
    check_non_interference(SAMPLED)


class TakesEveryone(SampledGaussianNoise):
    """Charges for a sample and sums over everyone."""

    def apply(self, value, sensitivity, bound, source):
        return SampledGaussianNoise(self.noise_multiplier).apply(value, sensitivity, bound, source)


class Skimps(StochasticGradientDescent):
    def solve(self, objective, holder, calibrated, progress=None):
        honest = holder.release
        holder.release = lambda query, mechanism, group=None: honest(query, TakesEveryone(**vars(mechanism)), group)
        return super().solve(objective, holder, calibrated, progress)


def test_the_canary_passes_batches_and_catches_a_skipped_sample(coarse):
    data = problem(n=8)
    check_gradient_canary(SAMPLED, objective_of(data), data, n_runs=800)
    with pytest.raises(ContractViolation, match="leaks more than it claims"):
        check_gradient_canary(Skimps(**vars(SAMPLED)), objective_of(data), data, n_runs=800)


@dataclass(frozen=True)
class TakesTooMany(SampledGaussianNoise):
    def apply(self, value, sensitivity, bound, source):
        more = SampledGaussianNoise(self.noise_multiplier, rate=1.1 * self.rate)
        return more.apply(value, sensitivity, bound, source)


@dataclass(frozen=True)
class TakesNeighboursTogether(SampledGaussianNoise):
    def apply(self, value, sensitivity, bound, source):
        pairs = PoissonSample(self.rate, source.keyed_words()).people(0, (value.n_people + 1) // 2)
        total = value.total(np.repeat(pairs, 2)[: value.n_people])
        return GaussianNoise(self.noise_multiplier).apply(total, sensitivity, bound, source)


@dataclass(frozen=True)
class HalvesTheNoise(SampledGaussianNoise):
    def apply(self, value, sensitivity, bound, source):
        less = SampledGaussianNoise(self.noise_multiplier / 2, rate=self.rate)
        return less.apply(value, sensitivity, bound, source)


class RepeatsItsSample(SampledGaussianNoise):
    def apply(self, value, sensitivity, bound, source):
        mask = np.arange(value.n_people) * self.rate % 1.0 < self.rate
        return GaussianNoise(self.noise_multiplier).apply(value.total(mask), sensitivity, bound, source)


@pytest.mark.parametrize("bug", [TakesTooMany, TakesNeighboursTogether, HalvesTheNoise, RepeatsItsSample])
def test_planted_samplers_are_rejected(bug):
    with pytest.raises(ContractViolation, match=r"does not fit its (rate|law)"):
        check_mechanism(bug(2.0, rate=0.3))


class ForgetsToClip(SampledGradient):
    def evaluate(self, data):
        return SampledGradient(self.loss, self.weights).evaluate(data)


class DividesByTheBatch(SampledGradient):
    """A mean over the batch is no sum over people."""

    def evaluate(self, data):
        honest = super().evaluate(data)
        n = honest.n_people
        return Summands(n, honest.size, lambda sample: honest.total(sample) / max(1, sample.people(0, n).sum()))


class AdmitsReplaceOne(SampledGradient):
    def sensitivity(self, facts, neighbours):
        return self.zero_out_sensitivity(facts)


@pytest.mark.parametrize(
    ("bug", "word"),
    [
        (ForgetsToClip, r"times its declared|public bound"),
        (DividesByTheBatch, "do not add up"),
        (AdmitsReplaceOne, "which it says is not proved"),
    ],
)
def test_planted_queries_are_caught(bug, word):
    with pytest.raises(ContractViolation, match=word):
        check_query(lambda rng, facts: [bug(Logistic(), np.full(facts.d, 1e3), 0.1)], n_random=1)
