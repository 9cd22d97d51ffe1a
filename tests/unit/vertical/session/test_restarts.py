"""Restarts and restored copies with real methods: one noisy release for each charge, and no mask on two values."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict

import numpy as np
import pytest

from dperm.errors import InvalidInput, PeerRefused, StateLost
from dperm.solvers.vertical import TASKS
from dperm.solvers.vertical.protocol import Message
from dperm.vertical.methods.training import build_task
from dperm.vertical.session import reservations
from dperm.vertical.session.party import PartySession
from dperm.vertical.session.run_folder import Record, RunFolder, _Slots
from dperm.vertical.transport.base import InProcess
from dperm.vertical.transport.envelope import REPLY, Envelope
from dperm.vertical.transport.wire import decode

NAMES = ("org-a", "org-b")
WITHOUT_GUARANTEE = {"exact-admm-sharing", "printed-frank-wolfe", "sgd-over-parties"}
FACTS = {"n": 40, "n_features": 2, "d": 2, "value_bound": 1.0, "row_bound": 2.0**0.5}


class Crash(BaseException):
    """Stands for a process that dies."""


class Watched(InProcess):
    """Records all messages, and crashes when ``die`` returns True."""

    sent: dict
    said: dict
    die = staticmethod(lambda event: False)

    def send(self, party, envelope):
        self.sent[party, envelope.step].add(bytes(envelope.payload))
        return super().send(party, envelope)

    def collect(self, timeout):
        event = super().collect(timeout)
        envelope = getattr(event, "envelope", None)
        if envelope is not None and envelope.kind == REPLY:
            message = envelope.message()
            plain = {name: array.tobytes() for name, array in message.arrays.items() if name not in message.summed}
            self.said[event.party, envelope.step].add(json.dumps({k: v.hex() for k, v in plain.items()}))
        if event is not None and self.die(event):
            raise Crash
        return event


def _watched(org, die):
    return org.transport(
        type("Mine", (Watched,), {"sent": defaultdict(set), "said": defaultdict(set), "die": staticmethod(die)})
    )


@pytest.mark.parametrize("method", sorted(TASKS))
def test_the_coordinator_resumes_after_dying_at_any_step_of_any_method(organisations, method):
    """Coordinator and parties crash once at every step: each request and each answer is drawn once."""
    org, died = organisations(method), set()

    def die(event):
        envelope = getattr(event, "envelope", None)
        fresh = envelope is not None and envelope.kind == REPLY and envelope.step not in died
        if fresh:
            died.add(envelope.step)
        return fresh

    transport, result = _watched(org, die), None
    sent, said = transport.sent, transport.said
    while result is None:
        org.start()
        try:
            result = org.coordinate(transport)
        except Crash:
            transport = type(transport)(transport.handlers)
    task = build_task(org.spec().with_facts(dict.fromkeys(NAMES, FACTS)))
    assert died == set(range(3 + task.n_rounds + 1))
    rounds = {key: payloads for key, payloads in sent.items() if key[1] > 2}
    assert all(len(payloads) == 1 for payloads in rounds.values())
    assert all(len(answers) == 1 for key, answers in said.items() if key[1] > 0)
    for name in (*NAMES, "lab"):
        entries = org.ledger(name).entries()
        kinds = [entry["kind"] for entry in entries]
        assert kinds.count("reserve") == kinds.count("settle") == 1
        made = sum(e["count"] for e in entries if e["kind"] == "release" and e["query"] != "no guarantee")
        assert made == sum(release.count for release in task.plan().releases)
    for name in NAMES:  # each worked out its own part, and the coordinator says the same
        own = json.loads((org.root / name / "state" / "models" / "fit-1.json").read_text())
        assert own["weights"] == result["model"]["weights"][name]
    assert (result["report"].guarantee is None) == (method in WITHOUT_GUARANTEE)


def _die_at(step):
    died = []

    def die(event):
        envelope = getattr(event, "envelope", None)
        now = not died and envelope is not None and envelope.step == step
        died.extend([step] * now)
        return now

    return die


def _backup(org, names, where):
    org.stop()
    for name in names:
        shutil.copytree(org.root / name / "state", org.root / name / where)


def _restore(org, names, where):
    for name in names:
        shutil.rmtree(org.root / name / "state")
        shutil.copytree(org.root / name / where, org.root / name / "state")
    org.start()


@pytest.mark.parametrize("names", [(*NAMES, "lab"), ("lab",), NAMES, ("org-b",)])
@pytest.mark.parametrize("method", ["admm-sharing", "transcript-admm-sharing"])
def test_folders_restored_from_older_copies_are_refused(organisations, method, names):
    """Otherwise each copy would add a noisy release without a charge, and masks would be used again."""
    org = organisations(method)
    with pytest.raises(Crash):
        org.coordinate(_watched(org, _die_at(3)))
    _backup(org, names, "copy")
    org.start()
    with pytest.raises(Crash):
        org.coordinate(_watched(org, _die_at(4)))
    _backup(org, names, "newest")
    _restore(org, names, "copy")
    with pytest.raises(StateLost if "lab" in names else PeerRefused, match="the record of run 'fit-1' is older than"):
        org.coordinate()
    _restore(org, names, "newest")
    assert org.coordinate()["model"]["weights"]


def test_a_label_holder_restored_to_before_its_release_of_the_same_step_is_refused(organisations):
    """The coordinator's step does not change when it releases, so step numbers alone would not reveal it."""
    org = organisations("transcript-admm-sharing")
    records = []
    save = RunFolder.save

    def copying(self, record, **how):
        save(self, record, **how)
        if self.path.parts[-4] == "lab" and record.facts["step"] == 3:
            records.append(record.blobs["used"])
            shutil.copytree(org.root / "lab" / "state", org.root / "lab" / f"copy-{len(records)}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "save", copying)
        with pytest.raises(Crash):
            org.coordinate(_watched(org, _die_at(3)))
    assert len(set(records)) == 2  # before the release and after it, and the second one before anything was sent
    _restore(org, ["lab"], "copy-1")
    with pytest.raises(StateLost, match="older than the run"):
        org.coordinate()


def test_a_missing_record_counter_is_noticed(organisations):
    org = organisations()
    with pytest.raises(Crash):
        org.coordinate(_watched(org, _die_at(4)))
    org.stop()
    counters = org.root / "org-a" / "ledger.db.runs"
    assert sorted(path.name for path in (counters / "fit-1").iterdir()) == ["lock", "record.0", "record.1"]
    shutil.rmtree(counters)
    org.start()
    with pytest.raises(PeerRefused, match="the record counter beside the ledger of run 'fit-1' is older than the run"):
        org.coordinate()


def test_a_second_copy_of_a_folder_cannot_run_beside_the_first(tmp_path):
    first = RunFolder(tmp_path / "one", "r", tmp_path / "counters").open()
    with pytest.raises(InvalidInput, match=r"another folder.*a ledger of its own"):
        RunFolder(tmp_path / "two", "r", tmp_path / "counters").open()
    first.close()
    RunFolder(tmp_path / "two", "r", tmp_path / "counters").open().close()


def test_two_runs_of_one_name_in_one_ledger_are_two_charges(organisations, monkeypatch):
    """A ledger on a server, used from two machines: the second run must not use the first one's reservation."""
    org = organisations(secure_sum=False)
    spec, party, released = org.spec(), "org-a", {}
    said = {}
    for machine in ("here", "there"):  # both agree before either starts
        monkeypatch.setattr(reservations, "counter_folder", lambda ledger, machine=machine: org.root / machine)
        runs = org.root / party / machine
        org.sessions[party] = PartySession(org.identities[party], runs, org.policy(party))
        said[machine] = org.cheat()
        joined = said[machine].ask(Message("join", {"spec": spec.to_array()}))
        facts = spec.with_facts(dict.fromkeys(spec.parties, joined.facts))
        said[machine].ask(Message("check", {"spec": facts.to_array()}))
        org.stop(party)
    for machine, one in said.items():
        monkeypatch.setattr(reservations, "counter_folder", lambda ledger, machine=machine: org.root / machine)
        runs = org.root / party / machine
        org.sessions[party] = PartySession(org.identities[party], runs, org.policy(party))
        one.ask(Message("start"))
        answer = one.ask(Message("residual", {"residual": np.ones(40)}, {"round": 0}))
        released[machine] = answer.arrays["weights"].tobytes()
        org.stop(party)  # the reservation stays open
    assert released["here"] != released["there"]
    assert org.kinds(party).count("reserve") == 2


def test_a_crash_between_record_and_counter_loses_nothing(tmp_path):
    folder = RunFolder(tmp_path / "runs", "r", tmp_path / "counters").open()
    assert folder.load() is None
    for k in range(4):
        folder.save(Record({"k": k}, {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder._counter, "write", lambda number, message: None)
        folder.save(Record({"k": 4}, {}))
    folder.close()
    again = RunFolder(tmp_path / "runs", "r", tmp_path / "counters").open()
    assert again.load().facts["k"] == 4
    again.save(Record({"k": 5}, {}))
    assert again.load().facts["k"] == 5
    again.close()


def test_a_reply_sent_after_a_crash_between_record_and_counter_is_not_drawn_again_from_a_copy(organisations):
    """The stored reply is sent after the restart: from then on a copy from before it must be recognised."""
    org = organisations(secure_sum=False)
    cheat, residual = org.cheat(), Message("residual", {"residual": np.ones(40)}, {"round": 0})
    cheat.begin(org.spec())
    before = (cheat.state, cheat.step)
    _backup(org, ["org-a"], "copy")
    org.start()
    write = _Slots.write

    def dying(self, number, message):
        if message.kind == "counter":
            raise Crash
        write(self, number, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Slots, "write", dying)
        with pytest.raises(Crash):
            cheat.ask(residual)
    org.start()
    first = cheat.ask(residual, attempt=1)
    cheat.state, cheat.step = before
    assert np.array_equal(cheat.ask(residual, attempt=1).arrays["weights"], first.arrays["weights"])
    org.stop()
    _restore(org, ["org-a"], "copy")
    cheat.state, cheat.step = before
    with pytest.raises(PeerRefused, match="the record of run 'fit-1' is older than"):
        cheat.ask(residual, attempt=2)


def test_no_mask_covers_two_values_even_without_a_ledger(simulation, tmp_path):
    """A connection test has no record counter: all folders are restored, and the same numbers get new masks."""
    s, masked = simulation(rounds=3), []

    class Stops(InProcess):
        def collect(self, timeout):
            event = super().collect(timeout)
            envelope = event.envelope
            if envelope.kind == REPLY and envelope.step == 4:
                masked.append((event.party, envelope.attempt, decode(envelope.payload).arrays["scores"]))
                raise Crash
            return event

    def until_step_4():
        with pytest.raises(Crash):
            s.coordinate(Stops({name: s.sessions[name].handle for name in s.spec.parties}))
        s.stop()
        s.sessions.clear()

    until_step_4()
    shutil.copytree(s.root, tmp_path / "copy")
    for _ in range(4):
        shutil.rmtree(s.root)
        shutil.copytree(tmp_path / "copy", s.root)
        s.start()
        until_step_4()
    for i, (party, _, one) in enumerate(masked):
        others = [other for name, _, other in masked[:i] if name == party]
        assert all(np.all(one != other) for other in others)


def test_an_answer_to_an_old_nonce_is_a_renewal_and_nothing_else(simulation):
    s, seen = simulation(rounds=3), []

    def wrap(name, handler):
        def handle(data):
            asked = Envelope.decode(data)
            if name == "org-a" and asked.step == 4 and not seen:
                s.start("org-a")
            answer = handler(data)
            if name == "org-a" and asked.step == 4:
                seen.append(Envelope.decode(answer))
            return answer

        return handle

    result = s.coordinate(s.transport(wrap))
    assert result == simulation(rounds=3).coordinate()
    renewal, reply = seen
    assert (bytes(renewal.payload), renewal.attempt, reply.attempt) == (b"", 0, 1)
    assert renewal.nonces == reply.nonces


def test_a_finished_run_keeps_no_secret(organisations, monkeypatch):
    org, secrets = organisations(), set()
    save = RunFolder.save

    def watching(self, record, **how):
        secrets.update(blob for name, blob in record.blobs.items() if name in ("mask key", "state"))
        save(self, record, **how)

    monkeypatch.setattr(RunFolder, "save", watching)
    result = org.coordinate()
    assert len(secrets) > 4
    for name in NAMES:
        folder = org.root / name / "state" / "runs" / "fit-1"
        kept = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert len(kept) == 2  # one record and the lock
        assert not any(secret in data for secret in secrets for data in kept.values())
    record = RunFolder(org.root / "lab" / "state" / "runs", "fit-1").load()
    program = decode(record.blobs["program"])
    assert program.arrays["scores"].size == program.arrays["dual"].size == program.arrays["residual"].size == 0
    assert org.coordinate()["digest"] == result["digest"]  # the result can still be told


def test_frank_wolfe_keeps_no_column_of_a_party(organisations):
    org = organisations("distributed-frank-wolfe")
    org.coordinate()
    program = decode(RunFolder(org.root / "lab" / "state" / "runs", "fit-1").load().blobs["program"])
    assert not [name for name in program.arrays if name.startswith("vector")]
