"""What an experiment is, and the run that it sees."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dperm.atomic_files import write_atomically
from dperm.errors import InvalidInput, MissingDependency
from dperm.experiments.datasets import DataFolder
from dperm.experiments.result import Result

__all__ = ["EXTRAS", "Experiment", "Run", "Show"]

#: packages that experiments may need, with the extra of dperm that installs each
EXTRAS = {"dp-accounting": "sgd"}

#: called as show(pieces done, pieces in all)
Show = Callable[[int, int], None]


class Run:
    """One run of an experiment: its settings, its data, and the pieces that are already computed.

    Parameters
    ----------
    settings
        The experiment's own settings, ``Experiment.full`` or ``Experiment.fast``.
    data
        Where its data are.
    folder
        Where finished pieces are kept; it exists.
    show
        Told how many pieces are done.
    """

    def __init__(self, settings: Any, data: DataFolder, folder: Path, show: Show) -> None:
        self.settings = settings
        self.data = data
        self._folder = folder
        self._show = show

    def pieces(self, tasks: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """Compute the pieces that are not kept from before, keep them, and return all of them by name.

        A piece is plain JSON data: numbers, text, lists, dictionaries with text as keys. It should take seconds, since
        an interrupted run loses at most one.
        """
        files = {name: self._folder / f"{_file_name(name)}.json" for name in tasks}
        if len(set(files.values())) < len(files):
            raise InvalidInput("two pieces of the experiment have the same name.")
        found = {}
        for done, (name, task) in enumerate(tasks.items()):
            self._show(done, len(tasks))
            kept = _read(files[name]) if files[name].exists() else None
            if kept is None:
                kept = {"piece": name, "value": task()}
                write_atomically(files[name], json.dumps(kept, allow_nan=False))
            found[name] = kept["value"]
        self._show(len(tasks), len(tasks))
        return found


def _file_name(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text("utf-8"))
        kept["value"]
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"{str(path)!r} is not a piece of this experiment: delete it, or use --force.") from None
    return dict(kept)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    Attributes
    ----------
    name : str
        What users type.
    paper, what : str
        The paper, shortly, and what is measured, in one line.
    minutes : float
        What a full run takes on one core, about.
    measure : callable
        Computes the result; it does all long work in :meth:`Run.pieces`.
    full, fast : dataclass
        Settings of a full and of a fast run; plain values only.
    data : tuple of str
        Files that it reads from the folder of data; each is replaced by made data if it is missing.
    needs : tuple of str
        Optional packages without which it cannot run, of :data:`EXTRAS`.
    """

    name: str
    paper: str
    what: str
    minutes: float
    measure: Callable[[Run], Result]
    full: Any
    fast: Any
    data: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Packages that it needs and that are not installed."""
        return tuple(package for package in self.needs if find_spec(package.replace("-", "_")) is None)

    def check_needs(self) -> None:
        """Refuse to run without a package that it needs."""
        for package in self.missing:
            raise MissingDependency(
                f"{self.name} needs {package}, which is not installed: pip install 'dperm[{EXTRAS[package]}]'."
            )
