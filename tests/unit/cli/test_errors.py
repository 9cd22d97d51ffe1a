"""Errors of commands: one sentence, the right exit code, nothing half-written, nothing charged."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

import dperm as package
from dperm.cli import fit as fit_module
from dperm.cli import main as main_module
from dperm.cli import model_files, training
from dperm.cli.output import Output, ProgressBar
from dperm.errors import InvalidData
from dperm.estimators.persistence.saved import SavedModel

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
        ((*FIT, "--dataset", ""), "name of a data set"),
        ((*FIT, "--ledger", ""), "a path or a URL, and not empty"),
        (("ledger", "list", "--ledger", ""), "a path or a URL, and not empty"),
        (("fit", ".", "--epsilon", "1", "--schema", "schema.toml"), "is a folder"),
        (("fit", "gone.csv", "--epsilon", "1", "--schema", "schema.toml"), "there is no file"),
        (("fit", "schema.toml", "--epsilon", "1", "--schema", "schema.toml"), "CSV, Parquet or Feather"),
        (("fit", "people.csv", "--schema", "schema.toml"), "Missing option '--epsilon'"),
        (("schema", "people.csv"), "--target is missing"),
        (("schema", "people.csv", "--target", "state"), "exists"),
        (("schema", "people.csv", "--target", "nope"), "has no column 'nope'"),
        (("schema", "people.csv", "--target", "patient_id", "--out", "b.toml"), "more than 20 different texts"),
        (("predict", "schema.toml", "people.csv"), "not a dperm model"),
        (("ledger", "show", "nobody"), "has no data set 'nobody'"),
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
        (header_and(), "column names but no rows"),
        (header_and(ROW, ROW), "has only one value"),
        (header_and(ROW, ROW.replace("40", SECRET).replace("ill", "well")), "column 'age' contains text"),
        (header_and(ROW, ROW.replace("ill", SECRET)), "not one of the classes"),
        (header_and(ROW, ROW.replace("ill", "")), "has missing values"),
        (header_and(ROW, ROW.replace(",1,clerk", ",,clerk")), "which the schema refuses"),
        (header_and(ROW, ROW.replace("yes", SECRET)), "more than true and false"),
        (header_and(ROW, ROW + ",extra"), "more or fewer fields"),
        (header_and(ROW).replace("smoker", "age"), "two columns named 'age'"),
        (header_and(ROW).replace("smoker", "smoking"), "has no column 'smoker'"),
        (header_and(ROW).replace("state", "state,new").replace("ill", "ill,1"), "a column 'new' that schema.toml does"),
        (b"\xff\xfe\x00bad", "not UTF-8 text"),
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
    assert "is damaged, or its format does not match its name" in done.err


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
    assert "do not have permission to read" in done.err


@pytest.mark.parametrize(
    ("number", "code", "says"), [(errno.ENOSPC, 1, "No space left"), (errno.EACCES, 2, "may not be")]
)
def test_a_folder_that_cannot_hold_the_model_costs_nothing(dperm, people, home, monkeypatch, number, code, says):
    def refuse(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(model_files.os, "fsync", refuse)
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
    assert "could not be written (No space left on device), so the model was saved elsewhere" in done.err
    (kept,) = json.loads(done.out)["written"]
    assert Path(kept).is_relative_to(tmp_path)
    assert Path(kept).exists()
    assert not (home / "model.json").exists()


def interrupting(at):
    @contextmanager
    def progress(self, what):
        def tell(what, done, in_all):
            if done >= at:
                raise KeyboardInterrupt

        yield ProgressBar(what, tell)

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


def test_ctrl_c_after_the_fit_reports_the_saved_model(dperm, people, home, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(fit_module, "_show_result", stop)
    done = dperm(*FIT)
    assert done.code == 1
    assert "model.json and model.html were written, and the epsilon 1 that was reserved" in done.err
    assert (home / "model.json").exists()


def test_a_score_that_has_no_room_is_refused_before_the_fit_has_spent(dperm, people, home):
    dperm("ledger", "cap", "people", "--epsilon", "2", "--yes", "--ledger", "own.db")
    fit = (*FIT, "--ledger", "own.db", "--test-fraction", "0.2")
    done = dperm(*fit, "--test-epsilon", "1.9")
    assert done.code == 3
    assert "has room for the fit but not for its paid score too, and nothing was charged" in done.err
    assert "dperm ledger show --ledger own.db people" in done.err
    assert not (home / "model.json").exists()
    assert json.loads(dperm("ledger", "list", "--json", "--ledger", "own.db").out)["datasets"][0]["n_fits"] == 0
    assert dperm(*fit, "--test-epsilon", "0.5").code == 0


def test_a_score_that_fails_does_not_lose_the_model(dperm, people, home, monkeypatch):
    def fail(*args, **options):
        raise InvalidData("the held-out rows contain a label that the model does not know.")

    monkeypatch.setattr("dperm.estimators.central.scoring.paid_score", fail)
    done = dperm(*FIT, "--test-fraction", "0.2", "--test-epsilon", "5")
    assert done.code == 2
    assert "the model is kept, without a score: model.json, model.html" in done.err
    assert package.load("model.json").privacy_report_.score is None


def stop_at(monkeypatch, name):
    """Interrupt when the file of this name is about to be put into its place."""
    replace = os.replace

    def stopping(source, target):
        if Path(target).name == name:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", stopping)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model.json", "interrupted: nothing was written, and the epsilon 1"),
        ("model.html", "interrupted: model.json was written, and the epsilon 1"),
    ],
)
def test_ctrl_c_while_files_are_written_lists_those_on_disk(dperm, people, home, monkeypatch, name, says):
    stop_at(monkeypatch, name)
    done = dperm(*FIT)
    assert done.code == 1
    assert says in done.err
    assert (home / "model.json").exists() == ("model.json was" in says)
    assert not [path for path in home.iterdir() if path.suffix == ".tmp"]


def test_a_file_that_is_written_over_counts_only_when_it_was(dperm, people, home, monkeypatch):
    assert dperm(*FIT).code == 0
    stop_at(monkeypatch, "model.html")
    assert "interrupted: model.json was written, and" in dperm(*FIT, "--force").err


def test_a_page_that_cannot_be_written_does_not_lose_the_model(dperm, people, home, monkeypatch):
    replace = os.replace

    def full(source, target):
        if Path(target).suffix == ".html":
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    done = dperm(*FIT, "--json")
    assert done.code == 0
    assert "'model.html' could not be written (No space left on device); the model was" in done.err
    assert "dperm report model.json --out model.html" in done.err
    assert json.loads(done.out)["written"] == ["model.json"]
    assert package.load("model.json").privacy_report_.guarantee is not None


def test_an_interrupted_fit_is_remembered_with_its_file(dperm, people, home, monkeypatch):
    """The budget is spent, so a renamed copy that is read in another way must be known too."""
    with monkeypatch.context() as patched:
        patched.setattr(Output, "progress", interrupting(3))
        assert "stays spent" in dperm(*FIT).err
    os.rename("people.csv", "others.csv")
    schema = home / "schema.toml"
    schema.write_text(schema.read_text().replace("high = 100", "high = 50"))  # clips: other rows than before
    done = dperm("fit", "others.csv", "--epsilon", "1", "--schema", "schema.toml")
    assert done.code == 0, done.err
    assert "data set 'people' has 2 uses" in done.err


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_what_cannot_be_written_is_named(dperm, people, home, monkeypatch, number):
    assert dperm(*FIT).code == 0

    def refuse(*args, **options):
        raise OSError(number, os.strerror(number), "/tmp/some-draft.tmp")

    monkeypatch.setattr("dperm.reporting.report.os.open", refuse)
    for arguments in (("report", "model.json", "--out", "a.html"), ("ledger", "export", "--out", "a.html")):
        done = dperm(*arguments)
        assert (done.code, done.err) == (1, f"dperm: {os.strerror(number)}: 'a.html': nothing was written there.\n")


def test_other_commands_spend_nothing_when_interrupted(dperm, people, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("dperm.data.schema.draft.draft_schema", stop)
    done = dperm("schema", "people.csv", "--target", "state", "--out", "b.toml")
    assert (done.code, done.err.strip()) == (1, "dperm: interrupted; nothing was written.")


def test_too_little_memory_and_bugs_get_a_sentence(dperm, people, home, monkeypatch):
    for error, says in ((MemoryError(), "too little memory"), (KeyError(SECRET), "unexpected KeyError")):

        def fail(*args, error=error):
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(training, "_check_target", fail)
            done = dperm(*FIT)
        assert done.code == 1
        assert says in done.err
        assert "Smith" not in done.err
    nothing_happened(dperm, home)


@pytest.mark.parametrize(
    ("file", "shown"),
    [("own ledger.db", "'{home}/own ledger.db'"), ("postgresql://me:secret@host/books", "postgresql://me@host/books")],
)
def test_an_interrupted_vertical_command_names_the_ledger_that_was_used(home, monkeypatch, file, shown):
    (home / "lab.toml").write_text(f'name = "lab"\n[ledger]\nfile = "{file}"\ndataset = "people"\n')
    monkeypatch.setattr("sys.argv", ["dperm", "vertical", "party", "lab.toml", "missing.toml"])
    told = main_module._interrupted()
    assert "secret" not in told
    assert told.endswith(f"stays spent: see `dperm ledger list --ledger {shown.format(home=home)}`.")
