"""The straight path of a fit, written once.

check parameters -> plan from public facts -> calibrate -> dry_run -> reserve -> (buy bounds) -> clip and scale
-> solve through the one door -> ledger equals plan -> coefficients in the user's units and a report.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dperm.data.design.chunked import ensure_room
from dperm.data.design.matrix import DesignMatrix, Scaling, Shape, build_design
from dperm.data.design.target_range import TargetRange
from dperm.data.holding.holder import DataHolder, DesignData, Released
from dperm.data.holding.table_data import TableData
from dperm.data.tables.row_source import RowSource
from dperm.errors import InvalidBounds, InvalidInput, PlanViolation, UtilityWarning
from dperm.estimators.central.plan import utility_warnings
from dperm.estimators.central.report import report_of
from dperm.estimators.central.request import NUMBERS, FitRequest, PreparedFit, prepare
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.ledger import Ledger, Spent
from dperm.privacy.ledger.scope import InnerScope, Scope, SearchScope
from dperm.privacy.randomness import RandomSource
from dperm.queries.quantiles import buy_range, buy_scaling, is_one_grid_step_wide
from dperm.queries.statistics import TargetQuantileScores
from dperm.reporting.report import PrivacyReport
from dperm.types import FloatArray

__all__ = [
    "Fitted",
    "Solved",
    "assert_ledger_is_plan",
    "declared_design",
    "fingerprint_of",
    "fit",
    "fitted",
    "ledger_of",
    "one_entry_per_cell",
    "solve",
    "warn_of",
]


#: columns that a note names
_MOST_NAMED = 5


@dataclass(frozen=True)
class Fitted:
    """Coefficients in the user's units, the public constants of the scaling, and the report."""

    coefficients: FloatArray
    intercept: FloatArray
    n_steps: tuple[int, ...]
    scaling: Scaling
    target_range: TargetRange | None
    report: PrivacyReport


def fit(request: FitRequest, X: Any, target: FloatArray) -> Fitted:
    """Carry out a fit; ``X`` is a finite float array, scipy sparse or read in blocks, ``target`` one number per row."""
    X = one_entry_per_cell(X)
    n, n_features = X.shape
    ledger = ledger_of(request)
    source = RandomSource(request.insecure_seed)
    prepared = prepare(request, n, n_features)
    unbounded = prepared.unbounded if source.secure else "insecure_seed makes the noise reproducible"
    declared = declared_design(request, X)
    warn_of(utility_warnings(request, prepared))  # before anything is charged
    before = ledger.spent()
    scope = Scope(
        prepared.calibrated,
        ledger,
        request.neighbours,
        request.purpose,
        fingerprint=fingerprint_of(request.ledger, X, target),
        unbounded=unbounded,
    )
    with scope:
        solved = solve(request, prepared, scope, source, X, target, declared)
    assert_ledger_is_plan(scope)
    warn_of(solved.notes)
    return fitted(request, prepared, scope, source, before, solved)


def warn_of(texts: Iterable[str], depth: int = 4) -> None:
    """Say what a fit is likely to lack to whoever called ``fit``, ``depth`` calls away."""
    for text in texts:
        warnings.warn(f"{text}.", UtilityWarning, stacklevel=depth)


@dataclass(frozen=True)
class Solved:
    """What the solver found, in the scaled design, and all that was released on the way."""

    weights: FloatArray
    n_steps: tuple[int, ...]
    scaling: Scaling
    design: DesignMatrix
    target_range: TargetRange | None
    released: tuple[Released, ...]
    #: what the released values themselves give to worry about
    notes: tuple[str, ...] = ()


