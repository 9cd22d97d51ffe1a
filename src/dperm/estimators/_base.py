"""What all linear estimators share: parameters, validation and the hand-over to the path of a fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from dperm.errors import InvalidData, InvalidInput
from dperm.objective import L1, L2, ElasticNet, Loss, NoPenalty, Objective, Penalty
from dperm.privacy.budget import Budget
from dperm.privacy.ledger import Ledger
from dperm.privacy.neighbours import Neighbours
from dperm.solvers import resolve_solver

from ._fit import FitRequest, Fitted, fit, resolve_bounds

__all__ = ["PrivateLinearModel"]

ONE_RECORD = "each person stands in at most one row"
PUBLIC_N = "the number of rows is public"
BOUNDS_PUBLIC = "the declared bounds do not come from these data"


# Beginnings of scikit-learn's messages that tell of shapes, types and column names only, and where each is cut off.
_HARMLESS = {
    "The feature names should match": None,
    "X has ": None,
    "Found array with": None,
    "Found input variables with inconsistent numbers of samples": None,
    "This ": None,
    "y should be a 1d array": None,
    "Expected array-like": None,
    "Complex data not supported": "\n",
}


def without_values(message: str) -> str:
    """Return a message of scikit-learn or numpy in a form that shows none of the data.

    >>> without_values("could not convert string to float: 'Mrs. Smith'")
    'X must hold numbers only: encode text columns by a rule that is public.'
    """
    for beginning, cut in _HARMLESS.items():
        if message.startswith(beginning):
            return message if cut is None else message.split(cut)[0].rstrip(".") + "."
    if message.startswith(("Expected 2D array", "Expected a 2-dimensional container")):
        return "Reshape your data: X must have two dimensions, and X.reshape(-1, 1) makes one column of a list."
    if message.startswith("Unknown label type: unknown"):
        return "Unknown label type: y mixes labels of several kinds; give all as text or all as whole numbers."
    if message.startswith("Unknown label type"):
        return message.split(". ")[0].rstrip(".") + ": y must hold class labels."
    if message.startswith("Input y contains"):
        return "y contains NaN or infinite values: remove those rows."
    if "convert string" in message or "bytes/strings" in message:
        return "X must hold numbers only: encode text columns by a rule that is public."
    return "these data cannot be used: X must be a table of numbers and y one label or number per row."


class PrivateLinearModel(BaseEstimator):
    """Shared parameters of the private linear models; see :class:`dperm.DPLogisticRegression`."""

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any = None,
        solver: Any = "auto",
        penalty: str = "l2",
        strength: float = 1e-3,
        l1_ratio: float = 0.5,
        neighbours: str = "replace-one",
        calibration: str = "certified",
        fit_intercept: bool = True,
        ledger: Any = None,
        insecure_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.solver = solver
        self.penalty = penalty
        self.strength = strength
        self.l1_ratio = l1_ratio
        self.neighbours = neighbours
        self.calibration = calibration
        self.fit_intercept = fit_intercept
        self.ledger = ledger
        self.insecure_seed = insecure_seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.insecure_seed is None  # fresh noise in every fit is the point
        return tags

    def _penalty(self) -> Penalty:
        L2(self.strength)  # refuses a bad strength, also for a penalty that has none
        makers: dict[str, Callable[[], Penalty]] = {
            "none": NoPenalty,
            "l1": lambda: L1(self.strength),
            "l2": lambda: L2(self.strength),
            "elastic-net": lambda: ElasticNet(self.strength, self.l1_ratio),
        }
        if not isinstance(self.penalty, str) or self.penalty not in makers:
            names = ", ".join(repr(name) for name in makers)
            raise InvalidInput(f"penalty must be one of {names}, not {self.penalty!r}.")
        return makers[self.penalty]()

    def _check_parameters(self) -> None:
        """Refuse bad parameters before the data are looked at."""
        Budget(self.epsilon, 1e-6 if self.delta is None else self.delta)
        Neighbours.parse(self.neighbours)
        resolve_solver(self.solver)
        resolve_bounds(self.bounds)
        self._penalty()
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise InvalidInput(f"fit_intercept must be True or False, not {self.fit_intercept!r}.")
        if not isinstance(self.ledger, Ledger | None):
            raise InvalidInput(f"ledger must be a Ledger or None, not {type(self.ledger).__name__}.")
        if not isinstance(self.calibration, str) or self.calibration not in ("certified", "paper"):
            raise InvalidInput(f"calibration must be 'certified' or 'paper', not {self.calibration!r}.")

    def _checked(self, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
        """Return X (and y if it is given) as checked arrays; errors name no row and no value."""
        try:
            checked = validate_data(
                self, X, y, reset=reset, accept_sparse=["csr", "csc"], dtype=np.float64, ensure_all_finite=False
            )
        except ValueError as error:
            raise InvalidData(without_values(str(error))) from None
        stored = checked[0] if isinstance(checked, tuple) else checked
        if not np.isfinite(stored.data if sp.issparse(stored) else stored).all():
            raise InvalidData("X contains NaN or infinite values: fill or remove them by a rule that is public.")
        return checked

    def _fit(self, X: Any, target: Any, loss: Loss, assumptions: tuple[str, ...], low: float, high: float) -> Fitted:
        bounds = resolve_bounds(self.bounds)
        stated = (ONE_RECORD, PUBLIC_N, *assumptions)
        if bounds.purchase is None:
            stated = (*stated, BOUNDS_PUBLIC)
        n_features = X.shape[1]
        unpenalised = (n_features,) if self.fit_intercept else ()
        request = FitRequest(
            objective=Objective(loss, self._penalty(), unpenalised=unpenalised),
            solver=resolve_solver(self.solver),
            budget_epsilon=self.epsilon,
            budget_delta=self.delta,
            bounds=bounds,
            neighbours=Neighbours.parse(self.neighbours),
            fit_intercept=bool(self.fit_intercept),
            ledger=self.ledger,
            insecure_seed=self.insecure_seed,
            purpose=f"{type(self).__name__} ({resolve_solver(self.solver).name})",
            assumptions=stated,
            feature_names=getattr(self, "feature_names_in_", None),
            calibration=self.calibration,
            target_low=low,
            target_high=high,
        )
        return fit(request, X, np.asarray(target, np.float64))
