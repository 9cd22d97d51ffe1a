"""How the value of a release is moved to that of a worst-case neighbour, and what its output then shows.

A move gives the mechanism either the true value or one that lies ``reach`` times the declared sensitivity away, as
after ``reach`` people changed their records. It is chosen so large that true and moved value differ clearly under the
claimed noise: the event claims as much about it as about one person, because noise of multiplier s on values k
sensitivities apart is noise of multiplier s/k.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dperm.audit.releases.measurements import Choices, Measurement, NoiseScale, Samples, Shares, classes_of
from dperm.data.design.facts import Facts
from dperm.data.holding.holder import Query
from dperm.errors import Unsupported
from dperm.privacy.accounting.events import (
    Composed,
    Event,
    Gaussian,
    Laplace,
    ObjectivePerturbation,
    PoissonGaussian,
    RandomizedResponse,
    Selection,
)
from dperm.privacy.accounting.objective_perturbation import OUTPUT_RATIO
from dperm.privacy.local.categories import CategoryReport
from dperm.privacy.mechanisms.joint_selection import Finalist
from dperm.privacy.mechanisms.objective_perturbation import PerturbedObjective, PrivateObjective
from dperm.privacy.mechanisms.sampled_noise import Sample, Summands
from dperm.privacy.mechanisms.selection import TwoLevelRace
from dperm.types import BoolArray, FloatArray

__all__ = ["STEP", "GroupSamples", "Move", "ReportMove", "move_for"]

#: separation of the moved value in standard deviations of the claimed noise: halved noise then shows best
_SEPARATION = 2.0
#: largest step of a lattice in units of its noise: ``Lattice.design`` makes at least 256 steps of noise
STEP = 1.0 / 256.0
#: share of the releases whose value is replaced by zeros, bounds and values beyond them
_PLACED = 0.25
#: beyond every range
_FAR = 1e300
#: log odds of taking the pushed half of the candidates under the claimed noise
_LOG_ODDS = 1.5


class GroupSamples:
    """Everything measured of one group of releases: same name in the plan, same event."""

    def __init__(self, name: str, event: Event) -> None:
        self.name, self.event = name, event
        self.count = 0
        self.measured: dict[str, Measurement] = {}
        #: results of the attack, and the event that they are tested against
        self.samples = Samples()
        self.moved_event: Event | None = None
        #: Gaussian noise of the last release, for the comparison with other groups
        self.last_noise: FloatArray | None = None
        #: the sample of the release before, if it is the first of a pair
        self.last_sample: BoolArray | None = None

    def noise(self, what: str, law: str) -> NoiseScale:
        """Return the measurement of noise called ``what``."""
        found = self.measured.setdefault(what, NoiseScale(law, STEP))
        assert isinstance(found, NoiseScale)
        return found

    def choices(self, what: str, logit: float) -> Choices:
        """Return the measurement of choices; the largest log odds of the group count, on the safe side."""
        found = self.measured.setdefault(what, Choices(logit))
        assert isinstance(found, Choices)
        found.logit = max(found.logit, logit)
        return found

    def shares(self, what: str, rate: float) -> Shares:
        """Return the measurement of sampled people."""
        found = self.measured.setdefault(what, Shares(rate))
        assert isinstance(found, Shares)
        return found


class Move(ABC):
    """One release: ``given`` is what the mechanism gets."""

    given: Any

    @abstractmethod
    def measure(self, output: Any, mechanism: Any, group: GroupSamples) -> None:
        """Add what the output shows to the group."""


def move_for(
    query: Query, value: Any, facts: Facts, event: Event, sensitivity: float, rng: np.random.Generator
) -> Move | None:
    """Return the move for a release that was charged as ``event``; None for an event without noise to measure."""
    present = bool(rng.integers(2))
    bound = query.bound(facts)
    if isinstance(event, Gaussian | Laplace | PoissonGaussian):
        kind = _SampledMove if isinstance(value, Summands) else _ValueMove
        placed = rng if rng.random() < _PLACED else None
        return kind(value, event, sensitivity, bound, present, placed)
    if isinstance(event, Selection):
        return _SelectionMove(value, event, sensitivity, bound, query.size(facts), present)
    if isinstance(event, Composed) and isinstance(event.events[0], ObjectivePerturbation):
        return _ObjectiveMove(value, event.events[0], sensitivity, bound, present)
    return None


class _ValueMove(Move):
    """Additive noise: the value is moved along the diagonal, or placed where noise might be missing.

    ``placed`` decides the places: every coordinate becomes 0, one of the bounds, a value beyond one of them that is
    clipped to it, or stays as it is. Such a release has its noise measured and is not told apart from others.
    """

    def __init__(
        self,
        value: Any,
        event: Any,
        sensitivity: float,
        bound: float,
        present: bool,
        placed: np.random.Generator | None = None,
    ) -> None:
        self._event, self._present = event, present
        self._law = "laplace" if isinstance(event, Laplace) else "gaussian"
        self._scale = event.noise_multiplier * sensitivity
        base = np.clip(np.asarray(value, np.float64), -bound, bound)
        self._base, self._bound, self._placed = base, bound, placed is not None
        # towards the middle, so that the bound cuts nothing off
        towards = -1.0 if float(base.sum()) > 0.0 else 1.0
        self._direction = np.full(base.shape, towards / math.sqrt(base.size))
        if self._law == "laplace":  # the L1 norm of the movement counts
            self._direction = np.zeros(base.shape)
            self._direction.flat[0] = towards
        if placed is not None:
            places = placed.integers(6, size=base.shape)
            self.given = np.choose(places, [base, 0.0 * base, bound, -bound, 2.0 * bound, -2.0 * bound])
        else:
            shift = _SEPARATION * self._scale * self._direction if present else np.zeros(base.shape)
            self.given = np.clip(base + shift, -bound, bound)

    def measure(self, output: Any, mechanism: Any, group: GroupSamples) -> None:
        out, given = np.asarray(output, np.float64), np.clip(self.given, -self._bound, self._bound)
        noise = (out - given) / self._scale
        group.noise("noise", self._law).add(noise, classes_of(given, self._bound))
        if self._law == "gaussian":
            group.last_noise = noise.ravel()
        if self._placed:
            return
        statistic = float(((out - self._base) * self._direction).sum()) / self._scale
        group.samples.add(statistic, self._present)
        kind = Laplace if self._law == "laplace" else Gaussian
        group.moved_event = kind(1.0 / _SEPARATION)


class _SampledMove(Move):
    """A sum over a secret sample: the sum is moved whoever is in the sample, and the sample is counted."""

    def __init__(
        self,
        value: Summands,
        event: Any,
        sensitivity: float,
        bound: float,
        present: bool,
        placed: np.random.Generator | None = None,
    ) -> None:
        self._private, self._args = value, (event, sensitivity, bound, present, placed)
        self._rate = float(getattr(event, "rate", 1.0))
        self._mask: BoolArray = np.zeros(value.n_people, np.bool_)
        self._move: _ValueMove | None = None
        self.given = Summands(value.n_people, value.size, self._total)

    def _total(self, sample: Sample) -> FloatArray:
        self._mask = sample.people(0, self._private.n_people)
        self._move = _ValueMove(self._private.total(sample), *self._args)
        return np.asarray(self._move.given)

    def measure(self, output: Any, mechanism: Any, group: GroupSamples) -> None:
        if self._move is None:
            return  # nothing was summed: the noise is missing from the group, which is reported
        self._move.measure(output, mechanism, group)
        if self._rate < 1.0:
            group.shares("sampling", self._rate).add(int(self._mask.sum()), self._mask.size)
            before, group.last_sample = group.last_sample, self._mask
            if before is not None and before.shape == self._mask.shape:
                group.shares("sampled again", self._rate**2).add(int((before & self._mask).sum()), self._mask.size)
                group.last_sample = None  # the next pair is a new one: pairs are disjoint


class _SelectionMove(Move):
    """A selection: the first half of the candidates is raised and the other lowered, or the other way round."""

    def __init__(
        self, value: Any, event: Selection, sensitivity: float, bound: float, size: int, present: bool
    ) -> None:
        self._present = present
        self._half, self._size = size // 2, size
        unit = event.noise_multiplier * sensitivity
        height = min(0.5 * _LOG_ODDS * unit, bound)
        self._logit = 2.0 * height / unit
        pushed = height if present else -height
        scores = np.zeros(size)  # of an odd number, the candidate in the middle stays
        scores[: self._half], scores[size - self._half :] = pushed, -pushed
        if isinstance(value, TwoLevelRace):
            self.given: Any = copy.deepcopy(value)
            self.given.update(np.arange(size), scores)
        else:
            self.given = scores.reshape(np.shape(value))

    def measure(self, output: Any, mechanism: Any, group: GroupSamples) -> None:
        place = output.place if isinstance(output, Finalist) else int(output)
        first, last = place < self._half, place >= self._size - self._half
        if self._size < 2:
            return
        if first or last:  # the one in the middle says nothing, and how often it is taken may decide when to stop
            group.choices("choice", self._logit).add(int(first == self._present))
            group.samples.add(float(first), self._present)
        # from one push to the other every score moves by twice the height
        group.moved_event = Selection(1.0 / self._logit)


class _Observed(PrivateObjective):
    """A private objective with an added linear term; remembers the minimiser and the tolerance."""

    def __init__(self, inner: PrivateObjective, shift: FloatArray) -> None:
        self._inner, self._shift = inner, shift
        self.size, self.strength, self.curvature_ratio = inner.size, inner.strength, inner.curvature_ratio
        self.found: FloatArray | None = None
        self.tolerance = 0.0

    def minimise(self, linear: FloatArray, tolerance: float) -> FloatArray:
        """Minimise with the added term."""
        self.found, self.tolerance = self._inner.minimise(linear + self._shift, tolerance), tolerance
        return self.found


class _ObjectiveMove(Move):
    """A perturbed objective: its gradient is moved; the noise is read off the gradient at the released point."""

    def __init__(
        self, value: Any, event: ObjectivePerturbation, sensitivity: float, bound: float, present: bool
    ) -> None:
        self._inner, self._present, self._sensitivity = value, present, sensitivity
        self._multiplier = event.noise_multiplier
        self._scale = event.noise_multiplier * sensitivity
        self._direction = np.full(value.size, 1.0 / math.sqrt(value.size))
        self._shift = (_SEPARATION * self._scale if present else 0.0) * self._direction
        self.given = _Observed(value, self._shift)

    def measure(self, output: Any, mechanism: PerturbedObjective, group: GroupSamples) -> None:
        out, found = np.asarray(output, np.float64), self.given.found
        if found is None:
            return
        noise = -self._inner.gradient(out) - self._shift
        group.last_noise = noise / self._scale
        group.noise("noise", "gaussian").add(group.last_noise)
        group.samples.add(float((noise + self._shift) @ self._direction) / self._scale, self._present)
        group.moved_event = Gaussian(1.0 / _SEPARATION)
        # two points that the search may return are this far apart, as b is known to half a step of its lattice
        spacing, _ = mechanism.linear_noise(self._sensitivity)
        apart = 2.0 * (self.given.tolerance + 0.5 * spacing * math.sqrt(out.size)) / mechanism.strength
        group.noise("noise on the minimiser", "gaussian").add((out - found) / (OUTPUT_RATIO * self._multiplier * apart))


class ReportMove(Move):
    """Local reports: everybody holds one of the two most different values, and answers of the two ends are counted.

    Given that an answer is one of the two ends, it is the own one with odds of at most exp(epsilon): both have the same
    probability for the opposite value, by symmetry. An answer of a category report is an end if it supports one of two
    categories and not the other.
    """

    def __init__(self, kind: Any, n_people: int, rng: np.random.Generator, epsilon: float | None) -> None:
        self._high = rng.integers(2, size=n_people).astype(np.bool_)
        self._of_categories = isinstance(kind, CategoryReport)
        n_values = int(kind.n_categories if self._of_categories else getattr(kind, "n_levels", 2))
        self.event = RandomizedResponse(kind.epsilon if epsilon is None else epsilon, n_values)
        self._ends = (0, 1) if self._of_categories else (0, n_values - 1)
        # values beyond their range are clipped to its ends
        self.given: Any = self._high.astype(np.int64) if self._of_categories else np.where(self._high, _FAR, -_FAR)

    def measure(self, output: Any, mechanism: Any, group: GroupSamples) -> None:
        low, high = self._answers_of_the_ends(output, mechanism)
        right, ends = (self._high & high) | (~self._high & low), low | high
        group.choices("answer", self.event.epsilon).add(int(right.sum()), int(ends.sum()))
        # answers that are no end are left out here too: how many there are decides when the audit stops
        for answer, present in zip(high[ends].tolist(), self._high[ends].tolist(), strict=True):
            group.samples.add(float(answer), present)
        group.moved_event = RandomizedResponse(self.event.epsilon, 2)

    def _answers_of_the_ends(self, output: Any, kind: Any) -> tuple[BoolArray, BoolArray]:
        """Return for every person whether the answer is the lower end, and whether it is the upper one."""
        if self._of_categories:
            first, second = (kind.supports(output, end) for end in self._ends)
            return first & ~second, second & ~first
        answers = np.asarray(output)
        if answers.ndim != 1:
            raise Unsupported(f"reports of {type(kind).__name__} cannot be measured: say in ReportMove what they show.")
        low, high = (answers.astype(np.int64) == end for end in self._ends)
        return low, high
