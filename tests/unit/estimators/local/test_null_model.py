"""On average, fits that are not refused are at least as good as the null model (all weights 0).

No rule that ever keeps weights can achieve this exactly: without a signal, any weights that are kept are too large. So
the tests allow a thousandth of the null model's excess loss at weights of the assumed length, up to two standard
errors.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dperm.solvers.local import DescentState, LocalDescent, quadratic
from dperm.solvers.local.descent import mean_weight_variances
from dperm.solvers.local.quadratic import kept_fraction
from dperm.solvers.local.surrogates import typical_length

RUNS = 2000
ALLOWED = 1e-3


def beyond(population, loss, p, length, factor, seed=0):
    rng = np.random.default_rng(seed)
    people = population(loss, p, length, 3000, rng)
    return people.moments(int(factor * people.plan.min_people), RUNS, rng), people.plan.null_excess


@pytest.mark.parametrize("factor", [1.2, 4.0])
@pytest.mark.parametrize(
    ("loss", "p", "length"),
    [(loss, p, length) for loss in ("logistic", "squared") for p in (1, 2) for length in (0.0, 0.2)],
)
def test_moments_of_weak_signals(population, loss, p, length, factor):
    worse, typical = beyond(population, loss, p, length, factor)
    assert worse.mean() <= ALLOWED * typical + 2.0 * worse.std() / np.sqrt(RUNS)


@pytest.mark.parametrize(
    ("loss", "options", "allowed"),
    [
        ("logistic", {"epsilon": 8.0}, ALLOWED),
        ("squared", {"epsilon": 8.0}, ALLOWED),
        ("logistic", {"epsilon": 16.0, "fit_intercept": False}, ALLOWED),
        ("logistic", {"radius": 10.0}, 5.0 * ALLOWED),
    ],
)
def test_moments_of_few_people_and_of_long_weights(population, loss, options, allowed):
    """Where few people are enough the law of their bits is far from normal; they are still enough for the threshold."""
    rng = np.random.default_rng(1)
    people = population(loss, 1, 0.0, 1000, rng, **options)
    worse = people.moments(people.plan.min_people, RUNS, rng)
    assert worse.mean() <= allowed * people.plan.null_excess + 2.0 * worse.std() / np.sqrt(RUNS)
    assert (worse != 0.0).mean() <= 0.01 + 3.0 * np.sqrt(0.01 / RUNS)


@pytest.mark.parametrize(
    ("loss", "length", "gained"), [("logistic", 1.5, 0.1), ("squared", 0.5, 0.05), ("squared", 0.7, 0.15)]
)
def test_moments_of_signals_as_planned(population, loss, length, gained):
    """From the number of people that the plan names on a fit is better, and clearly so at four times it."""
    for factor, least in ((1.2, 0.0), (4.0, gained)):
        better, _ = beyond(population, loss, 2, length, factor)
        assert better.mean() + 2.0 * better.std() / np.sqrt(RUNS) < 0.0
        rng = np.random.default_rng(0)
        people = population(loss, 2, length, 3000, rng)
        best = np.array([length, 0.0, 0.0]) * people.rows.bound
        assert -better.mean() >= least * (people.null - people.risk(best))


def test_a_steeper_shrinkage_rule_costs_several_times_as_much(population, monkeypatch):
    """The share 1 - (threshold / q)^2, on the same collections: four times as steep just above the threshold."""

    def eager(total, noise, null):
        threshold = quadratic.significance_threshold(null)
        return max(0.0, min(1.0 - noise / total, 1.0 - (threshold / total) ** 2))

    right, _ = beyond(population, "logistic", 2, 0.0, 1.2)
    monkeypatch.setattr(quadratic, "kept_fraction", eager)
    wrong, _ = beyond(population, "logistic", 2, 0.0, 1.2)
    assert wrong.mean() > 3.0 * right.mean()
    assert (wrong >= right).all()


def test_the_kept_fraction_starts_at_zero():
    null = np.ones(2)
    threshold = quadratic.significance_threshold(null)
    assert kept_fraction(threshold, 2.0, null) == 0.0
    lengths = np.sqrt(threshold) * np.array([1.0, 1.001, 1.5, 2.0, 4.0])
    kept = np.array([kept_fraction(length**2, 0.0, null) for length in lengths])
    assert (np.diff(kept) > 0.0).all()
    # just above the threshold weights are as long as they exceed it
    assert kept[1] * lengths[1] == pytest.approx(lengths[1] - lengths[0], rel=0.01)
    assert kept[3] == pytest.approx(0.75)
    assert kept[4] > 0.99


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("spread", [1.0, 0.6])
def test_descents_without_a_signal(population, loss, spread):
    rng, runs = np.random.default_rng(1), 12
    people = population(loss, 2, 0.0, 40, rng, spread, solver="sgd")
    shrunk, plain = people.descents(int(1.2 * people.plan.min_people), runs, rng)
    assert shrunk.mean() <= ALLOWED * people.plan.null_excess + 2.0 * shrunk.std() / np.sqrt(runs)
    assert plain.mean() > 5.0 * ALLOWED * people.plan.null_excess  # the check sees what is not shrunk


@pytest.mark.parametrize(("loss", "length"), [("logistic", 1.5), ("squared", 0.7)])
def test_descents_with_a_signal_as_planned(population, loss, length):
    rng = np.random.default_rng(2)
    people = population(loss, 2, length, 60, rng, solver="sgd")
    shrunk, _ = people.descents(int(4.0 * people.plan.min_people), 10, rng)
    best = people.risk(np.array([length, 0.0, 0.0]) * people.rows.bound) - people.null
    assert shrunk.mean() < 0.5 * best


def test_the_propagated_noise_of_a_descent_is_that_of_its_weights(population, law):
    """Curvatures as guessed, nothing to find, a ball that is never reached."""
    rng = np.random.default_rng(3)
    people = population("squared", 1, 0.0, 60, rng, solver="sgd", fit_intercept=False, radius=50.0)
    descent = people.model._descent(people.linear, people.rows)
    chances, drawn = law
    found, stated = [], []
    for _ in range(60):
        state = descent.start()
        for _ in range(descent.n_rounds):
            task = descent.task(state)
            state = descent.next_state(state, drawn(task, chances(task, people.records, people.likely), 2000, rng))
        found.append(descent.estimate(state)[0])
        true = float((people.scaled**2).mean()) / descent.curvatures[0]
        stated.append(mean_weight_variances(state.variances, state.delay, true)[0] / descent.curvatures[0] ** 2)
    assert np.var(found) == pytest.approx(np.mean(stated), rel=0.5)


def test_typical_weights_of_the_squared_loss_stay_within_the_target():
    """Two columns in [-1, 1] and the intercept, rows divided by the root of 3."""
    reach = (1.0 / np.sqrt(3.0),) * 3
    length = typical_length("squared", 2.0 * np.sqrt(3.0), reach, True)
    assert length**2 / 9.0 == pytest.approx(1.0 / 6.0)  # the columns alone: the intercept tells nothing by itself
    assert typical_length("squared", 0.1, reach, True) == pytest.approx(0.075)
    assert typical_length("logistic", 2.0, reach, True) == 1.5


def test_flat_objectives_of_descents_pass_the_threshold_no_more_often():
    """Without a signal, at 0.8 of the guessed curvatures: the threshold allows for noise that lasts longer."""
    rng, runs, rounds = np.random.default_rng(4), 3000, 40
    descent = LocalDescent("squared", 1.0, (1.0, 1.0), 1e6, (1.0, 1.0), rounds)
    weights, total = np.zeros((2, runs, 2))
    for number in range(rounds):
        weights = weights - 1.5 / (number + 1.0) * (0.8 * weights + rng.normal(size=(runs, 2)))
        total += (number + 1) * weights
    state = DescentState(rounds, (0.0, 0.0), (0.0, 0.0), variances=((1.0, 1.0),) * rounds)
    kept = [descent.shrunk(replace(state, total=tuple(one)))[1] > 0.0 for one in total]
    assert np.mean(kept) <= 0.02  # six in a hundred with a threshold that takes the guess for true
