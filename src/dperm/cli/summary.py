"""Summarises a fit: for people, as JSON, and on the report page."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dperm.data.schema.schema import BOOLEAN, NUMBER, Column, Target
from dperm.estimators.central.scoring import PaidScore
from dperm.estimators.persistence.prediction import column_limits
from dperm.estimators.persistence.saved import SavedClassifier, SavedModel
from dperm.privacy.ledger import Spent
from dperm.reporting.page import ABOUT_EFFECTS, report_page
from dperm.reporting.report import noisy_score

__all__ = ["OwnersScore", "budget_sentence", "effects", "page_of", "score_sentence", "summary_data", "summary_rows"]

#: most effects that are printed
_MOST = 8
#: letters of a list of categories on the page
_LONGEST = 80


@dataclass(frozen=True)
class OwnersScore:
    """A score without noise on held-out rows: for the owner of the data only, written nowhere."""

    kind: str
    value: float
    n: int
    #: score of the best single prediction for everybody, for comparison
    one_value: float

    @classmethod
    def of(cls, model: SavedModel, X: Any, y: Any) -> OwnersScore:
        """Score a model."""
        predicted = model.predict(X)  # type: ignore[attr-defined]
        if isinstance(model, SavedClassifier):
            most = np.unique(y, return_counts=True)[1].max() / len(y)
            return cls("accuracy", float(np.mean(predicted == y)), len(y), float(most))
        error = math.sqrt(float(np.mean((predicted - y) ** 2)))
        return cls("root mean squared error", error, len(y), float(np.std(y)))


def _effects(model: SavedModel) -> list[tuple[str, float]]:
    """Return the change of the score (or prediction) over each column's whole range, the largest first."""
    low, high = column_limits(model.scaling)
    if model.schema is not None:  # indicators go from 0 to 1
        ends = [column.range for column in model.schema.used for _ in column.encoded_names]
        low, high = (np.array(end) for end in zip(*ends, strict=True))
    over = np.atleast_2d(model.coef_) * (high - low)
    largest = np.abs(over).argmax(axis=0)
    names = model.feature_names_in_ if model.feature_names_in_ is not None else range(model.n_features_in_)
    found = []
    for j, name in enumerate(names):
        several = over.shape[0] > 1 and isinstance(model, SavedClassifier)
        label = f" (for {model.classes_[largest[j]]})" if several else ""  # type: ignore[attr-defined]
        found.append(
            (f"{name}{label}" if model.feature_names_in_ is not None else f"column {name}", over[largest[j], j])
        )
    return sorted(found, key=lambda pair: -abs(pair[1]))


def effects(model: SavedModel) -> tuple[list[tuple[str, str]], str]:
    """Return the largest effects as texts, and what they mean."""
    found = [(name, f"{value:+.3g}") for name, value in _effects(model) if value]
    count = f"The {_MOST} largest of {len(found):,} effects. " if len(found) > _MOST else ""
    return found[:_MOST], f"{count}{ABOUT_EFFECTS}"


def page_of(model: SavedModel) -> str:
    """Return the report page of a saved model."""
    report = model.privacy_report_
    target = None if model.schema is None else model.schema.target.name
    title = "Privacy report" if target is None else f"Privacy report: {target}"
    return report_page(
        report,
        title=title,
        model=_description(model),
        weights=[one for one in _effects(model) if one[1]],
        columns=None if model.schema is None else len(model.schema.used),
        declared=_declared(model),
    )


def _declared(model: SavedModel) -> list[tuple[str, str]]:
    """Return what is declared public about each column, the target first."""
    if model.schema is not None:
        parts: tuple[Column | Target, ...] = (model.schema.target, *model.schema.used)
        names = [f"{part.name} (target)" if part is parts[0] else part.name for part in parts]
        return list(zip(names, map(_declared_as, parts), strict=True))
    if model.feature_names_in_ is None:
        return []
    ends = zip(*column_limits(model.scaling), strict=True)
    return [
        (str(name), f"{low:.4g} to {high:.4g}") for name, (low, high) in zip(model.feature_names_in_, ends, strict=True)
    ]


