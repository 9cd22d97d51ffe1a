"""Counts of classes and the spread of a target. Proof: ``targets.proof.md``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import Query
from dperm.kernels.exact import toward_zero
from dperm.types import FloatArray
from dperm.validation import finite, whole

__all__ = ["ClassCounts", "TargetDeviation"]


_UP = 1.0 + 2.0**-50


@dataclass(frozen=True, eq=False)
class ClassCounts(Query):
    """Number of people in each of ``n_classes`` classes, whose codes are 0, 1, ...; other targets are not counted."""

    n_classes: int

    name: ClassVar[str] = "class counts"
    norm: ClassVar[str] = "l2"
    replacement_ratio: ClassVar[float] = math.sqrt(2.0) * _UP

    def __post_init__(self) -> None:
        whole("n_classes", self.n_classes, least=2)

    def part(self, block: DesignData) -> FloatArray:
        return np.array([float(np.count_nonzero(block.target == k)) for k in range(self.n_classes)])

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return 1.0

    def bound(self, facts: Facts) -> float:
        return float(facts.n)

    def size(self, facts: Facts) -> int:
        return self.n_classes


@dataclass(frozen=True, eq=False)
class TargetDeviation(Query):
    """Sum over people of |target - centre| minus half its largest value, so that an empty record contributes 0."""

    centre: float

    name: ClassVar[str] = "target deviation"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", finite("centre", self.centre))

    def largest(self, facts: Facts) -> float:
        """Return the largest deviation of a target in its public range."""
        return max(abs(facts.target_high - self.centre), abs(self.centre - facts.target_low))

    def part(self, block: DesignData) -> FloatArray:
        half = 0.5 * self.largest(block.facts)
        spacing = block.facts.grids.count_spacing(half)
        steps = toward_zero(np.clip(np.abs(block.target - self.centre) - half, -half, half), spacing)
        return np.array([steps.sum() * spacing])

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return 0.5 * self.largest(facts) * _UP

    def bound(self, facts: Facts) -> float:
        return facts.n * self.zero_out_sensitivity(facts)

    def size(self, facts: Facts) -> int:
        return 1
