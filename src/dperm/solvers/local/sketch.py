"""The interface of sketches: which bounded statistics of a record people report on, and how often each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dperm.errors import InvalidData, InvalidInput
from dperm.types import FloatArray, IntArray

__all__ = ["SKETCHES", "Sketch", "nested_tuple"]


#: every kind of sketch by its name in a schema
SKETCHES: dict[str, type[Sketch]] = {}


@dataclass(frozen=True)
class Sketch(ABC):
    """Statistics numbered 0, 1, ...; each has a public range and maps a record to a number in it.

    Statistics come in groups. A group is drawn with probability proportional to its entry in ``weights``, then one of
    its statistics uniformly; ``sizes`` holds their numbers. All fields are public and stored in the schema.
    """

    #: the sketch's name in a schema
    kind: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        SKETCHES[cls.kind] = cls

    @property
    @abstractmethod
    def n_columns(self) -> int:
        """Length of a record."""

    @property
    @abstractmethod
    def sizes(self) -> IntArray:
        """Number of statistics of every group."""

    @property
    @abstractmethod
    def weights(self) -> FloatArray:
        """How often every group is drawn, relative to the others."""

    @property
    @abstractmethod
    def low(self) -> FloatArray:
        """Lower end of every statistic's range."""

    @property
    @abstractmethod
    def high(self) -> FloatArray:
        """Upper end of every statistic's range."""

    @abstractmethod
    def evaluate(self, records: NDArray[Any], index: IntArray) -> FloatArray:
        """Return every person's value of the statistic they drew; private. A report clips it to the range."""

    @property
    def size(self) -> int:
        """Number of statistics."""
        return int(self.sizes.sum())

    def records(self, given: Any) -> NDArray[Any]:
        """Check the shape and type of records, one row per person; later code converts them to doubles in chunks."""
        records = np.asarray(given)
        if records.ndim != 2 or records.shape[1] != self.n_columns:
            raise InvalidData(f"records must be an array with {self.n_columns} columns, one row per person.")
        if records.dtype.kind not in "biuf":
            raise InvalidData("records must hold numbers only.")
        return records

    def values(self, records: NDArray[Any], index: IntArray) -> FloatArray:
        """Return the values to report; NaN, which counts as the lower end, for a record that is not finite."""
        # two number types only, because kernels are compiled for each
        plain = records.view(np.uint8) if records.dtype == np.bool_ else np.asarray(records, np.float64)
        with np.errstate(all="ignore"):
            values = self.evaluate(np.ascontiguousarray(plain), index)
        finite = np.ones(len(plain), np.bool_)
        for column in plain.T if plain.dtype.kind == "f" else ():
            finite &= np.isfinite(column)
        return np.where(finite, values, np.nan)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"kind": self.kind, **{field.name: getattr(self, field.name) for field in fields(self)}}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Sketch:
        """Inverse of :meth:`to_dict`."""
        kind = data.get("kind") if isinstance(data, dict) else None
        if kind not in SKETCHES:
            raise InvalidInput(f"a sketch must be one of {', '.join(sorted(SKETCHES))}, not {kind!r}.")
        values = {key: nested_tuple(value) for key, value in data.items() if key != "kind"}
        try:
            return SKETCHES[kind](**values)
        except TypeError:
            raise InvalidInput(f"the description of a {kind} sketch has wrong or missing entries.") from None


def nested_tuple(value: Any) -> Any:
    """Return lists as tuples, at every depth, so that equal sketches are equal."""
    return (
        tuple(nested_tuple(inner) for inner in value)
        if isinstance(value, Sequence) and not isinstance(value, str)
        else value
    )
