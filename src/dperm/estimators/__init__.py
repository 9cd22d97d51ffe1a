"""scikit-learn estimators."""

from dperm.estimators.logistic import DPLogisticRegression

__all__ = ["DPLogisticRegression"]
