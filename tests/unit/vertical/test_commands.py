"""The commands: a simulation states what it charges, and the report of a vertical model can be shown."""

from __future__ import annotations

import json
import sys

import pytest

from dperm.cli.main import main


@pytest.fixture
def command(monkeypatch, capsys):
    """Run the command line in this process; returns its exit code and output."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dperm", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out + said.err

    return run


def _configs(org):
    return [org.root / name / "config.toml" for name in ("lab", "org-a", "org-b")]


def test_a_simulation_that_trains_is_charged_and_reports_it(organisations, command):
    org = organisations()
    org.stop()
    code, said = command("vertical", "simulate", *_configs(org))
    assert code == 2
    assert "charged to the ledgers of lab" in said
    assert "--charge" in said
    assert all("reserve" not in org.kinds(name) for name in ("lab", "org-a", "org-b"))
    code, said = command("vertical", "simulate", "--charge", *_configs(org))
    assert code == 0, said
    assert "epsilon 1.0 will be charged to the ledgers of lab" in said
    for name in ("lab", "org-a", "org-b"):
        assert org.kinds(name).count("reserve") == org.kinds(name).count("settle") == 1


def test_a_simulation_shows_each_partys_own_error(organisations, command):
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
