"""Record a run, recompute its cost independently, and repeat it on neighbouring data."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dperm.errors import InvalidInput, UtilityWarning
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.local.registry import LOCAL_REPORTS
from dperm.privacy.randomness import RandomSource
from dperm.privacy.recording import PublicRelease, RecordedReports, Recorder, recording
from dperm.queries import CorrectPredictions, SquaredErrors
from dperm.testing._violation import ContractViolation, demand
from dperm.testing.local import check_local_report
from dperm.testing.registered import demand_registered, demand_registered_query
from dperm.testing.repeatable_noise import keys_named
from dperm.testing.replay.neighbours import PersonRecord, Space, climb, extreme_pairs
from dperm.testing.replay.noise import check_drawn_noise, check_events
from dperm.testing.replay.replayer import Replayer
from dperm.testing.replay.searches import independent_search_total
from dperm.testing.replay.totals import IndependentTotal, check_claim, independent_total

__all__ = ["ClaimedTotal", "RecordedCheck", "check_recorded", "check_run", "claim_of"]

#: releases that end one run of a search
_SCORES = (CorrectPredictions.name, SquaredErrors.name)
#: rounding of the norm of a difference; values and sensitivities are exact or rounded outward
_ROUNDING = 1e-12

Fit = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class ClaimedTotal:
    """What a run says about itself."""

    epsilon: float
    delta: float
    neighbours: Neighbours
    #: mean number of runs of a search, None if it is no search
    expected_runs: float | None = None
    #: number of releases by name, None if the result does not say
    counts: Counter[str] | None = None
    #: number of people, None if the result does not say
    n_records: int | None = None


@dataclass(frozen=True)
class RecordedCheck:
    """Result of a check that found nothing wrong; all of it is public.

    Attributes
    ----------
    log : tuple of PublicRelease
        The releases of the first recorded run.
    total : IndependentTotal or None
        Independent bounds on its epsilon; None for local reports, whose cost is checked person by person.
    claim : ClaimedTotal
        What the run claims.
    reached : dict of str to float
        For every release by name, the largest change found, in units of what its sensitivity allows.
    n_replays : int
        Number of neighbouring tables tried.
    """

    log: tuple[PublicRelease, ...]
    total: IndependentTotal | None
    claim: ClaimedTotal
    reached: dict[str, float] = field(default_factory=dict)
    n_replays: int = 0

    def __str__(self) -> str:
        lines = [f"claimed epsilon {self.claim.epsilon:.6g} at delta {self.claim.delta:.3g} ({self.claim.neighbours})"]
        if self.total is not None:
            lines.append(f"independent: at least {self.total.lower:.6g}, at most {self.total.upper:.6g}")
        lines += [f"{name}: moved by {ratio:.3f} of its sensitivity" for name, ratio in self.reached.items()]
        return "\n".join([*lines, f"{self.n_replays} neighbouring tables"])


def claim_of(result: Any) -> ClaimedTotal:
    """Return the claim of a fitted estimator, a result with a report, or a paid score."""
    report = getattr(result, "privacy_report_", None) or getattr(result, "report", None)
    if report is None and hasattr(result, "budget"):
        return ClaimedTotal(result.budget.epsilon, result.budget.delta, Neighbours.REPLACE_ONE)
    if report is None:
        raise InvalidInput("the run must return a fitted estimator or say what it claims: give claim=.")
    if report.guarantee is None:
        raise InvalidInput(f"the run claims no guarantee, so there is nothing to compare: {report.reason}")
    search = report.public.get("search")
    counts = None if search else Counter({line.query: line.count - line.forfeited for line in report.releases})
    return ClaimedTotal(
        report.guarantee.epsilon,
        report.guarantee.delta,
        report.guarantee.neighbours,
        None if search is None else float(search["expected_runs"]),
        counts,
        report.public.get("records", report.public.get("people")),
    )


def check_recorded(
    fit: Fit,
    X: Any,
    y: Any,
    *,
    claim: Callable[[Any], ClaimedTotal] = claim_of,
    n_starts: int = 2,
    n_climbs: int = 4,
    seed: int = 0,
    check_noise: bool = True,
) -> RecordedCheck:
    """Check everything that a run released, on data that its user may see.

    Records ``fit(X, y)`` with one person's record at its extremes. Demands that queries and mechanisms are
    registered ones, that charges and releases correspond, that each event states the noise that the release has, and
    that the claimed epsilon agrees with an independent calculation from the log (:mod:`~dperm.testing.replay.totals`).
    Then repeats the run on neighbouring tables with the recorded outputs: the same releases must be made, and none may
    change by more than its sensitivity.

    Parameters
    ----------
    fit : callable
        ``fit(X, y)`` returns a fitted estimator, or anything of which ``claim`` knows what it claims. It is called many
        times and must not use a ledger that matters.
    X, y : arrays
        A table; small ones do.
    claim : callable
        Returns the :class:`ClaimedTotal` of a result.
    n_starts, n_climbs : int
        How many records are planted, each with about ten replacements, and how many more are tried by climbing.
    check_noise : bool
        Whether the mechanisms' noise is measured too.

    Examples
    --------
    >>> import numpy as np
    >>> from dperm import Bounds, DPLinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, 40)
    >>> model = DPLinearRegression(epsilon=1.0, bounds=Bounds(features=(-1, 1), target=(-1, 1)))
    >>> found = check_recorded(model.fit, X, y, n_starts=1, n_climbs=0)
    >>> max(found.reached.values()) <= 1.0 and found.total.lower <= 1.0
    True
    """
    X, y = np.array(X, np.float64), np.array(y)
    rng = np.random.default_rng(seed)
    space, person = Space.of(X, y), int(rng.integers(len(X)))
    key = RandomSource().words(4).tobytes().hex()
    reached: dict[str, float] = {}
    first: RecordedCheck | None = None
    n_replays = 0
    for planted, replacements in extreme_pairs(space, rng, n_starts):
        table = planted.planted(X, y, person)
        with _quietly(key), recording() as recorder:
            result = fit(*table)
        found = claim(result)
        if first is None or (list(first.log), first.claim) != (recorder.public_log(), found) or recorder.reports:
            checked = check_run(recorder, found, check_noise=check_noise and first is None)
            first = first or checked

        def ratios(
            record: PersonRecord, recorder: Recorder = recorder, found: ClaimedTotal = found
        ) -> dict[str, float]:
            nonlocal n_replays
            n_replays += 1
            changes = _replay(fit, record.planted(X, y, person), recorder, person, found.neighbours, key)
            for name, ratio in changes.items():
                reached[name] = max(reached.get(name, 0.0), ratio)
            return changes

        scores = [sum(ratios(one).values()) for one in replacements]
        climb(space, rng, replacements[int(np.argmax(scores))], ratios, n_climbs)
    assert first is not None
    return RecordedCheck(first.log, first.total, first.claim, reached, n_replays)


def check_run(recorder: Recorder, claim: ClaimedTotal, *, check_noise: bool = True) -> RecordedCheck:
    """Check the record of one run: charges, events, noise, and the claimed total."""
    entries, log = recorder.releases, recorder.public_log()
    demand(bool(entries or recorder.reports), "the run released nothing, so nothing was checked.")
    charged, made = Counter(recorder.charges), Counter((one.query, one.event) for one in entries if one.charged)
    for (query, _), count in (charged - made).items():
        raise ContractViolation(f"{count} charges of {query!r} have no release in the log.")
    for one in entries:
        demand_registered(one.mechanism)
        if one.asked is not None:
            demand_registered_query(one.asked)
    check_events(entries)
    log = _joined(log, claim)
    if claim.counts is not None and entries:  # reports of local models count people
        counts = Counter[str]()
        for line in log:
            counts[line.query] += line.units
        demand(counts == +claim.counts, "the report counts other releases than were made.")
    if recorder.reports:
        _check_reports(recorder.reports, claim, check_noise=check_noise)
    if not entries:
        return RecordedCheck((), None, claim)
    if claim.expected_runs is None:
        total = independent_total(log, claim.delta)
        check_claim(claim.epsilon, total)
    else:
        total = independent_search_total(_runs(log), claim.expected_runs, claim.delta)
        check_claim(claim.epsilon, total, complete=False)
    if check_noise:
        check_drawn_noise(entries)
    return RecordedCheck(tuple(log), total, claim)


def _joined(log: Sequence[PublicRelease], claim: ClaimedTotal) -> list[PublicRelease]:
    """Leave one of the parts that several participants make of one joint selection: together they cost one."""
    parts = Counter(one.query for one in log if one.kind == "joint selection")
    left: Counter[str] = Counter()
    for query, n_parts in parts.items():
        rounds = 0 if claim.counts is None else claim.counts[query]
        demand(rounds > 0 and n_parts % rounds == 0, f"the parts of {query!r} do not belong to {rounds} selections.")
        left[query] = rounds
    out = []
    for one in log:
        if one.query not in parts:
            out.append(one)
        elif left[one.query]:
            left[one.query] -= 1
            out.append(one)
    return out


def _runs(log: Sequence[PublicRelease]) -> list[list[PublicRelease]]:
    """Split the log of a search at the scores that end its runs."""
    runs: list[list[PublicRelease]] = [[]]
    for one in log:
        runs[-1].append(one)
        if one.query in _SCORES:
            runs.append([])
    demand(not runs.pop(), "the last run of the search has no score.")
    return runs


def _check_reports(reports: Sequence[RecordedReports], claim: ClaimedTotal, *, check_noise: bool) -> None:
    """Demand that nobody reports twice and no report has a larger likelihood ratio than the claim; exact."""
    if claim.n_records is not None:
        n_reports = sum(one.n_people for one in reports)
        demand(n_reports <= claim.n_records, f"{claim.n_records} people sent {n_reports} reports.")
    for kind in dict.fromkeys(one.kind for one in reports):
        name = type(kind).__name__
        for high, low in _likelihoods(kind):
            demand(
                math.log(high) - math.log(low) <= claim.epsilon * (1.0 + 1e-12),
                f"a {name} report has a likelihood ratio above the claimed epsilon.",
            )
        if check_noise and isinstance(kind, tuple(LOCAL_REPORTS.values())):
            check_local_report(kind, n_samples=20_000)


def _likelihoods(kind: Any) -> Iterator[tuple[int, int]]:
    """Yield pairs of likelihoods of one answer, for two extreme values; whole numbers."""
    yield kind.ratio
    if hasattr(kind, "law"):
        values = (0, kind.n_categories - 1) if hasattr(kind, "n_categories") else (-1.0, 1.0)
        laws = [kind.law(value) for value in values]
        for one, two in (laws, laws[::-1]):
            yield from zip(one, two, strict=True)


def _replay(
    fit: Fit, table: tuple[Any, Any], recorder: Recorder, person: int, neighbours: Neighbours, key: str
) -> dict[str, float]:
    """Repeat a recorded run on a neighbouring table; return the largest change of each release by name."""
    replayer = Replayer(recorder, person, neighbours)
    with _quietly(key), recording(replayer):
        fit(*table)
    replayer.finish()
    largest: dict[str, float] = {}
    for entry, ratio in zip(recorder.releases, replayer.changes, strict=True):
        demand(
            ratio <= 1.0 + _ROUNDING,
            f"replacing one person changes {entry.query!r} by {ratio:.6g} times what its sensitivity allows.",
        )
        largest[entry.query] = max(largest.get(entry.query, 0.0), ratio)
    return largest


@contextmanager
def _quietly(key: str) -> Iterator[None]:
    """Repeat public draws, and leave out warnings that a fit on a small table has little use."""
    with keys_named(key), warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        yield
