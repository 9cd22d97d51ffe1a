"""The cost of one leaf event: its Renyi curve and, where they exist, its GDP, pure and delta parts.

``renyi(event, order)`` bounds the Renyi divergence of that order in both directions between the release on two
neighbours. The proofs and sources are in ``curves.proof.md``. Nothing here knows how often an event happens.
"""

from __future__ import annotations

import math
from functools import lru_cache, singledispatch

import numpy as np
from scipy import special

from dperm.errors import Unsupported
from dperm.privacy.accounting.events import (
    ZCDP,
    ApproximateDP,
    Event,
    Gaussian,
    Laplace,
    ObjectivePerturbation,
    PoissonGaussian,
    RandomizedResponse,
    Selection,
    Unbounded,
)

__all__ = ["delta_part", "gdp", "pure", "renyi", "repeat_and_select", "repeat_and_select_extra", "two_point_witness"]


_LARGEST_POISSON_ORDER = 2**16  # its sum has as many terms as the order


def _log_mean_exp(log_weights: list[float], exponents: list[float]) -> float:
    """log sum_i exp(log_weights_i + exponents_i), without overflow."""
    return float(np.logaddexp.reduce([w + e for w, e in zip(log_weights, exponents, strict=True)]))


def _rounding(largest_exponent: float) -> float:
    """Return a bound on the rounding error of a log moment whose terms have exponents up to this size."""
    return 2e-15 * (1.0 + largest_exponent)


def _capped(log_moment: float, order: float, epsilon: float) -> float:
    """Return the Renyi divergence of a pure ``epsilon`` release, at most epsilon and at most order epsilon^2/2.

    The latter is Bun & Steinke 2016, Proposition 1.4; it is exact in the limit of small epsilon, where the log moment
    is lost in rounding.
    """
    return min(max(log_moment, 0.0) / (order - 1.0), epsilon, order * epsilon * epsilon / 2.0)


# ---------------------------------------------------------------------------------------- Renyi divergence
@singledispatch
def renyi(event: Event, order: float) -> float:
    """Renyi divergence of order ``order > 1``, the larger of both directions."""
    raise Unsupported(f"{type(event).__name__} has no Renyi curve: compose it through composition.renyi.")


@renyi.register
def _gaussian_renyi(event: Gaussian, order: float) -> float:
    return order / (2.0 * event.noise_multiplier**2)


@renyi.register
def _zcdp_renyi(event: ZCDP, order: float) -> float:
    return order * event.rho


@renyi.register
def _laplace_renyi(event: Laplace, order: float) -> float:
    shift = 1.0 / event.noise_multiplier
    logs = [math.log(order / (2.0 * order - 1.0)), math.log((order - 1.0) / (2.0 * order - 1.0))]
    log_moment = _log_mean_exp(logs, [(order - 1.0) * shift, -order * shift])
    return _capped(log_moment + _rounding(order * shift), order, shift)


@renyi.register
def _selection_renyi(event: Selection, order: float) -> float:
    return min(bounded_range_renyi(event.loss_range, order), order * event.loss_range**2 / 8.0)


@renyi.register
def _randomized_response_renyi(event: RandomizedResponse, order: float) -> float:
    return _response_renyi(event.epsilon, event.n_values, order)


@renyi.register
def _approximate_dp_renyi(event: ApproximateDP, order: float) -> float:
    # Outside an event of probability delta (see delta_part) the pair is dominated by two-way randomized response.
    return _response_renyi(event.epsilon, 2, order)


@renyi.register
def _poisson_gaussian_renyi(event: PoissonGaussian, order: float) -> float:
    whole = order / (2.0 * event.noise_multiplier**2)  # a sample never costs more than all records
    if order > _LARGEST_POISSON_ORDER:
        return whole
    low, high = math.floor(order), math.ceil(order)
    at_low, at_high = _poisson_log_moment(event, low), _poisson_log_moment(event, high)
    # the log moment (order - 1) D is convex in the order, so the chord between whole orders lies above it
    share = order - low if high > low else 0.0
    return min(((1.0 - share) * at_low + share * at_high) / (order - 1.0), whole)


@renyi.register
def _objective_perturbation_renyi(event: ObjectivePerturbation, order: float) -> float:
    mu = 1.0 / event.noise_multiplier
    # the loss is at most log(1 + ratio) + mu |Z| + mu^2/2: twice the moment of a Gaussian loss over Z > 0
    half = (math.log(2.0) + float(special.log_ndtr((order - 1.0) * mu))) / (order - 1.0)
    slack = _rounding(1.0) / (order - 1.0)
    return math.log1p(event.curvature_ratio) + order * mu * mu / 2.0 + max(half, 0.0) + slack


@renyi.register
def _unbounded_renyi(event: Unbounded, order: float) -> float:
    return math.inf


def bounded_range_renyi(loss_range: float, order: float) -> float:
    """Exact worst Renyi divergence of a pair whose privacy loss lies in an interval of length ``loss_range``.

    The maximum over u = exp(top of the interval) in [1, exp(loss_range)] of u^(a-1) (A - B u), see the proof.
    """
    q = math.exp(-(order - 1.0) * loss_range)
    s = -math.expm1(-loss_range)
    big_a = q + (1.0 - q) / s
    big_b = (1.0 - q) * math.exp(-loss_range) / s
    top = math.exp(min(loss_range, 700.0))
    u = min(max((order - 1.0) * big_a / (order * big_b), 1.0), top) if big_b > 0.0 else top
    inside = big_a - big_b * u
    if inside <= 0.0 or loss_range > 700.0:
        return loss_range
    # A and B nearly cancel for small ranges: cover the relative rounding of their difference
    slack = 8e-16 * (big_a + big_b * u) / inside
    return min(math.log(u) + (math.log(inside) + slack) / (order - 1.0), loss_range)


