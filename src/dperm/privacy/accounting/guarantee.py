"""Accounting and guarantee: the numbers of a plan, and what they guarantee under which assumptions."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from dperm.errors import InvalidInput
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.events import Event
from dperm.privacy.accounting.neighbours import Neighbours

__all__ = ["NO_PROTECTION", "Accounting", "Guarantee"]

#: above this epsilon the allowed factor, 5e8 or more, protects nobody
NO_PROTECTION = 20.0

PERSON = "one person's whole record, label included; one record per person"


@dataclass(frozen=True)
class Accounting:
    """The numbers of a plan: an upper bound on epsilon at delta and how loose it may be."""

    epsilon: float
    delta: float
    looseness: float
    method: str
    mu: float | None = None
    rho: float | None = None
    curve: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, event: Event, delta: float) -> Accounting:
        """Account for an event at ``delta`` and along a curve of other deltas."""
        bound = composition.epsilon(event, delta)
        deltas = [10.0**-k for k in range(3, 13)]
        curve = tuple((composition.upper_epsilon(event, d)[0], d) for d in deltas)
        return cls(
            epsilon=bound.epsilon,
            delta=delta,
            looseness=bound.looseness,
            method=bound.method,
            mu=composition.mu(event),
            rho=composition.zcdp(event),
            curve=tuple((e, d) for e, d in curve if math.isfinite(e)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        out = asdict(self)
        out["curve"] = [{"epsilon": e, "delta": d} for e, d in self.curve]
        return out

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Accounting:
        """Inverse of :meth:`to_dict`."""
        values = dict(data)
        values["curve"] = tuple((p["epsilon"], p["delta"]) for p in values["curve"])
        return cls(**values)


@dataclass(frozen=True)
class Guarantee:
    """A differential-privacy guarantee.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee; epsilon is an upper bound that may be loose by ``looseness``.
    neighbours : Neighbours
        Which two data sets are compared.
    unit : str
        What one record is.
    view : str
        What the observer sees: ``"model"`` or ``"transcript"``.
    assumptions : tuple of str
        What must hold for it.
    """

    epsilon: float
    delta: float
    neighbours: Neighbours
    unit: str = PERSON
    view: str = "model"
    assumptions: tuple[str, ...] = ()
    looseness: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        object.__setattr__(self, "assumptions", tuple(self.assumptions))
        if not 0.0 <= self.epsilon < math.inf or not 0.0 <= self.delta < 1.0:
            raise InvalidInput("a guarantee needs a finite epsilon >= 0 and a delta in [0, 1).")

    def sentence(self) -> str:
        """Return the guarantee as one sentence."""
        other = "any other" if self.neighbours is Neighbours.REPLACE_ONE else "an empty one"
        if self.epsilon > NO_PROTECTION:
            return (
                f"Epsilon {self.epsilon:.4g}: in practice no protection. When one person's record is replaced by "
                f"{other}, the probability of any {self.view} may change by a factor of e to the power of epsilon."
            )
        added = f", plus at most {self.delta:.2g} (delta)" if self.delta else ""
        return (
            f"When one person's record is replaced by {other}, the probability of any {self.view} changes by a factor "
            f"of at most {math.exp(self.epsilon):.4g} (epsilon {self.epsilon:.4g}){added}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**asdict(self), "neighbours": str(self.neighbours), "assumptions": list(self.assumptions)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Guarantee:
        """Inverse of :meth:`to_dict`."""
        return cls(**data)
