"""Gradient canary: attack a whole solver through its output.

One imaginary person contributes the largest allowed gradient, in a fixed direction, at every step; in the neighbouring
world that person's record is empty. The solver's final weights along that direction are collected over many runs and
compared with the solver's own claim by confidence bounds: a violation that is found is real, up to the stated
confidence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from dperm.data.holder import DataHolder, DesignData
from dperm.data.query import Query
from dperm.objective import Objective
from dperm.privacy import composition
from dperm.privacy.budget import Budget
from dperm.privacy.calibration import CalibratedPlan, calibrate
from dperm.privacy.events import Event
from dperm.privacy.neighbours import Neighbours
from dperm.privacy.randomness import RandomSource
from dperm.solvers.base import Solver
from dperm.testing._violation import demand

__all__ = ["check_gradient_canary", "excess_delta"]


class _Free:
    """Charges nothing: thousands of runs are about noise, not about books (see check_ledger_is_plan)."""

    def charge(self, query: str, event: Event) -> None:
        """Accept."""


class _Canary(DataHolder):
    """Answers queries with the canary's contribution (or without), the other people contributing nothing."""

    def __init__(self, data: DesignData, source: RandomSource, present: bool) -> None:
        super().__init__(data, _Free(), source, Neighbours.ZERO_OUT)
        self.present = present

    def _evaluate(self, query: Query) -> Any:
        size = query.size(self.facts)
        value = np.zeros(size)
        if self.present and query.norm == "linf":
            value[: (size + 1) // 2] = query.sensitivity(self.facts, self.neighbours)
        elif self.present:
            value[:] = query.sensitivity(self.facts, self.neighbours) / np.sqrt(size)
        n_outputs = getattr(getattr(query, "loss", None), "n_outputs", 1)
        return value if n_outputs == 1 else value.reshape(size // n_outputs, n_outputs)


def check_gradient_canary(
    solver: Solver,
    objective: Objective,
    data: DesignData,
    *,
    n_runs: int = 1500,
    n_steps: int = 4,
    budget: Budget | None = None,
    seed: int | None = 0,
    confidence: float = 0.9999,
) -> None:
    """Check a solver's claim against ``2 n_runs`` real runs; few steps of it, because the check is per release.

    ``seed=None`` uses fresh entropy; a false alarm then has probability at most 1 - confidence.
    """
    # a huge number of steps is shortened where the solver has them; calibration follows the shorter plan
    short = replace(solver, n_steps=n_steps) if hasattr(solver, "n_steps") else solver  # type: ignore[type-var]
    calibrated = calibrate(short.plan(objective, data.facts), budget or Budget(4.0, 1e-3))
    source = RandomSource(seed)
    without, with_canary = (
        np.array([_statistic(short, objective, data, calibrated, source, present) for _ in range(n_runs)])
        for present in (False, True)
    )
    excess = max(
        excess_delta(one, two, calibrated.event, confidence)
        for one, two in (
            (with_canary, without),
            (without, with_canary),
            (-with_canary, -without),
            (-without, -with_canary),
        )
    )
    demand(
        excess <= 0.0,
        f"{solver.name!r} leaks more than it claims: its delta is exceeded by at least {excess:.3g} at some epsilon.",
    )


def _statistic(
    solver: Solver,
    objective: Objective,
    data: DesignData,
    calibrated: CalibratedPlan,
    source: RandomSource,
    present: bool,
) -> float:
    solution = solver.solve(objective, _Canary(data, source, present), calibrated)
    return float(solution.weights.sum())


def excess_delta(ones: Any, zeros: Any, event: Event, confidence: float) -> float:
    """Largest lower confidence bound on P(S) - exp(eps) Q(S) - claimed delta(eps) over events S = {statistic > t}.

    Thresholds are chosen on one half of the samples and counted on the other, so that choosing does not bias; the
    confidence is shared among all of them (Clopper & Pearson 1934; Bonferroni).
    """
    half = len(ones) // 2
    pooled = np.concatenate([ones[:half], zeros[:half]])
    thresholds = np.unique(np.quantile(pooled, np.linspace(0.02, 0.98, 25)))
    epsilons = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
    share = (1.0 - confidence) / (2 * len(thresholds))
    worst = -np.inf
    claims = {epsilon: composition.delta(event, epsilon) for epsilon in epsilons}
    n_ones, n_zeros = len(ones) - half, len(zeros) - half
    for threshold in thresholds:
        hits, alarms = int((ones[half:] > threshold).sum()), int((zeros[half:] > threshold).sum())
        p_low = stats.beta.ppf(share, hits, n_ones - hits + 1) if hits else 0.0
        q_high = stats.beta.ppf(1.0 - share, alarms + 1, n_zeros - alarms) if alarms < n_zeros else 1.0
        worst = max(worst, max(p_low - np.exp(e) * q_high - claim for e, claim in claims.items()))
    return float(worst)
