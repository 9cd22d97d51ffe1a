"""A cap on total spending, enforced by a privacy filter: it holds however the next plan is chosen.

The proof is in ``cap.proof.md``. A ``mixed`` cap is one Renyi order and a limit on the sum of Renyi divergences of
that order; a ``gaussian-only`` cap is a limit on the sum of squared GDP parameters. Both are fixed when the cap is
set, and every charge is known before a plan touches the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dperm.errors import BudgetRefused, InvalidBudget, InvalidInput
from dperm.privacy.accounting import composition, gdp
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.events import Event

__all__ = ["Cap", "Charge", "PastCharges", "admit", "charge"]

MODES = ("mixed", "gaussian-only")
_ROUND_UP = 1.0 + 1e-12  # covers the rounding of every Renyi curve and of their sum
_LARGEST_ORDER = 1e6  # beyond it Poisson-sampled curves need too many terms


@dataclass(frozen=True)
class Cap:
    """The most that may ever be spent on one data set.

    Attributes
    ----------
    budget
        Epsilon and delta that all releases together satisfy.
    mode
        ``"mixed"`` or ``"gaussian-only"``.
    order
        The Renyi order of a mixed cap; None for ``gaussian-only``.
    limit
        Largest sum of charges: Renyi divergences of ``order``, or squared GDP parameters.
    delta_reserve
        Part of delta kept for releases known only as (epsilon, delta).
    """

    budget: Budget
    mode: str
    order: float | None
    limit: float
    delta_reserve: float

    @classmethod
    def of(cls, budget: Budget, mode: str = "mixed", delta_reserve: float = 0.0) -> Cap:
        """Return the cap that keeps all releases together within ``budget``.

        >>> cap = Cap.of(Budget(1.0, 1e-6))
        >>> round(cap.order, 1), round(cap.limit, 3)
        (22.0, 0.535)
        """
        if not isinstance(budget, Budget):
            raise InvalidInput(f"a cap needs a Budget, not {type(budget).__name__}.")
        if mode not in MODES:
            raise InvalidInput(f"the mode of a cap must be 'mixed' or 'gaussian-only', not {mode!r}.")
        if not 0.0 <= delta_reserve < budget.delta:
            raise InvalidBudget(f"delta_reserve must be at least 0 and below delta, not {delta_reserve!r}.")
        if mode == "gaussian-only":
            if delta_reserve:
                raise InvalidInput("a gaussian-only cap admits no event that needs a delta_reserve: leave it at 0.")
            return cls(budget, mode, None, budget.mu**2, 0.0)
        order, limit = _best_order(budget.epsilon, _delta_left(budget.delta, delta_reserve))
        return cls(budget, mode, order, limit, float(delta_reserve))

    def epsilon(self, spent: float, delta: float | None = None) -> float:
        """Return the epsilon that corresponds to a sum of charges ``spent``."""
        at = self.budget.delta if delta is None else delta
        if spent <= 0.0:
            return 0.0
        if self.order is None:
            return gdp.epsilon_of(math.sqrt(spent), at)
        if at <= self.delta_reserve:
            return math.inf
        value = spent + composition.order_offset(self.order, _delta_left(at, self.delta_reserve))
        return max(value, 0.0)

    def fits_epsilon(self, left: float) -> float:
        """Largest epsilon, at the cap's delta, of a plan of Gaussian releases whose charge is ``left``."""
        if left <= 0.0:
            return 0.0
        mu = math.sqrt(left) if self.order is None else math.sqrt(2.0 * left / self.order)
        return min(gdp.epsilon_of(mu, self.budget.delta, lower=True), self.budget.epsilon)

    def to_dict(self) -> dict[str, Any]:
        """Return the cap as plain data for JSON."""
        return {
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "mode": self.mode,
            "order": self.order,
            "limit": self.limit,
            "delta_reserve": self.delta_reserve,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Cap:
        """Inverse of :meth:`to_dict`; the stored order and limit are used, never recomputed."""
        budget = Budget(data["epsilon"], data["delta"])
        return cls(budget, data["mode"], data["order"], data["limit"], data["delta_reserve"])


@dataclass(frozen=True)
class Charge:
    """What one plan costs under a cap; ``closes`` if its own exact figure takes the whole cap."""

    amount: float
    delta: float
    closes: bool = False


@dataclass(frozen=True)
class PastCharges:
    """What a data set has been charged so far; ``empty`` if nothing was ever reserved."""

    dataset: str
    amounts: Sequence[float]
    deltas: Sequence[float]
    empty: bool
    closed: bool


def _delta_left(delta: float, reserve: float) -> float:
    return math.nextafter(delta - reserve, 0.0) if reserve else delta


def _best_order(epsilon: float, delta: float) -> tuple[float, float]:
    """Order that maximises (epsilon - offset)/order, and its limit epsilon - offset, rounded down.

    Every order is valid, so a search that stops early costs budget, never privacy.
    """

    def limit(order: float) -> float:
        offset = composition.order_offset(order, delta)
        return epsilon - offset - 1e-14 * (epsilon + abs(offset))

    def objective(log_excess: float) -> float:
        order = 1.0 + math.exp(log_excess)
        return limit(order) / order

    grid = np.linspace(math.log(1e-6), math.log(_LARGEST_ORDER - 1.0), 400)
    best = int(np.argmax([objective(float(t)) for t in grid]))
    low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(60):
        one, two = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, two) if objective(one) > objective(two) else (one, high)
    order = 1.0 + math.exp(0.5 * (low + high))
    if not limit(order) > 0.0:
        raise InvalidBudget(
            f"no Renyi order leaves a positive limit at epsilon={epsilon:g}, delta={delta:g}: "
            "raise epsilon or delta, or set a gaussian-only cap."
        )
    return order, limit(order)


