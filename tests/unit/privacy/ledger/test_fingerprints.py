"""Keyed fingerprints: equal for equal rows in every container and order, and for nothing else; and their key."""

from __future__ import annotations

import copy
import os
import pickle
import stat
import sys
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dperm.atomic_files import user_folder
from dperm.errors import DataSetRenamed, LedgerError
from dperm.kernels.row_hashes import dense_sums, sparse_sums
from dperm.privacy.accounting.events import Gaussian
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.fingerprints import KEY_FILE, Fingerprint, RowSummary, opened_sketch, ordered_digest, user_key
from dperm.privacy.ledger.sketches import Likeness, compared

KEY = bytes(range(32))
X = np.arange(12.0).reshape(4, 3)
Y = np.array([0.0, 1.0, 0.0, 1.0])


def mark(table, target=None, key=KEY):
    return Fingerprint.of_table(table, target, key)


def alike(one, other):
    return compared(*(opened_sketch(mine.sealed, KEY) for mine in (one, other)))


class Blocks:
    """A table that is read in blocks of two rows."""

    def __init__(self, table):
        self.shape, self._table = table.shape, table

    def blocks(self):
        yield from (self._table[start : start + 2] for start in range(0, len(self._table), 2))


def twice_stored():
    """The same values with a cell in two entries, and with stored zeros of both signs."""
    rows, columns = np.nonzero(X)
    more = np.append(X[rows, columns], [0.0, -0.0, 4.0])
    more[np.flatnonzero((rows == 3) & (columns == 2))[0]] -= 4.0
    return sp.coo_array((more, (np.append(rows, [0, 0, 3]), np.append(columns, [0, 0, 2]))), shape=X.shape)


def duplicates_and_zeros(table):
    """CSR arrays with a cell that is stored as two halves, in whatever order, and with all zeros stored."""
    n, d = table.shape
    data, columns = np.hstack([table, table[:, ::-1]]) / 2.0, np.hstack([np.arange(d), np.arange(d)[::-1]])
    ends = np.arange(0, 2 * n * d + 1, 2 * d)
    return sp.csr_array((data.ravel(), np.tile(columns, n), ends), shape=table.shape)


SAME = {
    "F order": np.asfortranarray(X),
    "strided": np.repeat(X, 2, axis=0)[::2],
    "int8": X.astype(np.int8),
    "uint16": X.astype(np.uint16),
    "float32": X.astype(np.float32),
    "big endian": X.astype(">f8"),
    "minus zero": np.where(X == 0.0, -0.0, X),
    "csr": sp.csr_array(X),
    "csc": sp.csc_array(X),
    "coo": sp.coo_array(X),
    "csr matrix": sp.csr_matrix(X),
    "entries in two parts": twice_stored(),
    "csr with duplicates and zeros": duplicates_and_zeros(X),
    "csc with duplicates and zeros": duplicates_and_zeros(X).tocsc(),
    "float32 csr": sp.csr_array(X.astype(np.float32)),
    "blocks": Blocks(X),
    "rows reversed": X[::-1],
    "rows in another order": X[[2, 0, 3, 1]],
}


@pytest.mark.parametrize("kind", SAME)
def test_equal_rows_have_one_fingerprint(kind):
    assert mark(SAME[kind]) == mark(X)


def test_booleans_are_zeros_and_ones():
    bits = np.random.default_rng(0).random((200, 20)) < 0.5
    assert mark(bits) == mark(bits.astype(float)) == mark(sp.csr_array(bits.astype(np.int8)))


def test_the_target_moves_with_its_row():
    order = [2, 0, 3, 1]
    assert mark(X[order], Y[order]) == mark(X, Y)
    assert mark(X, Y[[1, 0, 2, 3]]) != mark(X, Y)
    assert mark(X, Y.astype(bool)) == mark(X, Y)


@pytest.mark.parametrize(
    "other",
    [
        X.T,
        X.reshape(3, 4),
        X.reshape(6, 2),
        X + 1,
        X[:3],
        np.vstack([X, X]),
        np.vstack([X, X[:1]]),
        np.column_stack([X, np.zeros(4)]),
        X[:, ::-1],
        np.where(X == 5.0, np.nextafter(5.0, 6.0), X),
        np.vstack([X[:2], X[[3, 2]][:, [1, 0, 2]]]),
    ],
)
def test_other_rows_have_another(other):
    assert mark(other) != mark(X)
    assert mark(sp.csr_array(other)) == mark(other)


def test_a_target_is_not_a_column():
    assert len({mark(X), mark(X, Y), mark(np.column_stack([X, Y])), mark(X, X), mark(X, X[:, 0])}) == 5


def test_how_often_a_row_is_there_counts():
    wide = np.random.default_rng(1).normal(size=(40, 3))
    once, again = np.vstack([wide, wide[:1]]), np.vstack([wide, wide[1:2]])
    assert len({mark(wide), mark(once), mark(again), mark(np.vstack([wide, wide]))}) == 4


