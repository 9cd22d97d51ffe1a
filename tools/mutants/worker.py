"""Run in a process of its own: runs tests on request, each time in a fork that has its imports done.

Reads requests from standard input, one JSON object a line: ``tests``, in order, each with the seconds of processor time
after which it has hung, and ``start``, the seconds for all else. Answers with ``outcome`` (survived, killed, timeout),
``by`` (what killed the mutant) and ``ran`` (how many tests ran). Before the fork only those parts of dperm are imported
that no mutant touches.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_MODULES = (
    "cryptography.hazmat.primitives.ciphers",
    "dp_accounting",
    "hypothesis.extra.numpy",
    "mpmath",
    "numba",
    "opendp.prelude",
    "pandas",
    "scipy.integrate",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.special",
    "scipy.stats",
    "sklearn.linear_model",
    "sklearn.metrics",
    "sklearn.model_selection",
    "sklearn.pipeline",
    "sklearn.utils.estimator_checks",
    "sqlite3",
)
_UNMUTATED = (
    "dperm.kernels",
    "dperm.objective",
)  # see the layers in pyproject.toml: they import nothing that is mutated
_BROKEN = 70  # code of a process in which pytest itself failed; tests that end their process have others
_OUT_OF_TIME = (signal.SIGPROF, signal.SIGXCPU, signal.SIGKILL)
_WAIT = 5  # times the processor seconds: other processes share the machine


class Chosen:
    """Plugin: runs some tests in a given order and remembers the first that fails."""

    def __init__(self, tests: dict[str, float]) -> None:
        self._limits = tests
        self._rank = {test: rank for rank, test in enumerate(tests)}
        self.by: str | None = None
        self.ran = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[Any]:
        result = yield
        items[:] = sorted(
            (item for item in items if item.nodeid in self._rank), key=lambda item: self._rank[item.nodeid]
        )
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        signal.setitimer(signal.ITIMER_PROF, self._limits[item.nodeid])  # ends the process when it has run out
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.by is None:
            self.by = f"import of {report.nodeid}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran += report.when == "call"
        if report.failed and self.by is None:
            self.by = report.nodeid


def main() -> None:
    if "--warm" in sys.argv:
        _import_all()
    gc.freeze()  # a fork then copies less
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(_run(request["tests"], request["start"])), flush=True)


def _import_all() -> None:
    for name in _MODULES:
        importlib.import_module(name)
    for name in _UNMUTATED:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__, f"{name}."):
            importlib.import_module(module.name)


def _run(tests: dict[str, float], start: float) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(tests, start, writing)
    os.close(writing)
    status, answer = _wait(child, (start + sum(tests.values())) * _WAIT), os.fdopen(reading).read()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # whatever the tests left behind
    if status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in _OUT_OF_TIME):
        return {"outcome": "timeout", "by": "no end", "ran": 0}
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == _BROKEN:
        raise RuntimeError("pytest could not run: see tests.log in the copy of the repository.")
    if not answer:
        return {"outcome": "killed", "by": f"end of the process with status {status}", "ran": 0}
    return dict(json.loads(answer))


def _wait(child: int, seconds: float) -> int | None:
    """Wait for a process; None if it did not end in time and was killed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _child(tests: dict[str, float], start: float, writing: int) -> None:
    os.setsid()
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + start + sum(tests.values())) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    log = os.open("tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    chosen = Chosen(tests)
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    options = ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not slow"]
    try:
        code = pytest.main([*options, *files], plugins=[chosen])
    except BaseException:
        traceback.print_exc()
        os._exit(_BROKEN)
    sys.stdout.flush()
    if code == pytest.ExitCode.OK:
        answer = {"outcome": "survived", "by": None, "ran": chosen.ran}
    elif code == pytest.ExitCode.NO_TESTS_COLLECTED:
        answer = {"outcome": "killed", "by": "the tests have other parameters", "ran": 0}
    else:
        answer = {"outcome": "killed", "by": chosen.by or "import of conftest.py", "ran": chosen.ran}
    with os.fdopen(writing, "w") as pipe:
        pipe.write(json.dumps(answer))
    os._exit(0)


if __name__ == "__main__":
    assert Path("tests").is_dir(), "run this in the copy of the repository"
    main()
