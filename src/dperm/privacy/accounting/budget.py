"""Budget: the (epsilon, delta) that a fit may spend."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dperm.errors import InvalidBudget
from dperm.privacy.accounting import gdp
from dperm.validation import is_number

__all__ = ["Budget", "default_delta"]


@dataclass(frozen=True)
class Budget:
    """An amount of privacy: ``epsilon > 0`` and ``0 < delta < 1``.

    >>> Budget(1.0, 1e-6).mu  # doctest: +ELLIPSIS
    0.2367...
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _number(self.epsilon, "epsilon"))
        object.__setattr__(self, "delta", _number(self.delta, "delta"))
        if not self.epsilon > 0.0:
            raise InvalidBudget(f"epsilon must be above 0, not {self.epsilon!r}.")
        if math.isinf(self.epsilon):
            raise InvalidBudget("epsilon must be finite: without a finite epsilon there is no guarantee.")
        if 0.0 < self.delta < 1e-100:
            raise InvalidBudget(
                "delta below 1e-100 is indistinguishable from 0 in floating point; a usual choice is 1/n^2."
            )
        if not 0.0 < self.delta < 1.0:
            raise InvalidBudget(f"delta must be strictly between 0 and 1, not {self.delta!r}; a usual choice is 1/n^2.")

    @property
    def mu(self) -> float:
        """Largest Gaussian-DP parameter inside the budget."""
        return gdp.mu_of(self.epsilon, self.delta)


def default_delta(n: int) -> float:
    """Return the delta used when none is given: min(1e-5, 1/n^2), from the public number of records.

    >>> default_delta(1000)
    1e-06
    """
    return min(1e-5, 1.0 / float(n) ** 2)


def _number(value: object, what: str) -> float:
    if not is_number(value):
        raise InvalidBudget(f"{what} must be a number, not {type(value).__name__}.")
    number = float(value)
    if math.isnan(number):
        raise InvalidBudget(f"{what} must be a number, not NaN.")
    return number
