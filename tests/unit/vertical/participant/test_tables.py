"""Rows of the same people: training reads the order that alignment wrote, and refuses any other."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dperm.errors import DpermWarning, InvalidInput, PeerRefused
from dperm.vertical.methods.registry import spec_from_config
from dperm.vertical.participant.tables import UnusableOrder


def _edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_training_reads_what_alignment_wrote(people):
    assert people.align() == {"common": 49}
    (a, b), lab = people.tables()
    np.testing.assert_array_equal(a.X, b.X)
    np.testing.assert_array_equal(a.X[:, 0] % 2, lab.target)
    assert {a.alignment, b.alignment, lab.alignment} == {"al-1"}
    assert people.run()["report"].guarantee.epsilon <= 0.5


def test_identifiers_without_an_alignment_are_never_trained_on(people):
    with pytest.raises(UnusableOrder, match=r"order-data\.json: run `dperm vertical align`"):
        people.run()
    # the label holder alone was aligned before
    _edit(people.root / "lab" / "config.toml", 'id = "person"\n', "")
    with pytest.raises(PeerRefused, match=r"org-[ab] refused step 0"):
        people.run()
    policy = people.policy("org-a")
    policy.open()  # it may be here to align
    with pytest.raises(UnusableOrder, match="align"):
        policy.join(spec_from_config(people.config("lab")))
    _edit(people.root / "org-a" / "config.toml", '"align", ', "")
    with pytest.raises(UnusableOrder, match="align"):
        people.policy("org-a").open()


def test_a_changed_table_is_refused_until_it_is_aligned_again(people):
    people.align()
    people.write("org-b", range(11, 70))
    with pytest.raises(PeerRefused, match="org-b refused step 0"):
        people.run()
    with pytest.warns(DpermWarning, match="training is refused.*another table"):
        people.policy("org-b").open()
    people.align("al-2")
    (a, b), lab = people.tables()
    np.testing.assert_array_equal(a.X, b.X)
    np.testing.assert_array_equal(a.X[:, 0] % 2, lab.target)
    assert "digest" in people.run(name="fit-2")


def test_orders_of_different_alignments_are_refused(people):
    people.align()
    path = people.root / "org-b" / "state" / "order-data.json"
    order = json.loads(path.read_text())
    path.write_text(json.dumps(order | {"run": "al-0", "rows": order["rows"][::-1]}))
    with pytest.raises(InvalidInput, match=r"org-b has al-0, the label holder has al-1.*align all again"):
        people.run()
    # a party that was never aligned, with as many rows by chance
    _edit(people.root / "org-b" / "config.toml", 'id = "person"\n', "")
    people.write("org-b", range(11, 60))
    with pytest.raises(InvalidInput, match="org-b has none"):
        people.run(name="fit-2")


def test_an_order_without_identifiers_is_refused(people):
    _edit(people.root / "org-a" / "config.toml", 'id = "person"', 'order = "order.json"')
    with pytest.raises(InvalidInput, match="`order` without `id`"):
        people.policy("org-a").open()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('method = "admm-sharing"', 'method = "admm"', "no method 'admm': choose one of admm-sharing"),
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
def test_wrong_options_are_refused_before_a_table_is_read(people, old, new, sentence):
    _edit(people.root / "lab" / "config.toml", old, new)
    (people.root / "lab" / "table.csv").unlink()
    with pytest.raises(InvalidInput, match=sentence):
        people.run()
