"""Worker processes that run the audited function: many runs, with a limit of time, and one sentence for every error."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from dperm.audit.subject import Limits, Subject
from dperm.audit.tables import AuditTable
from dperm.errors import SubjectFailed
from dperm.types import FloatArray

__all__ = ["Limits", "Pool", "Subject"]

_LENGTHS = struct.Struct(">IQ")
#: seconds of work in one request: long enough to hide its cost, short enough for a smooth progress bar
_BATCH_SECONDS = 0.4
#: seconds for which a worker may import its modules, or receive a table, beyond the limit of one run
_IMPORT_SECONDS = 120.0
#: the same for its first run, in which functions import and compile what they need: that takes many seconds for some
#: libraries, and several times as long on a busy machine
_FIRST_RUN_SECONDS = 120.0
#: a request of many short runs may take this many times as long as runs took before, beyond the limit of one run: runs
#: on other tables, and on a machine that has become busy, take longer
_SLOWER = 20.0
#: what to do about a run that takes too long
_FASTER = "or audit a smaller table (--rows, --features)"
#: first runs of each process that are always made: the second one shows how long a run takes without imports
_FEWEST_FIRST = 2


class _Process:
    """One worker process."""

    def __init__(self, subject: Subject, limits: Limits) -> None:
        self._subject, self._limits = subject, limits
        source = (Path(__file__).parent / "worker.py").read_text("utf-8")
        # one thread for each: the runs themselves are what is made in parallel
        environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        try:
            self._process = subprocess.Popen(
                [subject.python or sys.executable, "-c", source],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
            )
        except OSError as error:
            raise SubjectFailed(f"{subject.python!r} cannot be started: {error.strerror}.") from None
        self._tables: set[str] = set()
        self._table = "a table"
        self._has_run = False
        # the present interpreter finds what this process finds; another one has packages of its own
        path = [*subject.path, *(sys.path if subject.python is None else ())]
        request = {"kind": "load", "module": subject.module, "function": subject.function, "path": path}
        try:
            allowed = limits.run + _IMPORT_SECONDS
            said = f"the import of {subject.name} took longer than {allowed:g} seconds: raise --timeout"
            self.ask(request | {"arguments": subject.arguments}, allowed, said)
        except BaseException:
            self.close()
            raise

    def run(self, request: dict[str, Any], *, seconds: float = 0.0) -> tuple[dict[str, Any], dict[str, Any]]:
        """Send a request for runs; ``seconds`` are allowed beyond the limit of one run, and more for the first."""
        if self._has_run:
            limit, said = self._limits.later
            return self.ask(request, limit + seconds, said)
        allowed = self._limits.run + _FIRST_RUN_SECONDS
        said = (
            f"the first run of {self._subject.name} took longer than --timeout {self._limits.run:g} s and "
            f"{_FIRST_RUN_SECONDS:g} s for imports: raise --timeout"
        )
        first = threading.Timer(self._limits.audit, lambda: self._say_that_it_takes_long(allowed))
        if self._limits.audit < allowed:
            first.start()
        try:
            answer = self.ask(request, allowed, said)
        finally:
            first.cancel()
        self._has_run = True
        return answer

    def _say_that_it_takes_long(self, allowed: float) -> None:
        self._limits.note(
            f"the first run takes longer than the whole audit should ({self._limits.audit:g} s); because it may import "
            f"and compile, it is stopped after {allowed:g} s."
        )

    def ask(
        self, request: dict[str, Any], allowed: float, late_sentence: str, arrays: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Send a request and return the answer, which may take so many seconds."""
        body = _packed(arrays) if arrays else b""
        text = json.dumps(request).encode()
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(allowed, stop)
        timer.start()
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(_LENGTHS.pack(len(text), len(body)) + text + body)
            stdin.flush()
            lengths = stdout.read(_LENGTHS.size)
            if len(lengths) == _LENGTHS.size:
                n_header, n_arrays = _LENGTHS.unpack(lengths)
                header = json.loads(stdout.read(n_header))
                found = stdout.read(n_arrays)
            else:
                raise BrokenPipeError
        except (OSError, ValueError):
            if late.is_set():
                raise SubjectFailed(f"{late_sentence}, {_FASTER}.") from None
            raise SubjectFailed(self._death()) from None
        finally:
            timer.cancel()
        if "unusable" in header:
            raise SubjectFailed(f"{self._subject.name} cannot be audited: {header['unusable']}.")
        if "no_vector" in header:
            raise SubjectFailed(f"{self._subject.name} cannot be audited: {header['no_vector']}.", raised=True)
        if "raised" in header:
            place = f" ({header['place']})" if header["place"] else ""
            raised = header["raised"].rstrip(".")
            raise SubjectFailed(f"{self._subject.name} raised {raised}{place}.", raised=True)
        return header, _unpacked(found)

    def _death(self) -> str:
        code = self._process.wait()
        assert self._process.stderr is not None
        last = self._process.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        said = f": {last[0].rstrip('.')}" if last else ""
        how = f"was ended by signal {-code} (a crash of compiled code, or too little memory)" if code < 0 else ""
        how = how or f"ended with code {code}"
        # before the first run the interpreter itself failed
        advice = (
            "" if not self._tables else f" Call it by itself on {self._table}: it must return, not end the process."
        )
        return f"the process of {self._subject.name} {how}{said}.{advice}"

    def give(self, table: AuditTable) -> str:
        """Send a table once, and return its name."""
        if table.name not in self._tables:
            said = f"a process of {self._subject.name} took too long to receive a table: raise --timeout"
            arrays = {"X": table.X, "y": table.y}
            self.ask({"kind": "table", "name": table.name}, self._limits.run + _IMPORT_SECONDS, said, arrays)
            self._tables.add(table.name)
            self._table = f"a table of {table.X.shape[0]} rows and {table.X.shape[1]} columns"
        return table.name

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):  # what was not sent is lost with the process
                    stream.close()
        self._process.wait()


