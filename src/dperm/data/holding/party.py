"""Private data of a participant in a vertical run: its own columns or the label, and received per-person values."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix
from dperm.errors import PlanViolation
from dperm.types import FloatArray

__all__ = ["LabelData", "PartyData", "ReceivedValues"]


class ReceivedValues:
    """Per-person values from the latest messages, by name.

    They are as private as the data: person i's number may depend on person i's record at any participant, and on nobody
    else's. Queries read them inside ``evaluate``; they are not fields of queries.
    """

    def __init__(self) -> None:
        self._values: dict[str, FloatArray] = {}

    def put(self, name: str, values: FloatArray) -> None:
        """Replace the numbers of this name."""
        self._values[name] = np.array(values, np.float64)

    def get(self, name: str) -> FloatArray:
        """Return the latest numbers of this name."""
        if name not in self._values:
            raise PlanViolation(f"a query needs {name!r}, which no message has contained yet.")
        return self._values[name]

    def __repr__(self) -> str:
        return f"ReceivedValues({', '.join(sorted(self._values))})"


@dataclass(frozen=True)
class PartyData:
    """A party's columns on their grid, the values it received, and results that queries keep between messages."""

    design: DesignMatrix = field(repr=False)
    received: ReceivedValues = field(default_factory=ReceivedValues, repr=False)
    kept: dict[str, FloatArray] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def facts(self) -> Facts:
        """Public facts of the party's columns."""
        return Facts.of_design(self.design.shape)


@dataclass(frozen=True)
class LabelData:
    """The label holder's targets, and the values it received."""

    target: FloatArray = field(repr=False)
    n: int = 0
    target_low: float = 0.0
    target_high: float = 1.0
    received: ReceivedValues = field(default_factory=ReceivedValues, repr=False)

    @property
    def facts(self) -> Facts:
        """Public facts of the target; it has no columns."""
        return Facts(n=self.n, n_features=0, d=0, target_low=self.target_low, target_high=self.target_high)
