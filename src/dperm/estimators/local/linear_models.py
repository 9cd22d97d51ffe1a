"""Linear and logistic regression in the local model: every person sends one index and one bit, once.

Proof: ``linear_models.proof.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dperm.data.design.bounds import Bounds
from dperm.data.design.target_range import TargetRange
from dperm.errors import InvalidBounds, InvalidInput
from dperm.estimators.central.classification import PrivateClassifier
from dperm.estimators.central.data_checks import TrainingData
from dperm.estimators.central.regression import PrivateRegressor
from dperm.estimators.local.fit import LocalFit
from dperm.estimators.local.row_transform import RowTransform
from dperm.estimators.persistence.prediction import class_probabilities
from dperm.estimators.persistence.saved import SavedModel, SavedProbabilities
from dperm.solvers.local import LinearTask
from dperm.types import AnyArray, FloatArray
from dperm.validation import whole

__all__ = ["LocalLinearRegression", "LocalLogisticRegression"]


#: largest number of weights for which a quartic surrogate is considered; its statistics grow as the fourth power
_MOST_FOR_QUARTIC = 12


class LocalLogisticRegression(LocalFit, PrivateClassifier):  # type: ignore[misc]  # plans count people, not rows
    r"""Logistic regression from one bit per person; one-versus-rest for more than two classes.

    Minimises, over weights of length at most ``radius`` on features scaled to [-1, 1], the mean of a polynomial that
    replaces ln(1 + exp(-s)), :math:`s = y\,\langle w, x\rangle`: :math:`-s/2 + c_2 s^2`, and :math:`c_4 s^4` where
    enough people answer, fitted at Chebyshev nodes; plus ``strength / 2`` times the squared weights.
    All classes share the even moments, so a person sends one bit whatever the number of classes.

    Notes
    -----
    **Guarantee.**
    Released, to everyone including the collector: the index of a statistic, drawn at random, and one bit per person,
    (epsilon, 0)-DP for the person against any other record. Assumes one report per person. The model is computed from
    the counts of reports alone. Proof: ``linear_models.proof.md``.

    Parameters
    ----------
    epsilon : float
        Epsilon of a person's report, between 0.001 and 16.
    bounds : Bounds
        Declared bounds of the columns, and optionally ``classes`` and ``row_norm`` (a small one lowers the noise).
    strength : float
        Weight of the squared penalty; with 0, only ``radius`` and the shrinkage by the known noise regularise.
    radius : float
        Bound on the length of the weights of scaled features.
    degree : {"auto", 2, 4}
        Degree of the polynomial; "auto" takes 4 where the forecast shows that its smaller bias outweighs its noise.
    fit_intercept : bool
        Whether to fit an intercept; columns are then centred at the midpoint of their bounds.
    confidence : float
        Level of ``intervals_``.
    refuse_hopeless : bool
        Whether to refuse a fit with so few people that the weights are not expected to be significant against their
        noise; the message says how many people are needed. See ``plan(...).min_people``.
    n_levels : int
        2 for reports of one bit; 3 to 16 for reports of one of that many levels, with less noise from epsilon 1 on.
    solver : {"moments", "sgd"}
        ``"moments"`` asks every person once for a moment, and all estimates come from these. ``"sgd"`` asks disjoint
        groups one after the other for an entry of the gradient at the current weights: no polynomial replaces the loss,
        and the noise grows less with the number of columns; two classes only, no intervals.
    n_rounds : int
        Number of groups of ``"sgd"``.
    version : int
        Part of the task: raise it to ask the same people again, which is another task with a charge of its own.
    window : str, optional
        Part of the task: a public name of the time in which people report, such as a week.
    ledger : Ledger, optional
        Where a collection is charged, epsilon for every person: simulated collections with every fit, those of
        ``fit_counts`` and ``fit_rounds`` once per task and stated number of people.
    insecure_seed : int, optional
        Makes a simulated collection reproducible, for tests; voids the guarantee.

    Attributes
    ----------
    coef_, intercept_, classes_ :
        As in scikit-learn; shrunk by the known noise.
    intervals_ : ndarray of shape (n_features + 1, 2), or (n_classes, n_features + 1, 2) for more than two, or None
        Confidence intervals of the coefficients, the intercept last, of the unshrunk minimiser of the surrogate in the
        population; None where there are none, and ``intervals_reason_`` says why.
    kept_ : float or ndarray of shape (n_classes,)
        Fraction of the minimiser that the shrinkage kept, from 0 to 1.
    degree_ : int
        Degree of the polynomial.
    counts_ : Counts
        The counts of all reports.
    privacy_report_ : PrivacyReport
        What was released and what it guarantees.

    Examples
    --------
    >>> import numpy as np
    >>> from dperm import Bounds
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200_000, 2)); y = rng.random(200_000) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> model = LocalLogisticRegression(epsilon=1.0, bounds=Bounds(features=(-1, 1))).fit(X, y)
    >>> bool(model.score(X, y) > 0.6), model.privacy_report_.guarantee.delta
    (True, 0.0)
    """

    _loss_name = "logistic"
    classes_: AnyArray

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        bounds: Bounds | None = None,
        strength: float = 0.0,
        radius: float = 2.0,
        degree: int | str = "auto",
        fit_intercept: bool = True,
        confidence: float = 0.95,
        refuse_hopeless: bool = True,
        n_levels: int = 2,
        solver: str = "moments",
        n_rounds: int = 40,
        version: int = 1,
        window: str | None = None,
        ledger: Any = None,
        insecure_seed: int | None = None,
    ) -> None:
        super().__init__(
            epsilon,
            bounds=bounds,
            strength=strength,
            radius=radius,
            fit_intercept=fit_intercept,
            confidence=confidence,
            refuse_hopeless=refuse_hopeless,
            n_levels=n_levels,
            solver=solver,
            n_rounds=n_rounds,
            version=version,
            window=window,
            ledger=ledger,
            insecure_seed=insecure_seed,
        )
        self.degree = degree

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.degree, bool) or self.degree not in ("auto", 2, 4):
            raise InvalidInput(f"degree must be 'auto', 2 or 4, not {self.degree!r}.")

    def _degrees(self) -> tuple[int, ...]:
        return (2, 4) if self.degree == "auto" else (int(self.degree),)

    def _degree(self, rows: RowTransform, n_outputs: int, n_people: int | None) -> int:
        if self.degree != "auto":
            return int(self.degree)
        if n_people is None or rows.n_columns > _MOST_FOR_QUARTIC:
            return 2
        plans = [self._linear(rows, n_outputs, degree).forecast(n_people, rows.mean_squares) for degree in (2, 4)]
        return min(plans, key=lambda plan: plan.excess).degree or 2

    def _n_outputs(self, n_classes: int | None) -> int:
        declared = self._declared_classes()
        count = n_classes if n_classes is not None else 2 if declared is None else len(declared)
        count = whole("n_classes", count, least=2)
        return 1 if count == 2 else count

    def _declared_classes(self) -> AnyArray | None:
        return None if self.bounds.classes is None else np.unique(np.asarray(self.bounds.classes))

    def _declared_target(self) -> dict[str, Any]:
        classes = self._declared_classes()
        if classes is None:
            raise InvalidBounds("people must know the labels in advance: declare Bounds(features=..., classes=[...]).")
        return _labels(classes)

    def _public_target(self, problem: TrainingData) -> dict[str, Any]:
        return _labels(problem.classes)

    def _records(self, rows: FloatArray, target: FloatArray, linear: LinearTask) -> FloatArray:
        if linear.n_outputs == 1:
            return rows * np.where(target == 1.0, 1.0, -1.0)[:, None]
        members = target[:, None] == np.arange(linear.n_outputs)
        return np.column_stack([rows, np.where(members, 1.0, -1.0)])

    def _set_weights(self, weights: FloatArray, classes: Any) -> None:
        self.classes_ = classes
        self.coef_, self.intercept_ = np.ascontiguousarray(weights[:, :-1]), weights[:, -1].copy()

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of every class; one-versus-rest probabilities are divided by their sum."""
        return class_probabilities(self.decision_function(X), len(self.classes_) > 2)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _saved(self) -> SavedModel:
        return SavedProbabilities(**self._saved_parts(), one_vs_rest=len(self.classes_) > 2)


