"""The published algorithms: unbiased, with the stated variance, and worse than the moment sketch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from dperm.errors import InvalidBudget, InvalidInput, Unsupported
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import LinearTask
from dperm.solvers.local.bernstein_mechanisms import (
    BernsteinMechanism,
    OneBitBernsteinMechanism,
    average,
    average_of_coordinates,
    grid_size,
    people_needed,
)


def tilted(points, records):
    """A loss in [0, 1] with its minimum at the record's mean."""
    return ((points - records) ** 2).mean(axis=1)


def test_an_average_has_the_variance_of_its_laplace_noise():
    source, values = RandomSource(0), np.full(500, 2.0)
    runs = np.array([average(values, 4.0, 0.5, source) for _ in range(600)])
    variance = 2.0 * (4.0 / 0.5) ** 2 / 500
    assert runs.mean() == pytest.approx(2.0, abs=4.0 * math.sqrt(variance / 600))
    assert 600 * runs.var() / variance < stats.chi2.isf(1e-6, 600)
    assert 600 * runs.var() / variance > stats.chi2.ppf(1e-6, 600)
    assert 600 * runs.var() / (variance / 4.0) > stats.chi2.isf(1e-6, 600)  # halved noise would be seen
    assert np.isfinite(average(np.array([np.nan, 9e300, -np.inf]), 1.0, 1.0, source))


def test_an_average_of_coordinates():
    rng, source = np.random.default_rng(1), RandomSource(1)
    values = rng.uniform(0, 1, (200_000, 3)) * [1.0, 2.0, 0.5]
    found = average_of_coordinates(values, 2.0, 2.0, source)
    error = 2.0 * 1.32 / 2.0 / math.sqrt(200_000 / 3)
    assert np.abs(found - values.mean(axis=0)).max() < 5.0 * error


@pytest.mark.parametrize(
    "mechanism",
    [
        BernsteinMechanism(2.0, 2, 2),
        OneBitBernsteinMechanism(2.0, 2, 2),
        OneBitBernsteinMechanism(2.0, 2, 2, repair="inner"),
    ],
)
def test_values_are_unbiased_and_the_minimum_is_near(mechanism):
    rng, n = np.random.default_rng(2), 300_000
    records = rng.uniform(0, 1, (n, 2)) * [0.4, 1.0] + [0.5, 0.0]
    values = mechanism.values(tilted, records, RandomSource(3))
    truth = [tilted(np.broadcast_to(node, records.shape), records).mean() for node in mechanism.nodes]
    cells = len(truth)
    deviation = math.sqrt(2.0) * cells / 2.0 / math.sqrt(n)  # Laplace noise of scale cells / epsilon
    if isinstance(mechanism, OneBitBernsteinMechanism):
        deviation = 10.0 * math.sqrt(cells / n)
    assert np.abs(values - truth).max() < 4.0 * deviation
    found = mechanism.fit(tilted, records, RandomSource(4))
    assert found.point == pytest.approx([0.7, 0.5], abs=0.3)


def test_the_moment_sketch_beats_the_published_algorithms():
    """One parameter, logistic loss, ten thousand people, epsilon 1."""
    n, excess = 10_000, {"published": [], "moments": []}
    task = LinearTask("logistic", 1.0, (1.0,), 2.0, 2.0)

    def loss(points, records):
        return np.logaddexp(0.0, -4.0 * (points[:, 0] - 0.5) * records[:, 0]) / np.log1p(np.exp(2.0))

    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = rng.uniform(0.5, 1.0, n) * rng.choice([-1, 1], n)
        a = (np.where(rng.random(n) < special.expit(1.3 * x), 1, -1) * x)[:, None]
        grid = np.linspace(-2, 2, 401)
        best = min(np.logaddexp(0.0, -a[:, 0] * w).mean() for w in grid[::4])
        for name, w in (
            ("published", 4.0 * (OneBitBernsteinMechanism(1.0, 1, 4).fit(loss, a, RandomSource(seed)).point[0] - 0.5)),
            ("moments", task.estimates(task.task.collect(a, RandomSource(seed)))[0].weights[0]),
        ):
            excess[name].append(np.logaddexp(0.0, -a[:, 0] * w).mean() - best)
    assert 3.0 * np.mean(excess["moments"]) < np.mean(excess["published"])


