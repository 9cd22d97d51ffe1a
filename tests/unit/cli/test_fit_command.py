"""``dperm fit``, ``predict``, ``report``: from a table to a model and back to raw rows."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import dperm as package
from dperm.cli import training
from dperm.cli.summary import OwnersScore
from dperm.cli.summary import _score_sentence as _said
from dperm.data.encoded_rows import encoded_rows
from dperm.data.files import open_table
from dperm.data.schema import Schema
from dperm.estimators.saved import SavedRegressor

FIT = ("fit", "people.csv", "--target", "state", "--epsilon", "1", "--schema", "schema.toml")


def test_fit_writes_a_model_that_predicts_raw_rows_and_a_page(dperm, people, home):
    done = dperm(*FIT)
    assert done.code == 0, done.err
    assert "epsilon 1" in done.out
    assert "data set 'people' was used once" in done.out
    assert sorted(p.name for p in home.iterdir()) == ["model.html", "model.json", "people.csv", "schema.toml"]
    model = package.load("model.json")
    assert model.privacy_report_.guarantee.epsilon <= 1.0
    assert list(model.feature_names_in_) == ["age", "visits", "job=clerk", "job=driver", "job=nurse", "smoker"]
    predicted = dperm("predict", "model.json", "people.csv", "--probabilities")
    lines = predicted.out.splitlines()
    assert lines[0] == "prediction,probability of ill,probability of well"
    assert len(lines) == 301
    assert [line.split(",")[0] for line in lines[1:]] == model.predict(open_table("people.csv")).tolist()


def test_tables_of_other_libraries_are_encoded_by_the_model(dperm, people):
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    dperm(*FIT)
    model = package.load("model.json")
    wanted = model.predict_proba(open_table("people.csv"))
    for table in (pandas.read_csv("people.csv"), polars.read_csv("people.csv")):
        assert np.array_equal(model.predict_proba(table), wanted)


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_parquet_and_feather_give_the_same_rows(people, home, ending):
    pytest.importorskip("pyarrow")
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet

    table = pyarrow.csv.read_csv("people.csv")
    path = home / f"people.{ending}"
    if ending == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, str(path))
    schema = Schema.read("schema.toml")
    one, other = (schema.encode(open_table(p), with_target=True) for p in ("people.csv", path))
    assert np.array_equal(one.X, other.X)
    assert one.y.tolist() == other.y.tolist()


def test_machines_get_json_and_quiet_says_nothing(dperm, people):
    done = dperm(*FIT, "--json")
    data = json.loads(done.out)
    assert data["guarantee"]["epsilon"] <= 1.0
    assert data["spent"]["n_fits"] == 1
    assert data["written"] == ["model.json", "model.html"]
    silent = dperm(*FIT, "--quiet", "--out", "second.json")
    assert (silent.code, silent.out, silent.err) == (0, "", "")


def test_a_score_is_paid_for_or_marked_as_not_private(dperm, people):
    plain = dperm(*FIT, "--test-fraction", "0.3")
    assert "on 90 held-out people (predicting one value for all: " in plain.out
    assert "%). NOT PRIVATE" in plain.out
    paid = json.loads(dperm(*FIT, "--test-fraction", "0.3", "--test-epsilon", "2", "--out", "b.json", "--json").out)
    assert paid["score"]["private"] is True
    assert paid["score"]["low"] < paid["score"]["value"] < paid["score"]["high"]
    assert paid["spent"]["n_fits"] == 3  # two fits and the score
    assert "0.3" not in package.load("model.json").privacy_report_.to_json()
    assert dperm(*FIT, "--test-epsilon", "1", "--out", "c.json").code == 2


@pytest.mark.parametrize("model", ["logistic", "svm"])
def test_models_of_classes(dperm, people, model):
    assert dperm(*FIT, "--model", model, "--strength", "0.01", "--neighbours", "zero-out").code == 0


@pytest.mark.parametrize("model", ["linear", "ridge", "lasso", "elastic-net", "huber"])
def test_models_of_numbers(dperm, people, home, model):
    text = (home / "schema.toml").read_text()
    text = text.replace('column = "state"\nkind = "classes"\nclasses = ["ill", "well"]', 'column = "cost"\n' + NUMBER)
    (home / "schema.toml").write_text(text.replace("[columns.cost]", "[columns.state]"))
    done = dperm("fit", "people.csv", "--epsilon", "3", "--schema", "schema.toml", "--model", model)
    assert done.code == 0, done.err
    assert dperm("predict", "model.json", "people.csv").out.startswith("prediction\n")


NUMBER = 'kind = "number"\nlow = 0\nhigh = 4000'


def test_ranges_of_numeric_columns_can_be_bought(dperm, people):
    fit = ("fit", "people.csv", "--target", "cost", "--epsilon", "4", "--buy-bounds")
    assert "--model is missing" in dperm(*fit).err
    refused = dperm(*fit, "--model", "ridge")
    assert refused.code == 2
    assert "'patient_id' does not hold numbers only" in refused.err
    drop = [word for name in ("patient_id", "job", "smoker", "born", "state") for word in ("--drop", name)]
    done = dperm(*fit, "--model", "ridge", *drop)
    assert done.code == 0, done.err
    assert package.load("model.json").privacy_report_.public["bounds"] == "bought"
    assert len(dperm("predict", "model.json", "people.csv").out.splitlines()) == 301
    classes = [word for name in ("patient_id", "job", "smoker", "born") for word in ("--drop", name)]
    fit = ("fit", "people.csv", "--target", "state", "--epsilon", "1", "--buy-bounds", "--model", "logistic")
    done = dperm(*fit, *classes, "--out", "b.json")
    assert done.code == 0, done.err
    assert package.load("b.json").classes_.tolist() == ["ill", "well"]


def test_the_same_data_under_another_name_are_charged_where_they_are_known(dperm, people, home):
    dperm(*FIT)
    shutil.copy("people.csv", "others.csv")
    text = (home / "schema.toml").read_text().replace("high = 100", "high = 120").replace("high = 10\n", "high = 20\n")
    (home / "schema.toml").write_text(text)  # another encoding of the same file
    done = dperm("fit", "others.csv", "--epsilon", "1", "--schema", "schema.toml", "--out", "second.json")
    assert done.code == 0, done.err
    assert "data set 'people' was used 2 times" in done.out
    assert "given as 'others'; the ledger knows them as 'people'" in done.out
    assert json.loads(dperm("ledger", "list", "--json").out)["datasets"][0]["n_fits"] == 2


def test_past_the_cap_the_sentence_names_what_is_left(dperm, people, home):
    assert dperm("ledger", "cap", "people", "--epsilon", "1.5", "--yes").code == 0
    assert dperm(*FIT).code == 0
    done = dperm(*FIT, "--out", "second.json")
    assert done.code == 3
    assert "is left" in done.err
    assert "dperm ledger show people" in done.err
    assert not (home / "second.json").exists()
    assert dperm("ledger", "cap", "people", "--epsilon", "0.5", "--yes", "--ledger", "own.db").code == 0
    elsewhere = dperm(*FIT, "--out", "second.json", "--ledger", "own.db")
    assert elsewhere.code == 3
    assert "dperm ledger show --ledger own.db people" in elsewhere.err


def test_a_score_stands_beside_that_of_one_value_for_all():
    class Model(SavedRegressor):
        def __init__(self):
            pass

        def predict(self, X):
            return np.zeros(len(X))

    score = OwnersScore.of(Model(), np.zeros((4, 1)), np.array([1.0, 1.0, 3.0, 3.0]))
    assert (round(score.value, 6), score.one_value) == (round(5**0.5, 6), 1.0)
    assert "root mean squared error 2.236 on 4 held-out people (predicting one value for all: 1)" in _said(score)


def test_a_model_of_zeros_says_that_the_noise_won(dperm, people, monkeypatch):
    monkeypatch.setattr("dperm.cli.summary._effects", lambda model: [("age", 0.0)])
    done = dperm(*FIT)
    assert "Every effect is 0: the noise won." in done.out
    assert "over its whole range" not in done.out


def test_whole_numbers_that_were_drafted_as_classes_are_noted(dperm, home):
    rows = "".join(f"{i % 7}.5,{i % 3}\n" for i in range(90))
    (home / "t.csv").write_text("x,y\n" + rows)
    drafted = dperm("schema", "t.csv", "--target", "y")
    assert "taken for classes" in drafted.out
    assert dperm("schema", "--confirm", "schema.toml", "--yes").code == 0
    done = dperm("fit", "t.csv", "--epsilon", "1", "--schema", "schema.toml")
    assert done.code == 0, done.err
    assert "note: target 'y' is predicted as 3 classes" in done.err
    assert package.load("model.json").classes_.tolist() == [0, 1, 2]
    text = (home / "schema.toml").read_text().replace('confirmed = ["kind", "classes"]', "")
    (home / "schema.toml").write_text(text)  # somebody's own words need no note
    assert "is predicted as" not in dperm(*("fit", "t.csv", "--epsilon", "1", "--schema", "schema.toml", "--force")).err


def test_a_table_larger_than_memory_is_read_in_blocks(dperm, people, monkeypatch):
    monkeypatch.setattr(training, "_free_memory", lambda: 1000)
    done = dperm(*FIT)
    assert done.code == 0, done.err
    assert package.load("model.json").privacy_report_.public["records"] == 300
    assert dperm(*FIT, "--test-fraction", "0.2", "--out", "b.json").code == 2


def test_blocks_give_the_same_model_as_the_whole_table(people):
    schema, table = Schema.read("schema.toml"), open_table("people.csv")
    rows, y = encoded_rows(schema, table)
    whole = schema.encode(table, with_target=True)
    assert np.array_equal(np.vstack(list(rows.blocks())), whole.X)
    assert y.tolist() == whole.y.tolist()
    fits = [
        package.DPLogisticRegression(bounds=schema.bounds(), insecure_seed=3).fit(X, y).coef_ for X in (rows, whole.X)
    ]
    assert np.array_equal(*fits)


def test_report_in_the_terminal_as_a_page_and_as_json(dperm, people, home):
    dperm(*FIT)
    shown = dperm("report", "model.json")
    assert "Not covered:" in shown.out
    assert dperm("report", "model.json", "--out", "page.html").code == 0
    assert "<h2>Budget</h2>" in (home / "page.html").read_text()
    assert dperm("report", "model.json", "--out", "plain.json").code == 0
    again = dperm("report", "plain.json", "--json")
    assert json.loads(again.out)["guarantee"]["neighbours"] == "replace-one"
    assert dperm("report", "plain.json", "--out", "page.pdf").code == 2
    assert dperm("report", "people.csv").code == 2
