"""The straight path of a fit, written once.

check parameters -> plan from public facts -> calibrate -> rehearse -> reserve -> (buy bounds) -> clip and scale
-> solve through the one door -> ledger equals plan -> coefficients in the user's units and a report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dperm.data.design import DesignMatrix, Scaling
from dperm.data.holder import DataHolder, DesignData, Released
from dperm.data.table import TableData
from dperm.data.target import TargetRange
from dperm.errors import InvalidBounds, InvalidInput, PlanViolation
from dperm.privacy import composition
from dperm.privacy.calibration import CalibratedPlan
from dperm.privacy.ledger import Ledger
from dperm.privacy.randomness import RandomSource
from dperm.privacy.report import PrivacyReport
from dperm.privacy.scope import Scope
from dperm.queries.quantiles import buy_range, buy_scaling

from ._report import report_of
from ._request import NUMBERS, FitRequest, prepare

__all__ = ["Fitted", "fit"]

FloatArray = NDArray[np.float64]


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
    """Carry out a fit; ``X`` is a finite float array or scipy sparse matrix, ``target`` one number per row."""
    X = _one_entry_per_cell(X)
    n, n_features = X.shape
    ledger = Ledger(neighbours=request.neighbours) if request.ledger is None else request.ledger
    if not isinstance(ledger, Ledger):
        raise InvalidInput(f"ledger must be a Ledger or None, not {type(ledger).__name__}.")
    source = RandomSource(request.insecure_seed)
    prepared = prepare(request, n, n_features)
    unbounded = prepared.unbounded if source.secure else "insecure_seed makes the noise reproducible"
    declared = None if request.buys_features(n_features) else _declared(request, X)
    if declared is None and sp.issparse(X) and request.bounds.row_norm is not None and request.fit_intercept:
        raise InvalidBounds(
            "row_norm with sparse data and bought bounds is not possible: declare the bounds, with centre=0."
        )
    before = ledger.spent()
    scope = Scope(
        prepared.calibrated,
        ledger,
        request.neighbours,
        request.purpose,
        fingerprint=None if request.ledger is None else ledger.fingerprint(_arrays(X, target)),
        unbounded=unbounded,
    )
    with scope:
        shop = _Shop(request, prepared.calibrated, scope, source)
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
    _assert_ledger_is_plan(scope, prepared.calibrated)
    weights = solutions[0].weights if len(solutions) == 1 else np.column_stack([s.weights for s in solutions])
    coefficients, intercept = scaling.coefficients_in_user_units(weights, design.intercept_height)
    if target_range is not None:
        coefficients = coefficients * target_range.half_width
        intercept = target_range.centre + target_range.half_width * intercept
    support = np.flatnonzero(coefficients if coefficients.ndim == 1 else coefficients.any(axis=1))
    report = report_of(request, prepared, scope, source, released, scaling, target_range, before, support)
    return Fitted(coefficients, intercept, tuple(s.n_steps for s in solutions), scaling, target_range, report)


class _Shop:
    """Buys the ranges that are not declared, inside a scope."""

    def __init__(self, request: FitRequest, calibrated: CalibratedPlan, scope: Scope, source: RandomSource) -> None:
        self._request, self._calibrated, self._scope, self._source = request, calibrated, scope, source
        self.released: list[Released] = []

    def _holder(self, X: Any) -> DataHolder:
        return DataHolder(TableData(X), self._scope, self._source, self._request.neighbours)

    def features(self, X: Any) -> tuple[Scaling, DesignMatrix]:
        request, holder = self._request, self._holder(X)
        scaling = buy_scaling(holder, request.bounds, self._calibrated, request.fit_intercept, request.boolean)
        self.released += holder.released
        return scaling, DesignMatrix.from_array(X, scaling, request.height)

    def target(self, target: FloatArray) -> TargetRange:
        request = self._request
        if request.bounds.target is not None:
            low, high = request.bounds.target
        else:
            holder = self._holder(target[:, None])
            low, high = buy_range(holder, request.purchase, self._calibrated, 0)
            self.released += holder.released
        return TargetRange(float(low), float(high))


def _declared(request: FitRequest, X: Any) -> tuple[Scaling, DesignMatrix]:
    """Scale with declared bounds, before anything is reserved: whatever is wrong with them costs nothing."""
    scaling = request.bounds.scaling(X.shape[1], request.feature_names, request.fit_intercept, request.boolean)
    return scaling, DesignMatrix.from_array(X, scaling, request.height)


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


def _one_entry_per_cell(X: Any) -> Any:
    """Return sparse data in their one canonical form, without touching the caller's arrays."""
    if not sp.issparse(X):
        return X
    canonical = sp.csr_array(X, copy=True)
    canonical.sum_duplicates()
    canonical.eliminate_zeros()
    return canonical


def _arrays(X: Any, target: FloatArray) -> list[NDArray[Any]]:
    if sp.issparse(X):
        return [X.data, X.indices, X.indptr, target]
    return [np.ascontiguousarray(X), target]


def _assert_ledger_is_plan(scope: Scope, calibrated: CalibratedPlan) -> None:
    recorded: Counter[Any] = Counter()
    for record in scope.records:
        recorded.update(composition.leaves(record.event))
    planned = Counter(composition.leaves(calibrated.event))
    if scope.unbounded is not None:
        recorded = Counter({event: count for event, count in recorded.items() if event in planned})
    if recorded != planned:
        raise PlanViolation("the releases recorded in the ledger differ from the plan.")
