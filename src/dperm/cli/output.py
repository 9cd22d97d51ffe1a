"""Output of commands: for people (coloured in a terminal, plain in a pipe), for machines, or none."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

__all__ = ["Output", "ProgressBar", "counted", "with_output"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class ProgressBar:
    """Shows how much of some work is done: call it with two numbers."""

    what: str
    show: Callable[[str, int, int], None]

    def __call__(self, done: int, in_all: int) -> None:
        self.show(self.what, done, in_all)

    def named(self, what: str) -> ProgressBar:
        """Return the same bar for another piece of work."""
        return ProgressBar(what, self.show)


@dataclass(frozen=True)
class Output:
    """Where results and notes go: results to standard output, notes and progress to standard error."""

    as_json: bool = False
    quiet: bool = False

    def result(self, data: Any, show: Callable[[Output], None]) -> None:
        """Print the result: ``data`` as JSON for machines, or what ``show`` prints for people."""
        if self.as_json:
            click.echo(json.dumps(data, indent=2, default=str, allow_nan=False))
        elif not self.quiet:
            show(self)

    def lines(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print labelled lines; each text wraps beside its label."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for label, text in rows:
            table.add_row(label, Text(text))
        self._print(table)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
        """Print a table; columns in ``right`` are aligned to the right."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for k, name in enumerate(header):
            table.add_column(Text(name), justify="right" if k in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._print(table)

    def text(self, text: str) -> None:
        """Print text as it is."""
        from rich.text import Text

        self._print(Text(text))

    def note(self, text: str) -> None:
        """Print a note to standard error, unless quiet."""
        if not self.quiet:
            click.echo(text, err=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[ProgressBar]:
        """Show a progress bar on standard error, in a terminal only."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        if self.quiet or self.as_json or not sys.stderr.isatty():
            yield ProgressBar(what, lambda what, done, in_all: None)
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)

            def show(what: str, done: int, in_all: int) -> None:
                bar.update(task, description=what, completed=done, total=in_all)

            yield ProgressBar(what, show)

    def _print(self, what: Any) -> None:
        from rich.console import Console

        if sys.stdout.isatty():
            Console(highlight=False, emoji=False, markup=False).print(what)
            return
        # a pipe has no width: lines are not wrapped, so that other programs can read them
        stream = io.StringIO()
        Console(highlight=False, emoji=False, markup=False, width=10_000, file=stream).print(what)
        click.echo("\n".join(line.rstrip() for line in stream.getvalue().splitlines()))


def counted(n: int, what: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "new report"), counted(2, "new report")
    ('1 new report', '2 new reports')
    """
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def with_output(command: F) -> F:
    """Add ``--json`` and ``--quiet`` to a command, which receives an :class:`Output` as ``output``."""

    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @click.option("-q", "--quiet", is_flag=True, help="Print only errors and data, such as predictions.")
    @wraps(command)
    def run(*args: Any, as_json: bool, quiet: bool, **kwargs: Any) -> Any:
        return command(*args, output=Output(as_json, quiet), **kwargs)

    return run  # type: ignore[return-value]
