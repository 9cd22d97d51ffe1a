"""A coordinator that replays, reorders and changes messages, against real party processes."""

from __future__ import annotations

import pytest

from dperm.testing.faulty_transport import FaultyTransport
from dperm.vertical.identity.keys import Identity
from dperm.vertical.methods.connection_test import ConnectionTestHandler, ConnectionTestParty
from dperm.vertical.session.coordinator import CoordinatorSession
from dperm.vertical.session.simulate import simulate
from dperm.vertical.session.spec import RunSpec
from dperm.vertical.transport.envelope import Envelope
from dperm.vertical.transport.grpc_hub import GrpcHub

PARTIES = ("org-a", "org-b", "org-c")
SPEC = RunSpec("trial", "connection-test", PARTIES, {"rows": 50, "rounds": 12}, secure_sum=True)


class Damaging(FaultyTransport):
    """Also sends an envelope that cannot be read, once."""

    def __init__(self, inner, victim):
        super().__init__(inner, victim)
        self._damaged = False

    def send(self, party, asked):
        if party == "org-a" and asked.step == 7 and not self._damaged:
            self._damaged = True
            self._inner.send(party, Envelope(7, asked.run, party, asked.step, 0, asked.state, b"of no known kind"))
        return super().send(party, asked)


def test_replayed_reordered_and_changed_messages(consortium):
    consortium.configure()
    keys = consortium.root / "lab" / "keys"
    hub = GrpcHub(f"127.0.0.1:{consortium.port}", lambda: Identity.load(keys, "lab"), PARTIES)
    consortium.start(*PARTIES)
    try:
        session = CoordinatorSession(SPEC, consortium.root / "lab" / "runs", ConnectionTestHandler(), patience=30)
        result = session.run(Damaging(hub.transport("trial", PARTIES), "org-a"))
        for name in PARTIES:
            consortium.wait(name)
    finally:
        hub.close()
    assert (
        result["digest"]
        == simulate(SPEC, ConnectionTestHandler(), {n: ConnectionTestHandler(n) for n in PARTIES})["digest"]
    )
    refused = [line["what"] for line in consortium.audit("org-a") if line["what"].startswith("refused")]
    assert any("was answered long ago" in what for what in refused)
    assert any("is not next" in what for what in refused)
    assert any("with different content" in what for what in refused)
    assert consortium.log("org-a").count("not connected: an envelope cannot be read") == 1  # and it came back
    assert not any(line["what"].startswith("refused") for line in consortium.audit("org-b"))


@pytest.mark.parametrize("bug", ["zeros", "twice"])
def test_the_digest_changes_if_a_party_loses_or_repeats_a_step(bug, monkeypatch):
    """The faults are judged by a digest: it must change if a step is lost or done twice."""
    good = simulate(SPEC, ConnectionTestHandler(), {n: ConnectionTestHandler(n) for n in PARTIES})["digest"]
    answer, count = ConnectionTestParty.answer, [0]

    def planted(self, request):
        count[0] += 1
        if count[0] == 7 and bug == "zeros":
            self._weights = self._weights * 0.0  # a restart without a state
        if count[0] == 7 and bug == "twice":
            answer(self, request)
        return answer(self, request)

    monkeypatch.setattr(ConnectionTestParty, "answer", planted)
    assert simulate(SPEC, ConnectionTestHandler(), {n: ConnectionTestHandler(n) for n in PARTIES})["digest"] != good
