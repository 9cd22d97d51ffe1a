"""Compare a round of the vertical runtime with a bare gRPC + TLS round trip of the same bytes.

Three party processes on the loopback. Bare: the coordinator streams an n-vector of doubles to each party in pieces of
1 MiB, and each streams one back; nothing is encoded, checked, stored or masked. Runtime: the same vectors through the
session (encoding, digests, state and reply on disk before they are sent, the coordinator's state on disk after the
round), without and with the secure sum. Rounds of both kinds alternate, so that a busy machine slows both.

    python benchmarks/vertical_rounds.py [--rows 1000000] [--rounds 15] [--runs 7] [--out results/vertical_rounds.json]

Every run has new processes. Output: all runs; the median, smallest and largest ratio of a run's medians; and the
machine's load before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import numpy as np

from dperm.solvers.vertical.protocol import Message
from dperm.vertical.identity.keys import Identity, create_authority, create_request, install, sign_request
from dperm.vertical.session.coordinator import CoordinatorSession
from dperm.vertical.session.party import PartySession
from dperm.vertical.session.spec import PreparedRun, RunSpec
from dperm.vertical.transport.grpc_hub import CHANNEL_OPTIONS, GrpcHub
from dperm.vertical.transport.grpc_link import GrpcLink

PARTIES = ("org-a", "org-b", "org-c")
PIECE = 1 << 20
BARE = "/bare/Echo"
KINDS = ("without secure sum", "with secure sum")


class EchoParty:
    """Answers with n whole numbers, without computing anything."""

    calibrated: Any = None

    def __init__(self, n: int, n_rounds: int) -> None:
        self.n_rounds = n_rounds
        self._scores = np.arange(n)

    def answer(self, request: Message) -> Message:
        return Message("scores", {"scores": self._scores}, summed=frozenset({"scores"}))

    def state(self) -> Message:
        return Message("state", {"weights": np.zeros(20)})

    def restore(self, state: Message) -> None:
        pass


class EchoCoordinator:
    """Sends n doubles; before every round of the runtime it makes a bare one."""

    calibrated: Any = None

    def __init__(self, n: int, n_rounds: int, bare: Bare) -> None:
        self.n_rounds, self.round = n_rounds, 0
        self._residual, self._scores, self._bare = np.random.default_rng(0).normal(size=n), np.zeros(n), bare
        self.bare_seconds: list[float] = []
        self.seconds: list[float] = []
        self._asked: float | None = None

    def requests(self) -> dict[str, Message]:
        if self._asked is not None:
            self.seconds.append(time.perf_counter() - self._asked)
        begun = time.perf_counter()
        self._bare.round(self._residual)
        self.bare_seconds.append(time.perf_counter() - begun)
        self._asked = time.perf_counter()
        return dict.fromkeys(PARTIES, Message("residual", {"residual": self._residual}))

    def absorb(self, replies: Any, totals: Any) -> None:
        self._scores = totals["scores"] * 2.0**-30
        self.round += 1

    def state(self) -> Message:
        return Message("state", {"scores": self._scores}, {"round": self.round})

    def restore(self, state: Message) -> None:
        raise NotImplementedError

    def result(self) -> None:
        return None


class Handler:
    """Handler of the coordinator and of the parties."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def join(self, spec: RunSpec) -> dict[str, int]:
        return {"n": spec.options["rows"]}

    def check(self, spec: RunSpec) -> None:
        pass

    def prepare(self, spec: RunSpec) -> PreparedRun:
        return PreparedRun()

    def program(self, spec: RunSpec, scope: Any) -> Any:
        return self._make(spec)

    def finish_messages(self, spec: RunSpec, program: Any) -> dict[str, Message]:
        return dict.fromkeys(spec.parties, Message("finish"))

    def finish(self, *_: Any) -> None:
        return None


