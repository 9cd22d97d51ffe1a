"""Figure 4 of the DP-GCD paper: the error of DP-GCD, DP-CD and DP-SGD against running time."""

from __future__ import annotations

from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.greedy.curves import CurveSettings, curves_of, panel
from dperm.experiments.greedy.figure1 import NAMES
from dperm.experiments.greedy.problems import ASSUMED, FILES, NEIGHBOURS
from dperm.experiments.greedy.settings import RULE
from dperm.experiments.greedy.table3 import PAPER
from dperm.experiments.result import Result, ResultRow

__all__ = ["EXPERIMENT"]

_METHODS = {"DP-GCD": f"DP-GCD {RULE}", "DP-CD": "DP-CD", "DP-SGD": "DP-SGD"}


def measure(run: Run) -> Result:
    """Take the time of all methods on all problems."""
    problems, curves = curves_of(run, NAMES, tuple(_METHODS.values()))
    rows, panels = [], []
    for name in NAMES:
        found = {label: curves[name, method] for label, method in _METHODS.items()}
        for label, one in found.items():
            rows.append(
                ResultRow(
                    f"{name}, {label}: seconds of a fit, error at its end",
                    f"{one.seconds[-1]:.2g} s, {one.last.mean:.3g}",
                    None,
                    None,
                    "the paper prints no seconds; another machine, exact noise, every release charged",
                )
            )
        panels.append(panel(problems[name], problems[name].title, found, "seconds"))
    notes = (
        "Seconds leave out making the private table, calibrating the noise, and evaluating the error.",
        ASSUMED,
        NEIGHBOURS,
    )
    return Result(tuple(rows), tuple(problems[name].baseline() for name in NAMES), tuple(panels), notes)


EXPERIMENT = Experiment(
    name="gcd-figure4",
    paper=PAPER,
    what="error of DP-GCD, DP-CD and DP-SGD against running time",
    minutes=1.5,
    measure=measure,
    full=CurveSettings(runs=5, points=40, rows=100_000, columns=100_000),
    fast=CurveSettings(runs=2, points=5, rows=300, columns=60),
    data=tuple(FILES.values()),
    needs=("dp-accounting",),
)
