"""Base of the local linear models: it makes the task, simulates a collection or takes its counts, and fits the model.

Proof: ``linear_models.proof.md``.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dperm.data.design.bounds import Bounds
from dperm.data.design.target_range import TargetRange
from dperm.data.tables.frames import plain_labels
from dperm.errors import InvalidBounds, InvalidInput, TooFewPeople
from dperm.estimators.central.base import BOUNDS_PUBLIC, check_ledger
from dperm.estimators.central.data_checks import TrainingData
from dperm.estimators.local.fit_rounds import LocalRounds
from dperm.estimators.local.report import (
    charge_simulation,
    charge_task,
    check_collection,
    local_report,
)
from dperm.estimators.local.row_transform import RowTransform, dense_blocks
from dperm.objective import L2
from dperm.privacy.local.few_levels import FewLevels
from dperm.privacy.local.one_bit import OneBit
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import Counts, Estimate, LinearTask, LocalForecast, Task
from dperm.types import FloatArray
from dperm.validation import positive, whole

__all__ = ["LocalFit"]


SOLVERS = ("moments", "sgd")


class LocalFit(LocalRounds):
    """Fits a linear model from one bit per person; see :class:`dperm.LocalLogisticRegression`."""

    _loss_name: str
    bounds: Any
    strength: Any

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        bounds: Bounds | None = None,
        strength: float = 0.0,
        radius: float = 2.0,
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
        self.epsilon = epsilon
        self.bounds = bounds
        self.strength = strength
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.confidence = confidence
        self.refuse_hopeless = refuse_hopeless
        self.n_levels = n_levels
        self.solver = solver
        self.n_rounds = n_rounds
        self.version = version
        self.window = window
        self.ledger = ledger
        self.insecure_seed = insecure_seed

    # ---------------------------------------------------------------------------------- public, before any data
    def plan(self, n: int, n_features: int, n_classes: int | None = None) -> LocalForecast:
        """Forecast the accuracy with ``n`` people, and how many people are needed, before anybody is asked.

        Parameters
        ----------
        n, n_features : int
            Number of people and columns; public.
        n_classes : int, optional
            Number of classes; by default that of the declared ``Bounds(classes=...)``, else 2.
        """
        self._check_parameters()
        rows, n_outputs = self._rows(n_features, None, by_name=False), self._n_outputs(n_classes)
        if self.solver == "sgd":
            return self._descent(self._linear(rows, n_outputs, 2), rows).forecast(n)
        return self._linear(rows, n_outputs, self._degree(rows, n_outputs, n)).forecast(n, rows.mean_squares)

    def task(self, n_features: int, names: Any = None, n_people: int | None = None) -> Task:
        """Return the task that people answer; its ``schema()`` is all that a device needs.

        ``n_people`` is the public number of people expected; it decides between the quadratic and the quartic surrogate
        of the loss.
        """
        self._check_parameters()
        self._refuse_rounds()
        rows, about = self._rows(n_features, names), self._declared_target()
        n_outputs = self._n_outputs(None)
        return self._linear(rows, n_outputs, self._degree(rows, n_outputs, n_people), names, about).task

    def _check_parameters(self) -> None:
        """Refuse bad parameters before reading any data."""
        if self.n_levels == 2 and not isinstance(self.n_levels, bool):
            OneBit(self.epsilon)
        else:
            FewLevels(self.epsilon, self.n_levels)
        if not isinstance(self.bounds, Bounds) or self.bounds.bought_columns(1).any():
            raise InvalidBounds(
                "the local model needs declared bounds, because nobody holds the data to buy bounds from: write "
                "bounds=Bounds(features=(lo, hi)) with publicly known numbers."
            )
        L2(self.strength)  # refuses a bad strength
        positive("radius", self.radius)
        if not isinstance(self.confidence, float) or not 0.0 < self.confidence < 1.0:
            raise InvalidInput(f"confidence must be a number between 0 and 1, not {self.confidence!r}.")
        for name in ("fit_intercept", "refuse_hopeless"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise InvalidInput(f"{name} must be True or False, not {getattr(self, name)!r}.")
        if self.solver not in SOLVERS:
            raise InvalidInput(f"solver must be one of {', '.join(SOLVERS)}, not {self.solver!r}.")
        check_ledger(self.ledger)

    def _rows(self, n_features: int, names: Any, by_name: bool = True) -> RowTransform:
        n_features, bounds = whole("n_features", n_features), self.bounds
        if not by_name and bounds.features is not None and any(isinstance(end, dict) for end in bounds.features):
            names = list(bounds.features[0] if isinstance(bounds.features[0], dict) else bounds.features[1])
        if names is not None and len(names) != n_features:
            raise InvalidInput(f"there are {len(names)} names for {n_features} columns.")
        scaling = bounds.scaling(n_features, names, centred=bool(self.fit_intercept))
        if (scaling.scale <= 0.0).any():
            raise InvalidBounds("a column with equal lower and upper bounds is constant: leave it out.")
        return RowTransform(scaling, bool(self.fit_intercept))

    def _n_outputs(self, n_classes: int | None) -> int:
        """Number of weight vectors."""
        return 1

    def _degree(self, rows: RowTransform, n_outputs: int, n_people: int | None) -> int:
        """Degree of the polynomial that replaces the loss."""
        return 2

    def _declared_target(self) -> dict[str, Any]:
        """The declared target (labels or range) as plain data for the schema; refuses if none is declared."""
        raise NotImplementedError

    def _linear(
        self,
        rows: RowTransform,
        n_outputs: int,
        degree: int,
        names: Any = None,
        about_target: dict[str, Any] | None = None,
    ) -> LinearTask:
        return LinearTask(
            loss=self._loss_name,
            epsilon=self.epsilon,
            reach=rows.reach,
            # rows are divided by their bound, so weights are longer by that factor
            radius=float(self.radius) * rows.bound,
            # rows are rarely as long as their bound: this is the margin of a row of length 1
            margin=float(self.radius),
            intercept=rows.intercept,
            name=type(self).__name__,
            degree=degree,
            n_outputs=n_outputs,
            inputs={**rows.inputs(names), **(about_target or {})},
            n_levels=int(self.n_levels),
            version=self.version,
            window=self.window,
        )

    def _refuse_hopeless_fit(self, n: int, n_features: int, n_classes: int | None) -> None:
        if not self.refuse_hopeless:
            return
        plan = self.plan(max(n, 1), n_features, n_classes)
        if n < plan.min_people:
            raise TooFewPeople(n, n_features, self.epsilon, plan.min_people, plan.people_needed)

    # ---------------------------------------------------------------------------------- fits
    def fit(self, X: Any, y: Any) -> Self:
        """Simulate a collection with one person per row, then fit; every call charges the ledger."""
        with self._all_or_nothing():  # type: ignore[attr-defined]
            problem: TrainingData = self._training_data(X, plain_labels(y))  # type: ignore[attr-defined]
            n, n_features = problem.X.shape
            names = getattr(self, "feature_names_in_", None)
            rows, about = self._rows(n_features, names), self._public_target(problem)
            n_classes = None if problem.classes is None else problem.n_classes
            n_outputs = self._n_outputs(n_classes)
            self._refuse_hopeless_fit(n, n_features, n_classes)
            degree = 2 if self.solver == "sgd" else self._degree(rows, n_outputs, n)
            linear = self._linear(rows, n_outputs, degree, names, about)
            source = RandomSource(self.insecure_seed)
            if self.solver == "sgd":
                return self._fit_in_rounds(linear, rows, problem, source)
            with charge_simulation(self.ledger, linear.task, source, problem.fingerprint(self.ledger)) as charged:
                counts = self._collect(linear, rows, problem, source)
            estimates = linear.estimates(counts, self._penalty_of_rows(rows))
        self._set_fitted_attributes(linear, rows, counts, estimates, problem.classes)
        assumptions = (*problem.assumptions, *self._bounds_assumptions())
        self._write_report(linear, linear.task, assumptions, charged, people=n, simulated=True, secure=source.secure)
        return self

    def fit_counts(self, counts: Counts, n_features: int, names: Any = None, *, n_people: int | None = None) -> Self:
        """Fit from the counts of a collection; charges the ledger once per task.

        Parameters
        ----------
        counts : Counts
            The counts collected for :meth:`task`.
        n_features, names :
            As given to :meth:`task`.
        n_people : int, optional
            Number of people who were asked; more reports than people are refused. Required with a ledger, because one
            charge covers one report per person. To ask the same people again, use another ``version`` or ``window``.
        """
        self._check_parameters()
        self._refuse_rounds()
        if not isinstance(counts, Counts):
            raise InvalidInput(f"counts must be the Counts of a task, not {type(counts).__name__}.")
        rows, about, n_outputs = self._rows(n_features, names), self._declared_target(), self._n_outputs(None)
        possible = [self._linear(rows, n_outputs, degree, names, about) for degree in self._degrees()]
        asked = [linear for linear in possible if linear.task.digest == counts.task]
        if not asked:
            raise InvalidInput(
                "these counts belong to another task or to another version of it: epsilon, bounds, names, labels, "
                "radius, degree and dperm's version must be those of the task that people answered."
            )
        linear = asked[0]
        linear.task.check(counts)
        people = check_collection(self.ledger, counts, n_people)
        # the reports have been sent, so they are charged before anything else can be refused
        charged = charge_task(self.ledger, linear.task, people, secure=counts.secure)
        self._refuse_hopeless_fit(counts.n_people, n_features, None)
        estimates = linear.estimates(counts, self._penalty_of_rows(rows))
        self._set_feature_names(rows, names)
        self._set_fitted_attributes(linear, rows, counts, estimates, self._declared_classes())
        self._write_report(
            linear,
            linear.task,
            self._bounds_assumptions(),
            charged,
            people=people,
            reports=counts.n_people,
            simulated=False,
            secure=counts.secure,
        )
        return self

    def _set_feature_names(self, rows: RowTransform, names: Any) -> None:
        self.n_features_in_ = rows.scaling.n_features
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _degrees(self) -> tuple[int, ...]:
        """Degrees that a task of this model may have."""
        return (2,)

    def _bounds_assumptions(self) -> tuple[str, ...]:
        """What the report assumes about the bounds; the schema states the details."""
        return self.bounds.assumptions or (BOUNDS_PUBLIC,)

    def _declared_classes(self) -> NDArray[Any] | None:
        return None

    def _public_target(self, problem: TrainingData) -> dict[str, Any]:
        """What the data owner treats as public about the target, as plain data for the schema."""
        return self._declared_target()

    def _penalty_of_rows(self, rows: RowTransform) -> float:
        """Strength for the weights of rows, which are ``bound`` times the weights of scaled features."""
        return float(self.strength) / rows.bound**2

    def _collect(self, linear: LinearTask, rows: RowTransform, problem: TrainingData, source: RandomSource) -> Counts:
        """Simulate the report of every person, in blocks of rows."""
        task, total, start = linear.task, linear.task.no_counts(), 0
        for block in dense_blocks(problem.X):
            target = problem.target_here[start : start + len(block)]
            total += task.collect(self._records(rows.apply(block), target, linear), source)
            start += len(block)
        return total

    def _records(self, rows: FloatArray, target: FloatArray, linear: LinearTask) -> FloatArray:
        """The records that people report on, from their rows and targets."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------- what is kept
    def _target_range(self) -> TargetRange:
        """Range of the target in the user's units; a prediction of 1 is its upper end."""
        return TargetRange(-1.0, 1.0)

    def _set_fitted_attributes(
        self,
        linear: LinearTask,
        rows: RowTransform,
        counts: Counts | None,
        estimates: tuple[Estimate, ...],
        classes: Any,
    ) -> None:
        """Set the fitted attributes, in the user's units."""
        turn, shift = rows.to_user_units(self._target_range())
        weights = np.array([turn @ one.weights + shift for one in estimates])
        reasons = [one.reason for one in estimates if one.covariance is None]
        self.intervals_reason_ = reasons[0] if reasons else None
        self.intervals_ = None
        if not reasons:
            width = float(stats.norm.isf((1.0 - self.confidence) / 2.0))
            ends = []
            for one in estimates:
                middle = turn @ one.unshrunk + shift
                assert one.covariance is not None  # there are no reasons against intervals
                error = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", turn, one.covariance, turn), 0.0))
                ends.append(np.column_stack([middle - width * error, middle + width * error]))
            self.intervals_ = ends[0] if len(ends) == 1 else np.array(ends)
        self.kept_ = estimates[0].kept if len(estimates) == 1 else np.array([one.kept for one in estimates])
        self.counts_, self.scaling_, self.degree_ = counts, rows.scaling, linear.degree
        self._set_weights(weights, classes)

    def _set_weights(self, weights: FloatArray, classes: Any) -> None:
        """Set the weights of every output, the intercept last, under scikit-learn's attribute names."""
        raise NotImplementedError

    def _write_report(
        self,
        linear: LinearTask,
        task: Task,
        assumptions: tuple[str, ...],
        charged: dict[str, Any],
        *,
        people: int,
        simulated: bool,
        secure: bool,
        reports: int | None = None,
    ) -> None:
        public = {
            "features": self.n_features_in_,
            "centre": self.scaling_.centre.tolist(),
            "scale": self.scaling_.scale.tolist(),
            "clip": self.scaling_.clip,
            "row_norm": self.scaling_.row_norm,
            "radius": float(self.radius),
            "strength": self.strength,
            "loss": self._loss_name,
            "solver": self.solver,
            "reports": people if reports is None else reports,
            **({"n_rounds": self.n_rounds} if self.solver == "sgd" else {"degree": linear.degree}),
        }
        self.privacy_report_ = local_report(
            task, people, public, assumptions, charged, simulated=simulated, secure=secure
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        # with one bit per person a few hundred rows are not enough for a useful model
        for kind in (tags.classifier_tags, tags.regressor_tags):
            if kind is not None:
                kind.poor_score = True
        return tags
