"""Greedy scores, and gradient sums kept up to date on sparse designs, compiled.

A score is one scalar function of a coordinate's gradient, weight and public numbers, made of correctly rounded IEEE
operations, so it is the same wherever it is computed.

A step on one coordinate changes the slopes of the rows in which that coordinate is not zero, and through them the sums
of the columns that those rows touch. All numbers are whole, so adding new and subtracting old products leaves exactly
the sum of a full pass.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dperm.kernels.compiling import kept_njit
from dperm.types import FloatArray

__all__ = ["LARGEST_DECREASE", "LARGEST_VIOLATION", "LONGEST_STEP", "column_scores", "update_sums"]


LARGEST_VIOLATION, LONGEST_STEP, LARGEST_DECREASE = 0, 1, 2


@kept_njit(nogil=True)
def _score(
    gradient: float, weight: float, root: float, curvature: float, penalty: tuple[float, float, float, float], rule: int
) -> float:
    """Score of one penalised coordinate; ``penalty`` is (l1, l2, low, high)."""
    l1, l2, low, high = penalty
    boxed = low > -math.inf or high < math.inf
    gradient = gradient + l2 * weight
    if l1 == 0.0 and not boxed:
        return abs(gradient) / root
    if weight == 0.0:
        if boxed:
            return root * abs(min(max(gradient / -curvature, low), high))
        # without cutting off at zero: coordinates below the threshold keep their order, at the same sensitivity
        return (abs(gradient) - l1) / root
    if rule == LARGEST_VIOLATION and not boxed:
        return abs(gradient + math.copysign(l1, weight)) / root
    target = weight - gradient / curvature
    moved = min(max(math.copysign(max(abs(target) - 1.0 / curvature * l1, 0.0), target), low), high)
    step = moved - weight
    if rule != LARGEST_DECREASE:
        return root * abs(step)
    decrease = -(gradient * step + 0.5 * curvature * step * step + l1 * (abs(moved) - abs(weight)))
    return math.sqrt(2.0 * max(decrease, 0.0))


@kept_njit(nogil=True)
def column_scores(
    columns: Any,
    gradients: FloatArray,
    factor: float,
    weights: FloatArray,
    roots: FloatArray,
    curvature: FloatArray,
    free: Any,
    penalty: Any,
    rule: int,
) -> FloatArray:
    """Scores of some columns, whose mean gradients are ``gradients * factor``.

    ``curvature`` and its ``roots`` hold one number for each column or one for all; ``free`` marks columns without
    penalty.
    """
    out = np.empty(columns.size)
    each = 1 if curvature.size > 1 else 0
    for i in range(columns.size):
        j = columns[i]
        gradient, root = gradients[j] * factor, roots[j * each]
        if free[j]:
            out[i] = abs(gradient) / root
        else:
            out[i] = _score(gradient, weights[j], root, curvature[j * each], penalty, rule)
    return out


@kept_njit(nogil=True)
def update_sums(
    rows: Any,
    old: FloatArray,
    new: FloatArray,
    data: FloatArray,
    indices: Any,
    indptr: Any,
    limits: FloatArray,
    sums: FloatArray,
    stamp: Any,
    mark: int,
    touched: Any,
    n_touched: int,
) -> int:
    """Replace the slopes ``old`` of ``rows`` by ``new`` in ``sums`` (matrix by rows); return how many columns changed.

    The first entries of ``touched`` are the changed columns, each once, after the ``n_touched`` that were there before;
    ``stamp`` remembers them by ``mark``. ``limits`` holds one number for each column or one for all.
    """
    each = 1 if limits.size > 1 else 0
    for position in range(rows.size):
        before, after = old[position], new[position]
        if before == after:
            continue
        row = rows[position]
        for k in range(indptr[row], indptr[row + 1]):
            column = indices[k]
            limit = limits[column * each]
            value = data[k]
            sums[column] += min(max(value * after, -limit), limit) - min(max(value * before, -limit), limit)
            if stamp[column] != mark:
                stamp[column] = mark
                touched[n_touched] = column
                n_touched += 1
    return n_touched
