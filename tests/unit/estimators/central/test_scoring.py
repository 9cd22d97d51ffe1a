"""A paid score: right up to its noise, charged in full, refused past a cap."""

from __future__ import annotations

import numpy as np
import pytest

from dperm import Bounds, Budget, DPLinearSVC, DPLogisticRegression, DPRidge, Ledger
from dperm.errors import BudgetRefused, DataSetRenamed, InvalidBudget, InvalidData
from dperm.estimators.central.base import prepare_fit
from dperm.estimators.central.scoring import paid_score, plans_of_fit_and_score, report_with_score
from dperm.privacy.accounting.composition import leaves
from dperm.privacy.accounting.events import event_from_dict

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 10, (1200, 3))
Y = 3 * X[:, 0] - X[:, 1] + RNG.normal(size=1200)
LABELS = np.array(["a", "b", "c"])[np.digitize(Y, [5, 15])]
TRAIN, TEST = slice(0, 800), slice(800, None)


@pytest.mark.parametrize("row_norm", [None, 1.2])
@pytest.mark.parametrize("kind", [DPLogisticRegression, DPLinearSVC])
@pytest.mark.parametrize("labels", [LABELS, LABELS == "a"])
def test_accuracy_without_noise_is_the_plain_one(kind, labels, row_norm):
    bounds = Bounds(features=(0, 9), row_norm=row_norm)
    model = kind(epsilon=5.0, bounds=bounds).fit(X[TRAIN], labels[TRAIN])
    score = paid_score(model.saved_model(), X[TEST], labels[TEST], epsilon=1e5)
    assert score.value == pytest.approx(model.score(X[TEST], labels[TEST]), abs=0.003)
    assert score.low <= score.value <= score.high


def test_errors_without_noise_are_the_plain_ones():
    model = DPRidge(epsilon=5.0, bounds=Bounds(features=(0, 9), target=(-15, 35))).fit(X[TRAIN], Y[TRAIN])
    score = paid_score(model.saved_model(), X[TEST], Y[TEST], epsilon=1e5)
    assert score.value == pytest.approx(np.sqrt(np.mean((model.predict(X[TEST]) - Y[TEST]) ** 2)), rel=0.01)


def test_it_is_charged_and_its_interval_holds_its_noise():
    model = DPLogisticRegression(epsilon=5.0, bounds=Bounds(features=(0, 10))).fit(X[TRAIN], LABELS[TRAIN] == "a")
    truth = model.score(X[TEST], LABELS[TEST] == "a")
    ledger = Ledger(dataset="people")
    scores = [
        paid_score(model.saved_model(), X[TEST], LABELS[TEST] == "a", epsilon=1.0, ledger=ledger) for _ in range(60)
    ]
    assert ledger.spent().n_fits == 60
    assert ledger.unsettled() == []
    assert np.mean([one.low <= truth <= one.high for one in scores]) > 0.8
    capped = Ledger(dataset="people")
    capped.set_cap(Budget(0.1, 1e-6))
    with pytest.raises(BudgetRefused):
        paid_score(model.saved_model(), X[TEST], LABELS[TEST] == "a", epsilon=1.0, ledger=capped)


def spoilt(value):
    bad = X[TEST].copy()
    bad[7, 1] = value
    return bad


@pytest.mark.parametrize(
    ("rows", "target", "says"),
    [
        (spoilt(np.nan), None, "NaN or infinite values in column 1"),
        (spoilt(np.inf), None, "NaN or infinite values in column 1"),
        (X[TEST, :2], None, "X has 2 features, but the model expects 3"),
        (X[:0], np.zeros(0), "no held-out rows"),
        (X[TEST], Y[:100], "one value for each of the 400 held-out rows"),
        (X[TEST], Y[TEST][:, None], "one value for each of the 400 held-out rows"),
        (X[TEST], np.where(Y[TEST] > 0, np.nan, Y[TEST]), "y contains NaN or infinite"),
        (X[TEST], np.where(Y[TEST] > 0, np.inf, Y[TEST]), "y contains NaN or infinite"),
        (X[TEST], np.where(Y[TEST] > 0, "Smith", "1"), "y must hold numbers"),
    ],
)
def test_bad_rows_cost_nothing(rows, target, says):
    model = DPRidge(epsilon=5.0, bounds=Bounds(features=(0, 9), target=(-15, 35))).fit(X[TRAIN], Y[TRAIN])
    ledger = Ledger()
    with pytest.raises(InvalidData, match=says) as raised:
        paid_score(model.saved_model(), rows, Y[TEST] if target is None else target, epsilon=1.0, ledger=ledger)
    assert "Smith" not in f"{raised.value} {raised.value.__context__}"
    assert ledger.spent().n_fits == 0


