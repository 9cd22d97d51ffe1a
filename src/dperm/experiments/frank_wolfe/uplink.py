"""Bytes sent at equal objective, without noise: what the paper's corollary on uplink claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from dperm.experiments.charts import Curve, Line, Panel
from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.frank_wolfe.lasso import PAPER, Lasso, lasso
from dperm.experiments.result import Result, ResultRow, formula
from dperm.experiments.vertical_problems import FILES, whole
from dperm.objective import L2, Objective
from dperm.privacy.accounting.budget import Budget
from dperm.solvers.theory import distributed_frank_wolfe as theory
from dperm.solvers.vertical import DistributedFrankWolfe, ExactSharing, PrintedFrankWolfe
from dperm.types import FloatArray

__all__ = ["EXPERIMENT", "FREE", "UplinkSettings"]

#: a budget so large that its noise is negligible
FREE = Budget(1e9, 1e-6)
_SEED = 41  # of the random projections that are sent once
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class UplinkSettings:
    """Steps of the Frank-Wolfe runs, rounds of ADMM, rows of sketches, columns of one-shot projections, most people."""

    steps: tuple[int, ...]
    rounds: int
    n_sketch: int
    widths: tuple[int, ...]
    rows: int


def _on_demand(problem: Callable[[], Lasso], settings: UplinkSettings) -> dict[str, Points]:
    """Columns travel when they become active; and the same steps with every party's predictions in each."""
    here = problem()
    n, parties = here.problem.n, len(here.problem.parties)
    at_need: Points = []
    dense: Points = []
    for steps in settings.steps:
        task = DistributedFrankWolfe(here.objective, here.problem.facts, FREE, n_steps=steps, **here.options)
        weights, messages = here.run(task)
        value = here.value(weights)
        at_need.append((float(sum(messages.uplink_bytes.values())), value))
        dense.append((float(theory.dense_uplink_bytes(n_rounds=steps, n_parties=parties, n=n)), value))
    return {"at need": at_need, "dense": dense}


def _algorithm_2(problem: Callable[[], Lasso], settings: UplinkSettings) -> dict[str, Points]:
    here = problem()
    points: Points = []
    for steps in settings.steps:
        task = PrintedFrankWolfe(
            here.objective, here.problem.facts, FREE, calibration="none", n_steps=steps, n_sketch=settings.n_sketch,
            **here.options,
        )  # fmt: skip
        weights, messages = here.run(task)
        points.append((float(sum(messages.uplink_bytes.values())), here.value(weights)))
    return {"sketches": points}


def _admm(problem: Callable[[], Lasso], settings: UplinkSettings) -> dict[str, Points]:
    here = problem()
    points: Points = []

    def watch(weights: Mapping[str, FloatArray]) -> None:
        rounds = len(points) + 1
        sent = theory.dense_uplink_bytes(n_rounds=rounds, n_parties=len(weights), n=here.problem.n)
        points.append((float(sent), here.value(whole(weights))))

    # the slope of the squared loss changes by 1 per unit of prediction: rho of that size
    task = ExactSharing(
        Objective(here.objective.loss, L2(1e-4)), here.problem.facts, FREE, n_rounds=settings.rounds, rho=0.5,
        target_low=-1.0, target_high=1.0,
    )  # fmt: skip
    here.problem.run(task, watch, y=here.y)
    return {"ADMM": points}


def _one_shot(problem: Callable[[], Lasso], settings: UplinkSettings) -> dict[str, Points]:
    """Every party sends one random projection of its columns; then least squares in one place."""
    here = problem()
    rng, points = np.random.default_rng(_SEED), []
    for width in settings.widths:
        parts = []
        for start, stop in here.problem.edges:
            share = max(1, round(width * (stop - start) / here.problem.d))
            projection = rng.normal(0.0, 1.0 / np.sqrt(share), (stop - start, share))
            parts.append(np.asarray(here.X[:, start:stop] @ projection))
        Z = np.column_stack(parts)
        fitted = Z @ np.linalg.lstsq(Z, here.y, rcond=None)[0]
        value = 0.5 * float(np.mean((fitted - here.y) ** 2))
        points.append((float(theory.one_shot_uplink_bytes(n=here.problem.n, n_rows=Z.shape[1])), value))
    return {"one shot": points}


