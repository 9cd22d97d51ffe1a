"""Renyi curves of single releases against brute force: enumeration, quadrature, maximisation over pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import integrate, special

from dperm.errors import Unsupported
from dperm.privacy.accounting import composition, curves
from dperm.privacy.accounting.events import (
    ZCDP,
    ApproximateDP,
    Composed,
    Event,
    Gaussian,
    Laplace,
    PoissonGaussian,
    RandomizedResponse,
    Repeat,
    RepeatAndSelect,
    Selection,
    Unbounded,
)

ORDERS = (1.05, 1.5, 2.0, 2.7, 5.0, 17.3, 64.0, 500.0)
Curve = Callable[[float], float]


def renyi(p: Any, q: Any, order: float) -> float:
    """Renyi divergence of two finite distributions given by probabilities."""
    p, q = np.asarray(p, float), np.asarray(q, float)
    moment = np.logaddexp.reduce(order * np.log(p) + (1.0 - order) * np.log(q))
    return float(moment / (order - 1.0))


def excess(curve: Curve, pairs: Iterator[tuple[Any, Any]], orders: tuple[float, ...] = ORDERS) -> float:
    """Largest amount by which a pair, in either direction, exceeds the curve (negative: it holds)."""
    return max(
        renyi(one, two, a) - curve(a) * (1.0 + 1e-10) - 1e-12 / (a - 1.0)
        for p, q in pairs
        for one, two in ((p, q), (q, p))
        for a in orders
    )


def scaled(event: Event, factor: float) -> Curve:
    return lambda a: factor * curves.renyi(event, a)


def of(event: Event) -> Curve:
    return scaled(event, 1.0)


# ------------------------------------------------------------------------------------------------ Gaussian, zCDP
def test_gaussian_by_quadrature() -> None:
    for multiplier in (0.7, 2.0, 30.0):
        for order in (1.5, 2.0, 8.0):
            x = np.linspace(-40 * multiplier, 40 * multiplier + order, 200_001)
            logs = (-order * (x - 1.0) ** 2 - (1.0 - order) * x**2) / (2 * multiplier**2)
            moment = np.trapezoid(np.exp(logs), x) / (multiplier * math.sqrt(2 * math.pi))
            assert curves.renyi(Gaussian(multiplier), order) == pytest.approx(math.log(moment) / (order - 1), rel=1e-8)


def test_zcdp_is_linear_in_the_order() -> None:
    assert curves.renyi(ZCDP(0.3), 7.0) == pytest.approx(2.1)
    assert curves.renyi(Gaussian(2.0), 7.0) == pytest.approx(curves.renyi(ZCDP(0.125), 7.0))


def test_an_unbounded_event_has_infinite_cost() -> None:
    assert curves.renyi(Unbounded("why"), 2.0) == math.inf
    assert composition.epsilon(Composed((Gaussian(9.0), Unbounded("why"))), 1e-6).epsilon == math.inf


def test_groups_have_no_curve_of_their_own() -> None:
    for group in (Repeat(Gaussian(1.0), 2), Composed((Gaussian(1.0),)), RepeatAndSelect(Gaussian(1.0), 2.0)):
        with pytest.raises(Unsupported):
            curves.renyi(group, 2.0)


# ------------------------------------------------------------------------------------------------------- Laplace
def laplace_by_quadrature(multiplier: float, order: float) -> float:
    def integrand(x: float) -> float:
        return math.exp(-(order * abs(x - 1.0) + (1.0 - order) * abs(x)) / multiplier) / (2.0 * multiplier)

    pieces = [(-60.0 * multiplier, 0.0), (0.0, 1.0), (1.0, 1.0 + 60.0 * multiplier)]
    moment = math.fsum(integrate.quad(integrand, *piece, epsabs=0, epsrel=1e-11, limit=200)[0] for piece in pieces)
    return math.log(moment) / (order - 1.0)


def test_laplace_by_quadrature() -> None:
    for multiplier in (0.4, 1.0, 6.0):
        for order in (1.1, 2.0, 6.5, 20.0):
            exact = laplace_by_quadrature(multiplier, order)
            assert curves.renyi(Laplace(multiplier), order) == pytest.approx(exact, rel=1e-7)
            # a twentieth less noise would be seen
            assert laplace_by_quadrature(0.95 * multiplier, order) > 1.01 * curves.renyi(Laplace(multiplier), order)


# ------------------------------------------------------------------------------------ safe side of every closed form
def _exact_laplace(shift: Any, a: Any) -> Any:
    # Mironov 2017, Proposition 6
    return mpmath.log(
        a / (2 * a - 1) * mpmath.exp((a - 1) * shift) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * shift)
    ) / (a - 1)


def _exact_range(e: Any, a: Any) -> Any:
    # largest over u of log(u^(a-1) (A - B u)) / (a-1)
    q, s = mpmath.exp(-(a - 1) * e), -mpmath.expm1(-e)
    big_a, big_b = q + (1 - q) / s, (1 - q) * mpmath.exp(-e) / s
    u = min(max((a - 1) * big_a / (a * big_b), mpmath.mpf(1)), mpmath.exp(e))
    return mpmath.log(u) + mpmath.log(big_a - big_b * u) / (a - 1)


def _exact_response(k: int) -> Callable[[Any, Any], Any]:
    def value(e: Any, a: Any) -> Any:
        q = 1 / (mpmath.exp(e) + k - 1)
        return mpmath.log(q * (mpmath.exp(a * e) + mpmath.exp((1 - a) * e) + k - 2)) / (a - 1)

    return value


CLOSED = [
    pytest.param(
        _exact_laplace, lambda s: Laplace(1.0 / s), lambda e: 1 / mpmath.mpf(e.noise_multiplier), id="laplace"
    ),
    pytest.param(_exact_range, lambda s: Selection(2.0 / s), lambda e: 2 / mpmath.mpf(e.noise_multiplier), id="range"),
    *(
        pytest.param(
            _exact_response(k), lambda s, k=k: RandomizedResponse(s, k), lambda e: mpmath.mpf(e.epsilon), id=f"rr{k}"
        )
        for k in (2, 3, 10)
    ),
    pytest.param(_exact_response(2), lambda s: ApproximateDP(s), lambda e: mpmath.mpf(e.epsilon), id="pure"),
]


@pytest.mark.parametrize(("exact", "make", "parameter"), CLOSED)
def test_closed_forms_are_upper_bounds_down_to_tiny_costs(exact: Any, make: Any, parameter: Any) -> None:
    with mpmath.workdps(60):
        for size in np.geomspace(1e-9, 60.0, 25):
            event = make(float(size))
            for order in (1.0001, 1.001, 1.1, 1.5, 2.0, 7.0, 64.0, 1e3, 1e5, 1e6):
                true = exact(parameter(event), mpmath.mpf(order))
                claimed = curves.renyi(event, order)
                assert claimed >= true * (1 - mpmath.mpf(1e-15)), (event, order)
                if size > 1e-3:
                    assert claimed <= true * (1 + mpmath.mpf(1e-3)), (event, order)


@pytest.mark.parametrize("order", [2, 3, 10, 64, 300])
def test_poisson_sum_is_an_upper_bound(order: int) -> None:
    with mpmath.workdps(60):
        for multiplier, rate in itertools.product((0.3, 1.0, 5.0, 100.0), (1e-6, 1e-3, 0.1, 0.9)):
            s, r = mpmath.mpf(multiplier), mpmath.mpf(rate)
            terms = (
                mpmath.binomial(order, k) * (1 - r) ** (order - k) * r**k * mpmath.exp((k * k - k) / (2 * s * s))
                for k in range(order + 1)
            )
            true = mpmath.log(mpmath.fsum(terms)) / (order - 1)
            claimed = curves.renyi(PoissonGaussian(multiplier, rate), order)
            assert claimed >= true * (1 - mpmath.mpf(1e-15))
            assert claimed <= true * (1 + mpmath.mpf(1e-6)) + 2e-13 * order


# --------------------------------------------------------------------------------------------- randomized response
@pytest.mark.parametrize("k", [2, 3, 10])
def test_randomized_response_by_enumeration(k: int) -> None:
    for epsilon in (0.01, 1.0, 4.0):
        answers = np.ones((k, k)) + np.eye(k) * math.expm1(epsilon)
        answers /= answers.sum(axis=1, keepdims=True)
        event = RandomizedResponse(epsilon, k)
        assert excess(of(event), itertools.permutations(answers, 2)) <= 0.0
        assert excess(scaled(event, 0.99), itertools.permutations(answers, 2)) > 0.0
        for order in ORDERS:
            assert renyi(answers[0], answers[1], order) == pytest.approx(curves.renyi(event, order), rel=1e-9)


# --------------------------------------------------------------------------------------------------- bounded range
def two_points(loss_range: float) -> Iterator[tuple[Any, Any]]:
    """Every two-answer pair whose losses differ by ``loss_range``, on a grid of the larger loss."""
    for top in np.linspace(0.0, loss_range, 400)[1:-1]:
        # q e^top + (1 - q) e^(top - range) = 1
        q = (1.0 - math.exp(top - loss_range)) / (math.exp(top) - math.exp(top - loss_range))
        yield np.array([q * math.exp(top), 1.0 - q * math.exp(top)]), np.array([q, 1.0 - q])


def many_points(loss_range: float, rng: Any, n_pairs: int) -> Iterator[tuple[Any, Any]]:
    for _ in range(n_pairs):
        q = rng.dirichlet(np.full(rng.integers(2, 8), rng.choice([0.2, 1.0, 5.0]))) + 1e-12
        loss = rng.uniform(0.0, loss_range, q.size)
        loss[rng.integers(q.size)], loss[rng.integers(q.size)] = 0.0, loss_range
        p = q * np.exp(loss)
        yield p / p.sum(), q / q.sum()


@pytest.mark.parametrize("loss_range", [0.05, 0.5, 2.0, 6.0])
def test_bounded_range_is_attained_and_never_exceeded(loss_range: float) -> None:
    event = Selection(2.0 / loss_range)
    rng = np.random.default_rng(1)
    assert excess(of(event), itertools.chain(two_points(loss_range), many_points(loss_range, rng, 300))) <= 0.0
    pairs = list(two_points(loss_range))
    for order in (1.5, 2.0, 5.0, 17.3):
        reached = max(max(renyi(p, q, order), renyi(q, p, order)) for p, q in pairs)
        assert reached >= curves.bounded_range_renyi(loss_range, order) * (1.0 - 1e-3)
    # planted: a range taken half as long, or a curve 1 % too low
    assert excess(of(Selection(4.0 / loss_range)), two_points(loss_range)) > 0.0
    assert excess(lambda a: 0.99 * curves.bounded_range_renyi(loss_range, a), two_points(loss_range)) > 0.0


def test_bounded_range_is_at_most_an_eighth_of_its_square() -> None:
    # Cesar & Rogers, arXiv 2004.07223: the curve itself, not only its cap
    for loss_range in np.geomspace(1e-3, 30.0, 40):
        for order in np.geomspace(1.01, 1e4, 40):
            claimed = curves.bounded_range_renyi(float(loss_range), float(order))
            assert claimed <= order * loss_range**2 / 8.0 * (1.0 + 1e-6) + 1e-13 / (order - 1.0)
    small = curves.bounded_range_renyi(0.01, 2.0) / (2.0 * 0.01**2 / 8.0)
    assert small == pytest.approx(1.0, abs=1e-3)  # and no constant below 1/8 would do


def exponential_mechanism(scores: Any, scale: float) -> Any:
    return special.softmax(np.asarray(scores, float) / scale)


def neighbouring_scores(rng: Any, n_candidates: int, sensitivity: float, n_pairs: int) -> Iterator[tuple[Any, Any]]:
    for _ in range(n_pairs):
        scores = rng.normal(0.0, rng.choice([0.1, 1.0, 5.0]), n_candidates)
        step = rng.uniform(-1.0, 1.0, n_candidates) if rng.random() < 0.3 else rng.choice([-1.0, 1.0], n_candidates)
        yield scores, scores + sensitivity * step


@pytest.mark.parametrize("n_candidates", [2, 3, 4, 5])
def test_selection_by_a_real_exponential_mechanism(n_candidates: int) -> None:
    sensitivity = 0.7
    for multiplier in (0.6, 3.0):
        rng = np.random.default_rng(n_candidates)
        scale = multiplier * sensitivity
        pairs = [
            (exponential_mechanism(u, scale), exponential_mechanism(v, scale))
            for u, v in neighbouring_scores(rng, n_candidates, sensitivity, 400)
        ]
        event = Selection(multiplier)
        assert excess(of(event), iter(pairs)) <= 0.0
        assert excess(of(Selection(2.0 * multiplier)), iter(pairs)) > 0.0
        assert max(float(np.abs(np.log(p / q)).max()) for p, q in pairs) <= curves.pure(event) * (1.0 + 1e-9)


# ------------------------------------------------------------------------------------- events known only by epsilon
def pure_pairs(epsilon: float, rng: Any, n_pairs: int) -> Iterator[tuple[Any, Any]]:
    """Random pairs whose loss stays within plus and minus epsilon, with two-way randomized response first."""
    p = special.expit(epsilon)
    yield np.array([p, 1 - p]), np.array([1 - p, p])
    for _ in range(n_pairs):
        size = rng.integers(2, 7)
        one = rng.dirichlet(np.ones(size)) + 1e-9
        loss = rng.uniform(-1, 1, size) * epsilon
        two = one * np.exp(loss)
        one, two = one / one.sum(), two / two.sum()
        if np.abs(np.log(one / two)).max() <= epsilon:
            yield one, two


def test_an_event_known_by_epsilon_only_covers_every_such_pair() -> None:
    rng = np.random.default_rng(3)
    for epsilon in (0.1, 1.0, 3.0):
        event = ApproximateDP(epsilon, 1e-5)
        assert excess(of(event), pure_pairs(epsilon, rng, 300)) <= 0.0
        assert excess(of(ApproximateDP(0.98 * epsilon)), pure_pairs(epsilon, rng, 0)) > 0.0
        assert curves.delta_part(event) == 1e-5


def test_approximate_events_hold_for_the_worst_pair_with_a_delta() -> None:
    # with probability delta the answer tells everything, else it is two-way randomized response
    epsilon, delta, count = 0.4, 1e-4, 6
    event = Repeat(ApproximateDP(epsilon, delta), count)
    p = special.expit(epsilon)
    for total in (2e-3, 1e-2, 0.1):
        claimed = composition.epsilon(event, total)
        hits = np.arange(count + 1)
        one = special.comb(count, hits) * p**hits * (1 - p) ** (count - hits)
        true = -math.expm1(count * math.log1p(-delta)) + (1 - delta) ** count * float(
            np.maximum(0.0, one - math.exp(claimed.epsilon) * one[::-1]).sum()
        )
        assert true <= total
    assert composition.epsilon(event, 5.9e-4).epsilon == math.inf  # six deltas do not fit


# --------------------------------------------------------------------------------------------- Poisson and Gaussian
def poisson_by_quadrature(multiplier: float, rate: float, order: float) -> tuple[float, float]:
    """Divergence of the mixture from the plain Gaussian and back."""
    x = np.linspace(-40.0 * multiplier, 2.0 * order + 40.0 * multiplier, 400_001)
    plain = -(x**2) / (2 * multiplier**2) - math.log(multiplier * math.sqrt(2 * math.pi))
    mixture = plain + np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * multiplier**2))
    values = []
    for one, two in ((mixture, plain), (plain, mixture)):
        logs = order * one + (1.0 - order) * two
        top = logs.max()
        values.append((top + math.log(np.trapezoid(np.exp(logs - top), x))) / (order - 1.0))
    return values[0], values[1]


@pytest.mark.parametrize("order", [1.3, 2.0, 2.5, 3.0, 7.7, 16.0, 32.0])
def test_poisson_gaussian_in_both_directions(order: float) -> None:
    for multiplier, rate in itertools.product((0.7, 1.5, 6.0), (0.01, 0.2, 0.8, 1.0)):
        forth, back = (
            poisson_by_quadrature(multiplier, rate, order)
            if rate < 1.0
            else (order / (2 * multiplier**2), order / (2 * multiplier**2))
        )
        claimed = curves.renyi(PoissonGaussian(multiplier, rate), order)
        assert claimed >= max(forth, back) * (1.0 - 1e-9) - 1e-12
        if order == int(order):
            assert claimed == pytest.approx(forth, rel=1e-6, abs=1e-11)
        # planted: a rate counted 10 % too low is seen at whole orders
        if order == int(order) and rate < 0.5:
            assert curves.renyi(PoissonGaussian(multiplier, 0.9 * rate), order) < forth


def test_a_poisson_sample_never_costs_more_than_all_records() -> None:
    for order in (1.01, 2.5, 40.0, 2.0**16, 1e6):
        for multiplier in (0.5, 2.0, 50.0):
            assert curves.renyi(PoissonGaussian(multiplier, 0.3), order) <= curves.renyi(Gaussian(multiplier), order)


# ------------------------------------------------------------------------------------------------ repeat and select
def best_of_law(p: Any, gamma: float, shape: float) -> Any:
    """Law of the best outcome (the last index is best) of a truncated negative binomial number of runs."""
    below = np.clip(np.concatenate([[0.0], np.cumsum(p)]), 0.0, 1.0)
    if shape == 0.0:
        generating = np.log1p(-(1.0 - gamma) * below) / math.log(gamma)
    else:
        generating = np.expm1(-shape * np.log1p(-(1.0 - gamma) * below)) / math.expm1(-shape * math.log(gamma))
    return np.diff(generating)


def mean_of_law(gamma: float, shape: float) -> float:
    k = np.arange(1, 200_000)
    logs = special.gammaln(k + shape) - special.gammaln(k + 1) + k * math.log1p(-gamma)
    weights = np.exp(logs - logs.max())
    return float((k * weights).sum() / weights.sum())


@pytest.mark.parametrize("shape", [-0.5, 0.0, 0.5, 1.0, 2.0])
def test_number_of_runs_has_its_mean(shape: float) -> None:
    for mean in (1.5, 4.0, 10.0, 50.0):
        gamma = curves.negative_binomial_gamma(mean, shape)
        assert mean_of_law(gamma, shape) == pytest.approx(mean, rel=1e-6)
        assert best_of_law([0.2, 0.3, 0.5], gamma, shape).sum() == pytest.approx(1.0)


def repeat_excess(pairs: Any, mean: float, shape: float, claim: Curve) -> float:
    gamma = curves.negative_binomial_gamma(mean, shape)
    laws = [
        (best_of_law(np.asarray(p)[order], gamma, shape), best_of_law(np.asarray(q)[order], gamma, shape))
        for p, q in pairs
        for order in (list(o) for o in itertools.permutations(range(len(p))))
    ]
    return excess(claim, iter(laws), (1.5, 2.0, 5.0, 30.0, 200.0))


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, 2.0])
@pytest.mark.parametrize("mean", [2.0, 10.0, 200.0])
def test_repeat_and_select_by_exact_law(mean: float, shape: float) -> None:
    epsilon = 0.5
    rng = np.random.default_rng(4)
    rare = [
        # a rare best outcome and a rare second one whose losses have opposite signs
        (np.array([1.0 - 2 * t, t, t]), np.array([1.0 - t * (math.exp(-epsilon) + math.exp(epsilon)), t, t]))
        for t in (1e-3, 1e-2, 0.1)
    ]
    for (_, q), t in zip(rare, (1e-3, 1e-2, 0.1), strict=True):
        q[1], q[2] = t * math.exp(-epsilon), t * math.exp(epsilon)
    pairs = [*pure_pairs(epsilon, rng, 12), *rare]
    pairs = [(p, q) for p, q in pairs if len(p) <= 4]
    base = ApproximateDP(epsilon)
    event = RepeatAndSelect(base, mean, shape)
    assert repeat_excess(pairs, mean, shape, lambda a: composition.renyi(event, a)) <= 0.0


def test_repeat_and_select_check_fails_on_a_forgotten_term() -> None:
    epsilon, t = 0.5, 1e-3
    p = np.array([1.0 - 2 * t, t, t])
    q = np.array([1.0 - t * (math.exp(-epsilon) + math.exp(epsilon)), t * math.exp(-epsilon), t * math.exp(epsilon)])
    base = ApproximateDP(epsilon)

    def forgotten(a: float) -> float:
        return composition.renyi(base, a) + math.log(2000.0) / (a - 1.0)

    # one run's cost and the mean alone are not enough: Papernot & Steinke 2022, Theorem 2 has a third term
    assert repeat_excess([(p, q)], 2000.0, 1.0, forgotten) > 0.0
    event = RepeatAndSelect(base, 2000.0)
    assert repeat_excess([(p, q)], 2000.0, 1.0, lambda a: composition.renyi(event, a)) <= 0.0


def test_repeat_and_select_needs_a_base_without_delta() -> None:
    assert composition.renyi(RepeatAndSelect(ApproximateDP(0.1, 1e-9), 3.0), 2.0) == math.inf


def test_repeat_and_select_figure() -> None:
    base = Composed((Repeat(ZCDP(0.1**2 / 8.0), 20), Repeat(Gaussian(40.0), 20), Gaussian(20.0)))
    assert composition.epsilon(base, 1e-6).epsilon == pytest.approx(1.167, abs=1e-3)
    assert composition.epsilon(RepeatAndSelect(base, 10.0), 1e-6).epsilon == pytest.approx(2.32, abs=5e-3)


def test_repeat_and_select_costs_more_than_its_base() -> None:
    for base in (Gaussian(8.0), PoissonGaussian(1.0, 0.01), Composed((Selection(30.0), Gaussian(9.0)))):
        values = [composition.renyi(RepeatAndSelect(base, mean), 8.0) for mean in (1.5, 5.0, 50.0)]
        assert composition.renyi(base, 8.0) < values[0] < values[1] < values[2]


# --------------------------------------------------------------------------------------------------------- monotone
EVENTS = [
    Gaussian(1.3),
    Laplace(0.8),
    Laplace(1e6),
    Selection(0.5),
    Selection(1e4),
    RandomizedResponse(1.0, 2),
    RandomizedResponse(3.0, 10),
    ApproximateDP(0.7, 1e-9),
    PoissonGaussian(0.9, 0.05),
    PoissonGaussian(30.0, 0.5),
    ZCDP(0.01),
    RepeatAndSelect(Composed((Gaussian(8.0), Selection(20.0))), 10.0),
]


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_curves_grow_with_the_order_and_stay_below_pure(event: Event) -> None:
    # rounding slack is divided by order - 1, so it may fall by that much next to 1
    values = [(a, composition.renyi(event, a)) for a in (1.01, *ORDERS, 1e3, 1e4, 9e4, 1e6)]
    for (a, low), (_, high) in itertools.pairwise(values):
        # the best second order of repeat-and-select is searched on a grid
        searched = 1e-3 * low if isinstance(event, RepeatAndSelect) else 0.0
        assert high >= low - 1e-13 / (a - 1.0) - searched
        assert low >= 0.0
    if isinstance(event, (Laplace, Selection, RandomizedResponse)):
        assert values[-1][1] <= curves.pure(event)


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_zcdp_covers_the_curve(event: Event) -> None:
    rho = composition.zcdp(event)
    if rho is not None:
        for order in ORDERS:
            assert composition.renyi(event, order) <= rho * order * (1.0 + 1e-9)


# ------------------------------------------------------------------------------------------------ two-answer witness
@pytest.mark.parametrize(
    "event",
    [
        *(Selection(0.02), Selection(3.0), Selection(1e7)),
        *(Laplace(0.01), Laplace(2.0)),
        *(RandomizedResponse(40.0), RandomizedResponse(1.0, 5)),
        *(ApproximateDP(800.0), ApproximateDP(0.3, 1e-7)),
    ],
    ids=str,
)
def test_the_witness_is_a_mechanism_with_this_event(event: Event) -> None:
    witness = curves.two_point_witness(event)
    assert witness is not None
    p, gain, drop = witness
    with mpmath.workdps(400):
        # probabilities of both answers under the second neighbour add up to one
        pure = curves.pure(event)
        exact = {
            Selection: lambda: 1 / (1 + mpmath.exp(-mpmath.mpf(pure) / 2)),
            Laplace: lambda: 1 - mpmath.exp(-mpmath.mpf(pure)) / 2,
        }.get(type(event), lambda: 1 / (1 + (getattr(event, "n_values", 2) - 1) * mpmath.exp(-mpmath.mpf(pure))))()
        assert abs(exact - p) <= 1e-15
        total = exact * mpmath.exp(-mpmath.mpf(gain)) + (1 - exact) * mpmath.exp(-mpmath.mpf(drop))
        assert abs(total - 1) <= 1e-9
    assert max(abs(gain), abs(drop)) <= curves.pure(event) * (1.0 + 1e-12)
    assert composition.lower_epsilon(event, 1e-6) <= composition.upper_epsilon(event, 1e-6)[0]
