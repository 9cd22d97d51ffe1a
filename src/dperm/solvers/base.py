"""Solver: a loop of releases, and a data-free plan of what it will release."""

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

__all__ = ["Forecast", "Progress", "Solution", "Solver"]

#: called as progress(steps done, steps in all); told nothing that depends on the data
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Solution:
    """Released weights of the scaled design, how many steps were made, and what the releases gave to worry about."""

    weights: FloatArray
    n_steps: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Forecast:
    """What a plan will achieve, told before any data are touched.

    Attributes
    ----------
    excess : float
        Expected excess of the mean objective over its minimum.
    null_excess : float or None
        Bound on the excess of the model without weights: a plan whose forecast is above it promises nothing.
    basis : str
        The theorem it rests on, and whether it is an upper bound.
    assumptions : tuple of str
        What was taken for granted and cannot be known without the data.
    warnings : tuple of str
        What this budget is too small for, in sentences that a plan shows as warnings.
    min_column_deviation : float or None
        Standard deviation, in ranges, below which a column loses half of its weight or more, where that can be said.
    """

    excess: float
    null_excess: float | None
    basis: str
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    min_column_deviation: float | None = None


class Solver(ABC):
    """Base of all solvers.

    ``plan`` sees public facts only and lists every release; ``solve`` reaches the data through ``holder.release`` only.
    """

    name: ClassVar[str]
    #: relations for which its releases are proved
    supported_neighbours: ClassVar[tuple[Neighbours, ...]] = tuple(Neighbours)

    def check_neighbours(self, neighbours: Neighbours) -> None:
        """Refuse a relation that no proof covers, before anything is reserved."""
        if neighbours not in self.supported_neighbours:
            names = " or ".join(repr(str(one)) for one in self.supported_neighbours)
            raise Unsupported(f"solver {self.name!r} is proved for neighbours={names} only, not {str(neighbours)!r}.")

    def require_one_output(self, objective: Objective) -> None:
        """Refuse losses of several outputs, for solvers that have no proof or no step for them."""
        if objective.loss.n_outputs != 1:
            raise Unsupported(
                f"solver {self.name!r} takes two classes or one number to predict: "
                "for more classes use solver='gradient' or 'sgd'."
            )

    def require_no_constraint(self, objective: Objective) -> None:
        """Refuse a constraint, for solvers whose steps would leave it."""
        if objective.constraint is not None:
            raise Unsupported(f"solver {self.name!r} takes no constraint: use solver='gradient' or 'frank-wolfe'.")

    def configured(self, objective: Objective, facts: Facts, budget: Budget, neighbours: Neighbours) -> Solver:
        """Return the solver that will plan and solve; a rule that chooses one from public facts overrides this."""
        return self

    @abstractmethod
    def plan(self, objective: Objective, facts: Facts) -> Plan:
        """List what will be released."""

    def printed(self, objective: Objective, facts: Facts, budget: Budget) -> Printed:
        """Return the noise that the method's paper prints, for comparison; it carries no guarantee."""
        raise Unsupported(f"no published calibration exists for solver {self.name!r}: use calibration='certified'.")

    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        """Forecast the excess of a calibrated plan from public numbers; None where no theorem covers the case.

        ``assumed`` replaces public defaults for what only the data know, such as ``distance``; the functions of
        :mod:`dperm.solvers.theory.forecasts` list what each method takes.
        """
        return None

    def shortened(self, n_steps: int) -> Solver:
        """Return the same method with about ``n_steps`` steps, for audits that run it thousands of times."""
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
