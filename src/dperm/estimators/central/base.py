"""Base class of the private linear models: parameters, the request of a fit, prepared plans and saving."""

from __future__ import annotations

import math
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dperm.data.design.bounds import Bounds
from dperm.data.tables.target_source import rows_and_named_target
from dperm.errors import InvalidInput
from dperm.estimators.central.data_checks import DataChecks, TrainingData
from dperm.estimators.central.fit import FitResult, FitRun
from dperm.estimators.central.plan import PlanSummary, summarise
from dperm.estimators.central.request import NUMBERS, FitRequest, PreparedFit, prepare, resolve_bounds
from dperm.estimators.ledger_sharing import LedgerElsewhere, LedgerSharing
from dperm.estimators.persistence.saved import SavedModel
from dperm.estimators.progress import current_progress, current_reading
from dperm.objective import L1, L2, ElasticNet, Loss, NoPenalty, Objective, Penalty
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.randomness import RandomSource
from dperm.solvers import resolve_solver
from dperm.types import BoolArray
from dperm.validation import is_whole

__all__ = [
    "PrivateLinearModel",
    "check_ledger",
    "check_seed",
    "default_strength",
    "fit_prepared",
    "penalty_named",
    "prepare_fit",
]

ONE_RECORD = "each person has at most one row"
PUBLIC_N = "the number of rows is public"
BOUNDS_PUBLIC = "the declared bounds do not come from these data"
TYPES_PUBLIC = "the columns' types are public: those of type bool need no bounds"


