"""What a first user meets: predictions that can be joined, a model's report, a simulation that says what it costs."""

from __future__ import annotations

import csv
import json
import sys

import numpy as np
import pytest

from dperm.cli.main import main
from dperm.vertical.methods.prediction import write_predictions
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
def test_otherwise_a_row_is_called_what_it_is(aligned, text, alignment):
    rows = _written(aligned, _config(aligned, text), alignment)
    assert [row["common_row"] for row in rows] == ["0", "1", "2"]
    assert "patient" not in rows[0]


def test_an_identifier_column_of_an_awkward_name(aligned):
    (aligned / "table.csv").write_text("prediction\np0\np1\np2\np3\n")
    config = _config(aligned, DATA.replace("patient", "prediction"))
    assert _written(aligned, config, "align-1")[0]["id_prediction"] == "p2"


@pytest.fixture
def command(monkeypatch, capsys):
    """Run the command line in this process; returns its exit code and all that it said."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dperm", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out + said.err

    return run


def _configs(org):
    return [org.root / name / "config.toml" for name in ("lab", "org-a", "org-b")]


def test_a_simulation_that_trains_is_charged_and_says_so(organisations, command):
    org = organisations()
    org.stop()
    code, said = command("vertical", "simulate", *_configs(org))
    assert code == 2
    assert "charged to the ledgers of lab" in said
    assert "--charge" in said
    assert all("reserve" not in org.kinds(name) for name in ("lab", "org-a", "org-b"))
    code, said = command("vertical", "simulate", "--charge", *_configs(org))
    assert code == 0, said
    assert "epsilon 1.0 is charged to the ledgers of lab" in said
    for name in ("lab", "org-a", "org-b"):
        assert org.kinds(name).count("reserve") == org.kinds(name).count("settle") == 1


def test_a_simulation_says_what_a_party_would_say_in_its_own_log(organisations, command):
    org = organisations()
    org.stop()
    path = org.root / "org-b" / "config.toml"
    text = path.read_text()
    path.write_text(text.replace("epsilon = 1.0", "epsilon = 0.5"))
    code, said = command("vertical", "simulate", "--charge", *_configs(org))
    assert code == 3
    assert "org-b: org-b allows at most epsilon=0.5 per run" in said
    path.write_text(text.replace('"ledger.db"', '"../org-a/ledger.db"'))
    code, said = command("vertical", "simulate", "--charge", *_configs(org))
    assert code == 2
    assert "each needs one of its own" in said


def test_the_report_of_a_vertical_model_can_be_shown(organisations, command, tmp_path):
    org = organisations()
    org.coordinate()
    model = org.root / "lab" / "model.json"
    code, said = command("report", model)
    assert code == 0, said
    assert "epsilon" in said
    assert "reconstruct" in said  # what the model view does not cover
    page = tmp_path / "page.html"
    assert command("report", model, "--out", page)[0] == 0
    assert "<html" in page.read_text()
    own = org.root / "org-a" / "state" / "models" / "fit-1.json"
    assert json.loads(own.read_text())["party"] == "org-a"
    code, said = command("report", own)
    assert code == 2
    assert "one party's part of a model" in said
