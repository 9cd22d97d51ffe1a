"""Checks of weights, step lengths and bounds per weight, shared by penalties, constraints and the objective.

Weights are public or already released, so their values may be checked and shown. General checks of parameters are in
:mod:`dperm.validation`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dperm.errors import InvalidInput
from dperm.types import FloatArray
from dperm.validation import non_negative

__all__ = ["Bound", "Step", "bounds", "per_row", "step_length", "weights"]

Bound: TypeAlias = float | tuple[float, ...]
Step: TypeAlias = float | FloatArray


def _bound(name: str, value: Any) -> Bound:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a number or a sequence of numbers, got {value!r}.") from None
    if array.ndim > 1 or array.size == 0 or np.isnan(array).any():
        raise InvalidInput(f"{name} must be a number or a non-empty sequence of numbers, got {value!r}.")
    return float(array) if array.ndim == 0 else tuple(array.tolist())


def bounds(low: Any, high: Any) -> tuple[Bound, Bound]:
    """Return a lower and an upper bound, each a float or one float per row of the weights."""
    low, high = _bound("low", low), _bound("high", high)
    if isinstance(low, tuple) and isinstance(high, tuple) and len(low) != len(high):
        raise InvalidInput(f"low and high must have the same length, got {len(low)} and {len(high)}.")
    if np.any(np.asarray(low) > np.asarray(high)):
        raise InvalidInput(f"low must not be above high, got low={low!r} and high={high!r}.")
    return low, high


def per_row(bound: Bound, w: FloatArray) -> FloatArray:
    """Return a bound in a shape that broadcasts against the weights ``w``."""
    array = np.asarray(bound, dtype=np.float64)
    if array.ndim == 1:
        if len(array) != len(w):
            raise InvalidInput(f"the bounds are for {len(array)} weights and w has {len(w)}.")
        array = array.reshape((-1,) + (1,) * (w.ndim - 1))
    return array


def weights(w: ArrayLike, name: str = "w") -> FloatArray:
    """Return weights as a finite float64 array of shape (d,) or (d, K), d at least 1."""
    array = np.asarray(w, dtype=np.float64)
    if array.ndim not in (1, 2) or array.size == 0:
        raise InvalidInput(f"{name} must have shape (d,) or (d, K) and not be empty, got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise InvalidInput(f"{name} must be finite, got NaN or infinity.")
    return array


def step_length(step: Any, w: FloatArray, *, per_weight: bool) -> Step:
    """Return a step as a float, or as an array of the shape of ``w`` where ``per_weight`` allows that."""
    if np.ndim(step) == 0:
        return non_negative("step", step[()] if isinstance(step, np.ndarray) else step)
    if not per_weight:
        raise InvalidInput("step must be one number, because this term couples the weights.")
    array = np.asarray(step, dtype=np.float64)
    if array.shape != w.shape:
        raise InvalidInput(f"step must be a number or have the shape {w.shape} of w, got shape {array.shape}.")
    if not np.isfinite(array).all() or (array < 0.0).any():
        raise InvalidInput("step must be finite and 0 or more everywhere.")
    return array
