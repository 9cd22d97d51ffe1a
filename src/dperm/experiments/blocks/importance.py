"""The gain of importance sampling over uniform sampling in DP-SkGD, against how much one coordinate matters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from dperm.experiments.blocks.problem import PAPER, ImbalancedSquares, fit
from dperm.experiments.charts import Curve, Line, Panel
from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.result import Measured, Result, ResultRow, formula
from dperm.solvers import BlockDescent
from dperm.solvers.theory.block_descent import importance_gain

__all__ = ["EXPERIMENT", "ImportanceSettings"]

SAMPLINGS = ("uniform", "importance")
#: what a round ends with; the paper's Algorithm 1 averages
ENDS = {"last step": False, "average, as printed": True}


@dataclass(frozen=True)
class ImportanceSettings:
    """Fits of each kind, size of the problem, imbalances and numbers of steps to choose from."""

    runs: int
    n: int
    d: int
    imbalances: tuple[float, ...]
    steps: tuple[int, ...]
    seed: int = 1


def _fits(
    problem: ImbalancedSquares, sampling: str, averaging: bool, settings: ImportanceSettings
) -> list[list[float]]:
    """Return the excess of every fit, by the number of steps."""
    found = []
    for n_steps in settings.steps:
        solver = BlockDescent(
            n_rounds=1,
            n_inner=n_steps,
            n_blocks=settings.d,
            sampling=sampling,
            clip=problem.limits,
            smoothness=problem.smoothness,
            step=0.5,
            averaging=averaging,
        )
        found.append([fit(problem, solver) for _ in range(settings.runs)])
    return found


def best_of(fits: list[list[float]]) -> Measured:
    """Choose the number of steps on the first half of the fits and measure it on the second."""
    half = len(fits[0]) // 2
    best = min(fits, key=lambda one: sum(one[:half]))
    return Measured.over(best[half:])


def gain_of(uniform: Measured, important: Measured) -> tuple[float, float]:
    """Return the ratio of two means, with its standard error to first order."""
    gain = uniform.mean / important.mean
    return gain, abs(gain) * math.hypot(uniform.error / uniform.mean, important.error / important.mean)


def measure(run: Run) -> Result:
    """Fit all problems with both samplings."""
    settings: ImportanceSettings = run.settings
    problems = {
        one: ImbalancedSquares(one, settings.seed + k, settings.n, settings.d)
        for k, one in enumerate(settings.imbalances)
    }
    found = run.pieces(
        {
            f"{imbalance:g} {sampling} {end}": partial(_fits, problem, sampling, averaging, settings)
            for imbalance, problem in problems.items()
            for sampling in SAMPLINGS
            for end, averaging in ENDS.items()
        }
    )
    rows: list[ResultRow] = []
    gains: dict[str, list[tuple[float, float, float]]] = {end: [] for end in ENDS}
    for imbalance, problem in problems.items():
        convex, strongly = importance_gain(problem.constants, settings.d)
        for end in ENDS:
            uniform, important = (best_of(found[f"{imbalance:g} {sampling} {end}"]) for sampling in SAMPLINGS)
            gain, error = gain_of(uniform, important)
            gains[end].append((imbalance, gain, error))
            what = f"imbalance {imbalance:g}, {end}"
            rows += [
                ResultRow(f"{what}: excess, {name}", value, None, None, "the paper prints no measurements")
                for name, value in (("uniform", uniform), ("importance", important))
            ]
            rows.append(
                ResultRow(
                    f"{what}: gain",
                    f"{gain:.3g} +- {error:.2g}",
                    None,
                    formula(f"{convex:.2g} convex, {strongly:.2g} strongly convex"),
                    "the rates' gains, limited to sqrt(d) and d; they are bounds on both excesses, not on their ratio",
                )
            )
    rates = [(one, importance_gain(problem.constants, settings.d)) for one, problem in problems.items()]
    panel = Panel(
        f"Gain of importance sampling, d = {settings.d}",
        "smoothness, first over another column",
        "excess, uniform over importance",
        (
            *(_gain_curve(f"measured, {end}", points) for end, points in gains.items()),
            Curve("by the convex rates", tuple((one, both[0]) for one, both in rates)),
            Curve("by the strongly convex rates", tuple((one, both[1]) for one, both in rates)),
        ),
        lines=(Line("sqrt(d)", math.sqrt(settings.d)), Line("d", float(settings.d))),
        log_x=True,
        log_y=True,
    )
    notes = (
        "Both samplings get (1, 1e-6) under replace-one, the same limits and step, and each its best number of steps, "
        "chosen on the first half of the fits; excesses are of the second half.",
        "A gain is shown with its standard error, from those of both excesses; in the picture as a band.",
        "The measured gain may exceed sqrt(d) and d. Uniform sampling needs d times the steps to move the first column "
        "as often, so d times the variance per step; and it moves the other columns too, each of which adds as much "
        "noise to the objective as the first, while importance sampling leaves them where they started. Both rates "
        "count the noise of all columns (the norm of L), so the second factor is not in them.",
    )
    return Result(tuple(rows), tuple(one.baseline() for one in problems.values()), (panel,), notes, columns=1)


def _gain_curve(label: str, points: list[tuple[float, float, float]]) -> Curve:
    """Draw gains in a band of one standard error, which a logarithmic axis needs above 0."""
    return Curve(
        label,
        tuple((imbalance, gain) for imbalance, gain, _ in points),
        tuple(max(gain - error, gain / 10.0) for _, gain, error in points),
        tuple(gain + error for _, gain, error in points),
        marked=True,
    )


EXPERIMENT = Experiment(
    name="skgd-importance",
    paper=PAPER,
    what="gain of importance sampling against imbalance, with the sqrt(d) line",
    minutes=3,
    measure=measure,
    full=ImportanceSettings(
        runs=40,
        n=20_000,
        d=64,
        imbalances=(1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0),
        steps=(8, 16, 32, 64, 128, 256, 512, 1024),
    ),
    fast=ImportanceSettings(runs=4, n=4_000, d=16, imbalances=(1.0, 100.0), steps=(16, 64, 256)),
)
