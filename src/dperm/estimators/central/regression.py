"""Base class of the private regressions."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dperm.data.design.target_range import TargetRange
from dperm.estimators.central.base import PrivateLinearModel
from dperm.estimators.central.data_checks import TrainingData
from dperm.estimators.central.fit import FitResult
from dperm.estimators.central.request import NUMBERS
from dperm.estimators.central.target_checks import Numbers, in_numbers
from dperm.estimators.persistence.prediction import linear_scores
from dperm.estimators.persistence.saved import SavedModel, SavedRegressor
from dperm.types import FloatArray

__all__ = ["PrivateRegressor"]


class PrivateRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]  # scikit-learn has no types
    """Fits and predicts numbers; see :class:`dperm.DPRidge`."""

    _target = NUMBERS
    target_range_: TargetRange

    def _training_data(self, X: Any, y: Any) -> TrainingData:
        X, y, boolean = self._checked_arrays(X, y)
        return TrainingData(X, in_numbers(y, Numbers()), boolean)

    def _adopt(self, data: TrainingData, result: FitResult) -> None:
        assert result.target_range is not None  # every regression has one
        self.coef_ = np.ascontiguousarray(result.coefficients)
        self.intercept_ = float(result.intercept)
        self.n_iter_ = result.n_steps[0]
        self.scaling_ = result.scaling
        self.target_range_ = result.target_range
        self.privacy_report_ = result.report

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted number of every row, clipped to the target's bounds."""
        check_is_fitted(self, "coef_")
        return self._predicted(self._checked(X, reset=False))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R2, without noise; for a Spark DataFrame ``y`` is the name of its target column."""
        found = self._predicted_and_given(X, y, Numbers())
        if found is None:
            return float(super().score(X, y, sample_weight))
        from sklearn.metrics import r2_score  # takes a moment to import, and a fit does not need it

        predicted, numbers = found
        return float(r2_score(numbers, predicted, sample_weight=sample_weight))

    def _predicted(self, X: Any) -> FloatArray:
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
