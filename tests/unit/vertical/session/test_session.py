"""The session: which requests are answered, repeated from disk or refused; nothing is lost or charged twice."""

from __future__ import annotations

import shutil
import threading

import numpy as np
import pytest

from dperm.errors import BudgetRefused, InvalidInput, PeerRefused, RunError, StateLost
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.events import Gaussian
from dperm.privacy.ledger import Ledger
from dperm.vertical.methods.connection_test import ConnectionTestHandler
from dperm.vertical.session.run_folder import Record, RunFolder
from dperm.vertical.session.spec import PreparedRun, RunSpec
from dperm.vertical.transport.envelope import REFUSAL, Envelope, refusal_error

PLAN = calibrate(Plan((PlannedRelease("made up", "gaussian", 4),)), Budget(1.0, 1e-6))


class ChargedHandler(ConnectionTestHandler):
    """A connection test that is charged like a training run: one release per round."""

    def __init__(self, name, ledger, rows=None):
        super().__init__(name, rows)
        self.ledger = ledger

    def prepare(self, spec):
        return PreparedRun(PLAN, self.ledger)

    def program(self, spec, scope):
        program = super().program(spec, scope)
        if self._name:
            answer = program.answer
            event = Gaussian(PLAN.noise_multiplier("made up"))

            def charged(request):
                scope.charge("made up", event)
                return answer(request)

            program.answer = charged
        return program


def _ledgers(folder):
    names = ("", "org-a", "org-b", "org-c")
    return {name: Ledger(folder / f"{name or 'lab'}.db", dataset="people") for name in names}


def _recorder(seen):
    """Record every request that reaches a party."""

    def wrap(name, handler):
        def handle(data):
            seen.setdefault(name, []).append(bytes(data))
            return handler(data)

        return handle

    return wrap


@pytest.mark.parametrize("secure_sum", [False, True])
def test_masks_do_not_change_the_result(simulation, secure_sum):
    plain, masked = simulation(secure_sum=False), simulation(secure_sum=secure_sum)
    assert plain.coordinate() == masked.coordinate()


def test_a_repeated_request_is_answered_with_the_same_bytes_also_after_a_restart(simulation):
    s, seen = simulation(), {}
    s.coordinate(s.transport(_recorder(seen)))
    last = seen["org-a"][-1]
    first = s.sessions["org-a"].handle(last)
    s.start("org-a")
    assert s.sessions["org-a"].handle(last) == first
    assert Envelope.decode(first).kind != REFUSAL


def test_replayed_and_reordered_requests_are_refused(simulation):
    s, seen = simulation(), {}
    s.coordinate(s.transport(_recorder(seen)))
    party = s.sessions["org-b"]
    for request in seen["org-b"][:-1]:
        answer = Envelope.decode(party.handle(request))
        assert answer.kind == REFUSAL
        assert "long ago" in str(refusal_error(answer))
    other = simulation()
    ahead = other.sessions["org-b"]
    ahead.handle(seen["org-b"][0])
    skipped = Envelope.decode(ahead.handle(seen["org-b"][3]))
    assert "is not next" in str(refusal_error(skipped))
    foreign = Envelope.decode(s.sessions["org-c"].handle(seen["org-b"][-1]))
    assert "org-c received a message for org-b" in str(refusal_error(foreign))


def test_a_different_request_for_an_answered_step_is_refused(simulation):
    """Otherwise one charge would buy two noisy answers."""
    s, seen = simulation(), {}
    s.coordinate(s.transport(_recorder(seen)))
    party = s.sessions["org-a"]
    asked = Envelope.decode(seen["org-a"][-1])
    other = Envelope(asked.kind, asked.run, asked.party, asked.step, 0, asked.state, bytes(asked.payload) + b"x")
    assert other.content != asked.content
    assert "different content" in str(refusal_error(Envelope.decode(party.handle(other.encode()))))


def test_a_folder_restored_from_a_copy_is_noticed(simulation, tmp_path):
    s, copied = simulation(rounds=6), tmp_path / "copy"
    saved = threading.Event()

    def wrap(name, handler):
        def handle(data):
            step = Envelope.decode(data).step
            if name == "org-a" and step == 3 and not saved.is_set():
                shutil.copytree(s.root / "org-a", copied)
                saved.set()
            if name == "org-a" and step == 6:
                s.sessions["org-a"].close()
                shutil.rmtree(s.root / "org-a")
                shutil.copytree(copied, s.root / "org-a")
                s.start("org-a")
            return handler(data)

        return handle

    with pytest.raises(PeerRefused, match="is not next after step 2"):
        s.coordinate(s.transport(wrap))


