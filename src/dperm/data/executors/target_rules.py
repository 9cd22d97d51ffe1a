"""Public rules that turn a person's target into that of a problem; the rows need not leave their place for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from dperm.data.design.target_range import TargetRange
from dperm.types import FloatArray

__all__ = ["AsGiven", "OneAgainstRest", "ScaledTarget", "TargetRule"]


class TargetRule(ABC):
    """A function of each target on its own."""

    @abstractmethod
    def __call__(self, target: FloatArray) -> FloatArray:
        """Return the targets of the problem."""


@dataclass(frozen=True)
class AsGiven(TargetRule):
    """Class codes as they are."""

    def __call__(self, target: FloatArray) -> FloatArray:
        return target


@dataclass(frozen=True)
class OneAgainstRest(TargetRule):
    """1 for one class and 0 for all others.

    >>> OneAgainstRest(2)(np.array([0.0, 2.0])).tolist()
    [0.0, 1.0]
    """

    code: int

    def __call__(self, target: FloatArray) -> FloatArray:
        return np.asarray(target == self.code, np.float64)


@dataclass(frozen=True)
class ScaledTarget(TargetRule):
    """Numbers centred, scaled and clipped to [-1, 1]."""

    target_range: TargetRange

    def __call__(self, target: FloatArray) -> FloatArray:
        return self.target_range.scaled(target)
