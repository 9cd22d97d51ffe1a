"""Whatever is wrong costs nothing, is said in one sentence, and shows none of the data."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from dperm import Bounds, Budget, DPLogisticRegression, DPRidge, Ledger
from dperm.errors import BudgetRefused, DpermError, InvalidBounds, InvalidBudget, InvalidData, InvalidInput, Unsupported

UNIT = Bounds(features=(-1, 1))
SECRET = 77123.0625  # stands in the data and must not stand in any message


def people(n=12, p=2):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, p))
    X[5, 1] = SECRET
    return X, np.arange(n) % 2


@pytest.fixture
def ledger():
    return Ledger()


def check(ledger, X, y, error, words, **options):
    """Fit must be refused: typed, one sentence, no values, nothing written, the caller's arrays unchanged."""
    before = ledger.entries()
    with pytest.raises(error, match=words) as raised:
        DPLogisticRegression(**{"bounds": UNIT, "ledger": ledger, **options}).fit(X, y)
    assert isinstance(raised.value, DpermError)
    assert isinstance(raised.value, ValueError)
    assert raised.value.exit_code == 2
    text = str(raised.value)
    assert "\n" not in text
    assert "77123" not in text
    assert "Smith" not in text
    assert not re.search(r"\b(row|sample|index|position) \d", text)
    assert ledger.entries() == before
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None  # a traceback shows no other message


def with_value(value, dtype=float):
    X, y = people()
    X = X.astype(dtype)
    X[3, 0] = value
    return X, y


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (*with_value(np.nan), "X contains NaN or infinite values"),
        (*with_value(np.inf), "X contains NaN or infinite values"),
        (*with_value(-np.inf), "X contains NaN or infinite values"),
        (sp.csr_array(with_value(np.nan)[0]), people()[1], "X contains NaN or infinite values"),
        (people()[0][:, 1], people()[1], "X must have two dimensions"),
        (SECRET, people()[1], "X must have two dimensions"),
        (people()[0][None], people()[1], "Found array with dim 3"),
        (people()[0][:0], [], "0 sample"),
        (people()[0][:, :0], people()[1], "0 feature"),
        (people()[0][:-1], people()[1], "^X has 11 rows and y has 12: y must hold one label or number for each row"),
        (*with_value("Mrs. Smith", object), "X must hold numbers only"),
        (people()[0].astype(str), np.array(["Smith"] * 12), "one class only"),
        (pd.DataFrame({"a": ["Smith"] * 12, "b": 1.0}), people()[1], "X must hold numbers only"),
        (people()[0] * 1j, people()[1], "Complex data not supported"),
        (people()[0], np.zeros(12), "one class only"),
        (people()[0], ["Smith"] * 12, "one class only"),
        (people()[0], people()[0][:, 1], "Unknown label type: continuous"),
        (people()[0], np.where(people()[1], np.nan, 1.0), "y contains NaN"),
        (people()[0], np.where(people()[1], np.inf, 1.0), "y contains NaN"),
        (people()[0], np.array([None, "Smith"] * 6, object), "y mixes labels"),
        (people()[0], np.array([1, "Smith"] * 6, object), "y mixes labels of several kinds"),
        (people()[0], np.column_stack([people()[1]] * 2), "y should be a 1d array"),
        (people()[0], None, "requires y to be passed"),
    ],
)
def test_bad_data(ledger, X, y, words):
    check(ledger, X, y, InvalidData, words)


@pytest.mark.parametrize("classes", [[0, 2], ["Smith", "Jones"], [0.5, 1.5]])
def test_a_label_outside_the_declared_classes(ledger, classes):
    bounds = Bounds(features=(-1, 1), classes=classes)
    check(ledger, *people(), InvalidData, "not among the declared classes", bounds=bounds)


@pytest.mark.parametrize("epsilon", [0, -1, 0.0, np.nan, np.inf, "1", None, True, np.bool_(True), [1.0], 1j])
def test_bad_epsilon(ledger, epsilon):
    check(ledger, *people(), InvalidBudget, "^epsilon must be", epsilon=epsilon)


