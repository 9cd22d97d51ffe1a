"""Step lengths of a noisy descent, and how noise and slopes move its result: public numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dperm.solvers.central.auto.constants import RULE
from dperm.solvers.central.auto.scales import LossScale
from dperm.types import FloatArray

__all__ = ["Descent", "longest_step"]


def longest_step(curvature: float, momentum: float) -> float:
    """Return the longest step that is taken along a direction of this curvature.

    Heavy-ball steps are stable below 2 (1 + momentum) / curvature (Polyak 1964).
    """
    return RULE.step_margin * 2.0 * (1.0 + momentum) / curvature


@dataclass(frozen=True)
class Descent:
    """Step lengths, momentum, number of averaged iterates and the penalty's second derivative in each direction."""

    steps: FloatArray
    momentum: float
    n_averaged: int
    penalty_curvature: FloatArray | float

    @classmethod
    def planned(
        cls,
        scale: LossScale,
        noise_fraction: float,
        mean_square: float,
        signal_to_noise: float,
        n_steps: int,
        momentum: float,
        penalty_curvature: FloatArray | float = 0.0,
    ) -> Descent:
        """Plan a descent whose total step length trades signal for noise.

        In a direction of curvature h, time t leaves the share exp(-h t) of the signal unlearnt and collects noise in
        proportion to t. With the signal to noise ratio q the sum of both is smallest at h t = log(2 q) / 2. With little
        noise the descent takes longer, for directions in which the data vary less than on average, and its last half is
        averaged.

        ``mean_square`` is the mean square of a mapped row's coordinates, ``signal_to_noise`` what columns can explain
        over what noise costs.
        """
        clip = min(1.0, scale.clip_at(noise_fraction))
        ratio = math.log1p(2.0 * signal_to_noise)
        patience = 1.0 + RULE.patience * (1.0 - noise_fraction) * ratio
        time = 0.5 * ratio * patience / (scale.curvature * mean_square * clip)
        wanted = (1.0 - momentum) * time / n_steps
        step = min(wanted, longest_step(scale.step_curvature, momentum) / clip)
        n_averaged = max(1, round(0.5 * (1.0 - noise_fraction) * n_steps))
        return cls(np.full(n_steps, step), momentum, n_averaged, penalty_curvature)

    @property
    def time(self) -> float:
        """Sum of all step lengths, with what momentum adds."""
        return float(self.steps.sum()) / (1.0 - self.momentum)

    def gains(self, curvature: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Effect of gradient errors on the averaged iterate, in directions of these curvatures.

        The first gain is the output variance per unit variance of noise that is drawn anew in each step. The second is
        the output move per unit of a constant slope; times the curvature it is the share of the way to the optimum
        that the descent covered.

        The iterates follow x <- ((1 + momentum - step h) x - momentum (x before) - step noise) / (1 + step q), with
        the penalty's second derivative q. Derivatives of the output are propagated backwards through this recursion.

        >>> Descent(np.ones(2), 0.0, 1, 0.0).gains(np.array([0.0, 0.5, 1.0]))[1] * [0.0, 0.5, 1.0]
        array([0.  , 0.75, 1.  ])
        """
        n_steps, momentum = len(self.steps), self.momentum
        later, latest = np.zeros_like(curvature), np.zeros_like(curvature)
        noise_gain, slope_gain = np.zeros_like(curvature), np.zeros_like(curvature)
        next_step = 0.0
        for t in range(n_steps - 1, -1, -1):
            step = self.steps[t]
            own = 1.0 / self.n_averaged if t >= n_steps - self.n_averaged else 0.0
            now = (own + (1.0 + momentum - next_step * curvature) * later - momentum * latest) / (
                1.0 + step * self.penalty_curvature
            )
            noise_gain += (step * now) ** 2
            slope_gain += step * now
            later, latest, next_step = now, later, float(step)
        return noise_gain, slope_gain
