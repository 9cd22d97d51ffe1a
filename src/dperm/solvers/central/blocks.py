"""Random block coordinate descent (DP-SkGD): each step updates a randomly drawn block of coordinates.

One step draws a public random subset S of coordinates and moves them along the noisy gradient restricted to S,

    theta_j <- prox(theta_j - (gamma_j / p_j) (g_j + noise)),  j in S,   gamma_j = step * p_j / M_j,

so a sampled coordinate steps by step / M_j; the sketch 1/p_j makes the update unbiased. ``n_inner`` steps make one
round, at whose end the iterates are averaged (Maranjyan, Sadiev & Richtarik, "Differentially Private Random Block
Coordinate Descent"). One block is noisy gradient descent with coordinate steps; as many blocks as coordinates is
coordinate descent.

**Guarantee.** Released to everyone who sees the model or any step: one clipped gradient sum per step, restricted to the
drawn coordinates, with Gaussian noise of the same multiplier whatever was drawn. Exact Gaussian composition. Drawing
blocks gives no amplification, because every step uses every person's record. Proof: ``blocks.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.weights import BoxedWeights
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput
from dperm.objective import Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.gradients import GradientBlock
from dperm.solvers.base import Forecast, Progress, Solution, Solver, report_step
from dperm.solvers.coordinate_sampling import BlockSampling, Sampling
from dperm.solvers.option_checks import one_per_column, require_positive, require_positive_or_list, require_whole
from dperm.solvers.theory import forecasts
from dperm.types import FloatArray

__all__ = ["BlockDescent", "coordinate_smoothness"]


def coordinate_smoothness(
    objective: Objective, facts: Facts, smoothness: float | tuple[float, ...] | None = None
) -> FloatArray:
    """Public curvature M_j of every coordinate of the mean loss.

    One number serves all features; the intercept's curvature then follows from its height. A tuple gives every M_j.
    """
    if isinstance(smoothness, tuple):
        return one_per_column("smoothness", smoothness, facts.d)
    feature = objective.loss.curvature_bound * facts.spread**2 if smoothness is None else smoothness
    out = np.full(facts.d, feature)
    if facts.d > facts.n_features:
        out[-1] = objective.loss.curvature_bound * facts.intercept_height**2
    return out


def _draw_non_empty(sampling: Sampling, holder: DataHolder) -> tuple[int, ...]:
    """Draw a subset, again if it is empty: the method assumes that there are no empty ones."""
    for _ in range(1000):
        drawn = sampling.draw(holder.public_randomness)
        if len(drawn):
            return tuple(drawn)
    raise InvalidInput("the sampling drew the empty set a thousand times in a row: give it larger probabilities.")


def _block_limit(limits: FloatArray, drawn: tuple[int, ...]) -> float:
    """Limit C_U = sqrt(sum of C_j^2 over U) of a block on the L2 norm of one person's gradient."""
    return limits.item(drawn[0]) if len(drawn) == 1 else float(np.linalg.norm(limits[list(drawn)]))


