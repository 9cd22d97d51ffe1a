"""What all linear estimators share: parameters, validation, the plan, saving and the hand-over to the path of a fit."""

from __future__ import annotations

import math
import os
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from dperm.data.design.bounds import Bounds
from dperm.data.tables.frames import (
    NUMBERS_ONLY,
    boolean_columns,
    column_names,
    non_finite_message,
    not_numbers_error,
    plain_labels,
    plain_matrix,
)
from dperm.data.tables.row_source import RowSource, row_source
from dperm.errors import InvalidBounds, InvalidData, InvalidInput
from dperm.estimators.central.fit import Fitted, fit
from dperm.estimators.central.messages import how_to_declare, without_values
from dperm.estimators.central.plan import PlanSummary, summarise
from dperm.estimators.central.request import CLASSES, NUMBERS, FitRequest, resolve_bounds
from dperm.estimators.ledger_sharing import LedgerSharing, check_ledger
from dperm.estimators.persistence.saved import SavedModel
from dperm.estimators.progress import watched
from dperm.objective import L1, L2, ElasticNet, Loss, NoPenalty, Objective, Penalty
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.solvers import resolve_solver
from dperm.types import BoolArray, FloatArray

__all__ = ["PrivateLinearModel", "check_seed", "default_strength", "penalty_named"]

ONE_RECORD = "each person stands in at most one row"
PUBLIC_N = "the number of rows is public"
BOUNDS_PUBLIC = "the declared bounds do not come from these data"
OTHER_NAMES = "The feature names should match those that were passed during fit: same names, in the same order."
TYPES_PUBLIC = "the columns' types are public: those of type bool need no bounds"


def check_seed(seed: Any) -> None:
    """Refuse a seed that is not a whole number, before the data are looked at."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer | None):
        raise InvalidInput(f"insecure_seed must be a whole number or None, not {type(seed).__name__}.")


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


@dataclass(frozen=True)
class Problem:
    """Checked data of a fit, with the target in numbers, and what is public about them."""

    X: Any
    target: FloatArray
    boolean: BoolArray | None
    assumptions: tuple[str, ...] = ()
    #: labels in the order of their codes; None if the target is a number
    classes: NDArray[Any] | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes; 2 if the target is a number, where it means nothing."""
        return 2 if self.classes is None else len(self.classes)


