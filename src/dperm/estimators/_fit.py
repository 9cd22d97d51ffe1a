"""The straight path of a fit, written once.

check parameters -> plan from public facts -> calibrate -> reserve -> (buy bounds) -> clip and scale -> solve through
the one door -> ledger equals plan -> coefficients in the user's units and a report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import dperm
from dperm.data.bounds import HOW_TO_DECLARE, Bounds
from dperm.data.design import DesignMatrix, Scaling, Shape
from dperm.data.facts import Facts
from dperm.data.holder import DataHolder, DesignData, Rehearsal, Released
from dperm.data.table import TableData
from dperm.errors import InvalidBounds, InvalidInput, PlanViolation, Unsupported
from dperm.objective import Objective
from dperm.privacy import composition
from dperm.privacy.budget import Budget, default_delta
from dperm.privacy.calibration import CalibratedPlan, Plan, calibrate
from dperm.privacy.guarantee import Accounting, Guarantee
from dperm.privacy.ledger import Ledger, Spent
from dperm.privacy.neighbours import Neighbours
from dperm.privacy.printed import Printed
from dperm.privacy.randomness import RandomSource
from dperm.privacy.report import PrivacyReport, ReleaseLine
from dperm.privacy.scope import Scope
from dperm.queries.quantiles import buy_scaling, with_purchase
from dperm.queries.statistics import QuantileScores
from dperm.solvers import Progress, Solver

__all__ = ["FitRequest", "Fitted", "fit", "resolve_bounds"]

ARITHMETIC = (
    "values, slopes and weights on power-of-two grids, sums exact in any order; noise on a lattice by filtered "
    "inverse distribution functions, near ties settled with more digits"
)


@dataclass(frozen=True)
class FitRequest:
    """Everything a fit needs besides the data; all of it public."""

    objective: Objective
    solver: Solver
    budget_epsilon: float
    budget_delta: float | None
    bounds: Bounds
    neighbours: Neighbours
    fit_intercept: bool
    ledger: Ledger | None
    insecure_seed: int | None
    purpose: str
    assumptions: tuple[str, ...]
    feature_names: Sequence[str] | None = None
    target_low: float = 0.0
    target_high: float = 1.0
    progress: Progress | None = None
    calibration: str = "certified"


@dataclass(frozen=True)
class Fitted:
    """Coefficients in the user's units, and the report."""

    coefficients: NDArray[np.float64]
    intercept: NDArray[np.float64]
    n_steps: int
    report: PrivacyReport


def resolve_bounds(bounds: Bounds | str | None) -> Bounds:
    """Return the bounds to use: as declared, or bought when None."""
    if bounds is None:
        return Bounds.private_quantiles()
    if isinstance(bounds, str) and bounds == "declare":
        raise InvalidBounds(f"bounds are not declared: {HOW_TO_DECLARE}.")
    if not isinstance(bounds, Bounds):
        raise InvalidBounds(f"bounds must be a Bounds, 'declare' or None, not {type(bounds).__name__}.")
    return bounds


def plan_of(request: FitRequest, n: int, n_features: int) -> tuple[Plan, Facts]:
    """Return the data-free plan of a fit and the facts it was made from."""
    bounds = request.bounds
    height = 1.0 if request.fit_intercept else 0.0
    shape = Shape.of(n, n_features, bounds.scaled_clip, bounds.row_norm, height, bounds.spread)
    facts = Facts.of_design(shape, request.target_low, request.target_high)
    request.solver.check_neighbours(request.neighbours)
    plan = request.solver.plan(request.objective, facts)
    if bounds.purchase is not None:
        plan = with_purchase(plan, bounds.purchase, n_features)
    return plan, facts


def fit(request: FitRequest, X: Any, target: NDArray[np.float64]) -> Fitted:
    """Carry out a fit; ``X`` is a finite float array or scipy sparse matrix, ``target`` one number per row."""
    X = _one_entry_per_cell(X)
    n, n_features = X.shape
    delta = default_delta(n) if request.budget_delta is None else request.budget_delta
    budget = Budget(request.budget_epsilon, delta)
    plan, facts = plan_of(request, n, n_features)
    calibrated, unbounded = calibrate(plan, budget), None
    if request.calibration == "paper":
        printed = _printed(request, facts, budget)
        calibrated, unbounded = printed.calibrated, printed.reason
    source = RandomSource(request.insecure_seed)
    if not source.secure:
        unbounded = "insecure_seed makes the noise reproducible"
    ledger = Ledger(neighbours=request.neighbours) if request.ledger is None else request.ledger
    if not isinstance(ledger, Ledger):
        raise InvalidInput(f"ledger must be a Ledger or None, not {type(ledger).__name__}.")
    declared = None if request.bounds.purchase is not None else _declared(request, X)
    if declared is None and sp.issparse(X) and request.bounds.row_norm is not None and request.fit_intercept:
        raise InvalidBounds(
            "row_norm with sparse data and bought bounds is not possible: declare the bounds, with centre=0."
        )
    releases = [r for r in calibrated.plan.releases if r.query != QuantileScores.name]
    rehearsal = Rehearsal(facts, request.neighbours, {r.query: r.event(calibrated.scale) for r in releases})
    rehearsal.run(lambda holder: request.solver.solve(request.objective, holder, calibrated))
    before = ledger.spent()
    scope = Scope(
        calibrated,
        ledger,
        request.neighbours,
        request.purpose,
        fingerprint=None if request.ledger is None else ledger.fingerprint(_arrays(X, target)),
        unbounded=unbounded,
    )
    with scope:
        scaling, design, bought = declared if declared is not None else _bought(request, X, scope, calibrated, source)
        data = DesignData(design, target, request.target_low, request.target_high)
        if data.facts != facts:
            raise PlanViolation("the data's public facts differ from those the plan was made from.")
        holder = DataHolder(data, scope, source, request.neighbours)
        solution = request.solver.solve(request.objective, holder, calibrated, request.progress)
    if holder.shared:
        raise PlanViolation("un-noised values left the holder of a fit that claims a guarantee.")
    released = [*bought, *holder.released]
    _assert_ledger_is_plan(scope, calibrated)
    coefficients, intercept = scaling.coefficients_in_user_units(solution.weights, design.intercept_height)
    support = np.flatnonzero(coefficients if coefficients.ndim == 1 else coefficients.any(axis=1))
    report = _report(request, budget, scope, source, released, scaling, facts, before, support)
    return Fitted(coefficients, intercept, solution.n_steps, report)


