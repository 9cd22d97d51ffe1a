"""scikit-learn estimators, and models saved by them.

Names are imported on first use: a saved model is loaded without the solvers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "DPElasticNet": "linear",
    "DPHuberRegressor": "huber",
    "DPLasso": "linear",
    "DPLinearRegression": "linear",
    "DPLinearSVC": "svc",
    "DPLogisticRegression": "logistic",
    "DPRidge": "linear",
    "DPTuner": "tuning",
    "LocalLinearRegression": "local",
    "LocalLogisticRegression": "local",
    "Marginals": "local_queries",
    "PlanSummary": "_plan",
    "SavedModel": "saved",
    "SmoothQueries": "local_queries",
    "load": "saved",
}

if TYPE_CHECKING:
    from dperm.estimators._plan import PlanSummary
    from dperm.estimators.huber import DPHuberRegressor
    from dperm.estimators.linear import DPElasticNet, DPLasso, DPLinearRegression, DPRidge
    from dperm.estimators.local import LocalLinearRegression, LocalLogisticRegression
    from dperm.estimators.local_queries import Marginals, SmoothQueries
    from dperm.estimators.logistic import DPLogisticRegression
    from dperm.estimators.saved import SavedModel, load
    from dperm.estimators.svc import DPLinearSVC
    from dperm.estimators.tuning import DPTuner

__all__ = [
    "DPElasticNet",
    "DPHuberRegressor",
    "DPLasso",
    "DPLinearRegression",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPRidge",
    "DPTuner",
    "LocalLinearRegression",
    "LocalLogisticRegression",
    "Marginals",
    "PlanSummary",
    "SavedModel",
    "SmoothQueries",
    "load",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
