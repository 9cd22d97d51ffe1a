"""Files that must appear complete or not at all, and the folder of a user's own dperm files."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from dperm.errors import InvalidInput

__all__ = ["published", "user_folder", "write_atomically"]


def user_folder() -> Path:
    """Folder of this user's dperm files: ``$DPERM_HOME``, else the platform's folder for settings."""
    if home := os.environ.get("DPERM_HOME"):
        return Path(home).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming") / "dperm"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "dperm"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "dperm"


@contextlib.contextmanager
def published(path: Path) -> Iterator[Path]:
    """Give a private temporary file to fill, then make it appear at ``path`` in one step.

    A file that is at ``path`` by then stays as it is: the first of two racing processes wins.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")  # mode 0600
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        with contextlib.suppress(FileExistsError):
            try:
                os.link(draft, path)
            except FileExistsError:
                raise
            except OSError:  # a file system without hard links: exclusive, though not in one step
                _copy_exclusively(draft, path)
        _flush_folder(path.parent)
    finally:
        for leftover in (draft, Path(f"{draft}-journal")):
            with contextlib.suppress(FileNotFoundError):
                leftover.unlink()


def _copy_exclusively(source: Path, target: Path) -> None:
    handle = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(source.read_bytes())
        stream.flush()
        os.fsync(stream.fileno())


def _flush_folder(folder: Path) -> None:
    """Make the new name survive a power cut; some platforms cannot open folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_atomically(path: str | os.PathLike[str], content: str | bytes, *, private: bool = False) -> Path:
    """Write a file whole or not at all: under another name first, then moved to its place.

    Who may read it follows from the user's umask, or stays as it is for a file that is written over; ``private`` lets
    its owner alone. Whatever the system refuses is said of ``path``.
    """
    target = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    if not target.parent.is_dir():
        raise InvalidInput(f"cannot write {str(path)!r}: its folder does not exist; create it first.")
    if target.is_dir():
        raise InvalidInput(f"cannot write {str(path)!r}: it is a folder; give the name of a file.")
    draft = target.parent / f".dperm-{uuid.uuid4().hex}.tmp"
    try:
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if private else 0o666)
        try:
            with open(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            if not private and target.exists():
                os.chmod(draft, stat.S_IMODE(target.stat().st_mode))
            os.replace(draft, target)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
    return target