@pytest.mark.parametrize("classes", [True, False])
def test_rows_that_were_charged_elsewhere_are_recognised(classes, tmp_path, monkeypatch):
    """A score on the rows of a fit is charged to the data set of the fit, whatever it is called."""
    monkeypatch.setenv("DPERM_HOME", str(tmp_path))
    kind, y = (DPLogisticRegression, LABELS) if classes else (DPRidge, Y)
    ledger = Ledger(dataset="people")
    target = {} if classes else {"target": (-15, 35)}
    model = kind(epsilon=5.0, bounds=Bounds(features=(0, 9), **target), ledger=ledger).fit(X, y)
    with pytest.warns(DataSetRenamed, match="known to the ledger as 'people'"):
        paid_score(model.saved_model(), X, y, epsilon=1.0, ledger=ledger.for_dataset("others"))
    assert ledger.spent().n_fits == 2


def test_refusals_come_before_the_charge():
    model = (
        DPLogisticRegression(epsilon=5.0, bounds=Bounds(features=(0, 10))).fit(X[TRAIN], LABELS[TRAIN]).saved_model()
    )
    ledger = Ledger()
    with pytest.raises(InvalidData, match="label that the model does not know"):
        paid_score(model, X[:2], np.array(["a", "z"]), epsilon=1.0, ledger=ledger)
    with pytest.raises(InvalidBudget):
        paid_score(model, X[TEST], LABELS[TEST], epsilon=0.0, ledger=ledger)
    assert ledger.spent().n_fits == 0


@pytest.mark.parametrize(
    ("make", "bounds", "labels"),
    [
        (DPLogisticRegression, Bounds(features=(0, 1), classes=[0, 1, 2]), [0, 1, 2]),
        (DPLogisticRegression, None, [0, 1]),
        (DPRidge, Bounds(features=(0, 1), target=(0, 2)), [0, 1, 2]),
    ],
)
def test_the_plans_of_a_fit_and_its_score_are_what_is_charged(make, bounds, labels):
    X, y = np.random.default_rng(0).random((400, 3)), np.resize(labels, 400)
    book = Ledger(dataset="people")
    model = make(epsilon=3.0, bounds=bounds, ledger=book)
    plans = plans_of_fit_and_score(prepare_fit(model, 300, 3, len(labels)), held_out=100, epsilon=0.5)
    saved = model.fit(X[:300], y[:300]).saved_model()
    score = paid_score(saved, X[300:], y[300:], epsilon=0.5, ledger=book)
    charged = [event_from_dict(row["event"]) for row in book.entries() if row["kind"] == "reserve"]
    assert [leaves(event) for event in charged] == [leaves(event) for event in plans]
    report = report_with_score(saved.privacy_report_, score, plans)
    together = report.score["epsilon_together"]
    assert max(report.guarantee.epsilon, 0.5) < together < report.guarantee.epsilon + 0.5
    assert together == pytest.approx(book.spent(report.guarantee.delta).epsilon)
    assert report.guarantee == saved.privacy_report_.guarantee
    assert report.ledger == saved.privacy_report_.ledger


def test_the_interval_of_an_accuracy_is_symmetric():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 2))
    model = DPLogisticRegression(1.0, bounds=Bounds(features=(-1, 1), classes=[0, 1])).fit(X, rng.integers(0, 2, 4000))
    score = paid_score(model.saved_model(), X, rng.integers(0, 2, 4000), epsilon=1.0)
    assert 0.0 < score.low < score.value < score.high < 1.0
    assert score.high - score.value == pytest.approx(score.value - score.low, rel=1e-9)
