"""Real processes of `dperm vertical` on the loopback, started quickly from a server that has imported everything."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dperm.vertical.identity.keys import create_authority, create_request, install, revoke, sign_request
from dperm.vertical.identity.keys import read_certificate as _read

PARTIES = ("org-a", "org-b", "org-c")

_COMMAND = """
import os, sys
os.chdir({cwd!r})
log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.dup2(log, 1); os.dup2(log, 2)
sys.argv = {argv!r}
from dperm.cli.main import main
main()
"""


class Proxy:
    """A link that can be cut and restored."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[socket.socket] = []
        self._open = True
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if not self._open:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                self._pairs += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    @staticmethod
    def _pump(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        with self._lock:
            self._open = False
            for one in self._pairs:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
            self._pairs = []

    def restore(self) -> None:
        with self._lock:
            self._open = True

    def close(self) -> None:
        self.cut()
        self._listener.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@dataclass
class Consortium:
    """Three parties and a coordinator, each with keys and a folder of its own."""

    root: Path
    keys: Path
    context: Any
    port: int = field(default_factory=free_port)
    processes: dict[str, Any] = field(default_factory=dict)

    def configure(self, rounds: int = 12, pause: float = 0.0, **changes: Any) -> None:
        for name in PARTIES:
            settings = {"rows": 50, "pause": pause, "coordinator": f"127.0.0.1:{self.port}", "patience": 30}
            settings |= changes.get(name.replace("-", "_"), {})
            lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
            self.write_config(name, ['name = "{}"'.format(changes.get("called", {}).get(name, name)), *lines])
        run = {
            "name": "trial",
            "method": "connection-test",
            "parties": list(PARTIES),
            "secure_sum": True,
            "out": "out.json",
        }
        lines = ['name = "lab"', f'listen = "127.0.0.1:{self.port}"', f'revoked = "{self.root}/ca/revoked.pem"']
        lines += [f"patience = {changes.get('patience', 30)}", "[run]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in run.items()]
        self.write_config("lab", [*lines, "[run.options]", "rows = 50", f"rounds = {rounds}"])

    def write_config(self, name: str, lines: list[str]) -> None:
        folder = self.root / name
        if not (folder / "keys").exists():
            shutil.copytree(self.keys / name, folder / "keys")
        (folder / "config.toml").write_text("\n".join(lines) + "\n")
        if not (self.root / "ca").exists():
            shutil.copytree(self.keys / "ca", self.root / "ca")

    def start(self, *names: str, command: tuple[str, ...] | None = None) -> None:
        for name in names:
            verb = command or (("coordinator", "--quiet") if name == "lab" else ("party",))
            argv = ["dperm", "vertical", verb[0], str(self.root / name / "config.toml"), *verb[1:]]
            code = _COMMAND.format(cwd=str(self.root / name), log=str(self.root / name / "log"), argv=argv)
            process = self.context.Process(target=exec, args=(code, {"__name__": "__main__"}))
            process.start()
            self.processes[name] = process

    def kill(self, *names: str) -> None:
        for name in names:
            os.kill(self.processes[name].pid, signal.SIGKILL)
            self.processes[name].join(10)

    def wait(self, name: str, timeout: float = 40.0) -> int:
        self.processes[name].join(timeout)
        code = self.processes[name].exitcode
        assert code is not None, f"{name} is still running:\n{self.log(name)}"
        return int(code)

    def log(self, name: str) -> str:
        path = self.root / name / "log"
        return path.read_text() if path.exists() else ""

    def audit(self, name: str) -> list[dict[str, Any]]:
        path = self.root / name / "state" / "audit.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def until(self, condition: Any, timeout: float = 30.0) -> None:
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, "\n".join(f"--- {name}\n{self.log(name)}" for name in self.processes)
            time.sleep(0.02)

    def until_step(self, step: int) -> None:
        """Wait until the coordinator has finished a step."""
        self.until(lambda: any(line["event"] == "step" and line["step"] >= step for line in self.audit("lab")))

    def digest(self) -> str:
        return next(line.split()[-1] for line in self.log("lab").splitlines() if "digest" in line)

    def revoke(self, name: str) -> None:
        revoke(self.root / "ca", _read(self.root / name / "keys" / f"{name}.crt"))

    def close(self) -> None:
        for process in self.processes.values():
            if process.is_alive():
                process.kill()
            process.join(10)
            process.close()


@pytest.fixture(scope="session")
def consortium_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("consortium")
    create_authority(root / "ca")
    for name in (*PARTIES, "org-x", "lab"):
        create_request(root / name, name)
        _, path = sign_request(root / "ca", root / name / f"{name}.csr", ["127.0.0.1"] if name == "lab" else [])
        install(root / name, path, root / "ca" / "ca.crt")
    return root


@pytest.fixture(scope="session")
def processes() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["dperm.cli.main", "dperm.vertical.participant.policy", "dperm.vertical.transport.grpc_link"]
    )
    return context


@pytest.fixture
def consortium(tmp_path: Path, consortium_keys: Path, processes: Any) -> Any:
    made = Consortium(tmp_path, consortium_keys, processes)
    yield made
    made.close()


@pytest.fixture
def proxy_to() -> Any:
    made: list[Proxy] = []

    def make(port: int) -> Proxy:
        made.append(Proxy(port))
        return made[-1]

    yield make
    for one in made:
        one.close()
