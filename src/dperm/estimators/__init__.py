"""scikit-learn estimators, and the models that they save.

``central`` holds the models fitted by one holder of all data, ``local`` those fitted from reports of single people,
``persistence`` saved models. ``ledger_sharing.py`` and ``progress.py`` serve all estimators. May import everything but
``vertical``, ``collect`` and ``cli``. A new public estimator is listed below; names are imported on first use, so that
a saved model is loaded without the solvers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "DPElasticNet": "central.linear",
    "DPHuberRegressor": "central.huber",
    "DPLasso": "central.linear",
    "DPLinearRegression": "central.linear",
    "DPLinearSVC": "central.svc",
    "DPLogisticRegression": "central.logistic",
    "DPRidge": "central.linear",
    "DPTuner": "central.tuning",
    "LocalLinearRegression": "local.linear_models",
    "LocalLogisticRegression": "local.linear_models",
    "Marginals": "local.queries",
    "PlanSummary": "central.plan",
    "SavedModel": "persistence.saved",
    "SmoothQueries": "local.queries",
    "load": "persistence.saved",
}

if TYPE_CHECKING:
    from dperm.estimators.central.huber import DPHuberRegressor
    from dperm.estimators.central.linear import DPElasticNet, DPLasso, DPLinearRegression, DPRidge
    from dperm.estimators.central.logistic import DPLogisticRegression
    from dperm.estimators.central.plan import PlanSummary
    from dperm.estimators.central.svc import DPLinearSVC
    from dperm.estimators.central.tuning import DPTuner
    from dperm.estimators.local.linear_models import LocalLinearRegression, LocalLogisticRegression
    from dperm.estimators.local.queries import Marginals, SmoothQueries
    from dperm.estimators.persistence.saved import SavedModel, load

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
