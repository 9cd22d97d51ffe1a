"""The record of a run, in Cosmic Ray's own database: a run that is stopped goes on where it was.

A kill is believed again as long as the mutated file and the file of the test that killed are as they were; a survival
only as long as nothing at all has changed. ``cr-report .mutants/session.sqlite`` shows the record too.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from cosmic_ray.work_db import WorkDB
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

from .sampling import Mutant


class Session:
    """Results of mutants by key, each valid for one state of code and tests."""

    def __init__(self, path: Path, chosen: list[Mutant], texts: dict[str, str], tests: dict[str, str]) -> None:
        self._texts, self._tests = texts, tests
        self._db = WorkDB(str(path), WorkDB.Mode.create)
        old = {key: json.loads(result.output or "{}") for key, result in self._db.results}
        self._db.clear()
        self._db.add_work_items(WorkItem.single(one.key, _specification(one)) for one in chosen)
        self._results: dict[str, dict[str, Any]] = {}
        for one in chosen:
            result = old.get(one.key)
            if result is not None and result["valid_for"] == self._validity(one, result):
                self._store(one, result)

    def outcome(self, mutant: Mutant) -> dict[str, Any] | None:
        """Return what came of a mutant; None if that is not known for the present code and tests."""
        return self._results.get(mutant.key)

    def record(self, mutant: Mutant, result: dict[str, Any]) -> None:
        self._store(mutant, {**result, "valid_for": self._validity(mutant, result)})

    def close(self) -> None:
        self._db.close()

    def _store(self, mutant: Mutant, result: dict[str, Any]) -> None:
        self._results[mutant.key] = result
        outcome = TestOutcome.SURVIVED if result["outcome"] == "survived" else TestOutcome.KILLED
        self._db.set_result(mutant.key, WorkResult(WorkerOutcome.NORMAL, json.dumps(result), outcome, mutant.diff))

    def _validity(self, mutant: Mutant, result: dict[str, Any]) -> str:
        if result["outcome"] == "survived":
            return "everything " + _digest(self._texts) + _digest(self._tests)
        killer = str(result["by"]).removeprefix("import of ").partition("::")[0]
        return "file and test " + _digest({"": self._texts[mutant.file]}) + self._tests.get(killer, "")


def _digest(texts: dict[str, str]) -> str:
    return hashlib.sha256("\0".join(f"{name}\0{text}" for name, text in sorted(texts.items())).encode()).hexdigest()[
        :16
    ]


def _specification(mutant: Mutant) -> MutationSpec:
    at = mutant.position
    return MutationSpec(
        module_path=f"src/dperm/{at.file}",
        operator_name=at.operator,
        occurrence=at.occurrence,
        start_pos=at.start,
        end_pos=at.end,
        definition_name=at.where or None,
    )
