"""scikit-learn's own contract for the local models, no check left out.

``poor_score`` is set for both: a check fits a few hundred rows, from which one bit each tells next to nothing, so
scikit-learn does not ask for a good score there (tests/unit/local asks for it, with enough people). ``refuse_hopeless``
is off for the same reason: all of these fits are hopeless.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from dperm import Bounds, Ledger, LocalLinearRegression, LocalLogisticRegression, load
from dperm.errors import LedgerNotSaved

OPTIONS = {"epsilon": 16.0, "refuse_hopeless": False, "insecure_seed": 0}
ESTIMATORS = [
    LocalLogisticRegression(**OPTIONS, bounds=Bounds(features=(-10, 10))),
    LocalLogisticRegression(**OPTIONS, bounds=Bounds(scale=1, clip=5.0), degree=4, fit_intercept=False),
    LocalLinearRegression(**OPTIONS, bounds=Bounds(features=(-10, 10), target=(-10, 10))),
]


@parametrize_with_checks(ESTIMATORS)
def test_estimator_checks(estimator, check):
    check(estimator)


def fitted(kind, n_classes=2, **options):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 2))
    bounds = Bounds(features=(-1, 1), row_norm=1.2, target=(-2, 2))
    if kind is LocalLogisticRegression:
        y = np.array(["no", "yes", "maybe"])[np.digitize(X[:, 0], [0.0, 0.4][: n_classes - 1])]
    else:
        y = X[:, 0]
    return kind(8.0, bounds=bounds, refuse_hopeless=False, insecure_seed=0, **options).fit(X, y), X, y


MODELS = [(LocalLogisticRegression, 2), (LocalLogisticRegression, 3), (LocalLinearRegression, 2)]


@pytest.mark.parametrize(("kind", "n_classes"), MODELS)
class TestCopies:
    def test_a_saved_model_predicts_the_same_bits(self, kind, n_classes, tmp_path):
        model, X, _ = fitted(kind, n_classes)
        model.save(tmp_path / "model.json")
        saved = load(tmp_path / "model.json")
        assert saved.estimator == kind.__name__
        assert np.array_equal(saved.predict(X), model.predict(X))
        assert saved.privacy_report_ == model.privacy_report_
        if kind is LocalLogisticRegression:
            assert np.array_equal(saved.predict_proba(X), model.predict_proba(X))
            assert saved.classes_.tolist() == model.classes_.tolist()

    def test_an_onnx_file_predicts_the_same(self, kind, n_classes, tmp_path):
        runtime = pytest.importorskip("onnxruntime")
        model, X, _ = fitted(kind, n_classes)
        session = runtime.InferenceSession(model.to_onnx(tmp_path / "model.onnx"))
        found = session.run(None, {session.get_inputs()[0].name: X[:50]})[0].ravel()
        wanted = model.predict(X[:50])
        assert found.tolist() == (wanted.tolist() if wanted.dtype.kind == "U" else pytest.approx(wanted.tolist()))

    def test_pickles_and_copies(self, kind, n_classes):
        model, X, _ = fitted(kind, n_classes)
        for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
            assert np.array_equal(other.predict(X), model.predict(X))
            assert np.array_equal(other.intervals_, model.intervals_)
            assert other.counts_.task == model.counts_.task

    def test_a_clone_keeps_parameters_and_shares_the_ledger(self, kind, n_classes, tmp_path):
        model, X, y = fitted(kind, n_classes)
        ledger = Ledger(tmp_path / "ledger.db")
        other = clone(model).set_params(ledger=ledger, strength=0.1)
        assert clone(other).get_params()["strength"] == 0.1
        assert not hasattr(other, "coef_")
        again = pickle.loads(pickle.dumps(other.fit(X, y)))
        again.fit(X, y)
        assert ledger.spent().n_fits == 2

    def test_a_ledger_in_memory_is_not_pickled(self, kind, n_classes):
        model, _, _ = fitted(kind, n_classes, ledger=Ledger())
        with pytest.warns(LedgerNotSaved):
            assert pickle.loads(pickle.dumps(model)).ledger is None


def test_rows_on_disk_are_the_same_people(tmp_path):
    model, X, y = fitted(LocalLogisticRegression)
    np.save(tmp_path / "rows.npy", X)
    again = clone(model).fit(np.load(tmp_path / "rows.npy", mmap_mode="r"), y)
    assert np.array_equal(again.coef_, model.coef_)


def test_in_a_pipeline_and_a_cross_validation():
    model, X, y = fitted(LocalLinearRegression)
    assert cross_val_score(clone(model), X, y, cv=2).shape == (2,)
    pipeline = make_pipeline(FunctionTransformer(), clone(model)).fit(X, y)
    assert np.array_equal(pipeline.predict(X), model.predict(X))