def _response_renyi(epsilon: float, n_values: int, order: float) -> float:
    log_q = -float(np.logaddexp(epsilon, math.log(n_values - 1)))
    terms = [log_q + order * epsilon, log_q + (1.0 - order) * epsilon]  # p^a q^(1-a) and q^a p^(1-a), p = e^eps q
    if n_values > 2:
        terms.append(math.log(n_values - 2) + log_q)
    return _capped(float(np.logaddexp.reduce(terms)) + _rounding(order * epsilon), order, epsilon)


@lru_cache(maxsize=4096)  # many deltas of one event use the same orders
def _poisson_log_moment(event: PoissonGaussian, order: int) -> float:
    """log E_N(0,s^2)[(mixture density / density)^order] for a whole order (Mironov, Talwar & Zhang 2019)."""
    if order <= 1:
        return 0.0
    if event.rate == 1.0:
        return (order - 1.0) * order / (2.0 * event.noise_multiplier**2)
    k = np.arange(order + 1)
    log_binomial = special.gammaln(order + 1) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
    terms = (
        log_binomial
        + (order - k) * math.log1p(-event.rate)
        + k * math.log(event.rate)
        + (k * k - k) / (2.0 * event.noise_multiplier**2)
    )
    # gammaln is good to about 1e-15 of its size; the slack keeps the sum an upper bound
    slack = 1e-14 * float(special.gammaln(order + 1) + 1.0)
    return float(np.logaddexp.reduce(terms)) + slack


def repeat_and_select(at_order: float, order: float, extra: float, mean_runs: float) -> float:
    """Renyi divergence of the best of a truncated-negative-binomial number of runs.

    ``at_order`` is the base's divergence at ``order``. Papernot & Steinke 2022, Theorem 2.
    """
    return at_order + extra + math.log(mean_runs) / (order - 1.0)


def repeat_and_select_extra(
    base_orders: list[float], base_values: list[float], mean_runs: float, shape: float
) -> float:
    """Return the part of that bound that depends on a second order of the base.

    ``base_values`` are its divergences at ``base_orders``, any of which gives a valid bound: the smallest is taken.
    """
    log_inverse_gamma = -math.log(negative_binomial_gamma(mean_runs, shape))
    return min(
        (1.0 + shape) * ((1.0 - 1.0 / other) * value + log_inverse_gamma / other)
        for other, value in zip(base_orders, base_values, strict=True)
    )


def negative_binomial_gamma(mean_runs: float, shape: float) -> float:
    """Success probability that gives the truncated negative binomial its mean; 1/mean for the geometric law."""
    if shape == 1.0:
        return 1.0 / mean_runs

    def mean(gamma: float) -> float:
        if shape == 0.0:
            return (1.0 / gamma - 1.0) / -math.log(gamma)
        return shape * (1.0 - gamma) / (gamma * -math.expm1(shape * math.log(gamma)))

    low, high = 1e-300, 1.0 - 1e-12
    for _ in range(2000):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if mean(middle) > mean_runs else (low, middle)
        if high - low <= 1e-15 * high:
            break
    return low  # a smaller gamma means more runs: the safe side of the cost


# ------------------------------------------------------------------------------- parts that are not Renyi
def gdp(event: Event) -> float | None:
    """``mu`` if the leaf is exactly Gaussian, else None."""
    return 1.0 / event.noise_multiplier if isinstance(event, Gaussian) else None


def pure(event: Event) -> float:
    """Pure epsilon of the leaf outside its delta part; infinite where none exists."""
    if isinstance(event, Laplace):
        return 1.0 / event.noise_multiplier
    if isinstance(event, Selection):
        return event.loss_range
    if isinstance(event, RandomizedResponse | ApproximateDP):
        return event.epsilon
    return math.inf


def delta_part(event: Event) -> float:
    """Probability that must be set aside before the Renyi curve of the leaf holds."""
    return event.delta if isinstance(event, ApproximateDP) else 0.0


def two_point_witness(event: Event) -> tuple[float, float, float] | None:
    """Return a two-answer mechanism with this event: the probability of its first answer and the loss of each answer.

    It serves lower bounds only, which show how loose an upper bound may be.
    """
    if isinstance(event, Selection):
        # two candidates whose scores move apart by the full sensitivity, symmetric: log odds +-range/2
        half = event.loss_range / 2.0
        return float(special.expit(half)), half, -half
    if isinstance(event, RandomizedResponse | ApproximateDP):
        others = math.log(event.n_values - 1) if isinstance(event, RandomizedResponse) else 0.0
        p = math.exp(event.epsilon - float(np.logaddexp(event.epsilon, others)))
        # all wrong answers taken together: (k - 1) q against p + (k - 2) q
        spare = math.log(event.n_values - 2) if isinstance(event, RandomizedResponse) and event.n_values > 2 else None
        rest = event.epsilon if spare is None else float(np.logaddexp(event.epsilon, spare))
        return p, event.epsilon, others - rest
    if isinstance(event, Laplace):
        # sign of the release when the value of one neighbour is the threshold
        shift = 1.0 / event.noise_multiplier
        return 1.0 - 0.5 * math.exp(-shift), math.log1p(-math.expm1(-shift)), -shift
    return None
