"""A coordinator that replays, reorders and changes messages, against real party processes."""

from __future__ import annotations

import pytest

from dperm.vertical.coordinator import CoordinatorSession
from dperm.vertical.envelope import Envelope
from dperm.vertical.grpc_hub import GrpcHub
from dperm.vertical.keys import Identity
from dperm.vertical.rehearsal import RehearsalDesk, RehearsalParty
from dperm.vertical.simulate import simulate
from dperm.vertical.spec import RunSpec

PARTIES = ("org-a", "org-b", "org-c")
SPEC = RunSpec("trial", "rehearsal", PARTIES, {"rows": 50, "rounds": 12}, secure_sum=True)


class Mischief:
    """Sends more than it should: every request twice, one from long ago, one from the future, one that is changed."""

    def __init__(self, inner):
        self._inner, self._sent, self._damaged = inner, [], False

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def send(self, party, asked):
        last = self._sent[-1] if self._sent else asked
        if party == "org-a" and len(self._sent) > 3 and last.step < asked.step:
            changed = bytes(last.payload)[:-1] + b"!"
            self._inner.send(party, Envelope(0, last.run, party, last.step, 0, last.state, changed))
            self._inner.send(party, self._sent[2])
            self._inner.send(party, Envelope(0, asked.run, party, asked.step + 2, 0, asked.state, asked.payload))
        if party == "org-a" and asked.step == 7 and not self._damaged:
            self._damaged = True
            self._inner.send(party, Envelope(7, asked.run, party, asked.step, 0, asked.state, b"of no known kind"))
        sent = self._inner.send(party, asked)
        if party == "org-a" and sent:
            self._inner.send(party, asked)
            self._sent.append(asked)
        return sent


def test_replayed_reordered_and_changed_messages(consortium):
    consortium.configure()
    keys = consortium.root / "lab" / "keys"
    hub = GrpcHub(f"127.0.0.1:{consortium.port}", lambda: Identity.load(keys, "lab"), PARTIES)
    consortium.start(*PARTIES)
    try:
        session = CoordinatorSession(SPEC, consortium.root / "lab" / "runs", RehearsalDesk(), patience=30)
        result = session.run(Mischief(hub.transport("trial", PARTIES)))
        for name in PARTIES:
            consortium.wait(name)
    finally:
        hub.close()
    assert result["digest"] == simulate(SPEC, RehearsalDesk(), {n: RehearsalDesk(n) for n in PARTIES})["digest"]
    refused = [line["what"] for line in consortium.audit("org-a") if line["what"].startswith("refused")]
    assert any("was answered long ago" in what for what in refused)
    assert any("is not next" in what for what in refused)
    assert any("with another content" in what for what in refused)
    assert consortium.log("org-a").count("not connected: an envelope cannot be read") == 1  # and it came back
    assert not any(line["what"].startswith("refused") for line in consortium.audit("org-b"))


@pytest.mark.parametrize("bug", ["zeros", "twice"])
def test_the_comparison_notices_a_party_that_forgets_or_repeats(bug, monkeypatch):
    """The faults are judged by a digest: it must change if a step is lost or done twice."""
    good = simulate(SPEC, RehearsalDesk(), {n: RehearsalDesk(n) for n in PARTIES})["digest"]
    answer, count = RehearsalParty.answer, [0]

    def planted(self, request):
        count[0] += 1
        if count[0] == 7 and bug == "zeros":
            self._weights = self._weights * 0.0  # a restart without a state
        if count[0] == 7 and bug == "twice":
            answer(self, request)
        return answer(self, request)

    monkeypatch.setattr(RehearsalParty, "answer", planted)
    assert simulate(SPEC, RehearsalDesk(), {n: RehearsalDesk(n) for n in PARTIES})["digest"] != good
