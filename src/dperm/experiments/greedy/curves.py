"""Errors along fits, against passes over the data and against seconds: what figures 1, 3 and 4 draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dperm.experiments.charts import Curve, Line, Panel
from dperm.experiments.experiment import Run
from dperm.experiments.greedy.methods import Fit, Path, fit, passes_per_step
from dperm.experiments.greedy.problems import Problem, Problems, Size
from dperm.experiments.greedy.settings import setting
from dperm.experiments.result import Measured

__all__ = ["CurveSettings", "FoundCurve", "curves_of", "panel"]


@dataclass(frozen=True)
class CurveSettings:
    """Fits of each method, the most points of a curve, and the most rows and columns of a data set."""

    runs: int
    points: int
    rows: int
    columns: int


@dataclass(frozen=True)
class FoundCurve:
    """Errors of several fits of one method at the same steps; the first point is the start, weights of 0."""

    passes: tuple[float, ...]
    #: means over the fits
    seconds: tuple[float, ...]
    #: one tuple for each fit
    errors: tuple[tuple[float, ...], ...]

    def curve(self, label: str, x: Sequence[float]) -> Curve:
        """Return the mean error with the band from the least to the largest."""
        columns = list(zip(*self.errors, strict=True))
        means = tuple((place, sum(column) / len(column)) for place, column in zip(x, columns, strict=True))
        return Curve(label, means, tuple(map(min, columns)), tuple(map(max, columns)))

    @property
    def last(self) -> Measured:
        """The error at the end of the fit."""
        return Measured.over([one[-1] for one in self.errors])


def _measure(problem: Callable[[], Problem], how: Fit, settings: CurveSettings) -> dict[str, Any]:
    """Follow the fits of one method on one problem."""
    here = problem()
    null = here.baseline().null_error
    fit(here, how)  # compiles, and makes the design, before time is taken
    paths = []
    for _ in range(settings.runs):
        path = Path(here, settings.points)
        fit(here, how, path)
        paths.append(path.points)
    one_step = passes_per_step(here, how.solver)
    return {
        "passes": [0.0, *(done * one_step for done, _, _ in paths[0])],
        "seconds": [0.0, *(sum(point[2] for point in at) / len(at) for at in zip(*paths, strict=True))],
        "errors": [[null, *(error for _, error, _ in path)] for path in paths],
    }


def curves_of(
    run: Run, names: Sequence[str], methods: Sequence[str]
) -> tuple[Problems, dict[tuple[str, str], FoundCurve]]:
    """Measure every method, by its name in the table of settings, on every problem."""
    settings: CurveSettings = run.settings
    problems = Problems(run.data, Size(settings.rows, settings.columns))
    tasks = {
        (name, method): partial(_measure, partial(problems.__getitem__, name), setting(name, method), settings)
        for name in names
        for method in methods
    }
    found = run.pieces({f"{name} {method}": task for (name, method), task in tasks.items()})
    curves = {}
    for name, method in tasks:
        one = found[f"{name} {method}"]
        errors = tuple(tuple(errors) for errors in one["errors"])
        curves[name, method] = FoundCurve(tuple(one["passes"]), tuple(one["seconds"]), errors)
    return problems, curves


def panel(problem: Problem, title: str, found: dict[str, FoundCurve], x_label: str) -> Panel:
    """Draw the methods of one problem against "passes" or "seconds"."""
    curves = tuple(one.curve(label, getattr(one, x_label)) for label, one in found.items())
    null = Line("null model", problem.baseline().null_error)
    return Panel(title, f"{x_label}", "relative error", curves, lines=(null,), log_y=True)