def test_few_kinds_of_rows_are_told_apart_by_their_order():
    """Labels of other people with as many ones are other data."""
    ones = np.repeat([0.0, 1.0], 500)[:, None]
    mixed = np.random.default_rng(2).permutation(ones)
    assert mark(ones) != mark(mixed)
    assert mark(ones) == mark(ones.astype(np.int8))
    assert alike(mark(ones), mark(mixed)) == Likeness()  # the same number of each kind, no share of rows
    assert alike(mark(ones), mark(ones[1:])) is None
    many = np.random.default_rng(3).normal(size=(1000, 1))
    assert mark(many) == mark(many[::-1])


def test_one_record_decides_whether_order_counts():
    """Where copies are compared and one record makes the numbers of each kind rare, recognition depends on it."""
    kinds = np.arange(64.0)[:, None] % 7
    neighbour = kinds.copy()
    neighbour[40] = 9.0
    assert mark(kinds) != mark(kinds[::-1])
    assert mark(neighbour) == mark(neighbour[::-1])


@pytest.mark.parametrize(
    ("n", "n_kinds", "free"), [(1000, 2, False), (100, 4, False), (5000, 16, True), (400, 8, True), (40, 40, True)]
)
def test_few_kinds_of_rows_are_recognised_in_any_order_if_their_numbers_are_rare(n, n_kinds, free):
    rows = np.random.default_rng(n).integers(0, n_kinds, n)[:, None] * 1.0
    if n == n_kinds:
        rows = np.arange(n)[:, None] * 1.0
    assert (mark(rows) == mark(rows[::-1])) == free


def test_other_people_with_few_kinds_of_rows_are_other_tables():
    rng = np.random.default_rng(3)
    marks = {mark(rng.integers(0, 2, (2000, 3)) * 1.0) for _ in range(200)}
    assert len(marks) == 200


def test_blocks_of_any_size_agree_with_the_whole():
    wide = np.random.default_rng(4).normal(size=(5000, 300))  # larger than one block of conversion
    assert mark(wide) == mark(Blocks(wide)) == mark(sp.csr_array(wide))


def test_without_the_key_nothing_can_be_compared():
    assert mark(X) != mark(X, key=bytes(32))
    wide = np.random.default_rng(5).normal(size=(100, 3))
    assert opened_sketch(mark(wide, key=bytes(32)).sealed, KEY) is None


def test_row_sums_are_what_the_proof_says():
    rng = np.random.default_rng(6)
    words = rng.integers(0, 2**64, (5, 7), np.uint64)
    words[1, 3] = 0
    keys = rng.integers(0, 2**32, (7, 8), np.uint32)
    expected = [
        [
            sum(
                ((int(w) % 2**32 + int(k[2 * s])) % 2**32) * (((int(w) >> 32) + int(k[2 * s + 1])) % 2**32)
                - int(k[2 * s]) * int(k[2 * s + 1])
                for w, k in zip(row, keys, strict=True)
            )
            % 2**64
            for s in range(4)
        ]
        for row in words
    ]
    assert dense_sums(words, keys).tolist() == expected
    assert sparse_sums(words.ravel(), np.tile(np.arange(7), 5), np.arange(0, 36, 7), keys).tolist() == expected


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_of_a_fingerprint_keep_the_encrypted_sketch(duplicate):
    """Without it a table would pass by the comparison with others; no copy has a key or readable tags."""
    wide = np.random.default_rng(7).normal(size=(100, 3))
    made = mark(wide)
    other = duplicate(made)
    assert (type(other), other, other.sealed) == (Fingerprint, made, made.sealed)
    assert vars(made).keys() == {"sealed"}
    assert alike(other, mark(wide[:50])).share == 1.0
    tags = opened_sketch(made.sealed, KEY).rows.tags
    assert tags[:1].tobytes() not in pickle.dumps(made)


def test_a_pickled_handle_still_compares_its_tables(own_home, tmp_path):
    """What a handle recognises is compared in another process too."""
    wide = np.random.default_rng(7).normal(size=(100, 3))
    ledger = Ledger(tmp_path / "budget.db", dataset="hosp")
    ledger.reserve(Gaussian(50.0), "replace-one", fingerprint=ledger.fingerprint(wide))
    handle = ledger.for_dataset("census").recognising(ledger.fingerprint(wide[:90]))
    assert [one.dataset for one in pickle.loads(pickle.dumps(handle)).resembling()] == ["hosp"]


# ------------------------------------------------------------------------------------------ raw tables
def columns(*chunks):
    return Fingerprint.of_columns(chunks, KEY)


AGE, JOB, ILL = ["31", "44.5", "", "7"], ["clerk", " nurse", "clerk", ""], ["true", "False", "true", "TRUE"]


