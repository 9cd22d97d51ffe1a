"""Whether columns say anything at all: how often pure noise looks like something, and what is still seen."""

import math

import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.special import chdtrc

from dperm import Bounds, DPLasso, DPLogisticRegression, DPRidge
from dperm.data.design.facts import Facts
from dperm.objective import Logistic, Squared
from dperm.solvers.central.auto.metric import Metric
from dperm.solvers.central.auto.null_test import NOTHING_SEEN, null_p_value
from dperm.solvers.central.auto.recipes import recipe_for
from dperm.solvers.central.auto.shrinkage import ClippedResponse, Descent, KnownNoise, shrinkage

BOUNDS = {"centre": 0.0, "scale": 1.0, "clip": 3.0}


def drawn(rng, d, outputs):
    """Return a random energy, map to columns, noise by direction and weights of outputs."""
    return (
        rng.normal(size=(d, d)) * rng.exponential(size=d)[:, None],
        rng.normal(size=(max(1, d - 1), d)),
        rng.exponential(size=(d, outputs)) + 0.01,
        np.append(rng.random(outputs - 1), 1.0),
    )


@pytest.mark.parametrize(("d", "outputs"), [(1, 1), (3, 1), (12, 1), (60, 1), (12, 4)])
def test_pure_noise_seldom_looks_like_something(d, outputs):
    rng = np.random.default_rng([d, outputs])
    found = []
    for _ in range(800):
        energy, columns, variances, weights = drawn(rng, d, outputs)
        v = np.sqrt(variances) * rng.normal(size=(d, outputs))
        found.append(null_p_value(v, variances, weights, energy, columns))
    for level in (0.5, 0.1, 0.02):
        slack = 3.0 * math.sqrt(level * (1.0 - level) / 800)
        # the moments of the energy are matched, its tail is not: a quarter more is granted to the rarest
        assert np.mean(np.array(found) < level) <= 1.25 * level + slack
    # a chance that is too large by much would be seldom below
    assert np.mean(np.array(found) < 0.5) >= 0.12


@pytest.mark.parametrize("scale", [1e-90, 1.0, 1e90])
def test_units_do_not_matter(scale):
    energy, columns, variances, weights = drawn(np.random.default_rng(0), 8, 2)
    v = 1.5 * np.sqrt(variances)
    one, other = (null_p_value(unit * v, unit**2 * variances, weights, energy, columns) for unit in (1.0, scale))
    assert one == pytest.approx(other, rel=1e-9)
    assert 0.0 < one < 1.0


def test_many_weak_columns_and_a_single_strong_one_are_both_seen():
    unit, flat = np.eye(100), np.ones((100, 1))
    many, single = 1.6 * flat, 5.5 * unit[:, :1]
    rest = np.random.default_rng(0).normal(size=(100, 1))
    for v in (many, single + (unit[:, :1] == 0.0) * rest):
        assert null_p_value(v, flat, np.ones(1), unit, unit) < 0.01
    # by one look alone the other would be missed
    assert np.square(many).max() < 10.0
    assert np.square(single + rest).sum() < 140.0


def test_what_many_columns_say_together_is_seen():
    """One direction of a hundred, in which every column has a small part."""
    unit, flat = np.eye(128), np.ones((128, 1))
    columns = hadamard(128) / math.sqrt(128.0)
    v = np.where(unit[:, :1] > 0.0, 5.5, np.random.default_rng(0).normal(size=(128, 1)))
    assert null_p_value(v, flat, np.ones(1), unit, columns) < 0.01
    # by the other looks it would be missed
    assert chdtrc(1.0, np.square(columns @ v).max()) * 128 > 0.1
    assert chdtrc(128.0, np.square(v).sum()) > 0.05


def test_an_output_speaks_as_much_as_it_matters():
    """Energy in an output that hardly counts for the loss, spread over many columns, is next to none."""
    unit, flat = np.eye(100), np.ones((100, 2))
    result = np.column_stack([np.ones(100), np.full(100, 1.6)])
    counts, hardly = (null_p_value(result, flat, np.array([1.0, weight]), unit, unit) for weight in (1.0, 1e-6))
    assert counts < 0.01 < 0.5 < hardly


def test_a_column_that_the_metric_leaves_out_says_nothing():
    columns = np.vstack([np.eye(3), np.zeros(3)])
    flat = np.ones((3, 1))
    assert 0.0 < null_p_value(flat, flat, np.ones(1), np.eye(3), columns) <= 1.0
    assert null_p_value(flat, flat, np.ones(1), np.zeros((3, 3)), columns) == 1.0


