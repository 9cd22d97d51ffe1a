"""The models that a collection can estimate from its counts, with error bars."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dperm.data.design.bounds import Bounds
from dperm.errors import InvalidInput, Unsupported
from dperm.estimators.local.linear_models import LocalLinearRegression, LocalLogisticRegression
from dperm.estimators.local.queries import Marginals, QueryAnswer, SmoothQueries
from dperm.solvers.local import Counts, Task
from dperm.solvers.local.theta_grid import ThetaGridTask

__all__ = ["MODELS", "SHRINKAGE", "Model", "interval_answer", "model_of"]

#: half the width of a 95 % interval, in standard deviations
_Z95 = 1.959963984540054
#: explains why an estimate may lie outside its own interval
SHRINKAGE = (
    "the estimates are shrunk towards 0 together, by an amount that follows from the known noise, which makes them "
    "more accurate on average, although a single one may grow; an interval is not shrunk: its centre is the unshrunk "
    "value, and the estimate may lie outside it"
)


class Model(ABC):
    """A model with its public parameters: the task that people answer, and the estimate from its counts."""

    kind: ClassVar[str]
    task: Task
    #: makes the task from public parameters
    _build: Callable[..., None]

    def __init__(self, public: Mapping[str, Any]) -> None:
        self.public = dict(public)
        try:
            self._build(**{key: value for key, value in self.public.items() if key != "kind"})
        except TypeError:
            raise InvalidInput(f"the description of a {self.kind} model has wrong or missing parts.") from None

    @abstractmethod
    def fit(self, counts: Counts) -> dict[str, Any]:
        """Return the estimate as plain data; raises ``Unsupported`` if the reports are too few."""

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """Names of a person's values, without the target."""

    @property
    def target(self) -> dict[str, Any]:
        """What a form needs for the target: ``classes`` or ``range``; empty if there is no target."""
        return {}

    def summary(self) -> str:
        """Return in a few words what is estimated."""
        return f"{self.kind} of {', '.join(self.columns)}"


class _CoefficientModel(Model):
    """A model with a coefficient for each column."""

    estimator: Any

    def _bounds(self, bounds: Mapping[str, Any], **more: Any) -> Bounds:
        given: dict[str, Any] = {
            key: np.asarray(value) if isinstance(value, list) else value for key, value in bounds.items()
        }
        if "features" in given:
            low, high = bounds["features"]
            given["features"] = (np.asarray(low, np.float64), np.asarray(high, np.float64))
        return Bounds(**given, **more)

    def _names(self, names: Sequence[str]) -> None:
        self._columns = _distinct(names)
        self.task = self.estimator.task(len(self._columns), self._columns)

    @property
    def columns(self) -> list[str]:
        return self._columns

    def fit(self, counts: Counts) -> dict[str, Any]:
        fitted = self.estimator.fit_counts(counts, len(self._columns), self._columns)
        ends = fitted.intervals_
        # an interval is symmetric around the unshrunk value
        unshrunk = None if ends is None else np.asarray(ends).mean(axis=-1).tolist()
        return {
            "names": [*self._columns, "intercept"],
            "coef": np.asarray(fitted.coef_).tolist(),
            "intercept": np.asarray(fitted.intercept_).tolist(),
            "intervals": None if ends is None else np.asarray(ends).tolist(),
            "intervals_reason": fitted.intervals_reason_,
            "unshrunk": unshrunk,
            "shrinkage": None if ends is None else SHRINKAGE,
            "confidence": fitted.confidence,
            "kept": np.asarray(fitted.kept_).tolist(),
            "degree": fitted.degree_,
        }


class LogisticModel(_CoefficientModel):
    """Logistic regression; see :class:`dperm.LocalLogisticRegression`."""

    kind = "logistic"

    def _build(self, names: Sequence[str], bounds: Mapping[str, Any], classes: Sequence[Any], **given: Any) -> None:
        self.estimator = LocalLogisticRegression(bounds=self._bounds(bounds, classes=list(classes)), **given)
        self._names(names)

    @property
    def target(self) -> dict[str, Any]:
        assert self.task.inputs is not None
        return {"classes": self.task.inputs["classes"]}

    def fit(self, counts: Counts) -> dict[str, Any]:
        return {**super().fit(counts), "classes": self.target["classes"]}

    def summary(self) -> str:
        return f"logistic regression of {' or '.join(map(str, self.target['classes']))} on {', '.join(self.columns)}"


