"""Mechanisms: they turn a value and its sensitivity into a released value, and state the event that it costs.

A mechanism holds public numbers only. ``apply`` gets the value, its sensitivity and its public bound from the query
and draws from a :class:`~dperm.privacy.randomness.RandomSource`. Checks see every use of it (``privacy/boundary.py``),
so a subclass overrides ``draw`` and never ``apply``. Proofs: ``lattice.proof.md``, ``selection.proof.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np

from dperm.errors import InvalidInput
from dperm.privacy.accounting.events import Event, Gaussian, Laplace, Selection
from dperm.privacy.boundary import current_observer
from dperm.privacy.mechanisms.lattice import Lattice
from dperm.privacy.mechanisms.selection import TwoLevelRace, gumbel_race, race_scale
from dperm.privacy.randomness import RandomSource

__all__ = ["MECHANISMS", "GaussianNoise", "LaplaceNoise", "Mechanism", "NoisyMax"]


# a solver uses the same public numbers at every step
_designed = lru_cache(maxsize=4096)(Lattice.design)
_gaussian = lru_cache(maxsize=256)(Gaussian)


@dataclass(frozen=True)
class Mechanism(ABC):
    """Base of all mechanisms.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale divided by the query's sensitivity.
    sampler : {"filtered", "integer"}
        How noise is drawn, see :func:`dperm.privacy.mechanisms.lattice.floor_noise`.
    """

    noise_multiplier: float
    sampler: str = "filtered"

    #: the norm in which the query's sensitivity must be stated
    norm: ClassVar[str]
    #: the kind of planned release that it carries out
    kind: ClassVar[str]

    def __post_init__(self) -> None:
        self.event(2.0)  # refuses a bad multiplier
        # exactly a float: a subclass could be one number for the noise and another one for its cost
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        if self.sampler not in ("filtered", "integer"):
            raise InvalidInput(f"sampler must be 'filtered' or 'integer', not {self.sampler!r}.")

    @abstractmethod
    def event(self, replacement_ratio: float) -> Event:
        """Return the cost of one use."""

    @final
    def apply(self, value: Any, sensitivity: float, bound: float, source: RandomSource) -> Any:
        """Return the released value."""
        observer = current_observer()
        if observer is None:
            return self.draw(value, sensitivity, bound, source)
        return observer.apply(self, value, sensitivity, bound, source)

    @abstractmethod
    def draw(self, value: Any, sensitivity: float, bound: float, source: RandomSource) -> Any:
        """Add the noise; called by ``apply`` only."""

    @abstractmethod
    def noise_scale(self, sensitivity: float, bound: float, size: int) -> float:
        """Return the absolute noise scale for a query with these public numbers."""


@dataclass(frozen=True)
class GaussianNoise(Mechanism):
    """Adds Gaussian noise on a lattice; sensitivity in L2."""

    norm: ClassVar[str] = "l2"
    kind: ClassVar[str] = "gaussian"

    def event(self, replacement_ratio: float) -> Event:
        return _gaussian(self.noise_multiplier, replacement_ratio)

    def _lattice(self, sensitivity: float, bound: float, size: int) -> Lattice:
        return _designed(sensitivity, self.noise_multiplier, size, bound, self.kind)

    def draw(self, value: Any, sensitivity: float, bound: float, source: RandomSource) -> Any:
        return self._lattice(sensitivity, bound, np.size(value)).release(value, source, self.sampler)

    def noise_scale(self, sensitivity: float, bound: float, size: int) -> float:
        return self._lattice(sensitivity, bound, size).noise_scale


@dataclass(frozen=True)
class LaplaceNoise(GaussianNoise):
    """Adds Laplace noise on a lattice; sensitivity in L1."""

    norm: ClassVar[str] = "l1"
    kind: ClassVar[str] = "laplace"

    def event(self, replacement_ratio: float) -> Event:
        return Laplace(self.noise_multiplier, replacement_ratio)


@dataclass(frozen=True)
class NoisyMax(Mechanism):
    """Returns the index of the largest score after Gumbel noise; sensitivity is the largest change of any score.

    ``stream`` names the draws, such as those of a round; it matters only where a seed makes noise reproducible.
    """

    stream: str | None = None

    norm: ClassVar[str] = "linf"
    kind: ClassVar[str] = "selection"

    def event(self, replacement_ratio: float) -> Event:
        return Selection(self.noise_multiplier, replacement_ratio)

    def draw(self, value: Any, sensitivity: float, bound: float, source: RandomSource) -> Any:
        if isinstance(value, TwoLevelRace):  # scores that are kept up to date between selections
            if value.sensitivity < sensitivity or value.noise_multiplier < self.noise_multiplier:
                raise InvalidInput("a TwoLevelRace was built with less noise than this selection is charged for.")
            return value.select(source)
        scale = race_scale(sensitivity, self.noise_multiplier)
        draws = source if self.stream is None else source.stream(self.stream)
        return gumbel_race(np.clip(value, -bound, bound), scale, draws)

    def noise_scale(self, sensitivity: float, bound: float, size: int) -> float:
        return race_scale(sensitivity, self.noise_multiplier)


MECHANISMS: dict[str, type[Mechanism]] = {cls.kind: cls for cls in (GaussianNoise, LaplaceNoise, NoisyMax)}