def solve(
    request: FitRequest,
    prepared: PreparedFit,
    scope: InnerScope,
    source: RandomSource,
    X: Any,
    target: FloatArray,
    declared: tuple[Scaling, DesignMatrix] | None,
) -> Solved:
    """Make the releases of one fit inside a scope: ranges that are bought, then the solver's."""
    shop = RangePurchase(request, prepared.calibrated, scope, source)
    scaling, design = declared if declared is not None else shop.features(X)
    target_range = shop.target(target) if request.target == NUMBERS else None
    solutions, released = [], shop.released
    for k, one in enumerate(_heads(request, target, target_range)):
        data = DesignData(design, one, *request.target_ends)
        if data.facts != prepared.facts:
            raise PlanViolation("the data's public facts differ from those the plan was made from.")
        holder = DataHolder(data, scope, source, request.neighbours)
        progress = _progress_of(request, k)
        solutions.append(prepared.solver.solve(request.objective, holder, prepared.for_solver, progress))
        if holder.shared:
            raise PlanViolation("un-noised values left the holder of a fit that claims a guarantee.")
        released = [*released, *holder.released]
    weights = solutions[0].weights if len(solutions) == 1 else np.column_stack([s.weights for s in solutions])
    notes = () if request.buys_target else tuple(dict.fromkeys(note for s in solutions for note in s.notes))
    notes += shop.notes(X.shape[0], scaling, target_range)
    steps = tuple(s.n_steps for s in solutions)
    return Solved(weights, steps, scaling, design, target_range, tuple(released), notes)


def fitted(
    request: FitRequest,
    prepared: PreparedFit,
    scope: Scope | SearchScope,
    source: RandomSource,
    before: Spent,
    solved: Solved,
) -> Fitted:
    """Return what a settled scope lets out: coefficients in the user's units, and the report."""
    scaling, target_range = solved.scaling, solved.target_range
    coefficients, intercept = scaling.coefficients_in_user_units(solved.weights, solved.design.intercept_height)
    if target_range is not None:
        coefficients = coefficients * target_range.half_width
        intercept = target_range.centre + target_range.half_width * intercept
    support = np.flatnonzero(coefficients if coefficients.ndim == 1 else coefficients.any(axis=1))
    report = report_of(request, prepared, scope, source, solved.released, scaling, target_range, before, support)
    said = [*utility_warnings(request, prepared), *solved.notes]
    report = replace(report, public={**report.public, "warnings": said})
    return Fitted(coefficients, intercept, solved.n_steps, scaling, target_range, report)


class RangePurchase:
    """Buys the ranges that are not declared, inside a scope."""

    def __init__(
        self, request: FitRequest, calibrated: CalibratedPlan, scope: InnerScope, source: RandomSource
    ) -> None:
        self._request, self._calibrated, self._scope, self._source = request, calibrated, scope, source
        self.released: list[Released] = []

    def _holder(self, X: Any) -> DataHolder:
        return DataHolder(TableData(X), self._scope, self._source, self._request.neighbours)

    def features(self, X: Any) -> tuple[Scaling, DesignMatrix]:
        request, holder = self._request, self._holder(X)
        scaling = buy_scaling(holder, request.bounds, self._calibrated, request.fit_intercept, request.boolean)
        self.released += holder.released
        return scaling, build_design(X, scaling, request.height)

    def target(self, target: FloatArray) -> TargetRange:
        request = self._request
        if request.bounds.target is not None:
            low, high = request.bounds.target
        else:
            holder = self._holder(target[:, None])
            low, high = buy_range(holder, request.purchase, self._calibrated, 0, TargetQuantileScores)
            self.released += holder.released
        if not request.fit_intercept:  # nothing but the columns may move predictions away from zero
            low, high = -max(abs(low), abs(high)), max(abs(low), abs(high))
        return TargetRange(float(low), float(high))

    def notes(self, n: int, scaling: Scaling, target_range: TargetRange | None) -> tuple[str, ...]:
        """Say which bought ranges may be far wider than the values in them, from the ranges alone."""
        request, found = self._request, list[str]()
        if not request.fit_intercept:  # ranges then reach to zero anyway
            return ()
        if request.buys_features(len(scaling.centre)):
            for column in np.flatnonzero(request.bounds.bought_columns(len(scaling.centre), request.boolean)):
                ends = scaling.centre[column] + scaling.scale[column] * np.array([-1.0, 1.0])
                if is_one_grid_step_wide(ends, request.purchase, self._calibrated, n):
                    names = request.feature_names
                    found.append(f"column {column if names is None else repr(str(names[int(column)]))}")
        if request.buys_target and target_range is not None:
            ends = np.array([target_range.low, target_range.high])
            if is_one_grid_step_wide(ends, request.purchase, self._calibrated, n, TargetQuantileScores):
                found.append("the target")
        if not found:
            return ()
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        return (
            f"the bought range of {', '.join(found[:_MOST_NAMED])}{more} is as narrow as the grid of ranges allows, "
            "and the values may fill a small part of it, as years do: declare it in Bounds",
        )


