"""``dperm schema``, ``plan``, ``ledger``, ``completion`` and ``demo``."""

from __future__ import annotations

import getpass
import io
import json
import sys
import tomllib

import pytest

from dperm import Ledger
from dperm.data.schema.schema import Schema
from dperm.errors import InvalidBounds
from dperm.privacy.accounting.events import Gaussian

FIT = ("fit", "people.csv", "--epsilon", "1", "--schema", "schema.toml")


def test_a_draft_marks_what_it_read_and_is_refused_until_confirmed(dperm, people, home):
    done = dperm("schema", "people.csv", "--target", "state", "--force")
    assert done.code == 0, done.err
    data = tomllib.loads((home / "schema.toml").read_text())
    assert data["columns"]["age"] == {"kind": "number", "low": 0, "high": 120, "missing": "middle"}  # by its name
    assert data["columns"]["patient_id"] == {"kind": "ignore"}
    assert data["columns"]["visits"]["unconfirmed"] == ["kind", "low", "high"]
    assert data["columns"]["job"]["unconfirmed"] == ["kind", "categories"]
    assert data["columns"]["born"]["kind"] == "ignore"
    assert data["target"]["unconfirmed"] == ["kind", "classes"]
    refused = dperm(*FIT)
    assert refused.code == 2
    assert "dperm schema --confirm schema.toml" in refused.err
    with pytest.raises(InvalidBounds, match="not confirmed as public"):
        Schema.read("schema.toml").bounds()

    text = (home / "schema.toml").read_text().replace("# A range", "# my own remark\n# A range")
    (home / "schema.toml").write_text(text)
    assert dperm("schema", "--confirm", "schema.toml", "--yes").code == 0
    assert "# my own remark" in (home / "schema.toml").read_text()
    done = dperm(*FIT, "--json")
    assert done.code == 0, done.err
    assumed = json.loads(done.out)["guarantee"]["assumptions"]
    assert any("confirmed to be public: state (kind, classes); visits" in text for text in assumed)


def test_values_outside_usual_bounds_are_noted_and_not_written(dperm, home):
    texts = []
    for scale in (1, 100):
        (home / "t.csv").write_text("age,y\n" + "".join(f"{20 + scale * (i % 60)},{'ab'[i % 2]}\n" for i in range(90)))
        done = dperm("schema", "t.csv", "--target", "y", "--force", "--json")
        texts.append((home / "schema.toml").read_text())
        assert ("note: many values of 'age' lie outside" in done.err) == (scale == 100)
        assert json.loads(done.out)["unusual"] == (["age"] if scale == 100 else [])
    assert texts[0] == texts[1]


def test_confirming_asks_first(dperm, people, monkeypatch):
    dperm("schema", "people.csv", "--target", "state", "--force")
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    done = dperm("schema", "--confirm", "schema.toml")
    assert done.code == 1
    assert "visits: kind, low, high" in done.err
    assert "nothing was confirmed" in done.err
    assert Schema.read("schema.toml").unconfirmed


def test_types_of_a_parquet_file_need_no_values(dperm, people, home):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"member": [True, False] * 30, "score": [0.5, 3.5] * 30, "state": [True, False] * 30})
    parquet.write_table(table, "t.parquet")
    assert dperm("schema", "t.parquet", "--target", "state", "--out", "t.toml", "--quiet").out == ""
    data = tomllib.loads((home / "t.toml").read_text())
    assert data["columns"]["member"] == {"kind": "boolean", "missing": "middle"}
    assert data["columns"]["score"]["unconfirmed"] == ["low", "high"]
    assert data["target"] == {"column": "state", "kind": "classes", "classes": [False, True]}


def test_plan_needs_no_data(dperm, people, home):
    done = dperm("plan", "--rows", "5000", "--columns", "20", "--epsilon", "0.5", "--out", "plan.svg")
    assert done.code == 0, done.err
    assert "DPLogisticRegression on 5000 rows" in done.out
    assert "10,000" in done.out
    assert (home / "plan.svg").read_text().startswith("<svg")
    data = json.loads(dperm("plan", "--rows", "5000", "--schema", "schema.toml", "--epsilon", "1", "--json").out)
    assert data["plan"]["n_features"] == 6
    assert [cell["rows"] for cell in data["alternatives"]] == [5000] * 5 + [10000] * 5
    excess = [cell["excess"] for cell in data["alternatives"][:5]]
    assert excess == sorted(excess, reverse=True)


def test_a_method_without_a_forecast_shows_its_noise(dperm, home, monkeypatch):
    monkeypatch.setattr("dperm.estimators.central.request.PreparedFit.forecast", None)
    plan = ("plan", "--rows", "1000", "--columns", "1000", "--epsilon", "1", "--model", "lasso")
    assert "No forecast exists" in dperm(*plan).out
    assert dperm(*plan, "--out", "plan.svg").code == 2


