"""Plans of releases, made before any data are seen, and the noise that fits them into a budget.

A plan lists kinds, counts and shares. Only a noise scale is left open; :func:`calibrate` finds the smallest scale whose
accounted epsilon is within the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.accounting import composition, pld
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.events import (
    UNCERTIFIED_CHOICE,
    ApproximateDP,
    Composed,
    Event,
    Gaussian,
    Laplace,
    PoissonGaussian,
    Repeat,
    Selection,
)
from dperm.privacy.accounting.objective_perturbation import perturbation_event

__all__ = ["CalibratedPlan", "Plan", "PlannedRelease", "calibrate", "clear_cache", "smallest_scale"]

_KINDS = {"gaussian": Gaussian, "laplace": Laplace, "selection": Selection}

_MOST_CURVATURE = 2.0  # part of epsilon: a curvature ratio beyond exp(2) - 1 saves no noticeable strength


@dataclass(frozen=True)
class PlannedRelease:
    """``count`` releases of one query by one kind of mechanism, with a share of the budget.

    ``share`` is measured in rho (or mu squared): Gaussian, Laplace and Gumbel-selection releases with noise multiplier
    ``m`` cost about 1/(2 m^2) each, so a group's multiplier is ``scale * sqrt(count / share)``.

    ``curvature_ratio`` is that of a perturbed objective. With ``curvature_share`` the budget determines
    it: it becomes the ratio that spends at most this share of epsilon, and the solver adds the L2 strength for it.
    """

    query: str
    kind: str
    count: int
    share: float = 1.0
    replacement_ratio: float = 2.0
    rate: float | None = None
    curvature_ratio: float | None = None
    curvature_share: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in {
            *_KINDS,
            "poisson-gaussian",
            "objective",
            "laplace-inside-max",
            "uncertified-laplace-inside-max",
        }:
            raise InvalidInput(f"unknown kind of release {self.kind!r} in a plan.")
        if self.count < 1 or self.count != int(self.count):
            raise InvalidInput(f"a plan needs a whole number of releases >= 1, not {self.count!r}.")
        if not (math.isfinite(self.share) and self.share > 0.0):
            raise InvalidInput(f"a release's share must be positive, not {self.share!r}.")
        if (self.kind == "poisson-gaussian") != (self.rate is not None):
            raise InvalidInput("rate belongs to poisson-gaussian releases, and to no other.")
        if (self.kind == "objective") != (self.curvature_ratio is not None):
            raise InvalidInput("curvature_ratio belongs to objective releases, and to no other.")
        if self.curvature_share is not None and not (self.kind == "objective" and 0.0 < self.curvature_share < 1.0):
            raise InvalidInput("curvature_share belongs to objective releases and lies strictly between 0 and 1.")

    def within(self, budget: Budget) -> PlannedRelease:
        """Return the release for this budget: a curvature ratio that was left open is fixed."""
        if self.curvature_ratio is None:
            return self
        ratio = self.curvature_ratio
        if self.curvature_share is not None:
            part = min(self.curvature_share * budget.epsilon, _MOST_CURVATURE)
            ratio = min(ratio, math.expm1(part))
        if math.log1p(ratio) >= budget.epsilon:
            raise Unsupported(
                f"the curvature of one record takes {math.log1p(ratio):.4g} of epsilon={budget.epsilon:g} here and "
                "leaves nothing for the noise: raise the l2 strength (solver 'objective' adds what is missing by "
                "default), tighten the bounds (row_norm), or raise epsilon."
            )
        return replace(self, curvature_ratio=ratio, curvature_share=None)

    def noise_multiplier(self, scale: float) -> float:
        """Noise multiplier of each release of this group at ``scale``."""
        return scale * math.sqrt(self.count / self.share) * (self.rate or 1.0)

    def event(self, scale: float) -> Event:
        """Event of one release of this group at ``scale``."""
        multiplier = self.noise_multiplier(scale)
        if self.rate is not None:
            return PoissonGaussian(multiplier, self.rate)
        if self.curvature_ratio is not None:
            return perturbation_event(multiplier, self.curvature_ratio, self.replacement_ratio)
        if self.kind == "laplace-inside-max":
            return ApproximateDP(2.0 / multiplier)
        if self.kind == "uncertified-laplace-inside-max":
            return UNCERTIFIED_CHOICE
        return _KINDS[self.kind](multiplier, self.replacement_ratio)


@dataclass(frozen=True)
class Plan:
    """All releases that a solver will make, in order of first use; query names are unique."""

    releases: tuple[PlannedRelease, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "releases", tuple(self.releases))
        names = [r.query for r in self.releases]
        if not names:
            raise InvalidInput("a plan needs at least one release.")
        if len(set(names)) < len(names):
            raise InvalidInput("each query may occur only once in a plan: give the groups different names.")

    def at(self, scale: float) -> Event:
        """Event of the whole plan at a noise scale."""
        return Composed(tuple(Repeat(r.event(scale), r.count) for r in self.releases))

    def within(self, budget: Budget) -> Plan:
        """Return the plan with everything fixed that it leaves to the budget."""
        fixed = tuple(release.within(budget) for release in self.releases)
        return self if fixed == self.releases else replace(self, releases=fixed)

    def __add__(self, other: Plan) -> Plan:
        return Plan(self.releases + other.releases)

    def scaled(self, factor: float) -> Plan:
        """Return the same plan with all its shares multiplied by ``factor``."""
        return Plan(tuple(replace(r, share=r.share * factor) for r in self.releases))


class HasEvent(Protocol):
    """Anything that turns a noise scale into an event; a larger scale must cost less."""

    def at(self, scale: float) -> Event: ...


@dataclass(frozen=True)
class CalibratedPlan:
    """A plan together with the noise that fits a budget."""

    plan: Plan
    scale: float
    budget: Budget

    def __post_init__(self) -> None:
        object.__setattr__(self, "plan", self.plan.within(self.budget))

    @property
    def event(self) -> Event:
        """Event of the whole plan."""
        return self.plan.at(self.scale)

    def release(self, query: str) -> PlannedRelease:
        """Return the planned group of ``query``."""
        for release in self.plan.releases:
            if release.query == query:
                return release
        raise InvalidInput(f"the plan has no release named {query!r}.")

    def noise_multiplier(self, query: str) -> float:
        """Noise multiplier of each release of ``query``."""
        return self.release(query).noise_multiplier(self.scale)


def calibrate(plan: Plan, budget: Budget) -> CalibratedPlan:
    """Return the plan with the least noise whose epsilon at ``budget.delta`` is at most ``budget.epsilon``.

    Results are cached for the life of the process: a plan and a budget are public, frozen and determine the scale, and
    accounting for sampled releases takes seconds.

    >>> made = calibrate(Plan((PlannedRelease("gradient", "gaussian", 100),)), Budget(1.0, 1e-6))
    >>> round(made.noise_multiplier("gradient"), 2)
    42.25
    """
    fixed = plan.within(budget)
    return CalibratedPlan(fixed, _cached_scale(fixed, budget), budget)


def smallest_scale(plan: HasEvent, budget: Budget) -> float:
    """Return the smallest noise scale that fits the budget, to 1e-6 (1e-4 with sampling), on the safe side."""

    def fits(scale: float) -> bool:
        return composition.upper_epsilon(plan.at(scale), budget.delta)[0] <= budget.epsilon

    start = 1.0 / budget.mu
    gauss = composition.mu(plan.at(start))
    if gauss:
        # mu of a plan of Gaussians alone falls as 1/scale, so this is the answer; otherwise it starts the bracket
        start *= gauss / budget.mu
        scale = start
        for _ in range(60):
            if fits(scale):
                if not fits(scale * (1.0 - 1e-6)):
                    return scale
                break
            scale *= 1.0 + 1e-14  # rounding of the multipliers
    elif any(isinstance(leaf, PoissonGaussian) for leaf in composition.leaves(plan.at(start))):
        # Loss distributions of nearly noiseless releases fill the memory: start above, where the cheap Renyi bound
        # fits, and stop at the first scale that does not.
        start = _smallest(
            lambda scale: composition.renyi_epsilon(plan.at(scale), budget.delta) <= budget.epsilon,
            start,
            budget,
            factor=1.5,
            precision=0.02,
        )
        return _smallest_smooth(
            lambda scale: composition.upper_epsilon(plan.at(scale), budget.delta)[0], start, budget, precision=1e-4
        )
    return _smallest(fits, start, budget, factor=1.5, precision=1e-6)


@lru_cache(maxsize=256)
def _cached_scale(plan: Plan, budget: Budget) -> float:
    return smallest_scale(plan, budget)


def clear_cache() -> None:
    """Forget all calibrated scales and the loss distributions behind them."""
    _cached_scale.cache_clear()
    pld.clear_cache()


def _smallest_smooth(cost: Callable[[float], float], start: float, budget: Budget, *, precision: float) -> float:
    """Return the smallest scale whose cost is within epsilon, to a relative precision, with few evaluations.

    The result always fits. The cost is close to a power of the scale, so a line through logarithms gives the next
    guess; every guess narrows the bracket. If one end does not move three times in a row (its cost may come from a much
    looser bound), the bracket is halved instead.
    """
    high, at_high = start, cost(start)
    low, at_low, same_side = 0.0, math.inf, 0
    while at_high > budget.epsilon:  # ``start`` fits by a looser bound, so at most rounding is corrected here
        low, at_low = high, at_high
        high *= 1.05
        at_high = cost(high)
    for _ in range(60):
        if math.isfinite(at_low):
            if high - low <= precision * high:
                break
            power = math.log(at_low / max(at_high, 1e-300)) / math.log(high / low)
        else:
            power = 1.0
        # half a precision on the safe side, so that the guess mostly fits and the next one closes the bracket
        guess = high * (max(at_high, 1e-300) / budget.epsilon) ** (1.0 / max(power, 0.25)) * (1.0 + 0.4 * precision)
        if low > 0.0:
            inner = 0.25 * precision * high
            guess = min(max(guess, low + inner), high - inner)
            if abs(same_side) >= 3 and high - low > 4.0 * precision * high:
                guess = math.sqrt(low * high)
        elif guess >= high * (1.0 - 0.5 * precision):
            guess = high * (1.0 - 0.9 * precision)
        at_guess = cost(guess)
        if at_guess <= budget.epsilon:
            high, at_high, same_side = guess, at_guess, max(same_side, 0) + 1
        else:
            low, at_low, same_side = guess, at_guess, min(same_side, 0) - 1
    return high


def _smallest(fits: Callable[[float], bool], start: float, budget: Budget, *, factor: float, precision: float) -> float:
    """Return the smallest scale that fits, to a relative precision; the result always fits."""
    low, high = start, start
    for _ in range(200):
        if fits(high):
            break
        low, high = high, high * factor
    else:
        raise Unsupported(
            f"no amount of noise brings this plan to epsilon={budget.epsilon:g}, delta={budget.delta:g}: "
            "raise delta or remove the events that have no noise to add."
        )
    while low == high or fits(low):
        high, low = low, low / factor
        if low < 1e-9 * start:
            return high
    while high - low > precision * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