def charge(cap: Cap, event: Event) -> Charge | None:
    """Return what ``event`` costs under ``cap``, or None if this kind of cap cannot charge it."""
    if cap.order is None:
        mu = composition.mu(event)
        return None if mu is None else Charge(mu * mu * _ROUND_UP, 0.0)
    amount = composition.renyi_or_infinite(event, cap.order)
    return Charge(amount * _ROUND_UP, composition.set_aside(event) * _ROUND_UP)


def admit(cap: Cap, event: Event, before: PastCharges) -> Charge:
    """Return the charge of a plan that fits the cap, else raise :class:`~dperm.errors.BudgetRefused`."""
    name = before.dataset
    if before.closed:
        raise BudgetRefused(f"data set {name!r} is closed: one plan took its whole cap", name)
    if composition.is_unbounded(event):
        raise BudgetRefused(
            f"the plan has a release without a finite guarantee, which the cap of data set {name!r} "
            f"(epsilon={cap.budget.epsilon:g}) cannot hold: use secure noise and the certified calibration."
        )
    cost = charge(cap, event)
    if cost is None:
        raise BudgetRefused(
            f"the cap of data set {name!r} is gaussian-only and the plan has a release that is not Gaussian: "
            "choose a solver whose noise is Gaussian throughout."
        )
    total = math.fsum([*before.amounts, cost.amount])
    aside = math.fsum([*before.deltas, cost.delta])
    if total <= cap.limit and aside <= cap.delta_reserve:
        return cost
    if before.empty and composition.upper_epsilon(event, cap.budget.delta)[0] <= cap.budget.epsilon:
        return Charge(cap.limit, cap.delta_reserve, closes=True)
    if aside > cap.delta_reserve:
        left = max(0.0, cap.delta_reserve - math.fsum(before.deltas))
        raise BudgetRefused(
            f"the plan asks data set {name!r} for delta={cost.delta:g} from its delta reserve and {left:g} of "
            f"{cap.delta_reserve:g} is left: use releases that need no reserve",
            dataset=name,
        )
    left = max(0.0, cap.limit - math.fsum(before.amounts))
    # rounded apart, so that two different shares are never shown as equal
    asked = (
        f"{math.ceil(1000.0 * cost.amount / cap.limit) / 10.0:g}%" if math.isfinite(cost.amount) else "more than all"
    )
    raise BudgetRefused(
        f"the plan needs {asked} of the cap of data set {name!r} (epsilon={cap.budget.epsilon:g} at "
        f"delta={cap.budget.delta:g}), but only {math.floor(1000.0 * left / cap.limit) / 10.0:g}% is left, enough for "
        f"a fit of about epsilon={cap.fits_epsilon(left):.3g}: ask for less",
        dataset=name,
    )
