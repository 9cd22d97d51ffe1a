r"""Objective perturbation: the only release is the minimiser of the objective plus a random linear term.

.. math:: \arg\min_w \sum_i \ell(x_i^\top w, y_i) + \tfrac n2 \sum_j s_j w_j^2 + b^\top w,
   \qquad b \sim N(0, \sigma^2 I)

Chaudhuri, Monteleoni & Sarwate 2011; Kifer, Smith & Thakurta 2012; approximate minima: Iyengar et al. 2019; tight
profile: Redberg, Koskela & Wang 2023 (arXiv 2401.00583).

**Guarantee.** Released to everyone who sees the model: one point near the minimiser, with a little Gaussian noise.
Proved for ``zero-out`` and convex losses of one output with bounded slopes and curvature. It does not hold without an
L2 penalty: the solver adds what is missing, and :meth:`PerturbedMinimiser.minimum_strength` computes from public
numbers how much is needed. Running time depends on the data and is not covered. Proof:
``objective_perturbation.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.errors import Unsupported
from dperm.objective import L2, NoPenalty, Objective
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.queries.perturbed import PerturbedMinimum
from dperm.solvers.base import Progress, Solution, Solver
from dperm.solvers.option_checks import require_positive
from dperm.types import FloatArray

__all__ = ["PerturbedMinimiser"]

_UP = 1.0 + 1e-9  # rounding must not make a strength or a radius too small
_SHARE = 0.1  # part of epsilon that may go to the curvature
_MOST_PART = 50.0  # exp(50) is still far from overflow


@dataclass(frozen=True)
class PerturbedMinimiser(Solver):
    r"""Objective perturbation with approximate minima.

    One record's curvature changes the density of the minimiser by at most the factor 1 + r, where

    .. math:: r = \frac{\beta}{n} \max_x \sum_j x_j^2 / s_j,

    with curvature bound :math:`\beta` and L2 strengths :math:`s_j` of the mean objective. This leaves
    :math:`\epsilon - \ln(1 + r)` for the noise. **By default** that logarithm may take a tenth of epsilon, and every
    weight gets the smallest strength with which it does,

    .. math:: s = \max\Big(\text{strength},\ \frac{\beta R^2}{n (e^{\epsilon/10} - 1)}\Big),

    where R is the row bound; all these numbers are public. A penalty that is already stronger is left unchanged and
    costs less curvature. Any part below epsilon is admissible, and a larger part needs less strength: Chaudhuri et al.
    2011 and Kifer et al. 2012 take half, Iyengar et al. 2019 leave it to the user. A tenth works better because
    strength also reduces the effect of the noise on the minimiser (``docs/solvers.md`` has figures).

    Parameters
    ----------
    curvature_part : float, optional
        Largest part of epsilon that may go to the change of curvature, :math:`\ln(1 + r)`; by default a tenth of it.
    extra_strength : float, optional
        L2 strength added to the penalty's strength in every weight. By default as much as the smallest strength
        requires; with a number, a plan whose total strength is too small is refused.
    intercept_strength : float, optional
        L2 strength of weights that the penalty leaves out (an intercept); the proof needs one for every weight. By
        default the strength of all other weights; a smaller one shrinks the intercept less and costs more curvature.
    """

    curvature_part: float | None = None
    extra_strength: float | None = None
    intercept_strength: float | None = None

    name: ClassVar[str] = "objective"
    supported_neighbours: ClassVar[tuple[Neighbours, ...]] = (Neighbours.ZERO_OUT,)

    def __post_init__(self) -> None:
        require_positive(self, "curvature_part", "intercept_strength")
        if self.extra_strength != 0:
            require_positive(self, "extra_strength")

    def minimum_strength(self, objective: Objective, facts: Facts, epsilon: float = math.inf) -> float:
        """Return the smallest L2 strength with which the curvature takes at most ``curvature_part`` of ``epsilon``."""
        part = _SHARE * epsilon if self.curvature_part is None else self.curvature_part
        return self._strength_for(math.expm1(min(part, _MOST_PART)), objective, facts)

    def _strength_for(self, ratio: float, objective: Objective, facts: Facts) -> float:
        """Smallest strength of the penalised weights with which the curvature ratio is at most ``ratio``."""
        share = objective.loss.curvature_bound / (facts.n * ratio)
        square, height = facts.row_bound**2, facts.intercept_height
        if self.intercept_strength is None or not objective.unpenalised:
            return share * square * _UP
        left = 1.0 - share * height**2 / self.intercept_strength * _UP
        return share * (square - height**2) / left * _UP if left > 0.0 else math.inf

    def _strengths(self, objective: Objective, facts: Facts, ratio: float | None) -> FloatArray:
        """Strength of every weight in the mean objective; without options, at least what ``ratio`` requires."""
        if not isinstance(objective.penalty, NoPenalty | L2) or objective.constraint is not None:
            raise Unsupported("solver 'objective' is proved for no penalty or l2, without a constraint.")
        total = objective.penalty.strength + (self.extra_strength or 0.0)
        if self.curvature_part is not None:
            smallest = self.minimum_strength(objective, facts)
            if self.extra_strength is None:
                total = max(total, smallest)
            if not smallest <= total < math.inf:
                raise Unsupported(
                    f"solver 'objective' needs an l2 strength of at least {smallest:.4g} for these bounds and "
                    f"{facts.n} records, not {total:.4g}: raise it, leave out extra_strength (what is missing is then "
                    "added), tighten the bounds (row_norm), or allow more curvature_part."
                )
        elif self.extra_strength is None and ratio is not None:
            total = max(total, self._strength_for(ratio, objective, facts))
            if math.isinf(total):
                raise Unsupported(
                    f"intercept_strength={self.intercept_strength:.4g} alone uses more curvature than solver "
                    "'objective' may spend: raise it, or leave it out."
                )
        out = np.full(facts.d, total)
        if self.intercept_strength is not None:
            out[list(objective.unpenalised)] = self.intercept_strength
        return out

    def _query(self, objective: Objective, facts: Facts, noise_multiplier: float, ratio: float) -> PerturbedMinimum:
        strengths = self._strengths(objective, facts, ratio) * facts.n
        least, loss = float(strengths.min()), objective.loss
        person = loss.slope_bound * facts.row_bound
        linear = noise_multiplier * person * (math.sqrt(facts.d) + 40.0)  # longer than any b that can be drawn
        # two bounds on the length of a minimiser: it is no worse than zero, and its gradient vanishes
        start = float(loss.value(np.zeros(2), [facts.target_low, facts.target_high]).max())
        radius = min(
            2.0 * linear / least + math.sqrt(2.0 * facts.n * start / least), (facts.n * person + linear) / least
        )
        return PerturbedMinimum(loss, strengths, radius * _UP)

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        PerturbedMinimum(objective.loss, np.ones(1), 1.0)  # refuses losses that the proof does not cover
        strengths = self._strengths(objective, facts, None) * facts.n
        ratio, share = math.inf, None
        if strengths.min() > 0.0:
            ratio = PerturbedMinimum(objective.loss, strengths, 1.0).curvature_ratio(facts)
        if self.curvature_part is None and self.extra_strength is None:
            share = _SHARE
        return Plan(
            (PlannedRelease(PerturbedMinimum.name, "objective", 1, curvature_ratio=ratio, curvature_share=share),)
        )

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        self.check_neighbours(holder.neighbours)
        planned = calibrated.release(PerturbedMinimum.name)
        multiplier = calibrated.noise_multiplier(PerturbedMinimum.name)
        assert planned.curvature_ratio is not None
        query = self._query(objective, holder.facts, multiplier, planned.curvature_ratio)
        mechanism = query.mechanism(multiplier, holder.facts)
        # a ratio that the budget determined is reached from below; the planned ratio is the one that is charged
        ratio = max(mechanism.curvature_ratio, planned.curvature_ratio)
        weights = holder.release(query, replace(mechanism, curvature_ratio=ratio))
        if progress is not None:
            progress(1, 1)
        return Solution(weights, 1)
