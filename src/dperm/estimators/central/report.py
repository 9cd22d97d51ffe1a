"""The report of a fit: what was released and what that means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dperm
from dperm.data.design.matrix import Scaling
from dperm.data.design.target_range import TargetRange
from dperm.data.holding.holder import Released
from dperm.errors import Unsupported
from dperm.estimators.central.request import FitRequest, PreparedFit
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.accounting.guarantee import Accounting, Guarantee
from dperm.privacy.ledger import Spent
from dperm.privacy.ledger.scope import Scope, SearchScope
from dperm.privacy.randomness import RandomSource
from dperm.reporting.report import PrivacyReport, ReleaseLine

__all__ = ["report_of"]

ARITHMETIC = (
    "values, slopes and weights on power-of-two grids, sums exact in any order; noise on a lattice by filtered "
    "inverse distribution functions, near ties settled with more digits"
)


def report_of(
    request: FitRequest,
    prepared: PreparedFit,
    scope: Scope | SearchScope,
    source: RandomSource,
    released: Sequence[Released],
    scaling: Scaling,
    target_range: TargetRange | None,
    before: Spent,
    support: NDArray[np.intp],
) -> PrivacyReport:
    """Write the report of a fit that is settled."""
    budget, facts = prepared.budget, prepared.facts
    accounting = Accounting.of(scope.event, budget.delta)
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
        # which coefficients are not zero is part of the released model; listed where it is short
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
    return PrivacyReport(
        planned=accounting,
        guarantee=guarantee,
        reason=reason,
        releases=_lines(prepared.calibrated, released),
        public=public,
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
            "n_fits": after.n_fits,
            "cap": None if after.cap is None else after.cap.budget.epsilon,
            "used_before": before.used if before.dataset == after.dataset else None,
            "used_after": after.used,
            "room_for_epsilon": after.fits_epsilon,
            "head": scope.ledger.head,
        },
        version=dperm.__version__,
    )


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else repr(value)


def _lines(calibrated: CalibratedPlan, released: Sequence[Released]) -> tuple[ReleaseLine, ...]:
    lines = []
    for planned in calibrated.plan.releases:
        done = [r for r in released if r.query == planned.query]
        lines.append(
            ReleaseLine(
                query=planned.query,
                kind=planned.kind,
                count=planned.count,
                forfeited=planned.count - len(done),
                noise_multiplier=planned.noise_multiplier(calibrated.scale),
                sensitivity=max((r.sensitivity for r in done), default=None),
                noise_scale=max((r.noise_scale for r in done), default=None),
                size=max((r.size for r in done), default=None),
            )
        )
    return tuple(lines)