class Pool:
    """Several worker processes; use it as a context manager.

    Parameters
    ----------
    subject : Subject
    n_workers : int
        Number of processes.
    limits : Limits
        Seconds that runs may take.
    """

    def __init__(self, subject: Subject, *, n_workers: int = 2, limits: Limits | None = None) -> None:
        self.subject, self.n_workers, self.limits = subject, n_workers, limits or Limits()
        self._processes: list[_Process] = []
        #: held while the two numbers below change: every process has a thread that waits for it
        self._lock = threading.Lock()
        #: runs so far
        self.n_runs = 0
        #: measured seconds of one run
        self.seconds_per_run = 0.0
        #: called with the number of runs after every request
        self.progress: Callable[[int], None] = lambda n_runs: None

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor(self.n_workers) as threads:
                each = [self.limits, *[self.limits.silent()] * (self.n_workers - 1)]  # all have the same to say
                starts = [threads.submit(_Process, self.subject, limits) for limits in each]
            for start in starts:
                if start.exception() is None:
                    self._processes.append(start.result())
            for start in starts:
                start.result()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.close()
        self._processes = []

    def count(self, n_runs: int, took: float | None = None, *, weight: float = 1.0) -> None:
        """Count runs that were made, here or by an attack in this process.

        Parameters
        ----------
        took : float, optional
            Seconds of one of them.
        weight : float
            Of this measurement against earlier ones.
        """
        with self._lock:
            self.n_runs += n_runs
            if took is not None:
                before = self.seconds_per_run or took
                self.seconds_per_run = weight * took + (1.0 - weight) * before
            self.progress(self.n_runs)

    def outputs(self, table: AuditTable, n_runs: int) -> FloatArray:
        """Return the vectors of ``n_runs`` runs on one table, one per row."""
        return self.outputs_of([table], n_runs)[0]

    def outputs_of(self, tables: Sequence[AuditTable], n_runs: int) -> list[FloatArray]:
        """Return the vectors of ``n_runs`` runs on each table; the runs on all of them take turns."""
        order = [table for _ in range(n_runs) for table in tables]
        rows = self._shared("run", order, lambda header, arrays: list(arrays["outputs"]))
        stacked = self._stacked(rows)
        return [stacked[k :: len(tables)] for k in range(len(tables))]

    def _stacked(self, rows: list[FloatArray]) -> FloatArray:
        if len({len(row) for row in rows}) > 1:
            raise SubjectFailed(
                f"{self.subject.name} cannot be audited: it returned vectors of different lengths.", raised=True
            )
        return np.array(rows)

    def observe(self, tables: Sequence[AuditTable], n_runs: int) -> list[list[dict[str, str]]]:
        """Return everything that can be seen of ``n_runs`` runs on each table, which take turns."""
        order = [table for _ in range(n_runs) for table in tables]
        seen = self._shared("observe", order, lambda header, arrays: list(header["seen"]))
        return [seen[k :: len(tables)] for k in range(len(tables))]

    def seeded(self, table: AuditTable, seed: int, n_runs: int) -> FloatArray:
        """Return vectors of one process that seeds the global generators of Python and numpy before every run."""
        return self._one_by_one({"kind": "run", "seed": seed}, table, n_runs)

    def forked(self, table: AuditTable, n_runs: int) -> FloatArray | None:
        """Return vectors of forked copies of one process, one run in each; None where processes cannot be forked."""
        if not hasattr(os, "fork"):
            return None
        return self._one_by_one({"kind": "forked"}, table, n_runs)

    def first_runs(self, table: AuditTable, n_runs: int) -> list[FloatArray]:
        """Return the first vectors of every process, which all run the same table; of two processes at least.

        Once two processes differ, the rest of the runs is not made: it would not be looked at.
        """
        if len(self._processes) < 2:  # stays until it has run, also if the function raises an error on a table
            self._processes.append(_Process(self.subject, self.limits.silent()))
        rows: list[list[FloatArray]] = []
        with ThreadPoolExecutor(len(self._processes)) as threads:
            while len(rows) < n_runs and (len(rows) < _FEWEST_FIRST or self._same(rows)):
                rows.append(list(threads.map(lambda process: self._first_run(process, table), self._processes)))
        while len(self._processes) > self.n_workers:
            self._processes.pop().close()
        return [self._stacked([row[k] for row in rows]) for k in range(len(rows[0]))]

    @staticmethod
    def _same(rows: list[list[FloatArray]]) -> bool:
        return all(np.array_equal(row[0], row[1]) for row in rows)

    def _first_run(self, process: _Process, table: AuditTable) -> FloatArray:
        request = {"kind": "run", "tables": [process.give(table)]}
        start = time.perf_counter()
        _, arrays = process.run(request)
        self.count(1, time.perf_counter() - start)  # the last one decides: the first also import and compile
        found: FloatArray = arrays["outputs"][0]
        return found

    def _one_by_one(self, request: dict[str, Any], table: AuditTable, n_runs: int) -> FloatArray:
        """Return vectors of one process, one request for each, so that each has the limit of one run."""
        process, rows = self._processes[0], []
        for _ in range(n_runs):
            _, arrays = process.run(request | {"tables": [process.give(table)]})
            rows.append(arrays["outputs"][0])
            self.count(1)
        return self._stacked(rows)

    def _shared(self, kind: str, order: Sequence[AuditTable], rows_of: Callable[[Any, Any], list[Any]]) -> list[Any]:
        """Let the processes share the runs on a list of tables; the answers come in the order of the list."""
        waiting = list(range(len(order)))[::-1]
        found: list[Any] = [None] * len(order)
        lock = threading.Lock()

        def work(process: _Process) -> None:
            while True:
                with lock:
                    size = int(_BATCH_SECONDS / self.seconds_per_run) if self.seconds_per_run else 1
                    # an even number keeps both tables of a pair in one request
                    size = max(2, min(size, -(-len(waiting) // len(self._processes)))) // 2 * 2
                    batch = [waiting.pop() for _ in range(min(size, len(waiting)))]
                if not batch:
                    return
                for part in [[k] for k in batch] if size == 2 else [batch]:  # long runs have the limit of one run each
                    names = [process.give(order[k]) for k in part]
                    start = time.perf_counter()
                    allowed = _SLOWER * len(part) * self.seconds_per_run if len(part) > 1 else 0.0
                    header, arrays = process.run({"kind": kind, "tables": names}, seconds=allowed)
                    took = (time.perf_counter() - start) / len(part)
                    for k, row in zip(part, rows_of(header, arrays), strict=True):
                        found[k] = row
                    self.count(len(part), took, weight=0.5)  # the speed changes with the table and with the machine

        with ThreadPoolExecutor(len(self._processes)) as threads:
            jobs = [threads.submit(self._guarded, work, process, waiting) for process in self._processes]
        for job in jobs:
            job.result()
        return found

    @staticmethod
    def _guarded(work: Callable[[_Process], None], process: _Process, waiting: list[int]) -> None:
        try:
            work(process)
        except BaseException:
            waiting.clear()  # the others stop after what they are doing
            raise


def _packed(arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _unpacked(body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    with np.load(io.BytesIO(body), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
