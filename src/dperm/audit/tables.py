"""Tables for audits: what is public about the data, and pairs of neighbours that are likely to show a leak."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dperm.errors import InvalidInput
from dperm.types import AnyArray, FloatArray

__all__ = ["AuditTable", "PublicFacts", "TablePair", "candidate_pairs", "different_first"]

#: how far outside the declared range a record lies that clipping must stop
_OUTSIDE = 1000.0


@dataclass(frozen=True)
class AuditTable:
    """One made-up table; its name is a digest of its content."""

    X: FloatArray = field(repr=False, compare=False)
    y: AnyArray = field(repr=False, compare=False)
    name: str = ""

    def __post_init__(self) -> None:
        content = self.X.tobytes() + self.y.tobytes() + str(self.X.shape).encode()
        object.__setattr__(self, "name", hashlib.sha256(content).hexdigest()[:16])


@dataclass(frozen=True)
class TablePair:
    """Two neighbouring tables.

    Attributes
    ----------
    first, second : AuditTable
    changed : str
        What differs between them, in words.
    outside : bool
        Whether the record lies outside the declared range.
    change : int
        Number of the change; pairs with the same one differ in the other records.
    all_round : bool
        Whether sums of columns, and of their products with the target, both change as much as they may.
    """

    first: AuditTable
    second: AuditTable
    changed: str
    outside: bool = False
    change: int = 0
    all_round: bool = False

    def turned(self) -> TablePair:
        """Return the pair with its tables exchanged."""
        return replace(self, first=self.second, second=self.first)


@dataclass(frozen=True)
class PublicFacts:
    """What is public about the data of the audited function.

    Attributes
    ----------
    n_rows, n_features : int
    feature_range : (float, float)
        Range of every column.
    classes : tuple, or None for a numerical target
    target_range : (float, float)
        Range of a numerical target.
    """

    n_rows: int = 8
    n_features: int = 2
    feature_range: tuple[float, float] = (-1.0, 1.0)
    classes: tuple[Any, ...] | None = (0, 1)
    target_range: tuple[float, float] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        if self.n_rows < 1:
            raise InvalidInput(f"--rows must be 1 or more, not {self.n_rows}.")
        if self.n_features < 1:
            raise InvalidInput(f"--features must be 1 or more, not {self.n_features}.")
        for option, (low, high) in (("--range", self.feature_range), ("--target-range", self.target_range)):
            if not (np.isfinite([low, high]).all() and low < high):
                raise InvalidInput(f"{option} needs two finite numbers, the smaller one first, not {low:g} {high:g}.")
        if self.classes is not None and len(set(self.classes)) < 2:
            raise InvalidInput("--classes needs two or more different labels, as in --classes 0,1.")

    @property
    def targets(self) -> tuple[Any, Any]:
        """The two targets that are farthest apart."""
        return self.target_range if self.classes is None else (self.classes[0], self.classes[-1])

    @property
    def centre(self) -> float:
        """A value that says little: 0 if it lies in the range."""
        low, high = self.feature_range
        return 0.0 if low <= 0.0 <= high else (low + high) / 2.0

    def table(self, X: Any, y: Any) -> AuditTable:
        """Return a table with the right types."""
        target = np.array(y, dtype=np.float64) if self.classes is None else np.array(y)
        return AuditTable(np.array(X, dtype=np.float64).reshape(len(target), self.n_features), target)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "rows": self.n_rows,
            "features": self.n_features,
            "feature_range": list(self.feature_range),
            "classes": None if self.classes is None else list(self.classes),
            "target_range": list(self.target_range) if self.classes is None else None,
        }


@dataclass(frozen=True)
class _Person:
    what: str
    x: FloatArray
    y: Any
    outside: bool = False
    all_round: bool = False


def candidate_pairs(facts: PublicFacts, neighbours: str, *, in_range: bool = False) -> list[TablePair]:
    """Return pairs of neighbours for a pilot, the most promising first; the same tables never come twice.

    Parameters
    ----------
    neighbours : str
        ``"add-remove"`` makes tables of ``n_rows`` and ``n_rows - 1`` rows; otherwise one row is replaced.
    in_range : bool
        Leave out records outside the declared range.
    """
    pairs: dict[tuple[str, str], TablePair] = {}
    others = list(_others(facts))
    for number, (one, two) in enumerate(_changes(facts)):
        for rest, rows, targets in others:
            if in_range and one.outside:
                continue
            first = facts.table([one.x, *rows], [one.y, *targets])
            if neighbours == "add-remove":
                if not len(rows):
                    continue
                second, changed = facts.table(rows, targets), f"{one.what} is added to {rest}"
            else:
                second, changed = facts.table([two.x, *rows], [two.y, *targets]), f"{one.what} becomes {two.what}"
                changed += f", among {rest}" if len(rows) else ""
            if first.name != second.name and (second.name, first.name) not in pairs:
                pair = TablePair(first, second, changed, one.outside, number, two.all_round)
                pairs.setdefault((first.name, second.name), pair)
    if not pairs:
        raise InvalidInput("an audit of add-remove neighbours needs --rows of 2 or more.")
    return list(pairs.values())


def different_first(pairs: Sequence[TablePair]) -> list[TablePair]:
    """Return the pairs in an order for an audit that can try few: one of each change, all-round changes first."""
    met: Counter[int] = Counter()
    places = []
    for pair in pairs:
        places.append((met[pair.change], not pair.all_round))
        met[pair.change] += 1
    return [pairs[k] for k in sorted(range(len(pairs)), key=places.__getitem__)]


def _others(facts: PublicFacts) -> Iterator[tuple[str, FloatArray, list[Any]]]:
    """Yield the records that do not change: quiet ones, which drown nothing, and loud ones."""
    n, p = facts.n_rows - 1, facts.n_features
    low, high = facts.feature_range
    labels = [facts.targets[i % 2] for i in range(n)] if facts.classes is None else _cycle(facts.classes, n)
    yield "records at the centre", np.full((n, p), facts.centre), labels
    if not n:
        return
    yield "copies of it", np.full((n, p), high), [facts.targets[1]] * (n - 1) + [facts.targets[0]]
    corners = np.where(np.arange(n)[:, None] + np.arange(p) & 1, high, low).astype(float)
    corners[:, 0] = facts.centre  # a record along the first column is orthogonal to these
    if p > 1:
        yield "records in other columns", corners, labels


def _cycle(values: tuple[Any, ...], n: int) -> list[Any]:
    return [values[i % len(values)] for i in range(n)]


def _changes(facts: PublicFacts) -> Iterator[tuple[_Person, _Person]]:
    """Yield two values of the record that changes."""
    low, high = facts.feature_range
    p, (y_low, y_high) = facts.n_features, facts.targets
    centre = np.full(p, facts.centre)
    up, down = np.full(p, high), np.full(p, low)
    single = centre.copy()
    single[0] = high
    turned = np.where(np.arange(p) % 2 == 0, high, low)
    far = np.full(p, facts.centre + _OUTSIDE * (high - facts.centre))
    other = "another label" if facts.classes is not None else "the other extreme target"
    top = "a record at the upper corner"
    yield _Person(top, up, y_high), _Person(f"one at the lower corner with {other}", down, y_low)
    yield _Person(top, up, y_high), _Person("one at the centre", centre, y_high)
    yield _Person("a record far outside the range", far, y_high, True), _Person("one at the centre", centre, y_high)
    yield _Person(top, up, y_high), _Person(f"{other} of it", up, y_low)
    yield _Person(top, up, y_high), _Person("one at the lower corner", down, y_high, all_round=True)
    if p > 1:
        yield _Person("a record along one column", single, y_high), _Person(f"{other} of it", single, y_low)
        yield _Person("a record along one column", single, y_high), _Person("one at the centre", centre, y_high)
        yield _Person("a record of mixed corners", turned, y_high), _Person(f"{other} of it", turned, y_low)
    if facts.classes is None:
        beyond = y_low + _OUTSIDE * (y_high - y_low)
        yield _Person("a target far outside its range", up, beyond, True), _Person("the largest target", up, y_high)
    yield _Person("a record far outside the range", far, y_high, True), _Person(f"{other} of it", far, y_low)
    yield _Person("a record at the centre", centre, y_high), _Person(f"{other} of it", centre, y_low)
