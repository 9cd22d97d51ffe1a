"""dperm: sparse and linear models with a differential-privacy guarantee that is true."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives; it is imported on first use, so that ``import dperm`` stays instant.
_HOMES = {
    "DPElasticNet": "dperm.estimators",
    "DPHuberRegressor": "dperm.estimators",
    "DPLasso": "dperm.estimators",
    "DPLinearRegression": "dperm.estimators",
    "DPLinearSVC": "dperm.estimators",
    "DPLogisticRegression": "dperm.estimators",
    "DPRidge": "dperm.estimators",
    "DPTuner": "dperm.estimators",
    "LocalLinearRegression": "dperm.estimators",
    "LocalLogisticRegression": "dperm.estimators",
    "Marginals": "dperm.estimators",
    "SmoothQueries": "dperm.estimators",
    "load": "dperm.estimators",
    "Bounds": "dperm.data.design.bounds",
    "Budget": "dperm.privacy.accounting.budget",
    "Guarantee": "dperm.privacy.accounting.guarantee",
    "Ledger": "dperm.privacy.ledger",
    "ParquetTable": "dperm.data.tables.parquet",
    "PrivacyReport": "dperm.reporting.report",
}

if TYPE_CHECKING:
    from dperm.data.design.bounds import Bounds
    from dperm.data.tables.parquet import ParquetTable
    from dperm.estimators import (
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
        load,
    )
    from dperm.privacy.accounting.budget import Budget
    from dperm.privacy.accounting.guarantee import Guarantee
    from dperm.privacy.ledger import Ledger
    from dperm.reporting.report import PrivacyReport

__all__ = [
    "Bounds",
    "Budget",
    "DPElasticNet",
    "DPHuberRegressor",
    "DPLasso",
    "DPLinearRegression",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPRidge",
    "DPTuner",
    "Guarantee",
    "Ledger",
    "LocalLinearRegression",
    "LocalLogisticRegression",
    "Marginals",
    "ParquetTable",
    "PrivacyReport",
    "SmoothQueries",
    "load",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dperm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