def test_the_ledger_commands(dperm, people, home):
    assert "Nothing was spent yet" in dperm("ledger", "list").out
    dperm(*FIT)
    listed = dperm("ledger", "list")
    assert "people" in listed.out
    shown = dperm("ledger", "show", "people")
    assert "DPLogisticRegression (auto)" in shown.out
    assert "done" in shown.out
    assert "who" in shown.out
    assert getpass.getuser() in shown.out
    (line,) = [line for line in shown.out.splitlines() if "(auto)" in line]
    assert line.split()[-4:-1] == ["1", "1e-05", line.split()[-2]]  # as asked for, at the delta of the fit
    assert "stated at delta 1e-06" in shown.out
    head = json.loads(dperm("ledger", "receipt", "model.json", "--json").out)["head"]
    assert dperm("ledger", "verify", "--head", head).code == 0
    assert dperm("ledger", "verify", "--head", "0" * 64).code == 1
    exported = json.loads(dperm("ledger", "export").out)
    assert exported["datasets"][0]["dataset"] == "people"
    assert "fingerprint" not in json.dumps(exported)
    asked = dperm("ledger", "export", "--out", "ledger.json", "--json")
    assert json.loads(asked.out) == {"written": "ledger.json"}
    assert json.loads((home / "ledger.json").read_text())["head"] == exported["head"]
    assert dperm("ledger", "cap", "people", "--epsilon", "2", "--yes").code == 0
    again = dperm("ledger", "cap", "people", "--epsilon", "9", "--yes")
    assert again.code == 2
    assert "a cap never changes" in again.err
    assert "cap of epsilon 2" in dperm("ledger", "show", "people").out


@pytest.mark.parametrize("command", [("list",), ("show", "people"), ("verify",), ("export",)])
def test_a_wrong_ledger_path_is_a_usage_error(dperm, people, home, command):
    for path, says in (("gone.db", "there is no ledger"), (".", "is a folder"), ("people.csv", "is not a ledger")):
        done = dperm("ledger", *command, "--ledger", path)
        assert done.code == 2, done.err
        assert says in done.err
    assert not (home / "gone.db").exists()


def test_a_reservation_without_a_budget_shows_its_own_epsilon(dperm, home):
    book = Ledger(Ledger.default_path(), dataset="people")
    book.reserve(Gaussian(20.0), "replace-one", "by hand")
    shown = dperm("ledger", "show", "people").out
    assert "~0." in shown
    assert "(~: none was recorded" in " ".join(shown.split())


def test_a_mark_that_is_not_shown_is_not_explained(dperm, people):
    dperm(*FIT)
    shown = dperm("ledger", "show", "people").out
    assert "Each line shows the budget" in shown
    assert "~" not in shown


def test_a_cap_on_an_unknown_name_needs_confirmation(dperm, people, home, monkeypatch):
    cap = ("ledger", "cap", "peopel", "--epsilon", "1")
    refused = dperm(*cap, "--ledger", "own.db")
    assert refused.code == 2
    assert "no ledger at" in refused.err
    assert not (home / "own.db").exists()
    dperm(*FIT)
    refused = dperm(*cap)
    assert refused.code == 2
    assert "the ledger has no data set 'peopel' yet (it has people). A cap cannot be changed later" in refused.err
    assert "--yes" in refused.err
    assert json.loads(dperm("ledger", "list", "--json").out)["datasets"][0]["dataset"] == "people"
    done = dperm(*cap, "--yes")
    assert (done.code, "it has people" in done.err) == (0, True)
    assert dperm("ledger", "cap", "people", "--epsilon", "2").code == 0  # known: as before


@pytest.mark.parametrize("stdin", [io.StringIO(""), None])
def test_without_anybody_who_can_answer_the_usage_is_wrong(dperm, people, monkeypatch, stdin):
    """As for a cap: exit code 2, and the option that scripts need."""
    dperm("schema", "people.csv", "--target", "state", "--force")
    monkeypatch.setattr(sys, "stdin", stdin)
    done = dperm("schema", "--confirm", "schema.toml")
    assert done.code == 2
    assert "nobody answered, and nothing was written" in done.err
    assert Schema.read("schema.toml").unconfirmed
    assert "--yes" in done.err
    assert "spent" not in done.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(dperm, shell):
    assert "_DPERM_COMPLETE" in dperm("completion", shell).out


def test_names_of_columns_and_data_sets_complete(dperm, people):
    from click.shell_completion import ShellComplete

    from dperm.cli.main import cli

    Ledger(Ledger.default_path(), dataset="people").set_cap(_budget())
    complete = ShellComplete(cli, {}, "dperm", "_DPERM_COMPLETE")
    assert [one.value for one in complete.get_completions(["fit", "people.csv", "--target"], "s")] == [
        "smoker",
        "state",
    ]
    assert [one.value for one in complete.get_completions(["ledger", "show"], "pe")] == ["people"]


def _budget():
    from dperm import Budget

    return Budget(1.0, 1e-6)


def test_the_demo_prints_json_or_nothing(dperm, home):
    data = json.loads(dperm("demo", "--json").out)
    assert data["guarantee"]["epsilon"] <= 1.0
    assert set(data["accuracy_on_new_patients"]) >= {"dperm, epsilon = 1", "without privacy"}
    assert all((home / name).exists() for name in data["written"])
    quiet = dperm("demo", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    said = dperm("demo").out.splitlines()
    assert said == [line.rstrip() for line in said]  # in a pipe lines are neither padded nor wrapped
    assert any("(epsilon 1), plus at most" in line and line.startswith("When one person") for line in said)
