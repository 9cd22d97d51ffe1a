"""Rows of the same people: training reads the order that alignment wrote, and refuses whatever is not that."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from dperm.errors import DpermWarning, InvalidInput, PeerRefused
from dperm.vertical.config import read_config
from dperm.vertical.office import PartyOffice, coordinator_desk, spec_of
from dperm.vertical.simulate import passing_identities, simulate_with
from dperm.vertical.tables import LabelTable, OrderUnusable, PartyTable

NAMES = ("org-a", "org-b")
IDS = passing_identities([*NAMES, "lab"])
PARTY = """
name = "{name}"
coordinator = "localhost:1"
[data]
file = "table.csv"
id = "person"
[ledger]
file = "ledger.db"
dataset = "people"
epsilon = 5.0
[allow]
methods = ["align", "admm-sharing"]
epsilon = 1.0
[columns.x]
kind = "number"
low = 0
high = 100
"""
LAB = """
name = "lab"
listen = "localhost:0"
[data]
file = "table.csv"
id = "person"
[target]
column = "y"
kind = "classes"
classes = ["no", "yes"]
[ledger]
file = "ledger.db"
dataset = "people"
epsilon = 5.0
[run]
name = "fit-1"
method = "admm-sharing"
parties = ["org-a", "org-b"]
[run.options]
epsilon = 0.5
delta = 1e-6
n_rounds = 2
"""


def _person(number):
    return f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}"


def _write(folder, numbers, column, value):
    rows = [f"{_person(number)},{value(number)}\n" for number in numbers]
    (folder / "table.csv").write_text(f"person,{column}\n" + "".join(rows))


@pytest.fixture
def root(tmp_path):
    """Each has other people too, in an order of its own; x and y tell who somebody is."""
    for name, low, high in (("org-a", 1, 60), ("org-b", 11, 70), ("lab", 6, 65)):
        (tmp_path / name).mkdir()
        numbers = list(range(low, high))
        random.Random(name).shuffle(numbers)
        _write(tmp_path / name, numbers, *(("y", lambda n: ["no", "yes"][n % 2]) if name == "lab" else ("x", int)))
        (tmp_path / name / "config.toml").write_text(LAB if name == "lab" else PARTY.format(name=name))
    return tmp_path


def _run(root, **changes):
    config = read_config(root / "lab" / "config.toml")
    config = replace(config, run=replace(config.run, **changes))
    configs = {name: read_config(root / name / "config.toml") for name in NAMES}
    desks = {name: PartyOffice(configs[name], IDS[name]) for name in NAMES}
    roots = {name: configs[name].state / "runs" for name in NAMES}
    desk = coordinator_desk(config, IDS["lab"])
    return simulate_with(spec_of(config), desk, desks, IDS, config.state / "runs", roots)


def _align(root, name="al-1"):
    return _run(root, name=name, method="align", options={})


def _party(root, name):
    return read_config(root / name / "config.toml")


def _tables(root):
    tables = [PartyTable.read(_party(root, name), _party(root, name).data) for name in NAMES]
    lab = read_config(root / "lab" / "config.toml")
    return tables, LabelTable.read(lab, lab.data)


def _edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_training_reads_what_alignment_wrote(root):
    assert _align(root) == {"common": 49}
    (a, b), lab = _tables(root)
    np.testing.assert_array_equal(a.X, b.X)
    np.testing.assert_array_equal(a.X[:, 0] % 2, lab.target)
    assert {a.alignment, b.alignment, lab.alignment} == {"al-1"}
    assert _run(root)["report"].guarantee.epsilon <= 0.5


def test_identifiers_without_an_alignment_are_never_trained_on(root):
    with pytest.raises(OrderUnusable, match=r"order-data\.json: run `dperm vertical align`"):
        _run(root)
    # the label holder alone was aligned before
    (root / "lab" / "config.toml").write_text(LAB.replace('id = "person"\n', ""))
    with pytest.raises(PeerRefused, match="org-a refused step 0"):
        _run(root)
    office = PartyOffice(_party(root, "org-a"), IDS["org-a"])
    office.open()  # it may be here to align
    with pytest.raises(OrderUnusable, match="align"):
        office.join(spec_of(read_config(root / "lab" / "config.toml")))
    _edit(root / "org-a" / "config.toml", '"align", ', "")
    with pytest.raises(OrderUnusable, match="align"):
        PartyOffice(_party(root, "org-a"), IDS["org-a"]).open()


def test_a_table_that_changed_since_is_refused_until_it_is_aligned_again(root):
    _align(root)
    _write(root / "org-b", range(11, 70), "x", int)
    with pytest.raises(PeerRefused, match="org-b refused step 0"):
        _run(root)
    with pytest.warns(DpermWarning, match="no run is trained.*another table"):
        PartyOffice(_party(root, "org-b"), IDS["org-b"]).open()
    _align(root, "al-2")
    (a, b), lab = _tables(root)
    np.testing.assert_array_equal(a.X, b.X)
    np.testing.assert_array_equal(a.X[:, 0] % 2, lab.target)
    assert "digest" in _run(root, name="fit-2")


def test_orders_of_different_alignments_are_refused(root):
    _align(root)
    path = root / "org-b" / "state" / "order-data.json"
    order = json.loads(path.read_text())
    path.write_text(json.dumps(order | {"run": "al-0", "rows": order["rows"][::-1]}))
    with pytest.raises(InvalidInput, match=r"org-b has al-0, the label holder has al-1.*align all again"):
        _run(root)
    # a party that was never aligned, with as many rows by chance
    _edit(root / "org-b" / "config.toml", 'id = "person"\n', "")
    _write(root / "org-b", range(11, 60), "x", int)
    with pytest.raises(InvalidInput, match="org-b has none"):
        _run(root, name="fit-2")


def test_an_order_without_identifiers_is_refused(root):
    _edit(root / "org-a" / "config.toml", 'id = "person"', 'order = "order.json"')
    with pytest.raises(InvalidInput, match="`order` without `id`"):
        PartyOffice(_party(root, "org-a"), IDS["org-a"]).open()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('method = "admm-sharing"', 'method = "admm"', "no method 'admm': known are admm-sharing"),
        ("n_rounds = 2", "n_round = 30", "no option 'n_round'"),
        ("n_rounds = 2", 'n_rounds = "2"', "n_rounds must be a whole number"),
        ("epsilon = 0.5\ndelta", "epsilon = -1\ndelta", "epsilon"),
        ("epsilon = 0.5\ndelta", "delta", "needs `epsilon`"),
        ("delta = 1e-6", 'delta = "small"', r"\[run.options\]"),
        ("n_rounds = 2", 'view = "encrypted"', "view must be 'model' or 'transcript'"),
        ("n_rounds = 2", 'loss = "hige"', "no loss 'hige'"),
        ("n_rounds = 2", 'intercept = "org-z"', "`intercept` must name a party"),
        ("n_rounds = 2", "loss_options = 5", "options of loss 'logistic'"),
    ],
)
def test_wrong_options_are_refused_before_a_table_is_read(root, old, new, sentence):
    _edit(root / "lab" / "config.toml", old, new)
    (root / "lab" / "table.csv").unlink()
    with pytest.raises(InvalidInput, match=sentence):
        _run(root)
