"""The floating-point grid: which numbers can be released at all may depend on the value under the noise."""

from __future__ import annotations

from typing import ClassVar

from dperm.audit.attacks.base import Attack, AttackContext
from dperm.audit.attacks.judging import run_family
from dperm.audit.pilot import FEWEST_RUNS
from dperm.audit.result import AttackResult
from dperm.audit.statistics import bit_statistics

__all__ = ["FloatGridAttack"]

_N_STATISTICS = 2


class FloatGridAttack(Attack):
    """Compares the low-order bits of released numbers (Mironov 2012)."""

    name: ClassVar[str] = "float-grid"
    about: ClassVar[str] = "low-order bits of the released numbers (Mironov 2012)"
    share: ClassVar[float] = 2.0
    fewest: ClassVar[int] = FEWEST_RUNS
    advice: ClassVar[str] = (
        "The amount of noise may be right. Noise in floating-point numbers leaves traces in the last bits, and "
        "these tell the tables apart: use noise that is drawn on a grid."
    )
    uses_pilot: ClassVar[bool] = True

    def run(self, context: AttackContext) -> AttackResult:
        """Test the statistics of bits that were best in the pilot."""
        return run_family(context, self.name, bit_statistics, _N_STATISTICS)
