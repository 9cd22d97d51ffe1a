"""Writes the report of a fit: what was released and what that means, and a note on weights that are not zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import dperm
from dperm.data.holding.holder import Released
from dperm.errors import Unsupported
from dperm.objective import L1, ElasticNet
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.accounting.guarantee import Accounting, Guarantee
from dperm.privacy.ledger.scope import Scope, SearchScope
from dperm.reporting.report import PrivacyReport, ReleaseLine
from dperm.types import FloatArray

if TYPE_CHECKING:
    from dperm.estimators.central.fit import FitRun, Solved
    from dperm.estimators.central.request import PreparedFit

__all__ = ["dense_notes", "report_of"]

ARITHMETIC = (
    "values, slopes and weights on power-of-two grids, sums exact in any order; noise on a lattice by filtered "
    "inverse distribution functions, near ties settled with more digits"
)


#: these choose few columns, or remove weights below their noise; the others add noise to every weight
_KEEP_FEW = ("frank-wolfe", "greedy", "peel", "pursuit", "wide", "wide-or-sparse")
#: with fewer weights all of them may matter
_MANY = 50
#: share of weights that are not zero from which a result is not sparse at all
_DENSE = 0.9


def report_of(run: FitRun, scope: Scope | SearchScope, solved: Solved) -> PrivacyReport:
    """Write the report of a fit that is settled."""
    accounting = Accounting.of(scope.event, run.prepared.budget.delta)
    guarantee, reason = _guarantee(run, scope, accounting)
    return PrivacyReport(
        planned=accounting,
        guarantee=guarantee,
        reason=reason,
        releases=_lines(run.prepared.calibrated, solved.released),
        public=_public(run, solved),
        arithmetic=ARITHMETIC,
        randomness="AES-256-CTR keyed by the operating system" if run.source.secure else "insecure seed (reproducible)",
        ledger=scope.ledger.for_report(scope.reservation),
        version=dperm.__version__,
    )


def _guarantee(
    run: FitRun, scope: Scope | SearchScope, accounting: Accounting
) -> tuple[Guarantee, None] | tuple[None, str]:
    """Return the guarantee, or the reason why there is none."""
    request, budget = run.request, run.prepared.budget
    if request.calibration == "certified" and accounting.epsilon > budget.epsilon:
        raise Unsupported("the accounted epsilon exceeds the budget; please report this as a bug.")
    if scope.unbounded is None:
        guarantee = Guarantee(
            epsilon=accounting.epsilon,
            delta=budget.delta,
            neighbours=request.neighbours,
            assumptions=request.assumptions,
            looseness=accounting.looseness,
        )
        return guarantee, None
    reason = scope.unbounded.rstrip(".") + "."
    if request.calibration == "paper":
        reason += f" The epsilon that can be certified for this noise at delta={budget.delta:.3g} is"
        reason += f" {accounting.epsilon:.4g}; the paper states {budget.epsilon:.4g}."
    return None, reason


def _public(run: FitRun, solved: Solved) -> dict[str, Any]:
    """Return everything public about the fit: declared, bought or released."""
    request, prepared, facts = run.request, run.prepared, run.prepared.facts
    scaling, target_range, coefficients = solved.scaling, solved.target_range, solved.in_user_units[0]
    support = np.flatnonzero(coefficients if coefficients.ndim == 1 else coefficients.any(axis=1))
    public = {
        "records": facts.n,
        "features": facts.n_features,
        "bounds": "bought" if request.buys_features(facts.n_features) else "declared",
        "centre": scaling.centre.tolist(),
        "scale": scaling.scale.tolist(),
        "clip": scaling.clip,
        "row_norm": scaling.row_norm,
        "solver": prepared.solver.name,
        "solver_options": {key: _plain(value) for key, value in vars(prepared.solver).items()},
        "loss": request.objective.loss.name,
        "loss_options": {key: _plain(value) for key, value in vars(request.objective.loss).items()},
        "penalty": request.objective.penalty.name,
        "strength": request.objective.penalty.strength,
        "weights": coefficients.size,
        "nonzero_weights": int(np.count_nonzero(coefficients)),
        # which columns have coefficients that are not zero is part of the released model; listed where it is short
        "n_nonzero": len(support),
        "support": support.tolist() if len(support) < facts.n_features else None,
    }
    if target_range is None:
        public |= {"classes": request.n_classes, "one_vs_rest": request.n_heads > 1}
    else:
        public |= {
            "target": [target_range.low, target_range.high],
            "target_bounds": "bought" if request.buys_target else "declared",
        }
    return {**public, "warnings": [*prepared.utility_warnings, *solved.notes]}


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else repr(value)


def _lines(calibrated: CalibratedPlan, released: Sequence[Released]) -> tuple[ReleaseLine, ...]:
    lines = []
    for planned in calibrated.plan.releases:
        done = [r for r in released if r.query == planned.query]
        # numbers of single releases, where these are the planned ones; those paid with several units are of many kinds
        alike = [r for r in done if r.units == 1]
        lines.append(
            ReleaseLine(
                query=planned.query,
                kind=planned.kind,
                count=planned.count,
                forfeited=planned.count - sum(r.units for r in done),
                noise_multiplier=planned.noise_multiplier(calibrated.scale),
                sensitivity=max((r.sensitivity for r in alike), default=None),
                noise_scale=max((r.noise_scale for r in alike), default=None),
                size=max((r.size for r in alike), default=None),
            )
        )
    return tuple(lines)


def dense_notes(prepared: PreparedFit, weights: FloatArray) -> tuple[str, ...]:
    """Say where an l1 penalty left nearly every weight because the method adds noise to all of them."""
    objective, nonzero, total = prepared.request.objective, np.count_nonzero(weights), weights.size
    penalty = objective.penalty
    sparse = isinstance(penalty, L1 | ElasticNet) and SeparablePenalty.of(penalty).l1 > 0.0
    if not sparse or prepared.solver.name in _KEEP_FEW or total < _MANY or nonzero < _DENSE * total:
        return ()
    which = "solver='wide', or solver='pursuit'"
    if objective.loss.n_outputs > 1:
        which += " with multi_class='ovr'"
    name = penalty.name.replace("_", "-")
    return (
        f"{nonzero:,} of {total:,} weights are not zero although the penalty is {name}: this method adds noise to all "
        "of them, and the penalty removes only what is smaller than its strength. For few weights use a larger "
        f"strength, or {which}",
    )
