"""Fit the problems at (epsilon, 1/n^2) and follow the objective along a fit.

DP-GCD and DP-CD are replace-one. DP-SGD is proved for zero-out only, the weaker promise; under replace-one it gets the
budget that group privacy leaves it: a replacement is two zero-out steps, and a fit that is (e, d)-private for one is
(2 e, (1 + exp(e)) d)-private for two, so it is calibrated to (epsilon / 2, delta / (1 + exp(epsilon / 2))).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dperm.data.holding.holder import DataHolder
from dperm.experiments.greedy.problems import Problem
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers import CoordinateDescent, GreedyCoordinateDescent
from dperm.solvers.base import Solver, StepWatcher
from dperm.solvers.central.sgd import StochasticGradientDescent
from dperm.types import FloatArray

__all__ = ["Fit", "Path", "calibrated_for", "fit", "passes_per_step", "replace_one_part"]

EPSILON = 1.0  # of every fit of the paper
_PRINTED = "printed noise"


def replace_one_part(budget: Budget) -> Budget:
    """Return the zero-out budget whose group privacy for two people is ``budget``.

    >>> part = replace_one_part(Budget(1.0, 1e-6))
    >>> part.epsilon, round((1.0 + math.exp(part.epsilon)) * part.delta, 12)
    (0.5, 1e-06)
    """
    half = budget.epsilon / 2.0
    return Budget(half, budget.delta / (1.0 + math.exp(half)))


def calibrated_for(problem: Problem, solver: Solver, *, printed: bool = False, group: bool = False) -> CalibratedPlan:
    """Return the noise of a fit at (1, 1/n^2); ``group`` turns a zero-out solver's promise into replace-one."""
    budget = Budget(EPSILON, 1.0 / problem.n**2)
    if printed:
        assert isinstance(solver, GreedyCoordinateDescent)
        return solver.printed_noise(budget)
    return calibrate(
        solver.plan(problem.objective, problem.design.facts), replace_one_part(budget) if group else budget
    )


@dataclass
class Path(StepWatcher):
    """The objective along a fit, at most at ``most`` steps, with the seconds that the fit had taken by then."""

    problem: Problem
    most: int = 40
    #: (steps done, relative error, seconds)
    points: list[tuple[int, float, float]] = field(default_factory=list)
    _began: float = 0.0
    _looking: float = 0.0

    def start(self) -> None:
        """Take the time from now on; :func:`fit` calls it when everything public is settled."""
        self._began = time.perf_counter()

    def weights(self, done: int, in_all: int, current: Callable[[], FloatArray]) -> None:
        if done * self.most // in_all == (done - 1) * self.most // in_all:
            return
        now = time.perf_counter()
        error = self.problem.relative_error(current())
        self.points.append((done, error, now - self._began - self._looking))
        self._looking += time.perf_counter() - now


@dataclass(frozen=True)
class Fit:
    """A solver and how its noise is set; ``printed`` is the paper's noise, without a guarantee."""

    solver: Solver
    printed: bool = False
    group: bool = False

    @property
    def neighbours(self) -> Neighbours:
        """The relation under which the solver's own releases are charged."""
        replace_one = Neighbours.REPLACE_ONE in self.solver.supported_neighbours
        return Neighbours.REPLACE_ONE if replace_one else Neighbours.ZERO_OUT


def fit(problem: Problem, how: Fit, path: Path | None = None) -> FloatArray:
    """Return the weights of one fit with fresh noise."""
    calibrated = calibrated_for(problem, how.solver, printed=how.printed, group=how.group)
    source = RandomSource()
    reason = _PRINTED if how.printed else None if source.secure else "seeded"
    with Scope(calibrated, Ledger(neighbours=how.neighbours), how.neighbours, "experiment", unbounded=reason) as scope:
        holder = DataHolder(problem.design, scope, source, how.neighbours)
        if path is not None:
            path.start()
        return how.solver.solve(problem.objective, holder, calibrated, path).weights


def passes_per_step(problem: Problem, solver: Solver) -> float:
    """Return how many passes over the data one step is: 1 of DP-GCD, 1/p of DP-CD, the sampling rate of DP-SGD."""
    if isinstance(solver, CoordinateDescent):
        return 1.0 / problem.p
    if isinstance(solver, StochasticGradientDescent):
        release: Any = solver.plan(problem.objective, problem.design.facts).releases[0]
        return 1.0 if release.rate is None else float(release.rate)
    return 1.0
