"""What all linear estimators share: parameters, validation and the hand-over to the path of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from dperm.errors import InvalidData, InvalidInput, Unsupported
from dperm.objective import L1, L2, ElasticNet, Loss, NoPenalty, Objective, Penalty
from dperm.privacy.budget import Budget
from dperm.privacy.neighbours import Neighbours
from dperm.solvers import resolve_solver

from ._fit import FitRequest, Fitted, fit, resolve_bounds

__all__ = ["PrivateLinearModel"]

ONE_RECORD = "each person stands in at most one row"
PUBLIC_N = "the number of rows is public"
BOUNDS_PUBLIC = "the declared bounds do not come from these data"


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
        tags.non_deterministic = True  # fresh noise in every fit is the point
        return tags

    def _penalty(self) -> Penalty:
        makers = {
            "none": NoPenalty,
            "l1": lambda: L1(self.strength),
            "l2": lambda: L2(self.strength),
            "elastic-net": lambda: ElasticNet(self.strength, self.l1_ratio),
        }
        if self.penalty not in makers:
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
        if self.calibration not in ("certified", "paper"):
            raise InvalidInput(f"calibration must be 'certified' or 'paper', not {self.calibration!r}.")
        if self.calibration == "paper":
            name = resolve_solver(self.solver).name
            raise Unsupported(f"no published calibration exists for solver {name!r}: use calibration='certified'.")

    def _validated(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return checked arrays; errors name no row and no value."""
        X, y = validate_data(
            self, X, y, accept_sparse=["csr", "csc"], dtype=np.float64, ensure_all_finite=False, y_numeric=False
        )
        stored = X.data if sp.issparse(X) else X
        if not np.isfinite(stored).all():
            raise InvalidData("X contains NaN or infinite values: fill or remove them by a rule that is public.")
        if np.asarray(y).dtype.kind == "f" and not np.isfinite(y).all():
            raise InvalidData("y contains NaN or infinite values: remove those rows.")
        return X, y

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
            target_low=low,
            target_high=high,
        )
        return fit(request, X, np.asarray(target, np.float64))
