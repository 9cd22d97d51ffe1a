"""Options of every method on every problem; `benchmarks/greedy_settings.py` chose them on noise of its own."""

from __future__ import annotations

from dperm.experiments.greedy.methods import Fit
from dperm.experiments.greedy.problems import L2_PROBLEMS
from dperm.solvers import CoordinateDescent, GreedyCoordinateDescent, StochasticGradientDescent

__all__ = ["RULE", "SETTINGS", "TUNED_OTHERWISE", "setting"]

#: the rule of the paper's main text
RULE = "GS-r"

#: problems and methods that were not tuned like the others; tables say so
TUNED_OTHERWISE = {
    ("california", "DP-GCD"): "chosen in a second search that no other method had, among 336 settings near the first "
    "choice with 1,000 fits each of the last eight",
    (
        "dorothea",
        "DP-CD",
    ): "not chosen on the grid, which takes an hour here and stops at 4,000 steps, .045 passes (the "
    "paper: 3 passes), but as the best of eight choices by hand",
}

SETTINGS: dict[tuple[str, str], Fit] = {
    ("log1", "DP-GCD GS-s"): Fit(
        GreedyCoordinateDescent(n_steps=20, rule="GS-s", selection_share=0.7, step=8.0, limit=0.06)
    ),
    ("log1", "DP-GCD GS-s, printed"): Fit(
        GreedyCoordinateDescent(n_steps=15, rule="GS-s", step=8.0, limit=0.06), printed=True
    ),
    ("log1", "DP-CD"): Fit(CoordinateDescent(n_passes=5, clip=0.3, step=2.1544)),
    ("log1", "DP-SGD"): Fit(StochasticGradientDescent(n_steps=20, rate=0.5, clip=1.0, step=2.0, averaging=0.0)),
    ("log1", "DP-SGD, replace-one"): Fit(
        StochasticGradientDescent(n_steps=5, rate=0.5, clip=1.0, step=2.0, averaging=0.0), group=True
    ),
    ("log2", "DP-GCD GS-s"): Fit(
        GreedyCoordinateDescent(n_steps=8, rule="GS-s", selection_share=0.7, step=8.0, limit=0.15)
    ),
    ("log2", "DP-GCD GS-s, printed"): Fit(
        GreedyCoordinateDescent(n_steps=8, rule="GS-s", step=8.0, limit=0.15), printed=True
    ),
    ("log2", "DP-CD"): Fit(CoordinateDescent(n_passes=20, clip=1.5, step=0.1)),
    ("log2", "DP-SGD"): Fit(StochasticGradientDescent(n_steps=20, rate=0.5, clip=1.0, step=2.0, averaging=0.0)),
    ("log2", "DP-SGD, replace-one"): Fit(
        StochasticGradientDescent(n_steps=5, rate=0.5, clip=1.0, step=2.0, averaging=0.0), group=True
    ),
    ("mtp", "DP-GCD GS-s"): Fit(
        GreedyCoordinateDescent(n_steps=20, rule="GS-s", selection_share=0.85, step=1.0, limit=0.9)
    ),
    ("mtp", "DP-GCD GS-s, printed"): Fit(
        GreedyCoordinateDescent(n_steps=20, rule="GS-s", step=1.5, limit=0.45), printed=True
    ),
    ("mtp", "DP-CD"): Fit(CoordinateDescent(n_passes=3, clip=12.7914, step=0.2154)),
    ("mtp", "DP-SGD"): Fit(StochasticGradientDescent(n_steps=80, rate=0.1, clip=12.8, step=0.0099, averaging=0.0)),
    ("mtp", "DP-SGD, replace-one"): Fit(
        StochasticGradientDescent(n_steps=80, rate=0.1, clip=12.8, step=0.0099, averaging=0.0), group=True
    ),
    ("madelon (l2)", "DP-GCD GS-s"): Fit(
        GreedyCoordinateDescent(n_steps=20, rule="GS-s", selection_share=0.7, step=1.0, limit=0.3)
    ),
    ("madelon (l2)", "DP-GCD GS-s, printed"): Fit(
        GreedyCoordinateDescent(n_steps=8, rule="GS-s", step=1.0, limit=0.3), printed=True
    ),
    ("madelon (l2)", "DP-CD"): Fit(CoordinateDescent(n_passes=3, clip=3.3541, step=0.1)),
    ("madelon (l2)", "DP-SGD"): Fit(
        StochasticGradientDescent(n_steps=20, rate=0.5, clip=6.71, step=0.016, averaging=0.0)
    ),
    ("madelon (l2)", "DP-SGD, replace-one"): Fit(
        StochasticGradientDescent(n_steps=5, rate=0.5, clip=2.24, step=0.08, averaging=0.0), group=True
    ),
    ("square", "DP-GCD GS-r"): Fit(
        GreedyCoordinateDescent(n_steps=6, rule="GS-r", selection_share=0.7, step=1.5, limit=1.2)
    ),
    ("square", "DP-GCD GS-s"): Fit(
        GreedyCoordinateDescent(n_steps=8, rule="GS-s", selection_share=0.7, step=1.5, limit=1.2)
    ),
    ("square", "DP-GCD GS-q"): Fit(
        GreedyCoordinateDescent(n_steps=8, rule="GS-q", selection_share=0.7, step=1.5, limit=1.2)
    ),
    ("square", "DP-GCD GS-r, printed"): Fit(
        GreedyCoordinateDescent(n_steps=4, rule="GS-r", step=2.15, limit=1.2), printed=True
    ),
    ("square", "DP-GCD GS-s, printed"): Fit(
        GreedyCoordinateDescent(n_steps=4, rule="GS-s", step=2.15, limit=1.2), printed=True
    ),
    ("square", "DP-GCD GS-q, printed"): Fit(
        GreedyCoordinateDescent(n_steps=3, rule="GS-q", step=2.15, limit=1.2), printed=True
    ),
    ("square", "DP-CD"): Fit(CoordinateDescent(n_passes=0.1, clip=18.9737, step=2.1544)),
    ("square", "DP-SGD"): Fit(StochasticGradientDescent(n_steps=1, rate=0.5, clip=6.32, step=0.01, averaging=0.0)),
    ("square", "DP-SGD, replace-one"): Fit(
        StochasticGradientDescent(n_steps=1, rate=0.1, clip=1.26, step=1e-05, averaging=0.0), group=True
    ),
    ("california", "DP-GCD GS-r"): Fit(
        GreedyCoordinateDescent(n_steps=15, rule="GS-r", selection_share=0.3, step=0.5, limit=4.5)
    ),
    ("california", "DP-GCD GS-s"): Fit(
        GreedyCoordinateDescent(n_steps=10, rule="GS-s", selection_share=0.5, step=0.75, limit=6.0)
    ),
    ("california", "DP-GCD GS-q"): Fit(
        GreedyCoordinateDescent(n_steps=10, rule="GS-q", selection_share=0.3, step=0.75, limit=6.0)
    ),
    ("california", "DP-GCD GS-r, printed"): Fit(
        GreedyCoordinateDescent(n_steps=20, rule="GS-r", step=0.46, limit=3.0), printed=True
    ),
    ("california", "DP-GCD GS-s, printed"): Fit(
        GreedyCoordinateDescent(n_steps=3, rule="GS-s", step=1.5, limit=1.5), printed=True
    ),
    ("california", "DP-GCD GS-q, printed"): Fit(
        GreedyCoordinateDescent(n_steps=3, rule="GS-q", step=1.5, limit=1.5), printed=True
    ),
    ("california", "DP-CD"): Fit(CoordinateDescent(n_passes=20, clip=8.4853, step=0.4642)),
    ("california", "DP-SGD"): Fit(StochasticGradientDescent(n_steps=20, rate=0.5, clip=8.49, step=0.25, averaging=0.0)),
    ("california", "DP-SGD, replace-one"): Fit(
        StochasticGradientDescent(n_steps=20, rate=0.5, clip=8.49, step=0.25, averaging=0.0), group=True
    ),
    ("dorothea", "DP-GCD GS-r"): Fit(
        GreedyCoordinateDescent(n_steps=2, rule="GS-r", selection_share=0.85, step=4.0, limit=0.35)
    ),
    ("dorothea", "DP-GCD GS-s"): Fit(
        GreedyCoordinateDescent(n_steps=2, rule="GS-s", selection_share=0.85, step=8.0, limit=0.2)
    ),
    ("dorothea", "DP-GCD GS-q"): Fit(
        GreedyCoordinateDescent(n_steps=2, rule="GS-q", selection_share=0.85, step=8.0, limit=0.2)
    ),
    ("dorothea", "DP-GCD GS-r, printed"): Fit(
        GreedyCoordinateDescent(n_steps=1, rule="GS-r", step=8.0, limit=0.2), printed=True
    ),
    ("dorothea", "DP-GCD GS-s, printed"): Fit(
        GreedyCoordinateDescent(n_steps=1, rule="GS-s", step=4.0, limit=0.5), printed=True
    ),
    ("dorothea", "DP-GCD GS-q, printed"): Fit(
        GreedyCoordinateDescent(n_steps=1, rule="GS-q", step=4.0, limit=0.5), printed=True
    ),
    # of the eight choices by hand none did better than the null model
    ("dorothea", "DP-CD"): Fit(CoordinateDescent(n_passes=0.001, clip=2.9685, step=0.4642)),
    ("dorothea", "DP-SGD"): Fit(
        StochasticGradientDescent(n_steps=1, rate=0.5, clip=0.603, step=4.4e-05, averaging=0.0)
    ),
    ("dorothea", "DP-SGD, replace-one"): Fit(
        StochasticGradientDescent(n_steps=1, rate=0.5, clip=0.603, step=4.4e-05, averaging=0.0), group=True
    ),
    ("madelon", "DP-GCD GS-r"): Fit(
        GreedyCoordinateDescent(n_steps=2, rule="GS-r", selection_share=0.7, step=0.75, limit=0.6)
    ),
    ("madelon", "DP-GCD GS-s"): Fit(
        GreedyCoordinateDescent(n_steps=2, rule="GS-s", selection_share=0.3, step=2.15, limit=0.3)
    ),
    ("madelon", "DP-GCD GS-q"): Fit(
        GreedyCoordinateDescent(n_steps=1, rule="GS-q", selection_share=0.3, step=1.0, limit=1.05)
    ),
    ("madelon", "DP-GCD GS-r, printed"): Fit(
        GreedyCoordinateDescent(n_steps=2, rule="GS-r", step=2.15, limit=0.3), printed=True
    ),
    ("madelon", "DP-GCD GS-s, printed"): Fit(
        GreedyCoordinateDescent(n_steps=3, rule="GS-s", step=0.46, limit=0.6), printed=True
    ),
    ("madelon", "DP-GCD GS-q, printed"): Fit(
        GreedyCoordinateDescent(n_steps=2, rule="GS-q", step=0.75, limit=0.6), printed=True
    ),
    ("madelon", "DP-CD"): Fit(CoordinateDescent(n_passes=0.1, clip=13.4164, step=1.0)),
    ("madelon", "DP-SGD"): Fit(StochasticGradientDescent(n_steps=1, rate=0.5, clip=6.71, step=0.4, averaging=0.0)),
    ("madelon", "DP-SGD, replace-one"): Fit(
        StochasticGradientDescent(n_steps=1, rate=0.5, clip=2.24, step=8e-05, averaging=0.0), group=True
    ),
}


def setting(problem: str, method: str) -> Fit:
    """Return the options of a method; "DP-GCD" is followed by a rule and, for the paper's noise, ", printed"."""
    if problem in L2_PROBLEMS:  # without an l1 penalty the rules are one
        method = method.replace("GS-r", "GS-s").replace("GS-q", "GS-s")
    return SETTINGS[problem, method]