class Bare:
    """The bare round trip: one stream per party, nothing but bytes."""

    def __init__(self, identity: Identity) -> None:
        self._out: dict[str, queue.Queue[Any]] = {}
        self._in: queue.Queue[int] = queue.Queue()
        self._server = grpc.server(ThreadPoolExecutor(16), options=CHANNEL_OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(self._echo)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", {"Echo": handler}),))
        key, certificate, authority = identity.pem()
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
        self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self._server.start()

    def _echo(self, frames: Any, context: Any) -> Any:
        mine: queue.Queue[Any] = queue.Queue()
        self._out[next(frames).decode()] = mine

        def read() -> None:
            got = 0
            for frame in frames:
                got += len(frame)
                if len(frame) < PIECE:
                    self._in.put(got)
                    got = 0

        threading.Thread(target=read, daemon=True).start()
        while (data := mine.get()) is not None:
            yield from pieces(data)

    def wait(self) -> None:
        while len(self._out) < len(PARTIES):
            time.sleep(0.05)

    def round(self, vector: Any) -> None:
        data = memoryview(vector).cast("B")
        for out in self._out.values():
            out.put(data)
        for _ in self._out:
            self._in.get()

    def close(self) -> None:
        for out in self._out.values():
            out.put(None)
        self._server.stop(1).wait()


def pieces(data: memoryview) -> Any:
    for start in range(0, len(data) + 1, PIECE):  # a last, shorter piece ends the message
        yield bytes(data[start : start + PIECE])


def party(name: str, keys: Path, port: int, bare_port: int, rows: int) -> None:
    identity = Identity.load(keys / name, name)
    key, certificate, authority = identity.pem()
    out: queue.Queue[Any] = queue.Queue()
    out.put(name.encode())
    back = memoryview(np.arange(rows)).cast("B")

    def frames() -> Any:
        while True:
            item = out.get()
            if isinstance(item, bytes):
                yield item
            else:
                yield from pieces(item)

    def bare() -> None:
        credentials = grpc.ssl_channel_credentials(authority, key, certificate)
        channel = grpc.secure_channel(f"127.0.0.1:{bare_port}", credentials, options=CHANNEL_OPTIONS)
        for frame in channel.stream_stream(BARE)(frames()):
            if len(frame) < PIECE:
                out.put(back)

    threading.Thread(target=bare, daemon=True).start()
    session = PartySession(
        identity, keys / name / "runs", Handler(lambda spec: EchoParty(spec.options["rows"], spec.options["rounds"]))
    )
    ended: set[str] = set()

    def over(run: str, why: str) -> bool:
        ended.add(run)
        return len(ended) == 2

    GrpcLink(f"127.0.0.1:{port}", lambda: identity, session.answer, over).run()
    session.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--party", nargs=4, metavar=("NAME", "KEYS", "PORT", "BARE"))
    given = parser.parse_args()
    if given.party:
        name, keys, port, bare_port = given.party
        party(name, Path(keys), int(port), int(bare_port), given.rows)
        return
    found: dict[str, Any] = {"rows": given.rows, "parties": len(PARTIES), "rounds": given.rounds}
    found |= {"cores": os.cpu_count(), "load": [round(os.getloadavg()[0], 1)], "runs": []}
    for _ in range(given.runs):
        with tempfile.TemporaryDirectory() as folder:
            found["runs"].append(measure(Path(folder), given.rows, given.rounds))
    found["load"].append(round(os.getloadavg()[0], 1))
    for kind in KINDS:
        ratios = [run[kind]["ratio of medians"] for run in found["runs"]]
        spread = {"median": statistics.median(ratios), "least": min(ratios), "largest": max(ratios)}
        found[f"ratio {kind}"] = spread | {"at most 2": sum(ratio <= 2.0 for ratio in ratios)}
    text = json.dumps(found, indent=1)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")


def measure(root: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Return medians and their ratio, without and with the secure sum."""
    create_authority(root / "ca")
    for name in (*PARTIES, "lab"):
        create_request(root / name, name)
        _, path = sign_request(root / "ca", root / name / f"{name}.csr", ["127.0.0.1"] if name == "lab" else [])
        install(root / name, path, root / "ca" / "ca.crt")
    identity = Identity.load(root / "lab", "lab")
    hub, bare = GrpcHub("127.0.0.1:0", lambda: identity, PARTIES), Bare(identity)
    command = [sys.executable, str(Path(__file__).resolve()), "--rows", str(rows), "--party"]
    processes = [subprocess.Popen([*command, name, str(root), str(hub.port), str(bare.port)]) for name in PARTIES]
    bare.wait()
    found: dict[str, Any] = {}
    for secure_sum, kind in enumerate(KINDS):
        spec = RunSpec(f"bench-{secure_sum}", "echo", PARTIES, {"rows": rows, "rounds": rounds + 1}, bool(secure_sum))
        made: list[EchoCoordinator] = []

        def program(spec: RunSpec, made: list[EchoCoordinator] = made) -> EchoCoordinator:
            made.append(EchoCoordinator(rows, spec.options["rounds"], bare))
            return made[-1]

        CoordinatorSession(spec, root / "lab" / "runs", Handler(program)).run(hub.transport(spec.run, PARTIES))
        ours, theirs = made[0].seconds[1:], made[0].bare_seconds[2:]
        found[kind] = {
            "bare seconds": round(statistics.median(theirs), 4),
            "seconds": round(statistics.median(ours), 4),
            "least bare seconds": round(min(theirs), 4),
            "least seconds": round(min(ours), 4),
            "ratio of least": round(min(ours) / min(theirs), 2),
            "ratio of medians": round(statistics.median(ours) / statistics.median(theirs), 2),
            "median of ratios": round(statistics.median(a / b for a, b in zip(ours, theirs, strict=False)), 2),
        }
    bare.close()
    hub.close()
    for process in processes:
        process.wait(20)
    return found


if __name__ == "__main__":
    main()
