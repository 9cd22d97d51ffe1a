"""Write files completely or not at all, and find the folder of a user's own dperm files."""

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

__all__ = ["create_exclusively", "sync_folder", "user_folder", "write_atomically"]


def user_folder() -> Path:
    """Return the folder of this user's dperm files: ``$DPERM_HOME``, else the platform's folder for settings."""
    if home := os.environ.get("DPERM_HOME"):
        return Path(home).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming") / "dperm"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "dperm"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "dperm"


@contextlib.contextmanager
def create_exclusively(path: Path) -> Iterator[Path]:
    """Yield a private temporary file to fill, then let it appear at ``path`` in one step.

    A file that exists at ``path`` by then is not replaced: of two processes that create the file at the same time, the
    first one succeeds, and both find a complete file.
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
            except OSError:  # a file system without hard links: exclusive, but not in one step
                _copy_exclusively(draft, path)
        _try_to_sync_folder(path.parent)
    finally:
        for leftover in (draft, Path(f"{draft}-journal")):  # SQLite keeps a journal next to its file
            with contextlib.suppress(FileNotFoundError):
                leftover.unlink()


def _copy_exclusively(source: Path, target: Path) -> None:
    handle = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(source.read_bytes())
        stream.flush()
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk, so that new and changed names in it survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _try_to_sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some platforms cannot open a folder
        sync_folder(folder)


def write_atomically(path: str | os.PathLike[str], content: str | bytes, *, private: bool = False) -> Path:
    """Write a file completely or not at all: under a temporary name first, then moved to its place.

    Parameters
    ----------
    path
        Where the file goes. Its folder must exist.
    content
        Text, written as UTF-8, or bytes.
    private
        Whether only the owner may read the file. By default an existing file keeps its permissions, and a new one gets
        those of the user's umask.

    Raises
    ------
    InvalidInput
        ``path`` is a folder, or its folder does not exist.
    OSError
        The operating system refuses; the error names ``path`` and not the temporary file.
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
    _try_to_sync_folder(target.parent)
    return target
