"""Queries for runs in which every message is public. Proof: ``transcript.proof.md``.

Their values are numbers of single people, or sums with public signs, so the noise is that of the local model. They are
proved for replace-one only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import Query
from dperm.data.holding.party import LabelData, PartyData
from dperm.errors import InvalidInput, Unsupported
from dperm.kernels.exact import Grids, toward_zero
from dperm.kernels.sketch import NORMAL_BITS, normal_steps, sketched
from dperm.objective import Loss
from dperm.objective.proximal import proximal_slopes
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.queries.gradients import predictions
from dperm.queries.sharing import PartyQuery
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = ["ClippedPredictions", "LabelQuery", "NormalSketch", "ProximalSlopes", "SketchedColumn", "SketchedTarget"]


_UP = 1.0 + 2.0**-50


class _ReplaceOnly(Query):
    """A query whose sensitivity is stated for replace-one only."""

    norm: ClassVar[str] = "l2"
    proved_for: ClassVar[tuple[Neighbours, ...]] = (Neighbours.REPLACE_ONE,)

    def sensitivity(self, facts: Facts, neighbours: Neighbours) -> float:
        if neighbours not in self.proved_for:
            raise Unsupported(f"{self.name} are proved for neighbours='replace-one' only.")
        return super().sensitivity(facts, neighbours)


class LabelQuery(_ReplaceOnly):
    """Base of queries on :class:`~dperm.data.holding.party.LabelData`."""


@dataclass(frozen=True, eq=False)
class ClippedPredictions(_ReplaceOnly, PartyQuery):
    """This party's part of every person's prediction at public weights, clipped to ``clip``."""

    weights: FloatArray
    clip: float

    name: ClassVar[str] = "clipped predictions"

    def __post_init__(self) -> None:
        positive("clip", self.clip)

    def evaluate(self, data: PartyData) -> FloatArray:
        # only the design is read, which both kinds of data have
        return np.clip(predictions(data, self.weights), -self.clip, self.clip)  # type: ignore[arg-type]

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return self.clip

    def bound(self, facts: Facts) -> float:
        return self.clip

    def size(self, facts: Facts) -> int:
        if np.shape(self.weights) != (facts.d,) or not np.isfinite(self.weights).all():
            raise InvalidInput(f"weights must be {facts.d} finite numbers.")
        return facts.n


@dataclass(frozen=True, eq=False)
class ProximalSlopes(LabelQuery):
    """Slope of the loss at the proximal point of a public number, for every person: a function of their label."""

    loss: Loss
    points: FloatArray
    rho: float

    name: ClassVar[str] = "proximal slopes"

    def __post_init__(self) -> None:
        positive("rho", self.rho)
        if not math.isfinite(self.loss.slope_bound):
            raise InvalidInput(f"the {self.loss.name} loss has unbounded slopes: give it a residual_clip.")

    def evaluate(self, data: LabelData) -> FloatArray:
        slopes = np.nan_to_num(proximal_slopes(self.loss, self.points, data.target, self.rho))
        return np.asarray(np.clip(slopes, -self.loss.slope_bound, self.loss.slope_bound), np.float64)

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return self.loss.slope_bound

    def bound(self, facts: Facts) -> float:
        return self.loss.slope_bound

    def size(self, facts: Facts) -> int:
        if np.shape(self.points) != (facts.n,) or not np.isfinite(self.points).all():
            raise InvalidInput(f"points must be {facts.n} finite numbers.")
        return facts.n


@dataclass(frozen=True, eq=False)
class SketchedColumn(_ReplaceOnly, PartyQuery):
    """Sums of one column with ``n_rows`` public vectors of random signs."""

    column: int
    n_rows: int
    seed: str

    name: ClassVar[str] = "sketched columns"

    def __post_init__(self) -> None:
        if not (self.n_rows >= 1 and self.column >= 0):
            raise InvalidInput("a sketch needs at least one row, and a column >= 0.")

    def evaluate(self, data: PartyData) -> FloatArray:
        steps = data.design.scores(np.ones(1), [self.column])
        return sketched(self.seed, self.n_rows, steps) * data.design.spacing

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return math.sqrt(self.n_rows) * facts.value_bound * _UP

    def bound(self, facts: Facts) -> float:
        return facts.n * facts.value_bound * _UP

    def size(self, facts: Facts) -> int:
        if self.column >= facts.d:
            raise InvalidInput(f"column {self.column} is outside a design of {facts.d} columns.")
        return self.n_rows


@dataclass(frozen=True, eq=False)
class NormalSketch(SketchedColumn):
    """Sums of one column with ``n_rows`` public vectors of standard normal numbers.

    For the printed noise of distributed Frank-Wolfe only; signs do the same job and have no largest column.
    """

    name: ClassVar[str] = "normal sketches of columns"

    @staticmethod
    def entry_bits(facts: Facts) -> int:
        """Bits behind the point of a normal number, so that sums over people are exact."""
        return max(1, min(12, 52 - NORMAL_BITS - Grids(facts.n, facts.d).value_bits - (facts.n - 1).bit_length()))

    def _steps(self, facts: Facts) -> FloatArray:
        return normal_steps(self.seed, self.n_rows, facts.n, self.entry_bits(facts))

    def evaluate(self, data: PartyData) -> FloatArray:
        steps = data.design.scores(np.ones(1), [self.column])
        return (self._steps(data.facts) @ steps) * math.ldexp(data.design.spacing, -self.entry_bits(data.facts))

    def zero_out_sensitivity(self, facts: Facts) -> float:
        steps = self._steps(facts)
        longest = math.sqrt(float(np.einsum("ij,ij->j", steps, steps).max()))
        return math.ldexp(longest, -self.entry_bits(facts)) * facts.value_bound * _UP

    def bound(self, facts: Facts) -> float:
        return facts.n * facts.value_bound * 2.0**NORMAL_BITS * _UP


@dataclass(frozen=True, eq=False)
class SketchedTarget(LabelQuery):
    """Sums of the target minus the middle of its public range, with ``n_rows`` public vectors of random signs."""

    n_rows: int
    seed: str

    name: ClassVar[str] = "sketched targets"

    def __post_init__(self) -> None:
        if not self.n_rows >= 1:
            raise InvalidInput("a sketch needs at least one row.")

    @staticmethod
    def _half(facts: Facts) -> float:
        return 0.5 * (facts.target_high - facts.target_low)

    def evaluate(self, data: LabelData) -> FloatArray:
        facts = data.facts
        half, grids = self._half(facts), Grids(facts.n, 1)
        spacing = grids.spacing(half, grids.slope_bits)
        centred = np.clip(data.target - 0.5 * (facts.target_low + facts.target_high), -half, half)
        return sketched(self.seed, self.n_rows, toward_zero(centred, spacing)) * spacing

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return math.sqrt(self.n_rows) * self._half(facts) * _UP

    def bound(self, facts: Facts) -> float:
        return facts.n * self._half(facts) * _UP

    def size(self, facts: Facts) -> int:
        return self.n_rows
