"""Sketches of tables: how many rows two tables share, estimated from the smallest row tags of each.

A row tag is a pseudo-random number that depends on the values of a row and on a secret key (``fingerprints``), so the
rows with the smallest tags are a random sample of the different rows of a table, and two tables that share rows have
the same rows in their samples. How often a row is there does not count: one common kind of row may be most of a table
and is in the sample by chance only. A sketch is sealed (encrypted with a key outside the ledger) before it is stored.
"""

from __future__ import annotations

import base64
import math
import os
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from dperm.privacy.ledger.column_sketches import SIZE as N_COLUMNS
from dperm.privacy.ledger.column_sketches import ColumnSketch, CommonColumns, common_columns

__all__ = [
    "FEWEST_DIFFERENT",
    "FEWEST_ROWS",
    "VERSION",
    "Likeness",
    "RowSketch",
    "Share",
    "TableSketch",
    "compared",
    "likeness",
]

#: of tags, fingerprints and sketches: those of another version recognise nothing
VERSION = "2"
#: tags in a sketch: the standard error of a share is at most 0.5/sqrt(1024) = 1.6%
SIZE = 1024
#: a table with fewer different rows than this resembles any other with the same few kinds of rows
FEWEST_DIFFERENT = 32
#: a table of so many rows has tags too if all of them are different
FEWEST_ROWS = 16
#: fewest sampled rows from which a share is estimated: with fewer, its error exceeds 1/8
_FEWEST_SAMPLED = 16
#: Share of the different rows from which on the owner is told: a judgement, not a bound. Tables of other people with
#: few columns share some rows by chance, and a notice about most tables is read by nobody. But where a fifth of the
#: people may be in two tables, the owner should decide whether their guarantees add.
_NOTABLE = 0.2
#: probability with which an estimate's limits miss the share
_MISS = 0.05
_NONCE = 12
_LABEL = b"dperm sketch " + VERSION.encode("ascii")
_NO_KINDS = bytes(32)
_STORED = np.dtype([("n_tags", "<u4"), ("tags", "<u8", SIZE), ("kinds", "V32")])
_STORED_COLUMNS = np.dtype([("n_tags", "<u4"), ("tags", "<u8", N_COLUMNS)])

Tags = NDArray[np.uint64]


@dataclass(frozen=True)
class RowSketch:
    """The smallest different tags among a table's rows, in order.

    Attributes
    ----------
    kinds
        A keyed digest of how many rows there are of each kind, if there are few kinds: the tags alone would then be
        those of many tables.
    """

    tags: Tags = field(default_factory=lambda: np.empty(0, np.uint64))
    kinds: bytes = _NO_KINDS

    @property
    def full(self) -> bool:
        """Whether there may be rows that are not in the sketch."""
        return len(self.tags) == SIZE

    def with_rows(self, tags: Tags) -> RowSketch:
        """Return the sketch of this table and more rows."""
        if self.full:
            tags = tags[tags <= self.tags[-1]]
        return RowSketch(np.unique(np.concatenate([self.tags, tags]))[:SIZE], self.kinds)

    def same_kinds(self, other: RowSketch) -> bool:
        """Whether both tables have few kinds of rows, and as many rows of each."""
        return self.kinds == other.kinds != _NO_KINDS


@dataclass(frozen=True)
class TableSketch:
    """The sketches of a table's rows, of its rows without the target, and of its columns.

    Those without the target are empty where the target is not known.
    """

    rows: RowSketch
    features: RowSketch
    columns: ColumnSketch = field(default_factory=ColumnSketch)

    def sealed(self, key: bytes) -> str:
        """Return the sketch encrypted, always of the same length; without the key nothing can be read from it."""
        packed = np.zeros(2, _STORED)
        for place, part in zip(packed, (self.rows, self.features), strict=True):
            place["n_tags"], place["kinds"] = len(part.tags), part.kinds
            place["tags"][: len(part.tags)] = part.tags
        columns = np.zeros((), _STORED_COLUMNS)
        columns["n_tags"] = len(self.columns.tags)
        columns["tags"][: len(self.columns.tags)] = self.columns.tags
        nonce, content = os.urandom(_NONCE), packed.tobytes() + columns.tobytes()
        return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, content, _LABEL)).decode("ascii")

    @classmethod
    def opened(cls, sealed: str, key: bytes) -> TableSketch | None:
        """Read a sealed sketch; None if it was sealed with another key, by another user."""
        content = base64.b64decode(sealed)
        try:
            packed = AESGCM(key).decrypt(content[:_NONCE], content[_NONCE:], _LABEL)
        except InvalidTag:
            return None
        rows, features = (
            RowSketch(one["tags"][: one["n_tags"]].astype(np.uint64), one["kinds"].tobytes())
            for one in np.frombuffer(packed, _STORED, 2)
        )
        columns = np.frombuffer(packed, _STORED_COLUMNS, 1, 2 * _STORED.itemsize)[0]
        return cls(rows, features, ColumnSketch(columns["tags"][: columns["n_tags"]].astype(np.uint64)))


