"""Mechanisms that ignore their input: what they release is noise around values that no data went into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from dperm.privacy.accounting.events import Event
from dperm.privacy.boundary import Observer
from dperm.privacy.mechanisms.objective_perturbation import PerturbedObjective, PrivateObjective
from dperm.privacy.mechanisms.sampled_noise import Summands
from dperm.privacy.mechanisms.selection import TwoLevelRace
from dperm.privacy.mechanisms.standard import Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.testing._violation import demand
from dperm.testing.mechanisms import LinearObjective
from dperm.testing.registered import demand_registered, demand_registered_query
from dperm.types import FloatArray

__all__ = ["LEVELS", "BlindMechanisms"]

#: how large the values are that stand in for the true ones. Solvers branch on what was released (noise only, a rare
#: class, a strong signal, few columns that matter), so one level alone would leave branches unchecked.
LEVELS = ("zero", "noise", "strong", "steady", "few", "skewed", "mixed")


class BlindMechanisms(Observer):
    """Replaces the input of every mechanism and of every local report by a value that ignores the data.

    The value is a function of the level, the seed, the running number of the call and public numbers. The mechanism
    then draws its own noise. Whatever differs afterwards between two tables with the same public facts has reached its
    place around the mechanisms.

    Parameters
    ----------
    level : str
        One of :data:`LEVELS`.
    seed : int
        Other seeds give other values.
    fields_are_public : bool
        Whether the fields of queries are recorded too. They are public, except inside the trusted domain of a vertical
        run.

    Attributes
    ----------
    calls : list
        Everything public about each call, in order; it must not depend on the data either.
    charges : int
        Number of charged releases.
    """

    def __init__(self, level: str = "mixed", seed: int = 0, *, fields_are_public: bool = True) -> None:
        demand(level in LEVELS, f"the level of the stand-in values must be one of {', '.join(LEVELS)}, not {level!r}.")
        self._level, self._seed, self._fields = level, seed, fields_are_public
        self.calls: list[Any] = []
        self.charges = 0

    def charged(self, query: str, event: Event, units: int = 1) -> None:
        """Count and record a charge."""
        self.charges += 1
        self.calls.append(("charged", query, repr(event), units))

    def evaluated(self, query: Any, value: Any, facts: Any) -> Any:
        """Record the public fields of a query; its value goes on unchanged."""
        demand_registered_query(query)
        self.calls.append(("evaluated", type(query).__name__, _fields_of(query) if self._fields else None))
        return value

    def apply(self, mechanism: Mechanism, value: Any, sensitivity: float, bound: float, source: RandomSource) -> Any:
        """Draw the mechanism's noise for a stand-in of the same form."""
        demand_registered(mechanism)
        stand_in = self._stand_in(mechanism, value, sensitivity, bound)
        return mechanism.draw(stand_in, sensitivity, bound, source)

    def report(self, kind: Any, values: Any, draw: Callable[[Any], Any]) -> Any:
        """Draw the reports of people who hold values that ignore theirs."""
        shape = np.shape(values)
        self.calls.append(("report", type(kind).__name__, shape))
        rng = self._generator()
        if hasattr(kind, "n_categories"):
            return draw(self._categories(rng, shape, int(kind.n_categories)))
        # outside of [-1, 1] too: values are clipped to their range, which is known to ``draw`` alone
        return draw(self._array(rng, shape, 1.0, 100.0))

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng([self._seed, len(self.calls)])

    def _stand_in(self, mechanism: Mechanism, value: Any, sensitivity: float, bound: float) -> Any:
        """Return a value of the same form; nothing of ``value`` is used but its form, which is public."""
        noise = mechanism.noise_multiplier * sensitivity
        public = (type(mechanism).__name__, mechanism.noise_multiplier, mechanism.sampler, sensitivity, bound)

        def array(shape: tuple[int, ...], unit: float = noise, most: float = bound) -> FloatArray:
            self.calls.append((*public, type(value).__name__, shape))
            return self._array(self._generator(), shape, unit, most)

        if isinstance(value, Summands):
            n_people, size = value.n_people, value.size
            total = array(np.shape(value.total(np.zeros(n_people, np.bool_))))
            self.calls.append(("people", n_people))
            return Summands(n_people, size, lambda sample: total)
        if isinstance(value, PrivateObjective):
            assert isinstance(mechanism, PerturbedObjective)  # no other mechanism takes an objective
            self.calls.append(("objective", value.strength, value.curvature_ratio))
            slopes = array((value.size,), noise, bound * mechanism.strength)
            return LinearObjective(slopes, mechanism.strength, mechanism.curvature_ratio)
        if isinstance(value, TwoLevelRace):
            scores = array((value.size,))
            return TwoLevelRace(scores, value.sensitivity, value.noise_multiplier, value.bound)
        return array(np.shape(value))

    def _array(self, rng: np.random.Generator, shape: tuple[int, ...], noise: float, bound: float) -> FloatArray:
        """Return values of this level: ``noise`` is the scale of the noise, ``bound`` the largest possible value."""
        level = self._level if self._level != "mixed" else str(rng.choice(LEVELS[:-1]))
        out: FloatArray
        if level == "zero":
            out = np.zeros(shape)
        elif level == "noise":
            out = noise * rng.normal(size=shape)
        elif level == "strong":
            out = bound * rng.uniform(-1.0, 1.0, shape)
        elif level == "steady":  # the same at every step, so that descents get somewhere and reports agree
            once = np.random.default_rng([self._seed, *shape])
            out = bound * once.uniform(-0.2, 1.0, shape)
        elif level == "few":  # most values are hidden by the noise, and one in twenty stands out
            out = 0.1 * noise * rng.normal(size=shape)
            strong = rng.random(shape) < 0.05
            out = np.where(strong, bound * rng.choice([-0.9, 0.9], shape), out)
        else:  # skewed: nearly all at the lower end, as the counts of a rare class
            out = bound * (2.0 * rng.random(shape) ** 8 - 1.0)
        return np.clip(out, -bound, bound)

    def _categories(self, rng: np.random.Generator, shape: tuple[int, ...], n_categories: int) -> Any:
        if self._level == "zero":
            return np.zeros(shape, np.int64)
        power = 1 if self._level in ("noise", "mixed") else 4
        return np.floor(n_categories * rng.random(shape) ** power).astype(np.int64)


def _fields_of(query: Any) -> Any:
    """Return the fields of a query, copied: a solver may change an array after its release."""
    if not is_dataclass(query):
        return None
    found = [(one.name, getattr(query, one.name)) for one in fields(query)]
    return [(name, value.copy() if isinstance(value, np.ndarray) else value) for name, value in found]
