"""Gradient canary: attack a whole solver through its output.

One imaginary person, the canary, contributes the largest allowed gradient, in a fixed direction, at every step; in the
neighbouring data set that person's record is empty. The solver's final weights along that direction and its releases
are collected over many runs and compared with the solver's own claim by confidence bounds. A violation that is found is
real, up to the stated confidence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder, Query
from dperm.objective import Objective
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, calibrate
from dperm.privacy.accounting.events import Event
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.boundary import Observer, observing
from dperm.privacy.mechanisms.sampled_noise import Summands
from dperm.privacy.mechanisms.standard import Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.queries.perturbed import PerturbedMinimum
from dperm.queries.sampled import SampledQuery
from dperm.solvers.base import Solver
from dperm.testing._violation import demand
from dperm.types import FloatArray

__all__ = [
    "CanaryValues",
    "NoCharges",
    "canary_statistics",
    "canary_value",
    "check_gradient_canary",
    "excess_delta",
    "gaussian_evidence",
]


class NoCharges:
    """A scope that accepts all charges: these runs test the noise, not the ledger (see check_ledger_is_plan)."""

    neighbours = Neighbours.ZERO_OUT

    def charge(self, query: str, event: Event, units: int = 1) -> None:
        """Accept."""


class CanaryValues(Observer):
    """Gives mechanisms the canary's contribution, or nobody's, in place of the value.

    ``template`` is any data of the same layout; it is needed for queries that return an objective.
    """

    def __init__(self, present: bool, template: DesignData | None = None) -> None:
        self._present, self._template = present, template

    def evaluated(self, query: Query, value: Any, facts: Facts) -> Any:
        """Return the contribution of the canary alone."""
        if isinstance(query, PerturbedMinimum) and self._template is not None:
            return query.evaluate(_canary_data(self._template, self._present))
        return canary_value(query, facts, self._present)


class _CanaryHolder(DataHolder):
    """Releases the canary's contribution, or nobody's; other people contribute nothing."""

    def __init__(self, data: DesignData, source: RandomSource, present: bool) -> None:
        super().__init__(data, NoCharges(), source, Neighbours.ZERO_OUT)
        self._values = CanaryValues(present, data)
        self.evidence = 0.0

    def release(self, query: Query, mechanism: Mechanism, group: str | None = None, units: int = 1) -> Any:
        """Release, and add up the evidence for the canary as its likelihood ratio would."""
        with observing(self._values):
            out = super().release(query, mechanism, group, units)
        if mechanism.kind == "gaussian":
            self.evidence += gaussian_evidence(query, mechanism, out, self.facts)
        elif mechanism.kind == "selection":
            self.evidence += (1.0 if out < (query.size(self.facts) + 1) // 2 else -1.0) / mechanism.noise_multiplier
        return out


def gaussian_evidence(query: Query, mechanism: Mechanism, out: Any, facts: Facts) -> float:
    """Return the evidence for the canary in a release with Gaussian noise: its log likelihood ratio, up to a shift."""
    unit = query.sensitivity(facts, Neighbours.ZERO_OUT) * np.sqrt(np.size(out))
    evidence: float = np.sum(out) / unit / mechanism.noise_multiplier**2
    return float(evidence)


def canary_value(query: Query, facts: Facts, present: bool) -> Any:
    """Return a query's value on data of the canary alone (or of nobody), from public facts alone."""
    size = query.size(facts)
    value = np.zeros(size)
    if present and query.norm == "linf":
        # half of the scores up and half down by the sensitivity: the full range that a selection charges for
        value[:] = query.sensitivity(facts, Neighbours.ZERO_OUT)
        value[(size + 1) // 2 :] *= -1.0
    elif present:
        value[:] = query.sensitivity(facts, Neighbours.ZERO_OUT) / np.sqrt(size)
    n_outputs = getattr(getattr(query, "loss", None), "n_outputs", 1)
    shaped = value if n_outputs == 1 else value.reshape(size // n_outputs, n_outputs)
    return Summands.of_rows(shaped[None][: int(present)]) if isinstance(query, SampledQuery) else shaped


def _canary_data(data: DesignData, present: bool) -> DesignData:
    """Return data of one person with the longest row along the diagonal and the highest target, or of nobody."""
    shape = data.design.shape
    longest = np.sqrt(max(shape.row_bound**2 - (shape.intercept_steps * shape.spacing) ** 2, 0.0))
    steps = min(float(shape.top), np.floor(longest / np.sqrt(shape.n_features) / shape.spacing))
    values = np.full((int(present), shape.n_features), steps)
    design = DesignMatrix(values, np.zeros(shape.n_features), shape)
    return replace(data, design=design, target=np.full(int(present), data.target_high))


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
    """Check a solver's claim against ``2 n_runs`` real runs of a few steps, as the check is per release.

    ``seed=None`` uses fresh entropy; a false alarm then has probability at most 1 - confidence.
    """
    with_canary, without, event = canary_statistics(
        solver, objective, data, n_runs=n_runs, n_steps=n_steps, budget=budget, source=RandomSource(seed)
    )
    each = 1.0 - (1.0 - confidence) / without.shape[1]  # the statistics share the probability of a false alarm
    excess = max(
        excess_delta(one, two, event, each)
        for a, b in zip(with_canary.T, without.T, strict=True)
        for one, two in ((a, b), (b, a), (-a, -b), (-b, -a))
    )
    demand(
        excess <= 0.0,
        f"{solver.name!r} leaks more than it claims: its delta is exceeded by at least {excess:.3g} at some epsilon.",
    )


def canary_statistics(
    solver: Solver,
    objective: Objective,
    data: DesignData,
    *,
    n_runs: int,
    n_steps: int = 4,
    budget: Budget | None = None,
    source: RandomSource | None = None,
) -> tuple[FloatArray, FloatArray, Event]:
    """Return an attacker's statistics of ``n_runs`` runs with the canary and without it, and the event that is claimed.

    Each row is one run, each column one statistic; the last is the evidence from all releases together.
    """
    # the number of steps is reduced if the solver has steps; the calibration follows the shorter plan
    short = solver.shortened(n_steps)
    calibrated = calibrate(short.plan(objective, data.facts), budget or Budget(4.0, 1e-3))
    used = RandomSource() if source is None else source
    without, with_canary = (
        np.array([_statistics(short, objective, data, calibrated, used, present) for _ in range(n_runs)])
        for present in (False, True)
    )
    return with_canary, without, calibrated.event


def _statistics(
    solver: Solver,
    objective: Objective,
    data: DesignData,
    calibrated: CalibratedPlan,
    source: RandomSource,
    present: bool,
) -> tuple[float, float, float, float]:
    """Return an attacker's statistics of one run.

    They are the movement of the weights along the canary, its difference between the two halves of the weights, the
    same for the number of moved weights, and the evidence from all releases, which the guarantee covers too. The canary
    pushes all coordinates in the same direction if values are released, and raises the scores of the first half of the
    candidates if one is selected.
    """
    holder = _CanaryHolder(data, source, present)
    weights = solver.solve(objective, holder, calibrated).weights
    half = (len(weights) + 1) // 2
    moved = np.abs(weights) > 0.0
    return (
        float(weights.sum()),
        float(weights[:half].sum() - weights[half:].sum()),
        float(moved[:half].sum()) - float(moved[half:].sum()),
        holder.evidence,
    )


def excess_delta(ones: Any, zeros: Any, event: Event, confidence: float) -> float:
    """Largest lower confidence bound on P(S) - exp(eps) Q(S) - claimed delta(eps) over events S = {statistic > t}.

    Thresholds are chosen on one half of the samples and evaluated on the other, so that the choice causes no bias; the
    confidence is shared among all of them (Clopper & Pearson 1934; Bonferroni).
    """
    half = len(ones) // 2
    pooled = np.concatenate([ones[:half], zeros[:half]])
    thresholds = np.unique(np.quantile(pooled, np.linspace(0.02, 0.98, 25)))
    epsilons = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0)
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
