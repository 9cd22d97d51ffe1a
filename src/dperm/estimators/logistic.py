"""Private logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dperm.errors import InvalidData
from dperm.objective import Logistic, Loss, Multinomial

from ._base import PrivateLinearModel, without_values
from ._fit import resolve_bounds

__all__ = ["DPLogisticRegression"]

LABELS_PUBLIC = "the set of labels is public"


def _coded(y: Any, declared: Any) -> tuple[Any, Any]:
    """Return the sorted classes, declared or else those of ``y``, and the position of every label among them."""
    try:
        check_classification_targets(y)
        classes = np.unique(np.asarray(y if declared is None else declared))
        codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        known = bool(np.all(classes[codes] == y))
    except ValueError as error:
        raise InvalidData(without_values(str(error))) from None
    except TypeError:
        raise InvalidData(without_values("Unknown label type: unknown")) from None
    if len(classes) < 2:
        raise InvalidData("y has one class only; a classifier needs at least two classes.")
    if not known:
        raise InvalidData("y contains a label that is not among the declared classes.")
    return classes, codes


class DPLogisticRegression(ClassifierMixin, PrivateLinearModel):
    r"""Logistic regression with a differential-privacy guarantee, binary or multinomial.

    Minimises :math:`\frac1n \sum_i \ell(x_i^\top w, y_i) + \text{strength} \cdot \text{penalty}(w)` over the scaled
    columns, the intercept unpenalised. Scaling happens inside, with public constants; coefficients are given back in
    your units. In scikit-learn's words strength = 1 / (n C) on scaled columns.

    Parameters
    ----------
    epsilon : float
        Privacy budget of this fit.
    delta : float, optional
        min(1e-5, 1/n^2) by default.
    bounds : Bounds, "declare" or None
        What is public about the columns; None buys ranges with 10% of the budget; "declare" asks you to write them.
    solver : str or Solver
        ``"auto"`` or a solver's name, or a configured solver object.
    penalty : {"l2", "l1", "elastic-net", "none"}
    strength : float
        Weight of the penalty.
    l1_ratio : float
        Share of the L1 part of the elastic net.
    neighbours : {"replace-one", "zero-out"}
    calibration : {"certified", "paper"}
    fit_intercept : bool
    ledger : Ledger, optional
        Where the budget is charged; in memory if None. Shared, never copied, by ``clone``.
    insecure_seed : int, optional
        Reproducible noise for tests; the result then has no guarantee.

    Attributes
    ----------
    coef_, intercept_, classes_, n_features_in_, feature_names_in_, n_iter_
        As in scikit-learn.
    privacy_report_ : PrivacyReport
        What was released and what that means.

    Guarantee
    ---------
    Released to whoever sees the model: what the solver's plan lists (and bought bounds), nothing else. Covers one
    person's whole record under the chosen neighbours. Assumes one row per person, public n, public label set and
    declared bounds that do not come from the data; ``privacy_report_.guarantee.assumptions`` lists them.

    Examples
    --------
    >>> import numpy as np
    >>> from dperm import Bounds, DPLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (2000, 3)); y = X[:, 0] > 0
    >>> model = DPLogisticRegression(epsilon=2.0, bounds=Bounds(features=(-1, 1))).fit(X, y)
    >>> model.score(X, y) > 0.8
    True
    >>> model.privacy_report_.guarantee.epsilon <= 2.0
    True
    """

    def fit(self, X: Any, y: Any) -> DPLogisticRegression:
        """Fit the model privately; see the class for what is released."""
        self._check_parameters()
        X, y = self._checked(X, y, reset=True)
        declared = resolve_bounds(self.bounds).classes
        classes, codes = _coded(y, declared)
        assumptions = (LABELS_PUBLIC,) if declared is None else ()
        n_classes = len(classes)
        loss: Loss = Logistic() if n_classes == 2 else Multinomial(n_classes)
        fitted = self._fit(X, codes, loss, assumptions, 0.0, n_classes - 1.0)
        # all at once and last: a fit that was refused leaves an earlier model as it was
        self.classes_ = classes
        self.coef_ = np.atleast_2d(fitted.coefficients.T)
        self.intercept_ = np.atleast_1d(fitted.intercept)
        self.n_iter_ = np.array([fitted.n_steps])
        self.privacy_report_ = fitted.report
        return self

    def decision_function(self, X: Any) -> Any:
        """Return the scores; positive means the second class in the binary case."""
        check_is_fitted(self, "coef_")
        X = self._checked(X, reset=False)
        scores = safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
        return scores.ravel() if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Any:
        """Return the most likely label of every row."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[codes]

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of every label."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            second = Logistic().inverse_link(scores)
            return np.column_stack([1.0 - second, second])
        return Multinomial(len(self.classes_)).inverse_link(scores)

    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))
