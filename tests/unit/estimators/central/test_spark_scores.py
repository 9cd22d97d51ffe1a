"""Predictions and scores of a Spark DataFrame in which the target, or anything else, is still a column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from spark_session import MARKS, frame_of

from dperm import Bounds, DPLogisticRegression, DPRidge, DPTuner
from dperm.errors import InvalidData
from dperm.estimators.central.scoring import paid_score

pytestmark = MARKS

NAMES = ["age", "dose"]
UNIT = Bounds(features=(-1, 1), target=(-1, 1))


def people():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.2, 1.2, (300, 2))
    return pd.DataFrame(X, columns=NAMES), X[:, 0] - 0.5 * X[:, 1] + 0.1 * rng.normal(size=300)


def on_spark(spark, X, y):
    """The columns in another order, with one more."""
    frame = frame_of(spark, X.to_numpy(), y, NAMES)
    return frame.withColumn("name", frame["label"].cast("string")).select("label", "name", "dose", "age")


LABELS = {"numbers": lambda y: (y > 0).astype(int), "text": lambda y: np.where(y > 0, "ill", "well")}


@pytest.mark.parametrize("kind", ["text", pytest.param("numbers", marks=pytest.mark.sample)])
def test_a_classifier_finds_its_columns_by_name(spark, kind):
    X, y = people()
    labels = LABELS[kind](y)
    frame = on_spark(spark, X, labels)
    model = DPLogisticRegression(5.0, bounds=Bounds(features=(-1, 1)), insecure_seed=0).fit(X, labels)
    for one in (model, model.saved_model()):
        assert np.array_equal(one.predict(frame), one.predict(X))
        assert np.array_equal(one.predict_proba(frame), one.predict_proba(X))
    assert model.score(frame, "label") == model.score(X, labels)
    weights = np.linspace(0.0, 1.0, len(X))
    assert model.score(frame, "label", weights) == model.score(X, labels, weights)
    options = {"epsilon": 1.0, "insecure_seed": 1}
    assert paid_score(model.saved_model(), frame, "label", **options) == paid_score(
        model.saved_model(), X, labels, **options
    )


def test_a_regression_and_a_search(spark):
    X, y = people()
    frame = on_spark(spark, X, y)
    model = DPRidge(5.0, bounds=UNIT, insecure_seed=0)
    search = DPTuner(DPRidge(bounds=UNIT), {"strength": [1e-3, 1.0]}, epsilon=5.0, insecure_seed=0)
    for fitted in (model.fit(X, y), search.fit(X, y)):
        assert np.array_equal(fitted.predict(frame), fitted.predict(X))
        assert fitted.score(frame, "label") == fitted.score(X, y)


def test_what_cannot_be_scored_is_refused_in_a_sentence(spark):
    X, y = people()
    frame = on_spark(spark, X, y)
    model = DPRidge(5.0, bounds=UNIT, insecure_seed=0).fit(X, y)
    for given, words in (
        ("wage", "X has no column named 'wage', which y names as the target"),
        ("age", "the target 'age' is one of the columns that the model was fitted on"),
        ("name", "y must hold one number per row, not text"),
        (y, "give y as the name of a column"),
        (None, "give y as the name of a column"),
    ):
        with pytest.raises(InvalidData, match=words):
            model.score(frame, given)
    for one in (model, model.saved_model()):
        with pytest.raises(InvalidData, match="X has no column named 'dose', which the model was fitted on"):
            one.predict(frame.drop("dose"))
    nameless = DPRidge(5.0, bounds=UNIT, insecure_seed=0).fit(X.to_numpy(), y)
    with pytest.raises(InvalidData, match="expecting 2 features"):
        nameless.predict(frame.drop("name"))
    labels = DPLogisticRegression(5.0, bounds=Bounds(features=(-1, 1)), insecure_seed=0).fit(X, y > 0)
    with pytest.raises(InvalidData, match="is text, and the other is not"):
        labels.score(frame, "name")
    with pytest.raises(InvalidData, match="y must hold class labels"):
        labels.score(frame, "label")
    with pytest.raises(InvalidData, match="Found array with 0 sample"):
        model.score(frame.limit(0), "label")
