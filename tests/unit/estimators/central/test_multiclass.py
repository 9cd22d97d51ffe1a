"""More than two classes, one against the rest: several models, one plan, one reservation; and the linear SVC."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from dperm import Bounds, DPLinearSVC, DPLogisticRegression, Ledger
from dperm.errors import InvalidInput, PlanViolation, Unsupported
from dperm.estimators.central import request as request_module
from dperm.objective import L2, Objective, SmoothedHinge
from dperm.privacy.accounting import composition
from dperm.solvers import CoordinateDescent, GradientDescent, GreedyCoordinateDescent

UNIT = Bounds(features=(-1, 1))
EXACT = GradientDescent(n_steps=300, clip=1e9, step=1.0, momentum=0.9, averaging=0.0)


def people(n=400, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    scores = X @ (4.0 * np.eye(3, n_classes))
    return X, (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_svc_shapes(n_classes):
    X, y = people(n_classes=n_classes)
    fitted = DPLinearSVC(epsilon=1e5, bounds=UNIT, insecure_seed=0).fit(X, np.array(["a", "b", "c"])[y])
    rows = 1 if n_classes == 2 else n_classes
    assert fitted.coef_.shape == (rows, 3)
    assert fitted.n_iter_.tolist() == [fitted.n_iter_[0]] * rows
    scores = fitted.decision_function(X)
    assert scores.shape == ((400,) if n_classes == 2 else (400, n_classes))
    np.testing.assert_allclose(scores.reshape(400, -1), X @ fitted.coef_.T + fitted.intercept_)
    assert fitted.score(X, np.array(["a", "b", "c"])[y]) > 0.65
    assert not hasattr(fitted, "predict_proba")


def test_without_noise_the_svc_minimises_its_objective():
    X, y = people(n_classes=2)
    fitted = DPLinearSVC(epsilon=1e8, bounds=UNIT, solver=EXACT, strength=0.05, insecure_seed=0).fit(X, y)
    objective = Objective(SmoothedHinge(0.5), L2(0.05), unpenalised=(3,))
    design = np.column_stack([X, np.ones(400)])
    weights = np.append(fitted.coef_[0], fitted.intercept_)
    gradient = objective.gradient(design, y, weights) + objective.penalty_gradient(weights)
    assert np.abs(gradient).max() < 1e-4


def test_without_noise_one_vs_rest_is_scikit_learns():
    X, y = people()
    options = {"epsilon": 1e8, "bounds": UNIT, "solver": EXACT, "strength": 0.01, "insecure_seed": 0}
    fitted = DPLogisticRegression(multi_class="ovr", **options).fit(X, y)
    trusted = OneVsRestClassifier(LogisticRegression(C=1 / (400 * 0.01), tol=1e-10)).fit(X, y)
    np.testing.assert_allclose(fitted.predict_proba(X), trusted.predict_proba(X), atol=2e-3)
    np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(fitted.predict_proba(X)))
    assert (fitted.predict(X) == fitted.predict_proba(X).argmax(axis=1)).all()


@pytest.mark.parametrize(
    "solver",
    [
        GradientDescent(n_steps=7),
        GreedyCoordinateDescent(n_steps=5),
        CoordinateDescent(n_passes=2),
        "newton",
        "peel",
    ],
    ids=str,
)
@pytest.mark.parametrize("bounds", [UNIT, None], ids=["declared", "bought"])
def test_one_plan_and_one_reservation(solver, bounds):
    X, y = people()
    ledger = Ledger()
    two = DPLogisticRegression(bounds=bounds, solver=solver).fit(X, y > 0).privacy_report_
    report = DPLogisticRegression(bounds=bounds, solver=solver, multi_class="ovr", ledger=ledger).fit(X, y)
    report = report.privacy_report_
    assert ledger.spent().n_fits == 1
    assert report.guarantee.epsilon <= 1.0
    assert report.public["one_vs_rest"] is True
    assert report.public["classes"] == 3
    for alone, line in zip(two.releases, report.releases, strict=True):
        bought = line.query == "quantile"
        assert line.count == alone.count * (1 if bought else 3)
        # a third of the budget in rho is sqrt(3) times the noise; mixed plans differ by the conversion
        wanted = alone.noise_multiplier * (1.0 if bought else math.sqrt(3.0))
        assert line.noise_multiplier == pytest.approx(wanted, rel=0.1)


def test_the_budget_of_each_class_is_mu_over_root_k():
    X, y = people()
    fitted = DPLinearSVC(bounds=UNIT, epsilon=2.0, delta=1e-6, solver="gradient").fit(X, y)
    planned = fitted.privacy_report_.planned
    line = fitted.privacy_report_.releases[0]
    each = math.sqrt(line.count / 3) / line.noise_multiplier
    assert math.sqrt(3) * each == pytest.approx(planned.mu)
    assert composition.gdp.epsilon_of(math.sqrt(3) * each, 1e-6) == pytest.approx(2.0, rel=1e-4)


def test_the_choice_of_the_fit_counts_not_the_parameter_set_later():
    X, y = people()
    fitted = DPLogisticRegression(epsilon=100, bounds=UNIT, multi_class="ovr", insecure_seed=0).fit(X, y)
    before = fitted.predict_proba(X)
    assert np.array_equal(fitted.set_params(multi_class="multinomial").predict_proba(X), before)


def test_a_class_that_is_absent():
    X, y = people(n_classes=2)
    bounds = Bounds(features=(-1, 1), classes=[0, 1, 2])
    for model in (DPLinearSVC(epsilon=1e5, bounds=bounds), DPLogisticRegression(epsilon=1e5, bounds=bounds)):
        fitted = model.set_params(insecure_seed=0).fit(X, y)
        assert fitted.coef_.shape == (3, 3)
        assert set(fitted.predict(X)) <= {0, 1}


def test_classes_alone_buy_the_columns():
    X, y = people()
    report = DPLogisticRegression(bounds=Bounds(classes=[0, 1, 2])).fit(X, y).privacy_report_
    assert report.public["bounds"] == "bought"
    assert "the set of labels is public" not in report.guarantee.assumptions
    assert report.releases[0].count == 6


def test_refusals():
    X, y = people()
    with pytest.raises(InvalidInput, match="multi_class must be 'multinomial' or 'ovr', not 'crammer'"):
        DPLogisticRegression(bounds=UNIT, multi_class="crammer").fit(X, y)
    with pytest.raises(InvalidInput, match="smoothing must be"):
        DPLinearSVC(bounds=UNIT, smoothing=0).fit(X, y)
    with pytest.raises(Unsupported, match="printed calibrations are stated for one problem"):
        DPLinearSVC(bounds=UNIT, solver="greedy", calibration="paper").fit(X, y)


def test_progress_goes_on_over_the_classes(capsys):
    DPLinearSVC(bounds=UNIT, solver=GradientDescent(n_steps=10), verbose=True).fit(*people())
    assert capsys.readouterr().err.splitlines() == [f"step {k} of 30" for k in range(3, 31, 3)]


def test_a_plan_that_forgets_the_classes_is_caught(monkeypatch):
    """A planted bug: the plan of one class for three of them would leave two unpaid."""
    monkeypatch.setattr(request_module, "plan_of", lambda request, solver, facts: solver.plan(request.objective, facts))
    with pytest.raises(PlanViolation, match=r"release 8 of 'gradient' was attempted; 7 are planned"):
        DPLinearSVC(bounds=UNIT, solver=GradientDescent(n_steps=7)).fit(*people())
