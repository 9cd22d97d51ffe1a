"""Plans a search before any data are touched, and carries it out as one release. Proof: ``tuning.proof.md``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np

from dperm.data.executors.executor import PlacedData, TargetView
from dperm.data.executors.target_rules import ScaledTarget
from dperm.data.holding.holder import DataHolder
from dperm.errors import DpermError
from dperm.estimators.central.data_checks import TrainingData
from dperm.estimators.central.fit import SEEDED, FitResult, FitRun, Solved, check_settled, warn_caller
from dperm.estimators.central.plan import SearchSummary, summarise
from dperm.estimators.central.request import NUMBERS, FitRequest, PreparedFit, dry_run, prepare
from dperm.privacy.accounting import gdp
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease, smallest_scale
from dperm.privacy.accounting.events import Event, Gaussian, OneOf, RepeatAndSelect
from dperm.privacy.accounting.guarantee import Accounting
from dperm.privacy.ledger.scope import SearchScope
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.queries import CorrectPredictions, SquaredErrors

__all__ = ["Candidate", "SearchPlan", "SearchRun", "naming", "plan_search"]

Run = TypeVar("Run")

#: smallest epsilon of a run, so that its part of a tiny budget is still a budget
_LEAST_EPSILON = 1e-12


@dataclass(frozen=True)
class Candidate:
    """One setting of the public list, ready to run: a fit and its score, with their noise."""

    name: str
    prepared: PreparedFit
    score: type[CorrectPredictions] | type[SquaredErrors]


@dataclass(frozen=True)
class SearchPlan:
    """All candidates with noise such that the best of a random number of runs is within the budget."""

    budget: Budget
    candidates: tuple[Candidate, ...]
    expected_runs: float
    event: RepeatAndSelect

    def summary(self) -> SearchSummary:
        """Describe what the search would release."""
        return SearchSummary(
            estimator=self.candidates[0].prepared.request.estimator,
            budget=self.budget,
            epsilon=Accounting.of(self.event, self.budget.delta).epsilon,
            expected_runs=self.expected_runs,
            candidates=tuple((one.name, summarise(one.prepared)) for one in self.candidates),
        )

    def best_run(self, source: RandomSource, run: Callable[[int], tuple[Run, float]]) -> tuple[int, Run]:
        """Make a random number of runs; return the best one and the candidate that it drew. Nothing else is kept.

        ``run`` fits and scores the candidate of an index. Runs are independent: each draws a candidate, fits and scores
        it; after each the search ends with probability 1 / expected_runs, which draws their number from the geometric
        law exactly.
        """
        runs = Fraction(self.expected_runs)
        best: tuple[int, Run] | None = None
        best_score = -np.inf
        while best is None or source.below(runs.numerator) >= runs.denominator:
            index = source.below(len(self.candidates))
            found, score = run(index)
            if best is None or score > best_score:
                best, best_score = (index, found), score
        return best


@dataclass(frozen=True)
class _OneGaussianRun:
    """A search whose every run is one Gaussian release of noise multiplier ``scale``."""

    expected_runs: float

    def at(self, scale: float) -> Event:
        return RepeatAndSelect(Gaussian(scale), self.expected_runs)


@dataclass(frozen=True)
class _Scaled:
    """A search over calibrated plans, their noise multiplied by ``unit * scale``."""

    plans: tuple[CalibratedPlan, ...]
    expected_runs: float
    unit: float

    def factor(self, scale: float) -> float:
        return self.unit * scale

    def at(self, scale: float) -> RepeatAndSelect:
        events = tuple(dict.fromkeys(_louder(plan, self.factor(scale)).event for plan in self.plans))
        return RepeatAndSelect(events[0] if len(events) == 1 else OneOf(events), self.expected_runs)


def _louder(plan: CalibratedPlan, factor: float) -> CalibratedPlan:
    return replace(plan, scale=plan.scale * factor)


@contextmanager
def naming(candidate: str) -> Iterator[None]:
    """Let an error say which candidate is refused."""
    try:
        yield
    except DpermError as error:
        error.add_place(f"candidate {candidate}")
        raise


@lru_cache(maxsize=256)
def _multiplier_of_a_run(expected_runs: float, budget: Budget) -> float:
    return smallest_scale(_OneGaussianRun(expected_runs), budget)


@lru_cache(maxsize=64)
def _factor(plans: tuple[CalibratedPlan, ...], expected_runs: float, budget: Budget) -> float:
    scaled = _Scaled(plans, expected_runs, budget.mu)
    return scaled.factor(smallest_scale(scaled, budget))


def plan_search(
    requests: Sequence[tuple[str, FitRequest]],
    n: int,
    n_features: int,
    budget: Budget,
    expected_runs: float,
    score_share: float,
) -> SearchPlan:
    """Plan and calibrate every candidate so that the whole search fits the budget; from public numbers only.

    A run is given the part of mu that a search over single Gaussian releases would leave it, ``score_share`` of its
    square for the score. One common factor then corrects for other kinds of noise, which cost more or less.
    """
    mu = 1.0 / _multiplier_of_a_run(expected_runs, budget)
    own = max(gdp.epsilon_of(mu * (1.0 - score_share) ** 0.5, budget.delta), _LEAST_EPSILON)
    score_multiplier = 1.0 / (mu * score_share**0.5)
    candidates = []
    for name, request in requests:
        with naming(name):
            # without progress: the steps of runs would show their number, which is not released
            asked = replace(request, budget_epsilon=own, budget_delta=budget.delta, progress=None, reading=None)
            prepared = prepare(asked, n, n_features)
        score = SquaredErrors if request.target == NUMBERS else CorrectPredictions
        # a group's multiplier is scale sqrt(count / share): this share gives the score its own
        share = (prepared.calibrated.scale / score_multiplier) ** 2
        plan = prepared.calibrated.plan + Plan((PlannedRelease(score.name, "gaussian", 1, share),))
        candidates.append(Candidate(name, replace(prepared, calibrated=replace(prepared.calibrated, plan=plan)), score))
    plans = tuple(dict.fromkeys(one.prepared.calibrated for one in candidates))
    factor = _factor(plans, expected_runs, budget)
    made = tuple(_with_noise(one, factor) for one in candidates)
    event = _Scaled(tuple(one.prepared.calibrated for one in made), expected_runs, 1.0).at(1.0)
    return SearchPlan(budget, made, expected_runs, event)


def _with_noise(candidate: Candidate, factor: float) -> Candidate:
    """Multiply the noise of a candidate by a factor, and dry-run it."""
    prepared = candidate.prepared
    calibrated, for_solver = _louder(prepared.calibrated, factor), _louder(prepared.for_solver, factor)
    with naming(candidate.name):
        dry_run(replace(prepared, calibrated=for_solver, for_solver=for_solver))
        _score_noise(candidate, calibrated).noise_scale(*_score_numbers(candidate), 1)
    return replace(candidate, prepared=replace(prepared, calibrated=calibrated, for_solver=for_solver))


def _score_noise(candidate: Candidate, calibrated: CalibratedPlan) -> GaussianNoise:
    return GaussianNoise(calibrated.noise_multiplier(candidate.score.name))


def _score_numbers(candidate: Candidate) -> tuple[float, float]:
    """Sensitivity and bound of the score, for the dry run."""
    facts = candidate.prepared.facts
    query = candidate.score(np.zeros(facts.d))
    return query.sensitivity(facts, candidate.prepared.request.neighbours), query.bound(facts)


class SearchRun:
    """One search with its plan, its data and its noise; every candidate is a :class:`FitRun`."""

    def __init__(self, plan: SearchPlan, data: TrainingData, source: RandomSource) -> None:
        self.plan, self.data, self.source = plan, data, source

    @cached_property
    def fits(self) -> tuple[FitRun, ...]:
        """One fit for each candidate."""
        return tuple(FitRun(one.prepared, self.data, self.source) for one in self.plan.candidates)

    def search(self) -> tuple[int, FitResult]:
        """Carry out the whole search; return its best model and the index of the candidate that it is of."""
        self.scale_declared()
        texts = (text for one in self.plan.candidates for text in one.prepared.utility_warnings)
        warn_caller(dict.fromkeys(texts))  # before anything is charged
        with self.reserve() as scope:
            index, solved = self.plan.best_run(self.source, lambda index: self.fit_and_score(index, scope))
        check_settled(scope)
        warn_caller(solved.notes)
        return index, self._winner(index).result(scope, solved)

    def scale_declared(self) -> None:
        """Scale the rows with the declared bounds of every candidate; equal ones are scaled once."""
        for candidate, fit in zip(self.plan.candidates, self.fits, strict=True):
            with naming(candidate.name):
                fit.scale_declared([one.scaled for one in self.fits if one.scaled is not None])

    def reserve(self) -> SearchScope:
        """Reserve the whole search in the ledger as one event."""
        first = self.fits[0]
        return SearchScope(
            self.plan.event,
            first.ledger,
            first.request.neighbours,
            f"DPTuner of {first.request.estimator}",
            fingerprint=self.data.fingerprint(first.request.ledger),
            unbounded=None if self.source.secure else SEEDED,
        )

    def fit_and_score(self, index: int, scope: SearchScope) -> tuple[Solved, float]:
        """Fit one candidate and score it with noise; every release is checked against the candidate's plan."""
        candidate, fit = self.plan.candidates[index], self.fits[index]
        calibrated = candidate.prepared.calibrated
        with scope.run(calibrated) as inner:
            solved = fit.solve(inner)
            holder = DataHolder(self._scored(fit, solved), inner, self.source, fit.request.neighbours)
            noise = _score_noise(candidate, calibrated)
            score = float(holder.release(candidate.score(solved.weights), noise)[0])
        return replace(solved, released=(*solved.released, *holder.released)), score

    def _scored(self, fit: FitRun, solved: Solved) -> PlacedData:
        """Return the data that a score reads: all rows, with one target for all classes."""
        if solved.target_range is not None:
            view = TargetView(*fit.request.target_ends, ScaledTarget(solved.target_range))
        else:
            view = TargetView(0.0, fit.request.n_classes - 1.0)
        return PlacedData(solved.rows, view)

    def _winner(self, index: int) -> FitRun:
        """Return the fit of a candidate with the budget of the whole search, for its report."""
        prepared, budget = self.plan.candidates[index].prepared, self.plan.budget
        request = replace(prepared.request, budget_epsilon=budget.epsilon, budget_delta=budget.delta)
        return FitRun(prepared.keeping_forecast(request=request, budget=budget), self.data, self.source)
