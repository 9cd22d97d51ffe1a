"""Base class of the private classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dperm.errors import InvalidData
from dperm.estimators.central.base import PrivateLinearModel
from dperm.estimators.central.data_checks import TrainingData
from dperm.estimators.central.fit import FitResult
from dperm.estimators.central.request import resolve_bounds
from dperm.estimators.central.target_checks import Labels, class_labels
from dperm.estimators.persistence.prediction import class_codes, linear_scores
from dperm.estimators.persistence.saved import SavedClassifier, SavedModel
from dperm.types import FloatArray

__all__ = ["PrivateClassifier"]

LABELS_PUBLIC = "the set of labels is public"


class PrivateClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]  # scikit-learn has no types
    """Fits and predicts classes; see :class:`dperm.DPLogisticRegression`."""

    classes_: NDArray[Any]

    def _training_data(self, X: Any, y: Any) -> TrainingData:
        X, y, boolean = self._checked_arrays(X, y)
        declared = resolve_bounds(self.bounds).classes
        classes, codes = class_labels(y, declared)
        assumptions = (LABELS_PUBLIC,) if declared is None else ()
        return TrainingData(X, codes, boolean, assumptions, classes)

    def _adopt(self, data: TrainingData, result: FitResult) -> None:
        assert data.classes is not None  # every classification has them
        self.classes_ = data.classes
        self.coef_ = np.ascontiguousarray(np.atleast_2d(result.coefficients.T))
        self.intercept_ = np.atleast_1d(result.intercept)
        self.n_iter_ = np.array(result.n_steps)
        self.scaling_ = result.scaling
        self.privacy_report_ = result.report

    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores; positive means the second class in the binary case."""
        check_is_fitted(self, "coef_")
        return self._scores(self._checked(X, reset=False))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely label of every row."""
        check_is_fitted(self, "coef_")
        return self._predicted(self._checked(X, reset=False))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy, without noise; for a Spark DataFrame ``y`` is the name of its target column."""
        found = self._predicted_and_given(X, y, Labels())
        if found is None:
            return float(super().score(X, y, sample_weight))
        from sklearn.metrics import accuracy_score  # takes a moment to import, and a fit does not need it

        predicted, labels = found
        if (labels.dtype.kind == "U") != (predicted.dtype.kind in "UO"):
            raise InvalidData(f"one of the target {y!r} and the labels of the fit is text, and the other is not.")
        return float(accuracy_score(labels, predicted, sample_weight=sample_weight))

    def _scores(self, X: Any) -> FloatArray:
        scores = linear_scores(X, self.coef_, self.intercept_, self.scaling_)
        return scores.ravel() if len(self.classes_) == 2 else scores

    def _predicted(self, X: Any) -> NDArray[Any]:
        return self.classes_[class_codes(self._scores(X))]

    def _saved(self) -> SavedModel:
        return SavedClassifier(**self._saved_parts())

    def _saved_parts(self) -> dict[str, Any]:
        return {
            "estimator": type(self).__name__,
            "coef_": self.coef_,
            "intercept_": self.intercept_,
            "scaling": self.scaling_,
            "privacy_report_": self.privacy_report_,
            "feature_names_in_": getattr(self, "feature_names_in_", None),
            "classes_": self.classes_,
        }
