"""Run in a process of its own: some test files under coverage.py, each test as a context; writes what ran which line.

python -m tools.mutants.measure <result file> <source folder> <test file> ...
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import coverage
import pytest

_SHARED = "shared fixture "
LONGEST = (
    10.0  # processor seconds; a test that takes longer is stopped and never chosen: a mutant has few seconds in all
)
#: folder of coverage.py, and processor seconds after which a test that was in it is asked again
_COVERAGE, _SOON = os.path.dirname(coverage.__file__) + os.sep, 0.01


class TooLong(BaseException):
    """A test has run out of its time; not an ``Exception``, which it might catch."""


def _stop(number: int, frame: FrameType | None) -> None:
    """End the test, but not everywhere: where it must not end, wait a little.

    Inside coverage.py a lock would stay closed for ever. A frame may be at an instruction that belongs to no line, and
    pytest cannot show a failure there.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith(_COVERAGE) or frame.f_lineno is None:
            signal.setitimer(signal.ITIMER_PROF, _SOON)
            return
        frame = frame.f_back
    raise TooLong


class Contexts:
    """Plugin: names the running test to coverage.py and takes its processor time."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self._start = 0.0
        self.seconds: dict[str, float] = {}
        self.shared: dict[str, list[str]] = {}  # of each test, the contexts of its shared fixtures
        self.passed: dict[str, bool] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self._measured.switch_context(item.nodeid)
        self.passed[item.nodeid] = True
        known = getattr(item, "_fixtureinfo", None)
        definitions = [one for found in known.name2fixturedefs.values() for one in found] if known else []
        self.shared[item.nodeid] = [_context(one) for one in definitions if one.scope != "function"]
        self._start = _processor_seconds()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = _processor_seconds() - self._start
            self._measured.switch_context("")

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Iterator[Any]:
        # only while the test itself runs: what is raised there is a failure, anywhere else it would end the session
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[Any]:
        if fixturedef.scope == "function":
            return (yield)
        self._measured.switch_context(_context(fixturedef))
        try:
            return (yield)
        finally:
            self._measured.switch_context(request.node.nodeid if request.scope == "function" else _running())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:  # skipped ones kill nothing either
            self.passed[report.nodeid] = False


def _context(fixturedef: Any) -> str:
    return f"{_SHARED}{fixturedef.baseid}::{fixturedef.argname}"


def _running() -> str:
    """The test whose set-up asked for a fixture, as pytest tells it."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def _processor_seconds() -> float:
    times = os.times()  # with those of child processes; elapsed time says little on a machine that others use too
    return times.user + times.system + times.children_user + times.children_system


def main(result: Path, source: Path, files: list[str]) -> int:
    measured = coverage.Coverage(data_file=None, source=[str(source)], config_file=False)
    contexts = Contexts(measured)
    signal.signal(signal.SIGPROF, _stop)
    measured.start()
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not slow", *files], plugins=[contexts])
    measured.stop()
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):  # tests were left out: no result
        return int(code)
    data, by_context = measured.get_data(), dict[str, dict[str, list[int]]]()
    for file in data.measured_files():
        name = Path(file).relative_to(source).as_posix()
        for line, names in data.contexts_by_lineno(file).items():
            for context in names:
                by_context.setdefault(context, {}).setdefault(name, []).append(line)
    found = {}
    for test in (test for test, passed in contexts.passed.items() if passed):
        lines: dict[str, set[int]] = {}
        for context in (test, *contexts.shared[test]):
            for name, numbers in by_context.get(context, {}).items():
                lines.setdefault(name, set()).update(numbers)
        found[test] = [contexts.seconds[test], {name: sorted(numbers) for name, numbers in lines.items()}]
    result.write_text(json.dumps(found), "utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
