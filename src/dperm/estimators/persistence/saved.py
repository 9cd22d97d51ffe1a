"""Saves a fitted model as one JSON file, and loads it without solvers or scikit-learn.

``estimator.save(path)`` writes it, :func:`load` reads it back as a :class:`SavedModel` that predicts the same bits. The
file holds only what is released anyway: coefficients, public bounds, names, classes and the privacy report.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import dperm
from dperm.atomic_files import write_atomically
from dperm.data.design.matrix import Scaling
from dperm.data.design.target_range import TargetRange
from dperm.data.schema.schema import Schema
from dperm.data.schema.schema_file import parse_schema, schema_to_dict
from dperm.data.tables.files import TableFile
from dperm.data.tables.frames import column_names, non_finite_message, not_numbers_error, plain_matrix
from dperm.data.tables.row_source import RowSource, row_source
from dperm.errors import InvalidData, InvalidInput
from dperm.estimators.persistence.prediction import class_codes, class_probabilities, linear_scores
from dperm.reporting.report import PrivacyReport
from dperm.types import FloatArray

__all__ = ["SavedClassifier", "SavedModel", "SavedProbabilities", "SavedRegressor", "load"]

FORMAT = "dperm model"
FORMAT_NUMBER = 1


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A fitted linear model: predicts, and cannot be fitted again.

    Attributes are named as in scikit-learn: ``coef_`` and ``intercept_`` in the user's units, ``n_features_in_``,
    ``feature_names_in_`` (None without names), ``privacy_report_``; ``estimator`` is the class that fitted it and
    ``version`` the dperm that saved it.
    """

    estimator: str
    coef_: FloatArray
    intercept_: FloatArray | float
    scaling: Scaling = field(repr=False)
    privacy_report_: PrivacyReport = field(repr=False)
    feature_names_in_: NDArray[Any] | None = field(default=None, repr=False)
    version: str = dperm.__version__
    #: how raw tables become the columns of the model, where it was fitted with a schema
    schema: Schema | None = field(default=None, repr=False, kw_only=True)

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        return self.scaling.n_features

    def checked(self, X: Any) -> Any:
        """Return ``X`` as a finite array or sparse matrix of the right width; errors show no value."""
        X = self._by_schema(X)
        source = row_source(X, self.feature_names_in_)
        names = column_names(X) if source is None else source.names
        fitted = self.feature_names_in_
        if names is not None and fitted is not None and names != fitted.tolist():
            raise InvalidData("The feature names should match those of the training data, in the same order.")
        table = _plain(X) if source is None else source
        if len(table.shape) != 2:
            raise InvalidData("X must have two dimensions, and X.reshape(-1, 1) makes one column of a list.")
        if table.shape[1] != self.n_features_in_:
            raise InvalidData(f"X has {table.shape[1]} features, but the model expects {self.n_features_in_}.")
        bad = None if isinstance(table, RowSource) else non_finite_message(table, names)
        if bad is not None:
            raise InvalidData(bad)
        return table

    def _by_schema(self, X: Any) -> Any:
        """Encode a file or a table with the raw columns of the schema; return anything else unchanged."""
        if self.schema is None:
            return X
        names = list(X) if isinstance(X, dict) else column_names(X)
        raw = {column.name for column in self.schema.used} <= set(names or ())
        if not isinstance(X, TableFile) and not raw and (names is None or names == self.schema.encoded_names):
            return X
        return self.schema.encode(X).X  # names a column that is missing

    def scores(self, X: Any) -> FloatArray:
        """Return the linear scores of a checked ``X``: shape (n,), or (n, K) for several outputs."""
        out = linear_scores(X, np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_), self.scaling)
        return out.ravel() if out.shape[1] == 1 else out

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model as one JSON file, whole or not at all."""
        return write_atomically(path, json.dumps(self._to_dict(), indent=1, allow_nan=False) + "\n")

    def to_onnx(self, path: str | os.PathLike[str]) -> Path:
        """Write the model as an ONNX file; needs the extra ``dperm[onnx]``."""
        from dperm.estimators.persistence.onnx_export import export

        return export(self, path)

    def _to_dict(self) -> dict[str, Any]:
        names = self.feature_names_in_
        if not (np.isfinite(self.coef_).all() and np.isfinite(self.intercept_).all()):
            raise InvalidInput("a model whose coefficients are not all finite cannot be saved.")
        return {
            "format": FORMAT,
            "format_number": FORMAT_NUMBER,
            "version": self.version,
            "kind": _KINDS[type(self)],
            "estimator": self.estimator,
            "coef": self.coef_.tolist(),
            "intercept": np.asarray(self.intercept_).tolist(),
            "scaling": {
                "centre": self.scaling.centre.tolist(),
                "scale": self.scaling.scale.tolist(),
                "clip": self.scaling.clip,
                "row_norm": self.scaling.row_norm,
                "spread": self.scaling.spread,
            },
            "feature_names": None if names is None else [str(name) for name in names],
            **({} if self.schema is None else {"schema": schema_to_dict(self.schema)}),
            **self._own_parts(),
            "report": json.loads(self.privacy_report_.to_json()),
        }

    def _own_parts(self) -> dict[str, Any]:
        """Return the entries that only this kind of model has in the file."""
        return {}

    @classmethod
    def _own_fields(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Inverse of :meth:`_own_parts`."""
        return {}


