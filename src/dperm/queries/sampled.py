"""Gradient sums over a secret Poisson sample, and their corrections against a reference point.

The mechanism draws the sample; a query gives it one summand per person. Proof: ``sampled.proof.md``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import Query, added
from dperm.errors import InvalidInput, Unsupported
from dperm.kernels.exact import toward_zero
from dperm.objective import Loss
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.sampled_noise import Sample, Summands
from dperm.queries.gradients import FullGradient, check_weights, clipped_slopes, predictions, slope_spacing
from dperm.types import FloatArray
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

    clip: float | None

    @abstractmethod
    def slopes(self, people: DesignData, limits: FloatArray | float) -> tuple[FloatArray, float]:
        """Return the slopes of these people, clipped to the limits, as whole steps, and the length of a step."""

    def evaluate(self, data: Any) -> Summands:
        """Return the summands, computed only for the people of a sample, where their rows are."""
        return Summands(data.n_rows, self.size(data.facts), lambda sample: added(data.parts(_SampleSum(self, sample))))


@dataclass(frozen=True, eq=False)
class _SampleSum:
    """The part of a sampled query: the sum over the people of a block who are in the sample."""

    query: SampledQuery
    sample: Sample

    name: ClassVar[str] = "sample sum"
    reads_columns: ClassVar[bool] = False

    def part_size(self, facts: Facts) -> int:
        return self.query.part_size(facts)

    def part(self, block: DesignData) -> FloatArray:
        design = block.design
        rows = np.flatnonzero(self.sample.people(block.first, block.first + design.n_rows))
        people = block if len(rows) == design.n_rows else block.people(rows)
        limits: FloatArray | float = np.inf
        if self.query.clip is not None:
            # the norms of all rows are kept, so only the first step computes them
            with np.errstate(divide="ignore"):
                limits = self.query.clip * _DOWN / design.norms()[rows]
        steps, spacing = self.query.slopes(people, limits)
        return people.design.sums(steps) * (design.spacing * spacing)


@dataclass(frozen=True, eq=False)
class SampledGradient(SampledQuery, FullGradient):
    """Gradient of every person's loss, clipped to L2 norm ``clip``, to be summed over a sample."""

    name: ClassVar[str] = "sampled gradient"

    def slopes(self, people: DesignData, limits: FloatArray | float) -> tuple[FloatArray, float]:
        return clipped_slopes(people, self.loss, self.weights, limits), slope_spacing(people.design, self.loss)


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

    def slopes(self, people: DesignData, limits: FloatArray | float) -> tuple[FloatArray, float]:
        grids = people.design.grids
        spacing = grids.spacing(self._limit, grids.slope_bits)
        points = (self.weights, self.reference)
        here, there = (self.loss.slope(predictions(people, w), people.target) for w in points)
        largest = np.minimum(limits, self._limit)
        return toward_zero(np.clip(here - there, -largest, largest), spacing), spacing

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return min(self.clip, self._limit * facts.row_bound * _UP)

    def bound(self, facts: Facts) -> float:
        return facts.n * min(self.zero_out_sensitivity(facts), self._limit * facts.value_bound) * _UP

    def size(self, facts: Facts) -> int:
        for weights in (self.weights, self.reference):
            check_weights(weights, self.loss, facts)
        return facts.d