def ledger_of(request: FitRequest) -> Ledger:
    """Return the ledger to charge: the one that is given, or a new one in memory."""
    if request.ledger is None:
        return Ledger(neighbours=request.neighbours)
    if not isinstance(request.ledger, Ledger):
        raise InvalidInput(f"ledger must be a Ledger or None, not {type(request.ledger).__name__}.")
    return request.ledger


def declared_design(
    request: FitRequest, X: Any, known: Iterable[tuple[Scaling, DesignMatrix]] = ()
) -> tuple[Scaling, DesignMatrix] | None:
    """Scale with declared bounds, before anything is reserved: whatever is wrong with them costs nothing.

    None where bounds are bought, which takes a reservation. A ``known`` design of the same data is used again.
    """
    if not request.buys_features(X.shape[1]):
        scaling = request.bounds.scaling(X.shape[1], request.feature_names, request.fit_intercept, request.boolean)
        for one in known:
            if _same(one[0], scaling) and (one[1].intercept_height > 0.0) == request.fit_intercept:
                return one
        return scaling, build_design(X, scaling, request.height)
    if sp.issparse(X) and request.bounds.row_norm is not None and request.fit_intercept:
        raise InvalidBounds(
            "row_norm with sparse data and bought bounds is not possible: declare the bounds, with centre=0."
        )
    if isinstance(X, RowSource):  # read only later: what could be refused then is refused now
        X.check()
        ensure_room(Shape.of(*X.shape, request.bounds.scaled_clip, request.bounds.row_norm, request.height))
    return None


def _same(one: Scaling, other: Scaling) -> bool:
    return all(np.array_equal(value, vars(other)[name]) for name, value in vars(one).items())


def _heads(request: FitRequest, target: FloatArray, target_range: TargetRange | None) -> Iterator[FloatArray]:
    """Targets of the problems to solve: one, or one per class against the rest."""
    if target_range is not None:
        yield target_range.scaled(target)
    elif request.n_heads == 1:
        yield target
    else:
        for k in range(request.n_heads):
            yield (target == k).astype(np.float64)


def _progress_of(request: FitRequest, head: int) -> Any:
    if request.progress is None:
        return None
    report = request.progress
    return lambda done, in_all: report(head * in_all + done, request.n_heads * in_all)


def one_entry_per_cell(X: Any) -> Any:
    """Return sparse data in their one canonical form, without touching the caller's arrays."""
    if not sp.issparse(X):
        return X
    canonical = sp.csr_array(X, copy=True)
    canonical.sum_duplicates()
    canonical.eliminate_zeros()
    return canonical


def fingerprint_of(ledger: Ledger | None, X: Any, target: FloatArray) -> str | None:
    """Return the keyed fingerprint by which a ledger that is given knows the data."""
    if ledger is None:
        return None
    table = [X.data, X.indices, X.indptr] if sp.issparse(X) else [X]
    return ledger.fingerprint([*table, target])


def assert_ledger_is_plan(scope: Scope | SearchScope) -> None:
    """Refuse a settled scope whose records are not what was planned."""
    recorded: Counter[Any] = Counter()
    for record in scope.records:
        recorded.update(composition.leaves(record.event))
    planned = Counter(composition.leaves(scope.event))
    if scope.unbounded is not None:
        recorded = Counter({event: count for event, count in recorded.items() if event in planned})
    if recorded != planned:
        raise PlanViolation("the releases recorded in the ledger differ from the plan.")