class LocalLinearRegression(LocalFit, PrivateRegressor):  # type: ignore[misc]  # plans count people, not rows
    r"""Least squares from one bit per person.

    Minimises the mean of :math:`(y - \langle w, x\rangle)^2/2` plus ``strength / 2`` times the squared weights, over
    weights of length at most ``radius`` on features scaled to [-1, 1], the target scaled to [-1, 1] by its declared
    bounds.

    Notes
    -----
    **Guarantee.**
    As for :class:`LocalLogisticRegression`: one index and one bit per person, (epsilon, 0)-DP, released to everyone.
    Proof: ``linear_models.proof.md``.

    Parameters
    ----------
    epsilon, strength, radius, fit_intercept, confidence, refuse_hopeless, n_levels, solver, n_rounds, version, \
    window, ledger, insecure_seed :
        As for :class:`LocalLogisticRegression`.
    bounds : Bounds
        Declared bounds of the columns and of the ``target``.

    Attributes
    ----------
    coef_, intercept_, intervals_, intervals_reason_, kept_, counts_, privacy_report_ :
        As for :class:`LocalLogisticRegression`; intervals are those of the least-squares weights of the population.
    """

    _loss_name = "squared"

    def _declared_target(self) -> dict[str, Any]:
        target = self._target_range()
        return {"target": [target.low, target.high]}

    def _target_range(self) -> TargetRange:
        if self.bounds.target is None:
            raise InvalidBounds("the local model needs a declared target: write Bounds(features=..., target=(lo, hi)).")
        low, high = (float(end) for end in self.bounds.target)
        if not self.fit_intercept:  # without an intercept a prediction of zero must mean a target of zero
            low, high = -max(abs(low), abs(high)), max(abs(low), abs(high))
        return TargetRange(low, high)

    def _records(self, rows: FloatArray, target: FloatArray, linear: LinearTask) -> FloatArray:
        return np.column_stack([rows, self._target_range().scaled(target)])

    def _set_weights(self, weights: FloatArray, classes: Any) -> None:
        self.target_range_ = self._target_range()
        self.coef_, self.intercept_ = np.ascontiguousarray(weights[0, :-1]), float(weights[0, -1])


def _labels(classes: Any) -> dict[str, Any]:
    plain = [label if isinstance(label, str | bool | int | float) else repr(label) for label in classes.tolist()]
    return {"classes": plain}
