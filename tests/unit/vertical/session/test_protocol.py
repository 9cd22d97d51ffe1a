"""The same protocol on every transport: in process, gRPC with mutual TLS, NVIDIA FLARE.

One charged run with noise, whose coordinator repeats, replays, reorders and changes requests, is stopped in the
middle together with all parties and started again: one answer for each request, one charge, the result of a run without
faults.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from dperm.errors import DpermError
from dperm.privacy.ledger import Ledger
from dperm.testing.faulty_transport import FaultyTransport
from dperm.vertical.identity.keys import Identity, create_authority, create_request, install, sign_request
from dperm.vertical.methods.registry import coordinator_handler, spec_from_config
from dperm.vertical.participant.config import read_config
from dperm.vertical.participant.policy import PartyPolicy
from dperm.vertical.session.coordinator import CoordinatorSession
from dperm.vertical.session.party import PartySession
from dperm.vertical.transport.base import InProcess
from dperm.vertical.transport.grpc_hub import GrpcHub
from dperm.vertical.transport.grpc_link import GrpcLink

PARTIES = ("site-1", "site-2")
LAB = "simulator_server"  # FLARE's name of the server in its simulator
DIE_AT = 7
N_STEPS = 5

_CONFIG = """
name = "{name}"
keys = "{keys}"
state = "{folder}/state"
{address}
[data]
file = "{folder}/table.csv"
[ledger]
file = "{folder}/ledger.db"
dataset = "people"
"""
_PARTY = """
[allow]
methods = ["distributed-frank-wolfe"]
epsilon = 1.0
insecure = true
[columns.u]
kind = "number"
low = -2
high = 2
[columns.v]
kind = "number"
low = -2
high = 2
"""
_LAB = """[target]
column = "y"
kind = "number"
low = 0
high = 1
[run]
name = "fit-1"
method = "distributed-frank-wolfe"
parties = ["site-1", "site-2"]
secure_sum = true
out = "{folder}/model.json"
[run.options]
epsilon = 1.0
delta = 1e-6
loss = "squared"
loss_options = {{residual_clip = 2.0}}
penalty = "none"
n_steps = {n_steps}
insecure_seed = 5
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    root = tmp_path_factory.mktemp("keys")
    create_authority(root / "ca")
    for name in (*PARTIES, LAB):
        create_request(root / name, name)
        _, path = sign_request(root / "ca", root / name / f"{name}.csr", ["127.0.0.1"] if name == LAB else [])
        install(root / name, path, root / "ca" / "ca.crt")
    return root


class World:
    """The folders of all participants."""

    def __init__(self, root, keys):
        self.root, self.keys = root, keys
        (root / "configs").mkdir(parents=True)
        rng = np.random.default_rng(0)
        for name in (*PARTIES, LAB):
            folder = root / name
            folder.mkdir()
            columns = ["y"] if name == LAB else ["u", "v"]
            rows = rng.uniform(0, 1, (40, len(columns)))
            lines = [",".join(columns), *(",".join(f"{value:.4f}" for value in row) for row in rows)]
            (folder / "table.csv").write_text("\n".join(lines) + "\n")
            address = 'listen = "127.0.0.1:0"' if name == LAB else 'coordinator = "127.0.0.1:1"'
            text = _CONFIG.format(name=name, keys=keys / name, folder=folder, address=address)
            text += _LAB.format(folder=folder, n_steps=N_STEPS) if name == LAB else _PARTY
            (root / "configs" / f"{name}.toml").write_text(text)

    def config(self, name):
        return read_config(self.root / "configs" / f"{name}.toml")

    def session(self, name):
        identity = Identity.load(self.keys / name, name)
        return PartySession(identity, self.config(name).state / "runs", PartyPolicy(self.config(name), identity))

    def coordinate(self, transport):
        config = self.config(LAB)
        handler = coordinator_handler(config, Identity.load(self.keys / LAB, LAB))
        return CoordinatorSession(spec_from_config(config), config.state / "runs", handler, patience=60).run(transport)

    def weights(self):
        return json.loads((self.root / LAB / "model.json").read_text())["weights"]


def _seen(faulty):
    answers = {f"{party} {step}": said for (party, step), said in faulty.answers.items()}
    return {"refused": faulty.refused, "answers": answers}


def _in_process(world, die_at):
    sessions = {name: world.session(name) for name in PARTIES}
    faulty = FaultyTransport(InProcess({name: one.handle for name, one in sessions.items()}), "site-1", die_at)
    try:
        world.coordinate(faulty)
    except DpermError:
        assert die_at is not None
    finally:
        for one in sessions.values():
            one.close()
    return _seen(faulty)


def _grpc(world, die_at):
    load = {name: (lambda name=name: Identity.load(world.keys / name, name)) for name in (*PARTIES, LAB)}
    hub = GrpcHub("127.0.0.1:0", load[LAB], PARTIES)
    sessions = {name: world.session(name) for name in PARTIES}
    links = [
        GrpcLink(f"127.0.0.1:{hub.port}", load[name], sessions[name].answer, lambda run, why: True, patience=20)
        for name in PARTIES
    ]
    threads = [threading.Thread(target=link.run) for link in links]
    for thread in threads:
        thread.start()
    faulty = FaultyTransport(hub.transport("fit-1", PARTIES), "site-1", die_at)
    try:
        world.coordinate(faulty)
    except DpermError:
        assert die_at is not None
    finally:
        for link in links:
            link.stop()
        for thread in threads:
            thread.join(20)
        hub.close()
        for one in sessions.values():
            one.close()
    return _seen(faulty)


