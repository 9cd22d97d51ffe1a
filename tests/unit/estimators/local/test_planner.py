"""Plans of local models: forecasts, refusals and the degree of the surrogate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dperm import Bounds, LocalLinearRegression, LocalLogisticRegression
from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import LinearTask, LocalForecast
from dperm.solvers.local.surrogates import logistic_curvature, logistic_surrogate, margins, surrogate_bias

UNIT = Bounds(features=(-1, 1), row_norm=1.0)


def test_the_plan_and_its_numbers():
    model = LocalLogisticRegression(1.0, bounds=UNIT, fit_intercept=False, degree=2)
    plan = model.plan(100_000, 2)
    assert plan.people_needed < 100_000
    assert not plan.hopeless
    assert plan.people_for(plan.excess) == pytest.approx(100_000, rel=0.01)
    assert plan.people_for((plan.null_excess + plan.bias) / 2) == plan.people_needed > plan.min_people
    assert not model.plan(plan.min_people, 2).hopeless
    assert model.plan(plan.min_people - 1, 2).hopeless
    assert f"about {plan.people_needed} people are needed for half" in str(plan)
    assert f"fewer than {plan.min_people} are refused" in str(plan)
    assert model.plan(100_000, 20).hopeless
    assert model.plan(100_000, 2, n_classes=5).people_needed > plan.people_needed
    assert model.set_params(epsilon=2.0).plan(100_000, 2).excess < plan.excess
    with pytest.raises(InvalidInput, match="above 0"):
        plan.people_for(0.0)
    with pytest.raises(Unsupported, match="no number of people"):
        plan.people_for(plan.bias / 2)
    with pytest.raises(InvalidInput, match=r"^n must be a whole number"):
        model.plan(0, 2)
    with pytest.raises(InvalidInput, match="n_classes"):
        model.plan(1000, 2, 1)
    with pytest.raises(InvalidInput, match="n_features"):
        model.plan(1000, 0)
    by_name = Bounds(features=({"a": 0, "b": 1}, {"a": 2, "b": 3}), target=(0, 1))
    assert isinstance(LocalLinearRegression(1.0, bounds=by_name).plan(1000, 2), LocalForecast)


def test_people_needed_grow_as_the_noise_of_a_bit():
    """n ~ ((e^epsilon + 1) / (e^epsilon - 1))^2 times the statistics, over the error aimed at."""
    needed = {}
    for epsilon in (0.5, 1.0, 2.0):
        model = LocalLogisticRegression(epsilon, bounds=UNIT, fit_intercept=False, degree=2)
        needed[epsilon] = model.plan(10**6, 3).people_for(1e-3)
    for epsilon, count in needed.items():
        gain = 1.0 / np.tanh(epsilon / 2.0)
        assert count / needed[1.0] == pytest.approx((gain * np.tanh(0.5)) ** 2, rel=1e-3)


def test_too_few_people_are_refused_with_how_many_it_takes(people):
    x, y, _ = people(5, 2000, 6)
    model = LocalLogisticRegression(1.0, bounds=UNIT)
    with pytest.raises(
        Unsupported,
        match=f"about {model.plan(2000, 5).min_people} people.* about {model.plan(2000, 5).people_needed} for",
    ):
        model.fit(x, y)
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "n_features_in_")
    few, labels, _ = people(1, 9000, 6)
    model = LocalLogisticRegression(1.0, bounds=UNIT, insecure_seed=0).fit(few, labels)
    with pytest.raises(Unsupported):
        model.fit(x, y)
    assert model.predict(x[:5, :1]).shape == (5,)  # an earlier model stays as it was
    bounds = Bounds(features=(-1, 1), row_norm=1.0, classes=[False, True])
    counted = LocalLogisticRegression(1.0, bounds=bounds, refuse_hopeless=False, insecure_seed=0).fit(x, y).counts_
    with pytest.raises(Unsupported, match="2000 people are too few for 5 columns"):
        LocalLogisticRegression(1.0, bounds=bounds).fit_counts(counted, 5)
    empty = LocalLogisticRegression(1.0, bounds=bounds).task(1).no_counts()
    with pytest.raises(Unsupported, match="0 people"):
        LocalLogisticRegression(1.0, bounds=bounds).fit_counts(empty, 1)


def test_the_forecast_is_near_what_happens():
    """Least squares, on data that are as assumed."""
    linear, errors = LinearTask("squared", 1.0, (1.0, 1.0), 1.0, 1.0), []
    rng, source = np.random.default_rng(7), RandomSource(7)
    for _ in range(40):
        x = rng.normal(size=(20_000, 2))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        w = rng.normal(size=2)
        w *= 0.75 / np.linalg.norm(w)
        estimate = linear.estimates(linear.task.collect(np.column_stack([x, x @ w]), source))[0]
        errors.append(((estimate.unshrunk - w) ** 2).sum() / 4.0)
    assert np.mean(errors) == pytest.approx(linear.forecast(20_000, np.full(2, 0.5)).noise, rel=0.4)


@pytest.mark.parametrize("share", [0.5, 0.25, 0.1])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    ("loss", "p", "length"), [("logistic", 1, 1.5), ("logistic", 2, 1.5), ("squared", 1, 0.7), ("squared", 2, 0.7)]
)
def test_a_target_is_met_by_the_number_of_people_that_the_plan_names(population, loss, p, length, intercept, share):
    """Weights as long as assumed: the mean excess of the weights that fits return, shrinkage included."""
    rng, runs = np.random.default_rng(0), 200
    people = population(loss, p, length, 1000, rng, fit_intercept=intercept)
    plan, best = people.plan, np.zeros(people.rows.n_columns)
    best[0] = length * people.rows.bound
    target = plan.bias + share * (plan.null_excess - plan.bias)
    excess = people.moments(plan.people_for(target), runs, rng) + people.null - people.risk(best)
    error = 2.0 * excess.std() / np.sqrt(runs)
    assert excess.mean() <= 1.25 * target + error
    assert excess.mean() >= 0.5 * target - error  # and not by far more people than it takes


@pytest.mark.parametrize(("loss", "length"), [("logistic", 1.5), ("squared", 0.7)])
def test_a_target_of_a_descent_is_met(population, loss, length):
    rng, runs = np.random.default_rng(0), 16
    people = population(loss, 2, length, 40, rng, solver="sgd")
    best = np.array([length, 0.0, 0.0]) * people.rows.bound
    target = people.plan.null_excess / 2
    excess = people.descents(people.plan.people_for(target), runs, rng)[0] + people.null - people.risk(best)
    assert excess.mean() <= 1.25 * target + 2.0 * excess.std() / np.sqrt(runs)


@pytest.mark.parametrize("solver", ["moments", "sgd"])
@pytest.mark.parametrize("p", [1, 3, 12])
def test_more_people_are_never_expected_to_do_worse(p, solver):
    for kind in (LocalLogisticRegression, LocalLinearRegression):
        plan = kind(1.0, bounds=Bounds(features=(-1, 1), target=(-1, 1)), solver=solver).plan(1000, p)
        expected = np.array([replace(plan, noise=plan.noise * plan.n / n).excess for n in np.geomspace(10, 1e9, 60)])
        assert (np.diff(expected) <= 1e-3 * plan.null_excess).all()
        assert plan.min_people < plan.people_needed < plan.people_for(0.2 * plan.null_excess + plan.bias)


@pytest.mark.parametrize(("degree", "limit"), [(2, 0.035), (4, 0.002)])
def test_the_surrogate_fits_the_logistic_loss(degree, limit):
    s = np.linspace(-2, 2, 401)
    fitted = sum(c * s ** (2 * k) for k, c in enumerate(logistic_surrogate(degree, 2.0), start=1))
    assert np.ptp(np.logaddexp(s / 2, -s / 2) - fitted) < limit


def test_the_bias_is_the_excess_of_the_surrogates_minimiser():
    """One column of the constant 1, so that the margin is the weight itself."""
    for w in (0.8, 1.6):
        for degree in (2, 4):
            c = logistic_surrogate(degree, 2.0)
            slope = np.tanh(w / 2) / 2  # of the even part, at the true weight
            grid = np.linspace(0, 2.5, 200_001)
            own = grid[np.argmin(sum(one * grid ** (2 * k) for k, one in enumerate(c, start=1)) - slope * grid)]
            risk = np.logaddexp(grid / 2, -grid / 2) - slope * grid
            true = np.interp(own, grid, risk) - risk.min()
            assert surrogate_bias(c, np.array([w])) == pytest.approx(true, rel=0.35, abs=2e-6)


def test_margins_are_products_with_random_directions():
    x = np.random.default_rng(0).normal(size=(200_000, 4))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    for q in (0.25, 0.5, 0.9):
        assert np.quantile(margins(4, 1.5), q) == pytest.approx(np.quantile(np.abs(1.5 * x[:, 0]), q), abs=0.02)
    assert margins(1, 2.0).tolist() == [2.0]
    assert logistic_curvature(np.array([1e-3])) == pytest.approx(0.25)


def test_a_quartic_is_chosen_when_enough_people_answer(people, excess):
    model = LocalLogisticRegression(1.0, bounds=UNIT, fit_intercept=False)
    degrees = [model.plan(10**k, 1).degree for k in range(3, 9)]
    assert degrees[0] == 2
    assert degrees[-1] == 4
    assert degrees == sorted(degrees)
    assert model.plan(10**9, 13).degree == 2
    bounds = Bounds(features=(-1, 1), classes=[0, 1])
    auto = LocalLogisticRegression(1.0, bounds=bounds)
    assert auto.task(1).digest == auto.task(1, n_people=100).digest != auto.task(1, n_people=10**8).digest


def test_a_quartic_has_less_bias_where_margins_are_long():
    """Many people, weights at the radius: the parabola's bias is all that is left of its error."""
    found = {}
    for degree in (2, 4):
        linear = LinearTask("logistic", 4.0, (1.0,), 2.2, 2.0, degree=degree)
        rng, source = np.random.default_rng(1), RandomSource(1)
        y = np.where(rng.random(400_000) < 1 / (1 + np.exp(-1.9)), 1.0, -1.0)
        found[degree] = linear.estimates(linear.task.collect(y[:, None], source))[0].weights[0]
    assert abs(found[4] - 1.9) < 0.5 * abs(found[2] - 1.9)
    assert found[4] == pytest.approx(1.9, abs=0.08)


