"""The closed form of the Gaussian trade-off against 60 digits of precision and an independent library."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from dperm.errors import InvalidBudget
from dperm.privacy.accounting import gdp
from dperm.privacy.accounting.budget import Budget, default_delta

MUS = [1e-4, 1e-3, 0.03, 0.2367, 0.9, 1.0, 3.0, 10.0, 30.0, 300.0]
EPSILONS = [0.0, 1e-6, 1e-3, 0.1, 0.5, 1.0, 3.7, 10.0, 50.0, 200.0, 44_900.0, 45_010.0]
DELTAS = [1e-300, 1e-200, 1e-100, 1e-30, 1e-15, 1e-9, 1e-6, 1e-3, 0.1, 0.5]


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Phi(-e/mu + mu/2) - exp(e) Phi(-e/mu - mu/2): Balle & Wang 2018, Theorem 8."""
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        root = mpmath.sqrt(2)
        first = mpmath.erfc((e / m - m / 2) / root) / 2
        return first - mpmath.exp(e) * mpmath.erfc((e / m + m / 2) / root) / 2


def bound_violations(upper: Callable[[float, float], float], lower: Callable[[float, float], float]) -> list[str]:
    """Grid points at which a bound lies on the wrong side of the exact value."""
    found = []
    for mu in MUS:
        for epsilon in EPSILONS:
            exact = exact_delta(mu, epsilon)
            if not lower(mu, epsilon) <= exact <= upper(mu, epsilon):
                found.append(f"mu={mu} epsilon={epsilon}")
    return found


def test_delta_is_a_bound_on_both_sides() -> None:
    assert bound_violations(gdp.delta_of, lambda m, e: gdp.delta_of(m, e, lower=True)) == []


def test_delta_is_a_bound_at_random_points(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for _ in range(400):
        mu = float(10.0 ** rng.uniform(-4, 2.5))
        epsilon = max(0.0, mu * (mu / 2.0 + float(rng.uniform(-8, 38.6))))
        exact = exact_delta(mu, epsilon)
        assert gdp.delta_of(mu, epsilon, lower=True) <= exact <= gdp.delta_of(mu, epsilon), (mu, epsilon)


def test_the_bound_check_detects_a_dropped_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gdp, "_RELATIVE_ERROR", -2e-14)
    assert bound_violations(gdp.delta_of, lambda m, e: gdp.delta_of(m, e, lower=True))


def test_delta_is_tight() -> None:
    for mu in MUS:
        for epsilon in EPSILONS:
            exact = float(exact_delta(mu, epsilon))
            if exact > 1e-290:
                # small mu: Phi's difference cancels, the slack is relative to the first term
                first = float(mpmath.ncdf(-epsilon / mu + mu / 2.0))
                assert abs(gdp.delta_of(mu, epsilon) - exact) <= 1e-9 * exact + 1e-11 * first, (mu, epsilon)


def test_delta_of_negative_epsilon() -> None:
    for mu in (0.01, 1.0, 20.0):
        for epsilon in (-0.1, -3.0, -100.0):
            exact = exact_delta(mu, epsilon)
            assert gdp.delta_of(mu, epsilon, lower=True) <= exact <= gdp.delta_of(mu, epsilon)


@pytest.mark.parametrize("mu", [m for m in MUS if m <= 30.0])
def test_epsilon_is_a_bound_on_both_sides(mu: float) -> None:
    for delta in DELTAS:
        upper, lower = gdp.epsilon_of(mu, delta), gdp.epsilon_of(mu, delta, lower=True)
        assert exact_delta(mu, upper) <= delta
        assert lower <= upper
        assert lower == 0.0 or exact_delta(mu, lower) >= delta
        assert upper - lower <= 1e-6 * upper + 1e-9, (mu, delta, upper, lower)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.7, 10.0, 50.0, 200.0])
def test_mu_is_rounded_down_and_tight(epsilon: float) -> None:
    for delta in DELTAS:
        mu = gdp.mu_of(epsilon, delta)
        assert mu > 0.0
        assert exact_delta(mu, epsilon) <= delta
        assert exact_delta(mu * (1.0 + 1e-6), epsilon) > delta, (epsilon, delta)


def test_published_pair() -> None:
    assert gdp.mu_of(1.0, 1e-6) == pytest.approx(0.2367, abs=5e-5)
    assert gdp.epsilon_of(gdp.mu_of(1.0, 1e-6), 1e-6) == pytest.approx(1.0, abs=1e-9)
    assert Budget(1.0, 1e-6).mu == gdp.mu_of(1.0, 1e-6)


def test_agreement_with_dp_accounting() -> None:
    library = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    for mu in (0.1, 0.2367, 0.5, 1.0, 3.0):
        made = library.from_gaussian_mechanism(1.0 / mu, value_discretization_interval=1e-4 * mu)
        for delta in (1e-9, 1e-6, 1e-3, 0.01):
            assert gdp.epsilon_of(mu, delta) == pytest.approx(made.get_epsilon_for_delta(delta), abs=1e-5, rel=1e-5)


def test_monotone() -> None:
    for delta in (1e-9, 1e-3):
        values = [gdp.epsilon_of(mu, delta) for mu in np.geomspace(1e-3, 30, 60)]
        assert values == sorted(values)
    for mu in (0.1, 3.0):
        deltas = [gdp.delta_of(mu, e) for e in np.linspace(0, 20, 100)]
        assert deltas == sorted(deltas, reverse=True)


def test_nothing_released_costs_nothing() -> None:
    assert gdp.delta_of(0.0, 0.0) == 0.0
    assert gdp.epsilon_of(0.0, 1e-6) == 0.0


def test_an_epsilon_beyond_all_sense_is_infinite_and_its_lower_bound_zero() -> None:
    assert gdp.epsilon_of(1e6, 1e-6) == math.inf
    assert gdp.epsilon_of(1e6, 1e-6, lower=True) == 0.0


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 1e-6), (-1.0, 1e-6), (math.inf, 1e-6), (math.nan, 1e-6), (1.0, 0.0), (1.0, 1.0), ("1", 0.1), (True, 0.1)],
)
def test_bad_budgets_are_refused(epsilon: object, delta: object) -> None:
    with pytest.raises(InvalidBudget):
        Budget(epsilon, delta)  # type: ignore[arg-type]


def test_default_delta() -> None:
    assert default_delta(10) == 1e-5
    assert default_delta(10**6) == pytest.approx(1e-12)


def test_noise_beyond_all_bounds_has_an_infinite_upper_and_no_lower_epsilon():
    assert gdp.epsilon_of(1e12, 1e-6) == math.inf
    assert gdp.epsilon_of(1e12, 1e-6, lower=True) == 0.0
