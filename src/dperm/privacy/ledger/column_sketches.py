"""Sketches of columns: which columns of two tables hold the same numbers, whatever the order of rows and columns.

Only columns with many different values count. A column of zeros and ones has the same numbers as many others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["SIZE", "ColumnSketch", "CommonColumns", "common_columns"]

#: most columns in a sketch; of a wider table those with the smallest tags, which are a random sample
SIZE = 64
#: fewest different values other than zero: two tables of 50 people with 16 equally common values have the same numbers
#: of each with a probability of about (4 pi 50)^(-15/2) 4^16, one in 10^11
_FEWEST_VALUES = 16
#: multiplies the number of rows, so that columns of tables of different lengths differ; any odd number does
_ROWS = np.uint64(0x9E3779B97F4A7C15)

Tags = NDArray[np.uint64]


@dataclass(frozen=True)
class ColumnSketch:
    """The smallest different tags of a table's columns with many values, in order."""

    tags: Tags = field(default_factory=lambda: np.empty(0, np.uint64))

    @classmethod
    def of_sums(cls, n_rows: int, sums: Tags, buckets: Tags) -> ColumnSketch:
        """Return the sketch from the sums of columns and the buckets that their values fall into, 64 bits each.

        Values in 16 buckets are 16 different ones at least.
        """
        filled = np.unpackbits(buckets.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1)
        telling = sums[filled >= _FEWEST_VALUES]
        with np.errstate(over="ignore"):  # modulo 2^64
            return cls(np.unique(telling + np.uint64(n_rows) * _ROWS)[:SIZE])


@dataclass(frozen=True)
class CommonColumns:
    """How many columns of one table hold the same numbers as columns of another.

    Attributes
    ----------
    common, of_these, of_those
        Columns in common, and columns with many values of both tables, as far as the sketches have them.
    """

    common: int
    of_these: int
    of_those: int

    @property
    def share(self) -> float:
        """The larger share of either table's columns."""
        return self.common / min(self.of_these, self.of_those)

    def sentence(self, given: str, known: str) -> str:
        """Say it, without full stop."""
        many = "the sampled columns" if self.of_these == SIZE else "the columns with many values"
        return (
            f"{self.common} of {self.of_these} of {many} of the data given as {given!r} hold the same numbers as "
            f"columns of {known!r}"
        )


def common_columns(these: ColumnSketch, those: ColumnSketch) -> CommonColumns | None:
    """Return how many columns two tables have in common; None if they have none.

    Below the smaller of the largest tags both sketches are complete.
    """
    end = min((one.tags[-1] for one in (these, those) if len(one.tags) == SIZE), default=np.uint64(2**64 - 1))
    first, second = (one.tags[one.tags <= end] for one in (these, those))
    common = len(np.intersect1d(first, second, assume_unique=True))
    return CommonColumns(common, len(first), len(second)) if common else None
