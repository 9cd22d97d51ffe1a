"""Table 3 of the DP-GCD paper: which weights are found, and the error, on the four problems with an l1 penalty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.greedy.methods import Fit, fit
from dperm.experiments.greedy.problems import ASSUMED, FILES, L1_PROBLEMS, Problem, Problems, Size
from dperm.experiments.greedy.settings import RULE, TUNED_OTHERWISE, setting
from dperm.experiments.result import Measured, Result, ResultRow

__all__ = ["EXPERIMENT", "PAPER", "FitSettings"]

PAPER = "Mangold et al. 2023, DP-GCD"


@dataclass(frozen=True)
class FitSettings:
    """Fits of each method, and the most rows and columns of a data set."""

    runs: int
    rows: int
    columns: int
    #: seeds of further data sets made as `square`, on which no option was chosen
    other_seeds: tuple[int, ...] = ()


#: (found right / wrong, relative error) as printed
_PRINTED = {
    ("square", "DP-CD"): ("0 / 0", 0.75),
    ("square", "DP-SGD"): ("0 / 3", 0.75),
    ("square", "DP-GCD"): ("2 / 0", 0.35),
    ("california", "DP-CD"): ("3 / 2", 0.0024),
    ("california", "DP-SGD"): ("3 / 5", 0.020),
    ("california", "DP-GCD"): ("2 / 0", 0.00056),
    ("dorothea", "DP-CD"): ("1 / 1", 0.77),
    ("dorothea", "DP-SGD"): ("0 / 0", 0.78),
    ("dorothea", "DP-GCD"): ("1 / 0", 0.64),
    ("madelon", "DP-CD"): ("0 / 0", 0.0085),
    ("madelon", "DP-SGD"): ("0 / 0", 0.012),
    ("madelon", "DP-GCD"): ("1 / 0", 0.0015),
}
#: nonzero weights of the optimum as printed, and the error of methods that found nothing
_OPTIMUM = {"square": (7, 0.75), "california": (3, None), "dorothea": (72, 0.78), "madelon": (3, 0.012)}

_WHY = {
    "DP-GCD": "certified noise has exact accounting and Gumbel noise on scores. Printed noise gives another error than "
    "the paper's as well: options were chosen on a grid of our own, and the paper prints neither the scales of its "
    "columns and targets nor its strengths",
    "DP-CD": "exact Gaussian accounting; another choice of limits, and of the draw of coordinates",
    "DP-SGD": "Poisson batches of 2% and more in place of single people, at most as many passes; zero-out neighbours",
    "DP-SGD, replace-one": "as DP-SGD, calibrated to half of epsilon: group privacy for two people",
}
_METHODS = tuple(_WHY)
_SQUARE = "the paper's data are made, and its seed is not printed"
#: both clips stand in `gcd-table4`
_MANY_WRONG = (
    "the noise of the one step reaches all 88,119 columns; at our clip of .603 it lifts more than a thousand of them "
    "over the threshold of the l1 penalty, to weights too small to change the error. With the paper's clip of .0001 "
    "all stay 0"
)
SEED_OF_SQUARE = (
    "`square` is made: seeds 1 to 20 were tried for both printed facts of its optimum (7 nonzero weights, null error "
    ".75), and 10 is the first that meets them. The row of other seeds has data that were not chosen."
)


def why_error(name: str, method: str, ours: Measured, greedy: Measured) -> str:
    """Return why an error is not the paper's, or how it stands to DP-GCD's."""
    why = _WHY[method]
    if name == "square":
        why = f"{_SQUARE}; {why}"
    if (name, method) in TUNED_OTHERWISE:
        why = f"options were {TUNED_OTHERWISE[name, method]}; {why}"
    if method == "DP-SGD" and ours.mean < greedy.mean - 2.0 * math.hypot(ours.error, greedy.error):
        why = f"ahead of DP-GCD, under zero-out, the weaker promise; {why}"
    return why


def why_support(name: str, method: str, runs: int) -> str:
    """Return why the weights that are found are not the paper's."""
    fits = f"means of {runs} fits; the paper's are of 5"
    if name == "dorothea" and method.startswith("DP-SGD"):
        return f"{_MANY_WRONG}; {fits}"
    if (name, method) in TUNED_OTHERWISE:
        return f"options were {TUNED_OTHERWISE[name, method]}; {fits}"
    return f"as for the error; {fits}"


def _tuning_notes() -> tuple[str, ...]:
    """Say which options were chosen in another way than the rest."""
    return tuple(f"{name}, {method}: options were {how}." for (name, method), how in TUNED_OTHERWISE.items())


