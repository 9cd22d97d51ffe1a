"""The cost of a recorded run, recomputed from sensitivities and noise scales by libraries other than dperm.

Nothing of dperm's own accounting is used, and no event: a release enters with its kind, its noise scale divided by its
sensitivity, its sampling rate and, for a perturbed objective, its curvature ratio. What is used for what:

================================  ================================================================================
Gaussian, Laplace, sampled        dp-accounting: privacy loss distributions, optimistic (lower) and pessimistic (upper)
any of them and selections        OpenDP: the privacy maps of its Gaussian, Laplace and noisy-max, as zCDP (upper)
selections (upper)                Renyi divergence of the worst two-answer mechanism of bounded range, found by search
                                  over its position, converted by dp-accounting; dp-accounting 0.6 has no such event
up to four selections (upper)     the worst profile of a release of bounded range (Dong, Durfee & Rogers 2020, arXiv
                                  1909.13830), composed with the rest by dp-accounting
selections paid as Gaussian       each is replaced by the Gaussian release whose trade-off lies below its own (upper)
selections (lower)                each is replaced by a choice among two candidates that has the range: dp-accounting
perturbed objectives              loss of at most ln(1 + ratio) + that of a Gaussian, at half of delta: dp-accounting
best of a random number of runs   three formulas of their own, see ``searches.py``
================================  ================================================================================

Traps of dp-accounting 0.6 are avoided: no counts are passed to its accountants, and factors of two of replace-one stay
in the sensitivities (its relation is always add-or-remove).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit
from scipy.stats import norm

from dperm.errors import MissingDependency, Unsupported
from dperm.privacy.recording import PublicRelease
from dperm.testing._violation import demand
from dperm.types import FloatArray

__all__ = ["IndependentTotal", "check_claim", "independent_total"]

#: a claim may differ from the independent bound by this share: rounding to the lattice adds up to
#: ``lattice.MOST_EXTRA`` to the noise (a tenth of this share), and grids of losses and orders differ by the rest
TOLERANCE = 5e-3
#: up to so many selections the loss distribution of their worst profile is used too; Renyi curves are better for more
_FEW_SELECTIONS = 4
ORDERS = np.concatenate([1.0 + np.geomspace(0.01, 1.0, 40), np.geomspace(2.05, 512.0, 160), [1e3, 1e4, 1e5]])
_INTERVAL = 1e-4  # of the grids of losses
_MOST_LOSS = 60.0  # of a grid of losses; beyond it the zCDP bound is used


@dataclass(frozen=True)
class IndependentTotal:
    """Bounds on epsilon at delta that do not come from dperm, and which calculation gave which.

    Attributes
    ----------
    lower, upper : float
        Some mechanism with the recorded noise attains ``lower``, and none exceeds ``upper``.
    """

    lower: float
    upper: float
    delta: float
    bounds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Parts:
    """A log sorted by kind; multipliers are noise scale / sensitivity."""

    mu: float  # of all Gaussian noise together
    laplace: Counter[float]
    selections: Counter[float]
    sampled: Counter[tuple[float, float]]
    objectives: tuple[float, ...]  # ln(1 + curvature ratio)

    @classmethod
    def of(cls, log: Sequence[PublicRelease], *, as_paid: bool = False) -> Parts:
        """Sort a log; with ``as_paid``, selections that were paid like Gaussian noise count as what dominates them.

        It has the same trade-off where the two probabilities of a larger loss have log odds of +-1 / multiplier.
        """
        squares, laplace, selections = 0.0, Counter[float](), Counter[float]()
        sampled, objectives = Counter[tuple[float, float]](), list[float]()
        for one in log:
            multiplier = _rounded(one.noise_scale / one.sensitivity)
            if one.kind == "gaussian" or (one.kind == "poisson-gaussian" and one.rate == 1.0):
                squares += multiplier**-2
            elif one.kind == "poisson-gaussian":
                sampled[multiplier, one.rate] += 1
            elif one.kind == "laplace":
                laplace[multiplier] += 1
            elif one.kind == "selection" and one.units > 1 and as_paid:
                squares += (2.0 * float(norm.ppf(expit(1.0 / multiplier)))) ** 2
            elif one.kind in ("selection", "joint selection"):
                selections[multiplier] += 1
            elif one.kind == "objective" and one.curvature_ratio is not None and one.output_multiplier is not None:
                squares += multiplier**-2 + one.output_multiplier**-2
                objectives.append(math.log1p(one.curvature_ratio))
            else:
                raise Unsupported(f"no independent calculation is known for releases of kind {one.kind!r}.")
        return cls(math.sqrt(squares), laplace, selections, sampled, tuple(objectives))


def _rounded(multiplier: float) -> float:
    """Round to nine digits, so that releases with nearly equal noise are composed together."""
    return float(f"{multiplier:.9g}")


# ------------------------------------------------------------------------------------------------ the total
def independent_total(log: Sequence[PublicRelease], delta: float) -> IndependentTotal:
    """Return bounds on epsilon of all releases of a log together, at ``delta``."""
    parts = Parts.of(log, as_paid=True)
    bounds: dict[str, float] = {}
    if parts.objectives:
        if parts.laplace or parts.selections or parts.sampled:
            raise Unsupported("no independent calculation is known for perturbed objectives next to other releases.")
        left = delta / 2.0 ** len(parts.objectives)
        bounds["perturbed objective, dp-accounting"] = sum(parts.objectives) + _distribution(parts, left, upper=True)
    else:
        if not parts.sampled:
            found = _opendp(parts, delta)
            bounds |= {} if found is None else {"zCDP, OpenDP": found}
        bounds["Renyi, dp-accounting"] = _renyi(parts, delta)
        if sum(parts.selections.values()) <= _FEW_SELECTIONS and min(bounds.values()) < _MOST_LOSS:
            bounds["loss distribution, dp-accounting"] = _distribution(parts, delta, upper=True)
    upper = min(bounds.values())
    lower = _lower(Parts.of(log), delta) if upper < _MOST_LOSS else 0.0
    return IndependentTotal(lower, upper, delta, bounds)


def check_claim(claimed: float, total: IndependentTotal, *, complete: bool = True) -> None:
    """Demand that a claimed epsilon agrees with an independent total.

    A claim below the lower bound is a violation of privacy: some mechanism with the recorded noise exceeds it. No
    tolerance is needed there. A claim below the upper bound by more than :data:`TOLERANCE` is one that none of the
    calculations supports; dperm has no accounting that is better than all of them. A claim above the upper bound,
    beyond :data:`TOLERANCE`, says that something was paid for that the log does not contain; with ``complete=False``
    this is not checked.
    """
    demand(
        claimed >= total.lower,
        f"the claimed epsilon {claimed:.6g} is smaller than {total.lower:.6g}, which the recorded noise attains at "
        f"delta {total.delta:g}.",
    )
    demand(
        claimed >= total.upper * (1.0 - TOLERANCE),
        f"the claimed epsilon {claimed:.6g} is smaller than {total.upper:.6g}, the best independent bound for the "
        "recorded noise.",
    )
    demand(
        not complete or claimed <= total.upper * (1.0 + TOLERANCE),
        f"the claimed epsilon {claimed:.6g} is larger than {total.upper:.6g}, an upper bound for the recorded noise: "
        "something was charged that is not in the log.",
    )


# ------------------------------------------------------------------------------------------------ dp-accounting
def _lower(parts: Parts, delta: float) -> float:
    """Return an epsilon that some mechanism with this noise attains: the larger of a few."""
    # many selections are worst with symmetric losses, few with a large loss of small probability
    few = 0 < sum(parts.selections.values()) <= 20
    return max(_distribution(parts, delta, upper=False, place=t) for t in ((0.5, 0.7, 0.9, 0.99) if few else (0.5,)))


def _distribution(parts: Parts, delta: float, *, upper: bool, place: float = 0.5) -> float:
    """Return epsilon from composed privacy loss distributions."""
    total, rounding = composed_losses(parts, upper=upper, place=place)
    at = delta - rounding if upper else min(1.0, delta + rounding)
    return max(0.0, float(total.get_epsilon_for_delta(at)))


def composed_losses(parts: Parts, *, upper: bool, place: float = 0.5) -> tuple[Any, float]:
    """Return the loss distribution of all releases together, and what rounding may add to or take from its delta.

    ``place`` is the larger loss of the two candidates that stand for a selection in a lower bound, as a share of its
    range.
    """
    library = _dp_accounting("pld.privacy_loss_distribution")
    uses = sum(parts.laplace.values()) + sum(parts.sampled.values()) + sum(parts.selections.values()) + 1
    # rounding losses down costs up to an interval per use, so the grid shrinks with their number
    interval = _INTERVAL * (1.0 if upper else min(1.0, max(0.1, 20.0 / uses)))
    options: dict[str, Any] = {"value_discretization_interval": interval, "pessimistic_estimate": upper}
    rounding = 1e-15 * (25.0 + uses)  # what the Fourier transforms of many uses may miss
    made = []
    if parts.mu > 0.0:
        made.append(library.from_gaussian_mechanism(1.0 / parts.mu, use_connect_dots=upper, **options))
    for multiplier, count in parts.laplace.items():
        made.append(library.from_laplace_mechanism(multiplier, use_connect_dots=upper, **options).self_compose(count))
    for (multiplier, rate), count in parts.sampled.items():
        one = library.from_gaussian_mechanism(multiplier, sampling_prob=rate, use_connect_dots=upper, **options)
        made.append(one.self_compose(count))
    for multiplier, count in parts.selections.items():
        span = 2.0 / multiplier
        one = _worst_selection(span, interval) if upper else _two_candidates(span, place, options)
        made.append(one.self_compose(count))
    total = made[0]
    for one in made[1:]:
        total = total.compose(one)
    return total, rounding


def _worst_selection(span: float, interval: float) -> Any:
    """Return a loss distribution that dominates every release whose loss lies in some interval of length ``span``.

    With losses t and t - span only, delta(e) is (1 - exp(t - span)) (1 - exp(e - t)) / (1 - exp(-span)). It is largest
    at t = (e + span) / 2. The largest of these for every e is a profile, since it is convex in exp(e).
    """
    library, pmf = _dp_accounting("pld.privacy_loss_distribution"), _dp_accounting("pld.pld_pmf")
    ends = math.ceil(span / interval)
    steps = np.arange(-ends, ends + 1)
    losses = np.clip(steps * interval, -span, span)
    deltas = np.expm1((losses - span) / 2.0) ** 2 / -math.expm1(-span)
    deltas[0] = -math.expm1(steps[0] * interval)  # beyond -span every loss counts
    return library.PrivacyLossDistribution(pmf.create_pmf_pessimistic_connect_dots(interval, steps, deltas))


def _two_candidates(span: float, place: float, options: dict[str, Any]) -> Any:
    """Return the loss distribution of a choice among two candidates: losses place * span and (place - 1) * span."""
    library = _dp_accounting("pld.privacy_loss_distribution")
    high, low = place * span, (place - 1.0) * span
    second = -math.expm1(low) / (math.exp(high) - math.exp(low))  # probability of the larger loss without the person
    answers = ({0: math.log(p), 1: math.log1p(-p)} for p in (second, second * math.exp(high)))
    return library.from_two_probability_mass_functions(*answers, **options)


def _renyi(parts: Parts, delta: float) -> float:
    return converted(renyi_curve(parts), delta)


def renyi_curve(parts: Parts) -> FloatArray:
    """Total Renyi divergence at every order."""
    total = ORDERS * parts.mu**2 / 2.0
    for multiplier, count in parts.selections.items():
        total = total + count * _bounded_range_curve(2.0 / multiplier)
    for multiplier, count in parts.laplace.items():
        total = total + count * _laplace_curve(1.0 / multiplier)
    for (multiplier, rate), count in parts.sampled.items():
        total = total + count * _sampled_curve(multiplier, rate)
    if parts.objectives:
        raise Unsupported("no independent Renyi curve is known for perturbed objectives.")
    return np.asarray(total)


def converted(curve: FloatArray, delta: float) -> float:
    compute = _dp_accounting("rdp.rdp_privacy_accountant").compute_epsilon
    return float(compute(ORDERS.tolist(), curve.tolist(), delta)[0])


@lru_cache(maxsize=64)
def _bounded_range_curve(span: float) -> FloatArray:
    """Return the largest Renyi divergence of a release whose loss lies in some interval of length ``span``.

    The worst one takes only the interval's ends t and t - span, by convexity; t is found by search.
    """

    def divergence(t: float, order: float) -> float:
        # probabilities of the ends under the second data set, such that those under the first add up to 1
        high = -math.expm1(t - span) / (math.exp(t) - math.exp(t - span))
        terms = [math.log(max(high, 1e-300)) + order * t, math.log(max(1.0 - high, 1e-300)) + order * (t - span)]
        return float(np.logaddexp.reduce(terms)) / (order - 1.0)

    out = np.empty(len(ORDERS))
    for i, order in enumerate(map(float, ORDERS)):
        grid = np.linspace(0.0, span, 33)[1:-1]
        best = grid[int(np.argmax([divergence(float(t), order) for t in grid]))]
        step = span / 32.0
        found = minimize_scalar(
            lambda t, order=order: -divergence(t, order), bounds=(max(best - step, 1e-12), min(best + step, span))
        )
        out[i] = max(-float(found.fun), 0.0)
    return np.minimum(out, span)


def _laplace_curve(shift: float) -> FloatArray:
    """Return the Renyi divergence of Laplace noise for a shift in units of its scale (Mironov 2017, table II)."""
    a = ORDERS
    moment = np.logaddexp(
        np.log(a / (2.0 * a - 1.0)) + (a - 1.0) * shift, np.log((a - 1.0) / (2.0 * a - 1.0)) - a * shift
    )
    return np.minimum(moment / (a - 1.0), shift)


@lru_cache(maxsize=64)
def _sampled_curve(multiplier: float, rate: float) -> FloatArray:
    accounting = _dp_accounting("")
    # at whole orders, which are faster; the divergence grows with its order
    whole = np.ceil(np.minimum(ORDERS, 512.0)).astype(int)
    orders = np.unique(whole)
    accountant = accounting.rdp.RdpAccountant(orders.tolist())
    accountant.compose(accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(multiplier)))
    # a private name, as no public one gives the curve; safe because pyproject.toml pins dp-accounting to 0.6
    curve = np.asarray(accountant._rdp)[np.searchsorted(orders, whole)]
    return np.where(ORDERS <= 512.0, curve, np.inf)


def _dp_accounting(module: str) -> Any:
    try:
        whole = import_module("dp_accounting")
        return import_module(f"dp_accounting.{module}") if module else whole
    except ImportError:
        raise MissingDependency(
            "an independent total is computed with dp-accounting, which is not installed: pip install 'dperm[sgd]'."
        ) from None


# ------------------------------------------------------------------------------------------------ OpenDP
def _opendp(parts: Parts, delta: float) -> float | None:
    """Return epsilon from the zCDP of OpenDP's own privacy maps; None where it is not installed."""
    try:
        dp: Any = import_module("opendp.prelude")
    except ImportError:
        return None
    dp.enable_features("contrib", "idealized-numerics", "honest-but-curious")
    numbers = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    rho = parts.mu**2 / 2.0
    for multiplier, count in parts.laplace.items():
        noise = dp.m.make_laplace(numbers, dp.l1_distance(T=float), scale=multiplier)
        rho += count * dp.c.make_pureDP_to_zCDP(noise).map(1.0)
    for multiplier, count in parts.selections.items():
        choice = dp.m.make_noisy_max(
            numbers, dp.linf_distance(T=float), dp.zero_concentrated_divergence(), scale=multiplier
        )
        rho += count * choice.map(1.0)
    total = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(numbers, dp.l2_distance(T=float), scale=1.0))
    return float(total.map(math.sqrt(2.0 * rho)).epsilon(delta))
