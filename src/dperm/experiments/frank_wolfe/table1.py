"""Table 1 of the paper: the convergence bounds of all samplings, next to measured gaps of block Frank-Wolfe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from dperm.experiments.charts import Curve, Panel
from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.frank_wolfe.lasso import PAPER, constrained_minimum
from dperm.experiments.result import Baseline, Measured, Result, ResultRow
from dperm.objective import Box, L1Ball
from dperm.privacy.randomness import RandomSource
from dperm.solvers.coordinate_sampling import (
    ArbitrarySampling,
    BlockSampling,
    DistributedSampling,
    ElementarySampling,
    NiceSampling,
    Sampling,
)
from dperm.solvers.theory.block_frank_wolfe import ProductSet, block_frank_wolfe
from dperm.solvers.theory.curvature import (
    Quadratic,
    expected_curvature,
    expected_set_curvature,
    gap_bound,
    global_curvature,
    jaggi_bound,
    lacoste_julien_bound,
    product_curvature,
    relations,
    wang_bound,
)
from dperm.types import FloatArray

__all__ = ["EXPERIMENT", "SAMPLINGS", "GapProblem", "GapSettings", "existing_bound", "gap_problem"]

_BLOCKS, _TAU = 6, 2
SAMPLINGS: dict[str, Sampling] = {
    "elementary": ElementarySampling(_BLOCKS),
    "uniform serial": BlockSampling.uniform(_BLOCKS, _BLOCKS),
    "2-nice": NiceSampling(_BLOCKS, _TAU),
    "(2, 2)-distributed": DistributedSampling(((0, 1, 2), (3, 4, 5)), _TAU),
    "arbitrary": ArbitrarySampling(_BLOCKS, (((0, 1, 2), 0.4), ((2, 3), 0.3), ((4, 5, 0), 0.2), ((1,), 0.1))),
}
_SEED = 31
_POINTS = 60  # of a curve; more would not show


@dataclass(frozen=True)
class GapSettings:
    """Steps of a run, runs of each sampling, and rows of the made data."""

    steps: int
    runs: int
    rows: int


@dataclass(frozen=True)
class GapProblem:
    """Least squares over a product of six sets, small enough that all curvatures are exact."""

    name: str
    product: ProductSet
    rows: int

    @cached_property
    def function(self) -> Quadratic:
        """1/(2n) |A x - b|^2 without its constant; columns are correlated."""
        rng = np.random.default_rng(_SEED)
        A = rng.normal(size=(self.rows, self.product.d)) + 0.7 * rng.normal(size=(self.rows, 1))
        b = A @ rng.normal(0.0, 1.5, self.product.d) + rng.normal(size=self.rows)
        return Quadratic(A.T @ A / self.rows, -A.T @ b / self.rows)

    @cached_property
    def best(self) -> float:
        """The least value on the set."""
        found = constrained_minimum(self.function.hessian, self.function.linear, self.product.project)
        return self.function.value(found)

    def gaps(self, sampling: Sampling, steps: int) -> FloatArray:
        """Return the gaps of one run, from the start on."""
        run = block_frank_wolfe(self.function, self.product, sampling, steps, RandomSource())
        return run.gaps(self.best)

    def baseline(self) -> Baseline:
        """Return the optimum and the value at 0."""
        d = self.product.d
        null = self.function.value(np.zeros(d))
        return Baseline(self.name, "made, correlated normal columns", self.rows, d, _SEED, "objective", self.best, null)


def gap_problem(name: str, rows: int) -> GapProblem:
    """Return "boxes" or "l1 balls"."""
    if name == "boxes":
        return GapProblem(name, ProductSet.equal(Box(-1.0, 1.0), _BLOCKS), rows)
    return GapProblem(name, ProductSet.equal(L1Ball(1.0), _BLOCKS, 2), rows)


def existing_bound(problem: GapProblem, sampling: Sampling, first: float, t: int) -> float | None:
    """Return the bound that the table lists as known before, None where there is none."""
    hessian, product = problem.function.hessian, problem.product
    if isinstance(sampling, ElementarySampling):
        return jaggi_bound(global_curvature(hessian, product), t)
    if isinstance(sampling, BlockSampling):
        return lacoste_julien_bound(first, product_curvature(hessian, product), product.n_blocks, t)
    if isinstance(sampling, NiceSampling):
        curvature = expected_set_curvature(hessian, product, sampling)
        return wang_bound(first, curvature, product.n_blocks, sampling.tau, t)
    return None


def _measure_gaps(name: str, sampling: Sampling, settings: GapSettings) -> list[list[float]]:
    problem = gap_problem(name, settings.rows)
    runs = 1 if isinstance(sampling, ElementarySampling) else settings.runs  # the first has no chance in it
    return [problem.gaps(sampling, settings.steps).tolist() for _ in range(runs)]


_WHY = "a bound for the worst quadratic of its curvature; the mean gap must stay below it, and does at every step"
_WHY_NOT = "the mean gap exceeds the bound: look at this"


def _one(problem: GapProblem, label: str, runs: list[list[float]]) -> tuple[list[ResultRow], Panel]:
    sampling, curves = SAMPLINGS[label], np.array(runs)
    means, steps = curves.mean(axis=0), curves.shape[1] - 1
    p, first = sampling.smallest_probability, float(means[0])
    curvature = expected_curvature(problem.function.hessian, problem.product, sampling)
    times = range(1, steps + 1)
    bounds = [gap_bound(first, curvature, p, t) for t in times]
    spread = curves.std(axis=0) / np.sqrt(len(curves))
    holds = all(means[t] - 3.0 * spread[t] <= bound for t, bound in zip(times, bounds, strict=True))
    name, last = f"{problem.name}, {label}", Measured.over(curves[:, -1].tolist())
    known = existing_bound(problem, sampling, first, steps)
    said = f"formula: at most {bounds[-1]:.3g}; known before: " + ("none" if known is None else f"{known:.3g}")
    rows = [ResultRow(f"{name}: gap after {steps} steps", None, None, said, _WHY if holds else _WHY_NOT, last)]
    upper = {key: high for key, (_, high) in relations(problem.function.hessian, problem.product, sampling).items()}
    text = ", ".join(f"{key} {high:.3g}" for key, high in upper.items() if key != "elementary")
    why = "exact, by listing corners; Propositions 1 to 4 bound it from above"
    rows.append(ResultRow(f"{name}: expected curvature", None, None, f"formula: at most {text}", why, curvature))
    shown = sorted({round(float(t)) for t in np.geomspace(1.0, steps, _POINTS)})
    low, high = curves.min(axis=0), curves.max(axis=0)
    drawn: tuple[Curve, ...] = (
        Curve(
            "measured gap",
            tuple((float(t), float(means[t])) for t in shown),
            tuple(float(low[t]) for t in shown),
            tuple(float(high[t]) for t in shown),
        ),
        Curve("Theorem 1", tuple((float(t), bounds[t - 1]) for t in shown)),
    )
    if known is not None:
        before = tuple((float(t), float(existing_bound(problem, sampling, first, t) or 0.0)) for t in shown)
        drawn += (Curve("known before", before),)
    return rows, Panel(name, "steps", "gap", drawn, log_x=True, log_y=True)


def measure(run: Run) -> Result:
    """Measure the gap of every sampling on both problems."""
    settings: GapSettings = run.settings
    names = ("boxes", "l1 balls")
    tasks: dict[str, Callable[[], Any]] = {
        f"{name} {label}": partial(_measure_gaps, name, sampling, settings)
        for name in names
        for label, sampling in SAMPLINGS.items()
    }
    found = run.pieces(tasks)
    rows, panels = [], []
    for name in names:
        problem = gap_problem(name, settings.rows)
        for label in SAMPLINGS:
            more, panel = _one(problem, label, found[f"{name} {label}"])
            rows += more
            panels.append(panel)
    notes = (
        "Bounds are Table 1 without inexactness (delta and rho 0). Equation (11) prints a bracket that multiplies "
        "the first gap by the curvature, which is false for linear functions; the table has it right.",
        "The smallest probability of (K, tau)-distributed sampling is K tau / d; the table prints its square, but "
        "evaluates the bound with K tau / d.",
        "The bound of Wang et al. holds for their own steps 2 d tau / (tau^2 t + 2 d), the first of which exceeds 1 if "
        "tau > 1. All runs take the universal step, so that bound need not hold here.",
    )
    baselines = tuple(gap_problem(name, settings.rows).baseline() for name in names)
    return Result(tuple(rows), baselines, tuple(panels), notes, columns=5)


EXPERIMENT = Experiment(
    name="fw-table1",
    paper=PAPER,
    what="convergence bounds of all samplings against measured gaps",
    minutes=0.1,
    measure=measure,
    full=GapSettings(steps=500, runs=50, rows=400),
    fast=GapSettings(steps=40, runs=10, rows=100),
)
