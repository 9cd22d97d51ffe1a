r"""Frank-Wolfe on the l1 ball with private choices.

Minimises mean loss + penalty over :math:`\|w\|_1 \le` radius. Round t chooses one signed coordinate and moves toward
the corner of the ball that it points to,

    s ~ Gumbel race over +-e_j,   w <- (1 - gamma) w + gamma * radius * s,   gamma = 2 / (t + 2), t = 0, 1, ...

from w = 0, so that after T rounds at most T weights are not zero (Talwar, Thakurta & Zhang, NIPS 2015, with Gumbel
noise in place of Laplace). No gradient is released: the choices alone determine the weights.

**Guarantee.** Released to whoever sees the model or any round: ``n_steps`` chosen corners, each a private selection
with the loss's slope bound times the value bound as sensitivity. Proof: ``frank_wolfe.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dperm.data.facts import Facts
from dperm.data.holder import DataHolder, DesignData
from dperm.data.weights import SparseWeights
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import L1Ball, Objective
from dperm.objective.separable import SeparablePenalty
from dperm.privacy.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.mechanisms import NoisyMax
from dperm.queries import AtomScores
from dperm.solvers._checks import positive, whole
from dperm.solvers.base import Progress, Solution, Solver

__all__ = ["FrankWolfe", "PenalisedAtomScores"]


@dataclass(frozen=True, eq=False)
class PenalisedAtomScores(AtomScores):
    """:class:`AtomScores` of loss and penalty together; the penalty's part is public.

    The l2 part enters by its gradient at ``weights``, the l1 part by its value at the atom (generalised conditional
    gradient: Bach, SIAM J. Optim. 2015). With an l1 part the origin is one more candidate, the last, of score 0.
    Weights must be :class:`SparseWeights`, whose box bounds them.
    """

    penalty: SeparablePenalty = field(default_factory=SeparablePenalty)
    unpenalised: tuple[int, ...] = ()

    def _origin(self) -> int:
        return 1 if self.penalty.l1 > 0.0 else 0

    def evaluate(self, data: DesignData) -> NDArray[np.float64]:
        n, d = data.facts.n, data.design.d
        out = np.concatenate([super().evaluate(data), np.zeros(self._origin())])
        exempt = list(self.unpenalised)
        toll = np.full(d, n * self.penalty.l1)
        toll[exempt] = 0.0
        pull = n * self.penalty.l2 * self._sparse.dense()
        pull[exempt] = 0.0
        out[:d] -= pull + toll
        out[d : 2 * d] += pull - toll
        return out

    @property
    def _sparse(self) -> SparseWeights:
        if not isinstance(self.weights, SparseWeights):
            raise InvalidInput("scores with a penalty need SparseWeights, whose box bounds the penalty's part.")
        return self.weights

    def zero_out_sensitivity(self, facts: Facts) -> float:
        # the public part cancels between neighbours, but for the rounding of two additions to each score
        return super().zero_out_sensitivity(facts) + 2.0**-50 * self.bound(facts)

    def bound(self, facts: Facts) -> float:
        # not super().bound, which asks for the sensitivity
        loss_part = self.loss.slope_bound * facts.value_bound
        return facts.n * (loss_part + self.penalty.l1 + self.penalty.l2 * self._sparse.box) * (1.0 + 2.0**-48)

    def size(self, facts: Facts) -> int:
        return super().size(facts) + self._origin()


@dataclass(frozen=True)
class FrankWolfe(Solver):
    r"""DP Frank-Wolfe on the l1 ball, one Gumbel selection per round.

    .. math:: \min_w \tfrac1n \sum_i \ell(x_i^\top w, y_i) + \text{penalty}(w)
       \quad \text{subject to } \|w\|_1 \le \text{radius}

    ``w`` are the weights of the scaled design. **The intercept is a weight like any other here**: it competes as a
    coordinate and counts in the norm, though no penalty applies to it. A set that leaves it free is not bounded, and a
    second set for it alone would cost a second selection per round. The answer therefore satisfies an L1 ball on the
    other weights, but it is the best within the smaller set; give the radius room for the intercept.

    For smooth losses with bounded slopes and one output. The squared loss needs a ``residual_clip``; clipping at
    (largest target) + value bound * radius changes nothing inside the ball. Penalties: none, l1, l2, elastic net; the
    ball alone (no penalty) is the usual form.

    Parameters
    ----------
    n_steps : int
        Number of rounds, and the largest number of weights that are not zero.
    radius : float, optional
        Public radius of the ball. If the objective's constraint is an L1 ball, its radius is used instead. By default
        4 / spread for classification and half the target's range / spread for regression, spread being the public
        guess of an entry's root mean square.

    Notes
    -----
    **Guarantee.** Released: ``n_steps`` selections among the 2d signed coordinates (and the origin, with an l1
    penalty), to whoever sees the model or any round, under the neighbours of the holder, assuming declared bounds on
    the entries; the loss's slopes are bounded by the loss itself. The weights are a function of the choices.

    Without noise the gap to the best point of the ball is at most 2 C / (t + 2), C the curvature of the objective
    over the ball (Jaggi, ICML 2013). The calibration printed by Lou & Cheung (AAAI 2018) for a distributed variant does
    not give the guarantee stated there and is not used.

    Examples
    --------
    >>> FrankWolfe(n_steps=10, radius=2.0).n_steps
    10
    """

    n_steps: int = 32
    radius: float | None = None

    name: ClassVar[str] = "frank-wolfe"

    def __post_init__(self) -> None:
        whole(self, "n_steps")
        positive(self, "radius")

    def radius_for(self, objective: Objective, facts: Facts) -> float:
        """Radius of the ball, from public numbers."""
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
        # the queries of this design take sparse weights as well as arrays
        if penalty == SeparablePenalty():
            return AtomScores(objective.loss, weights)  # type: ignore[arg-type]
        return PenalisedAtomScores(objective.loss, weights, penalty, objective.unpenalised)  # type: ignore[arg-type]

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        self.require_one_output(objective)
        # whatever does not fit is refused before anything is reserved
        self._query(objective, SparseWeights(facts.d, {}, self.radius_for(objective, facts)))
        if not math.isfinite(objective.loss.curvature_bound):
            raise Unsupported(f"solver 'frank-wolfe' needs a smooth loss, and the {objective.loss.name} loss is not.")
        return Plan((PlannedRelease(AtomScores.name, "selection", self.n_steps),))

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        facts = holder.facts
        radius = self.radius_for(objective, facts)
        choose = NoisyMax(calibrated.noise_multiplier(AtomScores.name))
        # After T rounds w = 2 radius / (T (T + 1)) * sum_t (t + 1) s_t. The sum is kept in whole numbers: nothing
        # drifts and opposite choices cancel to an exact zero.
        counts: dict[int, int] = {}
        for t in range(self.n_steps):
            chosen = int(holder.release(self._query(objective, _weights(counts, t, radius, facts.d)), choose))
            if chosen < 2 * facts.d:  # otherwise the origin: the others shrink, nothing is added
                j = chosen % facts.d
                counts[j] = counts.get(j, 0) + (t + 1 if chosen < facts.d else -(t + 1))
            if progress is not None:
                progress(t + 1, self.n_steps)
        return Solution(_weights(counts, self.n_steps, radius, facts.d).dense(), self.n_steps)


def _weights(counts: dict[int, int], n_rounds: int, radius: float, d: int) -> SparseWeights:
    total = n_rounds * (n_rounds + 1) // 2
    return SparseWeights(d, {j: radius * (c / total) for j, c in counts.items() if c}, radius)
