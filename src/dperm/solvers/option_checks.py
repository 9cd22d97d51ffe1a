"""Checks of solver options, shared by all solvers: one sentence, and plain Python numbers afterwards."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from dperm.errors import InvalidInput
from dperm.types import FloatArray

__all__ = ["fraction", "one_per_column", "positive", "positive_or_each", "share", "whole"]


def _number(value: Any) -> bool:
    return isinstance(value, Real | np.number) and not isinstance(value, bool) and math.isfinite(float(value))


def whole(solver: object, *names: str) -> None:
    """Refuse options that are not whole numbers >= 1; a plan counts in int."""
    for name in names:
        value = getattr(solver, name)
        if not _number(value) or float(value) != math.floor(value) or value < 1:
            raise InvalidInput(f"{name} must be a whole number >= 1, not {value!r}.")
        object.__setattr__(solver, name, int(value))


def positive(solver: object, *names: str) -> None:
    """Refuse options that are given and not between 1e-100 and 1e100."""
    for name in names:
        value = getattr(solver, name)
        if value is None:
            continue
        if not _number(value) or not 1e-100 <= float(value) <= 1e100:
            raise InvalidInput(f"{name} must be positive, not {value!r}.")
        object.__setattr__(solver, name, float(value))


def positive_or_each(solver: object, *names: str) -> None:
    """The same for options that may also be a sequence of such numbers, one per column; it becomes a tuple."""
    for name in names:
        value = getattr(solver, name)
        if not isinstance(value, tuple | list | np.ndarray):
            positive(solver, name)
            continue
        if not len(value) or not all(_number(v) and 1e-100 <= float(v) <= 1e100 for v in value):
            raise InvalidInput(f"{name} must be one positive number, or positive numbers, one for each column.")
        object.__setattr__(solver, name, tuple(float(v) for v in value))


def one_per_column(name: str, values: tuple[float, ...], d: int) -> FloatArray:
    """Return the numbers as an array, refused if there is not one for each of ``d`` columns."""
    if len(values) != d:
        raise InvalidInput(
            f"{name} must be one positive number or {d}, one for each column and the intercept's last; "
            f"{len(values)} were given."
        )
    return np.asarray(values, np.float64)


def share(solver: object, *names: str) -> None:
    """Refuse options that are not strictly between 0 and 1."""
    for name in names:
        value = getattr(solver, name)
        if not _number(value) or not 0.0 < float(value) < 1.0:
            raise InvalidInput(f"{name} must be between 0 and 1, not {value!r}.")
        object.__setattr__(solver, name, float(value))


def fraction(solver: object, *names: str) -> None:
    """Refuse options that are not in [0, 1)."""
    for name in names:
        value = getattr(solver, name)
        if not _number(value) or not 0.0 <= float(value) < 1.0:
            raise InvalidInput(f"{name} must be in [0, 1), not {value!r}.")
        object.__setattr__(solver, name, float(value))
