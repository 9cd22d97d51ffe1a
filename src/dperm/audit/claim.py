"""The claim that an audit tests: epsilon and delta, for which neighbours, and the curve of deltas that follows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dperm.errors import InvalidBudget, InvalidInput
from dperm.privacy.accounting import composition, gdp
from dperm.privacy.accounting.events import Event

__all__ = ["RELATIONS", "Claim"]

#: neighbouring tables, and what they are in words
RELATIONS = {
    "replace-one": "one record is replaced by any other",
    "add-remove": "one record is added or removed",
    "zero-out": "one record is replaced by an empty one",
}


@dataclass(frozen=True)
class Claim:
    """A claimed guarantee.

    Attributes
    ----------
    epsilon, delta : float
        The claim.
    neighbours : str
        One of :data:`RELATIONS`.
    mu : float or None
        Parameter of Gaussian differential privacy, where the claim is of that form: it can then be tested far more
        closely (Dong, Roth & Su 2022).
    curve : callable or None
        Claimed delta at every epsilon of 0 or more, where more than one point of it is known.
    """

    epsilon: float
    delta: float = 0.0
    neighbours: str = "replace-one"
    mu: float | None = None
    curve: Callable[[float], float] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0.0):
            raise InvalidBudget(f"--epsilon must be a finite number above 0, not {self.epsilon!r}.")
        if not 0.0 <= self.delta < 1.0:
            raise InvalidBudget(f"--delta must be at least 0 and below 1, not {self.delta!r}.")
        if self.neighbours not in RELATIONS:
            raise InvalidInput(f"neighbours must be one of {', '.join(RELATIONS)}, not {self.neighbours!r}.")

    @classmethod
    def gaussian(cls, epsilon: float, delta: float, neighbours: str = "replace-one") -> Claim:
        """Return the claim of Gaussian noise that was set to (epsilon, delta)."""
        if not delta > 0.0:
            raise InvalidBudget("Gaussian noise has no guarantee at delta 0: give its --delta.")
        mu = gdp.mu_of(epsilon, delta)
        return cls(epsilon, delta, neighbours, mu, lambda at: gdp.delta_of(mu, at))

    @classmethod
    def of_event(cls, event: Event, epsilon: float, delta: float, neighbours: str) -> Claim:
        """Return the claim of a plan of dperm, with its whole curve."""
        return cls(epsilon, delta, neighbours, composition.mu(event), lambda at: composition.delta(event, at))

    def delta_at(self, epsilon: float) -> float:
        """Return the delta that the claim implies for a pair of tables of the audit.

        From (epsilon, delta) alone follows delta at larger epsilons, and at smaller ones the value for the pair of
        distributions that just satisfies it: 1 - (1 + exp(at)) (1 - delta) / (1 + exp(epsilon)) (Kairouz, Oh &
        Viswanath 2017). An empty record cannot be passed to a function, so tables for zero-out differ by a replaced
        record: two steps, through the empty record between them.
        """
        if self.neighbours != "zero-out":
            return self._one_step(epsilon)
        half = self._one_step(epsilon / 2.0)
        return min(1.0, half * (1.0 + math.exp(epsilon / 2.0)))

    def _one_step(self, epsilon: float) -> float:
        if self.curve is not None:
            return self.curve(epsilon)
        if epsilon >= self.epsilon:
            return self.delta
        return 1.0 - (1.0 + math.exp(epsilon)) * (1.0 - self.delta) / (1.0 + math.exp(self.epsilon))

    @property
    def tested(self) -> tuple[float, float]:
        """Epsilon and delta for the pairs of tables of the audit; twice the claim for zero-out, see above."""
        if self.neighbours != "zero-out":
            return self.epsilon, self.delta
        return 2.0 * self.epsilon, min(1.0, self.delta * (1.0 + math.exp(self.epsilon)))

    @property
    def tested_mu(self) -> float | None:
        """``mu`` for the pairs of tables of the audit: groups of two double it."""
        return None if self.mu is None else self.mu * (2.0 if self.neighbours == "zero-out" else 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"epsilon": self.epsilon, "delta": self.delta, "neighbours": self.neighbours, "mu": self.mu}
