"""Figure 2 of the DP-GCD paper: how large the weights of each optimum are, and how quasi-sparse it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dperm.experiments.charts import Bars, Line, Panel
from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.greedy.problems import FILES, L1_PROBLEMS, L2_PROBLEMS, Problems, Size
from dperm.experiments.greedy.table3 import PAPER
from dperm.experiments.result import Result, ResultRow
from dperm.solvers.theory.rates import is_quasi_sparse, quasi_sparsity

__all__ = ["EXPERIMENT", "OptimumSettings"]


@dataclass(frozen=True)
class OptimumSettings:
    """Number of large weights tau, bars of a histogram, and the most rows and columns of a data set."""

    n_large: int
    bars: int
    rows: int
    columns: int


_BALANCED = "mtp"
_NAMES = (*L2_PROBLEMS, *L1_PROBLEMS)


def _sizes(problems: Problems, name: str, settings: OptimumSettings) -> dict[str, Any]:
    """Return the histogram of the weights' magnitudes, alpha, and what else the rows need."""
    sizes = np.sort(np.abs(problems[name].optimum))[::-1]
    alpha = float(sizes[settings.n_large]) if len(sizes) > settings.n_large else 0.0
    assert is_quasi_sparse(sizes, alpha, settings.n_large)
    heights, edges = np.histogram(sizes, settings.bars)
    return {
        "alpha": alpha,
        "outstanding": quasi_sparsity(sizes, 0.5 * float(sizes[0])),
        "nonzero": quasi_sparsity(sizes, 0.0),
        "heights": heights.tolist(),
        "edges": edges.tolist(),
    }


def measure(run: Run) -> Result:
    """Compute the optima and their histograms."""
    settings: OptimumSettings = run.settings
    problems = Problems(run.data, Size(settings.rows, settings.columns))
    found = run.pieces({name: partial(_sizes, problems, name, settings) for name in _NAMES})
    rows, panels = [], []
    for name in _NAMES:
        one = found[name]
        said = "balanced" if name == _BALANCED else "few weights stand out"
        rows.append(
            ResultRow(
                f"{name}: alpha that makes the optimum (alpha, {settings.n_large})-quasi-sparse",
                None,
                None,
                None,
                "the paper draws alpha and prints no number; scales of columns and the l2 strength are not printed",
                one["alpha"],
            )
        )
        rows.append(
            ResultRow(
                f"{name}: weights above half of the largest, and nonzero ones",
                None,
                None,
                said,
                "the paper's words for its figure; the first number is ours",
                f"{one['outstanding']}, {one['nonzero']} of {problems[name].p}",
            )
        )
        # one more than the count, so that bars of one weight show on the logarithmic axis
        heights = tuple(height + 1.0 if height else 0.0 for height in one["heights"])
        bars = Bars("number of weights, plus 1", tuple(one["edges"]), heights)
        title = problems[name].title
        panels.append(
            Panel(
                title,
                "size of weight",
                "number of weights, plus 1",
                bars=(bars,),
                lines=(Line("alpha", one["alpha"], True),),
                log_y=True,
            )
        )
    return Result(
        tuple(rows),
        tuple(problems[name].baseline() for name in _NAMES),
        tuple(panels),
        ("Bars are drawn one weight higher than they are, so that bars of one weight show on the logarithmic axis.",),
    )


EXPERIMENT = Experiment(
    name="gcd-figure2",
    paper=PAPER,
    what="sizes of the optimum's weights, and its quasi-sparsity",
    minutes=0.1,
    measure=measure,
    full=OptimumSettings(n_large=5, bars=30, rows=100_000, columns=100_000),
    fast=OptimumSettings(n_large=5, bars=10, rows=300, columns=60),
    data=tuple(FILES.values()),
)
