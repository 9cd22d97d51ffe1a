"""Worst-case neighbours: one record changes as much as it may, and the released vectors are compared."""

from __future__ import annotations

from typing import ClassVar

from dperm.audit.attacks.base import Attack, AttackContext
from dperm.audit.attacks.judging import run_family
from dperm.audit.pilot import FEWEST_RUNS
from dperm.audit.result import AttackResult
from dperm.audit.statistics import linear_statistics

__all__ = ["CanaryAttack"]

#: statistics that share the confidence in the test: a second one costs little, and the pilot may err
_N_STATISTICS = 2


class CanaryAttack(Attack):
    """Compares projections of the released vector on two neighbouring tables."""

    name: ClassVar[str] = "canary"
    about: ClassVar[str] = "worst-case neighbours, told apart by projections of the released vector"
    share: ClassVar[float] = 4.0
    fewest: ClassVar[int] = FEWEST_RUNS
    advice: ClassVar[str] = (
        "There is less noise than the claim needs. Check how the noise is set: sensitivity, clipping, number of "
        "columns, and which neighbours are claimed (--neighbours)."
    )
    uses_pilot: ClassVar[bool] = True

    def run(self, context: AttackContext) -> AttackResult:
        """Test the statistics that were best in the pilot."""
        return run_family(context, self.name, linear_statistics, _N_STATISTICS)
