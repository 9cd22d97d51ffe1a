"""Plans a fit from public facts alone: what is requested, the calibrated plan, its forecast and its warnings."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from dperm.data.design.bounds import Bounds, QuantilePurchase
from dperm.data.design.facts import Facts
from dperm.data.design.matrix import Shape
from dperm.data.executors.threads import one_thread_for_linear_algebra
from dperm.data.holding.holder import DryRunHolder
from dperm.errors import InvalidBounds, InvalidInput, Unsupported
from dperm.objective import Objective
from dperm.privacy.accounting import gdp
from dperm.privacy.accounting.budget import Budget, default_delta
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.queries.quantiles import INNERMOST_LEVEL, rank_error, with_purchase
from dperm.queries.statistics import QuantileScores, TargetQuantileScores
from dperm.solvers import Progress, Solver
from dperm.solvers.base import Forecast
from dperm.types import BoolArray

__all__ = ["CLASSES", "NUMBERS", "FitRequest", "PreparedFit", "dry_run", "prepare", "resolve_bounds"]

#: kinds of target
CLASSES, NUMBERS = "classes", "numbers"

#: smallest epsilon passed to a solver, so that its part of a tiny budget is still a budget
_LEAST_EPSILON = 1e-12
#: share of the records by which the bought range of a target may be off before a plan warns of it
_ROUGH = 0.2
#: error that is forecast, in units of that of one prediction for everybody, from which a plan warns: of the fits of
#: ``benchmarks/automatic_warnings.py`` beyond it, most were no better
_NO_GAIN = 0.98
#: standard deviation, in units of the declared range, below which columns may be lost unnoticed
_NARROW = 0.05


@dataclass(frozen=True)
class FitRequest:
    """Everything a fit needs besides the data; all of it public.

    ``n_heads`` is the number of two-class problems that a one-vs-rest fit solves inside one plan, else 1.
    """

    objective: Objective
    solver: Solver
    budget_epsilon: float
    budget_delta: float | None
    bounds: Bounds
    neighbours: Neighbours
    fit_intercept: bool
    ledger: Ledger | None
    insecure_seed: int | None
    #: name of the estimator
    estimator: str
    assumptions: tuple[str, ...]
    feature_names: Sequence[str] | None = None
    boolean: BoolArray | None = None
    target: str = CLASSES
    n_classes: int = 2
    n_heads: int = 1
    progress: Progress | None = None
    #: the same for rows that are read
    reading: Progress | None = None
    calibration: str = "certified"

    @property
    def purpose(self) -> str:
        """What the ledger shows about this fit."""
        return f"{self.estimator} ({self.solver.name})"

    @property
    def target_ends(self) -> tuple[float, float]:
        """Public bounds of the scaled target, or of the class codes."""
        if self.target == NUMBERS:
            return -1.0, 1.0
        return 0.0, 1.0 if self.n_heads > 1 else self.n_classes - 1.0

    @property
    def buys_target(self) -> bool:
        """Whether the range of the target is bought."""
        return self.target == NUMBERS and self.bounds.target is None

    @property
    def purchase(self) -> QuantilePurchase:
        """How ranges that are not declared are bought."""
        return self.bounds.purchase or QuantilePurchase()

    def buys_features(self, n_features: int) -> bool:
        """Whether the range of any column is bought."""
        return bool(self.bounds.bought_columns(n_features, self.boolean).any())

    def n_columns_bought(self, n_features: int) -> int:
        """Number of columns whose ranges are bought."""
        return int(self.bounds.bought_columns(n_features, self.boolean).sum())

    def n_bought(self, n_features: int) -> int:
        """Number of ranges that are bought."""
        return self.n_columns_bought(n_features) + int(self.buys_target)

    @property
    def height(self) -> float:
        """Height of the constant column, 0 without one."""
        return 1.0 if self.fit_intercept else 0.0


@dataclass(frozen=True)
class PreparedFit:
    """A calibrated plan that passed a dry run without data; nothing is reserved yet."""

    request: FitRequest
    budget: Budget
    facts: Facts
    #: the solver that was asked for, or the one that an automatic rule chose
    solver: Solver
    calibrated: CalibratedPlan
    #: the same plan as the solver sees it: with its own part of the budget
    for_solver: CalibratedPlan
    #: why the result will carry no guarantee, if so
    unbounded: str | None = None

    @cached_property
    def forecast(self) -> Forecast | None:
        """The solver's forecast for one problem, computed once; None where no theorem gives one."""
        request = self.request
        if request.calibration == "paper":
            return None
        return self.solver.forecast(request.objective, self.facts, self.for_solver, request.neighbours)

    @property
    def utility_warnings(self) -> tuple[str, ...]:
        """Why the model may be of little use, from public numbers; a fit warns of it before anything is charged."""
        out = list[str]()
        if self.budget.delta > 1.0 / self.facts.n:
            out.append("delta is above 1/n, so that some person's whole record may be revealed: 1/n^2 is usual")
        out += _doubtful_ranges(self)
        forecast = self.forecast
        if forecast is not None:
            if forecast.null_excess is not None and forecast.excess >= _NO_GAIN * forecast.null_excess:
                out.append(
                    "the noise is about as large as what columns usually explain: unless yours explain much or are "
                    "closely related, the model may be no better than predicting one value for everybody"
                )
            # Only declared ranges are checked: declared scales follow the data, and so do bought ranges, up to a
            # factor of 2 or with a note after the fit.
            declared = self.request.bounds.declares_ranges
            narrow = forecast.min_column_deviation
            if declared and narrow is not None and narrow > _NARROW:
                out.append(f"{_narrow_columns(narrow)}: declare narrower ranges, or Bounds(centre=, scale=, clip=)")
            out += forecast.warnings
        return tuple(out)

    def for_request(self, request: FitRequest, shape: tuple[int, int]) -> PreparedFit:
        """Return this plan for the request of a fit of ``shape``; refused unless both ask for the same plan."""
        names = [one.name for one in fields(FitRequest) if one.name not in _NOT_PLANNED]
        same = all(_equal(getattr(self.request, name), getattr(request, name)) for name in names)
        if not same or facts_of(request, *shape) != self.facts:
            raise InvalidInput(
                "the prepared plan belongs to other parameters, rows, columns or classes than this fit: prepare it "
                "again."
            )
        return self.keeping_forecast(request=request)

    def keeping_forecast(self, **changes: Any) -> PreparedFit:
        """Return a copy with other fields on which the forecast does not depend: it is not computed again."""
        made = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(made, name, value)
        return made


