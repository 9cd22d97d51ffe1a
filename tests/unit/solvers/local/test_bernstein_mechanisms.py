"""The published algorithms: unbiased, with the stated variance, and worse than the moment sketch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from dperm.errors import InvalidBudget, InvalidInput, Unsupported
from dperm.privacy.local.public_noise_bit import PublicNoiseBit
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import LinearTask, bernstein_mechanisms
from dperm.solvers.local.bernstein_mechanisms import (
    BernsteinMechanism,
    OneBitBernsteinMechanism,
    average,
    average_of_coordinates,
)
from dperm.testing import ContractViolation
from dperm.testing.local import check_one_bit


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


def test_refusals():
    with pytest.raises(Unsupported, match="not private as stated"):
        OneBitBernsteinMechanism(0.5, 1, 2, repair="printed")
    for bad in ((1.0, 17, 1), (1.0, 9, 3), (1.0, 0, 2), (1.0, 1, 0), (1.0, 1, 2, 0)):
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


def spread_of_cells(mechanism, records, runs, seed):
    """Variance of every node's value over runs, the loss being the record itself."""
    source = RandomSource(seed)
    return np.var([mechanism.values(lambda _, values: values, records, source) for _ in range(runs)], axis=0)


def check_cells(mechanism, variance, runs=400, n=300, seed=21):
    """Both sides: less noise is a cost that is not stated, more is waste."""
    found = spread_of_cells(mechanism, np.full(n, 0.5), runs, seed)
    assert (runs * found / variance > stats.chi2.ppf(1e-6, runs)).all()
    assert (runs * found / variance < 1.1 * stats.chi2.isf(1e-6, runs)).all()


def split_wrongly(monkeypatch, factor):
    """Everybody's share of epsilon per node, times a factor."""
    right = bernstein_mechanisms.average

    def wrong(values, bound, share, source):
        return right(values, bound, factor * share, source)

    monkeypatch.setattr(bernstein_mechanisms, "average", wrong)


def test_algorithm_2_splits_epsilon_over_all_nodes(monkeypatch):
    """Variance 2 d^2 / (epsilon^2 n) per node; a whole epsilon per node, or half as much again, is seen."""
    mechanism, d = BernsteinMechanism(1.0, 1, 3), 4
    variance = 2.0 * d**2 / 300
    check_cells(mechanism, variance)
    for factor in (1.5, d):
        with monkeypatch.context() as patch:
            split_wrongly(patch, factor)
            with pytest.raises(AssertionError):
                check_cells(mechanism, variance)


@pytest.mark.parametrize("repair", ["constant", "inner"])
def test_algorithm_3_has_the_variance_of_its_bit(monkeypatch, repair):
    """That of one decoded bit over n / d people; a bit of 1.3 epsilon is seen."""
    mechanism = OneBitBernsteinMechanism(1.0, 1, 1, repair=repair)
    n, runs, bit = 600, 1500, PublicNoiseBit(1.0, repair)
    # a decoded bit has heavy tails: the variance of the variance is estimated
    y = bit.public_noise(400_000, RandomSource(22))
    decoded = bit.decode(bit.report(np.full(y.size, 0.5), y, RandomSource(23)), y)
    off = stats.kurtosis(decoded) / (n / 2) + 2.0
    allowed = 4.5 * np.sqrt(off / runs) + 0.01  # nodes are drawn: their numbers of people scatter a little
    wanted = bit.variance(0.5) / (n / 2)

    def close(seed):
        found = spread_of_cells(mechanism, np.full(n, 0.5), runs, seed)
        return bool((np.abs(found / wanted - 1.0) < allowed).all())

    assert close(24)
    with monkeypatch.context() as patch:
        patch.setattr(bernstein_mechanisms, "PublicNoiseBit", lambda epsilon, how: PublicNoiseBit(1.3 * epsilon, how))
        assert not close(24)


@pytest.mark.parametrize("repair", ["constant", "inner"])
def test_algorithm_3s_own_bits_keep_epsilon_and_spend_it(monkeypatch, repair):
    """The bits that leave the people inside ``values``, at the worst public noise; 1.3 epsilon is seen."""

    def bits_of(mechanism, losses):
        seen = []

        class Watched(bernstein_mechanisms.PublicNoiseBit):
            def public_noise(self, n, source):
                return np.full(n, 1.5)

            def report(self, values, y, source):
                seen.append(super().report(values, y, source))
                return seen[-1]

        with monkeypatch.context() as patch:
            patch.setattr(bernstein_mechanisms, "PublicNoiseBit", Watched)
            mechanism.values(lambda _, values: values, losses, source)
        return seen[0]

    source, mechanism = RandomSource(25), OneBitBernsteinMechanism(1.0, 1, 2, repair=repair)
    check_one_bit(lambda losses: bits_of(mechanism, losses), (0.0, 1.0, 0.5), 1.0)
    right = PublicNoiseBit
    monkeypatch.setattr(
        bernstein_mechanisms, "PublicNoiseBit", type("Wrong", (right,), {"__init__": louder(right.__init__)})
    )
    with pytest.raises(ContractViolation, match="claimed"):
        check_one_bit(lambda losses: bits_of(mechanism, losses), (0.0, 1.0, 0.5), 1.0)


def louder(init):
    return lambda self, epsilon, *rest: init(self, 1.3 * epsilon, *rest)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: BernsteinMechanism(1.0, 2.5, 2),
        lambda: BernsteinMechanism(1.0, 2, "2"),
    ],
)
def test_what_is_no_number_is_refused_in_words(bad):
    with pytest.raises(InvalidInput, match="number"):
        bad()


# ------------------------------------------------------------------------------------------ more than three parameters
@pytest.mark.parametrize("repair", ["constant", "inner"])
def test_more_than_three_parameters_are_fitted(repair):
    rng, n = np.random.default_rng(6), 200_000
    records = np.clip(rng.normal([0.9, 0.1, 0.8, 0.5], 0.1, (n, 4)), 0.0, 1.0)
    found = OneBitBernsteinMechanism(4.0, 4, 2, repair=repair).fit(tilted, records, RandomSource(7))
    best = records.mean(axis=0)
    excess = float(((found.point - best) ** 2).mean())
    assert excess < 0.3 * float(((0.5 - best) ** 2).mean())
    assert found.gap > excess


@pytest.mark.parametrize(
    "mechanism",
    [BernsteinMechanism(2.0, 2, 2), OneBitBernsteinMechanism(2.0, 2, 2)],
    ids=["algorithm 2", "algorithm 3"],
)
def test_the_stated_deviation_holds_everywhere(mechanism):
    """The polynomial with noise is within the stated deviation of that without, and not far below it."""
    rng, source = np.random.default_rng(8), RandomSource(9)
    records = rng.random((4_000, 2))
    nodes = mechanism.nodes
    truth = np.array([tilted(np.broadcast_to(node, records.shape), records).mean() for node in nodes])
    points, shape = rng.random((3_000, 2)), (3, 3)
    off = []
    for _ in range(40):
        noise = mechanism.values(tilted, records, source) - truth
        polynomial = bernstein_mechanisms.BernsteinPolynomial.of_values(noise.reshape(shape), mechanism.order)
        off.append(np.abs(polynomial(points)).max())
    stated = mechanism.deviation(4_000)
    assert np.mean(np.array(off) > stated) <= 0.1
    assert np.max(off) > 0.15 * stated
