"""Fingerprints by which an owner's ledger recognises data, in whatever container and order of rows they come.

Every row gets a tag, a pseudo-random function of its values; a table's fingerprint is made from the sum of its tags.
The values are those of doubles: dense or sparse, in any memory order, of any numeric type that holds them exactly, from
memory or read in blocks. All keys are derived from one that is kept outside the ledger: without it nobody can test
guesses of the data. Another user has another key and recognises nothing. ``fingerprints.proof.md`` has the proofs.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dperm.atomic_files import create_exclusively, user_folder
from dperm.errors import LedgerError
from dperm.privacy.ledger.cells import CellWords
from dperm.privacy.ledger.column_sketches import ColumnSketch
from dperm.privacy.ledger.row_tags import (
    RowTags,
    TableTags,
    TagColumns,
    TagKeys,
    TagOrder,
    TagTable,
    bits,
    column_hashes,
    row_hashes,
    tag_cipher,
    tags_of,
)
from dperm.privacy.ledger.sketches import FEWEST_DIFFERENT, FEWEST_ROWS, VERSION, RowSketch, TableSketch
from dperm.types import AnyArray

__all__ = ["KEY_FILE", "Fingerprint", "new_key", "opened_sketch", "ordered_digest", "user_key"]

KEY_FILE = "fingerprint.key"
_KEY_BYTES = 32
_CHUNK = 1 << 20  # cells converted at a time, so that a large array is not copied whole
_BLOCK = 16  # bytes of an AES block, and of a row's tag
#: tables of other people have the same numbers of rows of each kind with a probability of one in a million or less
_RECOGNISED_BITS = 20.0


def new_key() -> bytes:
    """Return a key that nobody knows."""
    return os.urandom(_KEY_BYTES)


def user_key() -> bytes:
    """Return this user's key, made at first use with mode 0600."""
    path = user_folder() / KEY_FILE
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            with create_exclusively(path) as draft:
                draft.write_text(new_key().hex(), encoding="ascii")
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except OSError as error:
        raise LedgerError(
            f"the fingerprint key {path} cannot be used ({error.strerror}): set DPERM_HOME to a folder you may write."
        ) from None
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise LedgerError(f"the fingerprint key {path} is damaged: restore it, or delete it to make a new one.")
    return key


class Fingerprint(str):
    """A table's fingerprint as text, together with its encrypted sketch, which copies and pickles keep.

    It has no key: :func:`opened_sketch` needs that of the ledger.

    Attributes
    ----------
    sealed
        The encrypted sketch, to be stored.
    """

    sealed: str

    def __new__(cls, text: str, sealed: str) -> Fingerprint:
        made = super().__new__(cls, text)
        made.sealed = sealed
        return made

    @classmethod
    def of_table(cls, X: Any, target: Any, key: bytes) -> Fingerprint:
        """Return the fingerprint of a table of numbers, with a target or without (None).

        Parameters
        ----------
        X
            An array, a scipy sparse array, or a table with ``shape`` and ``blocks()``. Columns are told apart by their
            position.
        """
        if getattr(X, "on_cluster", False):
            return _of_table_on_cluster(X, target, key)
        rows, features = RowSummary(key), RowSummary(key)
        keys, columns = rows.position_keys(int(X.shape[1])), rows.column_sums(int(X.shape[1]))
        ends = None if target is None else np.asarray(target, np.float64).reshape(len(target), -1)
        if ends is not None:
            ends_keys = rows.named_keys([f"target {k}" for k in range(ends.shape[1])])
        start = 0
        for sums in _sums_of_blocks(X, keys, columns):
            if ends is not None:
                features.add(sums)
                sums += row_hashes().dense_sums(bits(ends[start : start + len(sums)]), ends_keys)
            start += len(sums)
            rows.add(sums)
        form = f"{X.shape[1]} columns by position, {0 if ends is None else ends.shape[1]} targets"
        return rows.fingerprint(form, columns, (rows if ends is None else features).sketch())

    @classmethod
    def of_columns(cls, chunks: Iterable[Mapping[str, AnyArray | list[Any]]], key: bytes) -> Fingerprint:
        """Return the fingerprint of a raw table: chunks of named columns of doubles or texts, columns in any order."""
        if getattr(chunks, "on_cluster", False):
            return _of_columns_on_cluster(chunks, key)
        rows, cells, names = RowSummary(key), CellWords(_derived(key, "texts")), list[str]()
        keys, columns = np.empty((0, 0), np.uint32), rows.column_sums(0)
        for chunk in chunks:
            if sorted(chunk) != names:
                names = sorted(chunk)
                keys, columns = rows.named_keys([f"column {name}" for name in names]), rows.column_sums(len(names))
            words = np.ascontiguousarray(np.column_stack([cells.of(chunk[name]) for name in names]))
            column_hashes().add_dense(words, columns)
            rows.add(row_hashes().dense_sums(words, keys))
        return rows.fingerprint(f"{len(names)} columns by name", columns)

    def __reduce__(self) -> tuple[Any, ...]:
        return Fingerprint, (str(self), self.sealed)


