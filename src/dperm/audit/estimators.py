"""dperm's own estimators as audited functions: the claim from their plan, and ``fit`` in a worker process."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

import dperm
from dperm.audit.claim import Claim
from dperm.audit.pool import Subject
from dperm.audit.tables import PublicFacts
from dperm.data.design.bounds import Bounds
from dperm.errors import DpermError, InvalidInput
from dperm.estimators.central.base import PrivateLinearModel, prepare_fit
from dperm.estimators.local.fit import LocalFit
from dperm.privacy.accounting.budget import default_delta

__all__ = ["ESTIMATORS", "OwnSubject", "make_estimator", "make_fit", "own_subject"]

#: estimators that can be audited by name: all public ones
ESTIMATORS = tuple(name for name in dperm.__all__ if hasattr(getattr(dperm, name), "fit"))
_CLASSIFIERS = tuple(name for name in ESTIMATORS if issubclass(getattr(dperm, name), ClassifierMixin))
#: estimators of statistics, which have no target
_QUERIES = tuple(name for name in ESTIMATORS if "y" not in signature(getattr(dperm, name).fit).parameters)
#: what DPTuner searches unless --set says otherwise: three candidates that give different models
_SEARCHED = {"strength": [1e-3, 1e-1, 10.0]}
#: settings that the audit makes itself
_OWN_SETTINGS = ("epsilon", "delta", "bounds", "neighbours", "ledger")


@dataclass(frozen=True)
class OwnSubject:
    """An estimator of dperm, ready to be audited."""

    subject: Subject
    claim: Claim
    facts: PublicFacts
    name: str


def own_subject(
    name: str, settings: Mapping[str, Any], facts: PublicFacts, epsilon: float, delta: float | None, neighbours: str
) -> OwnSubject:
    """Return the subject and the claim of an estimator; the claim is that of its plan, at every epsilon.

    Parameters
    ----------
    name : str
        One of :data:`ESTIMATORS`.
    settings : mapping
        Parameters of the estimator beyond budget, bounds and neighbours.
    """
    for key in _OWN_SETTINGS:
        if key in settings:
            raise InvalidInput(f"--set {key} is not possible: the audit sets it from its own options.")
    if "insecure_seed" in settings:
        raise InvalidInput("with insecure_seed there is no claim to audit: the noise repeats.")
    if neighbours == "add-remove":
        raise InvalidInput("dperm's estimators claim replace-one or zero-out neighbours, not add-remove.")
    if name == "DPTuner":
        settings, audited = _search_settings(settings, facts)
    else:
        audited = name
    if audited in _CLASSIFIERS and facts.classes is None:
        raise InvalidInput(f"{audited} predicts classes: leave out --target-range.")
    if audited not in _CLASSIFIERS and facts.classes is not None:
        facts = PublicFacts(facts.n_rows, facts.n_features, facts.feature_range, None, facts.target_range)
    if name == "Marginals":  # records are bits
        facts = PublicFacts(facts.n_rows, facts.n_features, (0.0, 1.0), None, facts.target_range)
    local = name in _QUERIES or issubclass(getattr(dperm, name), LocalFit)
    used_delta = 0.0 if local else default_delta(facts.n_rows) if delta is None else delta
    arguments: dict[str, Any] = {
        "name": name,
        "settings": dict(settings),
        "facts": facts.to_dict(),
        "epsilon": epsilon,
        "delta": used_delta,
        "neighbours": neighbours,
    }
    model = make_estimator(**arguments)
    claim = Claim(epsilon, used_delta, neighbours)
    if isinstance(model, PrivateLinearModel) and not local:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepared = prepare_fit(model, facts.n_rows, facts.n_features)
        if prepared.unbounded is not None:
            raise InvalidInput(f"{name} with these settings claims nothing: {prepared.unbounded}")
        claim = Claim.of_event(prepared.calibrated.event, epsilon, used_delta, neighbours)
    shown = "".join(f", {key}={value!r}" for key, value in settings.items())
    # the local model asks for products of columns: wide tables take long, and queries are about declared columns
    subject = Subject("dperm.audit.estimators", "make_fit", arguments=arguments, any_width=not local, local=local)
    return OwnSubject(subject, claim, facts, f"{name}(epsilon={epsilon:g}{shown})")


def _search_settings(settings: Mapping[str, Any], facts: PublicFacts) -> tuple[dict[str, Any], str]:
    """Return the settings of a search with its defaults filled in, and the name of the estimator that it tunes."""
    tuned = settings.get("estimator", "DPLinearRegression" if facts.classes is None else "DPLogisticRegression")
    public = {one: getattr(dperm, one) for one in ESTIMATORS}
    known = [
        one for one, cls in public.items() if issubclass(cls, PrivateLinearModel) and not issubclass(cls, LocalFit)
    ]
    if tuned not in known:
        raise InvalidInput(f"--set estimator must name one of {', '.join(known)}, not {tuned!r}.")
    return {"parameters": _SEARCHED, **settings, "estimator": tuned}, tuned


def make_fit(**arguments: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return ``fit(X, y)`` of an estimator, for a worker: the released vector and the fitted model beside it."""

    def fit(X: Any, y: Any) -> tuple[Any, Any]:
        model = make_estimator(**arguments)
        if arguments["name"] in _QUERIES:
            model.fit(X)
        else:
            model.fit(X, y)
        if hasattr(model, "counts_"):  # the local model releases every report: its counts are sufficient
            return np.concatenate([model.counts_.n, model.counts_.ones.ravel()]), model
        released = getattr(model, "best_estimator_", model)
        return np.concatenate([np.ravel(released.coef_), np.ravel(released.intercept_)]), model

    return fit


def make_estimator(
    name: str, settings: dict[str, Any], facts: dict[str, Any], epsilon: float, delta: float, neighbours: str
) -> Any:
    """Return a new estimator with the public facts of the audit as bounds."""
    if name == "DPTuner":
        # the search sets the budget; the tuned estimator keeps its defaults
        inner = _unfitted(settings["estimator"], {"bounds": _bounds(facts)})
        return _unfitted(
            name, settings | {"estimator": inner, "epsilon": epsilon, "delta": delta, "neighbours": neighbours}
        )
    made: dict[str, Any] = {"epsilon": epsilon}
    if name == "Marginals":
        made |= {"n_bits": facts["features"], "k": min(2, facts["features"]), "n_people": facts["rows"]}
    elif name == "SmoothQueries":
        low, high = facts["feature_range"]
        made |= {"low": [low] * facts["features"], "high": [high] * facts["features"]}
    else:
        made["bounds"] = _bounds(facts)
        if issubclass(getattr(dperm, name), LocalFit):
            made["refuse_hopeless"] = False  # an audit needs noise, not a useful model
        else:
            made |= {"delta": delta, "neighbours": neighbours}
    return _unfitted(name, made | settings)


def _bounds(facts: dict[str, Any]) -> Bounds:
    classes = facts["classes"]
    target = {"classes": classes} if classes is not None else {"target": tuple(facts["target_range"])}
    return Bounds(features=tuple(facts["feature_range"]), **target)


def _unfitted(name: str, settings: dict[str, Any]) -> Any:
    try:
        return getattr(dperm, name)(**settings)
    except DpermError:
        raise
    except TypeError as error:
        known = inspect.signature(getattr(dperm, name)).parameters
        unknown = [key for key in settings if key not in known]
        if not unknown:
            raise InvalidInput(f"{name} does not take these settings: {error}.") from None
        has = ", ".join(key for key in known if key not in _OWN_SETTINGS)
        raise InvalidInput(f"{name} has no setting {', '.join(unknown)}; it has {has}.") from None
