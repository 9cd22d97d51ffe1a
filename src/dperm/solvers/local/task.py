"""Tasks: the public description of a collection, the reports that people send, and the counts that a collector keeps.

Proof: ``task.proof.md``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dperm.errors import InvalidInput
from dperm.privacy.local.few_levels import FewLevels
from dperm.privacy.local.one_bit import LATTICE, OneBit, uniform32
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local.sketch import Sketch
from dperm.types import FloatArray, IntArray
from dperm.validation import whole

__all__ = ["Counts", "Reports", "Task"]

FORMAT = "dperm local task 1"

_CHUNK = 1 << 18  # people at a time, to bound memory


@dataclass(frozen=True)
class Reports:
    """Reports of people: the index of a statistic, drawn without looking at the record, and one bit or level.

    ``secure`` is False if a seeded source made them; such reports carry no guarantee.
    """

    index: IntArray
    bit: NDArray[Any]
    secure: bool = True


@dataclass(frozen=True)
class Counts:
    """Number of people who answered each statistic, and how many of them with 1; sufficient for every estimate.

    With levels, ``ones`` has a column for every level above the lowest. ``a + b`` merges the counts of two collectors
    for the same task. ``secure`` is False if any report came from a seeded source.
    """

    task: str
    n: IntArray = field(repr=False)
    ones: IntArray = field(repr=False)
    secure: bool = True

    def __post_init__(self) -> None:
        above = self.ones.sum(axis=1) if self.ones.ndim == 2 else self.ones
        if self.n.ndim != 1 or self.n.shape != above.shape or (self.ones < 0).any() or (above > self.n).any():
            raise InvalidInput("counts must have, for every statistic, at most as many ones as reports.")

    @property
    def by_answer(self) -> IntArray:
        """One row per statistic: how many people sent 0, 1, ..."""
        above = self.ones.reshape(len(self.n), -1)
        return np.column_stack([self.n - above.sum(axis=1), above])

    def __add__(self, other: Counts) -> Counts:
        if not isinstance(other, Counts):
            return NotImplemented
        if self.task != other.task or self.by_answer.shape != other.by_answer.shape:
            raise InvalidInput("counts of two different tasks cannot be merged.")
        return Counts(self.task, self.n + other.n, self.ones + other.ones, self.secure and other.secure)

    @property
    def n_people(self) -> int:
        """Number of reports."""
        return int(self.n.sum())

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"task": self.task, "n": self.n.tolist(), "ones": self.ones.tolist(), "secure": self.secure}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Counts:
        """Inverse of :meth:`to_dict`."""
        try:
            task, secure = data["task"], data["secure"]
            n, ones = (np.asarray(data[part]) for part in ("n", "ones"))
        except (KeyError, TypeError, ValueError):
            raise InvalidInput(
                "this is not a description of counts: an entry is missing or has the wrong type."
            ) from None
        integers = all(part.dtype.kind == "i" for part in (n, ones)) and n.ndim == 1 and ones.ndim in (1, 2)
        if not integers or not isinstance(task, str) or not isinstance(secure, bool):
            raise InvalidInput(
                "counts must be whole numbers, with the digest of their task and whether they are secure."
            )
        return cls(task, n.astype(np.int64), ones.astype(np.int64), secure)


@dataclass(frozen=True)
class Task:
    """A collection: which statistics, how often each, and the epsilon of the one report that a person sends.

    Guarantee
    ---------
    Released, to everyone: the index of a statistic and one bit per person. The index does not depend on the record; the
    bit is epsilon-DP for the person (``privacy/local/one_bit.proof.md``), whatever the sketch computes. Assumes that a
    person reports once per task. Proof: ``task.proof.md``.

    Parameters
    ----------
    name : str
        Name of the collection.
    epsilon : float
        Epsilon of a report, between 0.001 and 16.
    sketch : Sketch
        The statistics.
    version : int
        Raise it when anything else changes, or when the same people are asked again.
    inputs : dict, optional
        Plain data that describe how a record is computed from a person's data (bounds, names, labels); public, part of
        the schema and its digest, so that counts of reports made in another way are recognised.
    n_levels : int
        2 for one bit, or 3 to 16 for one of that many levels, which has less noise once epsilon exceeds 1.
    window : str, optional
        Public name of the time in which people report, such as a week; another window is another task.
    """

    name: str
    epsilon: float
    sketch: Sketch
    version: int = 1
    inputs: dict[str, Any] | None = None
    n_levels: int = 2
    window: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", self.bit.epsilon)
        object.__setattr__(self, "version", whole("version", self.version))
        if self.window is not None and (not isinstance(self.window, str) or not self.window):
            raise InvalidInput(f"window must be None or a non-empty string, not {self.window!r}.")
        weights = self.sketch.weights
        if not (np.isfinite(weights).all() and (weights > 0.0).all()):
            raise InvalidInput("every statistic must be drawn with a positive, finite share.")

    @cached_property
    def bit(self) -> OneBit | FewLevels:
        """The mechanism of every report."""
        return OneBit(self.epsilon) if self.n_levels == 2 else FewLevels(self.epsilon, self.n_levels)

    @cached_property
    def thresholds(self) -> IntArray:
        """Upper ends, out of 2^32, of the random words that select each group of statistics."""
        ends = np.cumsum(self.sketch.weights)
        upper: IntArray = np.floor(ends / ends[-1] * LATTICE).astype(np.int64)
        upper[-1] = LATTICE
        if (np.diff(upper, prepend=0) < 1).any():
            raise InvalidInput("a statistic would be drawn less than once in 2^32 reports: give it a larger share.")
        return upper

    def draw(self, n: int, source: RandomSource) -> IntArray:
        """Draw the statistics that ``n`` people report on, without their records."""
        group = np.searchsorted(self.thresholds, uniform32(n, source), side="right")
        sizes = self.sketch.sizes
        starts = np.cumsum(sizes) - sizes
        inside = uniform32(n, source).astype(np.uint64) * sizes[group].astype(np.uint64) >> np.uint64(32)
        return starts[group] + inside.astype(np.int64)

    def reports(self, records: ArrayLike, source: RandomSource, index: ArrayLike | None = None) -> Reports:
        """Return the report of every person.

        Parameters
        ----------
        records : array_like of shape (n, n_columns)
            One private record per person.
        source : RandomSource
            Where the randomness comes from.
        index : array_like of shape (n,), optional
            Statistics drawn beforehand; they must not depend on the records.
        """
        checked = self.sketch.records(records)
        drawn = self.draw(len(checked), source) if index is None else self._valid(index)
        bits = np.empty(len(checked), self._answer_type)
        for start in range(0, len(checked), _CHUNK):
            part = slice(start, start + _CHUNK)
            asked = drawn[part]
            values = self.sketch.values(checked[part], asked)
            bits[part] = self.bit.report(values, source, self.sketch.low[asked], self.sketch.high[asked])
        return Reports(drawn, bits, source.secure)

    def count(self, reports: Reports) -> Counts:
        """Count reports per statistic and answer."""
        index, bit = self._valid(reports.index), np.asarray(reports.bit)
        if bit.shape != index.shape or bit.dtype != self._answer_type or (bit.size and bit.max() >= self.n_levels):
            raise InvalidInput("a report must have one bit, or one of the levels, for its statistic.")
        size = self.sketch.size
        cells = np.bincount(index * self.n_levels + bit, minlength=size * self.n_levels).reshape(size, -1)
        n = np.bincount(index, minlength=size)
        return Counts(self.digest, n, cells[:, 1] if self.n_levels == 2 else cells[:, 1:], reports.secure)

    @property
    def _answer_type(self) -> type[np.generic]:
        return np.bool_ if self.n_levels == 2 else np.uint8

    def collect(self, records: ArrayLike, source: RandomSource) -> Counts:
        """Simulate a whole collection: every person reports, and the reports are counted."""
        checked, total = self.sketch.records(records), self.no_counts()
        for start in range(0, len(checked), _CHUNK):
            total += self.count(self.reports(checked[start : start + _CHUNK], source))
        return total

    def no_counts(self) -> Counts:
        """Return the counts before anybody reported."""
        shape = (self.sketch.size,) if self.n_levels == 2 else (self.sketch.size, self.n_levels - 1)
        return Counts(self.digest, np.zeros(self.sketch.size, np.int64), np.zeros(shape, np.int64))

    def means(self, counts: Counts) -> tuple[FloatArray, FloatArray]:
        """Return an unbiased mean of every statistic and its variance; the midpoint and infinity where nobody answered.

        The variance is that of a mean over people drawn at random, estimated with one report added at each end.
        """
        total, squares = self._sums(counts)
        low, high = self.sketch.low, self.sketch.high
        half, n = (high - low) / 2.0, np.maximum(counts.n, 1)
        spread = (squares + 2.0 * self.bit.gain**2) / (counts.n + 2.0) - (total / (counts.n + 2.0)) ** 2
        return low + half * (total / n + 1.0), np.where(counts.n > 0, half**2 * spread / n, np.inf)

    def check(self, counts: Counts) -> None:
        """Refuse counts of another task, or without one cell for every answer to every statistic."""
        if counts.task != self.digest:
            raise InvalidInput("these counts belong to another task or to another version of it.")
        if counts.by_answer.shape != (self.sketch.size, self.n_levels):
            raise InvalidInput(
                f"these counts are damaged: the task has {self.sketch.size} statistics with {self.n_levels} answers "
                f"each, the counts have {len(counts.n)} with {counts.by_answer.shape[1]}."
            )

    def _sums(self, counts: Counts) -> tuple[FloatArray, FloatArray]:
        """Return the sums of all decoded answers, scaled to ranges of -1 to 1, and of their squares."""
        self.check(counts)
        return counts.by_answer @ self.bit.decoded, counts.by_answer @ self.bit.decoded**2

    @cached_property
    def probabilities(self) -> FloatArray:
        """Probability with which every statistic is drawn."""
        sizes = self.sketch.sizes
        return np.repeat(np.diff(self.thresholds, prepend=0) / LATTICE / sizes, sizes)

    def scaled_sums(self, counts: Counts) -> tuple[FloatArray, FloatArray]:
        """Return an unbiased mean of every statistic with a range of -c to c, and a bound on its variance.

        Decoded answers are divided by the expected number of people who drew the statistic, not by the actual number
        (Horvitz and Thompson 1952), which is unbiased even where few people or nobody answered.
        """
        total, _ = self._sums(counts)
        if not np.array_equal(self.sketch.low, -self.sketch.high):
            raise InvalidInput("scaled sums need statistics with symmetric ranges.")
        expected = np.maximum(counts.n_people, 1) * self.probabilities
        return self.sketch.high * total / expected, self.sketch.high**2 * self.bit.mean_square / expected

    def _valid(self, index: ArrayLike) -> IntArray:
        given = np.asarray(index)
        if given.ndim != 1 or (given.size and not np.issubdtype(given.dtype, np.integer)):
            raise InvalidInput("the indices of statistics must be whole numbers, one per report.")
        if given.size and (given.min() < 0 or given.max() >= self.sketch.size):
            raise InvalidInput(f"a report names a statistic outside 0 to {self.sketch.size - 1}.")
        return given.astype(np.int64)

    # ---------------------------------------------------------------------------------- the schema
    def schema(self) -> dict[str, Any]:
        """Return the task as plain data for JSON, lattice numbers included, so that no client has to compute them."""
        return {
            "format": FORMAT,
            "task": self.name,
            "version": self.version,
            "epsilon": self.epsilon,
            **self._lattice,
            "thresholds": self.thresholds.tolist(),
            "sketch": self.sketch.to_dict(),
            **({} if self.inputs is None else {"inputs": self.inputs}),
            **({} if self.window is None else {"window": self.window}),
        }

    @property
    def _lattice(self) -> dict[str, Any]:
        """The integer parameters of the mechanism, as the schema states them."""
        return {"floor": self.bit.floor} if isinstance(self.bit, OneBit) else {"levels": self.bit.to_dict()}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the schema; it identifies the task in counts and reports."""
        text = json.dumps(self.schema(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def from_schema(cls, schema: dict[str, Any]) -> Task:
        """Inverse of :meth:`schema`; refuses a schema whose lattice numbers do not match its epsilon and sketch."""
        if not isinstance(schema, dict) or schema.get("format") != FORMAT:
            raise InvalidInput("this is not the schema of a local task in a version that dperm can read.")
        try:
            sketch, inputs = Sketch.from_dict(schema["sketch"]), schema.get("inputs")
            n_levels = len(schema["levels"]["rows"][0]) if "levels" in schema else 2
            task = cls(
                schema["task"], schema["epsilon"], sketch, schema["version"], inputs, n_levels, schema.get("window")
            )
            same = all(schema[key] == value for key, value in task._lattice.items())
            same = same and task.thresholds.tolist() == list(schema["thresholds"])
        except (KeyError, TypeError, IndexError):
            raise InvalidInput(
                "this schema of a local task is damaged: an entry is missing or has the wrong type."
            ) from None
        if not same:
            raise InvalidInput("the lattice numbers of this schema do not match its epsilon and sketch.")
        return task
