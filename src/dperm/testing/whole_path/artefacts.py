"""Everything that can be taken out of a fitted model: attributes, predictions, pickle, files, report and page."""

from __future__ import annotations

import inspect
import pickle
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dperm.errors import MissingDependency
from dperm.reporting.page import report_page

__all__ = ["everything_about"]


def everything_about(model: Any, folder: Path) -> dict[str, Any]:
    """Return all that a model shows, and write into ``folder`` all files that it can write."""
    report = model.privacy_report_
    found = {
        "attributes": vars(model),
        "public names": _public_names(model),
        "classes": {f"{cls.__module__}.{cls.__qualname__}": _values_of(cls) for cls in type(model).__mro__},
        "predictions": _predictions(model),
        "printed": repr(model),
        "pickle": pickle.dumps(model),
        "report": {
            "data": report.to_dict(),
            "JSON": report.to_json(),
            "summary": report.summary(),
            "printed": repr(report),
            "page": report_page(report),
        },
    }
    if hasattr(model, "save"):
        model.save(folder / "model.json")
    if hasattr(model, "to_onnx"):
        try:
            model.to_onnx(folder / "model.onnx")
        except MissingDependency:  # an optional package: dperm's own tests install it
            found["onnx"] = None
    return found


def _public_names(model: Any) -> dict[str, Any]:
    """Return every public attribute that is no method: also properties, and what a class or ``__getattr__`` gives."""
    found = {name: getattr(model, name, None) for name in dir(model) if not name.startswith("_")}
    return {name: value for name, value in found.items() if not callable(value)}


def _values_of(cls: type) -> dict[str, Any]:
    """Return the values that a class holds, which all of its models share."""
    return {
        name: value
        for name, value in vars(cls).items()
        if not (name.startswith("__") or name == "_abc_impl" or callable(value) or inspect.isdatadescriptor(value))
        and not isinstance(value, staticmethod | classmethod)
    }


def _predictions(model: Any) -> dict[str, Any]:
    """Return what a model predicts for a few fixed rows."""
    n_columns = getattr(model, "n_features_in_", None)
    methods = [name for name in ("predict", "predict_proba", "decision_function") if hasattr(model, name)]
    if n_columns is None or not methods:
        return {}
    rows: Any = np.cos(np.arange(5.0 * n_columns)).reshape(5, n_columns)  # any numbers do, if all tables have the same
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        rows = import_module("pandas").DataFrame(rows, columns=names)
    return {name: getattr(model, name)(rows) for name in methods}