@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_wiped_disk_is_reported_clearly(simulation, step):
    s = simulation()

    def wrap(name, handler):
        def handle(data):
            if name == "org-a" and Envelope.decode(data).step == step:
                s.sessions["org-a"].close()
                shutil.rmtree(s.root / "org-a")
                s.start("org-a")
            return handler(data)

        return handle

    with pytest.raises(PeerRefused, match=r"no record of run 'trial-1'.*restore its folder"):
        s.coordinate(s.transport(wrap))


def _spoil(path):
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)


def test_an_incomplete_record_falls_back_to_the_previous_one(tmp_path):
    folder = RunFolder(tmp_path, "r").open()
    assert folder.load() is None
    for k in range(5):
        folder.save(Record({"k": k}, {"b": bytes(1000 - 100 * k)}))
        assert folder.load().facts["k"] == k
        assert len(folder.load().blobs["b"]) == 1000 - 100 * k
    with pytest.raises(InvalidInput, match="another process is using"):
        RunFolder(tmp_path, "r").open()
    folder.close()
    again = RunFolder(tmp_path, "r").open()
    again.save(Record({"k": 5}, {}))
    _spoil(again.path / "record.0")
    assert again.load().facts["k"] == 4
    again.save(Record({"k": 6}, {}))
    assert again.load().facts["k"] == 6
    for name in ("record.0", "record.1"):
        _spoil(again.path / name)
    with pytest.raises(StateLost, match="damaged"):
        again.load()
    again.close()


class Crash(BaseException):
    """Stands for a process that dies."""


@pytest.mark.parametrize("at", range(8))
def test_the_coordinator_resumes_after_dying_at_any_step(simulation, at):
    undisturbed = simulation().coordinate()
    s = simulation()
    count = [0]

    class Dying:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def collect(self, timeout):
            event = self.inner.collect(timeout)
            count[0] += event is not None
            if count[0] == 3 * at + 2:  # between two replies of one step
                raise Crash
            return event

    with pytest.raises(Crash):
        s.coordinate(Dying(s.transport()))
    s.start()  # the parties were restarted as well
    assert s.coordinate() == undisturbed


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", [0, 1, 2, 3, 6, 7])
def test_a_party_resumes_after_dying_before_or_after_it_stored_its_reply(simulation, step, moment, monkeypatch):
    undisturbed = simulation().coordinate()
    s, died = simulation(), []
    save = RunFolder.save

    def dying_save(self, record, **how):
        mine = self.path.parent.name == "org-b" and record.facts["step"] == step and not died
        if mine:
            died.append(moment)
        if mine and moment == "before":
            raise Crash
        save(self, record, **how)
        if mine:
            raise Crash

    monkeypatch.setattr(RunFolder, "save", dying_save)

    def wrap(name, handler):
        def handle(data):
            try:
                return handler(data)
            except Crash:
                s.start(name)  # the process is started again and asked again
                return s.sessions[name].handle(data)

        return handle

    assert s.coordinate(s.transport(wrap)) == undisturbed
    assert died


def test_the_whole_plan_is_reserved_and_settled_once_whichever_process_dies(simulation, tmp_path, monkeypatch):
    ledgers = _ledgers(tmp_path)
    s, died = simulation(handler=lambda name: ChargedHandler(name, ledgers[name])), set()
    save = RunFolder.save

    def dying_save(self, record, **how):
        key = (self.path.parent.name, record.facts["step"])
        fresh = key[0] != "lab" and key not in died
        died.add(key)
        if fresh and record.facts["step"] % 2 == 0:
            save(self, record, **how)
        if fresh:
            raise Crash
        save(self, record, **how)

    monkeypatch.setattr(RunFolder, "save", dying_save)

    def wrap(name, handler):
        def handle(data):
            while True:
                try:
                    return handler(data)
                except Crash:
                    s.start(name)

        return handle

    s.coordinate(s.transport(wrap))
    for ledger in ledgers.values():
        kinds = [entry["kind"] for entry in ledger.entries()]
        assert kinds.count("reserve") == kinds.count("settle") == 1
        assert ledger.spent().reserved_unsettled == 0
    made = [e for e in ledgers["org-a"].entries() if e["kind"] == "release"]
    assert [(e["count"], e["forfeited"]) for e in made] == [(4, False)]


def test_a_run_already_charged_is_not_started_again_without_its_folder(simulation, tmp_path):
    ledgers = _ledgers(tmp_path)
    s = simulation(handler=lambda name: ChargedHandler(name, ledgers[name]))
    s.coordinate()
    s.stop()
    for name in ("lab", "org-a", "org-b", "org-c"):
        shutil.rmtree(s.root / name)
    s.start()
    with pytest.raises(StateLost, match="has already charged run 'trial-1'"):
        s.coordinate()  # the label holder's own ledger knows it
    shutil.rmtree(s.root / "lab")
    ledgers[""] = Ledger(tmp_path / "fresh.db", dataset="people")
    with pytest.raises(PeerRefused, match=r"record of it is missing|restore"):
        s.coordinate()


