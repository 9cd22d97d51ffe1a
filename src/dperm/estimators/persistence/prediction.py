"""Predicts with a linear model; estimators and saved models share it, so that both give the same bits.

A new row is treated like the rows of the training data: clipped to the bounds, and scaled down if it is longer than a
declared ``row_norm``. Both use public numbers that are part of the model, so a prediction costs no privacy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dperm.data.design.matrix import Scaling
from dperm.data.tables.row_source import RowSource
from dperm.objective import Logistic, Multinomial
from dperm.types import FloatArray

__all__ = ["class_codes", "class_probabilities", "column_limits", "linear_scores"]


def linear_scores(X: Any, coef: FloatArray, intercept: FloatArray, scaling: Scaling) -> FloatArray:
    """Return the scores of every row, shape (n, K), for ``coef`` of shape (K, p) in the user's units.

    >>> scaling = Scaling(np.array([5.0]), np.array([5.0]), 1.0)
    >>> linear_scores(np.array([[2.0], [99.0]]), np.array([[1.0]]), np.array([0.5]), scaling).ravel().tolist()
    [2.5, 10.5]
    """
    if isinstance(X, RowSource):
        return np.concatenate([linear_scores(block, coef, intercept, scaling) for block in X.blocks()])
    coef = np.ascontiguousarray(coef)
    low, high = column_limits(scaling)
    if sp.issparse(X):
        stored, base = _clipped_sparse(X, low, high)
        scores = np.asarray(stored @ coef.T) + base @ coef.T
    else:
        stored, base = np.ascontiguousarray(np.clip(X, low, high)), np.zeros(len(low))
        scores = stored @ coef.T
    if scaling.row_norm is None:
        return scores + intercept
    middle = scaling.centre @ coef.T
    return _row_factors(stored, base, scaling)[:, None] * (scores - middle) + (intercept + middle)


def class_codes(scores: FloatArray) -> NDArray[np.intp]:
    """Return the position of the predicted class of every row."""
    return (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)


def class_probabilities(scores: FloatArray, one_vs_rest: bool) -> FloatArray:
    """Return the probability of every class; those of one-vs-rest problems are divided by their sum."""
    if scores.ndim == 1:
        second = Logistic().inverse_link(scores)
        return np.column_stack([1.0 - second, second])
    if not one_vs_rest:
        return Multinomial(scores.shape[1]).inverse_link(scores)
    each = Logistic().inverse_link(scores.ravel()).reshape(scores.shape)
    total = each.sum(axis=1, keepdims=True)
    out = np.full_like(each, 1.0 / scores.shape[1])  # where no class has any probability, all are equally likely
    np.divide(each, total, out=out, where=total > 0.0)
    return out


def column_limits(scaling: Scaling) -> tuple[FloatArray, FloatArray]:
    """Return the bounds to which every column is clipped, in the user's units."""
    with np.errstate(over="ignore"):  # an overflow is no limit
        reach = scaling.scale * scaling.clip
        return scaling.centre - reach, scaling.centre + reach


def _clipped_sparse(X: Any, low: FloatArray, high: FloatArray) -> tuple[Any, FloatArray]:
    """Return the clipped entries minus the clipped zero of their column, and those zeros: the matrix stays sparse."""
    base = np.clip(0.0, low, high)
    out = sp.csr_array(X, copy=True)
    out.sum_duplicates()
    out.data = np.clip(out.data, low[out.indices], high[out.indices]) - base[out.indices]
    return out, base


def _row_factors(stored: Any, base: FloatArray, scaling: Scaling) -> FloatArray:
    """Return the factors that shorten scaled rows to the declared norm."""
    divisor = np.where(scaling.scale > 0.0, scaling.scale, np.inf)
    origin = (base - scaling.centre) / divisor
    if sp.issparse(stored):
        squares = stored.copy()
        moved = stored.data / divisor[stored.indices]
        squares.data = moved * (moved + 2.0 * origin[stored.indices])
        total = np.asarray(squares.sum(axis=1)).ravel() + origin @ origin
    else:
        total = np.square(stored / divisor + origin).sum(axis=1)
    lengths = np.sqrt(np.maximum(total, 0.0))
    assert scaling.row_norm is not None
    return scaling.row_norm / np.maximum(lengths, scaling.row_norm)  # an empty row stays as it is
