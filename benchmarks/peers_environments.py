"""Virtual environments of the peers: built on first use from their requirements, separate from dperm's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

#: why environments could not be built: a run asks pip once for each, not once for each data set
_failed: dict[Path, str] = {}


class Unavailable(Exception):
    """An environment cannot be built or a worker failed; the message is one sentence."""


def python_of(name: str, cache: Path, kind: str = "peers") -> Path:
    """Return the Python of an environment, which is built if missing or if its requirements changed.

    The requirements are those of the file ``requirements-<kind>-<name>.txt`` in this folder.
    """
    if name == "dperm":
        return Path(sys.executable)
    folder, requirements = cache / name, HERE / f"requirements-{kind}-{name}.txt"
    stamp, python = folder / "installed.txt", folder / "bin" / "python"
    if stamp.exists() and stamp.read_text() == requirements.read_text() and python.exists():
        return python
    if folder in _failed:
        raise Unavailable(_failed[folder])
    print(f"building the environment of {name} in {folder} ...", flush=True)
    install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-r", str(requirements)]
    for command in ([sys.executable, "-m", "venv", "--clear", str(folder)], install):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            log = cache / f"{name}.log"
            log.write_text(done.stdout + done.stderr)
            _failed[folder] = f"the environment of {name} could not be built (pip's answer is in {log.name} there)"
            raise Unavailable(_failed[folder])
    stamp.write_text(requirements.read_text())
    return python


def run_worker(name: str, cache: Path, script: str, *arguments: Path, kind: str = "peers") -> None:
    """Run a script of this folder with the Python of an environment, in one thread."""
    command = [str(python_of(name, cache, kind)), str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, **ONE_THREAD}, stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Unavailable(f"the worker of {name} ended with code {done.returncode}")
