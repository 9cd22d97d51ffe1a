r"""Frank-Wolfe on the l1 ball with private choices of the corner to move to.

Minimises mean loss + penalty over :math:`\|w\|_1 \le` radius. Round t chooses one signed coordinate and moves toward
the corner of the ball in that direction,

    s ~ Gumbel race over +-e_j,   w <- (1 - gamma) w + gamma * radius * s,   gamma = 2 / (t + 2), t = 0, 1, ...

from w = 0, so that after T rounds at most T weights are nonzero (Talwar, Thakurta & Zhang, NIPS 2015, with Gumbel
noise instead of Laplace noise). No gradient is released: the choices alone determine the weights.

**Guarantee.** Released to everyone who sees the model or any round: ``n_steps`` chosen corners, each a private choice
with the loss's slope bound times the value bound as sensitivity. Proof: ``frank_wolfe.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dperm.data.design.facts import Facts
from dperm.data.design.weights import SparseWeights
from dperm.data.holding.holder import DataHolder
from dperm.errors import Unsupported
from dperm.objective import L1Ball, Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.standard import NoisyMax
from dperm.queries import AtomScores, PenalisedAtomScores
from dperm.solvers.base import Forecast, Progress, Solution, Solver, report_step
from dperm.solvers.central.blocks import coordinate_smoothness
from dperm.solvers.option_checks import require_positive, require_whole
from dperm.solvers.theory import forecasts

__all__ = ["FrankWolfe"]


@dataclass(frozen=True)
class FrankWolfe(Solver):
    r"""DP Frank-Wolfe on the l1 ball, one Gumbel selection per round.

    .. math:: \min_w \tfrac1n \sum_i \ell(x_i^\top w, y_i) + \text{penalty}(w)
       \quad \text{subject to } \|w\|_1 \le \text{radius}

    ``w`` are the weights of the scaled design. **The intercept is a weight like any other here**: it competes as a
    coordinate and counts in the norm, though no penalty applies to it. A set that leaves it free is not bounded, and a
    separate set for it would cost a second selection per round. The other weights therefore lie in the L1 ball too, but
    the result is optimal only within the smaller set; choose a radius that leaves room for the intercept.

    For smooth losses with bounded slopes and one output. The squared loss needs a ``residual_clip``; clipping at
    (largest target) + value bound * radius changes nothing inside the ball. Penalties: none, l1, l2, elastic net; no
    penalty is the usual form.

    Parameters
    ----------
    n_steps : int
        Number of rounds, and the largest number of nonzero weights.
    radius : float, optional
        Public radius of the ball. If the objective's constraint is an L1 ball, its radius is used instead. By default
        4 / spread for classification and half the target's range / spread for regression, where spread is the public
        guess of the root mean square of an entry.

    Notes
    -----
    **Guarantee.** Released to everyone who sees the model or any round: ``n_steps`` selections among the 2d signed
    coordinates (and the origin, with an l1 penalty). It holds for the neighbours of the holder and assumes declared
    bounds on the entries; the loss itself bounds its slopes. The weights are a function of the choices.

    Without noise the gap to the best point of the ball is at most 2 C / (t + 2), where C is the curvature of the
    objective over the ball (Jaggi, ICML 2013). The calibration published by Lou & Cheung (AAAI 2018) for a distributed
    variant does not give the guarantee stated there and is not used.

    Examples
    --------
    >>> FrankWolfe(n_steps=10, radius=2.0).n_steps
    10
    """

    n_steps: int = 32
    radius: float | None = None

    name: ClassVar[str] = "frank-wolfe"

    def __post_init__(self) -> None:
        require_whole(self, "n_steps")
        require_positive(self, "radius")

    def radius_for(self, objective: Objective, facts: Facts) -> float:
        """Return the radius of the ball, from public numbers."""
        constraint = objective.constraint
        if isinstance(constraint, L1Ball):
            return constraint.radius
        if constraint is not None:
            raise Unsupported(f"solver 'frank-wolfe' works on the l1 ball, not on the constraint {constraint.name!r}.")
        if self.radius is not None:
            return self.radius
        reach = 4.0 if objective.loss.task == "classification" else 0.5 * (facts.target_high - facts.target_low)
        return reach / facts.spread

    def _penalty(self, objective: Objective) -> SeparablePenalty:
        penalty = SeparablePenalty.of(objective.penalty)
        if not (math.isinf(penalty.low) and math.isinf(penalty.high)):
            raise Unsupported(
                "solver 'frank-wolfe' works on the l1 ball and takes no box: use penalty none, l1, l2 or elastic-net."
            )
        return penalty

    def _query(self, objective: Objective, weights: SparseWeights) -> AtomScores:
        penalty = self._penalty(objective)
        if penalty == SeparablePenalty():
            return AtomScores(objective.loss, weights)
        return PenalisedAtomScores(objective.loss, weights, penalty, objective.unpenalised)

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        self.require_one_output(objective)
        # unsupported objectives are refused before anything is reserved
        query = self._query(objective, SparseWeights(facts.d, {}, self.radius_for(objective, facts)))
        if not math.isfinite(objective.loss.curvature_bound):
            raise Unsupported(f"solver 'frank-wolfe' needs a smooth loss, and the {objective.loss.name} loss is not.")
        return Plan((PlannedRelease(query.name, "selection", self.n_steps),))

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        facts = holder.facts
        radius = self.radius_for(objective, facts)
        weights = _weights({}, 0, radius, facts.d)
        multiplier = calibrated.noise_multiplier(self._query(objective, weights).name)
        run = holder.public_randomness.word() >> 1
        # After T rounds w = 2 radius / (T (T + 1)) * sum_t (t + 1) s_t. The sum is kept in whole numbers, so no
        # rounding error builds up and opposite choices cancel to an exact zero.
        counts: dict[int, int] = {}
        for t in range(self.n_steps):
            # draws are labelled by run, round, column and sign: parties that share a seed and hold some of the columns
            # draw the same numbers
            choose = NoisyMax(multiplier, stream=f"frank-wolfe {run} round {t}")
            chosen = int(holder.release(self._query(objective, weights), choose))
            if chosen < 2 * facts.d:  # otherwise the origin was chosen: all weights shrink and none is added
                j = chosen % facts.d
                counts[j] = counts.get(j, 0) + (t + 1 if chosen < facts.d else -(t + 1))
            weights = _weights(counts, t + 1, radius, facts.d)
            report_step(progress, t + 1, self.n_steps, weights.dense)
        return Solution(weights.dense(), self.n_steps)

    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        radius = self.radius_for(objective, facts)
        return forecasts.frank_wolfe(
            objective,
            facts,
            calibrated,
            neighbours,
            query=self._query(objective, SparseWeights(facts.d, {}, radius)).name,
            n_steps=self.n_steps,
            radius=radius,
            smoothness=coordinate_smoothness(objective, facts),
            **assumed,
        )


def _weights(counts: dict[int, int], n_rounds: int, radius: float, d: int) -> SparseWeights:
    total = n_rounds * (n_rounds + 1) // 2
    return SparseWeights(d, {j: radius * (c / total) for j, c in counts.items() if c}, radius)
