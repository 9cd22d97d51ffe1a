"""Files that must appear complete or not at all, and the folder of a user's own dperm files."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["published", "user_folder"]


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
