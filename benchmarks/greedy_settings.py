"""Choose the options of DP-GCD, DP-CD and DP-SGD for the experiments of the DP-GCD paper, on noise of its own.

Prints the lines of `src/dperm/experiments/greedy/settings.py`. As in the paper, options are chosen on the same data,
and this choice is not paid for: the experiments compare methods at their best, they are no guide to a private fit.
Every grid is tried with 2 fits each, the best 30 with 10, the best 6 with 60.
Run: DPERM_DATA=... python benchmarks/greedy_settings.py [--problems square madelon] [--methods DP-GCD]
"""

from __future__ import annotations

import argparse
import itertools
import os
import warnings

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
import scipy.sparse as sp

from dperm.errors import DpermError
from dperm.experiments.datasets import DataFolder
from dperm.experiments.greedy.methods import Fit, fit
from dperm.experiments.greedy.problems import L1_PROBLEMS, L2_PROBLEMS, Problems, Size
from dperm.solvers import CoordinateDescent, GreedyCoordinateDescent, StochasticGradientDescent

#: parts of the largest possible product of slope and value, or of the largest gradient norm
PARTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
#: a fit of more steps than this, or of more weights in all of its steps, takes minutes in the grid
MOST_STEPS, MOST_WEIGHTS = 4000, 10_000_000
ROUNDS = ((2, 30), (10, 6), (60, 1))


def greedy(problem, printed, rule):
    """Every combination of steps, length, limit and share; printed noise has no share."""
    natural = problem.objective.loss.slope_bound * problem.clip
    shares = (0.75,) if printed else (0.3, 0.5, 0.7, 0.85)
    steps, lengths = (1, 2, 3, 4, 6, 8, 10, 15, 20), (0.46, 0.75, 1.0, 1.5, 2.15, 4.0, 8.0)
    for n, length, part, share in itertools.product(steps, lengths, PARTS, shares):
        solver = GreedyCoordinateDescent(
            n_steps=n, rule=rule, step=length, limit=round(part * natural, 4), selection_share=share
        )
        yield Fit(solver, printed=printed)


def coordinate(problem):
    """Every combination of passes, length and limit; the clip of the whole gradient gives every coordinate its part."""
    natural = problem.objective.loss.slope_bound * problem.clip * np.sqrt(problem.p)
    passes = (1.0 / problem.p, 3.0 / problem.p, 0.001, 0.01, 0.1, 1, 2, 3, 5, 10, 20)
    passes = [k for k in passes if 1.0 <= k * problem.p <= min(MOST_STEPS, MOST_WEIGHTS / problem.p)]
    for k, length, part in itertools.product(passes, np.logspace(-2, 1, 10), PARTS):
        yield Fit(CoordinateDescent(n_passes=k, step=round(float(length), 4), clip=round(float(part * natural), 4)))


def stochastic(problem, group):
    """Every combination of steps, sampling rate, length and clip, up to the paper's 20 passes."""
    X = problem.data.X
    squares = X.multiply(X) if sp.issparse(X) else X**2
    norm = float(np.sqrt(squares.sum() / problem.n))  # of a usual row
    slope = problem.objective.loss.slope_bound
    lengths = [c / (problem.objective.loss.curvature_bound * norm**2) for c in (0.01, 0.1, 0.5, 2.0, 10.0, 50.0)]
    clips = [part * slope * norm for part in (0.02, 0.1, 0.3, 1.0)]
    for n, rate, length, clip in itertools.product((1, 5, 20, 80, 320), (0.02, 0.1, 0.5), lengths, clips):
        if n * rate <= 20 and n * problem.p <= MOST_WEIGHTS:
            solver = StochasticGradientDescent(
                n_steps=n, rate=rate, step=float(f"{length:.3g}"), clip=float(f"{clip:.3g}"), averaging=0.0
            )
            yield Fit(solver, group=group)


def candidates(problem, method):
    """The grid of a method by its name in the table of settings."""
    if method.startswith("DP-GCD"):
        _, _, rule = method.partition(" ")
        rule, _, printed = rule.partition(", ")
        return greedy(problem, bool(printed), rule)
    if method == "DP-CD":
        return coordinate(problem)
    return stochastic(problem, method.endswith("replace-one"))


def chosen(problem, method):
    """The best candidate, with the mean error of its 60 fits."""
    left = list(candidates(problem, method))
    for fits, keep in ROUNDS:
        scored = []
        for how in left:
            try:
                scored.append((float(np.mean([problem.relative_error(fit(problem, how)) for _ in range(fits)])), how))
            except DpermError:  # a combination that a solver refuses
                continue
        scored.sort(key=lambda pair: pair[0])
        left = [how for _, how in scored[:keep]]
    return scored[0]


METHODS = (
    *(f"DP-GCD {rule}{noise}" for rule in ("GS-r", "GS-s", "GS-q") for noise in ("", ", printed")),
    "DP-CD",
    "DP-SGD",
    "DP-SGD, replace-one",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", nargs="+", default=[*L1_PROBLEMS, *L2_PROBLEMS])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    problems = Problems(DataFolder.of_environment(), Size(10**9, 10**9))
    for name in options.problems:
        problem = problems[name]
        for method in options.methods:
            if problem.penalty == "l2" and method.startswith("DP-GCD GS-") and "GS-s" not in method:
                continue  # without an l1 penalty the three rules are one
            error, how = chosen(problem, method)
            print(f"    ({name!r}, {method!r}): {how},  # {error:.5g}", flush=True)


if __name__ == "__main__":
    main()
