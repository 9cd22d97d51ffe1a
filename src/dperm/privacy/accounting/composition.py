"""Composition: how events add up (one fold over the leaves), and the conversion to (epsilon, delta).

:func:`leaves` is the only place that reads a ``count``. Every total (mu, Renyi, pure epsilon, set-aside delta) is
a sum over it. All totals hold for adaptively chosen releases whose events are fixed in advance.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from dperm.errors import InvalidBudget
from dperm.privacy.accounting import curves, gdp, objective_perturbation, pld, profiles
from dperm.privacy.accounting.consistency import refuse_contradiction
from dperm.privacy.accounting.events import (
    ZCDP,
    Composed,
    Event,
    ObjectivePerturbation,
    OneOf,
    PoissonGaussian,
    Repeat,
    RepeatAndSelect,
)

__all__ = [
    "EpsilonBound",
    "delta",
    "epsilon",
    "is_unbounded",
    "leaves",
    "lower_epsilon",
    "mu",
    "order_offset",
    "renyi",
    "renyi_epsilon",
    "renyi_or_infinite",
    "set_aside",
    "upper_epsilon",
    "zcdp",
]

_ORDERS = np.concatenate([1.0 + np.geomspace(1e-3, 1.0, 24), np.geomspace(2.2, 64.0, 40), np.geomspace(70.0, 1e6, 40)])
_LEAST_DELTA = 1e-15  # of a lower bound on epsilon: below it doubles do not resolve a probability near 1
_LARGEST_DISTRIBUTION = 2000.0  # beyond this divergence a loss distribution of sampled releases grows too long


# ------------------------------------------------------------------------------------------------ the fold
def leaves(event: Event) -> dict[Event, int]:
    """Return each leaf event with how often it happens.

    >>> from dperm.privacy.accounting.events import Gaussian
    >>> leaves(Composed((Gaussian(2.0), Repeat(Repeat(Gaussian(2.0), 3), 2)))) == {Gaussian(2.0): 7}
    True
    """
    found: dict[Event, int] = {}

    def visit(part: Event, times: int) -> None:
        if isinstance(part, Repeat):
            visit(part.event, times * int(part.count))
        elif isinstance(part, Composed):
            for inner in part.events:
                visit(inner, times)
        elif times:
            found[part] = found.get(part, 0) + times

    visit(event, 1)
    return found


def _total(event: Event, measure: Callable[[Event], float]) -> float:
    return math.fsum(count * measure(leaf) for leaf, count in leaves(event).items())


def mu(event: Event) -> float | None:
    """Total GDP parameter if every leaf is Gaussian (exact), else None."""
    squares = []
    for leaf, count in leaves(event).items():
        one = curves.gdp(leaf)
        if one is None:
            return None
        squares.append(count * one * one)
    return math.sqrt(math.fsum(squares))


def renyi(event: Event, order: float) -> float:
    """Total Renyi divergence of ``order``, outside the set-aside delta."""
    return _total(event, lambda leaf: _leaf_renyi(leaf, order))


def renyi_or_infinite(event: Event, order: float) -> float:
    """Like :func:`renyi`, but infinite where the noise is so small that floats overflow."""
    try:
        value = renyi(event, order)
    except (OverflowError, ZeroDivisionError):
        return math.inf
    return math.inf if math.isnan(value) else value


def is_unbounded(event: Event) -> bool:
    """Whether the event has no finite Renyi divergence, so that no budget can hold it."""
    return math.isinf(renyi_or_infinite(event, 2.0))


def _leaf_renyi(leaf: Event, order: float) -> float:
    if isinstance(leaf, RepeatAndSelect):
        if set_aside(leaf.base) > 0.0:
            return math.inf  # the theorem needs a base without a delta part
        orders, bounds, extra = _repeat_and_select_bounds(leaf)
        at_order = curves.repeat_and_select(renyi(leaf.base, order), order, extra, leaf.mean_runs)
        # the divergence grows with its order, so the bound of any larger order holds too
        larger = bisect_left(orders, order)
        return min(at_order, bounds[larger]) if larger < len(orders) else at_order
    if isinstance(leaf, OneOf):
        return max(renyi(part, order) for part in leaf.events)
    return curves.renyi(leaf, order)


@lru_cache(maxsize=64)
def _base_curve(base: Event) -> tuple[list[float], list[float]]:
    orders = [float(a) for a in _ORDERS]
    return orders, [renyi(base, a) for a in orders]


@lru_cache(maxsize=64)
def _repeat_and_select_bounds(leaf: RepeatAndSelect) -> tuple[list[float], list[float], float]:
    """Return the orders, the smallest bound at each order or a larger one, and the part that no order changes."""
    orders, values = _base_curve(leaf.base)
    extra = curves.repeat_and_select_extra(orders, values, leaf.mean_runs, leaf.shape)
    bounds = [curves.repeat_and_select(v, a, extra, leaf.mean_runs) for a, v in zip(orders, values, strict=True)]
    return orders, list(accumulate(reversed(bounds), min))[::-1], extra


def set_aside(event: Event) -> float:
    """Delta that (epsilon, delta)-only leaves set aside; they add up."""
    return _total(event, _leaf_set_aside)


def _leaf_set_aside(leaf: Event) -> float:
    if isinstance(leaf, OneOf):
        return max(set_aside(part) for part in leaf.events)
    return curves.delta_part(leaf)


def zcdp(event: Event) -> float | None:
    """Smallest rho such that every leaf is known to be zCDP, else None."""
    total = 0.0
    for leaf, count in leaves(event).items():
        rate = _leaf_zcdp(leaf)
        if rate is None:
            return None
        total += count * rate
    return total


def _leaf_zcdp(leaf: Event) -> float | None:
    if isinstance(leaf, OneOf):
        rates = [rate for rate in map(zcdp, leaf.events) if rate is not None]
        return max(rates) if len(rates) == len(leaf.events) else None
    one = curves.gdp(leaf)
    if one is not None:
        return one * one / 2.0
    rho = getattr(leaf, "rho", None)
    if rho is not None:
        return float(rho)
    loss_range = getattr(leaf, "loss_range", None)
    if loss_range is not None:
        return float(loss_range) ** 2 / 8.0
    bound = curves.pure(leaf)
    if math.isfinite(bound) and curves.delta_part(leaf) == 0.0:
        return bound * bound / 2.0  # Bun & Steinke 2016, Proposition 1.4
    return None


# -------------------------------------------------------------------------------- to (epsilon, delta)
@dataclass(frozen=True)
class EpsilonBound:
    """An upper bound on epsilon, a lower bound for the worst mechanism with these events, and the method.

    A lower bound above the upper one is refused: see :mod:`dperm.privacy.accounting.consistency`.
    """

    epsilon: float
    lower: float
    delta: float
    method: str

    def __post_init__(self) -> None:
        refuse_contradiction(f"epsilon at delta {self.delta:g} ({self.method})", self.lower, self.epsilon)

    @property
    def looseness(self) -> float:
        """By how much the upper bound may exceed the true worst case."""
        return self.epsilon - self.lower if math.isfinite(self.epsilon) else math.inf


def order_offset(order: float, delta: float) -> float:
    """Return what must be added to a Renyi divergence of ``order`` to get epsilon at ``delta``.

    ln((a-1)/a) - (ln delta + ln a)/(a-1): Canonne, Kamath & Steinke 2020 (arXiv 2004.00010), Proposition 12;
    Balle et al. 2020.
    """
    return math.log1p(-1.0 / order) - (math.log(delta) + math.log(order)) / (order - 1.0)


def epsilon(event: Event, delta: float) -> EpsilonBound:
    """Return epsilon of the whole event at ``delta`` as an upper bound, with its looseness.

    >>> from dperm.privacy.accounting.events import Gaussian
    >>> round(epsilon(Repeat(Gaussian(40.0), 100), 1e-6).epsilon, 4)
    1.0607
    """
    upper, method = upper_epsilon(event, delta)
    lower = lower_epsilon(event, delta) if math.isfinite(upper) else 0.0
    return EpsilonBound(upper, lower, delta, method)


def upper_epsilon(event: Event, delta: float) -> tuple[float, str]:
    """Return the upper bound of :func:`epsilon` and the method that gave it."""
    if not 0.0 < delta < 1.0:
        raise InvalidBudget(f"delta must be between 0 and 1, not {delta!r}.")
    exact = mu(event)
    if exact is not None:
        return gdp.epsilon_of(exact, delta), "exact Gaussian"
    left = delta - set_aside(event)
    if left <= 0.0:
        return math.inf, "set-aside delta exceeds delta"
    if _has_sampled_distribution(event):
        found = pld.upper_epsilon(leaves(event), left)
        if math.isfinite(found):
            return found, "privacy loss distribution (dp-accounting)"
    candidates = [(renyi_epsilon(event, delta), "Renyi"), (_total(event, curves.pure), "pure sum")]
    if profiles.applies(leaves(event)):
        candidates.append((profiles.upper_epsilon(leaves(event), left), "privacy loss distribution"))
    if objective_perturbation.applies(leaves(event)):
        candidates.append(
            (objective_perturbation.upper_epsilon(leaves(event), left), "closed form of perturbed objectives")
        )
    value, method = min(candidates)
    return max(value, 0.0), method


def _has_sampled_distribution(event: Event) -> bool:
    """Whether Poisson-sampled releases occur and dp-accounting has a loss distribution of manageable length."""
    found = leaves(event)
    sampled = any(isinstance(leaf, PoissonGaussian) for leaf in found)
    return sampled and pld.applies(found) and renyi(event, 2.0) <= _LARGEST_DISTRIBUTION


def renyi_epsilon(event: Event, delta: float) -> float:
    """Return an upper bound on epsilon from the Renyi curve alone: cheap, and rarely the tightest."""
    left = delta - set_aside(event)
    return _best_order(lambda a: renyi(event, a) + order_offset(a, left)) if left > 0.0 else math.inf


def lower_epsilon(event: Event, delta: float) -> float:
    """Return an epsilon that some mechanism with these events attains at ``delta``.

    Keeps the Gaussian leaves (jointly one Gaussian) and the costliest other leaf, replaced by a two-answer
    mechanism that has the event; leaving the rest out is post-processing, so the result is a valid lower bound.
    """
    found = leaves(event)
    if _has_sampled_distribution(event):
        return pld.lower_epsilon(found, delta)
    gauss = math.sqrt(math.fsum(c * _gaussian_witness(leaf) ** 2 for leaf, c in found.items()))
    best = gdp.epsilon_of(gauss, delta, lower=True) if gauss > 0.0 else 0.0
    for leaf, count in found.items():
        witness = curves.two_point_witness(leaf)
        if witness is not None:
            best = max(best, _two_point_epsilon(*witness, count, gauss, delta))
        elif isinstance(leaf, RepeatAndSelect):
            best = max(best, lower_epsilon(leaf.base, delta))  # with constant scores it is one run of the base
        elif isinstance(leaf, OneOf):
            best = max(
                best, min(lower_epsilon(part, delta) for part in leaf.events)
            )  # every event that can be drawn attains it
    return best


def _gaussian_witness(leaf: Event) -> float:
    """mu of a Gaussian release that has this event, 0 if there is none."""
    if isinstance(leaf, ZCDP):
        return math.sqrt(2.0 * leaf.rho)
    if isinstance(leaf, ObjectivePerturbation):
        return 1.0 / leaf.noise_multiplier  # linear losses: the minimiser is a Gaussian release of their sum
    return curves.gdp(leaf) or 0.0


def delta(event: Event, epsilon: float) -> float:
    """Return an upper bound on delta of the whole event at ``epsilon``."""
    upper = _upper_delta(event, epsilon)
    if upper < 1.0:
        # if some mechanism attains `upper` at a larger epsilon already, it exceeds it at this one
        attained = lower_epsilon(event, max(upper, _LEAST_DELTA))
        refuse_contradiction(f"the epsilon at which delta is {upper:g}", attained, max(epsilon, 0.0))
    return upper


def _upper_delta(event: Event, epsilon: float) -> float:
    exact = mu(event)
    if exact is not None:
        return gdp.delta_of(exact, epsilon)
    aside = set_aside(event)
    if _total(event, curves.pure) <= epsilon:
        return min(1.0, aside)

    def log_delta(order: float) -> float:
        return (order - 1.0) * (renyi(event, order) - epsilon + math.log1p(-1.0 / order)) - math.log(order)

    bound = min(1.0, math.exp(min(_best_order(log_delta), 0.0)) + aside)
    if _has_sampled_distribution(event):
        bound = min(bound, pld.upper_delta(leaves(event), epsilon))
    if profiles.applies(leaves(event)):
        bound = min(bound, profiles.upper_delta(leaves(event), epsilon))
    if objective_perturbation.applies(leaves(event)):
        bound = min(bound, objective_perturbation.upper_delta(leaves(event), epsilon))
    return bound


def _best_order(objective: Callable[[float], float]) -> float:
    """Return the smallest value over orders above 1; any order is valid, so a missed minimum only loses tightness."""
    values = [objective(float(a)) for a in _ORDERS]
    best = int(np.argmin(values))
    low = float(_ORDERS[max(best - 1, 0)])
    high = float(_ORDERS[min(best + 1, len(_ORDERS) - 1)])
    smallest = values[best]
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(30):
        one, two = high - golden * (high - low), low + golden * (high - low)
        at_one, at_two = objective(one), objective(two)
        smallest = min(smallest, at_one, at_two)
        low, high = (low, two) if at_one < at_two else (one, high)
    return smallest


def _two_point_epsilon(p: float, gain: float, drop: float, count: int, gauss: float, delta: float) -> float:
    """Return epsilon of ``count`` independent two-answer releases together with one Gaussian of parameter ``gauss``.

    The first answer has probability ``p`` and loss ``gain``, the second loss ``drop``. Exact for few releases; for
    many, neighbouring numbers of first answers are counted together at the least of their losses.
    """
    if count <= 4000:
        hits = np.arange(count + 1)
        weight = stats.binom.pmf(hits, count, p)
    else:  # tails beyond 12 standard deviations are dropped, which keeps a lower bound
        spread = 12.0 * math.sqrt(count * p * (1.0 - p)) + 1.0
        first, last = max(0, math.floor(count * p - spread)), min(count, math.ceil(count * p + spread))
        edges = np.arange(first, last + 1 + (width := 1 + (last - first) // 4000), width)
        hits = edges[:-1]
        below, above = stats.binom.cdf(edges - 1, count, p), stats.binom.sf(edges - 1, count, p)
        weight = np.where(hits < count * p, np.diff(below), -np.diff(above))
    loss = hits * gain + (count - hits) * drop

    def attained(eps: float) -> float:
        if gauss == 0.0:
            return float(np.dot(weight, -np.expm1(np.minimum(eps - loss, 0.0))))
        parts = [gdp.delta_of(gauss, eps - one, lower=True) for one in loss]
        return float(np.dot(weight, parts))

    high = 1.0
    while attained(high) > delta:
        high *= 2.0
    if attained(0.0) <= delta:
        return 0.0
    root = float(brentq(lambda e: attained(e) - delta, 0.0, high, xtol=1e-9))
    step = 1e-9
    while root > 0.0 and attained(root) < delta:  # the search may end on the wrong side
        root, step = root - step, step * 2.0
    return max(0.0, root) * (1.0 - 1e-6)