@pytest.mark.parametrize("delta", [0, 1, -1, 2, 0.0, np.nan, "1e-6", True])
def test_bad_delta(ledger, delta):
    check(ledger, *people(), InvalidBudget, "^delta must be", delta=delta)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"bounds": "guess"}, InvalidBounds, "bounds must be a Bounds, 'declare' or None, not str"),
        ({"bounds": (0, 1)}, InvalidBounds, "not tuple"),
        ({"bounds": Bounds(features=(-1, [1, 1, 1]))}, InvalidBounds, "hi has 3 entries for 2 columns"),
        ({"bounds": Bounds(scale=1, clip=1e9)}, InvalidBounds, "out of proportion"),
        ({"solver": "adam"}, InvalidInput, "solver must be one of 'auto'"),
        ({"solver": None}, InvalidInput, "solver must be one of 'auto'"),
        ({"penalty": "l3"}, InvalidInput, "penalty must be one of 'none', 'l1', 'l2', 'elastic-net', not 'l3'"),
        ({"penalty": ["l2"]}, InvalidInput, "penalty must be one of"),
        ({"strength": -1}, InvalidInput, "strength must be 0 or more"),
        ({"strength": -1, "penalty": "none"}, InvalidInput, "strength must be 0 or more"),
        ({"strength": np.nan}, InvalidInput, "strength must be a finite number"),
        ({"strength": "1"}, InvalidInput, "strength must be a finite number"),
        ({"l1_ratio": 2, "penalty": "elastic-net"}, InvalidInput, "l1_ratio must"),
        ({"neighbours": "add-remove"}, InvalidInput, "neighbours must be 'replace-one' or 'zero-out'"),
        ({"neighbours": None}, InvalidInput, "neighbours must be 'replace-one' or 'zero-out'"),
        ({"calibration": "loose"}, InvalidInput, "calibration must be 'certified' or 'paper'"),
        ({"calibration": None}, InvalidInput, "calibration must be 'certified' or 'paper'"),
        ({"calibration": "paper"}, Unsupported, "no published calibration exists for solver 'wide'"),
        ({"fit_intercept": "no"}, InvalidInput, "fit_intercept must be True or False"),
        ({"insecure_seed": 1.5}, InvalidInput, "insecure_seed must be a whole number or None"),
        ({"insecure_seed": True}, InvalidInput, "insecure_seed must be a whole number or None"),
        ({"insecure_seed": "a"}, InvalidInput, "insecure_seed must be a whole number or None, not str"),
    ],
)
def test_bad_parameters(ledger, options, error, words):
    check(ledger, *people(), error, words, **options)


def test_a_wrong_ledger():
    with pytest.raises(InvalidInput, match="ledger must be a Ledger or None, not str"):
        DPLogisticRegression(bounds=UNIT, ledger="budget.db").fit(*people())


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (pd.DataFrame({"age": 1.0, "name": ["Smith"] * 12}), "column 'name' holds text or categories"),
        (pd.DataFrame({"age": 1.0, "name": np.array(["Smith"] * 12, object)}), "column 'name' holds text"),
        (pd.DataFrame({"age": 1.0, "kind": pd.Categorical([1, 2] * 6)}), "column 'kind' holds text or categories"),
        (pd.DataFrame({"age": 1.0, "born": pd.to_datetime(["2001-02-03"] * 12)}), "column 'born' holds dates or times"),
        (
            pd.DataFrame({"age": 1.0, "born": pd.to_datetime(["2001-02-03"] * 12, utc=True)}),
            "column 'born' holds dates",
        ),
        (pd.DataFrame({"age": 1.0, "long": pd.to_timedelta([1] * 12)}), "column 'long' holds dates or times"),
        (pd.DataFrame({"age": 1.0, "more": [{"Smith": 1}] * 12}), "column 'more' holds objects"),
        (pd.DataFrame({"age": 1.0, "more": [["Smith"]] * 12}), "column 'more' holds objects"),
        (pd.DataFrame({"age": 1.0, "more": [[1.0, 2.0]] * 12}), "column 'more' holds objects"),
        (pd.DataFrame({"age": 1.0, "dose": [np.nan] * 12}), "NaN or infinite values in column 'dose'"),
        (
            pd.DataFrame({"age": 1.0, "dose": pd.array([None, 1] * 6, "Int64")}),
            "NaN or infinite values in column 'dose'",
        ),
        (np.array([[1.0, "Smith"]] * 12, object), "column 1 holds text"),
        (np.array([[1.0, {"Smith": 1}]] * 12, object), "column 1 holds objects"),
        ([[1.0, "Smith"]] * 12, "column 1 holds text"),
        (np.full((12, 2), "2001-02-03", "datetime64[D]"), "X holds dates or times"),
        (sp.csc_array(with_value(np.inf)[0]), "NaN or infinite values in column 0"),
    ],
)
def test_the_column_at_fault_is_named(ledger, X, words):
    check(ledger, X, people()[1], InvalidData, words)
    with pytest.raises(InvalidData, match=words) as raised:
        DPRidge(bounds=Bounds(features=(0, 1), target=(0, 1))).fit(X, people()[1])
    assert "Smith" not in str(raised.value)
    plain = pd.DataFrame({name: [0.5] * 12 for name in X.columns}) if isinstance(X, pd.DataFrame) else people()[0]
    fitted = DPRidge(bounds=Bounds(features=(0, 1), target=(0, 1))).fit(plain, people()[1])
    with pytest.raises(InvalidData, match=words):
        fitted.predict(X)


