"""Excess risk against the number of people: the paper's Algorithms 2 and 3, repaired, and dperm's moments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dperm import Bounds, LocalLogisticRegression
from dperm.experiments.charts import Curve, Line, Panel
from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.local.people import BOUND, PAPER, LogisticPopulation
from dperm.experiments.local.published import ALGORITHM_2, ALGORITHMS, published_weights
from dperm.experiments.result import Measured, Result, ResultRow, formula
from dperm.solvers.theory.approximate_convexity import population_bound_linear
from dperm.solvers.theory.local_rates import bernstein_error
from dperm.types import FloatArray

__all__ = ["EXPERIMENT", "LocalRiskSettings"]

MOMENTS = "dperm, moments"
#: most people for Algorithm 2: one noisy number per node and person is slow, and no better for it
_MOST_OF_2 = 1_000_000
_ORDER = 2  # at which the bound is drawn
_WHY = {
    ALGORITHM_2: "the paper prints a bound without constants and no measurements",
    MOMENTS: "not in the paper: one bit about a moment per person, and shrinkage",
}


@dataclass(frozen=True)
class LocalRiskSettings:
    """Columns, numbers of people, grids, and about how many people are simulated for each point of a curve."""

    p: int
    sizes: tuple[int, ...]
    grids: tuple[int, ...]
    people: int
    most_runs: int
    least_runs: int
    seed: int = 4

    def runs(self, n: int) -> int:
        """Collections at a number of people; an even number."""
        return 2 * int(np.clip(self.people // n, self.least_runs, self.most_runs) // 2)


def _both(population: LogisticPopulation, w: FloatArray, records: FloatArray) -> list[float]:
    return [population.empirical_excess(w, records), population.excess(w)]


def _point(name: str, n: int, settings: LocalRiskSettings) -> dict[str, Any]:
    """Return, for every option of a method, empirical and population excess of all runs."""
    population = LogisticPopulation.of(settings.p, np.random.default_rng(settings.seed))
    found: dict[str, list[list[float]]] = {}
    for k in range(settings.runs(n)):
        rng = np.random.default_rng([settings.seed, n, k])
        x, y = population.people(n, rng)
        records = np.where(y, 1.0, -1.0)[:, None] * x
        if name == MOMENTS:
            model = LocalLogisticRegression(
                1.0, bounds=Bounds(features=(-1, 1), row_norm=1.0), fit_intercept=False, refuse_hopeless=False
            )
            model.fit(x, y)
            found.setdefault("", []).append(_both(population, model.coef_[0], records))
            continue
        for grid in settings.grids:
            for order, w in published_weights(name, grid, records).items():
                found.setdefault(f"k = {grid}, h = {order}", []).append(_both(population, w, records))
    return found


def _chosen(found: dict[str, Any]) -> tuple[str, Measured, Measured]:
    """Choose the option on the first half of the runs; return it, empirical and population excess on the second."""
    half = len(next(iter(found.values()))) // 2
    best = min(found, key=lambda option: sum(one[1] for one in found[option][:half]))
    empirical, population = zip(*found[best][half:], strict=True)
    return best, Measured.over(empirical), Measured.over(population)


def measure(run: Run) -> Result:
    """Simulate every person of every collection."""
    settings: LocalRiskSettings = run.settings
    tasks = {
        (name, n): partial(_point, name, n, settings)
        for n in settings.sizes
        for name in (MOMENTS, *ALGORITHMS)
        if name != ALGORITHM_2 or n <= _MOST_OF_2
    }
    found = run.pieces({f"{name} {n}": task for (name, n), task in tasks.items()})
    population = LogisticPopulation.of(settings.p, np.random.default_rng(settings.seed))
    null = population.excess(np.zeros(settings.p))
    rows = []
    points: dict[str, list[tuple[int, Measured]]] = {}
    for name, n in tasks:
        option, empirical, out = _chosen(found[f"{name} {n}"])
        bound = bernstein_error(n, settings.p, _ORDER, 1.0)
        why = _WHY.get(name, "the printed one-bit report is not private; repaired. The bound (3) leaves out constants")
        paper = formula(f"(3) gives {bound:.3g}") if name != MOMENTS else None
        label = f"{name}, {n:g} people" + (f", {option}" if option else "")
        rows.append(ResultRow(f"{label}: empirical excess", empirical, None, paper, why))
        lipschitz = 1.0 / population.unit
        general = population_bound_linear(max(empirical.mean, 0.0), lipschitz, BOUND * settings.p**0.5, n, 0.05)
        why = "the paper's bound is in a supplement; shown is the usual one for losses of a linear function"
        rows.append(
            ResultRow(f"{label}: population excess", out, None, f"formula, not the paper's: at most {general:.3g}", why)
        )
        points.setdefault(name, []).append((n, out))
    curves = [
        Curve(
            name,
            tuple((n, one.mean) for n, one in line),
            tuple(max(one.mean - one.error, one.mean / 10.0) for _, one in line),
            tuple(one.mean + one.error for _, one in line),
            marked=True,
        )
        for name, line in points.items()
    ]
    curves.append(
        Curve(
            "bound (3), without constants",
            tuple((n, bernstein_error(n, settings.p, _ORDER, 1.0)) for n in settings.sizes),
        )
    )
    panel = Panel(
        f"{settings.p} columns, epsilon 1",
        "people, one report each",
        "excess risk in the population",
        tuple(curves),
        lines=(Line("weights 0", null),),
        log_x=True,
        log_y=True,
    )
    notes = (
        "The logistic loss is divided by its largest value, as the paper's losses are at most 1. Every person is "
        "simulated. Grid k and order h of the published algorithms, and nothing of dperm's default, are chosen on the "
        "first half of the collections; excesses are of the second half. Bands are one standard error.",
        "Repair A shrinks the constant of the printed bit, repair B the rate of its noise; both are epsilon-DP.",
        f"Bound (3) at h = {_ORDER} with all hidden constants set to 1. The largest loss is 1.",
    )
    baseline = population.baseline(f"logistic, {settings.p} columns", max(settings.sizes), settings.seed)
    return Result(tuple(rows), (baseline,), (panel,), notes, columns=1)


EXPERIMENT = Experiment(
    name="local-risk",
    paper=PAPER,
    what="excess risk against people: Algorithms 2, 3 repaired, dperm's default, bound (3)",
    minutes=4.3,
    measure=measure,
    full=LocalRiskSettings(
        p=2,
        sizes=(1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000),
        grids=(1, 2, 3),
        people=2_000_000,
        most_runs=40,
        least_runs=6,
    ),
    fast=LocalRiskSettings(p=2, sizes=(1_000, 30_000), grids=(1, 2), people=8_000, most_runs=4, least_runs=2),
)
