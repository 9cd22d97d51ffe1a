"""One run of mutation testing: copy the repository, find the tests of every line, draw the sample, run it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .coverage_map import CoverageMap, files_of_tests
from .runner import Runner
from .sampling import Mutant
from .selection import selected
from .session import Session
from .tree import copy_tree, environment, sources

#: test files that are measured in one process; then the result is written, and a run that is stopped goes on there
_TOGETHER = 8
#: seconds for one file: a test that is stopped may leave a lock closed, and the next one then waits for ever
_LONGEST_FILE = 600.0
_UNTESTED = {"outcome": "survived", "by": None, "ran": 0}


class Run:
    """A repository, and the folder in which its mutants are made (``.mutants``)."""

    def __init__(self, root: Path, work: Path) -> None:
        self._work = work
        self.tree = work / "tree"
        self.source = self.tree / "src" / "dperm"
        work.mkdir(parents=True, exist_ok=True)
        copy_tree(root, self.tree)

    def coverage(self, measure: str = "changed") -> CoverageMap:
        """Return the tests of every line; tests that are new or have changed (or all, or none) are run once."""
        path = self._work / "coverage.json"
        known = CoverageMap() if measure == "all" else CoverageMap.read(path)
        known.move_to(sources(self.tree))
        if measure != "none":
            self._measure_changed(known, path)
        known.write(path)
        return known

    def _measure_changed(self, known: CoverageMap, path: Path) -> None:
        files = files_of_tests(self.tree)
        stale = [file for file, digest in files.items() if known.files.get(file) != digest]
        known.forget({*stale, *(file for file in known.files if file not in files)})
        for start in range(0, len(stale), _TOGETHER):
            wanted = stale[start : start + _TOGETHER]
            print(f"measuring which lines {len(stale) - start} test files run, next {wanted[0]} ...", flush=True)
            known.add(self._measure(wanted))
            known.files |= {file: files[file] for file in wanted}
            known.write(path)

    def session(self, chosen: list[Mutant], known: CoverageMap) -> Session:
        """Return the record of some mutants, with the results that are still valid: a new test may kill a survivor."""
        tests = {**files_of_tests(self.tree), "measured": "\n".join(sorted(known.cost))}
        return Session(self._work / "session.sqlite", chosen, sources(self.tree), tests)

    def run(self, mutants: list[Mutant], known: CoverageMap, session: Session, seconds: float, runner: Runner) -> None:
        """Run mutants one by one, each with tests of so many seconds, and record what came of them."""
        tally = Counter[str]()
        for number, one in enumerate(mutants, 1):
            start, tests = time.monotonic(), selected(one, known, seconds)
            with runner.changed(one.file, one.text):
                result = runner.run(tests) if tests else _UNTESTED
            session.record(one, result)
            tally[result["outcome"]] += 1
            said = f"{time.monotonic() - start:.0f} s, {result['by'] or str(result['ran']) + ' tests'}"
            print(f"{number}/{len(mutants)} {result['outcome']} {one.key} {one.file}:{one.line} {said}", flush=True)
        print(", ".join(f"{count} {outcome}" for outcome, count in tally.items()), flush=True)
        by = {str(found["by"]) for one in mutants if (found := session.outcome(one)) is not None}
        self._check({test: known.cost[test] for test in sorted(by & known.cost.keys())}, runner)

    def _check(self, killers: dict[str, float], runner: Runner) -> None:
        """Run every test that killed on the original code: one that fails there too has killed nothing."""
        result = runner.run(killers) if killers else _UNTESTED
        if result["outcome"] != "survived":
            raise SystemExit(
                f"{result['by']} fails on the original code too: what it killed is not known to be killed."
            )

    def _measure(self, files: list[str]) -> dict[str, Any]:
        """Measure files in one process, or each in its own if that does not end; one that hangs is left out."""
        result, log = self._work / "measured.json", self._work / "measure.log"
        result.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tools.mutants.measure", str(result), str(self.source), *files]
        with log.open("w") as out:
            try:
                subprocess.run(
                    command,
                    cwd=self.tree,
                    env=environment(self.tree),
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    timeout=_LONGEST_FILE * len(files),
                )
            except subprocess.TimeoutExpired:
                if len(files) == 1:
                    print(f"{files[0]} does not end when it is measured, and is left out.", flush=True)
                    return {}
                return {test: found for file in files for test, found in self._measure([file]).items()}
        if not result.exists():
            raise SystemExit(f"The tests could not be measured: see {log}.")
        return dict(json.loads(result.read_text("utf-8")))
