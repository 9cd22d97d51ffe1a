"""Checks of public parameters: what passes, what is refused, and that the message names the parameter."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dperm.errors import InvalidInput
from dperm.validation import finite, indices, is_finite_number, is_number, is_whole, non_negative, positive, whole

NOT_NUMBERS = [True, False, np.True_, "1", None, [1.0], 1j, np.array([1.0]), Decimal(1)]
WHOLE = [0, 1, -3, np.int8(2), np.uint64(2), 10**30]
FRACTIONAL = [0.5, 2.0, np.float32(1.5), np.float64(3.0), Fraction(1, 3)]


@pytest.mark.parametrize("value", [*WHOLE, *FRACTIONAL, math.inf, math.nan])
def test_numbers(value: Any) -> None:
    assert is_number(value)
    assert is_finite_number(value) == math.isfinite(value)


@pytest.mark.parametrize("value", NOT_NUMBERS)
def test_not_numbers(value: Any) -> None:
    assert not is_number(value)
    assert not is_finite_number(value)
    assert not is_whole(value)
    for check in (finite, positive, non_negative, whole):
        with pytest.raises(InvalidInput, match=r"^rate must be"):
            check("rate", value)


def test_whole_numbers_are_of_an_integer_type() -> None:
    assert all(map(is_whole, WHOLE))
    assert not any(map(is_whole, FRACTIONAL))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, np.float64("nan")])
def test_infinite_numbers_are_refused(value: float) -> None:
    for check in (finite, positive, non_negative):
        with pytest.raises(InvalidInput, match=r"^rate must be a finite number, got .*\.$"):
            check("rate", value)


@pytest.mark.parametrize("value", [3, np.float32(3.0), np.int64(3)])
def test_accepted_numbers_become_floats(value: Any) -> None:
    for check in (finite, positive, non_negative):
        result = check("rate", value)
        assert type(result) is float
        assert result == 3.0


def test_signs() -> None:
    assert finite("rate", -1) == -1.0
    assert non_negative("rate", 0) == 0.0
    with pytest.raises(InvalidInput, match=r"^rate must be 0 or more, got -1\.$"):
        non_negative("rate", -1)
    for value in (0, -1):
        with pytest.raises(InvalidInput, match=rf"^rate must be above 0, got {value}\.$"):
            positive("rate", value)


def test_whole_numbers_within_limits() -> None:
    assert type(whole("count", np.int16(4))) is int
    assert whole("count", 0, least=0) == 0
    assert whole("count", 5, least=1, most=5) == 5
    with pytest.raises(InvalidInput, match=r"^count must be a whole number of 1 or more, got 0\.$"):
        whole("count", 0)
    with pytest.raises(InvalidInput, match=r"^count must be a whole number from 1 to 5, got 6\.$"):
        whole("count", 6, most=5)
    with pytest.raises(InvalidInput, match=r"got 2\.0\.$"):
        whole("count", 2.0)


def test_indices() -> None:
    assert indices("columns", np.array([2, 0])) == (2, 0)
    assert indices("columns", ()) == ()
    with pytest.raises(InvalidInput, match=r"^columns must be a sequence of integer indices"):
        indices("columns", [1.0])
    with pytest.raises(InvalidInput, match=r"^columns must contain indices of 0 or more"):
        indices("columns", [-1])
    with pytest.raises(InvalidInput, match=r"^columns must not name an index twice"):
        indices("columns", [1, 1])