def check_seed(seed: Any) -> None:
    """Refuse a seed that is not a whole number, before the data are looked at."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer | None):
        raise InvalidInput(f"insecure_seed must be a whole number or None, not {type(seed).__name__}.")


def check_ledger(ledger: Any) -> None:
    """Refuse what is not a ledger of this process."""
    if isinstance(ledger, LedgerElsewhere):
        raise InvalidInput(
            "the ledger is in the memory of another process and cannot be charged from this one: keep it in a file, as "
            "in Ledger('budget.db'), which all processes share, or fit in one process (n_jobs=1)."
        )
    if not isinstance(ledger, Ledger | None):
        raise InvalidInput(f"ledger must be a Ledger or None, not {type(ledger).__name__}.")


def penalty_named(name: Any, strength: float, l1_ratio: float) -> Penalty:
    """Return a penalty by its name."""
    L2(strength)  # refuses a bad strength, also for a penalty that has none
    makers: dict[str, Callable[[], Penalty]] = {
        "none": NoPenalty,
        "l1": lambda: L1(strength),
        "l2": lambda: L2(strength),
        "elastic-net": lambda: ElasticNet(strength, l1_ratio),
    }
    if name is None:  # scikit-learn's word
        name = "none"
    if not isinstance(name, str) or name not in makers:
        names = ", ".join(repr(one) for one in makers)
        raise InvalidInput(f"penalty must be one of {names}, not {name!r}.")
    return makers[name]()


def default_strength(sparse: bool, n: int, n_features: int) -> float:
    """Strength used where none is given, from public numbers.

    A smooth penalty gets 1 / n, scikit-learn's C = 1. An l1 penalty gets a tenth of sqrt(2 log p / n): the size below
    which the largest of p gradients of pure noise of standard deviation 0.1, on scaled columns and target, stays.

    >>> default_strength(False, 1000, 10), round(default_strength(True, 1000, 1000), 4)
    (0.001, 0.0118)
    """
    return 0.1 * math.sqrt(2.0 * math.log(max(n_features, 2)) / n) if sparse else 1.0 / n


class PrivateLinearModel(DataChecks, LedgerSharing, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Shared parameters of the private linear models; see :class:`dperm.DPLogisticRegression`."""

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any = None,
        solver: Any = "auto",
        strength: float | None = None,
        neighbours: str = "replace-one",
        calibration: str = "certified",
        fit_intercept: bool = True,
        ledger: Any = None,
        insecure_seed: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.solver = solver
        self.strength = strength
        self.neighbours = neighbours
        self.calibration = calibration
        self.fit_intercept = fit_intercept
        self.ledger = ledger
        self.insecure_seed = insecure_seed
        self.verbose = verbose

    @abstractmethod
    def _penalty(self, strength: float) -> Penalty:
        """Return the penalty of this strength; refuses bad parameters."""

    @abstractmethod
    def _loss(self, n_classes: int) -> Loss:
        """Return the loss of one problem; refuses bad parameters."""

    def _n_heads(self, n_classes: int) -> int:
        """Number of two-class problems solved inside one plan."""
        return 1

    @abstractmethod
    def _saved(self) -> SavedModel:
        """Return the fitted model as it is saved."""

    @abstractmethod
    def _training_data(self, X: Any, y: Any) -> TrainingData:
        """Check parameters and data, and return the data with the target in numbers."""

    @abstractmethod
    def _adopt(self, data: TrainingData, result: FitResult) -> None:
        """Set the fitted attributes."""

    # ---------------------------------------------------------------------------------- fitting, planning and saving
    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model privately; see the class for what is released."""
        return self._fit(X, y, None)

    def _fit(self, X: Any, y: Any, prepared: PreparedFit | None) -> Self:
        with self._all_or_nothing():
            data = self._training_data(X, y).canonical()
            request, shape = self._request_for(data), data.X.shape
            plan = prepare(request, *shape) if prepared is None else prepared.for_request(request, shape)
            result = FitRun(plan, data, RandomSource(self.insecure_seed)).fit()
        self._adopt(data, result)
        return self

    @abstractmethod
    def _predicted(self, X: Any) -> Any:
        """Return the predictions of checked rows."""

    def _predicted_and_given(self, X: Any, y: Any, rule: Callable[[Any], Any]) -> tuple[Any, Any] | None:
        """Return predictions and targets of a Spark DataFrame, whose target ``y`` names; None for any other table."""
        check_is_fitted(self, "coef_")
        rows, target = rows_and_named_target(X, y, getattr(self, "feature_names_in_", None))
        if rows is X:
            return None
        blocks = self._checked(rows, reset=False).with_targets(target.in_numbers(rule))
        pairs = [(self._predicted(features), given) for features, given in blocks]
        predicted, given = (np.concatenate(one) for one in zip(*pairs, strict=True))
        return predicted, given

    def plan(self, n: int, n_features: int, n_classes: int | None = None) -> PlanSummary:
        """Return what a fit would release, before any data are touched.

        Parameters
        ----------
        n, n_features : int
            Number of rows and columns; public.
        n_classes : int, optional
            Number of classes; that of declared ``Bounds(classes=...)``, else 2.
        """
        return summarise(prepare_fit(self, n, n_features, n_classes))

    def _public_request(self, n: int, n_features: int, n_classes: int | None) -> FitRequest:
        """Return the request of a fit with these public numbers; refuses what a fit would refuse."""
        self._check_parameters()
        for name, value in (("n", n), ("n_features", n_features)):
            if not is_whole(value) or value < 1:
                raise InvalidInput(f"{name} must be a whole number of 1 or more{_instead(value)}.")
        self._refuse_undeclared(int(n_features))
        declared = resolve_bounds(self.bounds).classes
        count = n_classes if n_classes is not None else 2 if declared is None else len(declared)
        if not is_whole(count) or count < 2:
            raise InvalidInput(f"n_classes must be a whole number of 2 or more{_instead(count)}.")
        return self._request(int(n), int(n_features), int(count), None, None, ())

    def saved_model(self) -> SavedModel:
        """Return the fitted model as :meth:`save` writes it: it predicts, and cannot be fitted again."""
        check_is_fitted(self, "coef_")
        return self._saved()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model as one JSON file that :func:`dperm.load` reads; whole or not at all."""
        return self.saved_model().save(path)

    def to_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model as an ONNX file; needs the extra ``dperm[onnx]``."""
        return self.saved_model().to_onnx(path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.insecure_seed is None  # every fit draws fresh noise
        return tags

    # ---------------------------------------------------------------------------------- checks
    def _check_parameters(self) -> None:
        """Refuse bad parameters before the data are looked at."""
        Budget(self.epsilon, 1e-6 if self.delta is None else self.delta)
        Neighbours.parse(self.neighbours)
        resolve_solver(self.solver)
        if not (isinstance(self.bounds, str) and self.bounds == "declare"):
            resolve_bounds(self.bounds)
        self._penalty(1.0 if self.strength is None else self.strength)
        self._loss(2)
        for name in ("fit_intercept", "verbose"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise InvalidInput(f"{name} must be True or False, not {getattr(self, name)!r}.")
        check_ledger(self.ledger)
        check_seed(self.insecure_seed)
        if not isinstance(self.calibration, str) or self.calibration not in ("certified", "paper"):
            raise InvalidInput(f"calibration must be 'certified' or 'paper', not {self.calibration!r}.")

    # ---------------------------------------------------------------------------------- the request
    def _strength(self, n: int, n_features: int) -> float:
        """Return the strength that was given, or the public default for this many rows and columns."""
        if self.strength is not None:
            return self.strength
        sparse = not self._penalty(1.0).smooth
        return default_strength(sparse, n, n_features)

    def _request(
        self,
        n: int,
        n_features: int,
        n_classes: int,
        names: Sequence[str] | None,
        boolean: BoolArray | None,
        assumptions: tuple[str, ...],
    ) -> FitRequest:
        """Return the request of a fit, from public facts only."""
        bounds, solver = resolve_bounds(self.bounds), resolve_solver(self.solver)
        unpenalised = (n_features,) if self.fit_intercept else ()
        return FitRequest(
            objective=Objective(
                self._loss(n_classes), self._penalty(self._strength(n, n_features)), unpenalised=unpenalised
            ),
            solver=solver,
            budget_epsilon=self.epsilon,
            budget_delta=self.delta,
            bounds=bounds,
            neighbours=Neighbours.parse(self.neighbours),
            fit_intercept=bool(self.fit_intercept),
            ledger=self.ledger,
            insecure_seed=self.insecure_seed,
            estimator=type(self).__name__,
            assumptions=(ONE_RECORD, PUBLIC_N, *assumptions, *self._about_bounds(bounds, boolean)),
            feature_names=names,
            boolean=boolean,
            target=self._target,
            n_classes=n_classes,
            n_heads=self._n_heads(n_classes),
            progress=current_progress.get() or (_print_progress if self.verbose else None),
            reading=current_reading.get() or (_print_reading if self.verbose else None),
            calibration=self.calibration,
        )

    def _about_bounds(self, bounds: Bounds, boolean: BoolArray | None) -> tuple[str, ...]:
        given = (bounds.target if self._target == NUMBERS else bounds.classes, bounds.row_norm)
        declared = bounds.purchase is None or any(one is not None for one in given)
        # a schema states it more exactly
        assumed = bounds.assumptions or ((BOUNDS_PUBLIC,) if declared else ())
        return assumed if boolean is None else (*assumed, TYPES_PUBLIC)

    def _request_for(self, data: TrainingData) -> FitRequest:
        n, n_features = data.X.shape
        names = getattr(self, "feature_names_in_", None)
        return self._request(n, n_features, data.n_classes, names, data.boolean, data.assumptions)


Model = TypeVar("Model", bound=PrivateLinearModel)


def prepare_fit(model: PrivateLinearModel, n: int, n_features: int, n_classes: int | None = None) -> PreparedFit:
    """Plan, calibrate and dry-run a fit of ``n`` rows without data; :func:`fit_prepared` carries it out.

    >>> from dperm import Bounds, DPRidge
    >>> model = DPRidge(bounds=Bounds(features=(0, 1), target=(0, 1)))
    >>> prepared = prepare_fit(model, n=100, n_features=1)
    >>> fit_prepared(model, prepared, [[0.0], [1.0]] * 50, [0.0, 1.0] * 50).coef_.shape
    (1,)
    """
    request = model._public_request(n, n_features, n_classes)
    return prepare(request, int(n), int(n_features))


def fit_prepared(model: Model, prepared: PreparedFit, X: Any, y: Any) -> Model:
    """Fit a model with a plan that :func:`prepare_fit` made, instead of making it again.

    Parameters and data are checked as in ``fit``; a plan for other parameters, rows, columns or classes is refused.
    """
    return model._fit(X, y, prepared)


def _instead(value: Any) -> str:
    """Show the value given if it is a number, else its type only: it may be the data."""
    shown = repr(value) if isinstance(value, int | float | np.number | None) else type(value).__name__
    return f", not {shown}"


def _print_progress(done: int, in_all: int) -> None:
    """Print how far a fit is, ten times at most; the number of steps reveals nothing about the data."""
    if done == in_all or done % max(1, in_all // 10) == 0:
        print(f"step {done} of {in_all}", file=sys.stderr)


def _print_reading(done: int, in_all: int) -> None:
    """Print how many rows are read."""
    print(f"{done} of {in_all} rows read", file=sys.stderr)
