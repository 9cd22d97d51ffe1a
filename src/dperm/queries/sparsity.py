"""Whether few columns matter: how much of a gradient is in its largest coordinate. Proof: ``sparsity.proof.md``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import Query, added
from dperm.errors import InvalidInput
from dperm.objective import Loss
from dperm.queries.gradients import FeatureGradient, clipped_slopes, slope_spacing
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = ["GradientSparsity"]

_UP = 1.0 + 2.0**-48


@dataclass(frozen=True, eq=False)
class GradientSparsity(Query):
    """Largest absolute column sum of the gradient, less a multiple of the length of all column sums.

    For the largest one, each person's product of slope and value is clipped on its own, to ``limit``; for the length,
    each person's gradient is clipped to L2 norm ``clip``. The value is

        of_largest * |largest sum| / limit - of_length * |vector of sums| / clip,

    so that one person moves the terms by at most ``of_largest`` and ``of_length``. The intercept is left out.

    Parameters
    ----------
    loss, weights
        Where the gradient is taken; weights are public.
    limit, clip : float
        The two clipping thresholds.
    of_largest, of_length : float
        The units in which the two terms are compared; all four numbers are public.
    """

    loss: Loss
    weights: FloatArray
    limit: float
    clip: float
    of_largest: float
    of_length: float

    name: ClassVar[str] = "gradient sparsity"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        for what in ("limit", "clip", "of_largest", "of_length"):
            object.__setattr__(self, what, positive(what, getattr(self, what)))
        if self._gradient.loss.n_outputs != 1:  # the gradient refuses a loss without bounded slopes
            raise InvalidInput("whether few columns matter is defined for one output.")

    @property
    def _gradient(self) -> FeatureGradient:
        return FeatureGradient(self.loss, self.weights, self.clip)

    def part(self, block: DesignData) -> FloatArray:
        step = block.design.spacing * slope_spacing(block.design, self.loss)
        slopes = clipped_slopes(block, self.loss, self.weights, math.inf)
        limits = np.array([np.floor(self.limit / step)])
        products = block.design.clipped_sums(slopes, limits)[: block.design.n_features] * step
        return np.concatenate([products, self._gradient.part(block)])

    def total(self, parts: Iterable[FloatArray], facts: Facts) -> FloatArray:
        products, gradient = np.split(added(parts), 2)
        largest = np.abs(products).max() / self.limit
        length = np.linalg.norm(gradient / self.clip)
        return np.array([self.of_largest * largest - self.of_length * length])

    def zero_out_sensitivity(self, facts: Facts) -> float:
        # the length is a rounded sum over the columns, on both neighbours
        rounding = (facts.n_features + 16) * 2.0**-53 * self.bound(facts)
        return (self.of_largest + self.of_length) * _UP + 2.0 * rounding

    def bound(self, facts: Facts) -> float:
        rounding = 1.0 + (facts.n_features + 16) * 2.0**-53
        return facts.n * max(self.of_largest, self.of_length) * rounding

    def size(self, facts: Facts) -> int:
        self._gradient.size(facts)  # refuses weights that do not fit
        return 1

    def part_size(self, facts: Facts) -> int:
        return 2 * facts.n_features
