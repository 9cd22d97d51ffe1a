"""``dperm fit``, ``predict``, ``report``: from a table to a model and back to raw rows."""

from __future__ import annotations

import json
import os
import shutil
import stat

import numpy as np
import pytest

import dperm as package
from dperm.cli import training
from dperm.cli.fit import _split
from dperm.cli.summary import OwnersScore, effects, score_sentence
from dperm.data.schema.encoded_rows import encoded_rows
from dperm.data.schema.schema import Column, Schema, Target
from dperm.data.tables.files import open_table
from dperm.estimators.persistence.saved import SavedProbabilities, SavedRegressor

FIT = ("fit", "people.csv", "--target", "state", "--epsilon", "1", "--schema", "schema.toml")


def test_fit_writes_a_model_that_predicts_raw_rows_and_a_page(dperm, people, home):
    done = dperm(*FIT)
    assert done.code == 0, done.err
    assert "epsilon 1" in done.out
    assert "data set 'people' has 1 use:" in done.err
    assert sorted(p.name for p in home.iterdir()) == ["model.html", "model.json", "people.csv", "schema.toml"]
    model = package.load("model.json")
    assert model.privacy_report_.guarantee.epsilon <= 1.0
    assert list(model.feature_names_in_) == ["age", "visits", "job=clerk", "job=driver", "job=nurse", "smoker"]
    predicted = dperm("predict", "model.json", "people.csv", "--probabilities")
    lines = predicted.out.splitlines()
    assert lines[0] == "prediction,probability of ill,probability of well"
    assert len(lines) == 301
    assert [line.split(",")[0] for line in lines[1:]] == model.predict(open_table("people.csv")).tolist()
    asked = dperm("predict", "model.json", "people.csv", "--probabilities", "--out", "p.csv", "--json")
    assert json.loads(asked.out) == {"written": "p.csv", "n": 300}
    assert (home / "p.csv").read_text() == predicted.out
    assert len(json.loads(dperm("predict", "model.json", "people.csv", "--json").out)["prediction"]) == 300


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


def test_json_and_quiet_output(dperm, people):
    done = dperm(*FIT, "--json")
    data = json.loads(done.out)
    assert data["guarantee"]["epsilon"] <= 1.0
    assert data["ledger"]["dataset"] == "people"
    assert "data set 'people' has 1 use:" in done.err
    assert data["written"] == ["model.json", "model.html"]
    silent = dperm(*FIT, "--quiet", "--out", "second.json")
    assert (silent.code, silent.out, silent.err) == (0, "", "")


def test_quiet_still_prints_the_data_that_a_command_is_for(dperm, people):
    """Its help says so."""
    assert dperm(*FIT, "--quiet").code == 0
    assert len(dperm("predict", "model.json", "people.csv", "--quiet").out.splitlines()) == 301
    assert json.loads(dperm("ledger", "export", "--quiet").out)["datasets"][0]["dataset"] == "people"
    told = " ".join(dperm("predict", "--help").out.split())
    assert "Print only errors and data, such as predictions." in told


def test_a_score_is_paid_for_or_marked_as_not_private(dperm, people):
    plain = dperm(*FIT, "--test-fraction", "0.3")
    assert "on 90 held-out people (predicting one value for all: " in plain.out
    assert "%). NOT PRIVATE" in plain.out
    paid = json.loads(dperm(*FIT, "--test-fraction", "0.3", "--test-epsilon", "2", "--out", "b.json", "--json").out)
    assert paid["score"]["private"] is True
    assert paid["score"]["low"] < paid["score"]["value"] < paid["score"]["high"]
    owner = json.loads(dperm("ledger", "receipt", "b.json", "--json").out)
    assert owner["spent"]["n_fits"] == 3  # two fits and the score
    assert "0.3" not in package.load("model.json").privacy_report_.to_json()
    assert dperm(*FIT, "--test-epsilon", "1", "--out", "c.json").code == 2


