"""Predictions carry identifiers, so that they can be joined with the coordinator's table."""

from __future__ import annotations

import csv
import stat

import numpy as np
import pytest

from dperm.vertical.methods.prediction import _PredictParty, write_predictions
from dperm.vertical.participant.config import read_config
from dperm.vertical.participant.tables import own_rows, table_digest, write_order


def _config(folder, text):
    (folder / "config.toml").write_text('name = "lab"\n' + text)
    return read_config(folder / "config.toml")


@pytest.fixture
def aligned(tmp_path):
    (tmp_path / "table.csv").write_text("patient,y\np0,1\np1,0\np2,1\np3,0\n")
    write_order(tmp_path / "order.json", np.array([2, 0, 3]), "align-1", table_digest(["p0", "p1", "p2", "p3"]))
    return tmp_path


def _written(folder, config, alignment):
    made = {"prediction": ["yes", "no", "yes"], "probability": [0.9, 0.1, 0.8]}
    write_predictions(made, folder / "out.csv", own_rows(config, alignment))
    with open(folder / "out.csv") as handle:
        return list(csv.DictReader(handle))


DATA = '[data]\nfile = "table.csv"\nid = "patient"\norder = "order.json"\n'


def test_predictions_carry_the_coordinators_own_identifiers(aligned):
    rows = _written(aligned, _config(aligned, DATA), "align-1")
    assert [(row["patient"], row["table_row"]) for row in rows] == [("p2", "2"), ("p0", "0"), ("p3", "3")]
    assert [row["prediction"] for row in rows] == ["yes", "no", "yes"]
    assert stat.S_IMODE((aligned / "out.csv").stat().st_mode) == 0o600  # one line per person, with identifiers


def test_predictions_over_an_open_file_are_closed_to_others(aligned):
    (aligned / "out.csv").touch(mode=0o644)
    _written(aligned, _config(aligned, DATA), "align-1")
    assert stat.S_IMODE((aligned / "out.csv").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("text", "alignment"),
    [
        (DATA, "align-2"),  # the parties' people were found by another alignment
        (DATA, ""),  # tables as they stand
        ('[data]\nfile = "table.csv"\n', "align-1"),
        ('[data]\nfile = "gone.csv"\nid = "patient"\norder = "order.json"\n', "align-1"),
        ("", "align-1"),
    ],
)
def test_predictions_without_a_matching_order_carry_the_common_row(aligned, text, alignment):
    rows = _written(aligned, _config(aligned, text), alignment)
    assert [row["common_row"] for row in rows] == ["0", "1", "2"]
    assert "patient" not in rows[0]


def test_an_identifier_column_named_like_a_prediction_column(aligned):
    (aligned / "table.csv").write_text("prediction\np0\np1\np2\np3\n")
    config = _config(aligned, DATA.replace("patient", "prediction"))
    assert _written(aligned, config, "align-1")[0]["id_prediction"] == "p2"


def test_the_scores_of_64_parties_cannot_overflow():
    """A secure sum is exact below 2^63 only; the largest score that a party may send is clipped accordingly."""
    (largest,) = _PredictParty(np.array([1e300])).answer(None).arrays["scores"]
    assert 64 * int(largest) < 2**63
