"""DPLogisticRegression as its users know it: fit, predict, clone, search, pickle."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dperm import Bounds, Budget, DPLogisticRegression, Ledger
from dperm.errors import BudgetRefused, InvalidData, InvalidInput, LedgerNotSaved
from dperm.solvers import GradientDescent

UNIT = Bounds(features=(-1, 1))


def people(n=400, p=3, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, p))
    weights = 4.0 * np.eye(p, n_classes) if n_classes > 2 else np.array([[0.0, 4.0], [0.0, -1.0], [0.0, 0.0]])
    scores = X @ weights
    return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)


def model(**options):
    return DPLogisticRegression(**{"epsilon": 1e6, "bounds": UNIT, "insecure_seed": 0, **options})


# ------------------------------------------------------------------------------------------ fit and predict
@pytest.mark.parametrize("n_classes", [2, 3])
def test_shapes_and_agreement_of_predictions(n_classes):
    X, y = people(n_classes=n_classes)
    fitted = model(solver="gradient").fit(X, y)
    rows = 1 if n_classes == 2 else n_classes
    assert fitted.coef_.shape == (rows, 3)
    assert fitted.intercept_.shape == (rows,)
    assert fitted.classes_.tolist() == list(range(n_classes))
    assert fitted.n_features_in_ == 3
    assert fitted.n_iter_.tolist() == [64]
    scores = fitted.decision_function(X)
    assert scores.shape == ((400,) if n_classes == 2 else (400, n_classes))
    np.testing.assert_allclose(scores.reshape(400, -1), X @ fitted.coef_.T + fitted.intercept_)
    probabilities = fitted.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert (fitted.predict(X) == probabilities.argmax(axis=1)).all()
    np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(probabilities))
    assert fitted.score(X, y) == (fitted.predict(X) == y).mean()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_with_little_noise_it_is_as_good_as_without(n_classes):
    X, y = people(n=3000, n_classes=n_classes)
    assert model().fit(X, y).score(X, y) > LogisticRegression().fit(X, y).score(X, y) - 0.02


def test_without_noise_it_is_scikit_learns_model_in_the_users_units():
    """Scaling happens inside: with C = 1 / (n strength) the two agree on the scaled columns."""
    X, y = people(n=500)
    wide = X * [10.0, 0.1, 3.0] + [5.0, 0.0, -2.0]
    low, high = wide.min(axis=0), wide.max(axis=0)
    solver = GradientDescent(n_steps=400, clip=1e9, step=1.0, momentum=0.9, averaging=0.0)
    fitted = model(epsilon=1e8, bounds=Bounds(features=(low, high)), solver=solver, strength=0.01).fit(wide, y)
    scaled = (wide - (low + high) / 2) / ((high - low) / 2)
    trusted = LogisticRegression(C=1.0 / (500 * 0.01), tol=1e-10).fit(scaled, y)
    np.testing.assert_allclose(fitted.predict_proba(wide), trusted.predict_proba(scaled), atol=2e-3)


@pytest.mark.parametrize("labels", [["no", "yes"], [-1, 1], [False, True], [2.0, 7.0], ["b", "aaaa", "c"]])
def test_labels_of_any_kind(labels):
    X, codes = people(n_classes=len(labels))
    y = np.array(labels)[codes]
    fitted = model().fit(X, y)
    assert fitted.classes_.tolist() == sorted(labels)
    assert set(fitted.predict(X)) == set(labels)
    assert fitted.score(X, y) > 0.6
    assert np.array_equal(model().fit(X, pd.Series(y)).coef_, fitted.coef_)
    if isinstance(labels[0], str):  # scikit-learn has no type for other objects
        assert np.array_equal(model().fit(X, y.astype(object)).coef_, fitted.coef_)
    assert np.array_equal(model().fit(X, y.tolist()).coef_, fitted.coef_)


def test_declared_classes():
    X, y = people()
    taken = model().fit(X, y)
    same = model(bounds=Bounds(features=(-1, 1), classes=[1, 0])).fit(X, y)
    assert same.classes_.tolist() == [0, 1]
    assert np.array_equal(same.coef_, taken.coef_)
    # a class that happens to be absent keeps its place
    more = model(bounds=Bounds(features=(-1, 1), classes=(0, 1, 2))).fit(X, y)
    assert more.predict_proba(X).shape == (400, 3)
    one = model(bounds=Bounds(features=(-1, 1), classes=(0, 1))).fit(X, np.zeros(400, int))
    assert one.predict(X).mean() < 0.1
    for wrong in ([0, 2], ["0", "1"]):
        with pytest.raises(InvalidData, match="not among the declared classes"):
            model(bounds=Bounds(features=(-1, 1), classes=wrong)).fit(X, y)


def test_the_label_set_is_an_assumption_unless_it_is_declared():
    X, y = people()
    for classes, stated in ((None, True), ((0, 1), False)):
        bounds = Bounds(features=(-1, 1), classes=classes)
        assumptions = DPLogisticRegression(bounds=bounds).fit(X, y).privacy_report_.guarantee.assumptions
        assert ("the set of labels is public" in assumptions) == stated
        assert "the declared bounds do not come from these data" in assumptions


@pytest.mark.parametrize("bounds", [UNIT, Bounds(scale=0.5, clip=1.5), None], ids=["range", "scale", "bought"])
def test_sparse_input_gives_the_same_model(bounds):
    X, y = people()
    X[np.random.default_rng(1).random(X.shape) < 0.6] = 0.0
    dense = model(bounds=bounds, epsilon=5.0).fit(X, y)
    for form in (sp.csr_array, sp.csc_matrix, sp.coo_array)[: 3 if bounds else 1]:
        sparse = model(bounds=bounds, epsilon=5.0).fit(form(X), y)
        assert np.array_equal(sparse.coef_, dense.coef_)
        np.testing.assert_allclose(sparse.decision_function(form(X)), dense.decision_function(X))


@pytest.mark.parametrize("bounds", [UNIT, None], ids=["declared", "bought"])
def test_entries_stored_in_pieces_change_nothing_and_are_left_alone(bounds):
    X, y = people(n=50)
    whole = sp.csr_matrix(X)
    pieces = sp.csr_matrix(
        (np.repeat(whole.data, 2) / 2, np.repeat(whole.indices, 2), 2 * whole.indptr), shape=whole.shape
    )
    before = pieces.data.copy(), pieces.indices.copy(), pieces.indptr.copy()
    ledger = Ledger()
    fitted = model(bounds=bounds, epsilon=5.0, ledger=ledger).fit(pieces, y)
    assert np.array_equal(fitted.coef_, model(bounds=bounds, epsilon=5.0).fit(whole, y).coef_)
    for now, then in zip((pieces.data, pieces.indices, pieces.indptr), before, strict=True):
        assert np.array_equal(now, then)


def test_row_order_thread_and_type_do_not_show_in_a_keyed_fit():
    X, y = people(n=500)
    X = X.astype(np.float32)
    first = model().fit(X, y)
    order = np.random.default_rng(2).permutation(500)
    assert np.array_equal(model().fit(X[order], y[order]).coef_, first.coef_)
    assert np.array_equal(model().fit(np.asfortranarray(X.astype(float)), y).coef_, first.coef_)


def test_pandas_keeps_feature_names():
    X, y = people()
    frame = pd.DataFrame(X, columns=["age", "dose", "days"])
    fitted = model().fit(frame, y)
    assert fitted.feature_names_in_.tolist() == ["age", "dose", "days"]
    assert np.array_equal(fitted.predict(frame), model().fit(X, y).predict(X))
    with pytest.raises(InvalidData, match="feature names should match"):
        fitted.predict(frame[["dose", "age", "days"]])


def test_no_intercept():
    X, y = people()
    fitted = model(fit_intercept=False, bounds=Bounds(features=(-1, 1))).fit(X, y)
    assert fitted.intercept_.tolist() == [0.0]


@pytest.mark.parametrize("penalty", ["none", "l1", "l2", "elastic-net"])
def test_penalties(penalty):
    X, y = people()
    assert model(penalty=penalty).fit(X, y).score(X, y) > 0.75
    strong = model(penalty=penalty, strength=50.0).fit(X, y)
    if penalty != "none":
        assert np.abs(strong.coef_).max() < 0.05


def test_fresh_noise_in_every_fit():
    X, y = people()
    secure = DPLogisticRegression(bounds=UNIT)
    assert not np.array_equal(secure.fit(X, y).coef_, secure.fit(X, y).coef_)
    assert np.array_equal(model(epsilon=1.0).fit(X, y).coef_, model(epsilon=1.0).fit(X, y).coef_)
    assert not np.array_equal(model(epsilon=1.0).fit(X, y).coef_, model(epsilon=1.0, insecure_seed=1).fit(X, y).coef_)


def test_predicting_before_fitting():
    X, _ = people()
    with pytest.raises(NotFittedError):
        model().predict(X)
    refused = model()
    with pytest.raises(InvalidData):
        refused.fit(X, np.zeros(400))
    with pytest.raises(NotFittedError):
        refused.predict(X)


def test_a_refused_fit_leaves_the_earlier_model_as_it_was():
    X, y = people()
    ledger = Ledger()
    ledger.set_cap(Budget(1.0, 1e-5))
    fitted = DPLogisticRegression(epsilon=0.8, delta=1e-6, bounds=UNIT, ledger=ledger).fit(X, y)
    before = fitted.predict(X)
    with pytest.raises(BudgetRefused):
        fitted.fit(X, np.array(["no", "yes"])[y])
    assert np.array_equal(fitted.predict(X), before)
    with pytest.raises(BudgetRefused):  # other names and another width do not stick either
        fitted.fit(pd.DataFrame(X[:, :2], columns=["a", "b"]), y)
    assert np.array_equal(fitted.predict(X), before)


# ------------------------------------------------------------------------------------------ parameters, copies, search
def test_parameters_are_stored_as_given():
    defaults = DPLogisticRegression().get_params()
    assert defaults == {
        "epsilon": 1.0,
        "delta": None,
        "bounds": None,
        "solver": "auto",
        "penalty": "l2",
        "strength": None,
        "l1_ratio": 0.5,
        "multi_class": "multinomial",
        "neighbours": "replace-one",
        "calibration": "certified",
        "fit_intercept": True,
        "ledger": None,
        "insecure_seed": None,
        "verbose": False,
    }
    odd = DPLogisticRegression(epsilon="later", bounds=3)  # nothing is checked before fit
    assert odd.set_params(epsilon=2.0, bounds=UNIT, insecure_seed=0).fit(*people()).privacy_report_.planned.epsilon <= 2


def test_clone_and_copies_share_the_ledger():
    ledger = Ledger()
    original = model(ledger=ledger)
    for other in (clone(original), copy.copy(original), copy.deepcopy(original)):
        assert other.ledger is ledger
        other.fit(*people(n=50))
    assert ledger.spent().n_fits == 3
    for again in (copy.copy(other), copy.deepcopy(other)):
        assert again.ledger is ledger
        assert np.array_equal(again.predict(people()[0]), other.predict(people()[0]))
    assert again.coef_ is not other.coef_


def test_pickling():
    X, y = people()
    fitted = model().fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.privacy_report_ == fitted.privacy_report_


def test_a_ledger_in_memory_is_not_saved_with_a_model():
    X, y = people(n=50)
    fitted = model(ledger=Ledger()).fit(X, y)
    with pytest.warns(LedgerNotSaved, match="keep the ledger in a file"):
        again = pickle.loads(pickle.dumps(fitted))
    assert again.ledger is None
    assert fitted.ledger is not None
    assert np.array_equal(again.predict(X), fitted.predict(X))


def test_an_unfitted_model_with_a_ledger_in_memory_is_not_sent_to_other_processes():
    """Fits there would be charged to a copy that nobody sees."""
    sent = pickle.loads(pickle.dumps(model(ledger=Ledger())))
    for one in (sent, clone(sent), pickle.loads(pickle.dumps(sent))):
        with pytest.raises(InvalidInput, match=r"in the memory of another process .* as in Ledger\('budget.db'\)"):
            one.fit(*people(n=50))
        with pytest.raises(InvalidInput, match="in the memory of another process"):
            one.plan(50, 3)


def test_pickling_with_a_file_ledger(tmp_path):
    X, y = people()
    ledger = Ledger(tmp_path / "budget.db", dataset="patients")
    fitted = DPLogisticRegression(bounds=UNIT, ledger=ledger).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict(X), fitted.predict(X))
    again.fit(X, y)
    assert ledger.spent().n_fits == 2


def test_a_search_charges_every_inner_fit():
    X, y = people()
    ledger = Ledger()
    search = GridSearchCV(model(ledger=ledger, insecure_seed=None), {"strength": [1e-3, 1e-1]}, cv=3).fit(X, y)
    assert ledger.spent().n_fits == 2 * 3 + 1
    assert search.best_estimator_.ledger is ledger
    cross_val_score(model(ledger=ledger, insecure_seed=None), X, y, cv=2)
    assert ledger.spent().n_fits == 9


@pytest.mark.filterwarnings("ignore:Some fits failed")
def test_a_search_in_several_processes(tmp_path):
    """A ledger in a file is charged by all; one in memory cannot be, and the search says so in one sentence."""
    X, y = people(n=60)
    options = {"param_grid": {"strength": [1e-3, 1e-1]}, "cv": 2, "n_jobs": 2}
    ledger = Ledger(tmp_path / "budget.db")
    GridSearchCV(model(ledger=ledger, insecure_seed=None), **options).fit(X, y)
    assert ledger.spent().n_fits == 2 * 2 + 1
    with pytest.raises(ValueError, match="InvalidInput: the ledger is in the memory of another process"):
        GridSearchCV(model(ledger=Ledger(), insecure_seed=None), **options).fit(X, y)


def test_a_pipeline():
    X, y = people()
    ledger = Ledger()
    pipeline = make_pipeline(FunctionTransformer(np.tanh), model(ledger=ledger)).fit(X, y)
    assert pipeline.score(X, y) > 0.75
    assert ledger.spent().n_fits == 1
    pipeline.set_params(dplogisticregression__epsilon=3.0)
    assert clone(pipeline).get_params()["dplogisticregression__epsilon"] == 3.0


def test_no_penalty_may_be_spelt_as_in_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    y = (X[:, 0] > 0).astype(int)
    one, two = (
        DPLogisticRegression(bounds=Bounds(features=(-1, 1)), penalty=penalty, insecure_seed=0).fit(X, y)
        for penalty in (None, "none")
    )
    assert one.coef_.tolist() == two.coef_.tolist()