def test_raw_tables_agree_whatever_the_file_stores():
    texts = columns({"age": AGE, "job": JOB, "ill": ILL})
    typed = {"ill": np.array([1.0, 0.0, 1.0, 1.0]), "age": np.array([31, 44.5, np.nan, 7])}
    assert columns({**typed, "job": ["clerk", "nurse", "clerk", None]}) == texts
    assert (
        columns(*({k: v[i : i + 1] for k, v in typed.items()} | {"job": JOB[i : i + 1]} for i in (3, 0, 2, 1))) == texts
    )
    assert columns({"age": ["31.0", "4.45e1", "nan", "7"], "job": JOB, "ill": ILL}) == texts


@pytest.mark.parametrize(
    "change",
    [{"age": AGE[::-1]}, {"job": [*JOB[:3], "Clerk"]}, {"job": [*JOB[:3], "0"]}, {"age": ["31", "44.5", "0", "7"]}],
)
def test_raw_tables_that_differ(change):
    whole = {"age": AGE, "job": JOB, "ill": ILL}
    assert columns({**whole, **change}) != columns(whole)


def test_names_of_columns_count():
    assert columns({"age": AGE, "job": JOB}) != columns({"years": AGE, "job": JOB})
    assert columns({"a": AGE, "b": JOB}) != columns({"b": AGE, "a": JOB})


# ------------------------------------------------------------------------------------------ digests in order
def test_a_digest_in_order():
    same = [X, np.asfortranarray(X), X.astype(np.int8), X.astype(np.float32), X * np.where(X == 0, -1.0, 1.0)]
    assert len({ordered_digest([one], KEY) for one in same}) == 1
    different = [X, X.T, X.ravel(), X + 1, X[::-1], X[:3], np.array(["a"]), np.array(["b"])]
    assert len({ordered_digest([one], KEY) for one in different}) == len(different)
    words = [["ab", "c"], ["a", "bc"]]
    assert len({ordered_digest([np.array(one, dtype=object)], KEY) for one in words}) == 2
    assert ordered_digest([X, X], KEY) != ordered_digest([X], KEY) != ordered_digest([X], bytes(32))


# ------------------------------------------------------------------------------------------ the key
def test_the_key_is_kept_outside_the_ledger(own_home: Path, tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    ledger = Ledger(path)
    made = ledger.fingerprint(X)
    key = own_home / KEY_FILE
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 or sys.platform == "win32"
    assert [file.name for file in own_home.iterdir()] == [KEY_FILE]
    assert key.read_bytes() not in path.read_bytes()
    assert Ledger(path).fingerprint(X) == Ledger(tmp_path / "other.db").fingerprint(X) == made
    key.unlink()
    assert ledger.fingerprint(X) != made  # another key recognises nothing


def test_a_ledger_in_memory_has_a_key_of_its_own(own_home: Path) -> None:
    ledger = Ledger()
    assert ledger.fingerprint(X) == ledger.for_dataset("b").fingerprint(X.tolist()) != Ledger().fingerprint(X)
    assert not own_home.exists()


def test_racing_first_uses_agree() -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: user_key(), range(16)))) == 1


def test_a_damaged_key(own_home: Path) -> None:
    own_home.mkdir()
    for content in ("", "abc", "zz" * 32):
        (own_home / KEY_FILE).write_text(content)
        with pytest.raises(LedgerError, match="damaged"):
            user_key()


def test_a_key_that_cannot_be_made(own_home: Path) -> None:
    own_home.write_text("a file where the folder should be")
    with pytest.raises(LedgerError, match="DPERM_HOME"):
        user_key()
    with pytest.raises(LedgerError, match="DPERM_HOME"):
        Ledger.default_path()


def test_the_platform_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DPERM_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert Ledger.default_path() == tmp_path / "dperm" / "ledger.db"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert os.fspath(user_folder()).endswith("Library/Application Support/dperm")


def test_where_warnings_are_errors_a_renamed_copy_costs_nothing(tmp_path):
    book = Ledger(tmp_path / "books.db", dataset="patients")
    book.reserve(Gaussian(10.0), neighbours="replace-one", purpose="first", fingerprint="abc")
    before = len(book.entries())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataSetRenamed):
            book.for_dataset("copy").reserve(
                Gaussian(10.0), neighbours="replace-one", purpose="again", fingerprint="abc"
            )
    assert len(book.entries()) == before


def test_one_record_changes_the_bits_of_the_counts_by_less_than_three():
    """`cap.proof.md` relies on it."""
    rng, most = np.random.default_rng(7), 0.0
    for _ in range(300):
        counts = rng.integers(1, 6, rng.integers(2, 9))
        changed = np.append(counts, 0)
        from_, to = rng.choice(len(counts)), rng.choice(len(changed))
        changed[from_] -= 1
        changed[to] += rng.integers(0, 2)  # replaced, or removed
        if changed.sum() > 1:
            most = max(most, abs(bits(counts) - bits(changed[changed > 0])))
    assert 1.5 < most < 3.0


def bits(counts):
    summary = RowSummary(KEY)
    summary._n, summary._kinds = int(counts.sum()), Counter(dict(enumerate(counts.tolist())))
    return summary._bits_of_counts()
