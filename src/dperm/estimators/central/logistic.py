"""Private logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np

from dperm.errors import InvalidInput
from dperm.estimators.central.base import penalty_named
from dperm.estimators.central.classification import PrivateClassifier
from dperm.estimators.persistence.prediction import class_probabilities
from dperm.estimators.persistence.saved import SavedModel, SavedProbabilities
from dperm.objective import Logistic, Loss, Multinomial, Penalty
from dperm.types import FloatArray

__all__ = ["DPLogisticRegression"]


class DPLogisticRegression(PrivateClassifier):
    r"""Logistic regression with a differential-privacy guarantee, binary, multinomial or one-vs-rest.

    Minimises :math:`\frac1n \sum_i \ell(x_i^\top w, y_i) + \text{strength} \cdot \text{penalty}(w)` over the scaled
    columns, the intercept unpenalised, with :math:`\ell(z, y) = \log(1 + e^z) - y z` for two classes and
    :math:`\ell(z, y) = \log \sum_k e^{z_k} - z_y` for more. Scaling happens inside, with public constants; coefficients
    are in your units. In scikit-learn's terms strength = 1 / (n C) on scaled columns.

    Parameters
    ----------
    epsilon : float
        Privacy budget of this fit.
    delta : float, optional
        min(1e-5, 1/n^2) by default.
    bounds : Bounds, "declare" or None
        What is public about the columns; what is not declared is bought with 10% of the budget; "declare" refuses the
        fit and shows what to write.
    solver : str or Solver
        ``"auto"`` or a solver's name, or a configured solver object.
    penalty : {"l2", "l1", "elastic-net", "none"}
        :math:`\|w\|_2^2 / 2`, :math:`\|w\|_1`, or both mixed by ``l1_ratio``.
    strength : float, optional
        Weight of the penalty; by default 1 / n, with an l1 part 0.1 sqrt(2 log p / n), both public.
    l1_ratio : float
        Share of the L1 part of the elastic net.
    multi_class : {"multinomial", "ovr"}
        How more than two classes are fitted: one softmax model, or one two-class model per class, each with the K-th
        part of the budget (in rho) and all in one plan.
    neighbours : {"replace-one", "zero-out"}
        Which two data sets are compared: one record replaced by any other, or by an empty one.
    calibration : {"certified", "paper"}
        ``"paper"`` uses the noise that a method's paper prints, for comparison, without a guarantee.
    fit_intercept : bool
        Whether a constant is fitted too.
    ledger : Ledger, optional
        Where the budget is charged; in memory if None. Shared, never copied, by ``clone``.
    insecure_seed : int, optional
        Reproducible noise for tests; the result then has no guarantee.
    verbose : bool
        Print how many steps are done; this reveals nothing about the data.

    Attributes
    ----------
    coef_, intercept_, classes_, n_features_in_, feature_names_in_, n_iter_
        As in scikit-learn.
    scaling_ : Scaling
        Public constants that clip and scale a row, in training and in prediction.
    privacy_report_ : PrivacyReport
        What was released, and the guarantee that follows.

    Notes
    -----
    **Guarantee.**
    Released to everyone who sees the model: what the solver's plan lists (and bought bounds), nothing else;
    :meth:`plan` shows it beforehand. Covers one person's whole record under the chosen neighbours. Assumes one row
    per person, public n, public label set and declared bounds that do not come from the data;
    ``privacy_report_.guarantee.assumptions`` lists them.

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

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any = None,
        solver: Any = "auto",
        penalty: str = "l2",
        strength: float | None = None,
        l1_ratio: float = 0.5,
        multi_class: str = "multinomial",
        neighbours: str = "replace-one",
        calibration: str = "certified",
        fit_intercept: bool = True,
        ledger: Any = None,
        insecure_seed: int | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            bounds=bounds,
            solver=solver,
            strength=strength,
            neighbours=neighbours,
            calibration=calibration,
            fit_intercept=fit_intercept,
            ledger=ledger,
            insecure_seed=insecure_seed,
            verbose=verbose,
        )
        self.penalty = penalty
        self.l1_ratio = l1_ratio
        self.multi_class = multi_class

    def _penalty(self, strength: float) -> Penalty:
        return penalty_named(self.penalty, strength, self.l1_ratio)

    def _loss(self, n_classes: int) -> Loss:
        if not isinstance(self.multi_class, str) or self.multi_class not in ("multinomial", "ovr"):
            raise InvalidInput(f"multi_class must be 'multinomial' or 'ovr', not {self.multi_class!r}.")
        return Logistic() if n_classes == 2 or self.multi_class == "ovr" else Multinomial(n_classes)

    def _n_heads(self, n_classes: int) -> int:
        return n_classes if n_classes > 2 and self.multi_class == "ovr" else 1

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of every label."""
        return class_probabilities(self.decision_function(X), self._one_vs_rest)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @property
    def _one_vs_rest(self) -> bool:
        return bool(self.privacy_report_.public["one_vs_rest"])  # of the fit: the parameter may have changed since

    def _saved(self) -> SavedModel:
        return SavedProbabilities(**self._saved_parts(), one_vs_rest=self._one_vs_rest)