class PrivateLinearModel(LedgerSharing, BaseEstimator):
    """Shared parameters of the private linear models; see :class:`dperm.DPLogisticRegression`."""

    #: what a target is: classes or numbers
    _target: str = CLASSES

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

    # ---------------------------------------------------------------------------------- before and after a fit
    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model privately; see the class for what is released."""
        with self._all_or_nothing():
            problem = self._problem(X, y)
            fitted = fit(self._request_for(problem), problem.X, problem.target)
        self._adopt(problem, fitted)
        return self

    def plan(self, n: int, n_features: int, n_classes: int | None = None) -> PlanSummary:
        """Say what a fit would release, before any data are touched.

        Parameters
        ----------
        n, n_features : int
            Number of rows and columns; public.
        n_classes : int, optional
            Number of classes; that of declared ``Bounds(classes=...)``, else 2.
        """
        request = self._public_request(n, n_features, n_classes)
        return summarise(type(self).__name__, request, int(n), int(n_features))

    def _public_request(self, n: int, n_features: int, n_classes: int | None) -> FitRequest:
        """Return what a fit of these public numbers asks for; refuses what a fit would refuse."""
        self._check_parameters()
        for name, value in (("n", n), ("n_features", n_features)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InvalidInput(f"{name} must be a whole number of 1 or more{_instead(value)}.")
        self._refuse_undeclared(int(n_features))
        declared = resolve_bounds(self.bounds).classes
        count = n_classes if n_classes is not None else 2 if declared is None else len(declared)
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 2:
            raise InvalidInput(f"n_classes must be a whole number of 2 or more{_instead(count)}.")
        return self._request(int(n), int(n_features), int(count), None, None, ())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model as one JSON file that :func:`dperm.load` reads; whole or not at all."""
        check_is_fitted(self, "coef_")
        return self._saved().save(path)

    def to_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model as an ONNX file; needs the extra ``dperm[onnx]``."""
        check_is_fitted(self, "coef_")
        return self._saved().to_onnx(path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.insecure_seed is None  # fresh noise in every fit is the point
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

    def _refuse_undeclared(
        self, n_features: int, names: Sequence[str] | None = None, boolean: BoolArray | None = None
    ) -> None:
        """With ``bounds="declare"``, say what to write; names and types of columns are all it uses."""
        if isinstance(self.bounds, str) and self.bounds == "declare":
            raise InvalidBounds(how_to_declare(self._target == NUMBERS, n_features, names, boolean))

    def _checked(self, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
        """Return X (and y if it is given) as checked arrays; errors name no row and no value."""
        y_given = not (isinstance(y, str) and y == "no_validation")
        options = {"y_numeric": self._target == NUMBERS} if y_given else {}
        refused = None
        try:
            source = row_source(X)
            if source is not None and 0 in source.shape:
                raise InvalidData("Found array with {} sample(s) and {} feature(s): 1 is needed.".format(*source.shape))
            plain, names = ("no_validation" if source else plain_matrix(X)), column_names(X)
            converted = plain is not X
            if source is None or y_given:
                with warnings.catch_warnings():
                    if converted:  # names are compared below
                        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
                    if source is None:
                        # single precision stays: whoever reads it makes doubles of some rows at a time
                        kinds = np.float64 if sp.issparse(plain) else [np.float64, np.float32]
                        options |= {"accept_sparse": ["csr", "csc"], "dtype": kinds, "ensure_all_finite": False}
                    checked = validate_data(self, plain, y, reset=reset, **options)
        except InvalidData:
            raise
        except (ValueError, TypeError, OverflowError) as error:
            refused = _refusal(X, str(error), numbers=self._target == NUMBERS)
        if refused is not None:  # raised out here: an error's context would keep the values that its sentence hides
            raise refused
        if source is not None:
            self._check_rows(source, checked if y_given else None, reset)
            return (source, checked) if y_given else source
        if converted and reset:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif converted and hasattr(self, "feature_names_in_") and list(self.feature_names_in_) != names:
            raise InvalidData(OTHER_NAMES)
        bad = non_finite_message(checked[0] if isinstance(checked, tuple) else checked, names)
        if bad is not None:
            raise InvalidData(bad)
        return checked

    def _check_rows(self, source: RowSource, y: Any, reset: bool) -> None:
        """Check what is public of rows that are read in blocks; values are checked whenever they are read."""
        n, n_features = source.shape
        if y is not None and len(y) != n:
            raise InvalidData(f"Found input variables with inconsistent numbers of samples: {[n, len(y)]}.")
        if reset:
            self.n_features_in_ = n_features
            vars(self).pop("feature_names_in_", None)
            if source.names is not None:
                self.feature_names_in_ = np.asarray(source.names, dtype=object)
        elif n_features != self.n_features_in_:
            raise InvalidData(
                f"X has {n_features} features, but {type(self).__name__} is expecting {self.n_features_in_} features."
            )
        elif source.names is not None and list(getattr(self, "feature_names_in_", source.names)) != source.names:
            raise InvalidData(OTHER_NAMES)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Leave an earlier model as it was when a fit is refused."""
        written = ("n_features_in_", "feature_names_in_")
        before = {name: vars(self)[name] for name in written if name in vars(self)}
        try:
            yield
        except BaseException:
            for name in written:
                vars(self).pop(name, None)
            vars(self).update(before)
            raise

    def _training_data(self, X: Any, y: Any) -> tuple[Any, Any, BoolArray | None]:
        """Check parameters, then data; return both arrays and which columns are of type bool."""
        self._check_parameters()
        boolean = boolean_columns(X)
        X, y = self._checked(X, plain_labels(y), reset=True)
        if isinstance(X, RowSource):
            boolean = X.boolean
        self._refuse_undeclared(X.shape[1], getattr(self, "feature_names_in_", None), boolean)
        return X, y, boolean

    # ---------------------------------------------------------------------------------- the hand-over
    def _strength(self, n: int, n_features: int) -> float:
        """The strength that was given, or the public default for this many rows and columns."""
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
        """Return what is asked for, from public numbers only."""
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
            purpose=f"{type(self).__name__} ({solver.name})",
            assumptions=(ONE_RECORD, PUBLIC_N, *assumptions, *self._about_bounds(bounds, boolean)),
            feature_names=names,
            boolean=boolean,
            target=self._target,
            n_classes=n_classes,
            n_heads=self._n_heads(n_classes),
            progress=watched() or (_tell if self.verbose else None),
            calibration=self.calibration,
        )

    def _about_bounds(self, bounds: Bounds, boolean: BoolArray | None) -> tuple[str, ...]:
        given = (bounds.target if self._target == NUMBERS else bounds.classes, bounds.row_norm)
        declared = (BOUNDS_PUBLIC,) if bounds.purchase is None or any(one is not None for one in given) else ()
        declared = bounds.assumptions or declared  # a schema says it more exactly
        return declared if boolean is None else (*declared, TYPES_PUBLIC)

    @abstractmethod
    def _problem(self, X: Any, y: Any) -> Problem:
        """Check parameters and data, and return the data as the path of a fit takes them."""

    @abstractmethod
    def _adopt(self, problem: Problem, fitted: Fitted) -> None:
        """Take the result of a fit as this model's own."""

    def _request_for(self, problem: Problem) -> FitRequest:
        names = getattr(self, "feature_names_in_", None)
        return self._request(*problem.X.shape, problem.n_classes, names, problem.boolean, problem.assumptions)


def _refusal(X: Any, message: str, numbers: bool) -> InvalidData:
    """Return the error for data that were refused with this message, which may hold values."""
    text = any(words in message for words in ("convert string", "bytes/strings", "argument must be", "array element"))
    found = not_numbers_error(X) if text else None
    if found is None or (str(found) == NUMBERS_ONLY and numbers):  # it may be y
        return InvalidData(without_values(message, numbers))
    return found


def _instead(value: Any) -> str:
    """Say what was given; of anything but a number the type alone, since it may be the data."""
    shown = repr(value) if isinstance(value, int | float | np.number | None) else type(value).__name__
    return f", not {shown}"


def _tell(done: int, in_all: int) -> None:
    """Write how far a fit is, which tells nothing of the data, ten times at most."""
    if done == in_all or done % max(1, in_all // 10) == 0:
        print(f"step {done} of {in_all}", file=sys.stderr)
