"""Refusals of the local model: one clear sentence each, and no private value in it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from dperm import Bounds, LocalLinearRegression, LocalLogisticRegression
from dperm.errors import DpermError, InvalidBounds, InvalidBudget, InvalidData, InvalidInput
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import Counts, Task

UNIT = Bounds(features=(-1, 1), row_norm=1.0)
SECRET = 0.123456789


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (5000, 2))
    x[7, 1] = SECRET
    return x, x[:, 0] > 0.0


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"bounds": None}, InvalidBounds, "declared bounds"),
        ({"bounds": "declare"}, InvalidBounds, "declared bounds"),
        ({"bounds": Bounds(classes=[0, 1])}, InvalidBounds, "declared bounds"),
        ({"bounds": Bounds(features=(0, 0))}, InvalidBounds, "equal lower and upper bounds"),
        ({"bounds": Bounds(features=([0], [1]))}, InvalidBounds, "1 entries for 2 columns"),
        ({"epsilon": 20.0}, InvalidBudget, "between 0.001 and 16"),
        ({"epsilon": 0.0005}, InvalidBudget, "between 0.001 and 16"),
        ({"epsilon": np.nan}, InvalidBudget, "between 0.001 and 16"),
        ({"epsilon": "1"}, InvalidBudget, "must be a number"),
        ({"radius": 0.0}, InvalidInput, "radius"),
        ({"radius": np.inf}, InvalidInput, "radius"),
        ({"strength": -1.0}, InvalidInput, "strength"),
        ({"confidence": 1.0}, InvalidInput, "confidence"),
        ({"fit_intercept": "no"}, InvalidInput, "fit_intercept"),
        ({"refuse_hopeless": 1.0}, InvalidInput, "refuse_hopeless"),
        ({"degree": 3}, InvalidInput, "degree"),
        ({"n_levels": 17}, InvalidInput, "n_levels"),
        ({"n_levels": 4, "epsilon": 0.5}, InvalidBudget, "between 1 and 16"),
        ({"degree": True}, InvalidInput, "degree"),
        ({"ledger": "file.db"}, InvalidInput, "ledger"),
        ({"insecure_seed": 1.5}, InvalidInput, "seed"),
    ],
)
def test_bad_parameters(table, options, error, words):
    with pytest.raises(error, match=words) as refused:
        LocalLogisticRegression(**{"bounds": UNIT, **options}).fit(*table)
    one_sentence(refused)


def one_sentence(refused):
    text = str(refused.value)
    assert text.rstrip().endswith((".", "]"))  # scikit-learn ends one of its own with two numbers
    assert "\n" not in text
    assert str(SECRET)[:6] not in text
    assert refused.value.__cause__ is None


def spoiled(x, value):
    out = x.copy()
    out[7, 1] = value
    return out


@pytest.mark.parametrize("kind", [LocalLogisticRegression, LocalLinearRegression])
def test_bad_data(table, kind):
    x, y = table
    model = kind(epsilon=2.0, bounds=Bounds(features=(-1, 1), target=(0, 1)))
    cases = [
        (spoiled(x, np.nan), y, "NaN or infinite"),
        (spoiled(x, np.inf), y, "NaN or infinite"),
        (x[:, 0], y, "two dimensions"),
        (x, y[:-1], "X has 5,000 rows and y has 4,999: y must hold one"),
        (x[:0], y[:0], "0 sample"),
        (np.full((5000, 2), "x"), y, "numbers only"),
    ]
    for X, target, words in cases:
        with pytest.raises(InvalidData, match=words) as refused:
            model.fit(X, target)
        one_sentence(refused)
        assert not hasattr(model, "coef_")
    model.set_params(insecure_seed=0).fit(x, 1.0 * y)
    for X, words in ((x[:, :1], "features"), (spoiled(x, np.nan), "NaN or infinite"), (x[0], "two dimensions")):
        with pytest.raises(InvalidData, match=words) as refused:
            model.predict(X)
        one_sentence(refused)


def test_bad_targets(table):
    x, y = table
    with pytest.raises(InvalidData, match="one class only"):
        LocalLogisticRegression(bounds=UNIT).fit(x, np.zeros(5000))
    with pytest.raises(InvalidData, match="not among"):
        LocalLogisticRegression(bounds=Bounds(features=(-1, 1), classes=[5, 6])).fit(x, y)
    with pytest.raises(InvalidData, match="Unknown label type"):
        LocalLogisticRegression(bounds=UNIT).fit(x, x[:, 0])
    with pytest.raises(InvalidBounds, match="declared target"):
        LocalLinearRegression(bounds=UNIT).fit(x, y)
    with pytest.raises(InvalidData, match="y contains NaN"):
        LocalLinearRegression(bounds=Bounds(features=(-1, 1), target=(0, 1))).fit(x, np.where(y, np.nan, 1.0))


def test_columns_by_name(table):
    x, y = table
    frame = pd.DataFrame(x, columns=["age", "dose"])
    bounds = Bounds(features=({"age": -1, "dose": -1}, {"age": 1, "dose": 1}), classes=[False, True])
    with pytest.raises(InvalidBounds, match="no column names"):
        LocalLogisticRegression(bounds=bounds).fit(x, y)
    model = LocalLogisticRegression(bounds=bounds, insecure_seed=0).fit(frame, y)
    with pytest.raises(InvalidData, match="same order"):
        model.predict(frame[["dose", "age"]])
    with pytest.raises(InvalidBounds, match="no column names"):
        LocalLogisticRegression(bounds=bounds).fit_counts(model.counts_, 2)
    with pytest.raises(InvalidInput, match="3 names for 2 columns"):
        LocalLogisticRegression(bounds=bounds).fit_counts(model.counts_, 2, names=["a", "b", "c"])


def counts_task(**changes):
    options = {"epsilon": 1.0, "bounds": Bounds(features=(-1, 1), classes=["no", "yes"]), **changes}
    return LocalLogisticRegression(**options)


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 2.0},
        {"bounds": Bounds(features=(-1, 2), classes=["no", "yes"])},
        {"bounds": Bounds(features=(-1, 1), row_norm=1.0, classes=["no", "yes"])},
        {"bounds": Bounds(features=(-1, 1), classes=["no", "oui"])},
        {"bounds": Bounds(features=(-1, 1), classes=["no", "yes", "perhaps"])},
        {"fit_intercept": False},
        {"radius": 3.0},
        {"degree": 4},
    ],
)
def test_counts_of_another_task(changes):
    """Anything that changes what people computed changes the digest."""
    counts = counts_task().task(2).no_counts()
    with pytest.raises(InvalidInput, match="belong to another task"):
        counts_task(**changes, refuse_hopeless=False).fit_counts(counts, 2)
    with pytest.raises(InvalidInput, match="belong to another task"):
        counts_task(refuse_hopeless=False).fit_counts(counts, 3)


def test_counts_that_are_none():
    with pytest.raises(InvalidInput, match="must be the Counts"):
        counts_task().fit_counts({"n": [1]}, 2)
    with pytest.raises(InvalidBounds, match="labels"):
        LocalLogisticRegression(bounds=UNIT).task(2)
    with pytest.raises(InvalidBounds, match="labels"):
        LocalLogisticRegression(bounds=UNIT).fit_counts(counts_task().task(2).no_counts(), 2)
    with pytest.raises(InvalidBounds, match="target"):
        LocalLinearRegression(bounds=UNIT).task(2)
    for n, ones in (([3], [4]), ([3], [-1]), ([3], [1, 1])):
        with pytest.raises(InvalidInput, match="at most as many ones"):
            Counts("x", np.array(n), np.array(ones))


def test_a_report_about_a_record_that_is_not_finite_is_that_of_the_lower_end():
    """On a device nothing can be refused: the bit is that of the lower end, whichever entry is bad."""
    task = counts_task().task(2)
    for bad in (np.nan, np.inf, -np.inf):
        records = np.full((4000, 3), 0.1)
        records[:, 1] = bad
        index = np.zeros(4000, np.int64)
        bits = task.reports(records, RandomSource(1), index).bit
        lowest = task.bit.report(np.full(4000, -9.0), RandomSource(1), task.sketch.low[0], task.sketch.high[0])
        assert np.array_equal(bits, lowest)


def test_wrong_width_of_records():
    with pytest.raises(InvalidData, match="3 columns"):
        counts_task().task(2).reports(np.zeros((5, 2)), RandomSource(1))
    with pytest.raises(DpermError, match="numbers only"):
        counts_task().task(2).reports(np.full((5, 3), "a"), RandomSource(1))


def test_the_schema_says_all_that_a_device_needs():
    schema = counts_task().task(2, names=["age", "dose"]).schema()
    inputs = json.loads(json.dumps(schema))["inputs"]
    assert inputs["names"] == ["age", "dose"]
    assert inputs["classes"] == ["no", "yes"]
    assert inputs["divide_by"] == pytest.approx(3**0.5)
    assert Task.from_schema(schema).digest == counts_task().task(2, names=["age", "dose"]).digest
    target = LocalLinearRegression(bounds=Bounds(features=(0, 1), target=(0, 9))).task(1).schema()["inputs"]["target"]
    assert target == [0.0, 9.0]


def test_a_radius_may_be_of_numpy():
    plain, other = (LocalLogisticRegression(bounds=Bounds(features=(-1, 1)), radius=r) for r in (3.0, np.int64(3)))
    assert plain.plan(10_000, 2) == other.plan(10_000, 2)
