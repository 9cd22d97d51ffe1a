"""Checks of solver options, shared by all solvers and vertical tasks.

Each function checks the named attributes of a frozen dataclass, refuses a bad value with one sentence, and stores a
good one as a plain ``int``, ``float`` or tuple, because a plan and a ledger must not depend on NumPy types. The tests
of single numbers come from :mod:`dperm.validation`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dperm import validation
from dperm.errors import InvalidInput
from dperm.types import FloatArray

__all__ = [
    "one_per_column",
    "require_fraction",
    "require_positive",
    "require_positive_or_list",
    "require_rest",
    "require_share",
    "require_whole",
]

#: positive options stay within these limits, so that their squares and reciprocals neither overflow nor vanish
_SMALLEST, _LARGEST = 1e-100, 1e100
#: largest part of the budget that is spent before the gradients
_MOST_SHARES = 0.9


def _in_range(value: Any) -> bool:
    return validation.is_finite_number(value) and _SMALLEST <= float(value) <= _LARGEST


def require_whole(solver: object, *names: str) -> None:
    """Require whole numbers of 1 or more; 8.0 counts as 8."""
    for name in names:
        value = getattr(solver, name)
        if validation.is_finite_number(value) and float(value).is_integer():
            value = int(value)
        object.__setattr__(solver, name, validation.whole(name, value))


def require_positive(solver: object, *names: str) -> None:
    """Require positive numbers between 1e-100 and 1e100; an option that is None is left out."""
    for name in names:
        value = getattr(solver, name)
        if value is None:
            continue
        if not _in_range(value):
            raise InvalidInput(f"{name} must be positive, from {_SMALLEST:g} to {_LARGEST:g}, not {value!r}.")
        object.__setattr__(solver, name, float(value))


def require_positive_or_list(solver: object, *names: str) -> None:
    """Require one positive number or a sequence of them, one per column; a sequence becomes a tuple."""
    for name in names:
        value = getattr(solver, name)
        if not isinstance(value, tuple | list | np.ndarray):
            require_positive(solver, name)
            continue
        if not len(value) or not all(_in_range(v) for v in value):
            raise InvalidInput(f"{name} must be one positive number, or positive numbers, one for each column.")
        object.__setattr__(solver, name, tuple(float(v) for v in value))


def one_per_column(name: str, values: tuple[float, ...], d: int) -> FloatArray:
    """Return the numbers as an array, or refuse them if there is not one for each of ``d`` columns."""
    if len(values) != d:
        raise InvalidInput(
            f"{name} must be one positive number or {d}, one for each column and the intercept's last; "
            f"{len(values)} were given."
        )
    return np.asarray(values, np.float64)


def require_share(solver: object, *names: str) -> None:
    """Require numbers strictly between 0 and 1."""
    for name in names:
        value = getattr(solver, name)
        if not validation.is_finite_number(value) or not 0.0 < float(value) < 1.0:
            raise InvalidInput(f"{name} must be between 0 and 1, not {value!r}.")
        object.__setattr__(solver, name, float(value))


def require_rest(solver: object, *names: str) -> None:
    """Require shares that leave a tenth of the budget for the gradients."""
    if sum(getattr(solver, name) for name in names) > _MOST_SHARES:
        raise InvalidInput("the shares leave less than a tenth of the budget for the gradients: make them smaller.")


def require_fraction(solver: object, *names: str) -> None:
    """Require numbers in [0, 1)."""
    for name in names:
        value = getattr(solver, name)
        if not validation.is_finite_number(value) or not 0.0 <= float(value) < 1.0:
            raise InvalidInput(f"{name} must be in [0, 1), not {value!r}.")
        object.__setattr__(solver, name, float(value))