def test_a_cap_refuses_before_anything_is_answered(simulation, tmp_path):
    ledgers = _ledgers(tmp_path)
    ledgers["org-c"].set_cap(Budget(0.5, 1e-6))
    s = simulation(handler=lambda name: ChargedHandler(name, ledgers[name]))
    with pytest.raises(BudgetRefused, match=r"org-c refused step 1.*cap") as refused:
        s.coordinate()
    assert refused.value.exit_code == 3
    assert isinstance(s.sessions["org-c"].refused["trial-1"], BudgetRefused)
    assert [e["kind"] for e in ledgers["org-c"].entries()] == ["created", "cap"]
    # and nobody else is charged for a run that cannot be
    assert all([e["kind"] for e in ledgers[name].entries()] == ["created"] for name in ("", "org-a", "org-b"))


def test_mismatched_rows_are_refused_before_anything_is_charged(simulation, tmp_path):
    ledgers = _ledgers(tmp_path)

    def handler(name):
        return ChargedHandler(name, ledgers[name], rows=41 if name == "org-b" else 40)

    s = simulation(handler=handler)
    with pytest.raises(InvalidInput, match=r"org-b has 41.*align"):
        s.coordinate()
    assert all([e["kind"] for e in ledger.entries()] == ["created"] for ledger in ledgers.values())


def test_a_run_that_a_silent_party_stopped_can_be_resumed(simulation):
    undisturbed = simulation().coordinate()
    s = simulation()

    class Deaf:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def send(self, party, envelope):
            silent = party == "org-c" and envelope.step == 3
            return False if silent else self.inner.send(party, envelope)

        def collect(self, timeout):
            return self.inner.collect(0.02)

    with pytest.raises(RunError, match=r"org-c did not answer for 0.1 seconds.*again"):
        s.coordinate(Deaf(s.transport()), patience=0.1)
    assert s.coordinate() == undisturbed


def test_options_cannot_change_during_a_run(simulation):
    s = simulation()
    s.coordinate()
    s.spec = RunSpec("trial-1", "connection-test", s.spec.parties, {"rows": 40, "rounds": 9}, True)
    with pytest.raises(PeerRefused, match="other options"):
        s.coordinate()


def test_an_unexpected_error_at_a_party_stays_in_its_own_log(simulation):
    class Broken(ConnectionTestHandler):
        def join(self, spec):
            raise KeyError("Jane Doe")

    told = []
    s = simulation(handler=lambda name: Broken(name) if name == "org-a" else ConnectionTestHandler(name))
    s.sessions["org-a"]._log = lambda run, step, what: told.append(what)
    with pytest.raises(PeerRefused, match="its own log says why") as refused:
        s.coordinate()
    assert "Jane" not in str(refused.value)
    assert any("Jane" in what for what in told)


def test_every_length_is_a_function_of_public_facts(simulation):
    """Two parties with unrelated data: every byte count on the wire is the same, and so is every request's kind."""

    def lengths(seed):
        s, seen = simulation(), {}
        s.spec = RunSpec("trial-1", "connection-test", s.spec.parties, {"rows": 40, "rounds": 4, "seed": seed}, True)
        s.coordinate(s.transport(_recorder(seen)))
        return {name: [len(data) for data in requests] for name, requests in seen.items()}

    first, second = lengths(1), lengths(2)
    for name in first:
        # certificates are of one length within a few bytes (their signatures are DER); everything else is equal
        assert first[name][:1] == second[name][:1]
        assert first[name][2:] == second[name][2:]


def test_steps_are_numbered_and_finish_is_last(simulation):
    s, seen = simulation(rounds=2), {}
    s.coordinate(s.transport(_recorder(seen)))
    kinds = [Envelope.decode(data).message().kind for data in seen["org-a"]]
    assert kinds == ["join", "check", "start", "residual", "residual", "finish"]
    assert [Envelope.decode(data).step for data in seen["org-a"]] == list(range(6))
    late = Envelope.decode(seen["org-a"][-1])
    more = Envelope(late.kind, late.run, late.party, 6, 0, late.state, late.payload)
    assert Envelope.decode(s.sessions["org-a"].handle(more.encode())).kind == REFUSAL


def test_the_connection_test_converges(simulation):
    result = simulation(rounds=5).coordinate()
    assert len(result["history"]) == 5
    assert np.all(np.diff(result["history"]) < 0.0)
