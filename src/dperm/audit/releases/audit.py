"""Audits dperm's own releases: runs a case until its power suffices, then judges every release."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dperm.audit.releases.cases import AuditCase
from dperm.audit.releases.collector import ReleaseCollector, collecting
from dperm.audit.releases.judging import ReleaseResult, judge, n_tests, reused_noise
from dperm.audit.releases.whole_run import WHOLE_RUN, audit_whole_run
from dperm.audit.result import Verdict
from dperm.errors import MissingDependency, PlanViolation
from dperm.testing._violation import ContractViolation
from dperm.testing.replay import check_recorded

__all__ = ["CaseResult", "ReleaseAudit", "audit_case", "audit_releases"]

#: runs stop when noise of this factor is found with probability .95 in every release; half the noise then always is
POWER = 0.6
#: runs with and without a canary, of a solver as a whole: halved noise is then found in each
WHOLE_RUNS = 1000
#: most runs of one case
MOST_RUNS = 400
#: fewest releases with Gaussian noise, or runs: a fault in a few releases needs more of them than one in all does
_FEWEST_RELEASES, _FEWEST_RUNS = 250, 24
#: runs between two looks at the power, which depends on the number of measured values: see ``_enough``
_LOOK = 2
#: people in a replay of local reports: any few will do, as the report of each person has the same law
_FEW = 60
_NO_REPLAY = "sensitivities and totals on real neighbouring tables (install dperm[sgd])"


@dataclass(frozen=True)
class CaseResult:
    """What was found about one case.

    Attributes
    ----------
    case, family : str
    releases : tuple of ReleaseResult
    faults : tuple of str
        Violations of the form of a release, of the plan, or of a declared sensitivity; any is a violation.
    reached : dict of str to float
        Largest change of a release between real neighbours, in units of its declared sensitivity.
    runs : int
    seconds : float
    not_checked : tuple of str
        What could not be checked because an optional package is missing; nothing else is affected.
    """

    case: str
    family: str
    releases: tuple[ReleaseResult, ...]
    faults: tuple[str, ...]
    reached: dict[str, float]
    runs: int
    seconds: float
    not_checked: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict."""
        return Verdict.VIOLATION if self.faults else Verdict.worst(one.verdict for one in self.releases)

    @property
    def noise_factor(self) -> float:
        """The power of the release that was measured least, of those that could be measured."""
        measured = [one for one in self.releases if one.release != WHOLE_RUN and one.verdict is not Verdict.NOT_RUN]
        return min((one.noise_factor for one in measured), default=0.0)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Everything that was found, in words."""
        bad = (one for one in self.releases if one.verdict in (Verdict.VIOLATION, Verdict.WEAKNESS))
        return (*self.faults, *(f"{one.release}: {one.sentence}" for one in bad))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "case": self.case,
            "family": self.family,
            "verdict": str(self.verdict),
            "faults": list(self.faults),
            "reached": self.reached,
            "not_checked": list(self.not_checked),
            "runs": self.runs,
            "seconds": round(self.seconds, 2),
            "releases": [one.to_dict() for one in self.releases],
        }


@dataclass(frozen=True)
class ReleaseAudit:
    """The audit of several cases; a correct one is called a violation with probability at most 1 - confidence."""

    cases: tuple[CaseResult, ...]
    confidence: float
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """The worst verdict."""
        return Verdict.worst(one.verdict for one in self.cases)

    @property
    def not_measured(self) -> tuple[str, ...]:
        """Releases about which nothing is known, with the names of their cases; the case alone if it has none."""
        found = []
        for case in self.cases:
            found += [f"{case.case}: {one.release}" for one in case.releases if one.verdict is Verdict.NOT_RUN]
            found += [] if case.releases else [case.case]
        return tuple(found)

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What could not be checked because an optional package is missing."""
        return tuple(one for case in self.cases for one in case.not_checked)

    def sentence(self) -> str:
        """Return the verdict in words."""
        missing = self.not_measured
        unknown = f" Not measured: {', '.join(missing)}." if missing else ""
        unknown += "".join(f" Not checked: {one}." for one in dict.fromkeys(self.not_checked))
        if self.verdict is Verdict.VIOLATION:
            bad = [one.case for one in self.cases if one.verdict is Verdict.VIOLATION]
            return f"Releases do not have what was charged for them: {', '.join(bad)}.{unknown}"
        if all(one.verdict is Verdict.NOT_RUN for case in self.cases for one in case.releases):
            return f"No release was measured: nothing is known.{unknown}"
        every = "Every release" if not missing else "Every release that was measured"
        weak = [one.case for one in self.cases if one.verdict is Verdict.WEAKNESS]
        found = f" Some have more, which wastes accuracy: {', '.join(weak)}." if weak else ""
        return f"{every} has at least the noise that was charged for it.{self._power()}{found}{unknown}"

    def _power(self) -> str:
        measured = [case for case in self.cases if any(one.verdict is not Verdict.NOT_RUN for one in case.releases)]
        weakest = min((case.noise_factor for case in measured), default=0.0)
        if not weakest > 0.0:
            return " So few runs find no lack of noise in some of them, however large."
        return f" Noise {1.0 / weakest:.2g} times too small would have been found in any with probability .95."

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "format": "dperm audit of releases 1",
            "verdict": str(self.verdict),
            "sentence": self.sentence(),
            "confidence": self.confidence,
            "seconds": round(self.seconds, 2),
            "cases": [one.to_dict() for one in self.cases],
        }


