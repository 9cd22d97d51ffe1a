"""One run, one table: resuming a run with other rows, values or units is refused at every step.

Steps of the runs here: 0 join, 1 check, 2 start, 3 and 4 rounds, 5 finish. A crash before a step leaves everybody after
the one before.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from dperm.cli.vertical.commands import vertical
from dperm.errors import DpermWarning, InvalidInput, PeerRefused, StateLost
from dperm.privacy import Ledger
from dperm.testing.data import Layout
from dperm.vertical.identity.keys import Identity
from dperm.vertical.methods.prediction import PredictionHandler
from dperm.vertical.methods.registry import coordinator_handler
from dperm.vertical.methods.training import MODEL_FORMAT, TrainingHandler
from dperm.vertical.participant.tables import PartyTable
from dperm.vertical.session.reservations import reserve
from dperm.vertical.session.run_folder import RunFolder
from dperm.vertical.session.spec import RunSpec
from dperm.vertical.transport.envelope import Envelope

CHANGED = "table changed since run 'fit-1' began"
NAMES = ("org-a", "org-b", "lab")


def _stopped(people, crash, before):
    people.align()
    with pytest.raises(crash):
        people.run(before=before)


def _reorder(people, name, **changes):
    """Another order of the same table, of another alignment or with the same name."""
    order = json.loads(people.order(name).read_text())
    people.order(name).write_text(json.dumps(order | {"rows": order["rows"][::-1]} | changes))


def _refused(people, name):
    """A participant with changed rows refuses; the label holder does so before it asks any party."""
    error, who = (StateLost, "") if name == "lab" else (PeerRefused, f"{name} refused step .*")
    with pytest.raises(error, match=who + CHANGED):
        people.run()


@pytest.mark.parametrize("before", [1, 2, 3, 4, 5])
def test_a_run_does_not_continue_after_all_have_aligned_again(people, crash, before):
    _stopped(people, crash, before)
    (old, _), _ = people.tables()
    with pytest.warns(DpermWarning, match="run 'fit-1' is not finished"):
        people.align("al-2")
    (new, _), _ = people.tables()
    assert (old.X != new.X).any()
    with pytest.raises(StateLost, match=CHANGED):
        people.run()
    assert {people.reserved(name) for name in NAMES} == {int(before > 2)}
    for name in NAMES:  # the order before is kept, and put back the run goes on
        people.order(name).with_name("order-data.al-1.json").replace(people.order(name))
    people.run()
    assert {people.reserved(name) for name in NAMES} == {1}


@pytest.mark.parametrize("before", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", ["org-a", "org-b", "lab"])
def test_a_run_does_not_continue_after_one_participant_has_aligned_again(people, crash, name, before):
    _stopped(people, crash, before)
    kept = people.order(name).read_text()
    _reorder(people, name, run="al-0")
    _refused(people, name)
    assert people.reserved(name) == int(before > 2)
    people.order(name).write_text(kept)
    assert people.run()["report"].guarantee.epsilon <= 0.5
    assert {people.reserved(one) for one in NAMES} == {1}


@pytest.mark.parametrize("before", [2, 4])
@pytest.mark.parametrize("name", ["org-b", "lab"])
@pytest.mark.parametrize("what", ["order", "alignment", "values"])
def test_a_changed_order_alignment_or_value_is_noticed(people, crash, name, before, what):
    """Rows in another order under the old name; the old order under another name; other values of the same people."""
    _stopped(people, crash, before)
    if what == "values":
        path = people.root / name / "table.csv"
        head, *lines = path.read_text().splitlines()
        value = "yes" if name == "lab" else "99"
        path.write_text("\n".join([head, *(line.split(",")[0] + "," + value for line in lines)]) + "\n")
    elif what == "order":
        _reorder(people, name)
    else:
        path = people.order(name)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"run": "al-0"}))
    _refused(people, name)


def test_a_changed_declared_range_is_noticed(people, crash):
    """Otherwise weights that were learnt in one unit would be used in another."""
    _stopped(people, crash, 4)
    path = people.root / "org-a" / "config.toml"
    path.write_text(path.read_text().replace("high = 100", "high = 200"))
    _refused(people, "org-a")


def test_a_party_that_aligns_between_check_and_start_does_not_start_with_the_new_order(people, crash):
    """Without a restart: the table is read again after every alignment."""
    _stopped(people, crash, 2)
    lab = people.order("lab").read_text()
    with pytest.warns(DpermWarning, match="run 'fit-1' is not finished"):
        people.align("al-2", restart=False)
    people.order("lab").write_text(lab)
    with pytest.raises(PeerRefused, match=CHANGED):
        people.run(restart=False)
    assert {people.reserved(name) for name in NAMES} == {0}


def test_a_program_refuses_a_table_aligned_after_the_reservation(tmp_path):
    """Another run of the same party may replace the table between reservation and program."""
    scaling = Layout(n=3, n_features=1).scaling()
    before, after = (
        TrainingHandler("org-a", PartyTable(np.ones((3, 1)), ("x",), scaling, run), Ledger(), tmp_path)
        for run in ("al-1", "al-2")
    )
    spec = RunSpec("fit-1", "admm-sharing", ("org-a",), {"epsilon": 1.0, "delta": 1e-6, "n_rounds": 2})
    spec = spec.with_facts({"org-a": before.join(spec)})
    scope = reserve(before.prepare(spec), "fit-1", "reservation-id")
    assert before.program(spec, scope).n_rounds == 2
    with pytest.raises(StateLost, match=CHANGED):
        after.program(spec, scope)


def test_a_rewritten_but_unchanged_table_is_accepted(people, crash):
    _stopped(people, crash, 4)
    for name in NAMES:
        path = people.root / name / "table.csv"
        path.write_text(path.read_text())
    assert people.run()["report"].guarantee.epsilon <= 0.5


def test_a_finished_run_returns_its_result_even_if_the_table_changed(people):
    people.align()
    result = people.run()
    people.align("al-2")
    assert people.run()["digest"] == result["digest"]
    for name in NAMES:  # and nothing that was made of the table stays in the folder
        record = RunFolder(people.root / name / "state" / "runs", "fit-1").load()
        assert not record.blobs.get("rows")


def _said(people, **options):
    """Return the warnings that precede an alignment."""
    config = people.config("lab")
    run = replace(config.run, name="al-9", method="align", options=options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        coordinator_handler(replace(config, run=run, predict=config.data), people.identities["lab"])
    return [str(one.message) for one in said]


def test_an_alignment_names_the_runs_that_it_would_stop(people, crash):
    people.align()
    with pytest.raises(crash):
        people.run(before=0)  # it has agreed with nobody, and begins with whatever order there is then
    (people.root / "lab" / "state" / "runs" / "not a run").mkdir()
    assert _said(people) == []
    for name in ("fit-1", "fit-2"):
        with pytest.raises(crash):
            people.run(before=4, name=name)
    (said,) = _said(people)
    assert said.startswith("runs 'fit-1', 'fit-2' are not finished and cannot continue with the order")
    assert _said(people, table="predict") == []
    for name in ("fit-1", "fit-2"):
        people.run(name=name)
    assert _said(people) == []


def test_the_align_command_warns_before_it_listens(people, crash, monkeypatch):
    _stopped(people, crash, 4)

    def listen(*_, **__):
        raise InvalidInput("nobody was called")

    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")
    monkeypatch.setattr(Identity, "load", lambda *_: people.identities["lab"])
    monkeypatch.setattr("dperm.vertical.transport.activity_log.ActivityLog", lambda path: SimpleNamespace(write=print))
    monkeypatch.setattr("dperm.vertical.transport.grpc_hub.GrpcHub", listen)
    done = CliRunner().invoke(vertical, ["align", str(people.root / "lab" / "config.toml")])
    assert str(done.exception) == "nobody was called"
    assert "dperm: note: run 'fit-1' is not finished and cannot continue with the order" in done.output


def test_a_prediction_uses_the_declared_table_only(tmp_path):
    model = {"format": MODEL_FORMAT, "columns": ["x"], "weights": [1.0]}
    (tmp_path / "fit-1.json").write_text(json.dumps(model))
    scaling = Layout(n=3, n_features=1).scaling()
    tables = [PartyTable(np.ones((n, 1)), ("x",), scaling, run) for n, run in ((3, "al-1"), (3, "al-2"), (4, "al-1"))]
    handler = PredictionHandler("org-a", lambda: tables[0], tmp_path)
    spec = RunSpec("guess-1", "predict", ("org-a",), {"model": "fit-1"})
    spec = spec.with_facts({"org-a": handler.join(spec)})
    assert handler.program(spec, None).n_rounds == 1
    for other in tables[1:]:
        with pytest.raises(StateLost, match="run 'guess-1' began"):
            PredictionHandler("org-a", lambda other=other: other, tmp_path).program(spec, None)


# ---------------------------------------------------------------------------------------------------- alignments
@pytest.mark.parametrize("before", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("name", ["org-b", "lab"])
def test_an_alignment_does_not_continue_with_a_rewritten_table(people, crash, name, before):
    """The same people in another order: positions in the old table are other people in the new one."""
    with pytest.raises(crash):
        people.align(before=before)
    people.write(name, range(6, 65) if name == "lab" else range(11, 70))
    error, who = (StateLost, "") if name == "lab" else (PeerRefused, "org-b refused step .*")
    with pytest.raises(error, match=who + "the identifier column changed since alignment 'al-1' began"):
        people.align()
    assert not people.order(name).exists()


def test_an_alignment_stops_if_one_restarted_party_has_a_rewritten_table(people):
    people.start()
    handle = type(people.sessions["org-b"]).handle

    class Rewritten:
        """Its export job runs while the party is down."""

        def handle(self, data):
            if Envelope.decode(data).step == 5 and people.sessions["org-b"] is self:
                session.close()
                people.write("org-b", range(11, 70))
                people.start("org-b")
                return people.sessions["org-b"].handle(data)
            return handle(session, data)

        def close(self):
            session.close()

    session, people.sessions["org-b"] = people.sessions["org-b"], Rewritten()
    with pytest.raises(PeerRefused, match="the identifier column changed"):
        people.align(restart=False)
