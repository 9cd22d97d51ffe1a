"""Which tests run which line: measured once, kept in a file, carried over when lines move.

The tests run once under coverage.py, each as a context of its own. What a fixture shared by several tests runs counts
for all of them. When a test file changes, only its tests are measured again. When a file of the library changes, its
lines are matched with the old ones by their text; a line that is new is given the tests of its function (see
``selection``). ``--measure all`` measures everything anew.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: tests that may kill a mutant. Left out: records of released values, which any change breaks whether or not it
#: matters, and checks of source text (proofs, layout), which are no tests of what the code does.
TESTS = (
    "tests/unit/privacy",
    "tests/unit/queries",
    "tests/unit/data",
    "tests/unit/estimators",
    "tests/unit/solvers/central",
    "tests/contracts",
    "tests/audit",
)
#: minutes of tests that say little here: those of scikit-learn, of many processes at once, and of vertical runs
LEFT_OUT = ("test_sklearn_checks.py", "test_processes.py", "test_vertical.py", "test_printed_vertical.py")


@dataclass
class CoverageMap:
    """Tests, the seconds of processor time each takes, and for every line the tests that run it."""

    files: dict[str, str] = field(default_factory=dict)  # digest of every test file that was measured
    sources: dict[str, str] = field(default_factory=dict)  # text of every library file, to which lines refer
    tests: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lines: dict[str, dict[int, int]] = field(default_factory=dict)  # file, line, set of tests as bits

    @staticmethod
    def read(path: Path) -> CoverageMap:
        if not path.exists():
            return CoverageMap()
        data = json.loads(path.read_text("utf-8"))
        data["lines"] = {
            file: {int(line): int(bits, 16) for line, bits in found.items()} for file, found in data["lines"].items()
        }
        return CoverageMap(**data)

    def write(self, path: Path) -> None:
        lines = {file: {line: f"{bits:x}" for line, bits in found.items()} for file, found in self.lines.items()}
        data = {"files": self.files, "sources": self.sources, "tests": self.tests, "seconds": self.seconds}
        path.write_text(json.dumps({**data, "lines": lines}), "utf-8")

    @property
    def cost(self) -> dict[str, float]:
        """Seconds of each test."""
        return {test: seconds for test, seconds in zip(self.tests, self.seconds, strict=True) if test}

    def of(self, file: str, lines: Iterable[int]) -> set[int]:
        """Return the numbers of the tests that run any of some lines."""
        bits = 0
        for line in lines:
            bits |= self.lines.get(file, {}).get(line, 0)
        return {number for number in range(bits.bit_length()) if bits >> number & 1}

    def move_to(self, sources: dict[str, str]) -> None:
        """Let lines refer to the present text of the library."""
        for file, text in sources.items():
            if file in self.lines and self.sources.get(file) != text:
                self.lines[file] = _moved(self.lines[file], self.sources.get(file, ""), text)
        self.sources = dict(sources)

    def forget(self, files: Iterable[str]) -> None:
        """Drop the tests of some test files."""
        gone = tuple(f"{file}::" for file in files)
        mask = sum(1 << number for number, test in enumerate(self.tests) if test and test.startswith(gone))
        for found in self.lines.values():
            for line in found:
                found[line] &= ~mask
        # numbers stay: they are the bits of the lines
        self.tests = ["" if test.startswith(gone) else test for test in self.tests]
        self.files = {file: digest for file, digest in self.files.items() if file not in set(files)}

    def add(self, measured: dict[str, Any]) -> None:
        """Take in what ``measure`` found: tests with their seconds, and lines of each."""
        for test, (seconds, found) in measured.items():
            bit = 1 << len(self.tests)
            self.tests.append(test)
            self.seconds.append(seconds)
            for file, lines in found.items():
                known = self.lines.setdefault(file, {})
                for line in lines:
                    known[line] = known.get(line, 0) | bit


def _moved(lines: dict[int, int], old: str, new: str) -> dict[int, int]:
    matches = difflib.SequenceMatcher(a=old.splitlines(), b=new.splitlines(), autojunk=False).get_matching_blocks()
    shift = {a + at + 1: b + at + 1 for a, b, size in matches for at in range(size)}
    return {shift[line]: bits for line, bits in lines.items() if line in shift}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def files_of_tests(tree: Path) -> dict[str, str]:
    """Return every test file that may kill a mutant, with its digest; a conftest.py counts for the files below it."""
    found = {}
    for folder in TESTS:
        for file in (one for one in sorted((tree / folder).rglob("test_*.py")) if one.name not in LEFT_OUT):
            shared = [parent / "conftest.py" for parent in file.parents if parent.is_relative_to(tree)]
            parts = [digest(file), *(digest(one) for one in shared if one.exists())]
            found[file.relative_to(tree).as_posix()] = "-".join(parts)
    return found
