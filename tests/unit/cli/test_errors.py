"""What goes wrong: one sentence, the right exit code, nothing half-written, nothing charged."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from dperm.cli import fit as fit_module
from dperm.cli import training
from dperm.cli.output import Output
from dperm.estimators.saved import SavedModel

FIT = ("fit", "people.csv", "--epsilon", "1", "--schema", "schema.toml")
SECRET = "Mrs Smith"


def nothing_happened(dperm, home, *but):
    left = {p.name for p in home.iterdir()} - {"people.csv", "schema.toml", *but}
    assert left == set()
    assert json.loads(dperm("ledger", "list", "--json").out)["datasets"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("fit", "people.csv", "--target", "state", "--epsilon", "1"), "run `dperm schema people.csv --target state`"),
        (("fit", "people.csv", "--epsilon", "1", "--schema", "none.toml"), "cannot be read"),
        ((*FIT, "--target", "stat"), "has no column 'stat'"),
        ((*FIT, "--target", "cost"), "is for target 'state'"),
        ((*FIT, "--model", "lasso"), "use logistic or svm"),
        ((*FIT, "--buy-bounds"), "exclude each other"),
        ((*FIT, "--epsilon", "0"), "epsilon must be above 0"),
        ((*FIT, "--epsilon", "nan"), "not NaN"),
        ((*FIT, "--delta", "2"), "delta must be strictly between"),
        ((*FIT, "--strength", "-1"), "strength"),
        ((*FIT, "--out", "."), "is a folder"),
        ((*FIT, "--out", "nowhere/model.json"), "its folder does not exist"),
        ((*FIT, "--out", "model.html"), "is where the report page goes"),
        ((*FIT, "--test-fraction", "0.2", "--test-epsilon", "-1"), "epsilon must be above 0"),
        ((*FIT, "--drop", "age"), "belongs to --buy-bounds"),
        ((*FIT, "--dataset", " "), "name of a data set"),
        (("fit", ".", "--epsilon", "1", "--schema", "schema.toml"), "is a folder"),
        (("fit", "gone.csv", "--epsilon", "1", "--schema", "schema.toml"), "there is no file"),
        (("fit", "schema.toml", "--epsilon", "1", "--schema", "schema.toml"), "CSV, Parquet or Feather"),
        (("fit", "people.csv", "--schema", "schema.toml"), "Missing option '--epsilon'"),
        (("schema", "people.csv"), "--target is missing"),
        (("schema", "people.csv", "--target", "state"), "exists"),
        (("schema", "people.csv", "--target", "patient_id", "--out", "b.toml"), "more than 20 different texts"),
        (("predict", "schema.toml", "people.csv"), "not a dperm model"),
        (("ledger", "show", "nobody"), "knows no data set 'nobody'"),
        (("ledger", "verify", "--head", "12"), "64 hexadecimal digits"),
        (("plan", "--rows", "100", "--epsilon", "1"), "--columns"),
        (("plan", "--rows", "100", "--columns", "3", "--epsilon", "1", "--out", "a.png"), "must end in .svg"),
    ],
)
def test_wrong_usage(dperm, people, home, arguments, says):
    done = dperm(*arguments)
    assert done.code == 2, done.err
    assert says in done.err
    assert "Traceback" not in done.err
    nothing_happened(dperm, home)


def header_and(*lines):
    return "\n".join(["patient_id,age,visits,job,smoker,born,cost,state", *lines]) + "\n"


ROW = "P1,40,1,clerk,yes,1970-01-01,1,ill"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty"),
        (header_and(), "column names and no rows"),
        (header_and(ROW, ROW), "has one value only"),
        (header_and(ROW, ROW.replace("40", SECRET).replace("ill", "well")), "column 'age' holds text"),
        (header_and(ROW, ROW.replace("ill", SECRET)), "not among the classes"),
        (header_and(ROW, ROW.replace("ill", "")), "has missing values"),
        (header_and(ROW, ROW.replace(",1,clerk", ",,clerk")), "which its rule refuses"),
        (header_and(ROW, ROW.replace("yes", SECRET)), "more than true and false"),
        (header_and(ROW, ROW + ",extra"), "more or fewer fields"),
        (header_and(ROW).replace("smoker", "age"), "two columns named 'age'"),
        (header_and(ROW).replace("smoker", "smoking"), "has no column 'smoker'"),
        (header_and(ROW).replace("state", "state,new").replace("ill", "ill,1"), "a column 'new' that schema.toml does"),
        (b"\xff\xfe\x00bad", "not text in UTF-8"),
    ],
)
def test_bad_tables_are_refused_without_showing_a_value(dperm, people, home, content, says):
    people.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = dperm(*FIT)
    assert done.code == 2
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert "Smith" not in done.err
    nothing_happened(dperm, home)


@pytest.mark.parametrize("kind", ["date", "id", "text"])
def test_dates_and_ids_are_refused_with_advice(dperm, people, home, kind):
    text = (home / "schema.toml").read_text()
    (home / "schema.toml").write_text(
        text.replace('[columns.born]\nkind = "ignore"', f'[columns.born]\nkind = "{kind}"')
    )
    done = dperm(*FIT)
    assert done.code == 2
    assert 'write kind = "ignore"' in done.err


def test_typed_dates_are_refused_by_their_type(dperm, people, home):
    csv, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")
    table = csv.read_csv("people.csv")
    assert str(table.schema.field("born").type).startswith("date")
    parquet.write_table(table, "people.parquet")
    text = (home / "schema.toml").read_text()
    number = '[columns.born]\nkind = "number"\nlow = 0\nhigh = 1'
    (home / "schema.toml").write_text(text.replace('[columns.born]\nkind = "ignore"', number))
    done = dperm("fit", "people.parquet", "--epsilon", "1", "--schema", "schema.toml")
    assert done.code == 2
    assert "column 'born' holds dates" in done.err


def test_damaged_parquet(dperm, people, home):
    pytest.importorskip("pyarrow")
    Path("people.parquet").write_bytes(b"PAR1 and nothing else")
    done = dperm("fit", "people.parquet", "--epsilon", "1", "--schema", "schema.toml")
    assert done.code == 2
    assert "is damaged, or not of the kind that its name says" in done.err


def test_ten_rows_are_fitted_with_a_note(dperm, people, home):
    lines = people.read_text().splitlines()
    wells = [line for line in lines[1:] if line.endswith("well")][:5]
    ills = [line for line in lines[1:] if line.endswith("ill")][:5]
    people.write_text("\n".join([lines[0], *wells, *ills]) + "\n")
    done = dperm(*FIT)
    assert done.code == 0, done.err
    assert done.err.startswith("note: ")


def test_a_file_that_may_not_be_read(dperm, people, home, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *a, **k: False)
    done = dperm(*FIT)
    assert done.code == 2
    assert "may not be read" in done.err


@pytest.mark.parametrize(
    ("number", "code", "says"), [(errno.ENOSPC, 1, "No space left"), (errno.EACCES, 2, "may not be")]
)
def test_a_folder_that_cannot_hold_the_model_costs_nothing(dperm, people, home, monkeypatch, number, code, says):
    def refuse(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(fit_module.os, "fsync", refuse)
        done = dperm(*FIT)
    assert done.code == code
    assert says in done.err
    nothing_happened(dperm, home)


def test_a_disk_that_fills_up_during_the_fit_does_not_lose_the_model(dperm, people, home, tmp_path, monkeypatch):
    save, calls = SavedModel.save, []

    def once(self, path):
        calls.append(path)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return save(self, path)

    monkeypatch.setattr(SavedModel, "save", once)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = dperm(*FIT, "--json")
    assert done.code == 0
    assert "could not be written (No space left on device), so the model was kept elsewhere" in done.err
    (kept,) = json.loads(done.out)["written"]
    assert Path(kept).is_relative_to(tmp_path)
    assert Path(kept).exists()
    assert not (home / "model.json").exists()


def interrupting(at):
    @contextmanager
    def progress(self, what):
        def tell(done, in_all):
            if done >= at:
                raise KeyboardInterrupt

        yield tell

    return progress


def test_ctrl_c_in_the_middle_states_the_reserved_budget(dperm, people, home, monkeypatch):
    monkeypatch.setattr(Output, "progress", interrupting(3))
    done = dperm(*FIT)
    assert done.code == 1
    assert "the epsilon 1 that was reserved on data set people stays spent" in done.err
    assert {p.name for p in home.iterdir()} == {"people.csv", "schema.toml"}
    assert json.loads(dperm("ledger", "list", "--json").out)["datasets"][0]["n_fits"] == 1


def test_ctrl_c_before_the_fit_costs_nothing(dperm, people, home, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training, "_check_target", stop)
        done = dperm(*FIT)
    assert done.code == 1
    assert "interrupted before anything was reserved: nothing was spent" in done.err
    assert "stays spent" not in done.err
    nothing_happened(dperm, home)


def test_ctrl_c_after_the_fit_says_that_the_model_is_kept(dperm, people, home, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(fit_module, "_tell", stop)
    done = dperm(*FIT)
    assert done.code == 1
    assert "model.json and model.html were written, and the epsilon 1 that was reserved" in done.err
    assert (home / "model.json").exists()


def test_a_score_that_is_refused_does_not_lose_the_model(dperm, people, home):
    dperm("ledger", "cap", "people", "--epsilon", "2", "--yes")
    done = dperm(*FIT, "--test-fraction", "0.2", "--test-epsilon", "5")
    assert done.code == 3
    assert "the model is kept, without a score: model.json, model.html" in done.err
    assert (home / "model.json").exists()


def test_other_commands_spend_nothing_when_interrupted(dperm, people, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("dperm.data.draft.draft_schema", stop)
    done = dperm("schema", "people.csv", "--target", "state", "--out", "b.toml")
    assert (done.code, done.err.strip()) == (1, "dperm: interrupted; nothing was written.")


def test_too_little_memory_and_bugs_get_a_sentence(dperm, people, home, monkeypatch):
    for error, says in ((MemoryError(), "memory of this machine"), (KeyError(SECRET), "unexpected KeyError")):

        def fail(*args, error=error):
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(training, "_check_target", fail)
            done = dperm(*FIT)
        assert done.code == 1
        assert says in done.err
        assert "Smith" not in done.err
    nothing_happened(dperm, home)
