"""What an audit tells while it runs, and its two files: the result as JSON and as a page."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dperm.cli.output import Output
from dperm.cli.writing import check_outputs

if TYPE_CHECKING:
    from dperm.audit.runner import Told

__all__ = ["AuditFiles", "told"]


@contextmanager
def told(output: Output) -> Iterator[Told]:
    """Show what the audit does on standard error: a bar in a terminal, and elsewhere a line for each step."""
    from dperm.audit.runner import Told

    def note(sentence: str) -> None:
        output.note(f"dperm: {sentence}")

    if not sys.stderr.isatty():
        yield Told(step=note, note=note)
    elif output.quiet or output.as_json:
        yield Told(note=note)
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("preparing", total=None)
            yield Told(
                lambda done, in_all: bar.update(task, completed=done, total=in_all),
                lambda step: bar.update(task, description=step),
                note,
            )


class AuditFiles:
    """Files in a folder, or none without ``--out``; they are checked before the audit starts."""

    def __init__(self, out: Path | None, name: str, *, force: bool) -> None:
        self._files = () if out is None else (out / f"{name}.json", out / f"{name}.html")
        check_outputs(self._files, force=force)

    def write(self, data: dict[str, Any], page: str) -> None:
        """Write both."""
        from dperm.atomic_files import write_atomically

        for file, text in zip(self._files, (json.dumps(data, indent=2, allow_nan=False) + "\n", page), strict=False):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, text)

    @property
    def lines(self) -> list[tuple[str, str]]:
        """What was written, for the printed result."""
        return [("Written", ", ".join(str(file) for file in self._files))] if self._files else []
