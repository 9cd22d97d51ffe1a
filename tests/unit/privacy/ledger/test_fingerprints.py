"""Keyed fingerprints and their key."""

from __future__ import annotations

import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dperm.atomic_files import user_folder
from dperm.errors import LedgerError
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.fingerprints import KEY_FILE, fingerprint, user_key

X = np.arange(12.0).reshape(4, 3)


def test_same_values_same_fingerprint() -> None:
    key = bytes(32)
    same = [X, np.asfortranarray(X), X.astype(np.int8), X.astype(np.float32), X[::1] * np.where(X == 0, -1.0, 1.0)]
    assert len({fingerprint([one], key) for one in same}) == 1
    different = [X, X.T, X.ravel(), X + 1, X[::-1], X[:3], np.array(["a"]), np.array(["b"])]
    assert len({fingerprint([one], key) for one in different}) == len(different)
    words = [["ab", "c"], ["a", "bc"]]
    assert len({fingerprint([np.array(one, dtype=object)], key) for one in words}) == 2
    assert fingerprint([np.array(words[0], dtype=object)], key) == fingerprint([np.array(words[0])], key)
    assert fingerprint([X, X], key) != fingerprint([X], key) != fingerprint([X], bytes([1]) * 32)


def test_the_key_is_kept_outside_the_ledger(own_home: Path, tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    ledger = Ledger(path)
    mark = ledger.fingerprint([X])
    key = own_home / KEY_FILE
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 or sys.platform == "win32"
    assert [file.name for file in own_home.iterdir()] == [KEY_FILE]
    assert key.read_bytes() not in path.read_bytes()
    assert Ledger(path).fingerprint([X]) == Ledger(tmp_path / "other.db").fingerprint([X]) == mark
    key.unlink()
    assert ledger.fingerprint([X]) != mark  # another key recognises nothing


def test_a_ledger_in_memory_has_a_key_of_its_own(own_home: Path) -> None:
    ledger = Ledger()
    assert ledger.fingerprint([X]) == ledger.for_dataset("b").fingerprint([X]) != Ledger().fingerprint([X])
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
    import warnings

    from dperm.errors import DataSetRenamed
    from dperm.privacy.accounting.events import Gaussian
    from dperm.privacy.ledger import Ledger

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
