"""Means of smooth functions in the local model, all from one collection of one bit per person."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dperm import SmoothQueries
from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.local.people import PAPER
from dperm.experiments.result import Baseline, Measured, Result, ResultRow
from dperm.types import FloatArray

__all__ = ["EXPERIMENT", "SmoothQuerySettings", "population", "smooth_functions"]

Function = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class SmoothQuerySettings:
    """Columns, people, collections, functions of each kind, degrees per column."""

    columns: tuple[int, ...]
    n: int
    runs: int
    functions: int
    degrees: tuple[int, ...]
    epsilon: float = 1.0
    seed: int = 9


def smooth_functions(d: int, count: int, rng: np.random.Generator) -> dict[str, list[Function]]:
    """Bells and waves of several widths, with values in [0, 1], by their kind."""
    bells: list[Function] = []
    waves: list[Function] = []
    for _ in range(count):
        centre, width, wave = rng.uniform(-1, 1, d), rng.uniform(0.8, 2.0, d), rng.uniform(-2, 2, d)
        bells.append(lambda z, c=centre, w=width: np.exp(-(((z - c) / w) ** 2).sum(axis=1)))  # type: ignore[misc]
        waves.append(lambda z, w=wave: 0.5 + 0.5 * np.cos(z @ w))  # type: ignore[misc]
    return {"bells": bells, "waves": waves}


def population(d: int, n: int, rng: np.random.Generator) -> FloatArray:
    """People around a point inside the bounds."""
    return np.clip(rng.normal(np.array([0.2, -0.1, 0.0])[:d], np.array([0.4, 0.3, 0.5])[:d], (n, d)), -1, 1)


def _task(
    d: int, settings: SmoothQuerySettings
) -> tuple[FloatArray, dict[str, list[Function]], dict[str, list[float]]]:
    rng = np.random.default_rng([settings.seed, d])
    x, functions = population(d, settings.n, rng), smooth_functions(d, settings.functions, rng)
    return x, functions, {kind: [float(one(x).mean()) for one in each] for kind, each in functions.items()}


def _collect(d: int, n_degrees: int, settings: SmoothQuerySettings) -> dict[str, Any]:
    """Return the errors and the stated errors of all collections, by the kind of function."""
    x, functions, truths = _task(d, settings)
    errors: dict[str, list[float]] = {kind: [] for kind in functions}
    stated: dict[str, list[float]] = {kind: [] for kind in functions}
    for _ in range(settings.runs):
        model = SmoothQueries(settings.epsilon, low=[-1] * d, high=[1] * d, n_degrees=n_degrees).fit(x)
        for kind, each in functions.items():
            answers = [model.query(one) for one in each]
            off = [answer.value - truth for answer, truth in zip(answers, truths[kind], strict=True)]
            errors[kind].append(float(np.sqrt(np.mean(np.square(off)))))
            stated[kind].append(float(np.sqrt(np.mean([answer.error**2 for answer in answers]))))
    return {"errors": errors, "stated": stated}


def measure(run: Run) -> Result:
    """Ask for means of smooth functions of one to three columns."""
    settings: SmoothQuerySettings = run.settings
    tasks = {
        (d, degree): partial(_collect, d, degree, settings) for d in settings.columns for degree in settings.degrees
    }
    found = run.pieces({f"{d} columns, {degree} degrees": task for (d, degree), task in tasks.items()})
    rows = []
    for d, degree in tasks:
        one = found[f"{d} columns, {degree} degrees"]
        for kind, errors in one["errors"].items():
            why = "the paper leaves the method to a supplement and prints no measurements; stated error "
            why += f"{np.mean(one['stated'][kind]):.2g}"
            rows.append(ResultRow(f"d = {d}, {degree} degrees, {kind}: error", Measured.over(errors), None, None, why))
    notes = (
        f"Errors are root mean squares over {settings.functions} functions of a kind with values in [0, 1]; one "
        f"collection at epsilon {settings.epsilon:g} answers all of them, from one bit per person.",
        "Without privacy: a sample of as many people, drawn with replacement, against all; null: the mean under the "
        "uniform distribution on the bounds, known without data.",
    )
    return Result(tuple(rows), tuple(_baseline(d, settings) for d in settings.columns), notes=notes)


def _baseline(d: int, settings: SmoothQuerySettings) -> Baseline:
    x, functions, truths = _task(d, settings)
    everywhere = np.random.default_rng([settings.seed, d, 1]).uniform(-1, 1, (20_000, d))
    flat = [(one, truth) for kind, each in functions.items() for one, truth in zip(each, truths[kind], strict=True)]
    variances = [float(one(x).var()) / len(x) for one, _ in flat]
    null = [(float(one(everywhere).mean()) - truth) ** 2 for one, truth in flat]
    name, data = f"{d} columns", "made: normal people, clipped"
    least, most = (float(np.sqrt(np.mean(values))) for values in (variances, null))
    return Baseline(name, data, len(x), d, settings.seed, "error", least, most)


EXPERIMENT = Experiment(
    name="local-queries",
    paper=PAPER,
    what="means of smooth functions from one bit per person",
    minutes=1,
    measure=measure,
    full=SmoothQuerySettings(columns=(1, 2, 3), n=1_000_000, runs=4, functions=12, degrees=(4, 8)),
    fast=SmoothQuerySettings(columns=(1, 2), n=20_000, runs=2, functions=3, degrees=(4,)),
)