def _of_table_on_cluster(X: Any, target: Any, key: bytes) -> Fingerprint:
    """Return the same fingerprint, with the rows tagged where they are; see ``DaskRows.summed_with``."""
    rows, features = RowSummary(key), RowSummary(key)
    n_targets = 0 if target is None else 1
    ends = rows.named_keys([f"target {k}" for k in range(n_targets)]) if n_targets else None
    tag = TagTable(rows.tag_keys(rows.position_keys(int(X.shape[1])), ends))
    found: TableTags = X.summed_with("fingerprint", tag, target)
    rows.merge(found.rows)
    features.merge(found.features)
    form = f"{X.shape[1]} columns by position, {n_targets} targets"

    def order() -> str:
        digest: str = X.summed_with("order of rows", tag.in_order, target, TagOrder.digest)
        return digest

    return rows.fingerprint(form, found.columns, (features if n_targets else rows).sketch(), order)


def _of_columns_on_cluster(chunks: Any, key: bytes) -> Fingerprint:
    """Return the same fingerprint of a raw table, with its rows tagged where they are."""
    rows, names = RowSummary(key), tuple(sorted(chunks.names))
    tag = TagColumns(rows.tag_keys(rows.named_keys([f"column {name}" for name in names])), names)
    found: TableTags = chunks.summed("fingerprint", tag)
    rows.merge(found.rows)

    def order() -> str:
        digest: str = chunks.summed("order of rows", tag.in_order, TagOrder.digest)
        return digest

    return rows.fingerprint(f"{len(names)} columns by name", found.columns, order=order)


def opened_sketch(sealed: str, key: bytes) -> TableSketch | None:
    """Open a sketch with the ledger's key; None if it was sealed with another one, by another user."""
    return TableSketch.opened(sealed, _derived(key, "sketches"))


