"""Scores of released weights: how well a model predicts. Proof: ``evaluation.proof.md``."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import Query
from dperm.errors import InvalidInput
from dperm.kernels.exact import toward_zero
from dperm.queries.gradients import predictions
from dperm.types import FloatArray

__all__ = ["CorrectPredictions", "SquaredErrors"]


@dataclass(frozen=True, eq=False)
class _ModelScore(Query):
    """Sum over people of a number between -1/2 and 1/2, larger for a better prediction; an empty record adds 0."""

    weights: FloatArray

    norm: ClassVar[str] = "l2"

    @abstractmethod
    def per_person(self, data: DesignData) -> FloatArray:
        """Return one number per person, a function of that person's record and the released weights alone."""

    def part(self, block: DesignData) -> FloatArray:
        spacing = block.facts.grids.count_spacing(0.5)
        steps = toward_zero(np.clip(self.per_person(block), -0.5, 0.5), spacing)
        return np.array([steps.sum() * spacing])

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return 0.5

    def bound(self, facts: Facts) -> float:
        return 0.5 * facts.n

    def size(self, facts: Facts) -> int:
        if np.ndim(self.weights) not in (1, 2) or len(self.weights) != facts.d:
            raise InvalidInput(f"weights to be scored must have {facts.d} rows, not shape {np.shape(self.weights)}.")
        if not np.isfinite(self.weights).all():
            raise InvalidInput("weights to be scored must be finite.")
        return 1


@dataclass(frozen=True, eq=False)
class CorrectPredictions(_ModelScore):
    """Number of people whose class is predicted correctly minus half of all; class codes are 0, 1, ..."""

    name: ClassVar[str] = "correct predictions"

    def per_person(self, data: DesignData) -> FloatArray:
        scores = predictions(data, self.weights)
        codes = scores > 0.0 if scores.ndim == 1 else scores.argmax(axis=1)
        score: FloatArray = (codes == data.target) - 0.5
        return score


@dataclass(frozen=True, eq=False)
class SquaredErrors(_ModelScore):
    """Sum over people of 1/2 minus the squared error, in units of half the target's range and at most 1.

    Predictions are clipped to the target's range first, as they are when the model is used.
    """

    name: ClassVar[str] = "squared errors"

    def size(self, facts: Facts) -> int:
        if np.ndim(self.weights) != 1:
            raise InvalidInput("squared errors need one weight per column: they are defined for one predicted number.")
        return super().size(facts)

    def per_person(self, data: DesignData) -> FloatArray:
        facts = data.facts
        half = max(0.5 * (facts.target_high - facts.target_low), np.finfo(np.float64).tiny)
        predicted = np.clip(predictions(data, self.weights), facts.target_low, facts.target_high)
        error = np.minimum(np.abs(predicted - data.target) / half, 1.0)
        score: FloatArray = 0.5 - error * error
        return score