def test_an_average_of_coordinates_has_the_variance_of_one_bit_per_person():
    """Lemma 2: everybody sends one coordinate of p, so the variance is p times that of a bit."""
    source, values = RandomSource(11), np.full((900, 3), 0.5)
    runs = np.array([average_of_coordinates(values, 1.0, 1.0, source) for _ in range(400)])
    variance = 3.0 * (0.5 / math.tanh(0.5)) ** 2 / 900
    assert runs.mean() == pytest.approx(0.5, abs=4.0 * math.sqrt(variance / 1200))
    assert runs.var() == pytest.approx(variance, rel=0.15)


@pytest.mark.parametrize(("p", "h"), [(1, 2), (2, 2), (2, 4), (3, 3)])
def test_theorem_3s_sample_size_reaches_its_error(p, h):
    """Put into the theorem's bound on the excess risk, the planned number of people gives back the error."""
    for error, epsilon, failure, smoothness in ((0.1, 1.0, 0.05, 2.0), (0.01, 0.5, 0.2, 1.0)):
        n, log = people_needed(error, p, h, epsilon, failure, smoothness), math.log(1.0 / failure)
        share = h / (h + p)
        bound = log ** (share / 2) * smoothness ** (p / (h + p)) * p ** (p / (2 * (h + p))) * 2 ** ((h + 1) * p * share)
        bound /= n ** (share / 2) * epsilon**share
        assert bound == pytest.approx(error)
        # Corollary 1 states the exponent
        ratio = people_needed(error / 2, p, h, epsilon, failure, smoothness) / n
        assert ratio == pytest.approx(2.0 ** (2.0 + 2.0 * p / h))


def test_a_large_error_still_needs_the_theorems_least_number():
    assert people_needed(1e6, 1, 2, 1.0, 0.05) == pytest.approx(math.log(20) * 4.0**3)


def test_theorem_3s_grid():
    assert grid_size(10**12, 1, 2, 1.0, 0.05) == round((10**6 / (8 * math.sqrt(math.log(20)))) ** (1 / 3))
    assert grid_size(1, 3, 2, 1.0) == 1


@pytest.mark.parametrize(
    "bad",
    [
        lambda: people_needed(0.0, 1, 1, 1.0),
        lambda: people_needed(0.1, 0, 1, 1.0),
        lambda: people_needed(0.1, 1, 1, -1.0),
        lambda: people_needed(0.1, 1, 1, 1.0, 1.0),
        lambda: grid_size(0, 1, 1, 1.0),
        lambda: grid_size(10, 1, 1, 1.0, smoothness=0.0),
    ],
)
def test_bad_numbers_for_the_planner(bad):
    with pytest.raises(InvalidInput):
        bad()


def test_planners():
    assert people_needed(0.05, 2, 4, 1.0) > people_needed(0.1, 2, 4, 1.0) > people_needed(0.1, 1, 4, 1.0)
    assert people_needed(0.1, 2, 4, 2.0) == pytest.approx(people_needed(0.1, 2, 4, 1.0) / 4)
    assert grid_size(10**12, 1, 2, 1.0) > grid_size(10**8, 1, 2, 1.0) >= 1


def test_refusals():
    with pytest.raises(Unsupported, match="not private as stated"):
        OneBitBernsteinMechanism(0.5, 1, 2, repair="printed")
    for bad in ((1.0, 4, 2), (1.0, 1, 0), (1.0, 1, 2, 0)):
        with pytest.raises(InvalidInput):
            BernsteinMechanism(*bad)
    with pytest.raises(InvalidBudget):
        BernsteinMechanism(0.0, 1, 2)
    source = RandomSource(5)
    with pytest.raises(InvalidInput):
        average([], 1.0, 1.0, source)
    with pytest.raises(InvalidInput):
        average([0.5], 1.0, 0.0, source)
    with pytest.raises(InvalidInput):
        average_of_coordinates([0.5], 1.0, 1.0, source)
