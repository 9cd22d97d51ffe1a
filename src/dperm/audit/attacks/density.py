"""Densities of up to three parameters, and single values that occur again: leaks that no threshold shows."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from dperm.audit.attacks.base import Attack, AttackContext
from dperm.audit.attacks.judging import judge, run_family
from dperm.audit.pilot import FEWEST_RUNS
from dperm.audit.result import AttackResult, Verdict
from dperm.audit.statistics import atom_statistic, density_statistics

__all__ = ["DensityAttack"]

#: partitions that share the confidence in the test
_N_STATISTICS = 2
#: part of the fresh runs that adds to the list of known values; the rest is tested
_LISTED = 0.2


class DensityAttack(Attack):
    """Learns a partition of the space of outputs and compares the probabilities of its cells with the claim.

    Single values are cells of their own: a method that releases the exact result in one of 500 runs moves no quantile,
    but the same value, bit for bit, occurs again on one table and never on its neighbour.
    """

    name: ClassVar[str] = "density"
    about: ClassVar[str] = "probabilities of regions of up to three parameters and of single values that occur again"
    share: ClassVar[float] = 2.0
    fewest: ClassVar[int] = FEWEST_RUNS
    advice: ClassVar[str] = (
        "Some results are much more likely on one table than on its neighbour. Check the kind of noise, values "
        "that are clipped or left out after the noise, and exact results that slip through."
    )
    uses_pilot: ClassVar[bool] = True

    def run(self, context: AttackContext) -> AttackResult:
        """Test the partition that was best in the pilot, and values that were seen before."""
        half = replace(context, confidence=1.0 - 0.5 * (1.0 - context.confidence))
        cells = run_family(half, self.name, density_statistics, _N_STATISTICS)
        again = self._again(half)
        return again if again is not None and cells.verdict is not Verdict.VIOLATION else cells

    def _again(self, context: AttackContext) -> AttackResult | None:
        """Return what values that occur again prove; None if that is nothing."""
        pair = context.pilot.choose(density_statistics, 1).pair
        first, second = context.pilot.fresh(pair, context.n_runs)
        n_listed = int(_LISTED * len(first))
        seen = context.pilot.seen(pair)
        statistic = atom_statistic(*((*old, *new[:n_listed]) for old, new in zip(seen, (first, second), strict=True)))
        one, two = (statistic.of(side[n_listed:]) for side in (first, second))
        found = judge(statistic.name, one, two, context.claim, context.confidence)
        if not found.violation:
            return None
        sentence = f"{found.violation.rstrip('.')}; {found.statistic}, when {pair.changed}."
        return AttackResult(self.name, Verdict.VIOLATION, sentence, epsilon=found.epsilon, method=found.best.method)
