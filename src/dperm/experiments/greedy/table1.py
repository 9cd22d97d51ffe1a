"""Table 1 of the DP-GCD paper: rows and columns of the data sets."""

from __future__ import annotations

from functools import partial

from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.greedy.figure2 import OptimumSettings
from dperm.experiments.greedy.problems import FILES, L1_PROBLEMS, L2_PROBLEMS, Problems, Size
from dperm.experiments.greedy.table3 import PAPER
from dperm.experiments.result import Result, ResultRow

__all__ = ["EXPERIMENT", "PRINTED_SIZES"]

#: rows and columns of Table 1
PRINTED_SIZES = {
    "log1": (1000, 100),
    "log2": (1000, 100),
    "square": (1000, 1000),
    "mtp": (4450, 202),
    "dorothea": (800, 88119),
    "california": (20640, 8),
    "madelon": (2600, 501),
}
_WHY = {
    "mtp": "another edition of the same melting points: 49 rows fewer",
    "madelon": "the paper counts one column more, perhaps a constant; ours has the 500 of the source",
}


def measure(run: Run) -> Result:
    """Count rows and columns."""
    settings: OptimumSettings = run.settings
    problems = Problems(run.data, Size(settings.rows, settings.columns))
    sizes = run.pieces({name: partial(_size, problems, name) for name in PRINTED_SIZES})
    rows = []
    for name, (n, p) in PRINTED_SIZES.items():
        mine = tuple(sizes[name])
        why = "as printed" if mine == (n, p) else "made data, or a part of the data"
        if mine != (n, p) and not problems[name].data.origin.startswith("made"):
            why = _WHY.get(name, why)
        rows.append(ResultRow(f"{name}: rows, columns", None, None, f"{n}, {p}", why, f"{mine[0]}, {mine[1]}"))
    shown = [name for name in (*L2_PROBLEMS, *L1_PROBLEMS) if name in PRINTED_SIZES]
    return Result(tuple(rows), tuple(problems[name].baseline() for name in shown))


def _size(problems: Problems, name: str) -> list[int]:
    return [problems[name].n, problems[name].p]


EXPERIMENT = Experiment(
    name="gcd-table1",
    paper=PAPER,
    what="rows and columns of the data sets",
    minutes=0.1,
    measure=measure,
    full=OptimumSettings(n_large=5, bars=1, rows=100_000, columns=100_000),
    fast=OptimumSettings(n_large=5, bars=1, rows=300, columns=60),
    data=tuple(FILES.values()),
)
