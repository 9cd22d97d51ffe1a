"""Faults between real processes: afterwards the same result as an undisturbed run, or a clear refusal."""

from __future__ import annotations

import json
import shutil
import time
from itertools import groupby

import pytest

from dperm.vertical.methods.connection_test import ConnectionTestHandler
from dperm.vertical.session.simulate import simulate
from dperm.vertical.session.spec import RunSpec

PARTIES = ("org-a", "org-b", "org-c")
EVERYBODY = ("lab", *PARTIES)


@pytest.fixture(scope="module")
def undisturbed():
    spec = RunSpec("trial", "connection-test", PARTIES, {"rows": 50, "rounds": 12})
    return simulate(spec, ConnectionTestHandler(), {name: ConnectionTestHandler(name) for name in PARTIES})["digest"]


def _completes(consortium, undisturbed):
    assert consortium.wait("lab") == 0, consortium.log("lab")
    assert consortium.digest() == undisturbed
    for name in PARTIES:
        assert consortium.wait(name) == 0, consortium.log(name)


def _steps_of(consortium, name):
    """Return the steps that a party computed or answered again, in order."""
    return [line["step"] for line in consortium.audit(name) if line["what"] == "answered"]


def test_a_run_without_faults(consortium, undisturbed):
    consortium.configure()
    consortium.start(*EVERYBODY)
    _completes(consortium, undisturbed)
    # on a busy machine a request may be repeated, and is answered again; no step is left out or taken twice
    steps = [step for step, _ in groupby(_steps_of(consortium, "org-a"))]
    assert steps == list(range(16))


def test_a_party_is_killed(consortium, undisturbed):
    consortium.configure(pause=0.05)
    consortium.start(*EVERYBODY)
    consortium.until_step(5)
    consortium.kill("org-b")
    time.sleep(0.3)
    consortium.start("org-b")
    _completes(consortium, undisturbed)
    assert any(line["event"] == "lost" and line["party"] == "org-b" for line in consortium.audit("lab"))


def test_the_coordinator_is_killed(consortium, undisturbed):
    consortium.configure(pause=0.05)
    consortium.start(*EVERYBODY)
    consortium.until_step(5)
    consortium.kill("lab")
    consortium.start("lab")
    _completes(consortium, undisturbed)
    resumed = [line for line in consortium.audit("lab") if line["event"] == "resumed"]
    assert len(resumed) == 1
    assert resumed[0]["step"] >= 5  # that step was over; it is asked again if the kill came before it was written down
    assert resumed[0]["attempt"] == 1


def test_everybody_is_killed(consortium, undisturbed):
    consortium.configure(pause=0.05)
    consortium.start(*EVERYBODY)
    consortium.until_step(4)
    consortium.kill("lab", "org-a")
    consortium.kill("org-b", "org-c")
    consortium.start(*EVERYBODY)
    _completes(consortium, undisturbed)


def test_a_link_is_cut_and_restored(consortium, undisturbed, proxy_to):
    proxy = proxy_to(consortium.port)
    consortium.configure(pause=0.05, org_c={"coordinator": f"127.0.0.1:{proxy.port}"})
    consortium.start(*EVERYBODY)
    consortium.until_step(4)
    proxy.cut()
    time.sleep(0.5)
    proxy.restore()
    _completes(consortium, undisturbed)


def test_a_slow_party_is_waited_for(consortium, undisturbed):
    consortium.configure(org_b={"pause": 0.2})
    consortium.start(*EVERYBODY)
    _completes(consortium, undisturbed)


def test_a_run_stopped_by_an_absent_party_can_be_resumed(consortium, undisturbed):
    consortium.configure(pause=0.02, patience=1)
    consortium.start("lab", "org-a", "org-b")
    assert consortium.wait("lab") == 1
    assert "org-c did not answer for 1 seconds" in consortium.log("lab")
    assert consortium.wait("org-a") == 1
    assert "was stopped" in consortium.log("org-a")
    consortium.wait("org-b")
    consortium.configure(pause=0.0)
    consortium.start(*EVERYBODY)
    _completes(consortium, undisturbed)


def test_a_wrong_certificate(consortium, consortium_keys):
    """A party whose key and certificate come from an authority of its own."""
    from dperm.vertical.identity.keys import create_authority, create_request, install, sign_request

    consortium.configure(patience=2)
    keys = consortium.root / "org-a" / "keys"
    shutil.rmtree(keys)
    create_authority(consortium.root / "fake")
    create_request(keys, "org-a")
    _, path = sign_request(consortium.root / "fake", keys / "org-a.csr")
    install(keys, path, consortium.root / "fake" / "ca.crt")
    consortium.start(*EVERYBODY)
    assert consortium.wait("org-a") == 1
    assert "did not prove to be the coordinator" in consortium.log("org-a")
    # it lies about its authority: its own certificate is still not accepted by anybody
    shutil.copy(consortium_keys / "ca" / "ca.crt", keys / "ca.crt")
    consortium.start("org-a")
    assert consortium.wait("org-a") == 1
    assert "not from this run's authority" in consortium.log("org-a")
    assert consortium.wait("lab") == 1


def test_a_revoked_party_is_disconnected_at_once(consortium):
    consortium.configure(rounds=400, pause=0.05, patience=2)
    consortium.start(*EVERYBODY)
    consortium.until_step(4)
    consortium.revoke("org-b")
    assert consortium.wait("org-b") == 1
    assert "was revoked" in consortium.log("org-b")
    assert consortium.wait("lab") == 1
    assert "org-b did not answer" in consortium.log("lab")


def test_an_unknown_party_is_refused(consortium, undisturbed):
    consortium.configure()
    text = (consortium.root / "org-a" / "config.toml").read_text().replace("org-a", "org-x")
    shutil.copytree(consortium.keys / "org-x", consortium.root / "org-x" / "keys")
    (consortium.root / "org-x" / "config.toml").write_text(text)
    consortium.start("lab", "org-x")
    assert consortium.wait("org-x") == 1
    assert "org-x is not on the coordinator's roster" in consortium.log("org-x")
    consortium.start(*PARTIES)
    _completes(consortium, undisturbed)


def test_mismatched_rows_are_refused(consortium):
    consortium.configure(org_c={"rows": 51})
    consortium.start(*EVERYBODY)
    assert consortium.wait("lab") == 2
    assert "org-c has 51" in consortium.log("lab")
    assert consortium.wait("org-a") == 1
    assert "align" in consortium.log("org-a")


def test_a_wiped_disk_is_refused(consortium):
    consortium.configure(pause=0.05)
    consortium.start(*EVERYBODY)
    consortium.until_step(5)
    consortium.kill("org-b")
    shutil.rmtree(consortium.root / "org-b" / "state")
    consortium.start("org-b")
    assert consortium.wait("lab") == 1
    assert "no record of run 'trial'" in consortium.log("lab")
    assert consortium.wait("org-b") == 1
    assert "restore its folder" in consortium.log("org-b")


def test_a_finished_run_is_not_run_again(consortium, undisturbed):
    consortium.configure()
    consortium.start(*EVERYBODY)
    _completes(consortium, undisturbed)
    consortium.start("lab")
    assert consortium.wait("lab") == 0  # it tells the result again, without asking anybody
    assert json.loads(json.dumps(consortium.log("lab"))).count(undisturbed) == 2
