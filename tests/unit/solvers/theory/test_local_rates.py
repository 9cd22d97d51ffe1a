"""Published numbers of people and tails of the local model, each checked against its formula or simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dperm.errors import InvalidInput
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local.bernstein import BernsteinPolynomial
from dperm.solvers.local.bernstein_mechanisms import average_of_coordinates
from dperm.solvers.theory import local_rates as theory
from dperm.solvers.theory.local_rates import bernstein_error, grid_size, people_needed


# ------------------------------------------------------------------------------------------ Lemma 1
@pytest.mark.parametrize("n", [1, 3, 20, 300])
def test_the_exact_tail_of_a_mean_of_laplace_variables(n):
    rng = np.random.default_rng(n)
    means = np.abs(rng.laplace(0.0, 2.0 / 0.5, (200_000, n)).mean(axis=1)) if n < 300 else None
    if means is None:
        means = np.abs(rng.laplace(0.0, 4.0, (20_000, n)).mean(axis=1))
    for share in (0.5, 0.1, 0.02):
        threshold = float(np.quantile(means, 1.0 - share))
        exact = theory.average_failure(n, threshold, 2.0, 0.5)
        assert exact == pytest.approx(share, abs=5.0 * math.sqrt(share / len(means)))


@pytest.mark.parametrize("failure", [0.2, 0.05, 1e-3, 1e-6])
def test_the_proved_tail_holds_and_the_printed_one_does_not_always(failure):
    for n in (math.ceil(math.log(2.0 / failure)), 30, 1000):
        assert theory.average_failure(n, theory.average_tail(n, 3.0, 0.7, failure), 3.0, 0.7) <= failure
    least = math.ceil(math.log(2.0 / failure))
    printed = theory.average_failure(least, theory.printed_average_tail(least, 3.0, 0.7, failure), 3.0, 0.7)
    assert (printed > failure) == (failure < 1e-3)


def test_too_few_people_for_the_proved_tail():
    with pytest.raises(InvalidInput, match="at least"):
        theory.average_tail(3, 1.0, 1.0, 0.05)
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        theory.average_tail(100, 1.0, 1.0, 1.0)


# ------------------------------------------------------------------------------------------ Lemma 2
def test_the_largest_error_of_coordinates_stays_below_its_bound():
    source, rng = RandomSource(3), np.random.default_rng(3)
    n, p, epsilon = 4_000, 5, 1.0
    values = 2.0 * (rng.random((n, p)) < 0.3)  # the spread of people is as large as it can be
    off = np.array(
        [np.abs(average_of_coordinates(values, 2.0, epsilon, source) - values.mean(axis=0)).max() for _ in range(200)]
    )
    bound = theory.coordinates_tail(n, p, 2.0, epsilon, 0.05)
    assert np.mean(off > bound) <= 0.05
    assert off.max() > 0.4 * bound
    # the printed order has p where the proved bound has its root
    ratios = [
        theory.coordinates_error(10**6, q, 1.0, 1.0, 0.05) / theory.coordinates_tail(10**6, q, 1.0, 1.0, 0.05)
        for q in (4, 64)
    ]
    assert ratios[1] > 3.0 * ratios[0]
    with pytest.raises(InvalidInput, match="at least"):
        theory.coordinates_tail(10, 5, 1.0, 1.0, 0.05)


# ------------------------------------------------------------------------------------------ Theorem 2
@pytest.mark.parametrize("order", [1, 2, 3])
def test_iterated_polynomials_are_off_by_the_power_of_the_order(order):
    """The error falls as k^-h, in one and in two variables."""
    for p in (1, 2):
        points = np.random.default_rng(0).random((400, p))
        errors = []
        for k in (12, 24):
            axis = np.arange(k + 1) / k
            grid = np.stack(np.meshgrid(*[axis] * p, indexing="ij"), axis=-1)
            polynomial = BernsteinPolynomial.of_values(np.exp(-2.0 * grid.sum(axis=-1)), order)
            errors.append(np.abs(polynomial(points) - np.exp(-2.0 * points.sum(axis=1))).max())
        assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.35)


# ------------------------------------------------------------------------------------------ Theorem 3
@pytest.mark.parametrize(("p", "h"), [(1, 2), (2, 2), (2, 4), (3, 3)])
def test_theorem_3s_sample_size_reaches_its_error(p, h):
    """Put into the theorem's bound on the excess risk, the planned number of people gives back the error."""
    for error, epsilon, failure, smoothness in ((0.1, 1.0, 0.05, 2.0), (0.01, 0.5, 0.2, 1.0)):
        n, log = people_needed(error, p, h, epsilon, failure, smoothness), math.log(1.0 / failure)
        share = h / (h + p)
        bound = log ** (share / 2) * smoothness ** (p / (h + p)) * p ** (p / (2 * (h + p))) * 2 ** ((h + 1) * p * share)
        bound /= n ** (share / 2) * epsilon**share
        assert bound == pytest.approx(error)
        assert bernstein_error(n, p, h, epsilon, failure, smoothness) == pytest.approx(error)
        # Corollary 1 states the exponent
        ratio = people_needed(error / 2, p, h, epsilon, failure, smoothness) / n
        assert ratio == pytest.approx(2.0 ** (2.0 + 2.0 * p / h))


