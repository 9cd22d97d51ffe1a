"""Table 1 of the DP-SkGD paper: the rates of all rows for one problem, next to what the methods reach on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dperm.experiments.blocks.importance import best_of
from dperm.experiments.blocks.problem import BUDGET, PAPER, ImbalancedSquares, fit
from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.result import Result, ResultRow, formula
from dperm.solvers import BlockDescent, CoordinateDescent, VarianceReducedDescent
from dperm.solvers.base import Solver
from dperm.solvers.central.sgd import StochasticGradientDescent
from dperm.solvers.theory.block_descent import PrintedRate, table1
from dperm.solvers.theory.rates import privacy_factor

__all__ = ["EXPERIMENT", "BlockTableSettings"]

_STEP = 0.5


@dataclass(frozen=True)
class BlockTableSettings:
    """Fits of each row, size of the problem, its imbalance, and numbers of steps to choose from."""

    runs: int
    n: int
    d: int
    n_blocks: int
    imbalance: float
    steps: tuple[int, ...]
    #: steps of whole gradients: fewer are enough than of blocks
    whole_steps: tuple[int, ...]
    seed: int = 1


def solvers_of(row: PrintedRate, problem: ImbalancedSquares, settings: BlockTableSettings) -> dict[str, list[Solver]]:
    """Return the method of a row with all its numbers of steps; two methods share the last row."""
    limits, smoothness, steps = problem.limits, problem.smoothness, settings.steps
    if row.method == "DP-CD":
        passes = [one / problem.d for one in steps]
        return {row.method: [CoordinateDescent(one, clip=limits, smoothness=smoothness, step=_STEP) for one in passes]}
    if row.method == "DP-SkGD":
        sampling = "importance" if row.sampling == "importance" else "uniform"
        counts = settings.whole_steps if row.n_blocks == 1 else steps
        return {
            row.method: [
                BlockDescent(1, one, row.n_blocks, sampling, limits, _STEP, smoothness, averaging=False)
                for one in counts
            ]
        }
    clip = sum(one**2 for one in limits) ** 0.5
    return {
        "DP-SGD": [StochasticGradientDescent(one, rate=0.1, clip=clip, step=_STEP) for one in settings.whole_steps],
        "DP-SVRG": [
            VarianceReducedDescent(one, epoch=4, rate=0.1, clip=clip, step=_STEP) for one in settings.whole_steps
        ],
    }


def _fits(problem: ImbalancedSquares, solvers: list[Solver], runs: int) -> list[list[float]]:
    return [[fit(problem, solver) for _ in range(runs)] for solver in solvers]


def measure(run: Run) -> Result:
    """Compute all rates and fit all methods."""
    settings: BlockTableSettings = run.settings
    problem = ImbalancedSquares(settings.imbalance, settings.seed, settings.n, settings.d)
    table = table1(problem.constants, settings.n_blocks)
    methods = {
        (method, row): solvers for row in table for method, solvers in solvers_of(row, problem, settings).items()
    }
    names = {key: f"{key[0]}, b = {key[1].n_blocks}, {key[1].sampling}" for key in methods}
    found = run.pieces({names[key]: partial(_fits, problem, methods[key], settings.runs) for key in methods})
    common = privacy_factor(settings.n, BUDGET.epsilon, BUDGET.delta)
    rows = []
    for key, name in names.items():
        ours = best_of(found[name])
        for kind, value in (
            ("convex", key[1].convex * common),
            ("strongly convex", key[1].strongly_convex * common**2),
        ):
            why = f"a rate leaves out constants: measured / rate = {ours.mean / value:.2g}"
            rows.append(ResultRow(f"{name}: {kind}", ours, None, formula(f"{value:.4g}"), why))
    notes = (
        "Measured: excess of the objective at (1, 1e-6) under replace-one, at the best number of steps, which was "
        "chosen on the first half of the fits. The paper's column is its rate for this problem's M, L and R times "
        "sqrt(ln(1/delta)) / (n epsilon), squared in strongly convex rows.",
        "The problem is convex and strongly convex, so one measurement stands next to both rates.",
        "DP-CD is DP-SkGD with one column per block and uniform sampling. Where their measured numbers differ, another "
        "number of steps was chosen; the standard errors leave that choice out.",
        "DP-SGD and DP-SVRG are proved for zero-out; they are calibrated by group privacy for two people.",
        "The table prints the importance row's strongly convex rate without the square of the norm, and puts a square "
        "around the uniform row; both are taken as one square of the norm, as in the general row. The convex rate of "
        "DP-SGD is not legible in the table: L R sqrt(d) of Bassily et al. is taken.",
    )
    return Result(tuple(rows), (problem.baseline(),), notes=notes)


EXPERIMENT = Experiment(
    name="skgd-table1",
    paper=PAPER,
    what="rates of all rows of table 1 for one problem, and the measured excess",
    minutes=2,
    measure=measure,
    full=BlockTableSettings(
        runs=40,
        n=20_000,
        d=64,
        n_blocks=8,
        imbalance=64.0,
        steps=(8, 16, 32, 64, 128, 256, 512, 1024),
        whole_steps=(4, 8, 16, 32, 64),
    ),
    fast=BlockTableSettings(runs=4, n=2_000, d=16, n_blocks=4, imbalance=64.0, steps=(16, 64), whole_steps=(8,)),
    needs=("dp-accounting",),
)