@pytest.mark.parametrize(
    "y", [pd.to_datetime(["2001-02-03"] * 12), [{"Smith": 1}] * 12, ["Smith"] * 12, np.full(12, None), [None, 1.0] * 6]
)
def test_targets_that_are_no_numbers(y):
    with pytest.raises(InvalidData) as raised:
        DPRidge(bounds=Bounds(features=(0, 1), target=(0, 1))).fit(people()[0], y)
    assert "Smith" not in str(raised.value)
    assert "y" in str(raised.value)


def test_a_dict_of_pairs_gets_a_hint():
    with pytest.raises(InvalidBounds, match=r"write features=\(\{'age': 18, 'sex': 0\}, \{'age': 99, 'sex': 1\}\)\."):
        Bounds(features={"age": (18, 99), "sex": (0, 1)})
    with pytest.raises(InvalidBounds, match=r"\{'age': lo\}, \{'age': hi\}"):
        Bounds(features={"age": 18})
    with pytest.raises(InvalidBounds, match="and the other columns likewise"):
        Bounds(features={f"c{j}": (0, 1) for j in range(9)})
    with pytest.raises(InvalidBounds, match="of dicts by column name"):
        Bounds(features=3)


def test_bad_parameters_are_refused_before_the_data_are_looked_at(ledger):
    check(ledger, object(), object(), InvalidBudget, "epsilon", epsilon=-1)
    check(ledger, object(), object(), InvalidInput, "solver", solver="adam")


def declared_code(text):
    """The code that the sentence shows, run with numbers and labels put in."""
    shown = re.search(r"bounds=(Bounds\(.*?\)) (?:\(one pair|and the same|with publicly)", text).group(1)
    return eval(shown.replace("[...]", "[0, 1]"), {"Bounds": Bounds, "lo": -1, "hi": 1})


@pytest.mark.parametrize(
    "make", [np.asarray, np.ndarray.tolist, sp.csr_array, lambda X: pd.DataFrame(X, columns=["a", "b"])]
)
@pytest.mark.parametrize("maker", [DPLogisticRegression, DPRidge])
def test_asking_to_declare_shows_what_to_write(ledger, make, maker):
    X, y = make(people()[0]), people()[1]
    with pytest.raises(InvalidBounds, match="bounds=None to buy them") as raised:
        maker(bounds="declare", ledger=ledger).fit(X, y)
    assert "77123" not in str(raised.value)
    assert ledger.spent().n_fits == 0
    bounds = declared_code(str(raised.value))
    assert bounds.target == ((-1, 1) if maker is DPRidge else None)
    assert bounds.classes == (None if maker is DPRidge else [0, 1])
    assert isinstance(bounds.features[0], dict) == isinstance(X, pd.DataFrame)
    maker(bounds=bounds, ledger=ledger).fit(X, y)


