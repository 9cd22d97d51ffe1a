"""A collector in a process of its own, on the loopback interface."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dperm.collect import Collection

SPEED = {
    "kind": "logistic",
    "epsilon": 1.0,
    "names": ["seconds", "mobile"],
    "bounds": {"features": [[0.0, 0.0], [10.0, 1.0]]},
    "classes": ["left", "stayed"],
    "degree": 2,
}


@dataclass
class Collector:
    """A running service: where it is, its process, everything it printed, and the secret of batches."""

    url: str
    process: subprocess.Popen[str]
    log: Path
    batch_secret: str

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def printed(self) -> str:
        """What the service printed since it started; for one that has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.read() + self.log.read_text()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def _started(folder: Path, database: str, *options: str) -> Iterator[Collector]:
    log, secret = folder / "stderr.log", str(folder / "batch-secret")
    command = [sys.executable, "-m", "dperm", "collect", "serve", str(folder / "speed.json")]
    with log.open("a") as errors:
        process = subprocess.Popen(
            # everybody here sends from one address; options given later take precedence
            [*command, "--port", "0", "--database", database, "--source-rate", "0", "--batch-secret", secret, *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        assert "http://" in first, log.read_text()
        yield Collector(first.split()[2].rstrip("/"), process, log, Path(secret).read_text().strip())
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()


@pytest.fixture
def speed(tmp_path: Path) -> Collection:
    one = Collection("speed", SPEED, "Does waiting drive people away?")
    one.write(tmp_path / "speed.json")
    return one


@pytest.fixture
def start(tmp_path: Path, speed: Collection) -> Iterator[Callable[..., Collector]]:
    with ExitStack() as stack:

        def run(*options: str, database: str | None = None) -> Collector:
            return stack.enter_context(_started(tmp_path, database or str(tmp_path / "collect.db"), *options))

        yield run
