"""What all linear estimators share: parameters, validation, the plan, saving and the hand-over to the path of a fit."""

from __future__ import annotations

import copy
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

from dperm.data.bounds import Bounds
from dperm.data.frames import boolean_columns, column_names, plain_labels, plain_matrix
from dperm.errors import InvalidBounds, InvalidData, InvalidInput, LedgerNotSaved
from dperm.objective import L1, L2, ElasticNet, Loss, NoPenalty, Objective, Penalty
from dperm.privacy.budget import Budget
from dperm.privacy.ledger import Ledger
from dperm.privacy.neighbours import Neighbours
from dperm.solvers import resolve_solver

from ._fit import Fitted, fit
from ._messages import how_to_declare, without_values
from ._plan import PlanSummary, summarise
from ._request import CLASSES, NUMBERS, FitRequest, resolve_bounds
from .saved import NOT_FINITE, SavedModel

__all__ = ["PrivateLinearModel", "default_strength", "penalty_named"]

ONE_RECORD = "each person stands in at most one row"
PUBLIC_N = "the number of rows is public"
BOUNDS_PUBLIC = "the declared bounds do not come from these data"
TYPES_PUBLIC = "the columns' types are public: those of type bool need no bounds"


def penalty_named(name: Any, strength: float, l1_ratio: float) -> Penalty:
    """Return a penalty by its name."""
    L2(strength)  # refuses a bad strength, also for a penalty that has none
    makers: dict[str, Callable[[], Penalty]] = {
        "none": NoPenalty,
        "l1": lambda: L1(strength),
        "l2": lambda: L2(strength),
        "elastic-net": lambda: ElasticNet(strength, l1_ratio),
    }
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
    target: NDArray[np.float64]
    boolean: NDArray[np.bool_] | None
    assumptions: tuple[str, ...] = ()
    #: labels in the order of their codes; None if the target is a number
    classes: NDArray[Any] | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes; 2 if the target is a number, where it means nothing."""
        return 2 if self.classes is None else len(self.classes)


class PrivateLinearModel(BaseEstimator):
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
        self._check_parameters()
        for name, value in (("n", n), ("n_features", n_features)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InvalidInput(f"{name} must be a whole number of 1 or more{_instead(value)}.")
        self._refuse_undeclared(int(n_features))
        declared = resolve_bounds(self.bounds).classes
        count = n_classes if n_classes is not None else 2 if declared is None else len(declared)
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 2:
            raise InvalidInput(f"n_classes must be a whole number of 2 or more{_instead(count)}.")
        request = self._request(int(n), int(n_features), int(count), None, None, ())
        return summarise(type(self).__name__, request, int(n), int(n_features))

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

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        ledger = state.get("ledger")
        # an estimator yet to be fitted keeps it, and is refused: its copy in another process would spend unseen
        if isinstance(ledger, Ledger) and not ledger.lasting and "privacy_report_" in state:
            warnings.warn(
                "the ledger in memory is not saved with the model, so a later fit of the copy is charged to a new one: "
                "keep the ledger in a file, as in Ledger('budget.db').",
                LedgerNotSaved,
                stacklevel=2,
            )
            state = {**state, "ledger": None}
        return state

    def __copy__(self) -> PrivateLinearModel:
        """Return a copy in this process, which shares the ledger."""
        return self._copied(lambda value: value)

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivateLinearModel:
        """Return a copy in this process, which shares the ledger."""
        return self._copied(lambda value: copy.deepcopy(value, memo))

    def _copied(self, copied: Callable[[Any], Any]) -> PrivateLinearModel:
        other = type(self).__new__(type(self))
        vars(other).update({name: copied(value) for name, value in vars(self).items()})
        return other

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
        if not isinstance(self.ledger, Ledger | None):
            raise InvalidInput(f"ledger must be a Ledger or None, not {type(self.ledger).__name__}.")
        if not isinstance(self.calibration, str) or self.calibration not in ("certified", "paper"):
            raise InvalidInput(f"calibration must be 'certified' or 'paper', not {self.calibration!r}.")

    def _refuse_undeclared(
        self, n_features: int, names: Sequence[str] | None = None, boolean: NDArray[np.bool_] | None = None
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
            plain, names = plain_matrix(X), column_names(X)
            converted = plain is not X
            with warnings.catch_warnings():
                if converted:  # names are compared below
                    warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
                checked = validate_data(
                    self,
                    plain,
                    y,
                    reset=reset,
                    accept_sparse=["csr", "csc"],
                    dtype=np.float64,
                    ensure_all_finite=False,
                    **options,
                )
        except InvalidData:
            raise
        except (ValueError, OverflowError) as error:
            refused = without_values(str(error), numbers=self._target == NUMBERS)
        if refused is not None:  # raised out here: an error's context would keep the values that its sentence hides
            raise InvalidData(refused)
        if converted and reset:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif converted and hasattr(self, "feature_names_in_") and list(self.feature_names_in_) != names:
            raise InvalidData(
                "The feature names should match those that were passed during fit: same names, in the same order."
            )
        stored = checked[0] if isinstance(checked, tuple) else checked
        if not np.isfinite(stored.data if sp.issparse(stored) else stored).all():
            raise InvalidData(NOT_FINITE)
        return checked

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

    def _training_data(self, X: Any, y: Any) -> tuple[Any, Any, NDArray[np.bool_] | None]:
        """Check parameters, then data; return both arrays and which columns are of type bool."""
        self._check_parameters()
        boolean = boolean_columns(X)
        X, y = self._checked(X, plain_labels(y), reset=True)
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
        boolean: NDArray[np.bool_] | None,
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
            progress=_tell if self.verbose else None,
            calibration=self.calibration,
        )

    def _about_bounds(self, bounds: Bounds, boolean: NDArray[np.bool_] | None) -> tuple[str, ...]:
        given = (bounds.target if self._target == NUMBERS else bounds.classes, bounds.row_norm)
        declared = (BOUNDS_PUBLIC,) if bounds.purchase is None or any(one is not None for one in given) else ()
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


def _instead(value: Any) -> str:
    """Say what was given; of anything but a number the type alone, since it may be the data."""
    shown = repr(value) if isinstance(value, int | float | np.number | None) else type(value).__name__
    return f", not {shown}"


def _tell(done: int, in_all: int) -> None:
    """Write how far a fit is, which tells nothing of the data, ten times at most."""
    if done == in_all or done % max(1, in_all // 10) == 0:
        print(f"step {done} of {in_all}", file=sys.stderr)
