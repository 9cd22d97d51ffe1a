"""What private regressions share."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dperm.errors import InvalidData
from dperm.estimators.central.base import PrivateLinearModel, Problem
from dperm.estimators.central.fit import Fitted
from dperm.estimators.central.messages import Y_NOT_FINITE
from dperm.estimators.central.request import NUMBERS
from dperm.estimators.persistence.prediction import linear_scores
from dperm.estimators.persistence.saved import SavedModel, SavedRegressor
from dperm.types import FloatArray

__all__ = ["PrivateRegressor"]


class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    """Fits and predicts numbers; see :class:`dperm.DPRidge`."""

    _target = NUMBERS

    def _problem(self, X: Any, y: Any) -> Problem:
        X, y, boolean = self._training_data(X, y)
        if y.dtype.kind not in "biuf":
            raise InvalidData("y must hold one number per row, not text or dates.")
        target = np.asarray(y, np.float64)
        if not np.isfinite(target).all():  # a missing value among objects is one only now
            raise InvalidData(Y_NOT_FINITE)
        return Problem(X, target, boolean)

    def _adopt(self, problem: Problem, fitted: Fitted) -> None:
        self.coef_ = np.ascontiguousarray(fitted.coefficients)
        self.intercept_ = float(fitted.intercept)
        self.n_iter_ = fitted.n_steps[0]
        self.scaling_ = fitted.scaling
        self.target_range_ = fitted.target_range
        self.privacy_report_ = fitted.report

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted number of every row, clipped to the target's bounds."""
        check_is_fitted(self, "coef_")
        X = self._checked(X, reset=False)
        scores = linear_scores(X, np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_), self.scaling_)
        return self.target_range_.clip(scores.ravel())

    def _saved(self) -> SavedModel:
        return SavedRegressor(
            estimator=type(self).__name__,
            coef_=self.coef_,
            intercept_=self.intercept_,
            scaling=self.scaling_,
            privacy_report_=self.privacy_report_,
            feature_names_in_=getattr(self, "feature_names_in_", None),
            target_range=self.target_range_,
        )
