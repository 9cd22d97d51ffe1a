"""scikit-learn's HTML view of every estimator, as notebooks show it."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from sklearn.utils import estimator_html_repr

from dperm import (
    Bounds,
    DPElasticNet,
    DPHuberRegressor,
    DPLasso,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPRidge,
    DPTuner,
    LocalLinearRegression,
    LocalLogisticRegression,
    Marginals,
    SmoothQueries,
)
from dperm.solvers import GradientDescent

UNIT = Bounds(features=(-1, 1), target=(-1, 1), classes=[False, True])
QUICK = {"bounds": UNIT, "solver": GradientDescent(n_steps=2)}
CLASSIFIERS = [DPLogisticRegression(**QUICK), DPLinearSVC(**QUICK)]
REGRESSORS = [kind(**QUICK) for kind in (DPElasticNet, DPHuberRegressor, DPLasso, DPLinearRegression, DPRidge)]
TUNER = DPTuner(DPLogisticRegression(**QUICK), {"strength": [0.1, 1.0]}, epsilon=2.0)
LOCAL = [kind(bounds=UNIT, refuse_hopeless=False) for kind in (LocalLogisticRegression, LocalLinearRegression)]
MODELS = [*CLASSIFIERS, *REGRESSORS, TUNER, *LOCAL]


def view(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = estimator_html_repr(estimator)
        if hasattr(estimator, "_repr_html_"):
            assert estimator._repr_html_()
    return shown


def looks_right(estimator, shown, fitted):
    links = re.findall(r'href="([^"]*)"', shown)
    assert not [link for link in links if "scikit-learn.org" in link]
    assert f"<div>{type(estimator).__name__}</div>" in shown or f">{type(estimator).__name__}<" in shown
    assert "Parameters" in shown or "epsilon" in shown
    assert ("Not fitted" in shown) != fitted


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_models(model):
    # a parsed docstring is cached, so that it warns once in a process: a class of the same name is a new docstring
    kind = type(model)
    fresh = type(kind.__name__, (kind,), {"__doc__": f"{kind.__doc__}\n", "__init__": kind.__init__})
    unfitted = fresh(**model.get_params(deep=False))
    looks_right(model, view(unfitted), fitted=False)
    X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    y = X[:, 0] if model in REGRESSORS or isinstance(model, LocalLinearRegression) else X[:, 0] > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    looks_right(model, view(model), fitted=True)


@pytest.mark.parametrize(
    "queries",
    [Marginals(n_bits=3, k=2, n_people=100), SmoothQueries(low=[0.0], high=[1.0])],
    ids=lambda one: type(one).__name__,
)
def test_queries(queries):
    assert type(queries).__name__ in view(queries)
