"""A model's score on rows that were held out, released with noise and paid for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.design import DesignMatrix
from dperm.data.holder import DataHolder, DesignData
from dperm.errors import InvalidData
from dperm.privacy.budget import Budget, default_delta
from dperm.privacy.calibration import Plan, PlannedRelease, calibrate
from dperm.privacy.ledger import Ledger
from dperm.privacy.mechanisms import GaussianNoise
from dperm.privacy.neighbours import Neighbours
from dperm.privacy.randomness import RandomSource
from dperm.privacy.scope import Scope
from dperm.queries import CorrectPredictions, SquaredErrors

from .saved import SavedClassifier, SavedModel, SavedRegressor

__all__ = ["PaidScore", "paid_score"]


@dataclass(frozen=True)
class PaidScore:
    """A score with noise.

    Attributes
    ----------
    kind : str
        ``"accuracy"``, or ``"root mean squared error"`` in the target's unit.
    value, low, high : float
        The score, and the interval that its noise leaves with 95% probability; how few rows there are is not in it.
    budget : Budget
        What it cost; charged to the same data set as the fit.
    """

    kind: str
    value: float
    low: float
    high: float
    budget: Budget
    n: int


def paid_score(
    model: SavedModel,
    X: NDArray[np.float64],
    y: Any,
    *,
    epsilon: float,
    delta: float | None = None,
    ledger: Ledger | None = None,
    neighbours: str = "replace-one",
    insecure_seed: int | None = None,
) -> PaidScore:
    """Score a fitted model on rows that it has not seen, with noise.

    Guarantee
    ---------
    One Gaussian release: the number of correct predictions, or the sum of squared errors, each at most half the
    target's range. It protects the held-out people with its own epsilon and is charged to the ledger in full; no
    parallel composition with the fit is claimed.
    """
    n = len(X)
    relation = Neighbours.parse(neighbours)
    budget = Budget(epsilon, default_delta(n) if delta is None else delta)
    if isinstance(model, SavedRegressor):
        half = model.target_range.half_width or 1.0
        target, ends, weights = (
            model.target_range.scaled(np.asarray(y, np.float64)),
            (-1.0, 1.0),
            _weights(model) / half,
        )
        if model.coef_.ndim == 1:
            weights[-1] -= model.target_range.centre / half
        query: Any = SquaredErrors(weights)
    else:
        assert isinstance(model, SavedClassifier)
        codes = np.minimum(np.searchsorted(model.classes_, y), len(model.classes_) - 1)
        if not (model.classes_[codes] == y).all():
            raise InvalidData("the held-out rows contain a label that the model does not know.")
        target, ends = codes.astype(np.float64), (0.0, len(model.classes_) - 1.0)
        query = CorrectPredictions(_weights(model))
    data = DesignData(DesignMatrix.from_array(X, model.scaling, 1.0), target, *ends)
    calibrated = calibrate(Plan((PlannedRelease(query.name, "gaussian", 1),)), budget)
    noise = GaussianNoise(calibrated.noise_multiplier(query.name))
    scale = noise.noise_scale(query.sensitivity(data.facts, relation), query.bound(data.facts), 1)
    source = RandomSource(insecure_seed)
    unbounded = None if source.secure else "insecure_seed makes the noise reproducible"
    purpose = f"score of {model.estimator} on held-out rows"
    books = ledger if ledger is not None else Ledger(neighbours=relation)
    with Scope(calibrated, books, relation, purpose, unbounded=unbounded) as scope:
        total = float(DataHolder(data, scope, source, relation).release(query, noise)[0])
    ends95 = [total / n + sign * 1.96 * scale / n for sign in (0.0, -1.0, 1.0)]
    if isinstance(model, SavedRegressor):
        value, worse, better = (model.target_range.half_width * math.sqrt(min(max(0.5 - e, 0.0), 1.0)) for e in ends95)
        return PaidScore("root mean squared error", value, better, worse, budget, n)
    value, low, high = (min(max(0.5 + e, 0.0), 1.0) for e in ends95)
    return PaidScore("accuracy", value, low, high, budget, n)


def _weights(model: SavedModel) -> NDArray[np.float64]:
    """Weights of the scaled design, the constant last: shape (d,), or (d, K) for several outputs."""
    coef = np.atleast_2d(model.coef_)
    constant = np.atleast_1d(model.intercept_) + coef @ model.scaling.centre
    whole = np.vstack([(coef * model.scaling.scale).T, constant])
    return whole[:, 0] if whole.shape[1] == 1 else whole
