"""Scores a model on held-out rows, with noise and at a cost in epsilon."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dperm.data.executors.executor import PlacedData, TargetView
from dperm.data.executors.placing import place
from dperm.data.executors.target_rules import ScaledTarget
from dperm.data.holding.holder import DataHolder
from dperm.data.tables.frames import plain_labels
from dperm.data.tables.target_source import TargetSource, rows_and_named_target, target_source
from dperm.errors import InvalidData
from dperm.estimators.central.base import PrivateLinearModel
from dperm.estimators.central.data_checks import fingerprint_of, one_entry_per_cell
from dperm.estimators.central.fit import SEEDED
from dperm.estimators.central.request import NUMBERS, PreparedFit
from dperm.estimators.central.target_checks import KnownCodes, ScoredNumbers, in_numbers
from dperm.estimators.persistence.saved import SavedClassifier, SavedModel, SavedRegressor
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.budget import Budget, default_delta
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.events import Composed, Event
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.queries import CorrectPredictions, SquaredErrors
from dperm.reporting.report import PrivacyReport
from dperm.types import FloatArray

__all__ = ["PaidScore", "fingerprints_of_fit_and_score", "paid_score", "plans_of_fit_and_score", "report_with_score"]


@dataclass(frozen=True)
class PaidScore:
    """A score with noise.

    Attributes
    ----------
    kind : str
        ``"accuracy"``, or ``"root mean squared error"`` in the target's unit.
    value, low, high : float
        The score, and its interval of 95% probability for the noise; the sampling error of few rows is not included.
    budget : Budget
        Its cost; charged to the same data set as the fit.
    """

    kind: str
    value: float
    low: float
    high: float
    budget: Budget
    n: int


def paid_score(
    model: SavedModel,
    X: Any,
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
    X, y = rows_and_named_target(X, y, model.feature_names_in_)
    X = one_entry_per_cell(model.checked(X))
    n = int(X.shape[0])
    if n == 0:
        raise InvalidData("there are no held-out rows to score.")
    given = _target(model, y, X)
    relation = Neighbours.parse(neighbours)
    budget = Budget(epsilon, default_delta(n) if delta is None else delta)
    if isinstance(model, SavedRegressor):
        half = model.target_range.half_width or 1.0
        view, weights = TargetView(-1.0, 1.0, ScaledTarget(model.target_range)), _weights(model) / half
        if model.coef_.ndim == 1:
            weights[-1] -= model.target_range.centre / half
        query: Any = SquaredErrors(weights)
    else:
        assert isinstance(model, SavedClassifier)
        view = TargetView(0.0, len(model.classes_) - 1.0)
        query = CorrectPredictions(_weights(model))
    data = PlacedData(place(X, given, model.scaling, 1.0), view)
    calibrated = _plan(query.name, budget)
    noise = GaussianNoise(calibrated.noise_multiplier(query.name))
    scale = noise.noise_scale(query.sensitivity(data.facts, relation), query.bound(data.facts), 1)
    source = RandomSource(insecure_seed)
    unbounded = None if source.secure else SEEDED
    purpose = f"score of {model.estimator} on held-out rows"
    charged = ledger if ledger is not None else Ledger(neighbours=relation)
    known = fingerprint_of(ledger, X, given)  # as in a fit: rows charged under another name are recognised
    with Scope(calibrated, charged, relation, purpose, fingerprint=known, unbounded=unbounded) as scope:
        total = float(DataHolder(data, scope, source, relation).release(query, noise)[0])
    ends95 = [total / n + sign * 1.96 * scale / n for sign in (0.0, -1.0, 1.0)]
    if isinstance(model, SavedRegressor):
        value, worse, better = (model.target_range.half_width * math.sqrt(min(max(0.5 - e, 0.0), 1.0)) for e in ends95)
        return PaidScore("root mean squared error", value, better, worse, budget, n)
    value, low, high = (min(max(0.5 + e, 0.0), 1.0) for e in ends95)
    return PaidScore("accuracy", value, low, high, budget, n)


def _plan(query: str, budget: Budget) -> CalibratedPlan:
    return calibrate(Plan((PlannedRelease(query, "gaussian", 1),)), budget)


def plans_of_fit_and_score(prepared: PreparedFit, *, held_out: int, epsilon: float) -> tuple[Event, Event]:
    """Return what a prepared fit and a paid score on ``held_out`` rows will be charged for."""
    query = SquaredErrors.name if prepared.request.target == NUMBERS else CorrectPredictions.name
    score = _plan(query, Budget(epsilon, default_delta(held_out)))
    return prepared.calibrated.event, score.event


def fingerprints_of_fit_and_score(
    estimator: PrivateLinearModel, rows: tuple[Any, Any], held_out: tuple[Any, Any], ledger: Ledger
) -> tuple[str | None, str | None]:
    """Return the fingerprints by which a ledger will recognise the rows of a fit and those of its paid score."""
    data = copy.copy(estimator)._training_data(*rows).canonical()
    target = held_out[1] if data.classes is None else np.searchsorted(data.classes, held_out[1])
    return (
        data.fingerprint(ledger),
        fingerprint_of(ledger, held_out[0], np.asarray(target, np.float64)),
    )


def report_with_score(report: PrivacyReport, score: PaidScore, plans: tuple[Event, Event]) -> PrivacyReport:
    """Return the report of a fit with the paid score of its model added."""
    delta = report.planned.delta
    public = {key: value for key, value in asdict(score).items() if key != "budget"}
    public |= {"epsilon": score.budget.epsilon, "delta": score.budget.delta}
    public["epsilon_together"] = composition.upper_epsilon(Composed(plans), delta)[0]
    return replace(report, score=public)


def _target(model: SavedModel, y: Any, X: Any) -> FloatArray | TargetSource:
    """Return one finite number, or the code of its class, for every row; errors show no value."""
    rule = KnownCodes(model.classes_) if isinstance(model, SavedClassifier) else ScoredNumbers()
    kept, n = target_source(y, X), int(X.shape[0])
    given = np.asarray(plain_labels(y)) if kept is None else kept
    if given.shape != ((n,) if kept is None else (n, 1)):
        raise InvalidData(f"y must be a list with one value for each of the {n} held-out rows.")
    numbers: FloatArray | TargetSource = in_numbers(given, rule)
    return numbers


def _weights(model: SavedModel) -> FloatArray:
    """Weights of the scaled design, the constant last: shape (d,), or (d, K) for several outputs."""
    coef = np.atleast_2d(model.coef_)
    constant = np.atleast_1d(model.intercept_) + coef @ model.scaling.centre
    whole = np.vstack([(coef * model.scaling.scale).T, constant])
    return whole[:, 0] if whole.shape[1] == 1 else whole
