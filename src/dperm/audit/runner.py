"""Runs an audit: divides time and confidence among the attacks, and collects what they find."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from dperm.audit.attacks import ATTACKS, Attack, AttackContext
from dperm.audit.attacks.base import SharedPilot
from dperm.audit.claim import Claim
from dperm.audit.pilot import FEWEST_RUNS, Pilot
from dperm.audit.pool import Limits, Pool, Subject
from dperm.audit.result import PREPARATION, AttackResult, AuditResult, Verdict
from dperm.audit.tables import PublicFacts, TablePair, candidate_pairs
from dperm.errors import InvalidInput, SubjectFailed
from dperm.types import FloatArray

__all__ = ["AuditSettings", "Told", "run_audit"]

#: the pilot's share of the runs, in the units of ``Attack.share``: the choice of a pair matters more than a few runs
_PILOT_SHARE = 3.0
#: part of the time that is planned for runs; the rest is for statistics and for runs that take longer than before
_PLANNED = 0.85
#: most runs in all: more would take longer to evaluate than to make, and prove little more
_MOST_RUNS = 150_000
#: first runs of each process, as long as two processes give the same results: so many pairs of runs prove it
_WARM_UP = 8
#: fewest runs before the first attack: two in each of two processes, and two on the neighbour
_FEWEST_BEFORE = 6
#: part of the time that is kept for attacks, however long the processes take to start
_KEPT = 0.5
#: an audit with fewer runs than this is hurried: an attack of ten runs would take a tenth of them
_HURRIED = 100


@dataclass(frozen=True)
class AuditSettings:
    """How an audit runs.

    Attributes
    ----------
    attacks : tuple of str
        Names in ``ATTACKS``.
    confidence : float
        A correct claim passes with at least this probability, over all attacks together.
    seconds : float
        Time that the audit may take, about; at least half of it is kept for attacks if the processes start slowly.
    runs : int or None
        Number of runs instead of a time: the result then does not depend on the speed of the machine.
    n_workers : int
        Processes.
    timeout : float
        Seconds that one run may take.
    in_range : bool
        Leave out records outside the declared ranges.
    seed : int
        Of the audit's own choices; the noise of the audited function is its own.
    """

    attacks: tuple[str, ...] = tuple(ATTACKS)
    confidence: float = 0.9999
    seconds: float = 120.0
    runs: int | None = None
    n_workers: int = 2
    timeout: float = 60.0
    in_range: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [name for name in self.attacks if name not in ATTACKS]
        if unknown or not self.attacks:
            raise InvalidInput(f"--attacks must be among {', '.join(ATTACKS)}, not {', '.join(unknown) or 'empty'}.")
        if not 0.5 <= self.confidence < 1.0:
            raise InvalidInput(f"--confidence must be at least 0.5 and below 1, not {self.confidence!r}.")
        limits = {
            "--seconds": self.seconds,
            "--timeout": self.timeout,
            "--workers": self.n_workers,
            "--runs": self.runs,
        }
        for option, value in limits.items():
            if value is not None and not value > 0:
                raise InvalidInput(f"{option} must be above 0, not {value!r}.")
        if self.runs is not None and self.runs < self.fewest_runs:
            raise InvalidInput(f"--runs {self.runs} are too few: these attacks need {self.fewest_runs} or more.")

    @property
    def fewest_runs(self) -> int:
        """Fewest runs with which every attack can say something."""
        chosen = [ATTACKS[name] for name in self.attacks]
        return _FEWEST_BEFORE + sum(one.fewest for one in chosen) + FEWEST_RUNS * any(one.uses_pilot for one in chosen)


@dataclass(frozen=True)
class Told:
    """Takes what an audit does while it runs.

    Attributes
    ----------
    progress : callable
        Called with (done, in all), in thousandths of the time or in runs.
    step : callable
        Called with the name of a step when it begins.
    note : callable
        Called with a sentence that the person who waits should know.
    """

    progress: Callable[[int, int], None] = lambda done, in_all: None
    step: Callable[[str], None] = lambda sentence: None
    note: Callable[[str], None] = lambda sentence: None


def run_audit(
    subject: Subject,
    claim: Claim,
    facts: PublicFacts,
    settings: AuditSettings | None = None,
    *,
    name: str | None = None,
    tell: Told | None = None,
) -> AuditResult:
    """Audit a function.

    Parameters
    ----------
    subject : Subject
        The function and its environment.
    claim : Claim
        What it claims.
    facts : PublicFacts
        What it may know about its tables.
    settings : AuditSettings
    name : str, optional
        Name for readers.
    tell : Told, optional
        Gets what the audit does while it runs.
    """
    settings, tell = settings or AuditSettings(), tell or Told()
    started = time.perf_counter()
    pairs = candidate_pairs(facts, claim.neighbours, in_range=settings.in_range)
    attacks = [attack for key, attack in ATTACKS.items() if key in settings.attacks]
    whole = settings.seconds if settings.runs is None else math.inf
    limits = Limits(settings.timeout, whole, tell.note)
    with Pool(subject, n_workers=settings.n_workers, limits=limits) as pool:
        pairs, first_runs = _warm_up(pool, pairs)
        clock = _Clock(pool, settings, started)
        pool.progress = lambda n_runs: tell.progress(*clock.done())
        left = [attack.share for attack in attacks] + [_PILOT_SHARE] * any(one.uses_pilot for one in attacks)
        shared = SharedPilot(lambda: Pilot(pool, pairs, claim, clock.runs_for(_PILOT_SHARE, left)))
        prepared = _Preparation(pool, started)
        results: list[AttackResult] = []
        for attack in attacks:
            if attack.uses_pilot and _PILOT_SHARE in left:
                tell.step(f"preparing: trying pairs of tables ({clock.shown()})")
                prepared.add(shared)  # before the runs of the attack are counted
                left.remove(_PILOT_SHARE)
            tell.step(f"{attack.name} ({clock.shown()})")
            together = attack.uses_pilot and shared.one_pair
            context = AttackContext(
                pool=pool,
                claim=claim,
                facts=facts,
                pairs=pairs,
                first_runs=first_runs,
                confidence=1.0 - (1.0 - settings.confidence) / len(attacks),
                n_runs=clock.runs_for(sum(left) if together else attack.share, left),
                rng=np.random.default_rng([settings.seed, len(results)]),
                shared_pilot=shared,
                counted=settings.runs is not None,
                hurried=len(attacks) > 1 and settings.runs is None and clock.runs_for(1.0, [1.0]) < _HURRIED,
            )
            results.append(_timed(attack, context))
            left.remove(attack.share)
    seconds = time.perf_counter() - started
    return AuditResult(
        name or subject.name, claim, facts, settings.confidence, results, seconds, pool.n_runs, prepared.result
    )


def _warm_up(pool: Pool, pairs: list[TablePair]) -> tuple[list[TablePair], list[FloatArray]]:
    """Run a few times, so that the time of a run is known; return the pairs with one that works first.

    A function may fail on one table of every pair, and that may be a leak: then one with a table that works is first.
    """
    failed: SubjectFailed | None = None
    half: tuple[list[TablePair], list[FloatArray]] | None = None
    for k, pair in enumerate(pairs):
        rest = [*pairs[:k], *pairs[k + 1 :]]
        first_runs: list[FloatArray] | None = None
        try:
            first_runs = pool.first_runs(pair.first, _WARM_UP)
            pool.outputs(pair.second, 2)
        except SubjectFailed as error:
            if not error.raised:
                raise
            failed = failed or _explained(error, pair)
            half = half or (None if first_runs is None else ([pair, *rest], first_runs))
        else:
            return [pair, *rest], first_runs
    assert failed is not None
    if half is None:
        for k, pair in enumerate(pairs):
            with suppress(SubjectFailed):
                return [pair.turned(), *pairs[:k], *pairs[k + 1 :]], pool.first_runs(pair.second, _WARM_UP)
        raise failed
    return half


def _explained(error: SubjectFailed, pair: TablePair) -> SubjectFailed:
    """Say on which table a function failed first, and what to do: this is shown if it fails on all of them."""
    rows, columns = pair.first.X.shape
    return SubjectFailed(
        f"{error.clause}; it fails on every table of the audit, first on {rows} rows and {columns} columns, when "
        f"{pair.changed}. Call it on such a table yourself, or say with --rows, --features, --range, --classes or "
        "--target-range which tables it takes.",
        raised=True,
    )


def _timed(attack: Attack, context: AttackContext) -> AttackResult:
    runs, start, speed = context.pool.n_runs, time.perf_counter(), context.pool.seconds_per_run
    try:
        result = attack.run(context)
    except SubjectFailed as error:
        if not error.raised:
            raise
        # on some table only, else no attack would run: side-channels looks at that
        result = AttackResult(attack.name, Verdict.NOT_RUN, f"The function failed on a table: {error}")
    if attack.other_tables:
        context.pool.seconds_per_run = speed
    if result.verdict is Verdict.VIOLATION:
        result = replace(result, advice=attack.advice)
    return replace(result, runs=context.pool.n_runs - runs, seconds=time.perf_counter() - start)


class _Preparation:
    """Adds up the runs and the time of what all attacks share."""

    def __init__(self, pool: Pool, started: float) -> None:
        self._pool, self._runs, self._seconds = pool, pool.n_runs, time.perf_counter() - started

    def add(self, shared: SharedPilot) -> None:
        """Make the pilot."""
        runs, start = self._pool.n_runs, time.perf_counter()
        shared.make()
        self._runs += self._pool.n_runs - runs
        self._seconds += time.perf_counter() - start

    @property
    def result(self) -> AttackResult:
        """Runs and time, as a line of the table."""
        about = "Start of the processes, and the pilot that chooses tables and statistics."
        return AttackResult(PREPARATION, Verdict.NOTHING, about, runs=self._runs, seconds=self._seconds)


class _Clock:
    """Says how many runs are left."""

    def __init__(self, pool: Pool, settings: AuditSettings, started: float) -> None:
        self._pool, self._settings, self._now = pool, settings, time.perf_counter()
        self._seconds = max(settings.seconds - (self._now - started), _KEPT * settings.seconds)

    def done(self) -> tuple[int, int]:
        """Return how much is done, of how much."""
        if self._settings.runs is not None:
            return min(self._pool.n_runs, self._settings.runs), self._settings.runs
        part = (time.perf_counter() - self._now) / self._seconds
        return int(1000 * min(part, 1.0)), 1000

    def shown(self) -> str:
        """Return how much is done, in words."""
        done, in_all = self.done()
        return f"{done / in_all:.0%} done"

    def runs_for(self, share: float, left: Sequence[float]) -> int:
        """Return the runs for an attack, of what is left for it and those after it."""
        if self._settings.runs is not None:
            remaining = float(self._settings.runs - self._pool.n_runs)
        else:
            seconds = _PLANNED * self._seconds - (time.perf_counter() - self._now)
            remaining = seconds * self._settings.n_workers / max(self._pool.seconds_per_run, 1e-6)
            remaining = min(remaining, _MOST_RUNS - self._pool.n_runs)
        return max(int(remaining * share / sum(left)), 1)
