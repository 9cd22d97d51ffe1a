"""Random block coordinate descent (DP-SkGD).

One step draws a public random subset S of coordinates and moves them along the noisy gradient restricted to S,

    theta_j <- prox(theta_j - (gamma_j / p_j) (g_j + noise)),  j in S,   gamma_j = step * p_j / M_j,

so a sampled coordinate steps by step / M_j; the sketch 1/p_j makes the update unbiased. ``n_inner`` steps make one
round, at whose end the iterates are averaged (Maranjyan, Sadiev & Richtarik, "Differentially Private Random Block
Coordinate Descent"). One block is noisy gradient descent with coordinate steps; as many blocks as coordinates is
coordinate descent.

**Guarantee.** Released to whoever sees the model or any step: one clipped gradient sum per step, restricted to the
drawn coordinates, with Gaussian noise of the same multiplier whatever was drawn. Exact Gaussian composition. Drawing
blocks gives no amplification: every step touches every person. Proof: ``blocks.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dperm.data.facts import Facts
from dperm.data.holder import DataHolder
from dperm.data.weights import BoxedWeights
from dperm.errors import InvalidInput
from dperm.objective import Objective
from dperm.objective.separable import SeparablePenalty
from dperm.privacy.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.mechanisms import GaussianNoise
from dperm.queries.gradients import GradientBlock
from dperm.solvers._checks import positive, whole
from dperm.solvers.base import Progress, Solution, Solver
from dperm.solvers.sampling import BlockSampling, Sampling

__all__ = ["BlockDescent", "coordinate_smoothness"]


def coordinate_smoothness(objective: Objective, facts: Facts, smoothness: float | None = None) -> NDArray[np.float64]:
    """Public curvature M_j of every coordinate of the mean loss, the intercept's from its height."""
    feature = objective.loss.curvature_bound * facts.spread**2 if smoothness is None else smoothness
    out = np.full(facts.d, feature)
    if facts.d > facts.n_features:
        out[-1] = objective.loss.curvature_bound * facts.intercept_height**2
    return out


def _non_empty(sampling: Sampling, holder: DataHolder) -> NDArray[np.intp]:
    """Draw a subset; an empty one is drawn again, as the method assumes that there are none."""
    for _ in range(1000):
        drawn = sampling.draw(holder.public_randomness)
        if len(drawn):
            return np.array(drawn, np.intp)
    raise InvalidInput("the sampling draws the empty set a thousand times in a row: give it larger probabilities.")


@dataclass(frozen=True)
class BlockDescent(Solver):
    """DP-SkGD with any sampling of coordinate subsets.

    Parameters
    ----------
    n_rounds, n_inner : int
        Rounds, and steps in each; ``n_rounds * n_inner`` gradients are released.
    n_blocks : int
        Number of equal blocks, where ``sampling`` is a name.
    sampling : {"uniform", "importance"} or Sampling
        How blocks are drawn. Importance takes a block in proportion to its largest M_j.
    clip : float, optional
        Bound on the L2 norm of one person's gradient over all coordinates; a block of k of d coordinates is clipped at
        sqrt(k / d) of it. By default a quarter of the largest possible one.
    step : float
        The public factor c of the step rule.
    smoothness : sequence of float or float, optional
        M_j; by default curvature bound times spread squared.
    averaging : bool
        Whether a round ends at the mean of its iterates.
    box : float
        Public bound on a weight's contribution; weights are projected to it.
    """

    n_rounds: int = 4
    n_inner: int = 16
    n_blocks: int = 4
    sampling: str | Sampling = "uniform"
    clip: float | None = None
    step: float = 1.0
    smoothness: float | tuple[float, ...] | None = None
    averaging: bool = True
    box: float = 64.0

    name: ClassVar[str] = "blocks"

    def __post_init__(self) -> None:
        whole(self, "n_rounds", "n_inner", "n_blocks")
        positive(self, "clip", "step", "box")
        if not isinstance(self.smoothness, tuple):
            positive(self, "smoothness")
        if not isinstance(self.averaging, bool):
            raise InvalidInput(f"averaging must be True or False, not {self.averaging!r}.")
        if not isinstance(self.sampling, Sampling) and self.sampling not in ("uniform", "importance"):
            raise InvalidInput(f"sampling must be 'uniform', 'importance' or a Sampling, not {self.sampling!r}.")

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        self.require_one_output(objective)
        SeparablePenalty.of(objective.penalty)
        self._sampling(self._smoothness(objective, facts))
        return Plan((PlannedRelease(GradientBlock.name, "gaussian", self.n_rounds * self.n_inner),))

    def shortened(self, n_steps: int) -> BlockDescent:
        return replace(self, n_rounds=1, n_inner=n_steps)

    def _smoothness(self, objective: Objective, facts: Facts) -> NDArray[np.float64]:
        if not isinstance(self.smoothness, tuple):
            return coordinate_smoothness(objective, facts, self.smoothness)
        given = np.asarray(self.smoothness, np.float64)
        if given.shape != (facts.d,) or not (np.isfinite(given) & (given > 0.0)).all():
            raise InvalidInput(f"smoothness must be one positive number for each of {facts.d} coordinates.")
        return given

    def _sampling(self, smoothness: NDArray[np.float64]) -> Sampling:
        d = len(smoothness)
        if isinstance(self.sampling, Sampling):
            if self.sampling.d != d:
                raise InvalidInput(f"the sampling is over {self.sampling.d} coordinates, the design has {d}.")
            return self.sampling
        n_blocks = min(self.n_blocks, d)
        if self.sampling == "importance":
            return BlockSampling.importance(smoothness, n_blocks)
        return BlockSampling.uniform(d, n_blocks)

    def _clip(self, objective: Objective, facts: Facts) -> float:
        return self.clip or 0.25 * objective.loss.slope_bound * facts.row_bound

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        facts, penalty = holder.facts, SeparablePenalty.of(objective.penalty)
        smoothness = self._smoothness(objective, facts)
        sampling = self._sampling(smoothness)
        clip, box = self._clip(objective, facts), self.box / facts.value_bound
        mechanism = GaussianNoise(calibrated.noise_multiplier(GradientBlock.name))
        free = np.zeros(facts.d, bool)
        free[list(objective.unpenalised)] = True
        theta = np.zeros(facts.d)
        for t in range(self.n_rounds):
            total = np.zeros(facts.d)
            for k in range(self.n_inner):
                drawn = _non_empty(sampling, holder)
                share = clip * math.sqrt(len(drawn) / facts.d)
                query = GradientBlock(objective.loss, BoxedWeights(theta, box), share, tuple(drawn))
                gradient = holder.release(query, mechanism) / facts.n
                theta[drawn] = self._moved(theta[drawn], gradient, smoothness[drawn], free[drawn], penalty)
                theta = np.clip(theta, -box, box)
                total += theta
                if progress is not None:
                    progress(t * self.n_inner + k + 1, self.n_rounds * self.n_inner)
            if self.averaging:
                theta = total / self.n_inner
        return Solution(theta, self.n_rounds * self.n_inner)

    def _moved(
        self,
        weights: NDArray[np.float64],
        gradient: NDArray[np.float64],
        smoothness: NDArray[np.float64],
        free: NDArray[np.bool_],
        penalty: SeparablePenalty,
    ) -> NDArray[np.float64]:
        l2 = np.where(free, 0.0, penalty.l2)
        length = self.step / (smoothness + l2)
        moved = weights - length * (gradient + l2 * weights)
        return np.where(free, moved, penalty.prox(moved, length))