class RowSummary(RowTags):
    """Collects the tags of all rows, in their order, and makes the fingerprint of them."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._key = key
        self._cipher = tag_cipher(_derived(key, "tags"))
        self._in_order = hashlib.sha256()

    def column_sums(self, n_columns: int) -> Any:
        """Empty sums of columns, which have a key of their own."""
        return column_hashes().ColumnHashes(n_columns, self.columns_key)

    @property
    def columns_key(self) -> int:
        """Key of the sums of columns."""
        return int.from_bytes(_derived(self._key, "columns")[:8], "little")

    def position_keys(self, n_columns: int) -> NDArray[np.uint32]:
        """One line of keys per column, by its position."""
        width = 2 * row_hashes().N_SUMS  # two keys of 4 bytes per sum
        stream = Cipher(algorithms.AES(_derived(self._key, "positions")), modes.CTR(bytes(_BLOCK))).encryptor()
        return np.frombuffer(stream.update(bytes(4 * width * n_columns)), "<u4").reshape(n_columns, width)

    def named_keys(self, names: Iterable[str]) -> NDArray[np.uint32]:
        """One line of keys per column, by its name."""
        width = 2 * row_hashes().N_SUMS
        return np.frombuffer(b"".join(_derived(self._key, name) for name in names), "<u4").reshape(-1, width)

    def add(self, sums: NDArray[np.uint64]) -> None:
        """Take the next rows, by the sums of their cells."""
        if not len(sums):
            return
        tags = tags_of(sums, self._cipher)
        self._in_order.update(tags)
        self.take(tags)

    def recognisable(self) -> bool:
        """Whether tables of other people hardly ever have as many rows of each kind."""
        if self._kinds is None or len(self._kinds) == self._n:
            return True
        return self._bits_of_counts() >= _RECOGNISED_BITS

    def _bits_of_counts(self) -> float:
        """Return minus the binary logarithm of the probability that other people have the same counts.

        Two tables of n people from one population, in which kind k has the share p_k, have the same counts with a
        probability of about (4 pi n)^(-(K - 1)/2) / sqrt(p_1 ... p_K).
        """
        assert self._kinds is not None
        shares = np.array(list(self._kinds.values())) / self._n
        return 0.5 * ((len(shares) - 1) * math.log2(4.0 * math.pi * self._n) + float(np.log2(shares).sum()))

    def sketch(self) -> RowSketch:
        """Return the sketch of all rows.

        A few kinds of rows are common to many tables: of these it has the number of rows of each kind, and no tags. If
        there are few rows, all different, they are no kinds but people.
        """
        n_kinds = len(self._smallest.tags)
        if n_kinds >= (FEWEST_DIFFERENT if n_kinds < self._n else FEWEST_ROWS):
            return self._smallest
        if n_kinds < 2:  # one kind of row, such as a column of zeros, says nothing
            return RowSketch()
        return RowSketch(kinds=_derived(self._key, f"kinds of {self._n} rows: sum {self._total}"))

    def tag_keys(self, cells: NDArray[np.uint32], targets: NDArray[np.uint32] | None = None) -> TagKeys:
        """Return what other machines need to tag rows of a table with these keys of its columns."""
        return TagKeys(_derived(self._key, "tags"), cells, targets, self.columns_key, _derived(self._key, "texts"))

    def fingerprint(
        self, form: str, columns: Any, features: RowSketch | None = None, order: Callable[[], str] | None = None
    ) -> Fingerprint:
        """Return the fingerprint of all rows, with the sketch of the rows without the target if that is known.

        A table with few kinds of rows may be told apart by their order too: a hundred zeros and ones have the same sum
        as many other hundreds, of other people. ``order`` returns the digest of the tags in their order if they
        were collected elsewhere.
        """
        in_order = self._in_order.hexdigest if order is None else order
        rows = f"sum {self._total}" if self.recognisable() else f"in order {in_order()}"
        text = f"{VERSION}:{_derived(self._key, f'table of {self._n} rows, {form}: {rows}').hex()}"
        alike = ColumnSketch.of_sums(self._n, columns.sums, columns.buckets)
        sketch = TableSketch(self.sketch(), RowSketch() if features is None else features, alike)
        return Fingerprint(text, sketch.sealed(_derived(self._key, "sketches")))


def _derived(key: bytes, purpose: str) -> bytes:
    """Return a key, or a pseudo-random number, of its own for each purpose."""
    named = f"dperm rows {VERSION}:{purpose}"
    return hmac.new(key, named.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()


def _sums_of_blocks(X: Any, keys: NDArray[np.uint32], columns: Any) -> Iterator[NDArray[np.uint64]]:
    """Yield the sums of rows, block after block; adds the blocks to the sums of columns."""
    if sp.issparse(X):
        rows = sp.csr_array(X)
        if not rows.has_canonical_format:  # several entries of a cell are added up, in a copy
            rows = rows.copy()
            rows.sum_duplicates()
        words = bits(rows.data)
        column_hashes().add_sparse(words, rows.indices, columns)
        yield row_hashes().sparse_sums(words, rows.indices, rows.indptr, keys)
        return
    for block in X.blocks() if hasattr(X, "blocks") else _row_blocks(np.asarray(X)):
        words = bits(block)
        column_hashes().add_dense(words, columns)
        yield row_hashes().dense_sums(words, keys)


def _row_blocks(array: AnyArray) -> Iterator[AnyArray]:
    """Split an array into rows that can be converted without copying the whole array."""
    rows = max(1, _CHUNK // max(array[:1].size, 1))
    return (array[start : start + rows] for start in range(0, len(array), rows))


# ------------------------------------------------------------------------------------------ the order matters
def ordered_digest(arrays: Iterable[Any], key: bytes) -> str:
    """HMAC-SHA256 of arrays of numbers or texts in their order; memory order and numeric type do not matter."""
    code = hmac.new(key, digestmod=hashlib.sha256)
    for array in arrays:
        table = np.asarray(array)
        code.update(repr(table.shape).encode())
        for block in _row_blocks(table):
            code.update(_bytes_of(block.reshape(-1)))
    return code.hexdigest()


def _bytes_of(part: AnyArray) -> bytes:
    if part.dtype.kind in "biuf":
        return (part.astype("<f8") + 0.0).tobytes()  # + 0.0 turns -0.0 into 0.0
    # names of rows and of other digests: length-prefixed text, so that ("ab", "c") differs from ("a", "bc")
    texts = [str(value).encode("utf-8", "surrogatepass") for value in part.tolist()]
    return b"".join(len(text).to_bytes(8, "big") + text for text in texts)