def test_a_paid_score_is_in_the_model_and_on_its_page(dperm, people, home):
    dperm("ledger", "cap", "people", "--epsilon", "4", "--yes")
    done = dperm(*FIT, "--test-fraction", "0.3", "--test-epsilon", "2", "--json")
    assert done.code == 0, done.err
    told, report = json.loads(done.out), package.load("model.json").privacy_report_
    assert report.score["value"] == told["score"]["value"]
    assert report.guarantee.epsilon <= 1.0  # of the model alone
    assert 2.0 < report.score["epsilon_together"] < 3.0
    assert "data set 'people' has 2 uses: " in done.err
    assert json.loads(dperm("ledger", "list", "--json").out)["head"] in done.err
    page = (home / "model.html").read_text()
    assert f"accuracy {report.score['value']:.1%} on 90 held-out people" in page
    assert f"with its score, epsilon {report.score['epsilon_together']:.4g}" in page
    assert "In addition to the model: accuracy" in dperm("report", "model.json").out
    again = package.PrivacyReport.from_json(report.to_json())
    assert again == report


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_held_out_people_are_not_learnt_from_and_their_score_has_its_relation(dperm, people, relation):
    fit = (*FIT, "--test-fraction", "0.3", "--neighbours", relation)
    assert dperm(*fit, "--test-epsilon", "2").code == 0
    assert package.load("model.json").privacy_report_.public["records"] == 210
    reserved = [row for row in json.loads(dperm("ledger", "export").out)["entries"] if row["kind"] == "reserve"]
    assert [(row["purpose"].split()[0], row["neighbours"]) for row in reserved] == [
        ("DPLogisticRegression", relation),
        ("score", relation),
    ]


def test_rows_are_either_learnt_from_or_held_out():
    X, y = np.arange(50.0)[:, None], np.arange(50) % 2
    (X_train, y_train), (X_test, y_test) = _split(
        training.Training(X, y, ["x"], None, None, True, 1),
        0.3,
    )
    assert (len(X_train), len(X_test)) == (35, 15)
    assert sorted([*X_train[:, 0], *X_test[:, 0]]) == list(range(50))
    assert (y_train == X_train[:, 0] % 2).all()
    assert (y_test == X_test[:, 0] % 2).all()


@pytest.mark.parametrize(("low", "high"), [(10, 30), (-5, 15)])
def test_an_effect_is_that_of_the_whole_range(low, high):
    schema = Schema((Column("age", "number", low, high), Column("smoker", "boolean")), Target("y", "classes", (0, 1)))
    scaling = schema.bounds().scaling(2, ["age", "smoker"], True, ())
    report = package.DPLogisticRegression(bounds=schema.bounds(), insecure_seed=0)
    report = report.fit(np.array([[low, 0.0], [high, 1.0]] * 20), [0, 1] * 20).privacy_report_
    model = SavedProbabilities(
        "DPLogisticRegression",
        np.array([[0.5, -3.0]]),
        np.zeros(1),
        scaling,
        report,
        np.array(["age", "smoker"], object),
        schema=schema,
        classes_=np.array([0, 1]),
    )
    assert effects(model)[0] == [("age", "+10"), ("smoker", "-3")]  # 20 years at 0.5 each


