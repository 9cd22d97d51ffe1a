"""scikit-learn's own contract, for every estimator: with declared and with bought bounds, no check left out."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

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
)

CLASSIFIER = {"epsilon": 1e8, "bounds": Bounds(features=(-10, 10)), "insecure_seed": 0}
REGRESSION = {**CLASSIFIER, "bounds": Bounds(features=(-10, 10), target=(-10, 10))}
BOUGHT = {"epsilon": 1e8, "insecure_seed": 0}
SEARCH = {"parameters": {"strength": [1e-4, 1e-3]}, "epsilon": 1e8, "expected_runs": 1.5, "insecure_seed": 0}

ESTIMATORS = [
    DPLogisticRegression(**CLASSIFIER),
    DPLogisticRegression(**{**CLASSIFIER, "bounds": Bounds(scale=1, clip=5.0)}, penalty="l1", multi_class="ovr"),
    DPLogisticRegression(**BOUGHT),
    DPLinearSVC(**CLASSIFIER),
    DPLinearRegression(**REGRESSION),
    DPRidge(**REGRESSION),
    DPRidge(**BOUGHT),
    DPLasso(**{**REGRESSION, "bounds": Bounds(scale=1, clip=5.0, target=(-10, 10))}, strength=1e-3),
    DPElasticNet(**REGRESSION, strength=1e-3),
    DPHuberRegressor(**REGRESSION),
    DPTuner(DPLogisticRegression(bounds=CLASSIFIER["bounds"]), **SEARCH),
    DPTuner(DPRidge(bounds=REGRESSION["bounds"]), **SEARCH),
]


@parametrize_with_checks(ESTIMATORS)
def test_estimator_checks(estimator, check):
    check(estimator)