_LABELS = {
    "at need": "Frank-Wolfe, columns at need",
    "dense": "Frank-Wolfe, predictions in every step",
    "sketches": "Algorithm 2 without noise, sketches at need",
    "ADMM": "exact ADMM, predictions in every round",
    "one shot": "one projection of all columns",
}
#: parts of the way from the null model to the optimum on the ball
_LEVELS = (0.5, 0.8, 0.9, 0.95)


def _bytes_to(points: Points, level: float) -> str:
    enough = [sent for sent, value in points if value <= level]
    return f"{min(enough) / 1e6:.3g} MB" if enough else f"not within {max(p[0] for p in points) / 1e6:.3g} MB"


def measure(run: Run) -> Result:
    """Run every method without noise and count its bytes."""
    settings: UplinkSettings = run.settings
    problem = cache(partial(lasso, run.data, settings.rows))
    tasks: dict[str, Callable[[], Any]] = {
        "columns at need": partial(_on_demand, problem, settings),
        "Algorithm 2": partial(_algorithm_2, problem, settings),
        "ADMM": partial(_admm, problem, settings),
        "one shot": partial(_one_shot, problem, settings),
    }
    pieces = run.pieces(tasks)
    found: dict[str, Points] = {
        key: [(sent, value) for sent, value in points] for piece in pieces.values() for key, points in piece.items()
    }
    here = problem()
    null, best = here.value(np.zeros(here.problem.d)), here.best
    rows = []
    for part in _LEVELS:
        level = null - part * (null - best)
        for key, label in _LABELS.items():
            sketched = key == "sketches"
            sent = _bytes_to(found[key], level)
            rows.append(
                ResultRow(
                    f"objective {level:.3g} ({part:.0%} of the way), {label}",
                    None,
                    None,
                    "least" if sketched else None,
                    _WHY_SKETCH if sketched else _WHY,
                    sent,
                )
            )
    printed = theory.printed_bytes(n=here.problem.n, epsilon=1.0, n_parties=2, distortion=0.25)
    rows.append(
        ResultRow(
            "uplink of Corollary 1 at epsilon 1, iota .25, in MB",
            None,
            None,
            formula(f"{printed / 1e6:.4g}"),
            "K (n epsilon)^(2/3) log((n epsilon)^(1/3)) / iota^2 bytes, up to a constant; it holds for the printed "
            "noise, which is too small",
        )
    )
    # ADMM and the one-shot projection may leave the ball, so least squares is the reference
    linear = np.asarray(here.X.T @ here.y, float) / here.problem.n
    solution: FloatArray = np.linalg.lstsq(here.hessian, linear, rcond=None)[0].astype(np.float64)
    least = here.value(solution)
    curves = tuple(
        Curve(label, tuple((sent / 1e6, value - least) for sent, value in found[key]), marked=True)
        for key, label in _LABELS.items()
    )
    lines = (Line("optimum on the ball", best - least), Line("null model", null - least))
    panel = Panel(
        "LASSO on a9a",
        "MB sent by all parties",
        "objective above least squares",
        curves,
        lines=lines,
        log_x=True,
        log_y=True,
    )
    notes = (
        "Without noise, so none of this is private: bytes are compared. ADMM and the one-shot projection do not stay "
        "in the ball. A projection counts as one number per person and column of it.",
    )
    return Result(tuple(rows), (here.baseline(),), (panel,), notes, columns=1)


_WHY = "the paper compares orders of magnitude and measures no bytes; all methods without noise"
_WHY_SKETCH = (
    "sketches are the smallest messages by far, but their error, and atoms that are added up, keep the objective from "
    "the optimum; more rows of the sketch help, at the same price per row"
)

EXPERIMENT = Experiment(
    name="fw-uplink",
    paper=PAPER,
    what="bytes sent by the parties at equal objective, without noise",
    minutes=0.2,
    measure=measure,
    full=UplinkSettings(
        steps=(2, 4, 8, 16, 32, 64, 128), rounds=30, n_sketch=512, widths=(4, 8, 16, 32, 64, 96), rows=100_000
    ),
    fast=UplinkSettings(steps=(2, 8), rounds=3, n_sketch=32, widths=(4, 16), rows=300),
    data=(FILES["a9a"],),
)
