"""Tags of rows, and what is collected of them: here, or in parts on the machines where the rows are.

The parts of a table are added; the sum is what one pass over the whole table collects. Machines that tag rows get the
keys in :class:`TagKeys`, which cannot open a sketch and do not make a fingerprint: the ledger's own key stays with it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dperm.privacy.ledger.cells import CellWords
from dperm.privacy.ledger.sketches import FEWEST_DIFFERENT, RowSketch
from dperm.types import AnyArray

__all__ = [
    "RowTags",
    "TableTags",
    "TagColumns",
    "TagKeys",
    "TagOrder",
    "TagTable",
    "bits",
    "column_hashes",
    "row_hashes",
    "tag_cipher",
    "tags_of",
]

_TAG = 16  # bytes of an AES block, and of a row's tag


def column_hashes() -> ModuleType:
    """Return the compiled hashes of columns, imported when a table is first looked at.

    They come with a compiler, whose import takes longer than all that a command needs which only reads a ledger.
    """
    from dperm.kernels import column_hashes

    return column_hashes


def row_hashes() -> ModuleType:
    """Return the compiled hashes of rows, imported late for the same reason."""
    from dperm.kernels import row_hashes

    return row_hashes


def bits(values: AnyArray) -> NDArray[np.uint64]:
    """Return the bits of doubles."""
    return np.ascontiguousarray(values, np.float64).view(np.uint64)


def tags_of(sums: NDArray[np.uint64], cipher: Any) -> bytes:
    """Return the tags of rows, 16 bytes each, from the sums of their cells."""
    halves = sums.astype("<u8").reshape(-1, 2, 2)  # a row's 32 bytes are two AES blocks: tag = E(E(first) xor second)
    first = np.frombuffer(_encrypted(cipher, halves[:, 0]), "<u8").reshape(-1, 2)
    return _encrypted(cipher, first ^ halves[:, 1])


def _encrypted(cipher: Any, blocks: NDArray[np.uint64]) -> bytes:
    encrypted: bytes = cipher.encryptor().update(np.ascontiguousarray(blocks).tobytes())
    return encrypted


def tag_cipher(key: bytes) -> Any:
    """Return the cipher that makes tags."""
    return Cipher(algorithms.AES(key), modes.ECB())


class RowTags:
    """What is collected of the tags of rows: their number, their sum, the smallest, and how many there are of each."""

    def __init__(self) -> None:
        self._n = 0
        self._total = 0
        self._smallest = RowSketch()
        self._kinds: Counter[int] | None = Counter()  # None once there are many

    def take(self, tags: bytes) -> None:
        """Take the tags of more rows."""
        self._n += len(tags) // _TAG
        parts = np.frombuffer(tags, "<u4").reshape(-1, 4).sum(axis=0, dtype=np.uint64)  # exact below 2^32 rows
        self._total += sum(int(part) << (32 * k) for k, part in enumerate(parts))
        short = np.frombuffer(tags, "<u8")[::2]
        self._smallest = self._smallest.with_rows(short)
        if self._few():
            kinds, counts = np.unique(short, return_counts=True)
            assert self._kinds is not None
            self._kinds.update(dict(zip(kinds.tolist(), counts.tolist(), strict=True)))

    def merge(self, other: RowTags) -> None:
        """Take what was collected elsewhere of other rows."""
        self._n += other._n
        self._total += other._total
        self._smallest = self._smallest.with_rows(other._smallest.tags)
        if other._kinds is None:
            self._kinds = None
        elif self._few():
            assert self._kinds is not None
            self._kinds.update(other._kinds)

    def _few(self) -> bool:
        """Whether there are few kinds of rows; once there are many, they are not counted any more."""
        if self._kinds is None or len(self._smallest.tags) >= FEWEST_DIFFERENT:
            self._kinds = None
            return False
        return True


# ------------------------------------------------------------------------------------------ where the rows are
@dataclass(frozen=True, eq=False)
class TagKeys:
    """Keys for tagging the rows of one table: of tags, of its columns and targets, of sums of columns, and of texts."""

    tags: bytes
    cells: NDArray[np.uint32]
    targets: NDArray[np.uint32] | None
    columns: int
    texts: bytes = b""


class TableTags:
    """What is collected of some rows of a table: with the target, without it, and by column."""

    def __init__(self, n_columns: int, key: int) -> None:
        self.rows, self.features = RowTags(), RowTags()
        self.columns = column_hashes().ColumnHashes(n_columns, key)

    def __add__(self, other: TableTags) -> TableTags:
        out = TableTags(len(self.columns.sums), int(self.columns.key))
        for one in (self, other):
            out.rows.merge(one.rows)
            out.features.merge(one.features)
            out.columns.sums += one.columns.sums  # modulo 2^64
            out.columns.buckets |= one.columns.buckets
        return out


@dataclass(frozen=True, eq=False)
class TagTable:
    """Collects the tags of rows of numbers, with their targets or without."""

    keys: TagKeys

    def __call__(self, rows: AnyArray, target: AnyArray | None = None) -> TableTags:
        out = TableTags(rows.shape[1], self.keys.columns)
        words, cipher = bits(rows), tag_cipher(self.keys.tags)
        column_hashes().add_dense(words, out.columns)
        sums = row_hashes().dense_sums(words, self.keys.cells)
        if target is not None:
            out.features.take(tags_of(sums, cipher))
            sums += self._of_target(target)
        out.rows.take(tags_of(sums, cipher))
        return out

    def _of_target(self, target: AnyArray) -> NDArray[np.uint64]:
        assert self.keys.targets is not None
        found: NDArray[np.uint64] = row_hashes().dense_sums(bits(target.reshape(len(target), -1)), self.keys.targets)
        return found

    def in_order(self, rows: AnyArray, target: AnyArray | None = None) -> TagOrder:
        """Return the tags in the order of the rows, of which there are few kinds."""
        sums = row_hashes().dense_sums(bits(rows), self.keys.cells)
        if target is not None:
            sums += self._of_target(target)
        return TagOrder.of(tags_of(sums, tag_cipher(self.keys.tags)))


@dataclass(frozen=True, eq=False)
class TagColumns:
    """Collects the tags of rows of raw tables: chunks of named columns of doubles or texts."""

    keys: TagKeys
    names: tuple[str, ...]

    def __call__(self, chunks: Iterable[Mapping[str, AnyArray | list[Any]]]) -> TableTags:
        out, cells = TableTags(len(self.names), self.keys.columns), CellWords(self.keys.texts)
        for sums in self._sums(chunks, cells, out.columns):
            out.rows.take(tags_of(sums, tag_cipher(self.keys.tags)))
        return out

    def in_order(self, chunks: Iterable[Mapping[str, AnyArray | list[Any]]]) -> TagOrder:
        """Return the tags in the order of the rows, of which there are few kinds."""
        cells, cipher = CellWords(self.keys.texts), tag_cipher(self.keys.tags)
        return TagOrder.of(b"".join(tags_of(sums, cipher) for sums in self._sums(chunks, cells, None)))

    def _sums(self, chunks: Any, cells: CellWords, columns: Any) -> Iterable[NDArray[np.uint64]]:
        for chunk in chunks:
            words = np.ascontiguousarray(np.column_stack([cells.of(chunk[name]) for name in self.names]))
            if columns is not None:
                column_hashes().add_dense(words, columns)
            yield row_hashes().dense_sums(words, self.keys.cells)


@dataclass(frozen=True, eq=False)
class TagOrder:
    """The tags of rows in their order, one byte each: for tables with few kinds of rows."""

    parts: tuple[tuple[NDArray[np.void], NDArray[np.uint8]], ...]

    @classmethod
    def of(cls, tags: bytes) -> TagOrder:
        """Number the kinds of rows of one part."""
        kinds, codes = np.unique(np.frombuffer(tags, f"V{_TAG}"), return_inverse=True)
        return cls(((kinds, codes.astype(np.uint8)),))

    def __add__(self, other: TagOrder) -> TagOrder:
        return TagOrder(self.parts + other.parts)

    def digest(self) -> str:
        """Return the digest of all tags in their order."""
        code = hashlib.sha256()
        for kinds, codes in self.parts:
            code.update(kinds[codes].tobytes())
        return code.hexdigest()
