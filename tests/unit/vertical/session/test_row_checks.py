"""One run, one table: whoever takes up a run on other rows, values or units is refused, at every step.

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
from dperm.solvers.vertical.protocol import Message
from dperm.testing.data import Layout
from dperm.vertical.identity.alignment import AlignmentHandler, AlignParty
from dperm.vertical.identity.alignment import People as Listed
from dperm.vertical.identity.keys import Identity
from dperm.vertical.methods.prediction import PredictionHandler
from dperm.vertical.methods.training import MODEL_FORMAT, TrainingHandler
from dperm.vertical.participant.policy import coordinator_handler
from dperm.vertical.participant.tables import PartyTable
from dperm.vertical.session.reservations import reserve
from dperm.vertical.session.run_folder import RunFolder
from dperm.vertical.session.simulate import passing_identities
from dperm.vertical.session.spec import RunSpec
from dperm.vertical.transport.envelope import Envelope

CHANGED = "are not those with which run 'fit-1' began"
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
    """Whoever has other rows refuses, the label holder before anybody is asked; back in order, the run goes on."""
    error, who = (StateLost, "") if name == "lab" else (PeerRefused, f"{name} refused step .*")
    with pytest.raises(error, match=who + CHANGED):
        people.run()


@pytest.mark.parametrize("before", [1, 2, 3, 4, 5])
def test_a_run_does_not_go_on_when_all_have_aligned_again(people, crash, before):
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
def test_nor_when_one_of_them_has(people, crash, name, before):
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
def test_each_of_order_alignment_and_values_is_looked_at(people, crash, name, before, what):
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


def test_the_declared_range_of_a_column_stays_too(people, crash):
    """Otherwise weights that were learnt in one unit would be used in another."""
    _stopped(people, crash, 4)
    path = people.root / "org-a" / "config.toml"
    path.write_text(path.read_text().replace("high = 100", "high = 200"))
    _refused(people, "org-a")


def test_a_party_that_aligns_between_check_and_start_does_not_start_on_the_new_order(people, crash):
    """In one life: the table is read again after every alignment."""
    _stopped(people, crash, 2)
    lab = people.order("lab").read_text()
    with pytest.warns(DpermWarning, match="run 'fit-1' is not finished"):
        people.align("al-2", restart=False)
    people.order("lab").write_text(lab)
    with pytest.raises(PeerRefused, match=CHANGED):
        people.run(restart=False)
    assert {people.reserved(name) for name in NAMES} == {0}


def test_nor_when_the_alignment_ends_while_it_starts(tmp_path):
    """Between what is charged and the program the table may be read anew, by another run of the same party."""
    scaling = Layout(n=3, n_features=1).scaling()
    before, after = (
        TrainingHandler("org-a", PartyTable(np.ones((3, 1)), ("x",), scaling, run), Ledger(), tmp_path)
        for run in ("al-1", "al-2")
    )
    spec = RunSpec("fit-1", "admm-sharing", ("org-a",), {"epsilon": 1.0, "delta": 1e-6, "n_rounds": 2})
    spec = spec.with_facts({"org-a": before.join(spec)})
    scope = reserve(before.prepare(spec), "fit-1", "ticket")
    assert before.program(spec, scope).n_rounds == 2
    with pytest.raises(StateLost, match=CHANGED):
        after.program(spec, scope)


def test_a_table_written_again_as_it_was_is_the_same(people, crash):
    _stopped(people, crash, 4)
    for name in NAMES:
        path = people.root / name / "table.csv"
        path.write_text(path.read_text())
    assert people.run()["report"].guarantee.epsilon <= 0.5


def test_a_finished_run_tells_its_result_whatever_became_of_the_table(people):
    people.align()
    result = people.run()
    people.align("al-2")
    assert people.run()["digest"] == result["digest"]
    for name in NAMES:  # and nothing that was made of the table stays in the folder
        record = RunFolder(people.root / name / "state" / "runs", "fit-1").load()
        assert not record.blobs.get("rows")


def _said(people, **options):
    """What is said before an alignment that nobody comes to."""
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
    assert said.startswith("runs 'fit-1', 'fit-2' are not finished and would need the order from before")
    assert _said(people, table="predict") == []
    for name in ("fit-1", "fit-2"):
        people.run(name=name)
    assert _said(people) == []


def test_the_command_says_so_before_it_calls_anybody(people, crash, monkeypatch):
    _stopped(people, crash, 4)

    def listen(*_, **__):
        raise InvalidInput("nobody was called")

    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")
    monkeypatch.setattr(Identity, "load", lambda *_: people.identities["lab"])
    monkeypatch.setattr("dperm.vertical.session.activity_log.AuditLog", lambda path: SimpleNamespace(write=print))
    monkeypatch.setattr("dperm.vertical.transport.grpc_hub.GrpcHub", listen)
    done = CliRunner().invoke(vertical, ["align", str(people.root / "lab" / "config.toml")])
    assert str(done.exception) == "nobody was called"
    assert "dperm: note: run 'fit-1' is not finished and would need the order from before" in done.output


def test_a_prediction_is_of_the_people_who_were_declared(tmp_path):
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
def test_an_alignment_does_not_go_on_over_a_table_that_was_exported_again(people, crash, name, before):
    """The same people in another order: places in the old table are other people in the new one."""
    with pytest.raises(crash):
        people.align(before=before)
    people.write(name, range(6, 65) if name == "lab" else range(11, 70))
    error, who = (StateLost, "") if name == "lab" else (PeerRefused, "org-b refused step .*")
    with pytest.raises(error, match=who + "the identifier column changed since alignment 'al-1' began"):
        people.align()
    assert not people.order(name).exists()


def test_nor_where_one_party_alone_is_started_again(people):
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


def test_an_order_is_written_for_the_table_that_was_aligned():
    """Also by a handler that was made since, over another table."""
    ids, kept = passing_identities(["a", "b"]), []
    program = AlignParty("r", ("a", "b"), ids["a"], Listed([b"one", b"two"], "old table"))
    program._round = 2
    program.answer(Message("common", {"places": np.array([0, 1])}))
    handler = AlignmentHandler(ids["a"], Listed([b"two", b"one"], "new table"), lambda *what: kept.append(what), True)
    handler.finish(SimpleNamespace(run="r"), program)
    assert [table for _, table in kept] == ["old table"]
    with pytest.raises(StateLost, match="changed"):  # with the order already known, too
        AlignParty("r", ("a", "b"), ids["a"], Listed([b"two", b"one"], "new table")).restore(program.state())
