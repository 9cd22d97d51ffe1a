"""Exports a linear model as an ONNX graph, the clipping of rows included.

Input ``X``, doubles of shape (n, p). A regression gives ``prediction`` (n,); a classifier gives ``label`` (n,) and
``scores``, and one with probabilities ``probabilities`` (n, K) too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

import dperm
from dperm.atomic_files import write_atomically
from dperm.errors import InvalidInput, MissingDependency
from dperm.estimators.persistence.prediction import column_limits
from dperm.estimators.persistence.saved import SavedClassifier, SavedModel, SavedProbabilities, SavedRegressor

__all__ = ["export"]

_OPSET = 18
_IR_VERSION = 9  # the oldest that knows this operator set, so that older runtimes can read it


class _Graph:
    """Nodes and constants of a graph under construction; every operation returns the name of its result."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        """Put an array into the graph."""
        array = np.asarray(value)
        name = f"c{len(self.constants)}"
        if array.dtype.kind in "UO":
            kind = self._onnx.TensorProto.STRING
            made = self._onnx.helper.make_tensor(name, kind, array.shape, [str(v).encode() for v in array.ravel()])
        else:
            made = self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        self.constants.append(made)
        return name

    def add(self, operation: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """Add a node."""
        name = out or f"v{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(operation, list(inputs), [name], **attributes))
        return name


def export(model: SavedModel, path: str | os.PathLike[str]) -> Path:
    """Write ``model`` as an ONNX file, whole or not at all."""
    try:
        import onnx
        import onnx.checker
    except ImportError:
        raise MissingDependency("ONNX export needs the package onnx: pip install 'dperm[onnx]'.") from None
    graph, types = _Graph(onnx), onnx.TensorProto
    scores = _scores(graph, model)
    outputs: list[tuple[str, int, list[Any]]] = []
    if isinstance(model, SavedRegressor):
        low, high = model.target_range.low, model.target_range.high
        clipped = graph.add("Min", graph.add("Max", scores, graph.constant(low)), graph.constant(high))
        graph.add("Squeeze", clipped, graph.constant(np.array([1])), out="prediction")
        outputs.append(("prediction", types.DOUBLE, ["n"]))
    elif isinstance(model, SavedClassifier):
        outputs += _classes(graph, model, scores, types)
    made = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            model.estimator,
            [onnx.helper.make_tensor_value_info("X", types.DOUBLE, ["n", model.n_features_in_])],
            [onnx.helper.make_tensor_value_info(*output) for output in outputs],
            graph.constants,
        ),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="dperm",
        producer_version=dperm.__version__,
    )
    onnx.checker.check_model(made, full_check=True)
    return write_atomically(path, made.SerializeToString())


def _scores(graph: _Graph, model: SavedModel) -> str:
    """Linear scores, shape (n, K), as :func:`linear_scores` computes them."""
    scaling, coef = model.scaling, np.atleast_2d(model.coef_)
    intercept = np.atleast_1d(model.intercept_)
    low, high = column_limits(scaling)
    row = graph.add("Min", graph.add("Max", "X", graph.constant(low)), graph.constant(high))
    scores = graph.add("MatMul", row, graph.constant(coef.T))
    if scaling.row_norm is None:
        return graph.add("Add", scores, graph.constant(intercept))
    middle = scaling.centre @ coef.T
    inverse = np.divide(1.0, scaling.scale, out=np.zeros_like(scaling.scale), where=scaling.scale > 0.0)
    scaled = graph.add("Mul", graph.add("Sub", row, graph.constant(scaling.centre)), graph.constant(inverse))
    squares = graph.add("ReduceSum", graph.add("Mul", scaled, scaled), graph.constant(np.array([1])), keepdims=1)
    length = graph.add("Max", graph.add("Sqrt", squares), graph.constant(np.finfo(np.float64).tiny))
    factor = graph.add("Min", graph.add("Div", graph.constant(scaling.row_norm), length), graph.constant(1.0))
    shrunk = graph.add("Mul", factor, graph.add("Sub", scores, graph.constant(middle)))
    return graph.add("Add", shrunk, graph.constant(intercept + middle))


def _classes(graph: _Graph, model: SavedClassifier, scores: str, types: Any) -> list[tuple[str, int, list[Any]]]:
    """Labels, scores and probabilities; returns name, type and shape of each."""
    n_classes, kind = len(model.classes_), model.classes_.dtype.kind
    labels = {"U": types.STRING, "O": types.STRING, "b": types.BOOL, "f": types.DOUBLE}.get(kind, types.INT64)
    if kind == "O" and not all(isinstance(label, str) for label in model.classes_):
        raise InvalidInput("labels must be text, numbers or true and false to be written as ONNX.")
    stored = model.classes_ if labels == types.STRING else model.classes_.astype({"b": bool, "f": float}.get(kind, int))
    if n_classes == 2:
        flat = graph.add("Squeeze", scores, graph.constant(np.array([1])), out="scores")
        codes = graph.add("Cast", graph.add("Greater", flat, graph.constant(0.0)), to=types.INT64)
    else:
        graph.add("Identity", scores, out="scores")
        codes = graph.add("ArgMax", scores, axis=1, keepdims=0)
    graph.add("Gather", graph.constant(stored), codes, out="label")
    shape: list[Any] = ["n"] if n_classes == 2 else ["n", n_classes]
    outputs = [("label", labels, ["n"]), ("scores", types.DOUBLE, shape)]
    if isinstance(model, SavedProbabilities):
        if n_classes == 2:
            second = graph.add("Sigmoid", scores)
            first = graph.add("Sub", graph.constant(1.0), second)
            graph.add("Concat", first, second, axis=1, out="probabilities")
        elif model.one_vs_rest:
            each = graph.add("Sigmoid", scores)
            total = graph.add("ReduceSum", each, graph.constant(np.array([1])), keepdims=1)
            graph.add("Div", each, total, out="probabilities")
        else:
            graph.add("Softmax", scores, axis=1, out="probabilities")
        outputs.append(("probabilities", types.DOUBLE, ["n", n_classes]))
    return outputs
