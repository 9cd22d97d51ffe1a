"""The interface of all central solvers: a plan made without the data, and a loop of releases that carries it out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import ClassVar

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.errors import Unsupported
from dperm.objective import Objective
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.printed import Printed
from dperm.types import FloatArray

__all__ = ["Forecast", "Progress", "Solution", "Solver", "StepWatcher", "report_step"]

#: called as progress(steps done, steps in total); it receives nothing that depends on the data
Progress = Callable[[int, int], None]


class StepWatcher:
    """A progress callback that may also look at the weights after every step; experiments draw curves with it.

    What it sees is computed from releases only, so it is as public as the model: every guarantee covers whoever sees
    every step.
    """

    def __call__(self, done: int, in_all: int) -> None:
        """Hear that a step is done; a watcher that also shows progress does it here."""

    def weights(self, done: int, in_all: int, current: Callable[[], FloatArray]) -> None:
        """Look at a step; ``current()`` returns the weights of the scaled design, and costs nothing if not called."""


def report_step(progress: Progress | None, done: int, in_all: int, current: Callable[[], FloatArray]) -> None:
    """Tell a progress callback that a step is done; ``current`` must return what releases determine alone."""
    if progress is None:
        return
    progress(done, in_all)
    if isinstance(progress, StepWatcher):
        progress.weights(done, in_all, current)


@dataclass(frozen=True)
class Solution:
    """Released weights of the scaled design, the number of steps, and utility notes based on the releases."""

    weights: FloatArray
    n_steps: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Forecast:
    """Expected accuracy of a plan, computed from public numbers before any data are touched.

    Attributes
    ----------
    excess : float
        Expected excess loss: the mean objective of the fitted model minus that of the best model of this kind.
    null_excess : float or None
        Upper bound on the excess loss of the null model, whose weights are all 0. A forecast above it does not show
        that the fit will beat the null model.
    basis : str
        The theorem behind ``excess``, and whether ``excess`` is an upper bound.
    assumptions : tuple of str
        What the forecast assumes and cannot check without the data.
    warnings : tuple of str
        What this budget is too small for, as sentences that ``plan`` shows as warnings.
    min_column_deviation : float or None
        Standard deviation, as a fraction of the declared range, below which a column may be learnt only in part; None
        where this is not known.
    """

    excess: float
    null_excess: float | None
    basis: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    min_column_deviation: float | None = None


class Solver(ABC):
    """Base of all solvers.

    ``plan`` sees public facts only and lists every release. ``solve`` reaches the data through ``holder.release`` only.
    """

    name: ClassVar[str]
    #: neighbouring relations for which the releases are proved
    supported_neighbours: ClassVar[tuple[Neighbours, ...]] = tuple(Neighbours)

    def check_neighbours(self, neighbours: Neighbours) -> None:
        """Refuse a neighbouring relation that no proof covers, before anything is reserved."""
        if neighbours not in self.supported_neighbours:
            names = " or ".join(repr(str(one)) for one in self.supported_neighbours)
            raise Unsupported(f"solver {self.name!r} is proved for neighbours={names} only, not {str(neighbours)!r}.")

    def require_one_output(self, objective: Objective) -> None:
        """Refuse a loss with several outputs; called by solvers that have no proof or no step for one."""
        if objective.loss.n_outputs != 1:
            raise Unsupported(
                f"solver {self.name!r} takes two classes or one number to predict: "
                "for more classes use solver='auto', 'gradient' or 'sgd'."
            )

    def require_no_constraint(self, objective: Objective) -> None:
        """Refuse a constraint; called by solvers whose steps would leave the constraint set."""
        if objective.constraint is not None:
            raise Unsupported(f"solver {self.name!r} takes no constraint: use solver='gradient' or 'frank-wolfe'.")

    def configured(self, objective: Objective, facts: Facts, budget: Budget, neighbours: Neighbours) -> Solver:
        """Return the solver that will plan and solve; a rule that chooses another from public facts overrides this."""
        return self

    @abstractmethod
    def plan(self, objective: Objective, facts: Facts) -> Plan:
        """List every release of the fit."""

    def printed(self, objective: Objective, facts: Facts, budget: Budget) -> Printed:
        """Return the noise as published by the method's paper, for comparison; it carries no guarantee."""
        raise Unsupported(f"no published calibration exists for solver {self.name!r}: use calibration='certified'.")

    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        """Forecast the excess loss of a calibrated plan from public numbers; None where no theorem covers the case.

        ``assumed`` replaces the public defaults of quantities that only the data determine, such as ``distance``; the
        functions of :mod:`dperm.solvers.theory.forecasts` list what each method takes.
        """
        return None

    def shortened(self, n_steps: int) -> Solver:
        """Return the same method with about ``n_steps`` steps, for audits that run the method thousands of times."""
        if is_dataclass(self) and any(f.name == "n_steps" for f in fields(self)):
            return replace(self, n_steps=n_steps)
        return self

    @abstractmethod
    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        """Carry out the plan."""
