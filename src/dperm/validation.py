"""Checks of public parameters, shared by all packages; each error states the refused value and what is expected.

Use these for parameters only: the message shows the refused value, so it must never be a private one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from numbers import Real
from typing import Any, TypeGuard

import numpy as np

from dperm.errors import InvalidInput

__all__ = [
    "finite",
    "indices",
    "is_finite_number",
    "is_number",
    "is_whole",
    "non_negative",
    "positive",
    "whole",
]


def is_number(value: Any) -> TypeGuard[float]:
    """Whether ``value`` is a real number; True and False are not.

    >>> is_number(2), is_number(float("inf")), is_number(True), is_number("2")
    (True, True, False, False)
    """
    return isinstance(value, Real | np.integer | np.floating) and not isinstance(value, bool | np.bool_)


def is_finite_number(value: Any) -> TypeGuard[float]:
    """Whether ``value`` is a real number that is neither infinite nor NaN."""
    return is_number(value) and math.isfinite(value)


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether ``value`` is of an integer type; 2.0 is not, because a count of 2.5 must not pass by rounding.

    >>> is_whole(2), is_whole(np.int32(2)), is_whole(2.0), is_whole(True)
    (True, True, False, False)
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def finite(name: str, value: Any) -> float:
    """Return ``value`` as a float; refuse what is not a finite number."""
    if not is_finite_number(value):
        raise InvalidInput(f"{name} must be a finite number, got {value!r}.")
    return float(value)


def positive(name: str, value: Any) -> float:
    """Return ``value`` as a finite float above zero."""
    number = finite(name, value)
    if number <= 0.0:
        raise InvalidInput(f"{name} must be above 0, got {value!r}.")
    return number


def non_negative(name: str, value: Any) -> float:
    """Return ``value`` as a finite float that is zero or more."""
    number = finite(name, value)
    if number < 0.0:
        raise InvalidInput(f"{name} must be 0 or more, got {value!r}.")
    return number


def whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return ``value`` as an int within its limits."""
    if not is_whole(value) or value < least or (most is not None and value > most):
        limits = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise InvalidInput(f"{name} must be a whole number {limits}, got {value!r}.")
    return int(value)


def indices(name: str, values: Iterable[Any]) -> tuple[int, ...]:
    """Return distinct, non-negative indices as a tuple of int."""
    try:
        result = tuple(operator.index(value) for value in values)
    except TypeError:
        raise InvalidInput(f"{name} must be a sequence of integer indices, got {values!r}.") from None
    if any(index < 0 for index in result):
        raise InvalidInput(f"{name} must contain indices of 0 or more, got {result!r}.")
    if len(set(result)) != len(result):
        raise InvalidInput(f"{name} must not name an index twice, got {result!r}.")
    return result
