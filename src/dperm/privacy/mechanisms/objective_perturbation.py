"""Objective perturbation: release the minimiser of a sum of losses plus a random linear term.

    theta = argmin sum_i loss_i(w) + w' Lambda w / 2 + b.w,      b Gaussian,

then a computed point near theta, with a little Gaussian noise that hides which point near theta it is.
Chaudhuri, Monteleoni & Sarwate 2011; Kifer, Smith & Thakurta 2012; approximate minima: Iyengar et al. 2019; tight
profile: Redberg, Koskela & Wang 2023 (arXiv 2401.00583). Proofs: ``privacy/accounting/curves.proof.md`` (the exact
minimiser) and ``queries/perturbed.proof.md`` (the one that is released).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dperm.errors import InvalidInput
from dperm.privacy.accounting.events import Event
from dperm.privacy.accounting.objective_perturbation import OUTPUT_RATIO, perturbation_event
from dperm.privacy.mechanisms.lattice import Lattice, floor_noise
from dperm.privacy.mechanisms.standard import MECHANISMS, Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.types import FloatArray
from dperm.validation import positive

__all__ = [
    "PerturbedObjective",
    "PrivateObjective",
]

_UP = 1.0 + 2.0**-49
_LATTICE_BITS = 36  # b is known to 2^-37 of its standard deviation


class PrivateObjective(ABC):
    """A strongly convex function of private data; it never leaves its holder.

    Attributes
    ----------
    size : int
        Number of variables.
    strength : float
        Smallest curvature of the quadratic.
    curvature_ratio : float
        Public bound on one record's curvature against the quadratic.
    """

    size: int
    strength: float
    curvature_ratio: float

    @abstractmethod
    def minimise(self, linear: FloatArray, tolerance: float) -> FloatArray:
        """Return a point where the function plus ``linear``.w has a gradient of norm at most ``tolerance``, rounding
        included; it never gives up, because giving up would reveal something about the data."""

    def __array__(self, *args: Any, **kwargs: Any) -> FloatArray:
        raise TypeError("a private objective is not an array: only a perturbing mechanism may minimise it.")

    def __reduce__(self) -> str:
        raise TypeError("a private objective cannot be pickled.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size})"


@dataclass(frozen=True, kw_only=True)
class PerturbedObjective(Mechanism):
    """Minimises with a random linear term and adds output noise; the sensitivity bounds one record's gradient in L2.

    Parameters
    ----------
    curvature_ratio : float
        As in :class:`~dperm.privacy.accounting.events.ObjectivePerturbation`.
    strength : float
        Smallest curvature of the quadratic: a gradient of norm t is at most t / strength away from the minimiser.
    precision : float
        Public bound on the smallest gradient norm that the objective's arithmetic can certify.
    """

    curvature_ratio: float
    strength: float
    precision: float

    norm: ClassVar[str] = "l2"
    kind: ClassVar[str] = "objective"

    def __post_init__(self) -> None:
        super().__post_init__()
        for what in ("strength", "precision"):
            positive(what, getattr(self, what))

    def event(self, replacement_ratio: float) -> Event:
        return perturbation_event(self.noise_multiplier, self.curvature_ratio, replacement_ratio)

    def linear_noise(self, sensitivity: float) -> tuple[float, float]:
        """Return the lattice spacing of b and its standard deviation in steps, at least the planned one."""
        deviation = self.noise_multiplier * sensitivity * _UP
        spacing = 2.0 ** (math.floor(math.log2(deviation)) - _LATTICE_BITS)
        return spacing, deviation / spacing * _UP

    def tolerance(self, bound: float, size: int) -> float:
        """Return the gradient norm at which the search may stop."""
        # as small as arithmetic allows: the output noise is proportional to it, and the data's own curvature, which
        # shrinks the effect of b, does not shrink that noise. The output must be below 2^51 lattice steps.
        coarser = max(1.0, 1.0 / (8.0 * OUTPUT_RATIO * self.noise_multiplier))
        return max(self.precision, bound * self.strength * math.sqrt(size) * 2.0**-39 * coarser)

    def output_lattice(self, sensitivity: float, bound: float, size: int) -> Lattice:
        """Return the lattice of the output noise; b's rounding counts as part of the gradient."""
        spacing, _ = self.linear_noise(sensitivity)
        norm = self.tolerance(bound, size) + 0.5 * spacing * math.sqrt(size) * _UP
        apart = 2.0 * norm / self.strength * _UP
        return Lattice.design(apart, OUTPUT_RATIO * self.noise_multiplier, size, bound, "gaussian")

    def draw(self, value: Any, sensitivity: float, bound: float, source: RandomSource) -> FloatArray:
        if not isinstance(value, PrivateObjective):
            raise InvalidInput("objective perturbation needs a query that returns an objective.")
        if value.curvature_ratio > self.curvature_ratio or value.strength < self.strength:
            raise InvalidInput("an objective was built with less strength than this release charges for.")
        lattice = self.output_lattice(sensitivity, bound, value.size)
        spacing, scale = self.linear_noise(sensitivity)
        steps = floor_noise(value.size, scale, source, "gaussian", sampler=self.sampler)
        linear = (steps.astype(np.float64) + 0.5) * spacing
        found = value.minimise(linear, self.tolerance(bound, value.size))
        return lattice.release(found, source, self.sampler)

    def noise_scale(self, sensitivity: float, bound: float, size: int) -> float:
        self.output_lattice(sensitivity, bound, size)  # refuses here, before anything is charged
        spacing, scale = self.linear_noise(sensitivity)
        return spacing * scale


# registered here: the registry's module cannot import this one, which imports its base class
MECHANISMS[PerturbedObjective.kind] = PerturbedObjective