#: fields of a request on which neither plan nor noise depends
_NOT_PLANNED = ("feature_names", "assumptions", "progress", "reading")


def _equal(one: Any, other: Any) -> bool:
    """Compare two public parameters, arrays and containers of arrays included."""
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return type(one) is type(other) and np.array_equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, Bounds):
        return _equal(vars(one), vars(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def resolve_bounds(bounds: Bounds | str | None) -> Bounds:
    """Return the bounds to use: as declared, or bought when None."""
    if bounds is None:
        return Bounds.private_quantiles()
    if not isinstance(bounds, Bounds):
        raise InvalidBounds(f"bounds must be a Bounds, 'declare' or None, not {type(bounds).__name__}.")
    return bounds


def facts_of(request: FitRequest, n: int, n_features: int) -> Facts:
    """Return the public facts of a fit, known before any data."""
    bounds = request.bounds
    shape = Shape.of(n, n_features, bounds.scaled_clip, bounds.row_norm, request.height, bounds.spread)
    return Facts.of_design(shape, *request.target_ends)


def plan_of(request: FitRequest, solver: Solver, facts: Facts) -> Plan:
    """Return the data-free plan of a fit: bought ranges, then the solver's releases for every head."""
    plan = solver.plan(request.objective, facts)
    if request.n_heads > 1:
        # every head makes the same releases with equal noise: K times as many of each, one share
        plan = Plan(tuple(replace(r, count=r.count * request.n_heads) for r in plan.releases))
    if not request.n_bought(facts.n_features):
        return plan
    return with_purchase(plan, request.purchase, request.n_columns_bought(facts.n_features), request.buys_target)


def prepare(request: FitRequest, n: int, n_features: int) -> PreparedFit:
    """Choose the solver, plan, calibrate and dry-run a fit; what is refused here costs nothing."""
    delta = default_delta(n) if request.budget_delta is None else request.budget_delta
    budget, facts = Budget(request.budget_epsilon, delta), facts_of(request, n, n_features)
    own = _own_part(request, budget, n_features)
    solver = request.solver.configured(request.objective, facts, own, request.neighbours)
    solver.check_neighbours(request.neighbours)
    unbounded = None
    if request.calibration == "paper":
        if request.n_bought(n_features):
            raise Unsupported("a printed calibration has no room for buying bounds: declare them.")
        if request.neighbours is not Neighbours.REPLACE_ONE:
            raise Unsupported("printed calibrations are stated for replace-one: use neighbours='replace-one'.")
        if request.n_heads > 1:
            raise Unsupported("printed calibrations are stated for one problem: give two classes.")
        printed = solver.printed(request.objective, facts, budget)
        calibrated, unbounded = printed.calibrated, printed.reason
    else:
        calibrated = calibrate(plan_of(request, solver, facts), budget)
    _refuse_a_lost_target(request, calibrated, n)
    made = PreparedFit(request, budget, facts, solver, calibrated, replace(calibrated, budget=own), unbounded)
    dry_run(made)
    return made


def _refuse_a_lost_target(request: FitRequest, calibrated: CalibratedPlan, n: int) -> None:
    """Refuse to buy the target's range with so few rows that it may come out anywhere, and predictions with it."""
    if not request.buys_target:
        return
    needed = rank_error(request.purchase, calibrated, TargetQuantileScores) / INNERMOST_LEVEL
    if needed > n:
        features = "" if request.bounds.purchase is not None else "features=..., "
        raise Unsupported(
            f"{n} rows are too few to buy the target's range with this budget, which takes about {math.ceil(needed)}: "
            f"declare it, bounds=Bounds({features}target=(lo, hi)) with publicly known numbers, or raise epsilon."
        )


def dry_run(prepared: PreparedFit) -> None:
    """Run the solver without data, so that a release outside the plan is refused before anything is reserved."""
    request, calibrated = prepared.request, prepared.calibrated
    bought = (QuantileScores.name, TargetQuantileScores.name)
    releases = [r for r in calibrated.plan.releases if r.query not in bought]
    trial = DryRunHolder(prepared.facts, request.neighbours, {r.query: r.event(calibrated.scale) for r in releases})
    with one_thread_for_linear_algebra():
        trial.run(lambda holder: prepared.solver.solve(request.objective, holder, prepared.for_solver))


def _own_part(request: FitRequest, budget: Budget, n_features: int) -> Budget:
    """Return the part of the budget that the solver has for one problem: what is not bought with, over all heads.

    A solver reads its noise from the plan; from the budget it only estimates how much noise to expect.
    """
    bought = request.purchase.budget_share if request.n_bought(n_features) else 0.0
    part = (1.0 - bought) / request.n_heads
    if part == 1.0:
        return budget
    epsilon = gdp.epsilon_of(budget.mu * math.sqrt(part), budget.delta)
    return Budget(max(epsilon, _LEAST_EPSILON), budget.delta)


def _narrow_columns(min_deviation: float) -> str:
    if min_deviation >= 0.5:  # no column's standard deviation is above half of its range
        return "with these declared ranges every column may be learnt only in part"
    return (
        f"columns whose standard deviation is below about {min_deviation:.1%} of their declared range may be learnt "
        "only in part"
    )


def _doubtful_ranges(prepared: PreparedFit) -> list[str]:
    """Warn of bought ranges that may be far off; those of a target that may fail altogether are refused before."""
    request, calibrated, n, out = prepared.request, prepared.calibrated, prepared.facts.n, list[str]()
    if request.buys_features(prepared.facts.n_features):
        missed = rank_error(request.purchase, calibrated) / n
        if missed > INNERMOST_LEVEL:  # further inside than that no quantile is bought
            out.append(
                f"with {n} rows the bought ranges of columns may be wrong by up to {min(missed, 1.0):.0%} of the "
                "records, and such a column adds nothing: declare bounds if you can"
            )
    if request.buys_target:
        missed = rank_error(request.purchase, calibrated, TargetQuantileScores) / n
        if missed > _ROUGH:
            out.append(
                f"the range bought for the target may be wrong by up to {missed:.0%} of the records, and several "
                "times too wide or too narrow: declare Bounds(target=(lo, hi)) if you can"
            )
    return out
