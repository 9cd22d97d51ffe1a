"""Figure 3 of the DP-GCD paper: the rules GS-s, GS-r and GS-q with an l1 penalty, next to DP-CD and DP-SGD."""

from __future__ import annotations

from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.greedy.curves import CurveSettings, curves_of, panel
from dperm.experiments.greedy.problems import ASSUMED, FILES, L1_PROBLEMS, NEIGHBOURS
from dperm.experiments.greedy.table3 import PAPER
from dperm.experiments.result import Result, ResultRow
from dperm.queries.greedy import RULES

__all__ = ["EXPERIMENT"]

_OTHERS = ("DP-CD", "DP-SGD")


def measure(run: Run) -> Result:
    """Follow the three rules with both kinds of noise."""
    certified = {f"DP-GCD, {rule}": f"DP-GCD {rule}" for rule in RULES}
    printed = {label: f"{method}, printed" for label, method in certified.items()}
    problems, curves = curves_of(run, L1_PROBLEMS, (*certified.values(), *printed.values(), *_OTHERS))
    rows, panels = [], []
    for name in L1_PROBLEMS:
        for label, method in certified.items():
            ours, theirs = curves[name, method].last, curves[name, printed[label]].last
            why = "the paper shows curves, on which the three rules differ little except on california"
            rows.append(ResultRow(f"{name}, {label}: error at the end", ours, theirs, None, why))
        for noise, methods in (("certified noise", certified), ("printed noise", printed)):
            found = {label: curves[name, method] for label, method in methods.items()}
            found |= {label: curves[name, label] for label in _OTHERS}
            panels.append(panel(problems[name], f"{name}, {noise}", found, "passes"))
    notes = (
        ASSUMED,
        f"{NEIGHBOURS} In the panels of printed noise DP-CD and DP-SGD are the certified runs.",
        "Printed noise: Laplace noise in every gradient before its score is taken (Theorem 4.2, implicit form), on "
        "scores that are not cut off at zero. It has no guarantee. For GS-s its true cost is certified to be at most "
        "twice the printed one per choice; for GS-r and GS-q no bound is known to us.",
        "The margin of a weight of zero is the same under all three rules, so that they differ only where a column is "
        "chosen again: rarely on square, dorothea and madelon.",
    )
    baselines = tuple(problems[name].baseline() for name in L1_PROBLEMS)
    return Result(tuple(rows), baselines, tuple(panels), notes, columns=4)


EXPERIMENT = Experiment(
    name="gcd-figure3",
    paper=PAPER,
    what="the rules GS-s, GS-r and GS-q of proximal DP-GCD, certified and printed noise",
    minutes=2,
    measure=measure,
    full=CurveSettings(runs=20, points=40, rows=100_000, columns=100_000),
    fast=CurveSettings(runs=2, points=5, rows=300, columns=60),
    data=tuple(FILES[name] for name in L1_PROBLEMS if name in FILES),
    needs=("dp-accounting",),
)
