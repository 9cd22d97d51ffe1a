"""Calibrations as papers print them, for comparison only: dperm guarantees none of them.

A fit with ``calibration="paper"`` carries no guarantee; its report gives the reason and the epsilon that can be
certified for the printed noise. See ``printed.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from dperm.errors import InvalidInput
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.accounting.events import UNCERTIFIED_CHOICE, ApproximateDP, Event
from dperm.privacy.mechanisms.lattice import Lattice
from dperm.privacy.mechanisms.standard import Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.types import FloatArray

__all__ = [
    "GREEDY_FORMS",
    "LaplaceInsideMax",
    "LaplaceMax",
    "Printed",
    "UncertifiedLaplaceInsideMax",
    "coordinate_multiplier",
    "greedy_epsilon",
]


GREEDY_FORMS = ("implicit", "closed")


@dataclass(frozen=True)
class Printed:
    """A printed calibration: the noise, and why it carries no guarantee."""

    calibrated: CalibratedPlan
    reason: str


def greedy_epsilon(n_steps: int, budget: Budget, form: str = "implicit") -> float:
    """Per-release epsilon that the DP-GCD paper prints for ``n_steps`` (Mangold et al. 2023, Theorem 4.2).

    ``"implicit"`` solves sqrt(4 T ln(1/delta)) e + 2 T e (exp(e) - 1) = epsilon, ``"closed"`` is
    epsilon / (4 sqrt(T ln(1/delta))).

    >>> round(greedy_epsilon(10, Budget(1.0, 1e-6), "closed"), 5)
    0.02127
    """
    if form not in GREEDY_FORMS:
        raise InvalidInput(f"the printed form must be one of {', '.join(GREEDY_FORMS)}, not {form!r}.")
    log = math.log(1.0 / budget.delta)
    if form == "closed":
        return budget.epsilon / (4.0 * math.sqrt(n_steps * log))
    root = math.sqrt(4.0 * n_steps * log)

    def excess(e: float) -> float:
        return root * e + 2.0 * n_steps * e * math.expm1(e) - budget.epsilon

    return float(brentq(excess, 0.0, budget.epsilon / root, xtol=1e-15))


def coordinate_multiplier(n_steps: int, budget: Budget) -> float:
    """Noise multiplier (under replace-one) of the DP-CD constant: sigma = (L/n) sqrt(12 T ln(1/delta)) / epsilon.

    Mangold et al. 2022, Theorem 3.1; the sensitivity of a mean gradient is 2L/n.
    """
    return math.sqrt(3.0 * n_steps * math.log(1.0 / budget.delta)) / budget.epsilon


@dataclass(frozen=True)
class LaplaceInsideMax(Mechanism):
    """The printed greedy choice: Laplace noise on every gradient *before* its score is taken, then the largest score.

    ``score`` turns noisy gradients into scores. The event is what can be certified for scores like the absolute value:
    pure ``2 / noise_multiplier``, twice what the paper states.
    """

    score: Callable[[FloatArray], FloatArray] = np.abs

    norm: ClassVar[str] = "coordinatewise"
    kind: ClassVar[str] = "laplace-inside-max"

    def event(self, replacement_ratio: float) -> Event:
        return ApproximateDP(2.0 / self.noise_multiplier)

    def _lattice(self, sensitivity: float, bound: float) -> Lattice:
        return Lattice.design(sensitivity, self.noise_multiplier, 1, bound, "laplace")

    def draw(self, value: Any, sensitivity: float, bound: float, source: RandomSource) -> Any:
        noisy = self._lattice(sensitivity, bound).release(value, source, self.sampler)
        return int(np.argmax(self.score(noisy)))

    def noise_scale(self, sensitivity: float, bound: float, size: int) -> float:
        return self._lattice(sensitivity, bound).noise_scale


@dataclass(frozen=True)
class UncertifiedLaplaceInsideMax(LaplaceInsideMax):
    """The same draw for any scores, also those at which no multiple of the printed epsilon bounds its cost."""

    kind: ClassVar[str] = "uncertified-laplace-inside-max"

    def event(self, replacement_ratio: float) -> Event:
        return UNCERTIFIED_CHOICE


def _itself(values: FloatArray) -> FloatArray:
    return values


@dataclass(frozen=True)
class LaplaceMax(LaplaceInsideMax):
    """The printed choice of distributed Frank-Wolfe: the largest of all scores after Laplace noise on every one.

    The event is the same; it is the classical cost of report-noisy-max.
    """

    score: Callable[[FloatArray], FloatArray] = _itself

    norm: ClassVar[str] = "linf"
