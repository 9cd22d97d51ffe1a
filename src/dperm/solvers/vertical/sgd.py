"""Stochastic gradient descent over parties, without protection: the baseline of the ADMM sharing paper.

In a round all participants use the same public batch of people. The coordinator sends the slopes of the batch, and
every party moves its own weights along its part of the gradient (after FDML: Hu, Niu, Yang & Zhou, KDD 2019,
synchronous). There is no guarantee, as for exact ADMM sharing without noise: ``exact_admm.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dperm.errors import InvalidInput
from dperm.queries.sharing import PlainGradient
from dperm.solvers.option_checks import require_positive, require_whole
from dperm.solvers.vertical.exact_admm import ExactSharing
from dperm.types import FloatArray

__all__ = ["SgdOverParties"]


@dataclass(frozen=True)
class SgdOverParties(ExactSharing):
    """Stochastic gradient descent over parties; no guarantee.

    Parameters
    ----------
    batch : int
        People per round; a batch is every k-th person, k the number of batches, and rounds go through the batches.
    step : float
        The step of round t is step / sqrt(1 + t / number of batches).
    """

    batch: int = 256
    step: float = 0.5

    name: ClassVar[str] = "sgd-over-parties"
    has_lyapunov: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, "batch")
        require_positive(self, "step")
        if self.calibration != "none":
            raise InvalidInput("task 'sgd-over-parties' is a baseline without noise: use calibration='none'.")

    @property
    def _n_batches(self) -> int:
        return max(1, math.ceil(self.n / self.batch))

    def dual_penalty(self) -> float | None:
        return None

    def residual(self, slopes: FloatArray, dual: FloatArray, round_: int) -> FloatArray:
        out = np.zeros(self.n)
        rows = slice(round_ % self._n_batches, None, self._n_batches)
        out[rows] = slopes[rows] / len(out[rows])
        return out

    def block(self, party: str, weights: FloatArray, inside: Any, round_: int) -> FloatArray:
        length = self.step / math.sqrt(1.0 + round_ / self._n_batches)
        moved = weights - length * inside(PlainGradient())
        shrunk = self.penalty.prox(moved, length) / (1.0 + length * self.penalty.l2)
        free = list(self.unpenalised(party))
        shrunk[free] = moved[free]
        return shrunk