# ---------------------------------------------------------------------------------------------- in a fit
@pytest.mark.parametrize(("loss", "least"), [(Squared(), 0.0), (Logistic(), 0.1)])
def test_chance_counts_in_full_against_a_result_that_it_explains(loss, least):
    """With little noise chance is believed, as without privacy, but only where something is seen beyond it."""
    facts = Facts(1000, 3, 3)
    metric = Metric.of(np.eye(3), np.ones(3), 1e-6, math.sqrt(3.0), facts.grids)
    v = np.array([1.0, -1.0, 1.0])
    for chance, low, high in ((0.01, 0.8, 1.0), (1.0, 0.0, least)):
        noise = KnownNoise(np.full((3, 1), 0.01), np.full((3, 1), chance), np.ones(1), 1.0)
        moved, kept = shrinkage(v, metric, noise, recipe_for(loss), facts, None, False)
        assert low <= kept <= high
        np.testing.assert_allclose(moved, kept * (metric.rows.matrix @ v), rtol=0.05, atol=1e-12)


def test_neither_a_constant_that_drifts_nor_what_classes_have_in_common_speaks_for_the_columns():
    facts = Facts(1000, 2, 3, intercept_height=1.0)
    metric = Metric.of(np.eye(3), np.ones(3), 1e-6, math.sqrt(3.0), facts.grids)
    drifts = np.where(np.abs(metric.rows.matrix[-1]) > 0.5, 30.0, 0.3)
    for v, outputs in ((drifts, 1), (np.full((3, 4), 30.0), 4)):
        noise = KnownNoise(np.ones((3, outputs)), np.ones((3, outputs)), np.ones(outputs), 1.0)
        _, kept = shrinkage(v, metric, noise, recipe_for(Logistic()), facts, None, False)
        assert kept < 0.01


def test_the_less_clear_a_result_is_the_more_of_the_chance_counts():
    noise = KnownNoise(np.full((3, 1), 1.0), np.full((3, 1), 4.0), np.ones(1), 1.0)
    for doubted, expected in ((0.0, 1.0), (1e-4, 1.0), (10**-2.5, 2.5), (0.1, 4.0), (1.0, 4.0)):
        np.testing.assert_allclose(noise.judged(doubted), expected)


def useless(seed, n, p):
    rng = np.random.default_rng([seed, n, 41])
    return np.clip(rng.normal(size=(n + 4000, p)), -3.0, 3.0), rng


@pytest.mark.parametrize(("n", "neighbours", "epsilon"), [(1500, "zero-out", 4.0), (5000, "replace-one", 1.0)])
@pytest.mark.parametrize(("make", "p"), [(DPRidge, 10), (DPRidge, 50), (DPLasso, 300)])
def test_a_regression_on_columns_of_no_use_is_one_constant(make, p, n, neighbours, epsilon):
    """Not next to it: what every fit of a sort adds a little of is more than chance in the mean of many."""
    constant, by_columns = 0, []
    for seed in range(12):
        X, rng = useless(seed, n, p)
        y = np.clip(rng.normal(size=len(X)), -4.0, 4.0)
        bounds = Bounds(**BOUNDS, target=(-4.0, 4.0))
        model = make(epsilon=epsilon, bounds=bounds, neighbours=neighbours, insecure_seed=seed).fit(X[:n], y[:n])
        predicted, test = model.predict(X[n:]), y[n:]
        by_columns.append(np.mean((predicted - test) ** 2) - np.mean((predicted.mean() - test) ** 2))
        if not np.any(model.coef_):
            constant += 1
            assert NOTHING_SEEN in model.privacy_report_.public["warnings"]
    assert constant >= 10
    assert np.mean(by_columns) <= 2.0 * np.std(by_columns, ddof=1) / math.sqrt(12)


@pytest.mark.parametrize(("make", "p"), [(DPRidge, 10), (DPLasso, 300)])
def test_a_note_on_the_target_does_not_hide_that_every_column_is_gone(make, p):
    X, rng = useless(0, 1500, p)
    y = np.abs(rng.normal(size=1500))
    bounds = Bounds(**BOUNDS, target=(0.0, 100.0))
    model = make(epsilon=1.0, bounds=bounds, neighbours="zero-out", insecure_seed=0).fit(X[:1500], y)
    said = model.privacy_report_.public["warnings"]
    assert not np.any(model.coef_)
    assert any("mean of the target" in text for text in said)
    assert NOTHING_SEEN in said


@pytest.mark.parametrize(("n", "neighbours", "epsilon"), [(1500, "zero-out", 4.0), (5000, "replace-one", 1.0)])
def test_classes_that_columns_say_nothing_of_keep_their_shares(n, neighbours, epsilon):
    by_columns, notes = [], 0
    for seed in range(12):
        X, rng = useless(seed, n, 20)
        y = (rng.random(len(X)) < 0.7).astype(int)
        model = DPLogisticRegression(
            epsilon=epsilon, bounds=Bounds(**BOUNDS, classes=(0, 1)), neighbours=neighbours, insecure_seed=seed
        ).fit(X[:n], y[:n])
        notes += bool(model.privacy_report_.public["warnings"])
        chances = model.predict_proba(X[n:])
        shares = chances.mean(axis=0)
        by_columns.append(np.mean(np.log(shares[y[n:]]) - np.log(chances[np.arange(4000), y[n:]])))
    assert notes >= 11
    assert np.mean(by_columns) <= 2.0 * np.std(by_columns, ddof=1) / math.sqrt(12) + 1e-4
    assert np.mean(by_columns) <= 0.001