def _declared_as(part: Column | Target) -> str:
    if part.kind == NUMBER:
        return f"{part.low:g} to {part.high:g}"
    if part.kind == BOOLEAN:
        return "true or false"
    labels = [str(one) for one in (part.classes if isinstance(part, Target) else part.categories)]
    shown = labels[:1]
    while len(shown) < len(labels) and len(", ".join(labels[: len(shown) + 1])) <= _LONGEST:
        shown = labels[: len(shown) + 1]
    cut = [one if len(one) <= _LONGEST else f"{one[:_LONGEST]}..." for one in shown]
    more = f" and {len(labels) - len(shown)} more" if len(labels) > len(shown) else ""
    return ", ".join(cut) + more


def _description(model: SavedModel) -> str:
    target = "" if model.schema is None else f" predicting {model.schema.target.name!r}"
    columns = model.n_features_in_ if model.schema is None else len(model.schema.used)
    n = model.privacy_report_.public.get("records")
    people = "" if n is None else f" of {n:,} people"
    encoded = f", {model.n_features_in_} after encoding," if columns != model.n_features_in_ else ""
    return f"{model.estimator}{target} from {columns} column{'s' if columns != 1 else ''}{encoded}{people}"


def summary_rows(model: SavedModel, score: PaidScore | OwnersScore | None, written: list[str]) -> list[tuple[str, str]]:
    """Return labelled sentences; none of them depends on what the ledger recognised."""
    report = model.privacy_report_
    guarantee = report.guarantee
    promise = f"No guarantee: {report.reason}" if guarantee is None else guarantee.sentence()
    rows = [("Model", _description(model)), ("Guarantee", promise), ("Data set", str(report.ledger["dataset"]))]
    rows.append(("Score", score_sentence(score)))
    rows.append(("Written", ", ".join(written)))
    return rows


def score_sentence(score: PaidScore | OwnersScore | None) -> str:
    """Return a sentence about the score on held-out rows."""
    if score is None:
        return "not measured; --test-fraction 0.2 holds rows out for it"

    if isinstance(score, PaidScore):
        noisy = noisy_score(score.kind, score.value, score.low, score.high, score.n)
        return f"{noisy}; paid for with epsilon {score.budget.epsilon:g}"

    def shown(value: float) -> str:
        return f"{value:.1%}" if score.kind == "accuracy" else f"{value:.4g}"

    return (
        f"{score.kind} {shown(score.value)} on {score.n:,} held-out people (predicting one value for all: "
        f"{shown(score.one_value)}). NOT PRIVATE: shown here only, written to no file; --test-epsilon pays for a score "
        "that may be published"
    )


def budget_sentence(spent: Spent, other_name: str | None = None, address: str | None = None) -> str:
    """Return a sentence about what is spent on a data set and what is left, for its owner only."""
    name, uses = spent.dataset, "1 use" if spent.n_fits == 1 else f"{spent.n_fits} uses"
    text = f"data set {name!r} has {uses}: epsilon {spent.epsilon:.4g} at delta {spent.delta:.2g} spent so far"
    if spent.cap is None:
        where = [] if address is None else ["--ledger", address]
        text += f", no cap (`{shlex.join(['dperm', 'ledger', 'cap', *where, name])} --epsilon E` sets one)"
    else:
        assert spent.used is not None
        text += f", {spent.used:.0%} of its cap of epsilon {spent.cap.budget.epsilon:g}"
        text += (
            f", room for one more fit of about epsilon {spent.fits_epsilon:.3g}"
            if spent.fits_epsilon
            else ", none left"
        )
    if other_name is not None:
        text += f". These data were given as {other_name!r}; the ledger knows them as {name!r}"
    return text


def summary_data(model: SavedModel, score: PaidScore | OwnersScore | None, written: list[str]) -> dict[str, Any]:
    """Return the same as plain data for JSON."""
    guarantee = model.privacy_report_.guarantee
    found = None
    if score is not None:
        found = {**asdict(score), "private": isinstance(score, PaidScore)}
    return {
        "estimator": model.estimator,
        "guarantee": None if guarantee is None else guarantee.to_dict(),
        "reason": model.privacy_report_.reason,
        "ledger": model.privacy_report_.ledger,
        "score": found,
        "written": written,
        "effects": dict(_effects(model)),
    }