@pytest.mark.parametrize("factor", [1.2, 4.0, 16.0])
@pytest.mark.parametrize("length", [0.0, 0.1, 0.3, 0.6, 1.5])
def test_a_fit_that_is_not_refused_is_no_worse_than_weights_zero(factor, length):
    """On average over 300 collections, within two standard errors, also where there is nothing to find."""
    model = LocalLogisticRegression(1.0, bounds=UNIT, fit_intercept=False, degree=2)
    n = int(factor * model.plan(1000, 2).min_people)
    linear = LinearTask("logistic", 1.0, (1.0, 1.0), 2.0, 2.0)
    rng, source, truth = np.random.default_rng(5), RandomSource(5), np.array([length, 0.0])

    def rows(size):
        x = rng.normal(size=(size, 2))
        return x * rng.uniform(0.5, 1.0, (size, 1)) / np.linalg.norm(x, axis=1, keepdims=True)

    population = rows(4000)
    chance = 1 / (1 + np.exp(-population @ truth))

    def risk(w):
        s = population @ w
        return (np.logaddexp(0, s) - chance * s).mean()

    worse = []
    for _ in range(300):
        x = rows(n)
        y = np.where(rng.random(n) < 1 / (1 + np.exp(-x @ truth)), 1.0, -1.0)
        found = linear.estimates(linear.task.collect(y[:, None] * x, source))[0].weights
        worse.append(risk(found) - risk(np.zeros(2)))
    assert np.mean(worse) <= 2.0 * np.std(worse) / np.sqrt(300)
    if length == 1.5:
        assert np.mean(worse) < 0.0
