"""What the bounds return."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LowerBound", "Violation"]


@dataclass(frozen=True)
class LowerBound:
    """The largest epsilon that the results rule out as an upper bound.

    Attributes
    ----------
    epsilon : float
        With probability ``confidence`` or more, the audited method is not (e, delta)-private for any e below it.
        Zero means that nothing was shown.
    delta, confidence : float
        What the statement was asked for.
    method : str
        Short name of the bound.
    detail : str
        One sentence for readers: the event that shows it, with its counts.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    detail: str


@dataclass(frozen=True)
class Violation:
    """A claimed privacy profile delta(epsilon) that the results contradict.

    Attributes
    ----------
    epsilon : float
        Where the estimated excess is largest.
    claimed_delta : float
        The claim at that epsilon.
    excess : float
        With the stated confidence, the true delta exceeds the claimed one by at least this, at some epsilon.
    confidence : float
        A claim that is true is contradicted with probability at most one minus this.
    detail : str
        One sentence for readers: the event that shows it, with its counts.
    """

    epsilon: float
    claimed_delta: float
    excess: float
    confidence: float
    detail: str