@dataclass(frozen=True)
class Share:
    """How many of some different rows are also in another table.

    Attributes
    ----------
    common, drawn
        Rows in common among those that were looked at.
    complete
        Whether these are all different rows of both tables, and no sample.
    """

    common: int
    drawn: int
    complete: bool

    @property
    def value(self) -> float:
        """The share, estimated unless complete."""
        return self.common / self.drawn

    @property
    def limits(self) -> tuple[float, float]:
        """Clopper-Pearson limits of the share, which miss it with probability 5% at most; the share if complete."""
        from scipy.special import betaincinv

        if self.complete:
            return self.value, self.value
        k, n = self.common, self.drawn
        low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, _MISS / 2.0))
        return low, 1.0 if k == n else float(betaincinv(k + 1, n - k, 1.0 - _MISS / 2.0))

    def __str__(self) -> str:
        low, high = self.limits
        if self.common == self.drawn:
            return "all" if self.complete else f"at least {_percent(low)}"
        about = f"about {_percent(self.value)}"
        return about if self.complete else f"{about} ({_percent(low)} to {math.ceil(1000.0 * high) / 10.0:.1f}%)"


def _percent(share: float) -> str:
    """Rounded down, so that 100% means all."""
    return f"{math.floor(1000.0 * share + 1e-9) / 10.0:.1f}%"  # 1e-9: 0.97 is stored as a little less


@dataclass(frozen=True)
class Likeness:
    """How alike two tables are.

    Attributes
    ----------
    of_these, of_those
        Share of the different rows of the first and of the second table that are in the other one; None if the tables
        have few kinds of rows, and the same number of each.
    with_target
        Whether the target was compared too.
    columns
        The columns in common, where rows are not alike; None otherwise.
    """

    of_these: Share | None = None
    of_those: Share | None = None
    with_target: bool = True
    columns: CommonColumns | None = None

    @property
    def share(self) -> float:
        """The larger share."""
        if self.columns is not None:
            return self.columns.share
        return max((one.value for one in (self.of_these, self.of_those) if one is not None), default=1.0)

    @property
    def notable(self) -> bool:
        """Whether the owner should know."""
        return self.share >= _NOTABLE


def compared(these: TableSketch, those: TableSketch) -> Likeness | None:
    """Return how alike two tables are if the owner should know: by whole rows, else without the target, else by column.

    Rows say more: they also show a part of a table. Columns show other columns, or another order of them.
    """
    for one, other, with_target in ((these.rows, those.rows, True), (these.features, those.features, False)):
        if one.same_kinds(other):
            return Likeness(with_target=with_target)
        found = likeness(one, other, with_target)
        if found is not None and found.notable:
            return found
    shared = common_columns(these.columns, those.columns)
    by_column = None if shared is None else Likeness(with_target=False, columns=shared)
    return by_column if by_column is not None and by_column.notable else None


def likeness(these: RowSketch, those: RowSketch, with_target: bool = True) -> Likeness | None:
    """Estimate how many different rows two tables share; None if the sketches do not tell.

    Below the smaller of the two sketches' largest tags both samples are complete: the rows there are a random sample of
    the different rows of both tables together.
    """
    end = min((one.tags[-1] for one in (these, those) if one.full), default=np.uint64(2**64 - 1))
    complete = not (these.full or those.full)
    drawn = [int((one.tags <= end).sum()) for one in (these, those)]
    if min(drawn) < (1 if complete else _FEWEST_SAMPLED):
        return None
    common = int((np.intersect1d(these.tags, those.tags, assume_unique=True) <= end).sum())
    of_these, of_those = (Share(common, n, complete) for n in drawn)
    return Likeness(of_these, of_those, with_target)
