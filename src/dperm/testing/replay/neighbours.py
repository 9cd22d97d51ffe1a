"""Search for neighbouring tables on which recorded queries change as much as their sensitivity allows.

One person's record is planted in the recorded table and replaced by another in the neighbour. Values far outside every
declared range are clipped to its ends, so corners reach the ends without knowing them. Extreme pairs come first; then
the replacement is changed a coordinate at a time, keeping what brings the queries closer to their
sensitivities, those that are exercised enough left aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dperm.types import FloatArray

__all__ = ["PersonRecord", "Space", "climb", "extreme_pairs"]

#: a record beyond any declared range, in units of the table's largest value
_FAR = 1e6
#: a query that moves by this share of its sensitivity is exercised enough
_ENOUGH = 0.95


@dataclass(frozen=True)
class PersonRecord:
    """One person's row and target."""

    row: FloatArray
    target: Any

    def planted(self, X: Any, y: Any, person: int) -> tuple[Any, Any]:
        """Return the table with this record in the place of ``person``."""
        X, y = X.copy(), y.copy()
        X[person], y[person] = self.row, self.target
        return X, y


@dataclass(frozen=True)
class Space:
    """The records that may replace a person: extreme values of every column and of the target, and usual targets."""

    far: float
    n_columns: int
    targets: tuple[Any, ...]
    usual: tuple[Any, ...] = ()

    @classmethod
    def of(cls, X: Any, y: Any) -> Space:
        """Return extreme values for a table; labels are those that occur, numbers go far beyond them."""
        far = _FAR * (1.0 + float(np.abs(X).max(initial=0.0)))
        labels = np.unique(y)
        if np.issubdtype(np.asarray(y).dtype, np.floating) and len(labels) > 10:
            reach = _FAR * (1.0 + float(np.abs(y).max()))
            # a query may be largest at a released number somewhere inside, such as a centre
            inside = tuple(np.quantile(y, np.linspace(0.05, 0.95, 10)).tolist())
            return cls(far, X.shape[1], (-reach, reach, float(np.median(y))), inside)
        return cls(far, X.shape[1], tuple(labels))

    def corner(self, rng: Any) -> FloatArray:
        """Return a random corner."""
        signs: FloatArray = np.where(rng.random(self.n_columns) < 0.5, -self.far, self.far)
        return signs


def extreme_pairs(space: Space, rng: Any, n_starts: int) -> Iterator[tuple[PersonRecord, list[PersonRecord]]]:
    """Yield records to plant, each with its replacements: opposite, equal, turned and central rows, every target."""
    centre = np.zeros(space.n_columns)
    for start in range(n_starts):
        corner = space.corner(rng) if start else np.full(space.n_columns, space.far)
        turned = corner.copy()
        turned[: (space.n_columns + 1) // 2] *= -1.0
        first = space.targets[start % len(space.targets)]
        others = [one for one in space.targets if one != first] or [first]
        rows = [-corner, corner, centre, turned, 1e-6 * space.corner(rng)]
        swapped = [PersonRecord(row, target) for row in rows for target in others[:2]]
        yield PersonRecord(corner, first), [PersonRecord(-corner, first), *swapped]


def climb(
    space: Space,
    rng: Any,
    best: PersonRecord,
    ratios: Callable[[PersonRecord], dict[str, float]],
    n_tries: int,
) -> None:
    """Change one coordinate of a replacement at a time; keep a change that raises the sum of the queries' ratios.

    Each ratio counts up to ``_ENOUGH`` only: a query that is exercised enough does not outweigh the others.
    """

    def reached(found: dict[str, float]) -> float:
        return sum(min(ratio, _ENOUGH) for ratio in found.values())

    score = reached(ratios(best))
    for _ in range(n_tries):
        row, target = best.row.copy(), best.target
        place = int(rng.integers(space.n_columns + 1))
        if place == space.n_columns:
            values = space.targets + space.usual
            target = values[int(rng.integers(len(values)))]
        else:
            row[place] = (-space.far, 0.0, space.far)[int(rng.integers(3))]
        proposed = PersonRecord(row, target)
        found = reached(ratios(proposed))
        if found > score:
            best, score = proposed, found