def test_weak_columns_are_still_seen():
    """One column of ten that explains .02 of the target: most of it is found."""
    gains = []
    for seed in range(8):
        X, rng = useless(seed, 1500, 10)
        y = np.clip(0.15 * X[:, 0] + rng.normal(size=len(X)), -4.0, 4.0)
        model = DPRidge(
            epsilon=4.0, bounds=Bounds(**BOUNDS, target=(-4.0, 4.0)), neighbours="zero-out", insecure_seed=seed
        ).fit(X[:1500], y[:1500])
        gains.append(model.score(X[1500:], y[1500:]))
    assert np.mean(gains) >= 0.01


@pytest.mark.parametrize(("n", "p", "epsilon"), [(100, 50, 100.0), (200, 300, 1e4)])
def test_columns_that_share_a_few_factors_are_not_taken_for_chance(n, p, epsilon):
    """About as many columns as rows: chance alone has the energy of any signal, but not in a single direction."""
    for seed in range(3):
        rng = np.random.default_rng([seed, n, p])
        factors = rng.normal(size=(n + 2000, 3))
        X = 0.52 * factors @ rng.normal(size=(3, p)) + 0.45 * rng.normal(size=(n + 2000, p))
        X, y = np.clip(X, -3.0, 3.0), np.clip(factors[:, 0] + 0.3 * rng.normal(size=n + 2000), -4.0, 4.0)
        model = DPRidge(
            epsilon=epsilon, bounds=Bounds(**BOUNDS, target=(-4.0, 4.0)), neighbours="zero-out", insecure_seed=seed
        ).fit(X[:n], y[:n])
        assert model.score(X[n:], y[n:]) >= 0.6


def test_what_a_penalty_takes_away_is_not_laid_to_noise():
    X, rng = useless(0, 3000, 5)
    y = np.clip(X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0]) + rng.normal(size=len(X)), -6.0, 6.0)
    bounds = Bounds(**BOUNDS, target=(-6.0, 6.0))
    model = DPLasso(epsilon=1e4, strength=10.0, bounds=bounds, insecure_seed=0).fit(X, y)
    assert np.abs(model.coef_).max() < 1e-12
    assert not any("noise" in text for text in model.privacy_report_.public["warnings"])


def test_where_a_penalty_takes_all_columns_classes_keep_their_released_shares():
    """What a descent adds to a constant that starts at the best one is noise, and the drift of clipped slopes."""
    excess = []
    for seed in range(6):
        X, rng = useless(seed, 1500, 10)
        y = (rng.random(1500) < 0.3).astype(int)
        model = DPLogisticRegression(
            epsilon=0.5,
            penalty="l1",
            strength=10.0,
            neighbours="zero-out",
            bounds=Bounds(**BOUNDS, classes=(0, 1)),
            insecure_seed=seed,
        ).fit(X[:1500], y)
        assert np.abs(model.coef_).max() < 1e-12
        true, found = np.bincount(y) / 1500, model.predict_proba(X[:1])[0]
        excess.append(float(true @ np.log(true / found)))
    assert np.mean(excess) < 5e-4


def test_with_as_many_columns_as_rows_what_a_fit_without_privacy_finds_is_kept():
    """Chance explains every target there, so that columns of use could never be told from it."""
    scores = []
    for seed in range(3):
        rng = np.random.default_rng([seed, 7])
        X = np.clip(rng.normal(size=(2200, 300)), -3.0, 3.0)
        y = X @ rng.normal(size=300) / math.sqrt(300.0)
        bounds = Bounds(**BOUNDS, target=(-4.0, 4.0))
        model = DPRidge(epsilon=1e4, bounds=bounds, neighbours="zero-out", insecure_seed=seed)
        scores.append(model.fit(X[:200], np.clip(y[:200], -4.0, 4.0)).score(X[200:], y[200:]))
    assert np.mean(scores) >= 0.3


def test_chance_counts_less_from_half_as_many_columns_as_rows_on():
    metric = Metric.of(np.eye(30), np.ones(30), 1e-6, math.sqrt(30.0), Facts(1000, 30, 30).grids)
    descent = Descent(np.full(2, 0.5), 0.0, 1, np.zeros(30))
    answer = ClippedResponse(np.ones(1), np.ones(1), np.ones(1), 1.0)
    for rows, share in ((1000, 1.0), (60, 1.0), (40, 0.5), (30, 0.2), (10, 0.2)):
        noise = KnownNoise.of(answer, metric, descent, 0.0, rows, 0.2)
        np.testing.assert_allclose(noise.alone, noise.variances * (share / 0.2), rtol=1e-9)
