"""Linear models in the local model: every person sends one index and one bit, once; nobody is trusted."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, check_X_y

import dperm
from dperm.data.bounds import Bounds
from dperm.data.design import Scaling
from dperm.data.frames import column_names, plain_labels, plain_matrix
from dperm.data.target import TargetRange
from dperm.errors import InvalidBounds, InvalidData, InvalidInput, Unsupported
from dperm.privacy.guarantee import Accounting, Guarantee
from dperm.privacy.neighbours import Neighbours
from dperm.privacy.one_bit import OneBit
from dperm.privacy.randomness import RandomSource
from dperm.privacy.report import PrivacyReport, ReleaseLine
from dperm.solvers.local import Counts, LinearTask, LocalForecast, Task

from ._messages import without_values
from .prediction import class_codes, class_probabilities, linear_scores

__all__ = ["LocalLinearRegression", "LocalLogisticRegression"]

FloatArray = NDArray[np.float64]

ONCE = "each person reports once for this task"
HONEST = "every person's device follows the task's schema with good randomness"
LABELS_PUBLIC = "the set of labels is public"
NOT_COVERED = (
    "who takes part, and when a report is sent",
    "people who report on the same facts in other tasks: the epsilons add up",
    "an attacker who breaks AES-256 or reads a person's device",
)


class _LocalLinearModel(BaseEstimator):
    """Shared by the two models below."""

    _loss: str

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        bounds: Bounds | None = None,
        radius: float = 2.0,
        fit_intercept: bool = True,
        confidence: float = 0.95,
        refuse_hopeless: bool = True,
        insecure_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.bounds = bounds
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.confidence = confidence
        self.refuse_hopeless = refuse_hopeless
        self.insecure_seed = insecure_seed

    # ---------------------------------------------------------------------------------- public, before any data
    def task(self, n_features: int, names: Any = None) -> Task:
        """Return what people are asked; its ``schema()`` is all that a client needs besides the scaling."""
        return self._linear_task(self._scaling(n_features, names)).task

    def forecast(self, n: int, n_features: int, names: Any = None) -> LocalForecast:
        """Say what ``n`` people can be expected to achieve, and how many are needed, before anybody is asked."""
        scaling = self._scaling(n_features, names)
        energy = (scaling.n_features * scaling.spread**2 + self.fit_intercept) / self._row_bound(scaling) ** 2
        return self._linear_task(scaling).forecast(n, min(1.0, energy))

    def _scaling(self, n_features: int, names: Any) -> Scaling:
        OneBit(self.epsilon)
        if not isinstance(self.bounds, Bounds) or self.bounds.bought_columns(1).any():
            raise InvalidBounds(
                "the local model needs declared bounds, as nobody can look at the data to buy them: write "
                "bounds=Bounds(features=(lo, hi)) with publicly known numbers."
            )
        if (
            isinstance(self.radius, bool)
            or not isinstance(self.radius, int | float)
            or not 0.0 < self.radius < math.inf
        ):
            raise InvalidInput(f"radius must be a positive finite number, not {self.radius!r}.")
        if not isinstance(self.confidence, float) or not 0.0 < self.confidence < 1.0:
            raise InvalidInput(f"confidence must be a number between 0 and 1, not {self.confidence!r}.")
        for name in ("fit_intercept", "refuse_hopeless"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise InvalidInput(f"{name} must be True or False, not {getattr(self, name)!r}.")
        scaling = self.bounds.scaling(n_features, names, centred=bool(self.fit_intercept))
        if (scaling.scale <= 0.0).any():
            raise InvalidBounds("a column with equal bounds tells nothing: leave it out.")
        return scaling

    def _row_bound(self, scaling: Scaling) -> float:
        """Bound on the length of a scaled row, the intercept's constant 1 included."""
        longest = math.sqrt(scaling.n_features) * scaling.clip
        return math.hypot(min(longest, scaling.row_norm or math.inf), float(self.fit_intercept))

    def _linear_task(self, scaling: Scaling) -> LinearTask:
        bound = self._row_bound(scaling)
        reach = (min(1.0, scaling.clip / bound),) * scaling.n_features + (1.0 / bound,) * bool(self.fit_intercept)
        # weights of the rows divided by their bound are as many times longer; margins are not
        return LinearTask(
            self._loss,
            self.epsilon,
            reach,
            self.radius * bound,
            float(self.radius),
            bool(self.fit_intercept),
            type(self).__name__,
        )

    # ---------------------------------------------------------------------------------- data
    def _training_data(self, X: Any, y: Any) -> tuple[FloatArray, Any, Any]:
        """Return checked arrays and the columns' names; nothing is kept of data that are refused later."""
        numbers = isinstance(self, RegressorMixin)
        try:
            checked, labels = check_X_y(plain_matrix(X), plain_labels(y), dtype=np.float64, y_numeric=numbers)
        except InvalidData:
            raise
        except ValueError as error:
            raise InvalidData(without_values(str(error), numbers=numbers)) from None
        return checked, labels, column_names(X)

    def _new_data(self, X: Any) -> FloatArray:
        check_is_fitted(self, "privacy_report_")
        try:
            checked = check_array(plain_matrix(X), dtype=np.float64)
        except InvalidData:
            raise
        except ValueError as error:
            raise InvalidData(without_values(str(error))) from None
        names, known = column_names(X), getattr(self, "feature_names_in_", None)
        renamed = names is not None and known is not None and list(names) != list(known)
        if checked.shape[1] != self.n_features_in_ or renamed:
            raise InvalidData(f"X must have the {self.n_features_in_} columns of the fit, in the same order.")
        return checked

    def _rows(self, X: FloatArray, scaling: Scaling) -> FloatArray:
        """What every person computes from their features: in the unit ball, the intercept's entry last."""
        with np.errstate(over="ignore"):
            rows = np.clip((X - scaling.centre) / scaling.scale, -scaling.clip, scaling.clip)
        if scaling.row_norm is not None:
            length = np.linalg.norm(rows, axis=1, keepdims=True)
            rows *= np.minimum(1.0, scaling.row_norm / np.maximum(length, 1e-300))
        if self.fit_intercept:
            rows = np.column_stack([rows, np.ones(len(rows))])
        return rows / self._row_bound(scaling)

    def _collect(self, X: FloatArray, target: FloatArray, scaling: Scaling) -> tuple[Counts, RandomSource]:
        rows = self._rows(X, scaling)
        records = np.column_stack([rows, target]) if self._loss == "squared" else rows * target[:, None]
        source = RandomSource(self.insecure_seed)
        return self._linear_task(scaling).task.collect(records, source), source

    def _refuse(self, n: int, n_features: int, names: Any) -> None:
        if not self.refuse_hopeless:
            return
        forecast = self.forecast(n, n_features, names)
        if forecast.hopeless:
            raise Unsupported(
                f"{n} people are too few for {n_features} columns at epsilon {self.epsilon:g}: about "
                f"{forecast.people_needed} are needed before a fit is expected to beat the model with all weights 0; "
                "ask more people, raise epsilon, use fewer columns, or set refuse_hopeless=False."
            )

    def _settle(
        self, counts: Counts, scaling: Scaling, names: Any, source: RandomSource | None, target: TargetRange
    ) -> None:
        """Set the fitted attributes; ``target`` turns scores into the user's target."""
        linear = self._linear_task(scaling)
        estimate = linear.estimate(counts)
        bound = self._row_bound(scaling)

        def in_user_units(weights: FloatArray) -> FloatArray:
            coefficients, intercept = scaling.coefficients_in_user_units(
                target.half_width * weights / bound, float(self.fit_intercept)
            )
            return np.append(coefficients, intercept)

        turned = np.column_stack([in_user_units(column) for column in np.eye(linear.dimension)])
        shift = np.append(np.zeros(scaling.n_features), target.centre)
        self._user_weights = turned @ estimate.weights + shift
        self.intervals_, self.intervals_reason_ = None, estimate.reason
        if estimate.covariance is not None:
            centre = turned @ estimate.unshrunk + shift
            error = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", turned, estimate.covariance, turned), 0.0))
            width = float(stats.norm.isf((1.0 - self.confidence) / 2.0)) * error
            self.intervals_ = np.column_stack([centre - width, centre + width])
        self.kept_ = estimate.kept
        self.counts_, self.scaling_ = counts, scaling
        self.n_features_in_ = scaling.n_features
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.privacy_report_ = self._report(linear.task, counts, source)

    def _report(self, task: Task, counts: Counts, source: RandomSource | None) -> PrivacyReport:
        bit = task.bit
        secure = source is None or source.secure
        assumptions = (ONCE, HONEST, *((LABELS_PUBLIC,) if getattr(self, "_labels_from_y", False) else ()))
        guarantee = Guarantee(
            epsilon=bit.epsilon,
            delta=0.0,
            neighbours=Neighbours.REPLACE_ONE,
            view="transcript",
            assumptions=assumptions,
            looseness=max(0.0, bit.epsilon - bit.epsilon_realised),
        )
        line = ReleaseLine(
            query=f"report for task {task.digest[:12]}, one per person",
            kind=bit.kind,
            count=1,
            forfeited=0,
            noise_multiplier=bit.gain / 2.0,
            sensitivity=None,
            noise_scale=None,
            size=1,
            audience="everyone, the collector included",
        )
        public = {"people": counts.n_people, "statistics": task.sketch.size, "radius": self.radius, "loss": self._loss}
        return PrivacyReport(
            planned=Accounting(bit.epsilon, 0.0, guarantee.looseness, "likelihood ratio on the lattice of 2^-32"),
            guarantee=guarantee if secure else None,
            reason=None if secure else "insecure_seed makes the bits reproducible.",
            releases=(line,),
            public=public,
            arithmetic="probabilities of bits are whole multiples of 2^-32",
            randomness=(
                "that of the people's devices"
                if source is None
                else "AES-256-CTR keyed by the operating system"
                if secure
                else "insecure seed (reproducible)"
            ),
            version=dperm.__version__,
            not_covered=NOT_COVERED,
        )

    def _scores(self, X: Any) -> FloatArray:
        checked = self._new_data(X)
        coef, intercept = self._user_weights[:-1], self._user_weights[-1:]
        return linear_scores(checked, coef[None, :], intercept, self.scaling_).ravel()


