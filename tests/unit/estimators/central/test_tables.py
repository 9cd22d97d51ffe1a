"""Tables of pandas, polars and pyarrow: names kept, bounds by name, columns of type bool known without declaring."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from dperm import Bounds, DPLogisticRegression, DPRidge
from dperm.data.tables.frames import boolean_columns, column_names, plain_matrix
from dperm.errors import InvalidBounds, InvalidData

KINDS = ["pandas", "polars", "arrow", "batch"]
BY_NAME = Bounds(features=({"age": 18, "dose": 0}, {"dose": 5, "age": 100}), target=(0, 10))


def columns(n=200):
    rng = np.random.default_rng(0)
    return {
        "age": rng.integers(18, 100, n),
        "smokes": rng.random(n) < 0.4,
        "dose": rng.uniform(0, 5, n).astype(np.float32),
    }


def table(kind, data=None):
    data = columns() if data is None else data
    if kind == "pandas":
        return pd.DataFrame(data)
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(data)
    pa = pytest.importorskip("pyarrow")
    return pa.table(data) if kind == "arrow" else pa.RecordBatch.from_pydict({k: pa.array(v) for k, v in data.items()})


def targets():
    data = columns()
    return data["dose"] + data["smokes"] + 0.01 * data["age"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_gives_the_same_model(kind):
    X, y = table(kind), targets()
    options = {"epsilon": 50.0, "bounds": BY_NAME, "insecure_seed": 0}
    fitted = DPRidge(**options).fit(X, y)
    assert fitted.feature_names_in_.tolist() == ["age", "smokes", "dose"]
    assert fitted.n_features_in_ == 3
    assert fitted.privacy_report_.public["centre"] == [59.0, 0.5, 2.5]
    same = DPRidge(**options).fit(pd.DataFrame(columns()), y)
    assert np.array_equal(fitted.coef_, same.coef_)
    np.testing.assert_array_equal(fitted.predict(X), same.predict(pd.DataFrame(columns())))
    for other in KINDS:
        np.testing.assert_array_equal(fitted.predict(table(other)), fitted.predict(X))


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_compared_in_prediction(kind):
    fitted = DPRidge(epsilon=50.0, bounds=BY_NAME, insecure_seed=0).fit(table(kind), targets())
    data = columns()
    with pytest.raises(InvalidData, match="feature names should match"):
        fitted.predict(table(kind, {name: data[name] for name in ("smokes", "age", "dose")}))
    with pytest.raises(InvalidData, match=r"feature names should match|features"):
        fitted.predict(table(kind, {"age": data["age"]}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        fitted.predict(np.column_stack(list(data.values())).astype(float))


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_a_table(kind):
    X = table(kind)
    labels = np.where(columns()["smokes"], "yes", "no")
    y = {
        "pandas": pd.Series,
        "polars": lambda values: pytest.importorskip("polars").Series(values.tolist()),
        "arrow": lambda values: pytest.importorskip("pyarrow").chunked_array([values.tolist()]),
        "batch": lambda values: pytest.importorskip("pyarrow").array(values.tolist()),
    }[kind](labels)
    fitted = DPLogisticRegression(epsilon=1e4, bounds=BY_NAME, insecure_seed=0).fit(X, y)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert (fitted.predict(X) == labels).mean() > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_bad_columns(kind):
    data = columns()
    for column, words in [
        (np.array(["Mrs. Smith"] * 200), "must hold numbers only"),
        (np.where(data["smokes"], np.nan, 1.0), "X contains NaN"),
    ]:
        with pytest.raises(InvalidData, match=words) as raised:
            DPRidge(bounds=BY_NAME).fit(table(kind, {**data, "dose": column}), targets())
        assert "Smith" not in str(raised.value)


def test_missing_values_and_lazy_frames():
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    for X in (pl.DataFrame({"a": [1, None, 3]}), pa.table({"a": [1, None, 3]}), pa.table({"a": [True, None, False]})):
        with pytest.raises(InvalidData, match="X contains NaN"):
            DPRidge(bounds=Bounds(features=(0, 1), target=(0, 1))).fit(X, [1, 2, 3])
    with pytest.raises(InvalidData, match=r"LazyFrame: collect\(\) it first"):
        DPRidge(bounds=Bounds(features=(0, 1), target=(0, 1))).fit(pl.LazyFrame({"a": [1, 2]}), [1, 2])
    with pytest.raises(InvalidData, match="numbers only"):
        DPRidge(bounds=BY_NAME).fit(pl.DataFrame({"a": ["x", "y"]}, schema={"a": pl.Categorical}), [1, 2])


# ------------------------------------------------------------------------------------------ columns of type bool
@pytest.mark.parametrize("kind", KINDS)
def test_boolean_columns_are_found_by_type(kind):
    assert boolean_columns(table(kind)).tolist() == [False, True, False]
    assert column_names(table(kind)) == ["age", "smokes", "dose"]
    assert boolean_columns(table(kind, {"age": columns()["age"]})) is None


def test_boolean_arrays():
    assert boolean_columns(np.zeros((2, 3), bool)).tolist() == [True] * 3
    assert boolean_columns(sp.csr_array(np.zeros((2, 3), bool))).tolist() == [True] * 3
    for other in (np.zeros((2, 3)), [[True]], sp.csr_array(np.ones((2, 2))), np.zeros(3, bool), None, 3):
        assert boolean_columns(other) is None
    frame = pd.DataFrame({"a": pd.array([True, False], "boolean"), "b": pd.arrays.SparseArray([True, False])})
    assert boolean_columns(frame).tolist() == [True, True]
    plain = np.zeros((2, 2))
    assert plain_matrix(plain) is plain


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_other_columns_are_bought(kind):
    fitted = DPRidge(epsilon=1e3, insecure_seed=0).fit(table(kind), targets())
    report = fitted.privacy_report_
    assert [line.count for line in report.releases[:2]] == [2 * 2, 2]  # two columns and the target
    assert report.public["centre"][1] == report.public["scale"][1] == 0.5
    guarantee = DPRidge(epsilon=5.0).fit(table(kind), targets()).privacy_report_.guarantee
    assert any("type bool" in text for text in guarantee.assumptions)


def test_nothing_is_bought_where_all_columns_are_boolean():
    X = np.random.default_rng(0).random((300, 4)) < 0.5
    report = DPLogisticRegression().fit(X, X[:, 0]).privacy_report_
    assert all("quantile" not in line.query for line in report.releases)
    assert report.public["bounds"] == "declared"
    assert report.public["centre"] == [0.5] * 4


@pytest.mark.parametrize(
    ("bounds", "centre", "scale"),
    [
        (Bounds(features=(20, 100)), [60, 0.5], [40, 0.5]),
        (Bounds(features=([20, 0], [100, 4])), [60, 2], [40, 2]),
        (Bounds(features=({"age": 20}, {"age": 100})), [60, 0.5], [40, 0.5]),
        (Bounds(features=({"age": 20, "smokes": -1}, {"age": 100, "smokes": 1})), [60, 0], [40, 1]),
        (Bounds(features=({"age": 20}, 100)), [60, 0.5], [40, 0.5]),
        (Bounds(scale={"age": 20}, centre={"age": 60}, clip=2), [60, 0.5], [20, 0.5]),
        (Bounds(scale=20, clip=2), [0, 0], [20, 20]),
    ],
)
def test_declarations_and_boolean_columns(bounds, centre, scale):
    scaling = bounds.scaling(2, ["age", "smokes"], boolean=np.array([False, True]))
    assert scaling.centre.tolist() == centre
    assert scaling.scale.tolist() == scale


def test_other_columns_may_not_be_left_out():
    with pytest.raises(InvalidBounds, match="lo is missing for column 'dose'"):
        DPRidge(bounds=Bounds(features=({"age": 18}, {"age": 100}), target=(0, 1))).fit(table("pandas"), targets())


def test_one_hot_columns_need_no_bounds():
    frame = pd.get_dummies(pd.DataFrame({"city": ["a", "b", "c", "a"] * 50}))
    report = DPLogisticRegression(epsilon=5.0).fit(frame, [0, 1, 1, 0] * 50).privacy_report_
    assert report.public["scale"] == [0.5] * 3
    assert all("quantile" not in line.query for line in report.releases)


def test_one_hot_columns_of_a_pipeline_need_no_bounds():
    """An encoder whose categories are public and whose columns are of type bool."""
    cities = np.array(["a", "b", "c", "a"] * 50, object)[:, None]
    encoder = OneHotEncoder(categories=[["a", "b", "c"]], dtype=bool)
    fitted = make_pipeline(encoder, DPLogisticRegression(epsilon=5.0)).fit(cities, [0, 1, 1, 0] * 50)
    report = fitted[-1].privacy_report_
    assert report.public["scale"] == [0.5] * 3
    assert all("quantile" not in line.query for line in report.releases)


def test_no_table_library_is_imported_for_arrays():
    code = (
        "import sys, numpy as np, dperm.data.tables.frames as f; f.plain_matrix(np.zeros((2, 2)));"
        "f.boolean_columns(np.zeros((2, 2))); sys.exit('polars' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
