"""Tables 2 and 4 of the DP-GCD paper: the grid of options, the chosen ones, and what the printed choice gives here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.greedy.methods import Fit, fit
from dperm.experiments.greedy.problems import ASSUMED, FILES, L1_PROBLEMS, L2_PROBLEMS, Problem, Problems, Size
from dperm.experiments.greedy.settings import RULE, TUNED_OTHERWISE, setting
from dperm.experiments.greedy.table3 import PAPER
from dperm.experiments.result import Measured, Result, ResultRow
from dperm.solvers import CoordinateDescent, GreedyCoordinateDescent, StochasticGradientDescent

__all__ = [
    "CHOSEN",
    "GRID",
    "TABLE2",
    "TABLE4",
    "ChoiceSettings",
    "GridSettings",
    "PrintedChoice",
    "as_printed",
    "our_options",
    "why_options",
]


@dataclass(frozen=True)
class PrintedChoice:
    """A line of Table 4."""

    passes: float
    clip: float
    step: float


@dataclass(frozen=True)
class ChoiceSettings:
    """Fits of each method and the most steps of one (more take minutes), and the most rows and columns of a data set.

    A fit of DP-SGD with one person per batch takes seconds, so there are fewer of them.
    """

    runs: int
    runs_of_sgd: int
    most_steps: int
    rows: int
    columns: int


@dataclass(frozen=True)
class GridSettings:
    """Table 2 shows options and fits nothing: there is nothing to set."""


#: Table 4 as printed
CHOSEN: dict[tuple[str, str], PrintedChoice] = {
    ("california", "DP-CD"): PrintedChoice(5.0, 2.02e01, 1.0),
    ("square", "DP-CD"): PrintedChoice(0.01, 9.10e03, 10.0),
    ("mtp", "DP-CD"): PrintedChoice(3.0, 2.02e01, 2.15e-02),
    ("madelon", "DP-CD"): PrintedChoice(0.1, 7.91, 2.15),
    ("log1", "DP-CD"): PrintedChoice(10.0, 1.84e-01, 1.0),
    ("log2", "DP-CD"): PrintedChoice(1.0, 7.54e-01, 2.15),
    ("madelon (l2)", "DP-CD"): PrintedChoice(10.0, 1.21, 0.1),
    ("dorothea", "DP-CD"): PrintedChoice(3.0, 4.50e-02, 4.64),
    ("california", "DP-SGD"): PrintedChoice(20.0, 1.26e01, 2.15e-05),
    ("square", "DP-SGD"): PrintedChoice(0.01, 4.94, 1e-4),
    ("mtp", "DP-SGD"): PrintedChoice(20.0, 1.26e01, 2.15e-05),
    ("madelon", "DP-SGD"): PrintedChoice(10.0, 6.87e-03, 1.0),
    ("log1", "DP-SGD"): PrintedChoice(20.0, 1.84e-01, 4.64e-04),
    ("log2", "DP-SGD"): PrintedChoice(20.0, 1.84e-01, 4.64e-04),
    ("madelon (l2)", "DP-SGD"): PrintedChoice(20.0, 1.84e-01, 1e-4),
    ("dorothea", "DP-SGD"): PrintedChoice(0.001, 1e-4, 1e-6),
    ("california", "DP-GCD"): PrintedChoice(4, 5.18e01, 1.0),
    ("square", "DP-GCD"): PrintedChoice(2, 1.46e04, 2.15),
    ("mtp", "DP-GCD"): PrintedChoice(7, 2.02e01, 4.64e-01),
    ("madelon", "DP-GCD"): PrintedChoice(1, 7.91, 2.15),
    ("log1", "DP-GCD"): PrintedChoice(10, 3.09, 2.15),
    ("log2", "DP-GCD"): PrintedChoice(20, 1.93, 4.64e-01),
    ("madelon (l2)", "DP-GCD"): PrintedChoice(10, 7.91, 1.0),
    ("dorothea", "DP-GCD"): PrintedChoice(2, 1.26e01, 2.15),
}

#: Table 2 as printed, and what `benchmarks/greedy_settings.py` tries
GRID = {
    "DP-CD, passes": (".001, .01, .1, 1, 2, 3, 5, 10, 20", "the same up to 4,000 steps, and 1 and 3 steps"),
    "DP-CD, step": ("10 from .01 to 10", "the same"),
    "DP-CD, clip": ("50 from 1e-4 to 1e6", "9 parts of the largest possible product, from .01 to 1"),
    "DP-SGD, passes": (".001, .01, .1, 1, 2, 3, 5, 10, 20", "1 to 320 batches of 2, 10 or 50%, up to 20 passes"),
    "DP-SGD, step": ("10 from 1e-6 to 1", "6 from .01 to 50 times 1 / curvature of a usual row"),
    "DP-SGD, clip": ("50 from 1e-4 to 1e6", "4 parts of the largest norm of a usual row, from .02 to 1"),
    "DP-GCD, passes": ("1, 2, 4, 7, 10, 15, 20", "1, 2, 3, 4, 6, 8, 10, 15, 20"),
    "DP-GCD, step": ("10 from .01 to 10", "7 from .46 to 8"),
    "DP-GCD, clip": ("50 from 1e-4 to 1e6", "9 parts of the largest possible product, from .01 to 1"),
    "DP-GCD, share of the budget for choices": ("1/2", ".3, .5, .7, .85"),
}

_NAMES = (*L2_PROBLEMS, *L1_PROBLEMS)


def our_options(how: Fit) -> str:
    """Return our options in the order of the paper's table."""
    solver = how.solver
    if isinstance(solver, GreedyCoordinateDescent):
        return f"{solver.n_steps}, C_j {solver.limit}, {solver.step:g}, share {solver.selection_share:g}"
    if isinstance(solver, CoordinateDescent):
        return f"{solver.n_passes:.3g}, {solver.clip}, {solver.step:g}"
    assert isinstance(solver, StochasticGradientDescent)
    assert solver.rate is not None
    return f"{solver.n_steps * solver.rate:g} (batches of {solver.rate:.0%}), {solver.clip}, {solver.step}"


