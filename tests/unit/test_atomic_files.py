"""Files are written completely or not at all, with the permissions that were asked for."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from dperm import atomic_files
from dperm.atomic_files import create_exclusively, sync_folder, user_folder, write_atomically
from dperm.errors import InvalidInput

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="file modes are those of POSIX")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("content", ["text with an ä", b"bytes\x00", ""])
def test_the_content_is_written_and_nothing_else_is_left(tmp_path: Path, content: str | bytes) -> None:
    path = write_atomically(tmp_path / "file", content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert os.listdir(tmp_path) == ["file"]


def test_an_existing_file_is_replaced(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", "old and longer")
    write_atomically(str(tmp_path / "file"), "new")
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_failure_leaves_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = write_atomically(tmp_path / "file", "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", ".dperm-temporary")

    monkeypatch.setattr(atomic_files.os, step, full)
    with pytest.raises(OSError, match="No space left") as error:
        write_atomically(path, "new")
    assert error.value.filename == str(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_an_interruption_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_atomically(tmp_path / "file", "old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic_files.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@posix_only
def test_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        assert mode(write_atomically(tmp_path / "new", "x")) == 0o640
        assert mode(write_atomically(tmp_path / "secret", "x", private=True)) == 0o600
        shared = tmp_path / "shared"
        shared.write_text("old")
        shared.chmod(0o664)
        assert mode(write_atomically(shared, "new")) == 0o664
        assert mode(write_atomically(shared, "new", private=True)) == 0o600
    finally:
        os.umask(before)


def test_refused_paths(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="its folder does not exist"):
        write_atomically(tmp_path / "missing" / "file", "x")
    with pytest.raises(InvalidInput, match="it is a folder"):
        write_atomically(tmp_path, "x")


def test_a_file_is_created_once(tmp_path: Path) -> None:
    path = tmp_path / "key"
    for content in ("first", "second"):
        with create_exclusively(path) as draft:
            assert draft.parent == tmp_path
            draft.write_text(content)
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["key"]


def test_a_created_file_is_not_visible_before_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "key"

    def fill_and_fail() -> None:
        with create_exclusively(path) as draft:
            draft.write_text("half")
            assert not path.exists()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fill_and_fail()
    assert os.listdir(tmp_path) == []


@posix_only
@pytest.mark.parametrize("hard_links", [True, False])
def test_a_created_file_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard_links: bool) -> None:
    def unsupported(*_: object) -> None:
        raise PermissionError("no hard links here")

    if not hard_links:
        monkeypatch.setattr(atomic_files.os, "link", unsupported)
    with create_exclusively(tmp_path / "key") as draft:
        draft.write_text("secret")
    assert (tmp_path / "key").read_text() == "secret"
    assert mode(tmp_path / "key") == 0o600


def test_syncing_a_folder_that_is_missing_fails(tmp_path: Path) -> None:
    sync_folder(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "missing")


def test_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPERM_HOME", str(tmp_path))
    assert user_folder() == tmp_path
    monkeypatch.delenv("DPERM_HOME")
    monkeypatch.setattr(atomic_files.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert user_folder() == tmp_path / "config" / "dperm"
