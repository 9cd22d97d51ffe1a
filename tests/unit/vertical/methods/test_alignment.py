"""Alignment: the same people in the same order everywhere, no inserted guesses, clear errors."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dperm.errors import DpermWarning, InvalidData, InvalidInput, PeerRefused, ProtocolError, StateLost
from dperm.solvers.vertical.protocol import Message
from dperm.vertical.methods.alignment import (
    AlignCoordinator,
    AlignmentHandler,
    AlignParty,
    IdentifierColumn,
    clean_identifiers,
)
from dperm.vertical.methods.blinding import Blinding
from dperm.vertical.participant.config import TableSource
from dperm.vertical.participant.tables import read_identifiers, read_order, table_digest, write_order
from dperm.vertical.session.simulate import simulate_in_folders, temporary_identities
from dperm.vertical.session.spec import RunSpec


def _people(numbers):
    return [f"{n * 7919:024d}".encode() for n in numbers]


def _table(people):
    return IdentifierColumn(people, table_digest(people))


def _align(tables, tmp_path, label_holder=None):
    parties = tuple(name for name in tables if name != label_holder)
    ids, orders = temporary_identities([*tables, "carrier"]), {}

    def handler(name):
        people = None if tables[name] is None else _table(tables[name])
        return AlignmentHandler(
            ids[name], people, lambda order, table: orders.__setitem__(name, order), name in parties
        )

    options = {} if label_holder is None else {"label_holder": label_holder}
    lab = handler(label_holder) if label_holder else AlignmentHandler(ids["carrier"], None, orders.__setitem__, False)
    spec = RunSpec("al", "align", parties, options)
    roots = {name: tmp_path / name for name in parties}
    result = simulate_in_folders(spec, lab, {name: handler(name) for name in parties}, ids, tmp_path / "lab", roots)
    return result, {name: [tables[name][i] for i in order] for name, order in orders.items()}


@pytest.mark.parametrize("label_holder", [None, "c"])
def test_all_have_the_same_people_in_the_same_order(tmp_path, label_holder):
    tables = {"a": _people(range(0, 30)), "b": _people(range(40, 10, -1)), "c": _people(range(15, 26))}
    result, people = _align(tables, tmp_path, label_holder)
    assert result == {"common": 11}
    assert people["a"] == people["b"] == people["c"]
    assert sorted(people["a"]) == sorted(_people(range(15, 26)))


def test_two_parties(tmp_path):
    _, people = _align({"a": _people([1, 2, 3]), "b": _people([3, 9, 1, 8])}, tmp_path)
    assert people["a"] == people["b"]
    assert set(people["a"]) == set(_people([1, 3]))


def test_no_people_in_common(tmp_path):
    with pytest.raises(InvalidInput, match=r"no people in common.*same form"):
        _align({"a": _people([1]), "b": _people([2])}, tmp_path)


def test_neither_identifiers_nor_the_order_of_a_table_are_sent():
    """Lists at every step are new points in an order of their own."""
    ids = temporary_identities(["a", "b"])
    people = _people(range(8))
    party = AlignParty("r", ("a", "b"), ids["a"], _table(people))
    points = party.answer(Message("multiply", {}, {"owner": "a"})).arrays["points"]
    again = Blinding(party.state().arrays["secret"].tobytes())
    assert {row.tobytes() for row in points} == {row.tobytes() for row in again.blind(people)}
    assert points.tobytes() != again.blind(people).tobytes()
    other = AlignParty("r", ("a", "b"), ids["a"], _table(people)).answer(Message("multiply", {}, {"owner": "a"}))
    assert not {row.tobytes() for row in points} & {row.tobytes() for row in other.arrays["points"]}


def test_the_coordinator_cannot_have_guesses_multiplied():
    ids = temporary_identities(["a", "b"])
    b = AlignParty("r", ("a", "b"), ids["b"], _table(_people([1])))
    b.answer(Message("multiply", {}, {"owner": "b"}))
    guesses = Blinding().blind(_people([5]))
    with pytest.raises(ProtocolError, match="without its signature"):
        b.answer(Message("multiply", {"points": guesses}, {"owner": "a"}))
    a = AlignParty("r", ("a", "b"), ids["a"], _table(_people([1])))
    genuine = dict(a.answer(Message("multiply", {}, {"owner": "a"})).arrays)
    with pytest.raises(ProtocolError, match="certified key"):
        b.answer(Message("multiply", {**genuine, "points": guesses}, {"owner": "a"}))
    assert b.answer(Message("multiply", genuine, {"owner": "a"})).kind == "multiplied"
    with pytest.raises(ProtocolError):
        b.answer(Message("multiply", genuine, {"owner": "a"}))


def test_a_point_off_the_curve_is_refused():
    bad = next(x for x in (bytes([k] * 32) for k in range(1, 200)) if not _on_curve(x))
    with pytest.raises(ProtocolError, match="not a point"):
        Blinding().multiply(np.frombuffer(bad, np.uint8).reshape(1, 32))


def _on_curve(x):
    try:
        Blinding().multiply(np.frombuffer(x, np.uint8).reshape(1, 32))
    except ProtocolError:
        return False
    return True


def test_invalid_positions_are_refused():
    ids = temporary_identities(["a", "b"])
    party = AlignParty("r", ("a", "b"), ids["a"], _table(_people([1, 2])))
    party._round = 2
    for places in ([0, 0], [2], [-1]):
        with pytest.raises(ProtocolError, match="positions"):
            party.answer(Message("common", {"places": np.array(places)}))


def test_blinding_commutes():
    a, b = Blinding(), Blinding()
    people = _people(range(5))
    np.testing.assert_array_equal(b.multiply(a.blind(people)), a.multiply(b.blind(people)))


def test_unusable_identifiers_are_refused():
    with pytest.raises(InvalidData, match="2 repeated"):
        clean_identifiers(["x" * 30, "x" * 30, " " + "x" * 30])
    with pytest.raises(InvalidData, match="missing for 1 rows"):
        clean_identifiers(["abc", " "])
    with pytest.raises(InvalidData, match="no people to align"):
        clean_identifiers([])
    with pytest.warns(DpermWarning, match="try them all"):
        clean_identifiers(["123456", "654321"])
    long = [f"{n * 0x9E3779B97F4A7C15 % 2**64:016x}" for n in range(1, 50)]
    one, other = (clean_identifiers([name + end for end in long]) for name in ("caf\u0065\u0301", "caf\u00e9"))
    assert one == other


@pytest.mark.parametrize(
    "few",
    [
        [f"person-number-{i:06d}" for i in range(400)],
        [f"{i}@people.example.org" for i in range(400)],
        [f"{1900 + i % 100}-01-{i % 28 + 1:02d}T00:00:00Z" for i in range(28)],
    ],
)
def test_a_shared_prefix_or_suffix_does_not_count_as_unguessable(few):
    with pytest.warns(DpermWarning, match="try them all"):
        clean_identifiers(few)


def test_a_party_without_identifiers_refuses_to_align(tmp_path):
    with pytest.raises(PeerRefused):
        _align({"a": _people([1]), "b": None}, tmp_path)


def test_alignment_needs_two():
    with pytest.raises(InvalidInput, match="at least two"):
        AlignCoordinator("r", ("a",), None)


def test_order_files(tmp_path):
    people = ["p7", "p3", "p5"]
    path = write_order(tmp_path / "order.json", np.array([2, 0]), "al", table_digest(people))
    order = read_order(path, people)
    assert order.rows.tolist() == [2, 0]
    assert order.run == "al"
    # rows in another order, rows added, one person replaced, and values that only look the same when joined
    for other in (people[::-1], [*people, "p9"], people[:2], ["p7", "p3", "p6"], ["p", "7p3", "p5"]):
        with pytest.raises(InvalidData, match="another table"):
            read_order(path, other)
    with pytest.raises(InvalidInput, match="align"):
        read_order(tmp_path / "none.json", people)
    for junk in ("{}", "[]", '{"format": "dperm order 1", "run": "al", "rows": [0]}', "["):
        (tmp_path / "junk.json").write_text(junk)
        with pytest.raises(InvalidInput, match="not an order file"):
            read_order(tmp_path / "junk.json", people)


def test_numbers_as_identifiers_keep_their_digits(tmp_path):
    (tmp_path / "t.csv").write_text("id,x\n007,1\n12,2\n")
    assert read_identifiers(TableSource(tmp_path / "t.csv", "id")) == ["007", "12"]
    assert read_identifiers(TableSource(tmp_path / "t.csv")) is None


def test_an_order_is_stored_for_the_aligned_table_only():
    """Even by a handler that was created later, for another table."""
    ids, kept = temporary_identities(["a", "b"]), []
    program = AlignParty("r", ("a", "b"), ids["a"], IdentifierColumn([b"one", b"two"], "old table"))
    program._round = 2
    program.answer(Message("common", {"places": np.array([0, 1])}))
    handler = AlignmentHandler(
        ids["a"], IdentifierColumn([b"two", b"one"], "new table"), lambda *what: kept.append(what), True
    )
    handler.finish(SimpleNamespace(run="r"), program)
    assert [table for _, table in kept] == ["old table"]
    with pytest.raises(StateLost, match="changed"):  # also when the order is already known
        AlignParty("r", ("a", "b"), ids["a"], IdentifierColumn([b"two", b"one"], "new table")).restore(program.state())