class LocalLogisticRegression(ClassifierMixin, _LocalLinearModel):
    r"""Two-class logistic regression from one bit per person.

    Minimises, over weights of length at most ``radius`` on features scaled to [-1, 1], the mean of
    :math:`c s^2/2 - s/2` with :math:`s = y\,\langle w, x\rangle`: the quadratic that fits ln(1 + exp(-s)) best at the
    Chebyshev nodes of [-radius, radius].

    Guarantee
    ---------
    Released, to everyone and first of all to the collector: the number of a statistic, drawn at random, and one bit per
    person, (epsilon, 0)-DP for the person against any other record. Assumes one report per person. The model is
    computed from the counts of reports alone.

    Parameters
    ----------
    epsilon : float
        Epsilon of a person's report, between 0.001 and 16.
    bounds : Bounds
        Declared bounds of the columns, and optionally ``classes`` and ``row_norm`` (a small one lowers the noise).
    radius : float
        Bound on the length of the weights of scaled features.
    fit_intercept : bool
        Whether to fit an intercept; columns are then centred at the middle of their bounds.
    confidence : float
        Level of ``intervals_``.
    refuse_hopeless : bool
        Whether to refuse a fit that is expected to do no better than weights 0, saying how many people it takes.
    insecure_seed : int, optional
        Makes a simulated collection reproducible, for tests; voids the guarantee.

    Attributes
    ----------
    coef_, intercept_, classes_ :
        As in scikit-learn; shrunk by the known noise.
    intervals_ : ndarray of shape (n_features + 1, 2) or None
        Confidence intervals of the coefficients, the intercept last, of the quadratic surrogate's minimiser in the
        population, unshrunk; None with ``intervals_reason_`` where there are none.
    kept_ : float
        What the shrinkage left of the minimiser, from 0 to 1.
    counts_ : Counts
        All that was collected.

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

    _loss = "logistic"

    def fit(self, X: Any, y: Any) -> Self:
        """Simulate the collection with one person per row, then fit."""
        X, y, names = self._training_data(X, y)
        declared = None if self.bounds is None else self.bounds.classes
        classes = np.unique(np.asarray(y if declared is None else declared))
        if len(classes) != 2:
            raise InvalidData(f"the local model knows two classes, not {len(classes)}: declare two, or merge them.")
        if not np.isin(y, classes).all():
            raise InvalidData("y contains a label that is not among the declared classes.")
        scaling = self._scaling(X.shape[1], names)
        self._refuse(len(X), X.shape[1], names)
        counts, source = self._collect(X, np.where(y == classes[1], 1.0, -1.0), scaling)
        self._labels_from_y = declared is None
        return self._finish(counts, scaling, names, classes, source)

    def fit_counts(self, counts: Counts, n_features: int, names: Any = None) -> Self:
        """Fit from the counts of a collection; ``Bounds(classes=...)`` must be declared."""
        scaling = self._scaling(n_features, names)
        if self.bounds is None or self.bounds.classes is None or len(self.bounds.classes) != 2:
            raise InvalidBounds(
                "a fit from counts needs the two labels: declare Bounds(features=..., classes=[no, yes])."
            )
        self._refuse(counts.n_people, n_features, names)
        self._labels_from_y = False
        return self._finish(counts, scaling, names, np.unique(np.asarray(self.bounds.classes)), None)

    def _finish(self, counts: Counts, scaling: Scaling, names: Any, classes: Any, source: RandomSource | None) -> Self:
        self._settle(counts, scaling, names, source, TargetRange(-1.0, 1.0))
        self.classes_ = classes
        self.coef_, self.intercept_ = self._user_weights[None, :-1].copy(), self._user_weights[-1:].copy()
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores; positive means the second class."""
        return self._scores(X)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of both classes."""
        return class_probabilities(self._scores(X), False)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more likely label of every row."""
        return self.classes_[class_codes(self._scores(X))]