_FLARE = """
import json, os, sys
from pathlib import Path
from dperm.testing.faulty_transport import FaultyTransport
from dperm.vertical.participant import nvflare_site

class Watched(FaultyTransport):
    def close(self, reason=""):
        super().close(reason)
        answers = {f"{party} {step}": said for (party, step), said in self.answers.items()}
        Path(os.environ["SEEN"]).write_text(json.dumps({"refused": self.refused, "answers": answers}))

carrier = nvflare_site.NvflareTransport
die_at = json.loads(os.environ["DIE_AT"])
nvflare_site.NvflareTransport = lambda *given: Watched(carrier(*given), "site-1", die_at)

if __name__ == "__main__":
    from nvflare.private.fed.app.simulator.simulator_runner import SimulatorRunner

    job, workspace = sys.argv[1:]
    sys.exit(SimulatorRunner(job, workspace, clients="site-1,site-2", n_clients=2, threads=2).run())
"""


def _nvflare(world, die_at):
    pytest.importorskip("nvflare", reason="the extra nvflare is not installed")
    from dperm.vertical.participant.nvflare_site import ALLOWED_CLASSES, write_job

    # what every site's operator writes: dperm's two classes and no more
    workspace = world.root / f"workspace-{die_at}"
    (workspace / "local").mkdir(parents=True)
    allowed = {"format_version": 2, "class_allow_list": list(ALLOWED_CLASSES)}
    (workspace / "local" / "resources.json").write_text(json.dumps(allowed))
    script, seen = world.root / "flare.py", world.root / f"seen-{die_at}.json"
    script.write_text(_FLARE)
    done = subprocess.run(
        [sys.executable, str(script), str(write_job(world.root / "job")), str(workspace)],
        env={
            **os.environ,
            "DPERM_NVFLARE": str(world.root / "configs"),
            "SEEN": str(seen),
            "DIE_AT": json.dumps(die_at),
        },
        cwd=world.root,
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert seen.exists(), done.stdout[-3000:]
    return json.loads(seen.read_text())


CARRIERS = {"in process": _in_process, "gRPC": _grpc, "NVIDIA FLARE": _nvflare}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, keys):
    world = World(tmp_path_factory.mktemp("undisturbed") / "world", keys)
    sessions = {name: world.session(name) for name in PARTIES}
    try:
        world.coordinate(InProcess({name: one.handle for name, one in sessions.items()}))
    finally:
        for one in sessions.values():
            one.close()
    return world.weights()


@pytest.fixture(scope="module", params=list(CARRIERS))
def disturbed(request, tmp_path_factory, keys):
    """A run that was stopped in the middle and resumed: the answers and refusals before and after, and the folders."""
    world = World(tmp_path_factory.mktemp("disturbed") / "world", keys)
    carry = CARRIERS[request.param]
    first = carry(world, DIE_AT)
    assert not (world.root / LAB / "model.json").exists()
    return world, (first, carry(world, None))


def test_the_result_is_that_of_an_undisturbed_run(disturbed, undisturbed):
    world, _ = disturbed
    assert world.weights() == undisturbed
    for name in PARTIES:
        own = json.loads((world.root / name / "state" / "models" / "fit-1.json").read_text())
        assert own["weights"] == undisturbed[name]


def test_a_repeated_request_is_answered_from_the_stored_reply(disturbed):
    _, lives = disturbed
    together = {}
    for life in lives:
        for where, said in life["answers"].items():
            together.setdefault(where, []).extend(said)
    assert len(together) == 2 * (3 + 2 * N_STEPS + 1)
    assert all(len(set(said)) == 1 for where, said in together.items())
    assert sum(len(said) > 1 for said in together.values()) >= N_STEPS
    assert len(together[f"site-1 {DIE_AT}"]) >= 2  # before the break and after it


def test_replayed_reordered_and_changed_requests_are_refused(disturbed):
    _, lives = disturbed
    refused = [sentence for life in lives for sentence in life["refused"]]
    for sentence in ("was answered long ago", "is not next", "with different content"):
        assert any(sentence in one for one in refused), sentence
    assert all(one.startswith("site-1 refused") for one in refused)


def test_every_ledger_is_charged_once(disturbed):
    world, _ = disturbed
    for name in (*PARTIES, LAB):
        ledger = Ledger(world.root / name / "ledger.db", dataset="people")
        kinds = [entry["kind"] for entry in ledger.entries()]
        assert kinds.count("reserve") == kinds.count("settle") == 1
        made = sum(e["count"] for e in ledger.entries() if e["kind"] == "release" and e["query"] != "no guarantee")
        assert made == N_STEPS
        assert ledger.spent().reserved_unsettled == 0
