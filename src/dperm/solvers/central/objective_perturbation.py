r"""Objective perturbation: one release, the minimiser of the objective plus a random linear term.

.. math:: \arg\min_w \sum_i \ell(x_i^\top w, y_i) + \tfrac n2 \sum_j s_j w_j^2 + b^\top w,
   \qquad b \sim N(0, \sigma^2 I)

Chaudhuri, Monteleoni & Sarwate 2011; Kifer, Smith & Thakurta 2012; approximate minima: Iyengar et al. 2019; tight
profile: Redberg, Koskela & Wang 2023 (arXiv 2401.00583).

**Guarantee.** Released to whoever sees the model: one point near the minimiser, with a little Gaussian noise. Proved
for ``zero-out`` and convex losses of one output with bounded slopes and curvature. It does not hold without L2: the
smallest strength is public and :meth:`PerturbedMinimiser.minimum_strength` tells it. Running time depends on the data
and is not covered. Proof: ``objective_perturbation.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dperm.data.facts import Facts
from dperm.data.holder import DataHolder
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import L2, NoPenalty, Objective
from dperm.privacy.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.neighbours import Neighbours
from dperm.queries.perturbed import PerturbedMinimum
from dperm.solvers.base import Progress, Solution, Solver

__all__ = ["PerturbedMinimiser"]

_UP = 1.0 + 1e-9


@dataclass(frozen=True)
class PerturbedMinimiser(Solver):
    """Objective perturbation with approximate minima.

    Parameters
    ----------
    curvature_part : float
        Largest part of epsilon that may go to the change of curvature, log(1 + curvature ratio): it sets the smallest
        L2 strength. A plan needs it below epsilon; half of epsilon is usual.
    extra_strength : float or None
        L2 strength added to that of the penalty in every weight. None adds what the smallest strength asks for.
    intercept_strength : float, optional
        L2 strength of weights the penalty leaves out (an intercept): the proof needs every weight to have one. By
        default that of all the others; a smaller one shrinks the intercept less and costs more curvature.
    """

    curvature_part: float = 0.5
    extra_strength: float | None = 0.0
    intercept_strength: float | None = None

    name: ClassVar[str] = "objective"
    supported_neighbours: ClassVar[tuple[Neighbours, ...]] = (Neighbours.ZERO_OUT,)

    def __post_init__(self) -> None:
        for what, lowest in (("curvature_part", 0.0), ("intercept_strength", 0.0), ("extra_strength", -1.0)):
            value = getattr(self, what)
            if value is None and what != "curvature_part":
                continue
            good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not (good and value > lowest and value >= 0.0):
                raise InvalidInput(f"{what} must be {'at least 0' if lowest < 0.0 else 'positive'}, not {value!r}.")

    def minimum_strength(self, objective: Objective, facts: Facts) -> float:
        """Smallest L2 strength that keeps the curvature's part of epsilon within ``curvature_part``; public."""
        share = objective.loss.curvature_bound / (facts.n * math.expm1(self.curvature_part))
        square, height = facts.row_bound**2, facts.intercept_height
        if self.intercept_strength is None or not objective.unpenalised:
            return share * square * _UP
        left = 1.0 - share * height**2 / self.intercept_strength * _UP
        return share * (square - height**2) / left * _UP if left > 0.0 else math.inf

    def _strengths(self, objective: Objective, facts: Facts) -> NDArray[np.float64]:
        """Strength of every weight in the mean objective."""
        if not isinstance(objective.penalty, NoPenalty | L2) or objective.constraint is not None:
            raise Unsupported("solver 'objective' is proved for no penalty or l2, without a constraint.")
        given, smallest = objective.penalty.strength, self.minimum_strength(objective, facts)
        total = max(given, smallest) if self.extra_strength is None else given + self.extra_strength
        if not smallest <= total < math.inf:
            raise Unsupported(
                f"solver 'objective' needs an l2 strength of at least {smallest:.4g} for these bounds and "
                f"{facts.n} records, not {total:.4g}: raise it, give extra_strength (None adds what is missing), "
                "tighten the bounds (row_norm), or allow more curvature_part."
            )
        out = np.full(facts.d, total)
        if self.intercept_strength is not None:
            out[list(objective.unpenalised)] = self.intercept_strength
        return out

    def _query(self, objective: Objective, facts: Facts, noise_multiplier: float) -> PerturbedMinimum:
        PerturbedMinimum(objective.loss, np.ones(1), 1.0)  # refuses losses that the proof does not cover
        strengths = self._strengths(objective, facts) * facts.n
        least, loss = float(strengths.min()), objective.loss
        person = loss.slope_bound * facts.row_bound
        linear = noise_multiplier * person * (math.sqrt(facts.d) + 40.0)  # longer than any b that is ever drawn
        # no minimiser is longer than either: it is no worse than zero, and its gradient vanishes
        start = float(loss.value(np.zeros(2), [facts.target_low, facts.target_high]).max())
        radius = min(
            2.0 * linear / least + math.sqrt(2.0 * facts.n * start / least), (facts.n * person + linear) / least
        )
        return PerturbedMinimum(loss, strengths, radius * _UP)

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        ratio = self._query(objective, facts, 1.0).curvature_ratio(facts)
        return Plan((PlannedRelease(PerturbedMinimum.name, "objective", 1, curvature_ratio=ratio),))

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        self.check_neighbours(holder.neighbours)
        multiplier = calibrated.noise_multiplier(PerturbedMinimum.name)
        query = self._query(objective, holder.facts, multiplier)
        weights = holder.release(query, query.mechanism(multiplier, holder.facts))
        if progress is not None:
            progress(1, 1)
        return Solution(weights, 1)