class LinearModel(_CoefficientModel):
    """Least squares; see :class:`dperm.LocalLinearRegression`."""

    kind = "linear"

    def _build(self, names: Sequence[str], bounds: Mapping[str, Any], target: Sequence[float], **given: Any) -> None:
        low, high = target
        self.estimator = LocalLinearRegression(bounds=self._bounds(bounds, target=(low, high)), **given)
        self._names(names)

    @property
    def target(self) -> dict[str, Any]:
        assert self.task.inputs is not None
        return {"range": self.task.inputs["target"]}

    def summary(self) -> str:
        low, high = self.target["range"]
        return f"least squares of a number from {low:g} to {high:g} on {', '.join(self.columns)}"


class MarginalsModel(Model):
    """Shares of people with given values of a few yes-or-no columns; see :class:`dperm.Marginals`."""

    kind = "marginals"

    def _build(self, columns: Sequence[str], epsilon: float, k: int, n_people: int) -> None:
        self._columns = _distinct(columns)
        self.queries = Marginals(epsilon, n_bits=len(self._columns), k=k, n_people=n_people)
        self.task = self.queries.task

    @property
    def columns(self) -> list[str]:
        return self._columns

    def fit(self, counts: Counts) -> dict[str, Any]:
        self.queries.fit_counts(counts)
        shares = [self.queries.query([column]) for column in range(len(self._columns))]
        return {"names": self._columns, "shares": [interval_answer(one, 0.0, 1.0) for one in shares]}

    def query(self, counts: Counts, wanted: Mapping[str, int]) -> dict[str, Any]:
        """Return the share of people whose named columns hold these values."""
        unknown = [name for name in wanted if name not in self._columns]
        if unknown:
            raise InvalidInput(f"there is no column {unknown[0]!r}: the columns are {', '.join(self._columns)}.")
        self.queries.fit_counts(counts)
        found = self.queries.query([self._columns.index(name) for name in wanted], list(wanted.values()))
        return interval_answer(found, 0.0, 1.0)


class SmoothModel(Model):
    """Means of smooth functions; those of the columns are shown. See :class:`dperm.SmoothQueries`."""

    kind = "smooth"

    def _build(
        self, columns: Sequence[str], epsilon: float, low: list[float], high: list[float], n_degrees: int, decay: float
    ) -> None:
        self._columns = _distinct(columns)
        self.queries = SmoothQueries(epsilon, low=low, high=high, n_degrees=n_degrees, decay=decay)
        self.task = self.queries.task

    @property
    def columns(self) -> list[str]:
        return self._columns

    def fit(self, counts: Counts) -> dict[str, Any]:
        self.queries.fit_counts(counts)
        means = [
            interval_answer(self.queries.query(lambda x, k=k: x[:, k]), self.queries.low[k], self.queries.high[k])  # type: ignore[misc]
            for k in range(len(self._columns))
        ]
        return {"names": self._columns, "means": means}


class ThetaGridModel(Model):
    """A smooth loss of one to three weights; a person's record is the label, -1 or 1, times the features."""

    kind = "theta-grid"

    def _build(self, epsilon: float, loss: str, n_parameters: int, bound: float, degree: int = 2) -> None:
        self._grid = ThetaGridTask(loss, epsilon, n_parameters, bound, degree)
        self.task = self._grid.task

    @property
    def columns(self) -> list[str]:
        return [f"a{k}" for k in range(1, self._grid.n_parameters + 1)]

    def fit(self, counts: Counts) -> dict[str, Any]:
        if (counts.n == 0).any():
            raise Unsupported("no report has arrived for some of the questions: more reports are needed.")
        weights, found = self._grid.estimate(counts)
        reason = "a theta-grid has no intervals"
        return {"weights": weights.tolist(), "gap": float(found.gap), "intervals": None, "intervals_reason": reason}


#: every kind of model a collection can have
MODELS: dict[str, type[Model]] = {
    one.kind: one for one in (LogisticModel, LinearModel, MarginalsModel, SmoothModel, ThetaGridModel)
}


def model_of(public: Any) -> Model:
    """Return the model that the plain data of a description name."""
    kind = public.get("kind") if isinstance(public, Mapping) else None
    if kind not in MODELS:
        raise InvalidInput(f"the model must be one of {', '.join(MODELS)}, not {kind!r}.")
    return MODELS[kind](public)


def _distinct(names: Sequence[str]) -> list[str]:
    out = [str(name) for name in names]
    if len(set(out)) < len(out):
        raise InvalidInput("columns must have different names.")
    return out


def interval_answer(answer: QueryAnswer, low: float, high: float) -> dict[str, Any]:
    """Return an answer as plain data; its interval covers the bound on the bias, and stays in the public range."""
    if not math.isfinite(answer.deviation):
        raise Unsupported("there are no reports yet: more reports are needed.")
    reach = _Z95 * answer.deviation + answer.bias
    return {
        "value": min(high, max(low, answer.value)),
        "deviation": answer.deviation,
        "bias": answer.bias,
        "interval": [min(high, max(low, end)) for end in (answer.value - reach, answer.value + reach)],
    }
