"""Writes the files of a fit: a model that was paid for is never lost, and only files on disk are reported."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

from dperm.cli.output import Output
from dperm.errors import DpermError, InvalidInput

__all__ = ["ModelFiles", "check_writable"]


def check_writable(path: Path) -> None:
    """Try to write into the folder of the model: a model that cannot be saved must not cost budget."""
    folder = path.parent
    if not folder.is_dir():
        raise InvalidInput(f"cannot write {str(path)!r}: its folder does not exist; create it first.")
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".dperm-") as probe:
            probe.write(bytes(1 << 20))
            probe.flush()
            os.fsync(probe.fileno())
    except PermissionError:
        raise InvalidInput(f"the folder {str(folder)!r} may not be written: choose another --out.") from None
    except OSError as error:
        raise DpermError(
            f"{str(folder)!r} cannot hold the model ({error.strerror}): nothing was charged; choose another --out."
        ) from None


class ModelFiles:
    """Writes a model and its report page, each whole or not at all, and lists which were written."""

    def __init__(self, out: Path, page: Path) -> None:
        self._out, self._page = out, page
        self._before = {path: _stamp(path) for path in (out, page)}
        self._rescued: list[Path] = []

    @property
    def written(self) -> list[str]:
        """Paths that were written, read from the disk: true even after an interruption."""
        return [str(path) for path, stamp in self._before.items() if _stamp(path) != stamp] + list(
            map(str, self._rescued)
        )

    def write(self, saved: Any, output: Output) -> None:
        """Write the model and its page; if the folder is full, the model goes to a temporary folder."""
        from dperm.atomic_files import write_atomically
        from dperm.cli.summary import page_of

        try:
            saved.save(self._out)
        except (OSError, InvalidInput) as error:
            kept = Path(tempfile.mkdtemp(prefix="dperm-")) / self._out.name
            self._rescued.append(saved.save(kept))
            output.note(f"note: {_not_written(self._out, error)}, so the model was saved elsewhere: {kept}")
            return
        try:
            write_atomically(self._page, page_of(saved))
        except (OSError, InvalidInput) as error:
            again = f"dperm report {shlex.quote(str(self._out))} --out {shlex.quote(str(self._page))}"
            output.note(
                f"note: {_not_written(self._page, error)}; the model was written, and `{again}` makes its page."
            )


def _not_written(path: Path, error: Exception) -> str:
    reason = error.clause if isinstance(error, DpermError) else getattr(error, "strerror", None) or str(error)
    return f"{str(path)!r} could not be written ({reason})"


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Identify the state of a file; every complete write makes a new one."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
