"""Solvers by name; a new one is its file and one line here, which enrols it in every contract suite."""

from __future__ import annotations

from dperm.errors import InvalidInput
from dperm.solvers.base import Progress, Solution, Solver
from dperm.solvers.central.gradient import GradientDescent
from dperm.solvers.central.greedy import GreedyCoordinateDescent

__all__ = ["SOLVERS", "GradientDescent", "GreedyCoordinateDescent", "Progress", "Solution", "Solver", "resolve_solver"]

SOLVERS: dict[str, type[Solver]] = {solver.name: solver for solver in (GradientDescent, GreedyCoordinateDescent)}


def resolve_solver(solver: str | Solver) -> Solver:
    """Return a solver from its name, or the given one; ``"auto"`` is the plain gradient method.

    >>> resolve_solver("gradient").n_steps
    64
    """
    if isinstance(solver, Solver):
        return solver
    if solver == "auto":
        return GradientDescent()
    if isinstance(solver, str) and solver in SOLVERS:
        return SOLVERS[solver]()
    names = ", ".join(repr(name) for name in ("auto", *SOLVERS))
    raise InvalidInput(f"solver must be one of {names} or a Solver, not {solver!r}.")
