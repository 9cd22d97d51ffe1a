"""A fit warns if its model may be of little use: before any charge where it can, and in the report."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest

from dperm import (
    Bounds,
    DPElasticNet,
    DPLasso,
    DPLogisticRegression,
    DPRidge,
    DPTuner,
    Ledger,
    LocalLogisticRegression,
    ParquetTable,
    load,
)
from dperm.data.schema.schema import Column, Schema, Target
from dperm.errors import InvalidData, InvalidInput, UtilityWarning
from dperm.solvers import GradientDescent, WhitenedDescent

UNIT = Bounds(features=(-1, 1), target=(-3, 3))


def people(n, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, n_features))
    return X, 2.0 * X[:, 0] + 0.2 * rng.normal(size=n)


def said_by(fit):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit()
    return [str(one.message) for one in said if issubclass(one.category, UtilityWarning)]


def test_fit_repeats_the_warnings_of_its_plan():
    X, y = people(20)
    model = DPRidge(bounds=UNIT)
    known = [f"{text}." for text in model.plan(20, 3).warnings]
    assert known
    assert said_by(lambda: model.fit(X, y)) == known
    assert [f"{text}." for text in model.privacy_report_.public["warnings"]] == known
    assert f"Warning: {known[0]}" in model.privacy_report_.summary()
    large = DPRidge(bounds=UNIT)
    assert said_by(lambda: large.fit(*people(20_000))) == []
    assert large.privacy_report_.public["warnings"] == []


def test_where_warnings_are_errors_nothing_is_charged():
    X, y = people(20)
    ledger = Ledger()
    for model in (
        DPRidge(bounds=UNIT, ledger=ledger),
        DPTuner(DPRidge(bounds=UNIT), {"strength": [0.1, 1.0]}, ledger=ledger),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UtilityWarning)
            with pytest.raises(UtilityWarning, match=r"[Nn]oise|learnt only in part"):
                model.fit(X, y)
    assert ledger.spent().n_fits == 0


def test_a_warning_points_to_the_caller():
    X, y = people(20)
    for model in (DPRidge(bounds=UNIT), DPTuner(DPRidge(bounds=UNIT), {"strength": [0.1, 1.0]})):
        with pytest.warns(UtilityWarning) as caught:
            model.fit(X, y)
        assert {one.filename for one in caught if one.category is UtilityWarning} == {__file__}


def test_a_seed_causes_no_utility_warning():
    X, y = people(20_000)
    assert said_by(lambda: DPRidge(bounds=UNIT, insecure_seed=0).fit(X, y)) == []


@pytest.mark.parametrize("wide", [1, 1000])
def test_the_forecast_shows_which_columns_are_lost(wide):
    n, rng = 3000, np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    y = rng.random(n) < 1.0 / (1.0 + np.exp(-3.0 * X[:, 0]))
    model = DPLogisticRegression(bounds=Bounds(features=(-3 * wide, 3 * wide)), insecure_seed=0)
    forecast = model.plan(n, 5).forecast
    assert 0.002 < forecast.min_column_deviation < 0.05
    assert any("of its range may be learnt only in part" in text for text in forecast.assumptions)
    lost = 1.0 / (6.0 * wide) < forecast.min_column_deviation
    assert lost == (wide > 1)
    assert (model.fit(X, y).score(X, y) < 0.7) == lost


def test_declared_ranges_in_which_columns_are_easily_lost_are_warned_of():
    plan = DPLogisticRegression(bounds=Bounds(features=(0, 100))).plan(2000, 20)
    assert any("of their declared range may be learnt only" in text for text in plan.warnings)
    hopeless = DPLogisticRegression(epsilon=0.1, bounds=Bounds(features=(0, 100))).plan(100, 20)
    assert any("every column may be learnt only in part" in text for text in hopeless.warnings)
    for bounds in (None, Bounds(scale=1, clip=3.0)):
        assert not any("declared range" in text for text in DPLogisticRegression(bounds=bounds).plan(300, 20).warnings)


def test_the_ranges_of_a_schema_are_warned_of_like_declared_ones():
    numbers = [Column(f"x{k}", "number", low=0.0, high=100.0) for k in range(20)]
    smoker = Column("smoker", "category", categories=("no", "yes", "unknown"))
    schema = Schema((*numbers, smoker), Target("ill", "classes", classes=(0, 1)))
    assert schema.bounds().features is None  # categories: given as scales
    n_columns = len(schema.encoded_names)
    assert not Schema((smoker,), schema.target).bounds().declares_ranges  # no range could be narrower
    assert Bounds.from_schema(schema).declares_ranges  # by name
    for bounds in (Bounds(features=(0, 100)), schema.bounds()):
        plan = DPLogisticRegression(bounds=bounds).plan(2000, n_columns)
        assert any("of their declared range may be learnt only" in text for text in plan.warnings)
        hopeless = DPLogisticRegression(epsilon=0.1, bounds=bounds).plan(100, n_columns)
        assert any("every column may be learnt only in part" in text for text in hopeless.warnings)


@pytest.mark.parametrize("maker", [DPLasso, DPElasticNet])
@pytest.mark.parametrize("n", [5, 30])
def test_a_handful_of_rows_is_no_worse_than_predicting_nothing(maker, n):
    X, y = people(2000)
    scores = [maker(bounds=UNIT, insecure_seed=seed).fit(X[:n], y[:n]).score(X, y) for seed in range(40)]
    null = 1.0 - np.square(y - y[:n].mean()).mean() / y.var()
    assert np.mean(scores) > min(0.0, null) - 2.0 * np.std(scores) / np.sqrt(40) - 0.01


def test_a_target_outside_its_range_is_noticed_from_what_was_released():
    X, y = people(5000)
    noticed = 0
    for _ in range(5):  # noise hides it in about one fit of 160
        model = DPRidge(bounds=UNIT)
        said, *_ = said_by(
            lambda model=model: model.fit(X, y + 100.0)
        )  # and that no column could be distinguished from noise
        seen = "upper end of its declared range" in said
        assert ("upper end" in model.privacy_report_.summary()) == seen
        noticed += seen + ("lower end" in said_by(lambda: DPLasso(bounds=UNIT).fit(X, y - 100.0))[0])
    assert noticed >= 8
    assert said_by(lambda: DPRidge().fit(X, y)) == []


def test_small_shares_are_not_shown_as_nothing():
    small = WhitenedDescent(target_share=0.004)
    text = str(DPLogisticRegression(bounds=Bounds(features=(-1, 1)), solver=small).plan(10_000_000, 5))
    assert "<1% of the budget" in text
    assert "below about 0.1% of its range" in text
    assert not re.search(r"\b0(\.0)?%", text)


def test_a_tuner_refuses_models_that_no_search_covers():
    with pytest.raises(InvalidInput, match="estimator must be a private estimator of dperm, such as DPLogistic"):
        DPTuner(LocalLogisticRegression(bounds=UNIT), {"strength": [0.1, 1.0]}).fit(*people(50))


def test_a_local_plan_can_be_read():
    text = str(LocalLogisticRegression(bounds=Bounds(features=(-1, 1))).plan(10_000, 3))
    assert text.startswith("10000 people: expected excess loss")
    assert "people are needed for half of the possible improvement over the null model" in text
    assert "assuming" in text


def test_saving_to_a_folder_is_one_sentence(tmp_path):
    X, y = people(100)
    model = DPRidge(bounds=UNIT, solver=GradientDescent(n_steps=2)).fit(X, y)
    with pytest.raises(InvalidInput, match="it is a folder"):
        model.save(tmp_path)


def test_a_missing_column_of_the_schema_is_named(tmp_path):
    from dataclasses import replace

    schema = Schema(
        (Column("age", "number", -1.0, 1.0), Column("job", "category", categories=("a", "b", "c"))),
        Target("y", "number", low=-3.0, high=3.0),
    ).confirm()
    table = {"age": [0.1, 0.2], "job": ["a", "c"]}
    X = schema.encode(table).X
    model = DPRidge(bounds=schema.bounds(), solver=GradientDescent(n_steps=2)).fit(X, np.zeros(2))
    names = np.array(schema.encoded_names, dtype=object)
    saved = load(replace(model.saved_model(), feature_names_in_=names, schema=schema).save(tmp_path / "m.json"))
    assert (saved.predict(pd.DataFrame(table)) == saved.predict(X)).all()
    assert (saved.predict(pd.DataFrame(X, columns=names)) == saved.predict(X)).all()
    with pytest.raises(InvalidData, match="age"):
        saved.predict(pd.DataFrame(table).drop(columns="age"))


def test_columns_of_a_parquet_table_by_name_and_by_list(tmp_path):
    pytest.importorskip("pyarrow")
    X, y = people(50)
    pd.DataFrame(X, columns=list("abc")).assign(y=y).to_parquet(tmp_path / "t.parquet")
    table = ParquetTable(tmp_path / "t.parquet")
    assert table[["b", "a"]].columns == ["b", "a"]
    assert table.drop(["a", "y"]).columns == table.drop("a", "y").columns == ["b", "c"]
    for wrong in (lambda: table["nope"], lambda: table[["a", "nope"]], lambda: table.drop("nope")):
        with pytest.raises(InvalidInput, match="there is no column 'nope'; the columns are 'a', 'b', 'c', 'y'"):
            wrong()
    with pytest.raises(InvalidInput, match="by a name or by a list"):
        table[0]


def test_a_bought_range_as_narrow_as_its_grid_is_noted():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"year": rng.uniform(1960, 1995, 20_000), "age": rng.uniform(-1, 90, 20_000)})
    model = DPLogisticRegression(epsilon=4.0)
    (said,) = said_by(lambda: model.fit(table, table["age"] > 50))
    assert "column 'year' is as narrow" in said
    assert "age" not in said
    assert f"{model.privacy_report_.public['warnings'][0]}." == said
    target = DPRidge(epsilon=4.0, bounds=Bounds(features=({"year": 1950, "age": 0}, {"year": 2000, "age": 100})))
    assert any("of the target is as narrow" in text for text in said_by(lambda: target.fit(table, table["year"])))
    assert said_by(lambda: DPRidge(epsilon=4.0).fit(table[["age"]], table["age"])) == []


def test_a_target_far_narrower_than_its_range_is_noted():
    X, _ = people(3000)
    wide = DPRidge(epsilon=1.0, bounds=Bounds(features=(-1, 1), target=(0, 1000)))
    said, *_ = said_by(lambda: wide.fit(X, np.full(3000, 500.0)))
    assert "declare a narrower range of the target" in said


@pytest.mark.parametrize("penalty", ["l1", "elastic-net"])
@pytest.mark.parametrize(("n_classes", "solver"), [(2, "gradient"), (2, "whitened"), (3, "gradient")])
def test_a_dense_result_of_a_sparse_penalty_is_noted(penalty, n_classes, solver):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 60))
    y = np.digitize(X[:, 0], np.linspace(-1, 1, n_classes + 1)[1:-1])
    options = {"bounds": Bounds(features=(-1, 1)), "solver": solver, "insecure_seed": 0}
    model = DPLogisticRegression(penalty=penalty, strength=1e-4, **options)
    notes = [text for text in said_by(lambda: model.fit(X, y)) if "not zero" in text]
    total = model.coef_.size
    assert [text.partition(":")[0] for text in notes] == [
        f"{np.count_nonzero(model.coef_)} of {total} weights are not zero although the penalty is {penalty}"
    ]
    assert "solver='wide', or solver='pursuit'" in notes[0]
    assert ("multi_class='ovr'" in notes[0]) == (n_classes > 2)
    assert notes[0].rstrip(".") in model.privacy_report_.public["warnings"]
    assert f"Warning: {notes[0]}" in model.privacy_report_.summary()
    for sparse in (
        DPLogisticRegression(penalty="l2", **options),
        DPLogisticRegression(penalty=penalty, strength=10.0, **options),
        DPLogisticRegression(penalty=penalty, multi_class="ovr", **{**options, "solver": "pursuit"}),
    ):
        assert not [text for text in said_by(lambda one=sparse: one.fit(X, y)) if "not zero" in text]


def test_few_weights_may_all_matter():
    X, y = people(20_000)
    assert not [text for text in said_by(lambda: DPLasso(bounds=UNIT, solver="whitened").fit(X, y)) if "zero" in text]
