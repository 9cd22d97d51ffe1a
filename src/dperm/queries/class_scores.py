"""Gradient of a softmax loss in few parameters: factors of released scores, and intercepts of the classes.

Proof: ``class_scores.proof.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.row_map import RowMap
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import Query
from dperm.errors import InvalidInput
from dperm.kernels.exact import power_of_two_above, toward_zero
from dperm.objective import Multinomial
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = ["ClassScoreGradient"]

_UP, _DOWN = 1.0 + 2.0**-50, 1.0 - 2.0**-50
#: public numbers up to this size give finite predictions; an entry of more clips is taken for so many
_LARGEST, _MOST_CLIPS = 2.0**300, 2.0**400


@dataclass(frozen=True, eq=False)
class ClassScoreGradient(Query):
    """Sum over people of the gradient in factors and intercepts, each of L2 norm at most ``clip``.

    A released map gives every person P scores s_p for each of K classes. Predictions are

        z = constants + sum over p of factors_p s_p.

    A person whose slopes are r adds ((r . s_1, ..., r . s_P), heights * r): the derivatives in the factors and in
    intercepts that move a prediction by ``heights``. It is shortened where its length is above ``clip``.

    Parameters
    ----------
    loss : Multinomial
        The softmax loss of K classes.
    rows : RowMap
        Map of shape (d, P K) from a row to its scores; those of one p are next to each other.
    factors, constants : array of shape (P,) and (K,)
        Where the gradient is taken.
    heights : array of shape (K,)
        How much each intercept moves its class; without entries there are no intercepts.
    clip : float
        Largest length of a person's gradient.
    label_independence : float
        Weight, in the length that decides how much a person's gradient is shortened, of the longest gradient that any
        label would have there; the rest is that of the person's own label.
    """

    loss: Multinomial
    rows: RowMap
    factors: FloatArray
    constants: FloatArray
    heights: FloatArray
    clip: float
    label_independence: float = 0.0

    name: ClassVar[str] = "class score gradient"
    norm: ClassVar[str] = "l2"

    def __post_init__(self) -> None:
        if type(self.loss) is not Multinomial:  # a subclass may define other slopes
            raise InvalidInput(f"gradients of class scores need the multinomial loss, not {self.loss.name}.")
        object.__setattr__(self, "clip", positive("clip", self.clip))
        if not 1.0 / _LARGEST <= self.clip <= _LARGEST:
            raise InvalidInput(f"clip must be between 2^-300 and 2^300, not {self.clip:g}.")
        if not 0.0 <= self.label_independence <= 1.0:
            raise InvalidInput(f"label_independence must be between 0 and 1, not {self.label_independence!r}.")

    def part(self, block: DesignData) -> FloatArray:
        step = block.design.spacing * self.rows.spacing
        # in units of a power of two just above the clip, so that divisions are exact and the limit is about 1
        unit = power_of_two_above(self.clip)
        spacing = block.design.grids.count_spacing(1.0)
        total = np.zeros(len(self.factors) + len(self.heights))
        for some, mapped in self.rows.rows(block.design):
            with np.errstate(all="ignore"):  # a warning would reveal something about a person
                gradients = self.shortened(mapped * step, block.target[some], unit)
            total += toward_zero(gradients, spacing).sum(axis=1)
        return total * (spacing * unit)

    def shortened(self, scores: FloatArray, target: FloatArray, unit: float) -> FloatArray:
        """Return one line for each parameter, one column for each person, in units.

        All sums are taken in a fixed order: a person's gradient must not depend on the position.
        """
        n_classes, n_factors = self.loss.n_classes, len(self.factors)
        each = [scores[:, p * n_classes : (p + 1) * n_classes] for p in range(n_factors)]
        predictions = np.zeros((len(scores), n_classes)) + self.constants
        for factor, one in zip(self.factors, each, strict=True):
            predictions += factor * one
        slopes = self.loss.slope(predictions, target)
        lines = [_over_classes(slopes, one) for one in each]
        lines += [height * slopes[:, k] for k, height in enumerate(self.heights)]
        gradients = np.clip(np.stack(lines) / unit, -_MOST_CLIPS, _MOST_CLIPS)
        squares = np.zeros(len(scores))
        for line in gradients:
            squares += line * line
        # rounded up: each product and addition may have been rounded down
        lengths = np.sqrt(squares) * (1.0 + (len(gradients) + 8) * 2.0**-52)
        wanted = lengths
        if self.label_independence:
            any_label = self._longest(self.loss.inverse_link(predictions), each) / unit
            mixed = self.label_independence * any_label + (1.0 - self.label_independence) * lengths
            wanted = np.maximum(lengths, mixed)
        factors = np.minimum(1.0, self.clip / unit * _DOWN * _DOWN / np.maximum(wanted, 1e-300))
        out: FloatArray = gradients * factors
        return out

    def _longest(self, probabilities: FloatArray, each: list[FloatArray]) -> FloatArray:
        """Return the length of the longest gradient of any label."""
        means = [_over_classes(probabilities, one) for one in each]
        base, longest = np.zeros(len(probabilities)), np.zeros(len(probabilities))
        for k, height in enumerate(self.heights):
            base += np.square(height * probabilities[:, k])
        for k in range(self.loss.n_classes):
            squares = base
            if len(self.heights):
                squares = squares + self.heights[k] ** 2 * (1.0 - 2.0 * probabilities[:, k])
            for mean, one in zip(means, each, strict=True):
                squares = squares + np.square(mean - one[:, k])
            longest = np.maximum(longest, squares)
        return np.sqrt(longest)

    def zero_out_sensitivity(self, facts: Facts) -> float:
        return self.clip

    def bound(self, facts: Facts) -> float:
        return facts.n * self.clip * _UP

    def size(self, facts: Facts) -> int:
        self.rows.check(facts.grids)
        n_classes, n_factors = self.loss.n_classes, len(self.factors)
        shapes = (np.shape(self.factors), np.shape(self.constants), self.rows.shape[1])
        if shapes != ((n_factors,), (n_classes,), n_factors * n_classes) or np.shape(self.heights) not in (
            (0,),
            (n_classes,),
        ):
            raise InvalidInput("factors, constants, heights and the map of class scores do not fit together.")
        for numbers in (self.factors, self.constants, self.heights):
            if not (np.abs(numbers) <= _LARGEST).all():
                raise InvalidInput("factors, constants and heights of class scores must be at most 2^300.")
        return n_factors + len(self.heights)


def _over_classes(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the sum over classes of a product, in a fixed order."""
    total = np.zeros(len(a))
    for k in range(a.shape[1]):
        total += a[:, k] * b[:, k]
    return total
