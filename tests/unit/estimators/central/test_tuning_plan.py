"""A search before it is made, and what it leaves behind: the plan, and the best model in files."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from dperm import Bounds, DPLogisticRegression, DPRidge, DPTuner, load
from dperm.errors import InvalidBounds, InvalidBudget, InvalidInput
from dperm.solvers import GradientDescent


def labels():
    X = np.random.default_rng(0).uniform(-1, 1, (400, 4))
    return X, X[:, 0] + 0.5 * X[:, 1] > 0


def logistic(**options):
    return DPLogisticRegression(**{"bounds": Bounds(features=(-1, 1)), "solver": GradientDescent(n_steps=3), **options})


def tuner(estimator=None, parameters=None, **options):
    return DPTuner(estimator or logistic(), parameters or {"strength": [1e-3, 1.0]}, **options)


def test_saving_the_best_model(tmp_path):
    X, y = labels()
    done = tuner().fit(X, y)
    again = load(done.save(tmp_path / "best.json"))
    assert np.array_equal(again.predict_proba(X), done.predict_proba(X))
    assert again.privacy_report_ == done.privacy_report_
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(done.to_onnx(tmp_path / "best.onnx"))
    assert np.array_equal(session.run(["label"], {"X": X})[0].ravel(), done.predict(X))
    sio = pytest.importorskip("skops.io")
    data = sio.dumps(done)
    copied = sio.loads(data, trusted=sio.get_untrusted_types(data=data))
    assert np.array_equal(copied.predict(X), done.predict(X))
    assert copied.privacy_report_ == done.privacy_report_
    with pytest.raises(NotFittedError):
        tuner().save(tmp_path / "none.json")


# ------------------------------------------------------------------------------------------ the plan
def test_the_plan_is_what_the_search_does():
    grids = [{"strength": [1e-3, 1.0]}, {"solver": ["frank-wolfe"]}]
    made = tuner(parameters=grids, epsilon=2.0, expected_runs=5.0)
    plan = made.plan(400, 4)
    report = made.fit(*labels()).privacy_report_
    assert plan.epsilon == report.guarantee.epsilon <= 2.0
    assert [name for name, _ in plan.candidates] == ["strength=0.001", "strength=1.0", "solver='frank-wolfe'"]
    best = dict(plan.candidates)[", ".join(f"{k}={v!r}" for k, v in made.best_params_.items())]
    assert [(r.query, r.count, r.noise_multiplier) for r in best.releases] == [
        (r.query, r.count, r.noise_multiplier) for r in report.releases
    ]
    assert all(one.epsilon < plan.epsilon for _, one in plan.candidates)
    assert plan.tried == pytest.approx(5 / 7)
    text = str(plan)
    assert "search over 3 candidates of DPLogisticRegression on 400 rows and 4 columns: epsilon 2 of 2" in text
    assert "candidate solver='frank-wolfe'\n  one run of it:\n" in text
    assert "1 x number of correct predictions" in text


def test_the_plan_refuses_what_the_search_would():
    for options, kind, words in [
        (
            {"parameters": {"strength": [1e-3, -1.0]}},
            InvalidInput,
            "candidate strength=-1.0: strength must be 0 or more",
        ),
        ({"epsilon": -1.0}, InvalidBudget, "epsilon must be above 0"),
        ({"estimator": logistic(bounds="declare")}, InvalidBounds, "bounds are not declared"),
        ({"estimator": DPRidge()}, InvalidBounds, r"target=\(lo, hi\)"),
    ]:
        with pytest.raises(kind, match=words):
            tuner(**options).plan(400, 4)
    with pytest.raises(InvalidInput, match="n must be a whole number of 1 or more, not ndarray"):
        tuner().plan(*labels())
    assert tuner(logistic(multi_class="ovr")).plan(400, 4, n_classes=3).candidates[0][1].releases[0].count == 9
