"""Repeat and select: a search planned before any data, and carried out as one release. Proof: ``tuning.proof.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.holding.holder import DataHolder, DesignData
from dperm.errors import DpermError
from dperm.estimators.central.fit import Solved, solve
from dperm.estimators.central.request import NUMBERS, FitRequest, PreparedFit, dry_run, prepare
from dperm.privacy.accounting import gdp
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease, smallest_scale
from dperm.privacy.accounting.events import Event, Gaussian, OneOf, RepeatAndSelect
from dperm.privacy.ledger.scope import SearchScope
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.queries import CorrectPredictions, SquaredErrors
from dperm.types import FloatArray

__all__ = ["Candidate", "SearchPlan", "naming", "plan_search", "search"]


_LEAST_EPSILON = 1e-12


@dataclass(frozen=True)
class Candidate:
    """One setting of the public list, ready to run: a fit and its score, with their noise."""

    name: str
    request: FitRequest
    prepared: PreparedFit
    score: type[CorrectPredictions] | type[SquaredErrors]


@dataclass(frozen=True)
class SearchPlan:
    """All candidates with noise such that the best of a random number of runs is within the budget."""

    budget: Budget
    candidates: tuple[Candidate, ...]
    expected_runs: float
    event: RepeatAndSelect


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
    """Say which candidate is refused."""
    try:
        yield
    except DpermError as error:
        raise type(error)(f"candidate {candidate}: {error}") from None


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
    square for the score. What other kinds of noise cost more or less is then settled by one common factor.
    """
    mu = 1.0 / _multiplier_of_a_run(expected_runs, budget)
    own = max(gdp.epsilon_of(mu * (1.0 - score_share) ** 0.5, budget.delta), _LEAST_EPSILON)
    score_multiplier = 1.0 / (mu * score_share**0.5)
    candidates = []
    for name, request in requests:
        with naming(name):
            prepared = prepare(replace(request, budget_epsilon=own, budget_delta=budget.delta), n, n_features)
        score = SquaredErrors if request.target == NUMBERS else CorrectPredictions
        # a group's multiplier is scale sqrt(count / share): this share gives the score its own
        share = (prepared.calibrated.scale / score_multiplier) ** 2
        plan = prepared.calibrated.plan + Plan((PlannedRelease(score.name, "gaussian", 1, share),))
        candidates.append(
            Candidate(name, request, replace(prepared, calibrated=replace(prepared.calibrated, plan=plan)), score)
        )
    plans = tuple(dict.fromkeys(one.prepared.calibrated for one in candidates))
    factor = _factor(plans, expected_runs, budget)
    made = tuple(_with_noise(one, factor) for one in candidates)
    event = _Scaled(tuple(one.prepared.calibrated for one in made), expected_runs, 1.0).at(1.0)
    return SearchPlan(budget, made, expected_runs, event)


def _with_noise(candidate: Candidate, factor: float) -> Candidate:
    """Multiply the noise of a candidate, and try it without data."""
    prepared = candidate.prepared
    calibrated, for_solver = _louder(prepared.calibrated, factor), _louder(prepared.for_solver, factor)
    with naming(candidate.name):
        dry_run(candidate.request, replace(prepared, calibrated=for_solver, for_solver=for_solver))
        _score_noise(candidate, calibrated).noise_scale(*_score_numbers(candidate), 1)
    return replace(candidate, prepared=replace(prepared, calibrated=calibrated, for_solver=for_solver))


def _score_noise(candidate: Candidate, calibrated: CalibratedPlan) -> GaussianNoise:
    return GaussianNoise(calibrated.noise_multiplier(candidate.score.name))


def _score_numbers(candidate: Candidate) -> tuple[float, float]:
    """Sensitivity and bound of the score, for the trial."""
    facts = candidate.prepared.facts
    query = candidate.score(np.zeros(facts.d))
    return query.sensitivity(facts, candidate.request.neighbours), query.bound(facts)


def search(
    plan: SearchPlan,
    scope: SearchScope,
    source: RandomSource,
    X: Any,
    target: FloatArray,
    designs: Sequence[tuple[Scaling, DesignMatrix] | None],
) -> tuple[int, Solved]:
    """Carry out a search; return its best run and which candidate that drew. Nothing else is kept.

    Runs are independent: each draws a candidate, fits and scores it; after each the search ends with probability
    1 / expected_runs, which draws their number from the geometric law exactly.
    """
    runs = Fraction(plan.expected_runs)
    best: tuple[int, Solved] | None = None
    best_score = -np.inf
    while best is None or source.below(runs.numerator) >= runs.denominator:
        index = source.below(len(plan.candidates))
        solved, score = _run(plan.candidates[index], scope, source, X, target, designs[index])
        if best is None or score > best_score:
            best, best_score = (index, solved), score
    return best


def _run(
    candidate: Candidate,
    scope: SearchScope,
    source: RandomSource,
    X: Any,
    target: FloatArray,
    design: tuple[Scaling, DesignMatrix] | None,
) -> tuple[Solved, float]:
    """Fit one candidate and score it with noise, all of it checked against the candidate's plan."""
    # whoever watched the steps of runs would count them, and their number is not released
    request, calibrated = replace(candidate.request, progress=None), candidate.prepared.calibrated
    with scope.run(calibrated) as inner:
        solved = solve(request, candidate.prepared, inner, source, X, target, design)
        holder = DataHolder(_scored(request, solved, target), inner, source, request.neighbours)
        noise = _score_noise(candidate, calibrated)
        score = float(holder.release(candidate.score(solved.weights), noise)[0])
    return replace(solved, released=(*solved.released, *holder.released)), score


def _scored(request: FitRequest, solved: Solved, target: FloatArray) -> DesignData:
    """Return the data that a score looks at: all rows, with one target for all classes."""
    if solved.target_range is not None:
        return DesignData(solved.design, solved.target_range.scaled(target), *request.target_ends)
    return DesignData(solved.design, target, 0.0, request.n_classes - 1.0)
