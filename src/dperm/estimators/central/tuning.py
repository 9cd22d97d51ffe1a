"""Hyperparameter search that is paid for from the privacy budget."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dperm.errors import InvalidBounds, InvalidInput
from dperm.estimators.central.base import PrivateLinearModel, check_ledger, check_seed
from dperm.estimators.central.data_checks import TrainingData
from dperm.estimators.central.fit import FitResult
from dperm.estimators.central.plan import SearchSummary
from dperm.estimators.central.request import NUMBERS, FitRequest
from dperm.estimators.central.search import SearchPlan, SearchRun, naming, plan_search
from dperm.estimators.ledger_sharing import LedgerSharing
from dperm.estimators.local.fit import LocalFit
from dperm.privacy.accounting.budget import Budget, default_delta
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.randomness import RandomSource
from dperm.reporting.report import NOT_COVERED
from dperm.validation import is_finite_number

__all__ = ["DPTuner"]

LIST_PUBLIC = "the list of candidates does not come from these data"
SEARCH_NOT_COVERED = "the running time of the search, from which its number of runs can be guessed"

Method = TypeVar("Method", bound=Callable[..., Any])

#: parameters of an estimator that a search sets itself
_OWN = ("epsilon", "delta", "neighbours", "ledger", "insecure_seed")


def _has(method: str) -> Callable[[Method], Method]:
    """Make a method available only where the tuned estimator has it."""
    made: Callable[[Method], Method] = available_if(
        lambda self: hasattr(getattr(self, "best_estimator_", self.estimator), method)
    )
    return made


class DPTuner(LedgerSharing, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Searches parameters of a private estimator; the whole search stays within epsilon.

    Makes a random number of independent runs, each of which draws a candidate uniformly from the public list, fits it
    and scores it on the training rows with noise; releases the model of the best run, and nothing of the others
    (Papernot & Steinke 2022, arXiv 2110.03620; Liu & Talwar 2019, arXiv 1811.07971). The number of runs is
    geometric. Noise is calibrated beforehand to the epsilon of the whole search, which costs far less than
    releasing a fit of every candidate.

    Parameters
    ----------
    estimator : a private estimator of dperm
        The estimator to tune; leave its budget, neighbours, ledger and seed at their defaults and give them here.
    parameters : dict, or list of dicts
        Candidates: for each parameter the values to try, in every combination.
    epsilon : float
        Privacy budget of the whole search, the released model included.
    delta : float, optional
        min(1e-5, 1/n^2) by default.
    expected_runs : float, optional
        Mean of the number of runs, above 1; twice the number of candidates by default. More runs cost privacy slowly.
    score_share : float
        Part of a run's budget (in rho) that pays for its score.
    neighbours : {"replace-one", "zero-out"}
        Which two data sets are compared: one record replaced by any other, or by an empty one.
    ledger : Ledger, optional
        Where the budget is charged; in memory if None. Shared, never copied, by ``clone``.
    insecure_seed : int, optional
        Reproducible noise for tests; the result then has no guarantee.

    Attributes
    ----------
    best_estimator_ : estimator
        The model of the best run, with the report of the search.
    best_params_ : dict
        Its parameters.
    privacy_report_ : PrivacyReport
        What was released, and the guarantee that follows; its releases are those of the best run.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    **Guarantee.**
    Released to everyone who sees the result: the best run's model, its parameters and what its plan lists; no scores,
    not the number of runs, and nothing of the other runs. Covers one person's whole record under the chosen
    neighbours, at the epsilon of the whole search. Assumes what the estimator assumes, and a list of candidates that
    does not come from the data. The running time of the search is not covered.

    Examples
    --------
    >>> import numpy as np
    >>> from dperm import Bounds, DPLogisticRegression, DPTuner
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 3)); y = X[:, 0] > 0
    >>> model = DPLogisticRegression(bounds=Bounds(features=(-1, 1)))
    >>> tuner = DPTuner(model, {"strength": [1e-4, 1e-2, 10.0]}, epsilon=4.0).fit(X, y)
    >>> tuner.privacy_report_.guarantee.epsilon <= 4.0
    True
    >>> tuner.best_params_["strength"] in (1e-4, 1e-2, 10.0)
    True
    """

    def __init__(
        self,
        estimator: Any,
        parameters: Any,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        expected_runs: float | None = None,
        score_share: float = 0.1,
        neighbours: str = "replace-one",
        ledger: Any = None,
        insecure_seed: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.parameters = parameters
        self.epsilon = epsilon
        self.delta = delta
        self.expected_runs = expected_runs
        self.score_share = score_share
        self.neighbours = neighbours
        self.ledger = ledger
        self.insecure_seed = insecure_seed

    # ---------------------------------------------------------------------------------- the search
    def fit(self, X: Any, y: Any) -> Self:
        """Search, and keep the best model; see the class for what is released."""
        settings = self._settings()
        models = [self._model(params) for params in settings]
        data, requests = self._data_and_requests(X, y, list(zip(map(_named, settings), models, strict=True)))
        plan = self._plan(settings, requests, *data.X.shape)
        index, result = SearchRun(plan, data, RandomSource(self.insecure_seed)).search()
        best = models[index]
        best._adopt(data, _with_the_search(result, plan, settings))
        self.best_estimator_, self.best_params_ = best, settings[index]
        self.privacy_report_ = best.privacy_report_
        self.n_features_in_ = best.n_features_in_
        for name in ("classes_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(best, name):
                setattr(self, name, getattr(best, name))
        return self

    def _data_and_requests(
        self, X: Any, y: Any, models: list[tuple[str, PrivateLinearModel]]
    ) -> tuple[TrainingData, list[FitRequest]]:
        """Check the data once and the parameters of every candidate."""
        name, first = models[0]
        with naming(name):
            data = first._training_data(X, y).canonical()
        requests = []
        for name, model in models:
            with naming(name):
                for attribute in ("n_features_in_", "feature_names_in_"):
                    if hasattr(first, attribute):
                        setattr(model, attribute, getattr(first, attribute))
                model._check_parameters()
                model._refuse_undeclared(data.X.shape[1], getattr(model, "feature_names_in_", None), data.boolean)
                request = model._request_for(data)
                requests.append(replace(request, assumptions=(*request.assumptions, LIST_PUBLIC)))
        _refuse_other_targets(requests)
        return data, requests

    def plan(self, n: int, n_features: int, n_classes: int | None = None) -> SearchSummary:
        """Return what a search would release, before any data are touched.

        Parameters
        ----------
        n, n_features : int
            Number of rows and columns; public.
        n_classes : int, optional
            Number of classes; that of declared ``Bounds(classes=...)``, else 2.
        """
        settings = self._settings()
        requests = []
        for params in settings:
            with naming(_named(params)):
                requests.append(self._model(params)._public_request(n, n_features, n_classes))
        _refuse_other_targets(requests)
        return self._plan(settings, requests, int(n), int(n_features)).summary()

    def _plan(self, settings: list[dict[str, Any]], requests: list[FitRequest], n: int, n_features: int) -> SearchPlan:
        budget = Budget(self.epsilon, default_delta(n) if self.delta is None else self.delta)
        runs = 2.0 * len(settings) if self.expected_runs is None else float(self.expected_runs)
        named = [(_named(one), request) for one, request in zip(settings, requests, strict=True)]
        return plan_search(named, n, n_features, budget, runs, float(self.score_share))

    # ---------------------------------------------------------------------------------- checks
    def _settings(self) -> list[dict[str, Any]]:
        """Refuse bad parameters before the data are looked at; return the candidates."""
        if not isinstance(self.estimator, PrivateLinearModel) or isinstance(self.estimator, LocalFit):
            raise InvalidInput(
                f"estimator must be a private estimator of dperm, such as DPLogisticRegression(), not "
                f"{type(self.estimator).__name__}."
            )
        Budget(self.epsilon, 1e-6 if self.delta is None else self.delta)
        Neighbours.parse(self.neighbours)
        check_ledger(self.ledger)
        check_seed(self.insecure_seed)
        if self.expected_runs is not None and not (is_finite_number(self.expected_runs) and self.expected_runs > 1.0):
            raise InvalidInput(f"expected_runs must be a finite number above 1, not {self.expected_runs!r}.")
        if not (is_finite_number(self.score_share) and 0.0 < self.score_share < 1.0):
            raise InvalidInput(f"score_share must be strictly between 0 and 1, not {self.score_share!r}.")
        self._refuse_inner_budget()
        settings = _combinations(self.parameters)
        known = set(self.estimator.get_params(deep=False))
        for name in dict.fromkeys(name for one in settings for name in one):
            if name in (*_OWN, "calibration", "verbose"):
                raise InvalidInput(f"{name} cannot be searched: give it to DPTuner or leave it at its default.")
            if name not in known:
                raise InvalidInput(f"{type(self.estimator).__name__} has no parameter {name!r} to search.")
        if len(settings) < 2:
            raise InvalidInput("one candidate leaves nothing to search: list two or more, or fit the estimator itself.")
        return settings

    def _refuse_inner_budget(self) -> None:
        """Refuse an estimator whose own budget, neighbours, ledger or seed differ from those of the search."""
        defaults = type(self.estimator)()
        for name in _OWN:
            inner = getattr(self.estimator, name)
            if inner is not getattr(self, name) and inner != getattr(defaults, name) and inner != getattr(self, name):
                raise InvalidInput(
                    f"{name} belongs to the search: give {name} to DPTuner and leave the estimator's at its default."
                )
        if self.estimator.calibration != "certified":
            raise InvalidInput("a search needs calibration='certified': printed noise carries no guarantee.")

    def _model(self, params: dict[str, Any]) -> PrivateLinearModel:
        """Return the unfitted estimator of a candidate, with the budget and ledger of this search."""
        own = {name: getattr(self, name) for name in _OWN}
        model: PrivateLinearModel = clone(self.estimator).set_params(**params, **own)
        return model

    # ---------------------------------------------------------------------------------- the model
    def _best(self) -> Any:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def predict(self, X: Any) -> Any:
        """Return the best model's predictions."""
        return self._best().predict(X)

    @_has("decision_function")
    def decision_function(self, X: Any) -> Any:
        """Return the best model's scores."""
        return self._best().decision_function(X)

    @_has("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Return the best model's probabilities."""
        return self._best().predict_proba(X)

    @_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of :meth:`predict_proba`."""
        return self._best().predict_log_proba(X)

    def score(self, X: Any, y: Any) -> float:
        """Return the best model's score on other data, without noise: accuracy or R2."""
        return float(self._best().score(X, y))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the best model as one JSON file that :func:`dperm.load` reads; its report is that of the search."""
        return Path(self._best().save(path))

    def to_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write the best model as an ONNX file; needs the extra ``dperm[onnx]``."""
        return Path(self._best().to_onnx(path))

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.target_tags, tags.input_tags = inner.target_tags, inner.input_tags
        tags.non_deterministic = self.insecure_seed is None
        return tags


def _combinations(parameters: Any) -> list[dict[str, Any]]:
    """Return every combination of the values listed."""
    grids = [parameters] if isinstance(parameters, Mapping) else parameters
    if not isinstance(grids, list | tuple) or not grids or not all(isinstance(one, Mapping) and one for one in grids):
        raise InvalidInput(
            "parameters must name what is searched and list its values, as in {'strength': [1e-4, 1e-2]}."
        )
    for grid in grids:
        for name, values in grid.items():
            if not isinstance(name, str) or not isinstance(values, list | tuple | np.ndarray) or len(values) == 0:
                raise InvalidInput(f"parameters must list at least one value for {name!r}, as in {{{name!r}: [...]}}.")
    return list(ParameterGrid([dict(one) for one in grids]))


def _named(params: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in params.items())


def _refuse_other_targets(requests: list[FitRequest]) -> None:
    """Refuse candidates whose scores cannot be compared."""
    first = requests[0].bounds
    if requests[0].target == NUMBERS and any(one.bounds.target is None for one in requests):
        raise InvalidBounds(
            "a search compares errors in units of the target's range, which must be declared: write "
            "bounds=Bounds(..., target=(lo, hi))."
        )
    for one in requests:
        same_classes = (one.bounds.classes is None) == (first.classes is None) and (
            first.classes is None or list(one.bounds.classes or ()) == list(first.classes)
        )
        if one.bounds.target != first.target or not same_classes:
            raise InvalidBounds("all candidates must declare the same target range or classes.")


def _with_the_search(result: FitResult, plan: SearchPlan, settings: list[dict[str, Any]]) -> FitResult:
    """Add the search to the report: only facts that were public before it began."""
    described = {
        "method": "best of a geometric number of runs, scored on the training rows with noise",
        "expected_runs": plan.expected_runs,
        "candidates": [{name: _plain(value) for name, value in one.items()} for one in settings],
    }
    report = replace(
        result.report,
        public={**result.report.public, "search": described},
        not_covered=(*NOT_COVERED, SEARCH_NOT_COVERED),
    )
    return replace(result, report=report)


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else repr(value)