def _fits(problem: Callable[[], Problem], how: Fit, runs: int) -> list[list[float]]:
    """Return error, right and wrong of every fit."""
    found = []
    for _ in range(runs):
        w = fit(problem(), how)
        found.append([problem().relative_error(w), *problem().found(w)])
    return found


def measure(run: Run) -> Result:
    """Fit every problem with every method."""
    settings: FitSettings = run.settings
    problems = Problems(run.data, Size(settings.rows, settings.columns))
    tasks: dict[str, Callable[[], Any]] = {}
    for name in L1_PROBLEMS:
        for method in (*_METHODS, "DP-GCD, printed"):
            how = setting(name, method.replace("DP-GCD", f"DP-GCD {RULE}"))
            tasks[f"{name} {method}"] = partial(_fits, partial(problems.__getitem__, name), how, settings.runs)
    for seed in settings.other_seeds:
        for noise in ("", ", printed"):
            how = setting("square", f"DP-GCD {RULE}{noise}")
            tasks[f"square seed {seed}{noise}"] = partial(_other_square, problems, seed, how, settings.runs)
    found = run.pieces(tasks)
    rows = [_others_row(found, settings)] if settings.other_seeds else []
    for name in L1_PROBLEMS:
        problem = problems[name]
        count, null = _OPTIMUM[name]
        same = "the strength was chosen to meet the printed numbers"
        if name == "square":
            same = "strength and seed were chosen to meet the printed numbers"
        if name != "square" and problem.data.seed is not None:
            same = "made data"
        rows.append(
            ResultRow(f"{name}: nonzero weights of the optimum", None, None, count, same, float(len(problem.support)))
        )
        rows.append(
            ResultRow(f"{name}: error of the null model", None, None, null, same, problem.baseline().null_error)
        )
        for method in _METHODS:
            printed = found[f"{name} DP-GCD, printed"] if method == "DP-GCD" else None
            support, error = _PRINTED.get((name, method), (None, None))
            ours = found[f"{name} {method}"]
            rows.append(
                ResultRow(
                    f"{name}, {method}: error",
                    _error(ours),
                    printed and _error(printed),
                    error,
                    why_error(name, method, _error(ours), _error(found[f"{name} DP-GCD"])),
                )
            )
            rows.append(
                ResultRow(
                    f"{name}, {method}: right / wrong",
                    _support(ours),
                    printed and _support(printed),
                    support,
                    why_support(name, method, settings.runs),
                )
            )
    notes = (
        "Right / wrong: nonzero weights of the fit that are nonzero, or zero, in the optimum without privacy.",
        "Printed noise is that of the paper's Theorem 4.2 (implicit form) for the same rule. It has no guarantee.",
        ASSUMED,
        *_tuning_notes(),
        SEED_OF_SQUARE,
    )
    return Result(tuple(rows), tuple(problems[name].baseline() for name in L1_PROBLEMS), notes=notes)


def _other_square(problems: Problems, seed: int, how: Fit, runs: int) -> list[list[float]]:
    problem = problems.square(seed)
    return _fits(lambda: problem, how, runs)


def _others_row(found: dict[str, Any], settings: FitSettings) -> ResultRow:
    """Return the mean over other data sets made as `square`, with the spread between data sets."""

    def mean(noise: str) -> Measured:
        return Measured.over([_error(found[f"square seed {seed}{noise}"]).mean for seed in settings.other_seeds])

    seeds = ", ".join(str(seed) for seed in settings.other_seeds)
    return ResultRow(
        f"square, other data (seeds {seeds}), DP-GCD: error",
        mean(""),
        mean(", printed"),
        0.35,
        "options were chosen on seed 10; data of these seeds were not looked at, strengths give the printed null error",
    )


def _error(fits: list[list[float]]) -> Measured:
    return Measured.over([one[0] for one in fits])


def _support(fits: list[list[float]]) -> str:
    right, wrong = (sum(one[k] for one in fits) / len(fits) for k in (1, 2))
    return f"{right:.1f} / {wrong:.1f}"


EXPERIMENT = Experiment(
    name="gcd-table3",
    paper=PAPER,
    what="weights found right and wrong, and relative error, with an l1 penalty",
    minutes=1.5,
    measure=measure,
    full=FitSettings(runs=30, rows=100_000, columns=100_000, other_seeds=(101, 102, 103, 104, 105)),
    fast=FitSettings(runs=2, rows=400, columns=300, other_seeds=(101,)),
    data=tuple(FILES[name] for name in L1_PROBLEMS if name in FILES),
    needs=("dp-accounting",),
)
