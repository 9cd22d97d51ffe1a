"""Whole runs of a solver: is one person, the canary, told apart better than the plan of the run allows?

The canary contributes as much as anybody may, in every release, or nothing (:mod:`dperm.testing.canary`). The statistic
is the evidence from all releases together, and three of the weights.
"""

from __future__ import annotations

import time
from functools import partial

from dperm.audit.bounds import claim_violation, clopper_pearson_bound, noise_factor_found
from dperm.audit.releases.judging import ReleaseResult
from dperm.audit.result import Verdict
from dperm.audit.statistics import separation
from dperm.data.holding.design_data import DesignData
from dperm.errors import Unsupported
from dperm.objective import L2, Logistic, NoPenalty, Objective, SmoothedHinge
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.budget import Budget
from dperm.solvers.base import Solver
from dperm.solvers.central.objective_perturbation import PerturbedMinimiser
from dperm.testing.canary import canary_statistics
from dperm.testing.solvers import problem

__all__ = ["WHOLE_RUN", "audit_whole_run"]

#: name of the row in tables
WHOLE_RUN = "all releases of a run together"
_ROWS, _STEPS = 8, 2
#: where one person shows clearly under the claimed noise
_BUDGET = Budget(4.0, 1e-3)
#: one release shows best at a larger one
_BUDGET_OF_ONE_RELEASE = Budget(6.0, 1e-3)


def audit_whole_run(solver: Solver, *, n_runs: int = 1000, confidence: float = 0.9999) -> ReleaseResult:
    """Attack ``2 n_runs`` short runs of a solver, half of them with the canary."""
    start = time.perf_counter()
    objective, data = _setting(solver)
    budget = _BUDGET_OF_ONE_RELEASE if isinstance(solver, PerturbedMinimiser) else _BUDGET
    present, absent, event = canary_statistics(solver, objective, data, n_runs=n_runs, n_steps=_STEPS, budget=budget)
    each = 1.0 - (1.0 - confidence) / present.shape[1]
    claim = partial(composition.delta, event)
    claimed = float(composition.epsilon(event, budget.delta).epsilon)
    columns = [
        (one, two) for one, two in zip(present.T, absent.T, strict=True) if len({*one.tolist(), *two.tolist()}) > 1
    ]
    found = [one for pair in columns if (one := claim_violation(*pair, claim, confidence=each)) is not None]
    epsilon = max(clopper_pearson_bound(*pair, delta=budget.delta, confidence=each).epsilon for pair in columns)
    power = max(
        noise_factor_found(separation(one, two), len(one), len(two), claim, confidence=each) for one, two in columns
    )
    sentence = f"one person is told apart better than planned: {found[0].detail}" if found else ""
    return ReleaseResult(
        subject=solver.name,
        release=WHOLE_RUN,
        claim=f"the plan of {_STEPS} steps",
        verdict=Verdict.VIOLATION if found else Verdict.NOTHING,
        sentence=sentence.rstrip(".") or "one person is told apart no better than planned",
        releases=2 * n_runs,
        values=2 * n_runs,
        delta=budget.delta,
        claimed=claimed,
        found=float(epsilon),
        noise_factor=power,
        seconds=time.perf_counter() - start,
    )


def _setting(solver: Solver) -> tuple[Objective, DesignData]:
    """Return an objective that suits the solver, and a small table."""
    data = problem(n=_ROWS)
    free = (data.design.n_features,)
    if isinstance(solver, PerturbedMinimiser):
        # Where its accounting is nearly tight: under a strong penalty curvature costs next to nothing, and weights stay
        # where the hinge's slope is at its bound, along the one direction in which the canary's row lies.
        return Objective(SmoothedHinge(0.5), L2(20.0), unpenalised=free), data
    objective = Objective(Logistic(), L2(0.01), unpenalised=free)
    try:
        solver.plan(objective, data.facts)
    except Unsupported:
        objective = Objective(Logistic(), NoPenalty(), unpenalised=free)
    return objective, data
