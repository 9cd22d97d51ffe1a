"""LocalForecast: what a collection is expected to achieve, before anybody is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dperm.errors import InvalidInput, Unsupported

__all__ = ["LocalForecast"]


@dataclass(frozen=True)
class LocalForecast:
    """What a collection is expected to achieve, before anybody is asked.

    Attributes
    ----------
    noise : float
        Expected excess risk from the noise of ``n`` people's bits; falls as 1 / n.
    bias : float
        Excess risk that stays: the polynomial is not the loss.
    null_excess : float
        Excess risk of weights 0.
    degree : int or None
        Degree of the polynomial that stands for the loss; None if none does.
    assumes : tuple of str
        What was taken for granted.
    clear : float
        How many times its noise a fit must stand out before any of it is kept, where that decides who is refused.
    """

    n: int
    noise: float
    bias: float
    null_excess: float
    degree: int | None
    assumes: tuple[str, ...]
    clear: float = 1.0

    def __str__(self) -> str:
        parts = f"{self.noise:.3g} from noise"
        if self.degree is not None:
            parts += f", {self.bias:.3g} from a polynomial of degree {self.degree} in place of the loss"
        lines = [
            f"{self.n} people: expected excess risk {self.excess:.3g} ({parts}); weights 0 have {self.null_excess:.3g}",
            f"about {self._needed()} people are needed to beat weights 0",
            *(f"  assuming {text}" for text in self.assumes),
        ]
        return "\n".join(lines)

    def _needed(self) -> str:
        return "no number of" if self.null_excess <= self.clear * self.bias else str(self.people_needed)

    @property
    def excess(self) -> float:
        """Expected excess risk of a fit."""
        return self.noise + self.bias

    @property
    def people_needed(self) -> int:
        """Number of people from which a fit is expected to beat weights 0."""
        return self.people_for(self.null_excess / self.clear)

    @property
    def hopeless(self) -> bool:
        """True if weights 0 are expected to do as well."""
        return self.n < self.people_needed

    def people_for(self, target: float) -> int:
        """Number of people for this expected excess risk."""
        if isinstance(target, bool) or not isinstance(target, int | float) or not target > 0.0:
            raise InvalidInput(f"the excess aimed at must be a number above 0, not {target!r}.")
        if target <= self.bias:
            raise Unsupported(
                f"no number of people brings the excess down to {target:.3g}: a polynomial of degree {self.degree} in "
                f"place of the loss costs {self.bias:.3g} already."
            )
        return math.ceil(self.noise * self.n / (target - self.bias))
