"""Gradient sums over a secret Poisson sample, and their corrections against a reference point.

The mechanism draws the sample; a query gives it one summand per person. Proof: ``sampled.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DesignData, Query
from dperm.errors import InvalidInput, Unsupported
from dperm.kernels.exact import toward_zero
from dperm.objective import Loss
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.sampled_noise import Summands
from dperm.queries.gradients import FullGradient, check_weights, clipped_slopes, predictions
from dperm.types import BoolArray, FloatArray
from dperm.validation import positive

__all__ = ["SampledCorrection", "SampledGradient", "SampledQuery", "ZeroOutQuery"]


_UP = 1.0 + 2.0**-50
_DOWN = 1.0 - 2.0**-50


class ZeroOutQuery(Query):
    """A query whose release is proved for zero-out only."""

    proved_for: ClassVar[tuple[Neighbours, ...]] = (Neighbours.ZERO_OUT,)

    def sensitivity(self, facts: Facts, neighbours: Neighbours) -> float:
        """Refuse other relations, before anything is charged."""
        if neighbours not in self.proved_for:
            raise Unsupported(f"a release of {self.name!r} is proved for neighbours='zero-out' only.")
        return self.zero_out_sensitivity(facts)


class SampledQuery(ZeroOutQuery):
    """A query whose value is one summand per person; its sensitivity bounds one summand."""


#: returns the slopes of the people in some data, clipped to the given limits, as whole steps, and the step length
Slopes = Callable[[DesignData, FloatArray | float], tuple[FloatArray, float]]


def _summands(data: DesignData, clip: float | None, n_outputs: int, slopes: Slopes) -> Summands:
    """Return row times slope for every person, computed only for the people in a sample."""
    design = data.design

    def total(mask: BoolArray) -> FloatArray:
        rows = np.flatnonzero(mask)
        everyone = len(rows) == design.n_rows
        sample = data if everyone else replace(data, design=design.take(rows), target=data.target[rows])
        limits: FloatArray | float = np.inf
        if clip is not None:
            # the norms of all rows are kept, so only the first step computes them
            with np.errstate(divide="ignore"):
                limits = clip * _DOWN / design.norms()[rows]
        steps, spacing = slopes(sample, limits)
        return sample.design.sums(steps) * (design.spacing * spacing)

    return Summands(design.n_rows, design.d * n_outputs, total)


@dataclass(frozen=True, eq=False)
class SampledGradient(SampledQuery, FullGradient):
    """Gradient of every person's loss, clipped to L2 norm ``clip``, to be summed over a sample."""

    name: ClassVar[str] = "sampled gradient"

    def evaluate(self, data: DesignData) -> Any:
        def slopes(sample: DesignData, limits: FloatArray | float) -> tuple[FloatArray, float]:
            return clipped_slopes(sample, self.loss, self.weights, limits)

        return _summands(data, self.clip, self.loss.n_outputs, slopes)


@dataclass(frozen=True, eq=False)
class SampledCorrection(SampledQuery):
    """Gradient at ``weights`` minus gradient at ``reference``, clipped to L2 norm ``clip``, to be summed over a sample.

    One output only. ``clip`` bounds the difference's L2 norm and ``limit`` the difference of slopes, which also sets
    the grid they are rounded to; both may follow the public distance of the two points, as gradients of a smooth loss
    are close where the points are.
    """

    loss: Loss
    weights: FloatArray
    reference: FloatArray
    clip: float
    limit: float | None = None

    name: ClassVar[str] = "gradient correction"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        if not math.isfinite(self.loss.slope_bound) or self.loss.n_outputs != 1:
            raise InvalidInput("gradient corrections need a loss with bounded slopes and one output.")
        for what in ("clip", "limit"):
            if getattr(self, what) is not None:
                object.__setattr__(self, what, positive(what, getattr(self, what)))

    @property
    def _limit(self) -> float:
        widest = 2.0 * self.loss.slope_bound
        return widest if self.limit is None else min(self.limit, widest)

    def evaluate(self, data: DesignData) -> Any:
        grids = data.design.grids
        spacing = grids.spacing(self._limit, grids.slope_bits)

        def slopes(sample: DesignData, limits: FloatArray | float) -> tuple[FloatArray, float]:
            points = (self.weights, self.reference)
            here, there = (self.loss.slope(predictions(sample, w), sample.target) for w in points)
            largest = np.minimum(limits, self._limit)
            return toward_zero(np.clip(here - there, -largest, largest), spacing), spacing

        return _summands(data, self.clip, 1, slopes)

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return min(self.clip, self._limit * facts.row_bound * _UP)

    def bound(self, facts: Facts) -> float:
        return facts.n * min(self.zero_out_sensitivity(facts), self._limit * facts.value_bound) * _UP

    def size(self, facts: Facts) -> int:
        for weights in (self.weights, self.reference):
            check_weights(weights, self.loss, facts)
        return facts.d