def test_asking_to_declare_with_many_or_boolean_columns():
    frame = pd.DataFrame(np.zeros((4, 50)), columns=[f"c{j}" for j in range(50)])
    with pytest.raises(InvalidBounds, match=r"\(one pair for all 50 columns, or two dicts with a number for each name"):
        DPRidge(bounds="declare").fit(frame, [1, 2, 3, 4])
    with pytest.raises(InvalidBounds) as raised:
        DPRidge(bounds="declare").fit(frame.iloc[:, :40], [1, 2, 3, 4])
    assert len(declared_code(str(raised.value)).features[0]) == 40  # what it shows is complete
    with pytest.raises(InvalidBounds, match=r"features=\(lo, hi\), target=\(lo, hi\)\) \(one pair for all 20 columns"):
        DPRidge(bounds="declare").plan(100, 20)
    flags = frame[["c0", "c1"]].astype({"c1": bool})
    with pytest.raises(InvalidBounds, match=r"\{'c0': hi\}\), target=.*columns of type bool need none"):
        DPRidge(bounds="declare").fit(flags, [1, 2, 3, 4])


@pytest.mark.parametrize("bounds", [Bounds(features=(0, 3), row_norm=1.0), Bounds.private_quantiles(row_norm=0.5)])
def test_a_row_norm_that_sparse_data_cannot_have(ledger, bounds):
    X, y = people()
    check(ledger, sp.csr_array(X), y, InvalidBounds, "row_norm with sparse data", bounds=bounds)


def test_predictions_refuse_bad_data_in_the_same_way():
    X, y = people()
    fitted = DPLogisticRegression(bounds=UNIT).fit(X, y)
    for bad, words in [
        (X[:, :1], "X has 1 features, but DPLogisticRegression is expecting 2 features"),
        (X[0], "X must have two dimensions"),
        (np.full((2, 2), np.nan), "X contains NaN"),
        (np.array([["Smith", "1"]], object), "X must hold numbers only"),
    ]:
        for method in (fitted.predict, fitted.predict_proba, fitted.decision_function, fitted.predict_log_proba):
            with pytest.raises(InvalidData, match=words) as raised:
                method(bad)
            assert "77123" not in str(raised.value)
            assert "Smith" not in str(raised.value)


def test_a_full_ledger_refuses_and_writes_nothing():
    ledger = Ledger()
    ledger.set_cap(Budget(1.0, 1e-5))
    before = ledger.entries()
    with pytest.raises(BudgetRefused) as raised:
        DPLogisticRegression(epsilon=3.0, bounds=UNIT, ledger=ledger).fit(*people())
    assert raised.value.exit_code == 3
    assert ledger.entries() == before


@pytest.mark.parametrize("epsilon", [0.01, 0.5])
def test_seeded_noise_is_refused_by_a_cap(epsilon):
    ledger = Ledger()
    ledger.set_cap(Budget(1.0, 1e-5))
    before = ledger.entries()
    with pytest.raises(BudgetRefused):
        DPLogisticRegression(epsilon=epsilon, bounds=UNIT, ledger=ledger, insecure_seed=0).fit(*people())
    assert ledger.entries() == before
    DPLogisticRegression(epsilon=0.5, delta=1e-6, bounds=UNIT, ledger=ledger).fit(*people())


def test_numbers_given_to_a_classifier_are_not_published_as_labels(ledger):
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (150, 3))
    check(ledger, X, np.arange(150), InvalidData, "more than 100 different labels")


def test_a_plan_of_data_shows_none_of_them():
    X, y = people()
    with pytest.raises(InvalidInput, match=r"n must be a whole number of 1 or more, not ndarray\.$"):
        DPLogisticRegression().plan(X, y)


def test_columns_of_one_name_are_named():
    table = pd.DataFrame(np.zeros((5, 3)), columns=["a", "b", "a"])
    bounds = Bounds(features=(-1, 1), target=(-1, 1))
    with pytest.raises(InvalidData, match="more than one column named 'a'"):
        DPRidge(bounds=bounds).fit(table, np.zeros(5))
    by_number = Bounds(features=({0: -1, 1: -1}, {0: 1, 1: 1}), target=(-1, 1))
    with pytest.raises(InvalidBounds, match="whose names are text"):
        DPRidge(bounds=by_number).fit(pd.DataFrame(np.zeros((5, 2))), np.zeros(5))