@dataclass(frozen=True, eq=False)
class SavedRegressor(SavedModel):
    """A saved regression; predictions are clipped to the target's public bounds."""

    target_range: TargetRange = field(kw_only=True)

    def predict(self, X: Any) -> FloatArray:
        """Return the predicted number of every row."""
        return self.target_range.clip(self.scores(self.checked(X)))

    def _own_parts(self) -> dict[str, Any]:
        return {"target": [self.target_range.low, self.target_range.high]}

    @classmethod
    def _own_fields(cls, data: dict[str, Any]) -> dict[str, Any]:
        low, high = data["target"]
        return {"target_range": TargetRange(float(low), float(high))}


@dataclass(frozen=True, eq=False)
class SavedClassifier(SavedModel):
    """A saved classifier that gives scores."""

    classes_: NDArray[Any] = field(kw_only=True)

    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores; positive means the second class in the binary case."""
        return self.scores(self.checked(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of every row."""
        return self.classes_[class_codes(self.decision_function(X))]

    def _own_parts(self) -> dict[str, Any]:
        return {"classes": {"type": _label_type(self.classes_), "labels": self.classes_.tolist()}}

    @classmethod
    def _own_fields(cls, data: dict[str, Any]) -> dict[str, Any]:
        kind, labels = data["classes"]["type"], data["classes"]["labels"]
        if kind not in _LABEL_TYPES.values() or len(labels) < 2:
            raise ValueError
        return {"classes_": np.array(labels, dtype=kind)}


@dataclass(frozen=True, eq=False)
class SavedProbabilities(SavedClassifier):
    """A saved classifier that gives probabilities."""

    one_vs_rest: bool = field(default=False, kw_only=True)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of every label."""
        return class_probabilities(self.decision_function(X), self.one_vs_rest)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _own_parts(self) -> dict[str, Any]:
        return {**super()._own_parts(), "one_vs_rest": self.one_vs_rest}

    @classmethod
    def _own_fields(cls, data: dict[str, Any]) -> dict[str, Any]:
        return {**super()._own_fields(data), "one_vs_rest": bool(data["one_vs_rest"])}


_KINDS: dict[type[SavedModel], str] = {
    SavedRegressor: "regression",
    SavedClassifier: "classification",
    SavedProbabilities: "classification with probabilities",
}

_LABEL_TYPES = {"b": "bool", "i": "int64", "u": "uint64", "f": "float64", "U": "str", "O": "object"}


def _label_type(classes: NDArray[Any]) -> str:
    plain = all(isinstance(label, str | bool | int | float) for label in classes.tolist())
    if classes.dtype.kind not in _LABEL_TYPES or not plain:
        raise InvalidInput("only labels that are text, numbers or true and false can be saved.")
    return _LABEL_TYPES[classes.dtype.kind]


def _plain(X: Any) -> Any:
    refused = None
    try:
        table = plain_matrix(X)
        return sp.csr_array(table, dtype=np.float64) if sp.issparse(table) else np.asarray(table, np.float64)
    except InvalidData:
        raise
    except (TypeError, ValueError):
        refused = not_numbers_error(X)
    raise refused  # outside the except block: an error's context would keep the values that its sentence hides


def load(path: str | os.PathLike[str]) -> SavedModel:
    """Read a model that ``save`` wrote; it predicts what the fitted estimator predicted.

    Only numbers and text are read, no code is run, and neither solvers nor scikit-learn are loaded.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"the model {os.fspath(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise InvalidInput(f"{os.fspath(path)!r} is not a dperm model: it is not JSON, or damaged.") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidInput(f"{os.fspath(path)!r} is not a dperm model.")
    if data.get("format_number") != FORMAT_NUMBER:
        raise InvalidInput(
            f"{os.fspath(path)!r} has format number {data.get('format_number')!r}, and this dperm reads "
            f"{FORMAT_NUMBER} only: use the version of dperm that wrote it."
        )
    try:
        return _parse(data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise InvalidInput(
            f"the model {os.fspath(path)!r} is damaged: a part is missing or of the wrong type."
        ) from None


def _parse(data: dict[str, Any]) -> SavedModel:
    maker = {name: kind for kind, name in _KINDS.items()}[data["kind"]]
    parts = data["scaling"]
    row_norm = parts["row_norm"]
    scaling = Scaling(
        _finite(parts["centre"]),
        _finite(parts["scale"]),
        float(parts["clip"]),
        None if row_norm is None else float(row_norm),
        float(parts["spread"]),
    )
    coef, intercept, names = _finite(data["coef"]), _finite(data["intercept"]), data["feature_names"]
    own = maker._own_fields(data)
    n_outputs = 1
    if "classes_" in own:
        n_outputs = len(own["classes_"]) if len(own["classes_"]) > 2 else 1
    wanted = (scaling.n_features,) if maker is SavedRegressor else (n_outputs, scaling.n_features)
    fits = coef.shape == wanted and intercept.size == n_outputs and scaling.scale.shape == scaling.centre.shape
    if not fits or (names is not None and len(names) != scaling.n_features):
        raise ValueError
    return maker(
        estimator=str(data["estimator"]),
        coef_=coef,
        intercept_=float(intercept) if intercept.ndim == 0 else intercept,
        scaling=scaling,
        privacy_report_=PrivacyReport.from_json(json.dumps(data["report"])),
        feature_names_in_=None if names is None else np.array([str(name) for name in names], dtype=object),
        version=str(data["version"]),
        schema=parse_schema(data["schema"]) if "schema" in data else None,
        **own,
    )


def _finite(values: Any) -> FloatArray:
    array = np.asarray(values, np.float64)
    if not np.isfinite(array).all():
        raise ValueError
    return array