@pytest.mark.parametrize(
    ("column", "says"),
    [("customer_id", "it seems to identify people"), ("birthDate", "derive a number, such as an age")],
)
def test_ids_and_dates_are_refused_by_name_where_ranges_are_bought(dperm, home, column, says):
    (home / "t.csv").write_text(f"{column},x,y\n" + "".join(f"{1000 + i},{i % 7},{i % 2}\n" for i in range(60)))
    fit = ("fit", "t.csv", "--target", "y", "--epsilon", "3", "--buy-bounds", "--model", "logistic")
    done = dperm(*fit)
    assert done.code == 2
    assert f"column '{column}' is not taken: " in done.err
    assert says in done.err
    assert "--drop" in done.err
    assert json.loads(dperm("ledger", "list", "--json").out)["datasets"] == []
    assert dperm(*fit, "--drop", column).code == 0


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_model_files_follow_the_umask_and_the_ledger_does_not(dperm, people, home, umask):
    before = os.umask(umask)
    try:
        assert dperm("schema", "people.csv", "--target", "state", "--out", "draft.toml").code == 0
        assert dperm(*FIT).code == 0
    finally:
        os.umask(before)
    for name in ("draft.toml", "model.json", "model.html"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o666 & ~umask, name
    books = home.parent / "home"
    assert {stat.S_IMODE((books / name).stat().st_mode) for name in ("ledger.db", "fingerprint.key")} == {0o600}
    (home / "draft.toml").chmod(0o640)
    assert dperm("schema", "--confirm", "draft.toml", "--yes").code == 0
    assert stat.S_IMODE((home / "draft.toml").stat().st_mode) == 0o640  # as its owner has set it


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


def test_ranges_of_numeric_columns_can_be_bought(dperm, people, home):
    fit = ("fit", "people.csv", "--target", "cost", "--epsilon", "4", "--buy-bounds")
    assert "--model is missing" in dperm(*fit).err
    refused = dperm(*fit, "--model", "ridge")
    assert refused.code == 2
    assert "column 'patient_id' is not taken: it seems to identify people" in refused.err
    drop = [word for name in ("patient_id", "job", "smoker", "born", "state") for word in ("--drop", name)]
    done = dperm(*fit, "--model", "ridge", *drop)
    assert done.code == 0, done.err
    assert package.load("model.json").privacy_report_.public["bounds"] == "bought"
    assert len(dperm("predict", "model.json", "people.csv").out.splitlines()) == 301
    for age, says in (("old", "must hold numbers only"), ("", "has missing or infinite values")):
        (home / "odd.csv").write_text(f"age,visits\n{age},1\n")
        refused = dperm("predict", "model.json", "odd.csv")
        assert (refused.code, refused.err.count("--"), says in refused.err) == (2, 0, True)
    (home / "gaps.csv").write_text("age,cost\n1,1\n,2\n")
    refused = dperm("fit", "gaps.csv", *fit[2:], "--model", "ridge", "--out", "gaps.json")
    assert "column 'age' has missing or infinite values: declare in a schema what replaces them" in refused.err
    classes = [word for name in ("patient_id", "job", "smoker", "born") for word in ("--drop", name)]
    fit = ("fit", "people.csv", "--target", "state", "--epsilon", "1", "--buy-bounds", "--model", "logistic")
    done = dperm(*fit, *classes, "--out", "b.json")
    assert done.code == 0, done.err
    assert package.load("b.json").classes_.tolist() == ["ill", "well"]


def test_the_same_data_under_another_name_are_charged_to_the_first_name(dperm, people, home):
    dperm(*FIT)
    shutil.copy("people.csv", "others.csv")
    text = (home / "schema.toml").read_text().replace("high = 100", "high = 50").replace("high = 10\n", "high = 2\n")
    (home / "schema.toml").write_text(text)  # clips: the rows are others, the file is the same
    done = dperm("fit", "others.csv", "--epsilon", "1", "--schema", "schema.toml", "--out", "second.json")
    assert done.code == 0, done.err
    assert "data set 'people' has 2 uses" in done.err
    assert "given as 'others'; the ledger knows them as 'people'" in done.err
    owner = dperm("ledger", "receipt", "second.json")
    assert "given as 'others'; the ledger knows them as 'people'" in owner.out
    for published in (done.out, *((home / f"second.{end}").read_text() for end in ("json", "html"))):
        assert "others" in published
        assert "'people'" not in published
        assert "2 uses" not in published
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
    assert "root mean squared error 2.236 on 4 held-out people (predicting one value for all: 1)" in score_sentence(
        score
    )


def test_a_model_of_zeros_is_explained(dperm, people, monkeypatch):
    monkeypatch.setattr("dperm.cli.summary._effects", lambda model: [("age", 0.0)])
    done = dperm(*FIT)
    assert "Every effect is 0: no column could be distinguished from the noise." in done.out
    assert "Change in the prediction" not in done.out


def test_whole_numbers_that_were_drafted_as_classes_are_noted(dperm, home):
    rows = "".join(f"{i % 7}.5,{i % 3}\n" for i in range(90))
    (home / "t.csv").write_text("x,y\n" + rows)
    drafted = dperm("schema", "t.csv", "--target", "y")
    assert "treated as classes" in drafted.out
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