def why_options(name: str, method: str) -> str:
    """Return why our options are not the paper's."""
    how = TUNED_OTHERWISE.get((name, method), "chosen on a grid of our own")
    return f"ours were chosen for other noise; they were {how}; the clip of DP-GCD is that of one column"


def as_printed(problem: Problem, method: str, choice: PrintedChoice) -> Fit:
    """Return the paper's options as ours.

    The paper's threshold is that of the whole gradient; with columns of one scale each gets its part 1 / sqrt(p).
    Its batches of one person are Poisson batches of one person on average.
    """
    if method == "DP-GCD":
        rule = RULE if problem.penalty == "l1" else "GS-s"
        solver = GreedyCoordinateDescent(
            n_steps=int(choice.passes), limit=choice.clip / problem.p**0.5, step=choice.step, rule=rule
        )
        return Fit(solver, printed=True)
    if method == "DP-CD":
        return Fit(CoordinateDescent(n_passes=choice.passes, clip=choice.clip, step=choice.step))
    n_steps = max(1, round(choice.passes * problem.n))
    one_each = {"rate": 1.0 / problem.n, "averaging": 0.0}
    return Fit(StochasticGradientDescent(n_steps=n_steps, clip=choice.clip, step=choice.step, **one_each))


def _errors(problem: Callable[[], Problem], method: str, choice: PrintedChoice, settings: ChoiceSettings) -> Any:
    """Return the errors of fits with the printed options; None if they take too many steps."""
    here = problem()
    how = as_printed(here, method, choice)
    if how.solver.plan(here.objective, here.design.facts).releases[0].count > settings.most_steps:
        return None
    runs = settings.runs_of_sgd if method == "DP-SGD" else settings.runs
    return [here.relative_error(fit(here, how)) for _ in range(runs)]


def measure_choices(run: Run) -> Result:
    """Show both choices, and fit with the printed ones."""
    settings: ChoiceSettings = run.settings
    problems = Problems(run.data, Size(settings.rows, settings.columns))
    found = run.pieces(
        {
            f"{name} {method}": partial(_errors, partial(problems.__getitem__, name), method, choice, settings)
            for (name, method), choice in CHOSEN.items()
        }
    )
    rows = []
    for (name, method), choice in CHOSEN.items():
        ours = setting(name, f"DP-GCD {RULE}" if method == "DP-GCD" else method)
        printed = f"{choice.passes:g}, {choice.clip:g}, {choice.step:g}"
        what, why = f"{name}, {method}: passes, clip, step", why_options(name, method)
        rows.append(ResultRow(what, our_options(ours), None, printed, why))
        if (errors := found[f"{name} {method}"]) is not None:
            error = Measured.over(errors)
            mine, theirs = (None, error) if method == "DP-GCD" else (error, None)
            why = "targets, strengths and so the scale of clips are other ones: an option of theirs may not fit here"
            if method == "DP-SGD":
                why = "one person per batch, as in the paper; zero-out neighbours"
            rows.append(ResultRow(f"{name}, {method}: error with the printed options", mine, theirs, None, why))
    notes = (f"Printed options with more than {settings.most_steps:,} steps are shown and not run.", ASSUMED)
    return Result(tuple(rows), tuple(problems[name].baseline() for name in _NAMES), notes=notes)


def measure_grid(run: Run) -> Result:
    """Show both grids."""
    why = "fewer and coarser clips, tried with fresh noise in three rounds; they span what can matter"
    rows = [ResultRow(what, ours, None, printed, why) for what, (printed, ours) in GRID.items()]
    for (name, method), how in TUNED_OTHERWISE.items():
        ours = f"{method} on {name}: {how}"
        rows.append(ResultRow(f"{name}, {method}, exception", ours, None, None, "tuning was not equal"))
    return Result(tuple(rows), (), no_data="the table lists options that were tried.")


TABLE2 = Experiment(
    name="gcd-table2",
    paper=PAPER,
    what="the grids of options that were tried",
    minutes=0.1,
    measure=measure_grid,
    full=GridSettings(),
    fast=GridSettings(),
)
TABLE4 = Experiment(
    name="gcd-table4",
    paper=PAPER,
    what="the chosen options, and the error with the printed ones",
    minutes=7.5,
    measure=measure_choices,
    full=ChoiceSettings(runs=10, runs_of_sgd=3, most_steps=60_000, rows=100_000, columns=100_000),
    fast=ChoiceSettings(runs=1, runs_of_sgd=1, most_steps=700, rows=300, columns=60),
    data=tuple(FILES.values()),
    needs=("dp-accounting",),
)
