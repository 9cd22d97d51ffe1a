"""Solver: a loop of releases, and a data-free plan of what it will release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dperm.data.facts import Facts
from dperm.data.holder import DataHolder
from dperm.objective import Objective
from dperm.privacy.calibration import CalibratedPlan, Plan

__all__ = ["Progress", "Solution", "Solver"]

#: called as progress(steps done, steps in all); told nothing that depends on the data
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Solution:
    """Released weights of the scaled design, and how many steps were made."""

    weights: NDArray[np.float64]
    n_steps: int


class Solver(ABC):
    """Base of all solvers.

    ``plan`` sees public facts only and lists every release; ``solve`` reaches the data through ``holder.release`` only.
    """

    name: ClassVar[str]

    @abstractmethod
    def plan(self, objective: Objective, facts: Facts) -> Plan:
        """List what will be released."""

    @abstractmethod
    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        """Carry out the plan."""
