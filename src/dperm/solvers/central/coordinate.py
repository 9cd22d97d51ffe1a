"""Coordinate descent (DP-CD) and its proximal version: one uniformly drawn coordinate per step.

    w_j <- prox(w_j - step / M_j (g_j + noise)),

with the iterates of a round averaged (Mangold, Bellet, Salmon & Tommasi, ICML 2022). It is the special case of
:class:`~dperm.solvers.central.blocks.BlockDescent` with as many blocks as coordinates.

**Guarantee.** Released to everyone who sees the model or any step: one noisy gradient sum of one coordinate per step.
Exact Gaussian composition. Proof: ``coordinate.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.objective import Objective
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.printed import Printed, coordinate_multiplier
from dperm.solvers.base import Forecast, Progress, Solution, Solver
from dperm.solvers.central.blocks import BlockDescent
from dperm.solvers.option_checks import require_positive, require_whole

__all__ = ["CoordinateDescent"]


@dataclass(frozen=True)
class CoordinateDescent(Solver):
    """DP-CD.

    Parameters
    ----------
    n_passes : float
        Total number of steps, as a multiple of the number of coordinates; a fraction makes fewer steps than there are
        coordinates, at least one.
    n_rounds : int
        Number of rounds; at the end of each its iterates may be averaged.
    clip, step, smoothness, averaging, box
        As in :class:`~dperm.solvers.central.blocks.BlockDescent`; with one limit per coordinate, coordinate j is
        clipped at C_j and gets noise in proportion to it.
    """

    n_passes: float = 2
    n_rounds: int = 1
    clip: float | tuple[float, ...] | None = None
    step: float = 1.0
    smoothness: float | tuple[float, ...] | None = None
    averaging: bool = False
    box: float = 64.0

    name: ClassVar[str] = "coordinate"

    def __post_init__(self) -> None:
        require_whole(self, "n_rounds")
        require_positive(self, "n_passes")
        if self.n_passes.is_integer():
            object.__setattr__(self, "n_passes", int(self.n_passes))  # reports show whole passes as before
        checked = self._blocks(1)  # checks the other parameters
        object.__setattr__(self, "clip", checked.clip)
        object.__setattr__(self, "smoothness", checked.smoothness)

    def _blocks(self, d: int) -> BlockDescent:
        return BlockDescent(
            n_rounds=self.n_rounds,
            n_inner=max(1, math.floor(self.n_passes * d * (1.0 + 1e-12)) // self.n_rounds),  # 0.29 * 100 is below 29
            n_blocks=d,
            clip=self.clip,
            step=self.step,
            smoothness=self.smoothness,
            averaging=self.averaging,
            box=self.box,
        )

    def shortened(self, n_steps: int) -> CoordinateDescent:
        return replace(self, n_rounds=1, n_passes=1)

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        return self._blocks(facts.d).plan(objective, facts)

    def printed(self, objective: Objective, facts: Facts, budget: Budget) -> Printed:
        plan = self.plan(objective, facts)
        n_steps = plan.releases[0].count
        calibrated = CalibratedPlan(plan, coordinate_multiplier(n_steps, budget) / math.sqrt(n_steps), budget)
        return Printed(calibrated, "the DP-CD paper's constant is used for comparison and not calibrated to the budget")

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        return self._blocks(holder.facts.d).solve(objective, holder, calibrated, progress)

    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        return self._blocks(facts.d).forecast(objective, facts, calibrated, neighbours, **assumed)
