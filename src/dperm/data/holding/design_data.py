"""One block of scaled rows with their targets: the private data on which the parts of queries are computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.score_cache import ScoreCache
from dperm.errors import InvalidData
from dperm.types import FloatArray

__all__ = ["DesignData"]


@dataclass(frozen=True)
class DesignData:
    """Scaled rows and their targets, and what is kept about them between queries.

    ``first`` is the number of the first row in the whole table.
    """

    design: DesignMatrix = field(repr=False)
    target: FloatArray = field(repr=False)
    target_low: float = 0.0
    target_high: float = 1.0
    first: int = 0
    cache: ScoreCache = field(default_factory=ScoreCache, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if np.isnan(self.target).any():  # infinite values are clipped, NaN cannot be
            raise InvalidData("the target contains NaN: remove those rows.")

    @property
    def only_block(self) -> DesignData:
        """These data: they are one block in this process."""
        return self

    def parts(self, query: Any) -> Iterator[FloatArray]:
        """Yield the one part of a query on these data, where they are all data."""
        yield query.part(self)

    @property
    def n_rows(self) -> int:
        """Number of rows that contribute."""
        return self.design.n_rows

    def strips(self) -> Iterator[tuple[slice, DesignMatrix, FloatArray]]:
        """Yield few rows at a time with their targets: two passes over a strip read the memory once."""
        for rows, design in self.design.strips():
            yield rows, design, self.target[rows]

    def people(self, rows: Any) -> DesignData:
        """Return the data of some people, without what is kept about all."""
        return replace(self, design=self.design.take(rows), target=self.target[rows])

    @property
    def facts(self) -> Facts:
        """Public facts of the whole table."""
        return Facts.of_design(self.design.shape, self.target_low, self.target_high)