class LocalLinearRegression(RegressorMixin, _LocalLinearModel):
    r"""Least squares from one bit per person.

    Minimises the mean of :math:`(y - \langle w, x\rangle)^2/2` over weights of length at most ``radius`` on features
    scaled to [-1, 1], the target scaled to [-1, 1] by its declared bounds.

    Guarantee
    ---------
    As for :class:`LocalLogisticRegression`: one index and one bit per person, (epsilon, 0)-DP, released to everyone.

    Parameters
    ----------
    epsilon, radius, fit_intercept, confidence, refuse_hopeless, insecure_seed :
        As for :class:`LocalLogisticRegression`.
    bounds : Bounds
        Declared bounds of the columns and of the ``target``.

    Attributes
    ----------
    coef_, intercept_, intervals_, intervals_reason_, kept_, counts_ :
        As for :class:`LocalLogisticRegression`; intervals are those of the least-squares weights of the population.
    """

    _loss = "squared"

    def fit(self, X: Any, y: Any) -> Self:
        """Simulate the collection with one person per row, then fit."""
        X, y, names = self._training_data(X, y)
        scaling, target = self._scaling(X.shape[1], names), self._target_range()
        self._refuse(len(X), X.shape[1], names)
        counts, source = self._collect(X, target.scaled(np.asarray(y, np.float64)), scaling)
        return self._finish(counts, scaling, names, target, source)

    def fit_counts(self, counts: Counts, n_features: int, names: Any = None) -> Self:
        """Fit from the counts of a collection."""
        scaling, target = self._scaling(n_features, names), self._target_range()
        self._refuse(counts.n_people, n_features, names)
        return self._finish(counts, scaling, names, target, None)

    def _target_range(self) -> TargetRange:
        if self.bounds is None or self.bounds.target is None:
            raise InvalidBounds("the local model needs a declared target: write Bounds(features=..., target=(lo, hi)).")
        return TargetRange(*(float(end) for end in self.bounds.target))

    def _finish(
        self, counts: Counts, scaling: Scaling, names: Any, target: TargetRange, source: RandomSource | None
    ) -> Self:
        self._settle(counts, scaling, names, source, target)
        self.target_range_ = target
        self.coef_, self.intercept_ = self._user_weights[:-1].copy(), float(self._user_weights[-1])
        return self

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted number of every row, clipped to the target's bounds."""
        return self.target_range_.clip(self._scores(X))
