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

__all__ = ["Finished", "finished_files", "is_finished", "run"]

_SETTINGS = "settings.json"

Finished = tuple[Result, list[Path]]


def finished_files(experiment: Experiment, out: Path) -> list[Path]:
    """Return the files that a run writes at its end."""
    return [out / f"{experiment.name}.{ending}" for ending in FORMATS]


def is_finished(experiment: Experiment, out: Path) -> bool:
    """Whether a folder has a result of this experiment."""
    return any(path.exists() for path in finished_files(experiment, out))


def run(experiment: Experiment, out: Path, data: DataFolder, *, fast: bool, force: bool, show: Show) -> Finished:
    """Run an experiment, or the rest of a run that was interrupted, and write its result.

    ``force`` starts again: the pieces and the result of an earlier run are deleted.
    """
    pieces = out / f"{experiment.name}.pieces"
    if force and pieces.exists():
        shutil.rmtree(pieces)
    if is_finished(experiment, out) and not force:
        path = next(path for path in finished_files(experiment, out) if path.exists())
        raise InvalidInput(f"{str(path)!r} exists: choose another --out, or --force to measure again.")
    pieces.mkdir(parents=True, exist_ok=True)
    settings = experiment.fast if fast else experiment.full
    facts = {
        "experiment": experiment.name,
        "fast": fast,
        "settings": asdict(settings),
        "data": {file: data.digest(file) for file in experiment.data},
        "code": code_digest(),
    }
    _check_same(pieces / _SETTINGS, facts)
    began = time.perf_counter()
    result = experiment.measure(Run(settings, data, pieces, show))
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
    try:
        before = json.loads(path.read_text("utf-8"))
        changed = [name for name in facts if before[name] != json.loads(json.dumps(facts[name]))]
    except (ValueError, KeyError, TypeError):
        changed = ["settings"]
    if changed:
        raise InvalidInput(
            f"{str(path.parent)!r} has pieces of a run that differs in its {_listed(changed)}: choose another --out, "
            "or --force to start again."
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
