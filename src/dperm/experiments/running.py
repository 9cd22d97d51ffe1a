"""Run an experiment in a folder: finished pieces are kept there, and picked up again if the settings are the same."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import dperm
from dperm.atomic_files import write_atomically
from dperm.errors import InvalidInput
from dperm.experiments.datasets import DataFolder
from dperm.experiments.experiment import Experiment, Run, Show
from dperm.experiments.result import Result
from dperm.experiments.writing import FORMATS, write

__all__ = ["Finished", "check_finished", "drop", "finished_files", "is_finished", "run"]

_SETTINGS = "settings.json"

Finished = tuple[Result, list[Path]]


def finished_files(experiment: Experiment, out: Path) -> list[Path]:
    """Return the files that a run writes at its end."""
    return [out / f"{experiment.name}.{ending}" for ending in FORMATS]


def is_finished(experiment: Experiment, out: Path) -> bool:
    """Whether a folder has a whole result of this experiment: its page, which is written last."""
    return _page(experiment, out).exists()


def _page(experiment: Experiment, out: Path) -> Path:
    return finished_files(experiment, out)[0]


def _facts(experiment: Experiment, data: DataFolder, *, fast: bool) -> dict[str, Any]:
    """Return what decides the numbers of a run, as plain JSON data: runs that differ in it must not be mixed."""
    facts = {
        "experiment": experiment.name,
        "fast": fast,
        "settings": asdict(experiment.fast if fast else experiment.full),
        "data": {file: data.digest(file) for file in experiment.data},
        "code": code_digest(),
    }
    return dict(json.loads(json.dumps(facts)))


def check_finished(experiment: Experiment, out: Path, data: DataFolder, *, fast: bool) -> None:
    """Refuse a finished result that this run would not give: of a fast run, other data, settings or code."""
    _, as_json, _ = finished_files(experiment, out)
    changed = _changed(as_json, _facts(experiment, data, fast=fast))
    if changed:
        raise InvalidInput(_differs(_page(experiment, out), "is the result", changed))


def drop(experiment: Experiment, out: Path) -> None:
    """Delete the pieces and the result of an earlier run; a run that is stopped then resumes as any other."""
    pieces = _pieces(experiment, out)
    if pieces.exists():
        shutil.rmtree(pieces)
    for path in finished_files(experiment, out):
        path.unlink(missing_ok=True)


def _pieces(experiment: Experiment, out: Path) -> Path:
    return out / f"{experiment.name}.pieces"


def run(experiment: Experiment, out: Path, data: DataFolder, *, fast: bool, force: bool, show: Show) -> Finished:
    """Run an experiment, or the rest of a run that was interrupted, and write its result.

    ``force`` starts again: the pieces and the result of an earlier run are deleted.
    """
    experiment.check_needs()  # before --force deletes anything
    if force:
        drop(experiment, out)
    if is_finished(experiment, out):
        path = _page(experiment, out)
        raise InvalidInput(f"{str(path)!r} exists: choose another --out, or --force to measure again.")
    pieces = _pieces(experiment, out)
    pieces.mkdir(parents=True, exist_ok=True)
    facts = _facts(experiment, data, fast=fast)
    _check_same(pieces / _SETTINGS, facts)
    began = time.perf_counter()
    result = experiment.measure(Run(experiment.fast if fast else experiment.full, data, pieces, show))
    facts |= {
        "dperm": dperm.__version__,
        "python": platform.python_version(),
        "seconds": round(time.perf_counter() - began, 1),
    }
    written = write(experiment, result, facts, finished_files(experiment, out))
    shutil.rmtree(pieces)
    return result, written


def _check_same(path: Path, facts: dict[str, Any]) -> None:
    """Note what the pieces of a folder were computed with; refuse to mix them with pieces of another run."""
    if not path.exists():
        write_atomically(path, json.dumps(facts, indent=1))
        return
    changed = _changed(path, facts)
    if changed:
        raise InvalidInput(_differs(path.parent, "has pieces", changed))


def _changed(path: Path, facts: dict[str, Any]) -> list[str]:
    """Return which facts differ from those in a JSON file, as users call them; all settings if it is not readable."""
    try:
        before = json.loads(path.read_text("utf-8"))
        changed = [name for name in facts if before[name] != facts[name]]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        changed = ["settings"]
    return ["--fast" if name == "fast" else name for name in changed]


def _differs(path: Path, what: str, changed: Sequence[str]) -> str:
    return (
        f"{str(path)!r} {what} of a run that differs in its {_listed(changed)}: choose another --out, or --force to "
        "start again."
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


@cache
def code_digest() -> str:
    """Return a digest of dperm's source: pieces of another version of the code must not be mixed with new ones."""
    total = hashlib.sha256()
    root = Path(dperm.__file__).parent
    for path in sorted(root.rglob("*.py")):
        total.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]
