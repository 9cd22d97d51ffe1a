"""Optimisation methods that train a model under differential privacy, and :data:`SOLVERS`, which lists them by name.

``central/`` holds the solvers of one data holder, ``vertical/`` the methods over columns of several parties, ``local/``
the methods for one-bit reports, ``theory/`` published bounds that no release depends on. Code here may import queries,
data, objective, privacy and kernels, never estimators. A solver sees public facts in ``plan`` and reaches the data
through ``holder.release`` alone. A new central solver is one file in ``central/`` with its proof next to it, and one
line in :data:`SOLVERS`, which enrols it in every contract suite.
"""

from __future__ import annotations

from dperm.errors import InvalidInput
from dperm.solvers.base import Forecast, Progress, Solution, Solver
from dperm.solvers.central.auto.pursuit import SparsePursuit
from dperm.solvers.central.auto.rule import Automatic
from dperm.solvers.central.auto.whitened import WhitenedDescent
from dperm.solvers.central.auto.wide import WideDescent
from dperm.solvers.central.auto.wide_or_sparse import WideOrSparse
from dperm.solvers.central.blocks import BlockDescent
from dperm.solvers.central.coordinate import CoordinateDescent
from dperm.solvers.central.frank_wolfe import FrankWolfe
from dperm.solvers.central.gradient import GradientDescent
from dperm.solvers.central.greedy import GreedyCoordinateDescent
from dperm.solvers.central.newton import Newton
from dperm.solvers.central.objective_perturbation import PerturbedMinimiser
from dperm.solvers.central.peel import Peel
from dperm.solvers.central.sgd import StochasticGradientDescent
from dperm.solvers.central.svrg import VarianceReducedDescent

__all__ = [
    "SOLVERS",
    "Automatic",
    "BlockDescent",
    "CoordinateDescent",
    "Forecast",
    "FrankWolfe",
    "GradientDescent",
    "GreedyCoordinateDescent",
    "Newton",
    "Peel",
    "PerturbedMinimiser",
    "Progress",
    "Solution",
    "Solver",
    "SparsePursuit",
    "StochasticGradientDescent",
    "VarianceReducedDescent",
    "WhitenedDescent",
    "WideDescent",
    "WideOrSparse",
    "resolve_solver",
]

SOLVERS: dict[str, type[Solver]] = {
    solver.name: solver
    for solver in (
        GradientDescent,
        GreedyCoordinateDescent,
        BlockDescent,
        CoordinateDescent,
        FrankWolfe,
        Newton,
        Peel,
        PerturbedMinimiser,
        StochasticGradientDescent,
        VarianceReducedDescent,
        WhitenedDescent,
        SparsePursuit,
        WideDescent,
        WideOrSparse,
    )
}


def resolve_solver(solver: str | Solver) -> Solver:
    """Return the solver of this name, or the given solver; ``"auto"`` chooses a solver from public facts.

    >>> resolve_solver("gradient").n_steps
    64
    """
    if isinstance(solver, Solver):
        return solver
    if solver == "auto":
        return Automatic()
    if isinstance(solver, str) and solver in SOLVERS:
        return SOLVERS[solver]()
    names = ", ".join(repr(name) for name in ("auto", *SOLVERS))
    raise InvalidInput(f"solver must be one of {names} or a Solver, not {solver!r}.")
