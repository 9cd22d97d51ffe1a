"""Runs the tests of mutants one after the other in the copy of the repository."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .tree import environment

#: a test hangs when it takes this multiple of the processor seconds that it takes without a mutant, and some
_HANGING, _SOME = 4.0, 5.0
_START = 30.0  # seconds for imports and for finding the tests


class Runner:
    """A worker process, and the copy of the repository that it runs tests in."""

    def __init__(self, tree: Path, *, warm: bool = True, some: float = _SOME) -> None:
        self._tree, self._some = tree, some
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.mutants.worker", *(["--warm"] if warm else [])],
            cwd=tree,
            env=environment(tree),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def run(self, tests: dict[str, float]) -> dict[str, Any]:
        """Run tests in order; each is given with the processor seconds that it takes on the original code."""
        assert self._process.stdin is not None
        limits = {test: self._some + _HANGING * seconds for test, seconds in tests.items()}
        request = {"tests": limits, "start": _START}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    @contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """Put other text into a file of the library for a while."""
        path = self._tree / "src" / "dperm" / file
        original = path.read_bytes()
        try:
            path.write_text(text, "utf-8")
            yield
        finally:
            path.write_bytes(original)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that runs the tests of mutants has ended.")
        return dict(json.loads(line))