def test_a_large_error_still_needs_the_theorems_least_number():
    assert people_needed(1e6, 1, 2, 1.0, 0.05) == pytest.approx(math.log(20) * 4.0**3)
    assert people_needed(1e6, 2, 3, 0.5, 0.1, 4.0) == pytest.approx(math.log(10) * 4.0**8 / (0.5 * 4.0) ** 2)


def test_theorem_3s_grid():
    assert grid_size(10**12, 1, 2, 1.0, 0.05) == round((10**6 / (8 * math.sqrt(math.log(20)))) ** (1 / 3))
    base = 4.0 * math.sqrt(2 * 10**20) * 0.5 / (2.0**8 * math.sqrt(math.log(10)))
    assert grid_size(10**20, 2, 3, 0.5, 0.1, 4.0) == round(base ** (1 / 5))
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
        lambda: people_needed("a", 1, 1, 1.0),
        lambda: people_needed(0.1, 1, 1, "a"),
        lambda: people_needed(0.1, 1.5, 1, 1.0),
        lambda: grid_size("a", 1, 1, 1.0),
        lambda: bernstein_error(0, 1, 1, 1.0),
    ],
)
def test_bad_numbers_for_the_planner(bad):
    with pytest.raises(InvalidInput):
        bad()


def test_planners():
    assert people_needed(0.05, 2, 4, 1.0) > people_needed(0.1, 2, 4, 1.0) > people_needed(0.1, 1, 4, 1.0)
    assert people_needed(0.1, 2, 4, 2.0) == pytest.approx(people_needed(0.1, 2, 4, 1.0) / 4)
    assert grid_size(10**12, 1, 2, 1.0) > grid_size(10**8, 1, 2, 1.0) >= 1


# ------------------------------------------------------------------------------------------ corollaries, Table 1
@pytest.mark.parametrize("p", [1, 2, 4])
def test_corollaries_are_theorem_3_at_one_order(p):
    """Up to ln(1/failure), and for Corollary 1 up to the constants that its c_0 takes in."""
    log = math.log(20.0)
    for error, epsilon in ((1e-3, 1.0), (1e-5, 0.5)):
        first, second = people_needed(error, p, 4, epsilon), people_needed(error, p, p, epsilon)
        assert theory.smooth_people(error, p, epsilon) * log == pytest.approx(first)
        assert theory.very_smooth_people(error, p, epsilon) * log == pytest.approx(second)


def test_rows_of_table_1_change_with_the_error_as_printed():
    exponents = {
        theory.lipschitz_people: 7.0,
        theory.convex_people: 6.0,
        theory.smooth_people: 4.5,
        theory.very_smooth_people: 4.0,
    }
    for people, exponent in exponents.items():
        assert people(0.01, 5, 1.0) / people(0.02, 5, 1.0) == pytest.approx(2.0**exponent)
        assert people(0.01, 5, 0.5) / people(0.01, 5, 1.0) == pytest.approx(4.0)
    assert theory.lipschitz_people(0.1, 2, 1.0) == pytest.approx(16 * 1e4)
    assert theory.convex_people(0.1, 2, 1.0) == pytest.approx(4 * 1e3)
    assert theory.regression_people(0.1, 3, 0.5, 1e-6) == pytest.approx(3 * math.log(1e6) * 4 * 100)


def test_theorem_1_is_the_inverse_of_its_number_of_people():
    """With its sqrt(p) and without the 2^p, which the table adds and Theorem 1 hides."""
    n, p, epsilon = 10**7, 3, 0.5
    error = theory.convex_error(n, p, epsilon)
    assert math.sqrt(p) * math.log(20.0) ** 2 * error ** -(p + 1) / epsilon**2 == pytest.approx(n)


def test_logistic_regression_of_zheng_et_al():
    def plain(error, p, epsilon, r, c):
        ratio = 8 * r / error
        return (
            p
            * ratio ** (4 * r * math.log(math.log(ratio)))
            * (4 * r / epsilon) ** (2 * c * r * math.log(ratio) + 2)
            / (error * epsilon) ** 2
        )

    assert theory.logistic_people(0.5, 3, 1.0, 1.0, 0.5) == pytest.approx(plain(0.5, 3, 1.0, 1.0, 0.5))
    assert theory.logistic_people(1e-6, 3, 1.0, 50.0) == math.inf
    assert theory.logistic_people(0.1, 6, 1.0) == pytest.approx(2.0 * theory.logistic_people(0.1, 3, 1.0))


def test_theorem_4_needs_the_largest_of_its_three_numbers():
    log = math.log(20.0)
    assert theory.one_bit_people(100, 1, 50.0) == pytest.approx(101 * math.log(101))
    assert theory.one_bit_people(2, 2, 1.0) == pytest.approx(log * 4.0**6)
    assert theory.one_bit_people(1, 1, 0.1, smoothness=1e6) == pytest.approx(log / 0.01)