def audit_case(
    case: AuditCase,
    *,
    confidence: float = 0.9999,
    power: float = POWER,
    n_runs: int | None = None,
    most_runs: int = MOST_RUNS,
    real_neighbours: bool = True,
    whole_runs: int = WHOLE_RUNS,
    seed: int = 0,
) -> CaseResult:
    """Audit every release of a case.

    Parameters
    ----------
    confidence : float
        A case that keeps its claims is called a violation with at most the rest of the probability.
    power : float
        Noise factor that is to be found in every release with probability .95; decides the number of runs.
    n_runs : int, optional
        Number of runs, instead.
    most_runs : int
        Most runs, whatever their power.
    real_neighbours : bool
        Also check the declared sensitivities on real neighbouring tables. They decide the noise and cannot be seen in
        it.
    whole_runs : int
        Runs with and without a canary of the attack on whole runs, for cases with a solver; 0 leaves it out.
    seed : int
        Of the audit's choices, not of the noise.
    """
    start = time.perf_counter()
    # the attack on whole runs has half of the probability of a false alarm
    alpha = (1.0 - confidence) / (2.0 if case.solver is not None and whole_runs else 1.0)
    collector = ReleaseCollector(case.neighbours, np.random.default_rng(seed), case.report_epsilon)
    faults: list[str] = []
    not_checked: list[str] = []
    runs = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if case.prepare is not None:
                case.prepare()
            while not _enough(collector, runs, alpha, power, n_runs, most_runs):
                with collecting(collector):
                    case.run()
                runs += 1
        except PlanViolation as error:
            faults.append(f"a run left its plan: {error}")
        except MissingDependency as error:
            return CaseResult(case.name, case.family, (), (), {}, 0, time.perf_counter() - start, (error.clause,))
        faults += sorted(collector.faults)
        reached: dict[str, float] = {}
        if real_neighbours:
            try:
                reached = _real_neighbours(case, seed)
            except ContractViolation as error:
                faults.append(str(error).rstrip("."))
            except MissingDependency:  # the noise is measured all the same
                not_checked.append(_NO_REPLAY)
        groups = collector.groups.values()
        share = alpha / max(n_tests(groups), 1)
        releases = [judge(case.name, group, share) for group in groups]
        shared = reused_noise(collector.sequence, share)
        if shared is not None:
            faults.append(shared)
        if not releases:
            faults.append("nothing was released, so nothing was audited")
        if case.solver is not None and whole_runs:
            releases.append(audit_whole_run(case.solver, n_runs=whole_runs, confidence=1.0 - alpha))
    return CaseResult(
        case.name,
        case.family,
        tuple(releases),
        tuple(faults),
        reached,
        runs,
        time.perf_counter() - start,
        tuple(not_checked),
    )


def audit_releases(
    cases: Iterable[AuditCase],
    *,
    confidence: float = 0.9999,
    power: float = POWER,
    real_neighbours: bool = True,
    whole_runs: int = WHOLE_RUNS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> ReleaseAudit:
    """Audit several cases, which share the probability of a false alarm."""
    start, chosen = time.perf_counter(), list(cases)
    each = 1.0 - (1.0 - confidence) / max(len(chosen), 1)
    results = []
    for number, case in enumerate(chosen):
        results.append(
            audit_case(
                case,
                confidence=each,
                power=power,
                real_neighbours=real_neighbours,
                whole_runs=whole_runs,
                seed=seed + number,
            )
        )
        if progress is not None:
            progress(number + 1, len(chosen))
    return ReleaseAudit(tuple(results), confidence, time.perf_counter() - start)


def _enough(
    collector: ReleaseCollector, runs: int, alpha: float, power: float, n_runs: int | None, most_runs: int
) -> bool:
    """Whether the planned runs are done, or every release is measured well enough.

    Of the outputs only one thing counts: how many choices and answers were one of the two sides that are compared.
    Given these numbers, which side it was has the law that is tested (``releases.proof.md``).
    """
    if n_runs is not None:
        return runs >= n_runs
    if runs >= most_runs:
        return True
    few = runs < _FEWEST_RUNS and len(collector.sequence) < _FEWEST_RELEASES
    if runs == 0 or (runs % _LOOK and runs > 1) or (collector.sequence and few):
        return False
    if not collector.groups:
        return True
    share = alpha / n_tests(collector.groups.values())
    return all(_power(group.measured.values(), share) >= power for group in collector.groups.values())


def _power(measured: Iterable[Any], share: float) -> float:
    return min((one.detectable(share) for one in measured if one.has_factor), default=1.0)


def _real_neighbours(case: AuditCase, seed: int) -> dict[str, float]:
    """Check declared sensitivities and totals on real neighbours; return how far each release moved."""
    if case.check_sensitivity is not None:
        return {"all": float(case.check_sensitivity())}
    if case.fit is None or case.table is None:
        return {}
    X, y = case.table
    few: Sequence[Any] = (X[:_FEW], y[:_FEW]) if case.family == "local" else (X, y)
    return dict(check_recorded(case.fit, *few, n_starts=2, n_climbs=2, seed=seed, check_noise=False).reached)