def _printed(request: FitRequest, facts: Facts, budget: Budget) -> Printed:
    if request.bounds.purchase is not None:
        raise Unsupported("a printed calibration has no room for buying bounds: declare them.")
    if request.neighbours is not Neighbours.REPLACE_ONE:
        raise Unsupported("printed calibrations are stated for replace-one: use neighbours='replace-one'.")
    return request.solver.printed(request.objective, facts, budget)


Scaled = tuple[Scaling, DesignMatrix, list[Released]]


def _declared(request: FitRequest, X: Any) -> Scaled:
    """Scale with declared bounds, before anything is reserved: whatever is wrong with them costs nothing."""
    scaling = request.bounds.scaling(X.shape[1], request.feature_names, centred=request.fit_intercept)
    return scaling, DesignMatrix.from_array(X, scaling, 1.0 if request.fit_intercept else 0.0), []


def _bought(request: FitRequest, X: Any, scope: Scope, calibrated: CalibratedPlan, source: RandomSource) -> Scaled:
    """Buy the bounds, then scale."""
    shop = DataHolder(TableData(X), scope, source, request.neighbours)
    scaling = buy_scaling(shop, request.bounds, calibrated, request.fit_intercept)
    return scaling, DesignMatrix.from_array(X, scaling, 1.0 if request.fit_intercept else 0.0), shop.released


def _one_entry_per_cell(X: Any) -> Any:
    """Return sparse data in their one canonical form, without touching the caller's arrays."""
    if not sp.issparse(X):
        return X
    canonical = sp.csr_array(X, copy=True)
    canonical.sum_duplicates()
    canonical.eliminate_zeros()
    return canonical


def _arrays(X: Any, target: NDArray[np.float64]) -> list[NDArray[Any]]:
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


def _report(
    request: FitRequest,
    budget: Budget,
    scope: Scope,
    source: RandomSource,
    released: list[Released],
    scaling: Scaling,
    facts: Facts,
    before: Spent,
    support: NDArray[np.intp],
) -> PrivacyReport:
    accounting = Accounting.of(scope.calibrated.event, budget.delta)
    if request.calibration == "certified" and accounting.epsilon > budget.epsilon:
        raise Unsupported("the accounted epsilon exceeds the budget; please report this as a bug.")
    guarantee, reason = None, None
    if scope.unbounded is None:
        guarantee = Guarantee(
            epsilon=accounting.epsilon,
            delta=budget.delta,
            neighbours=request.neighbours,
            assumptions=request.assumptions,
            looseness=accounting.looseness,
        )
    else:
        reason = scope.unbounded.rstrip(".") + "."
        if request.calibration == "paper":
            reason += f" The epsilon that can be certified for this noise at delta={budget.delta:.3g} is"
            reason += f" {accounting.epsilon:.4g}; the paper states {budget.epsilon:.4g}."
    after = scope.ledger.for_dataset(scope.reservation.dataset).spent()
    return PrivacyReport(
        planned=accounting,
        guarantee=guarantee,
        reason=reason,
        releases=_lines(scope, released),
        public={
            "records": facts.n,
            "features": facts.n_features,
            "bounds": "bought" if request.bounds.purchase is not None else "declared",
            "centre": scaling.centre.tolist(),
            "scale": scaling.scale.tolist(),
            "clip": scaling.clip,
            "row_norm": scaling.row_norm,
            "solver": request.solver.name,
            "solver_options": {key: _plain(value) for key, value in vars(request.solver).items()},
            "loss": request.objective.loss.name,
            "penalty": request.objective.penalty.name,
            "strength": request.objective.penalty.strength,
            # which coefficients are not zero is part of the released model; listed where it is short
            "n_nonzero": len(support),
            "support": support.tolist() if len(support) < facts.n_features else None,
        },
        arithmetic=ARITHMETIC,
        randomness="AES-256-CTR keyed by the operating system" if source.secure else "insecure seed (reproducible)",
        ledger={
            "dataset": scope.reservation.dataset,
            "reservation": scope.reservation.id,
            "neighbours": str(after.neighbours),
            # data recognised under another name were charged there, where nothing was read before the charge
            "spent_before": before.epsilon if before.dataset == after.dataset else None,
            "spent_after": after.epsilon,
            "delta": after.delta,
            "head": scope.ledger.head,
        },
        version=dperm.__version__,
    )


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else repr(value)


def _lines(scope: Scope, released: list[Released]) -> tuple[ReleaseLine, ...]:
    lines = []
    for planned in scope.calibrated.plan.releases:
        done = [r for r in released if r.query == planned.query]
        lines.append(
            ReleaseLine(
                query=planned.query,
                kind=planned.kind,
                count=planned.count,
                forfeited=planned.count - len(done),
                noise_multiplier=planned.noise_multiplier(scope.calibrated.scale),
                sensitivity=max((r.sensitivity for r in done), default=None),
                noise_scale=max((r.noise_scale for r in done), default=None),
                size=max((r.size for r in done), default=None),
            )
        )
    return tuple(lines)