class _Step:
    """The public step of the method, from one set of released weights to the next."""

    def __init__(self, step: float, smoothness: FloatArray, objective: Objective, box: float) -> None:
        self._penalty = SeparablePenalty.of(objective.penalty)
        self._free = np.zeros(len(smoothness), bool)
        self._free[list(objective.unpenalised)] = True
        self._l2 = np.where(self._free, 0.0, self._penalty.l2)
        self._length = step / (smoothness + self._l2)
        self._box = box
        self._numbers = list(zip(self._length.tolist(), self._l2.tolist(), self._free.tolist(), strict=True))

    def __call__(self, weights: BoxedWeights, drawn: tuple[int, ...], gradient: FloatArray) -> BoxedWeights:
        if len(drawn) == 1:
            return weights.with_weight(drawn[0], self._one(weights, drawn[0], gradient.item()))
        columns = np.array(drawn, np.intp)
        theta, length = weights.values.copy(), self._length[columns]
        moved = theta[columns] - length * (gradient + self._l2[columns] * theta[columns])
        moved = np.where(self._free[columns], moved, self._penalty.prox(moved, length))
        theta[columns] = np.clip(moved, -self._box, self._box)
        return BoxedWeights(theta, self._box)

    def _one(self, weights: BoxedWeights, column: int, gradient: float) -> float:
        """The same step for one coordinate, without the cost of arrays."""
        weight = weights.values.item(column)
        length, l2, free = self._numbers[column]
        moved = weight - length * (gradient + l2 * weight)
        return min(max(moved if free else self._penalty.prox_one(moved, length), -self._box), self._box)


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
    clip : float or sequence of float, optional
        Bound on the L2 norm of one person's gradient over all coordinates; a block of k of d coordinates is clipped at
        sqrt(k / d) times the bound. By default a quarter of the largest possible norm. Or one limit C_j per coordinate,
        the intercept's last: a block U is then clipped at C_U = sqrt(sum of C_j^2 over U), with noise in proportion.
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
    clip: float | tuple[float, ...] | None = None
    step: float = 1.0
    smoothness: float | tuple[float, ...] | None = None
    averaging: bool = True
    box: float = 64.0

    name: ClassVar[str] = "blocks"

    def __post_init__(self) -> None:
        require_whole(self, "n_rounds", "n_inner", "n_blocks")
        require_positive(self, "step", "box")
        require_positive_or_list(self, "clip", "smoothness")
        if not isinstance(self.averaging, bool):
            raise InvalidInput(f"averaging must be True or False, not {self.averaging!r}.")
        if not isinstance(self.sampling, Sampling) and self.sampling not in ("uniform", "importance"):
            raise InvalidInput(f"sampling must be 'uniform', 'importance' or a Sampling, not {self.sampling!r}.")

    def plan(self, objective: Objective, facts: Facts) -> Plan:
        self.require_one_output(objective)
        self.require_no_constraint(objective)
        SeparablePenalty.of(objective.penalty)
        self._sampling(coordinate_smoothness(objective, facts, self.smoothness))
        self._limits(objective, facts)
        return Plan((PlannedRelease(GradientBlock.name, "gaussian", self.n_rounds * self.n_inner),))

    def shortened(self, n_steps: int) -> BlockDescent:
        return replace(self, n_rounds=1, n_inner=n_steps)

    def _sampling(self, smoothness: FloatArray) -> Sampling:
        d = len(smoothness)
        if isinstance(self.sampling, Sampling):
            if self.sampling.d != d:
                raise InvalidInput(f"the sampling is over {self.sampling.d} coordinates, the design has {d}.")
            return self.sampling
        n_blocks = min(self.n_blocks, d)
        if self.sampling == "importance":
            return BlockSampling.importance(smoothness, n_blocks)
        return BlockSampling.uniform(d, n_blocks)

    def _limits(self, objective: Objective, facts: Facts) -> FloatArray:
        """Limits C_j of all coordinates."""
        if isinstance(self.clip, tuple):
            return one_per_column("clip", self.clip, facts.d)
        clip = self.clip or 0.25 * objective.loss.slope_bound * facts.row_bound
        return np.full(facts.d, clip / math.sqrt(facts.d))

    def solve(
        self,
        objective: Objective,
        holder: DataHolder,
        calibrated: CalibratedPlan,
        progress: Progress | None = None,
    ) -> Solution:
        facts = holder.facts
        smoothness = coordinate_smoothness(objective, facts, self.smoothness)
        sampling, limits = self._sampling(smoothness), self._limits(objective, facts)
        mechanism = GaussianNoise(calibrated.noise_multiplier(GradientBlock.name))
        box = self.box / facts.value_bound
        step = _Step(self.step, smoothness, objective, box)
        weights = BoxedWeights(np.zeros(facts.d), box)
        for t in range(self.n_rounds):
            total = np.zeros(facts.d)
            for k in range(self.n_inner):
                drawn = _draw_non_empty(sampling, holder)
                query = GradientBlock(objective.loss, weights, _block_limit(limits, drawn), drawn)
                weights = step(weights, drawn, holder.release(query, mechanism) / facts.n)
                if self.averaging:
                    total += weights.values
                done = t * self.n_inner + k + 1
                report_step(progress, done, self.n_rounds * self.n_inner, weights.values.copy)
            if self.averaging:
                weights = BoxedWeights(total / self.n_inner, box)
        return Solution(weights.values.copy(), self.n_rounds * self.n_inner)

    def forecast(
        self,
        objective: Objective,
        facts: Facts,
        calibrated: CalibratedPlan,
        neighbours: Neighbours,
        **assumed: float | None,
    ) -> Forecast | None:
        smoothness = coordinate_smoothness(objective, facts, self.smoothness)
        sampling = self._sampling(smoothness)
        return forecasts.blocks(
            objective,
            facts,
            calibrated,
            neighbours,
            n_rounds=self.n_rounds,
            n_inner=self.n_inner,
            averaging=self.averaging,
            step=self.step,
            smoothness=smoothness,
            limits=self._limits(objective, facts),
            probabilities=sampling.probabilities,
            subsets=[block for block, _ in sampling.subsets()] if isinstance(sampling, BlockSampling) else None,
            **assumed,
        )
