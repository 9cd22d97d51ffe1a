"""Bit budgets hold at every size, rounding never enlarges a number, weights are on their grid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dperm.errors import InvalidInput
from dperm.kernels.exact import Grids, power_of_two_above, toward_zero, weights_on_grid

COUNTS = [1, 2, 3, 4, 5, 255, 256, 257, 10**4, 2**20, 2**20 + 1, 10**6, 10**8, 10**9]
counts = st.integers(1, 10**9)
columns = st.integers(1, 10**6)


def budgets(n, d):
    """Largest whole number that each kind of partial sum can reach; entries may be stored as differences (twice)."""
    grids = Grids(n, d)
    a, b, c, g = grids.value_bits, grids.slope_bits, grids.weight_bits, grids.gram_bits
    return {
        "gradient": n * 2 ** (a + b),
        "gradient of differences": n * 2 ** (a + 1 + b),
        "prediction": d * 2 ** (a + c),
        "prediction of differences": d * 2 ** (a + 1 + c),
        "squared norm": d * 2 ** (2 * a),
        "squared norm of differences": d * 2 ** (2 * a + 2),
        "second moment": n * 2 ** (2 * g),
    }


@given(counts, columns)
def test_every_partial_sum_is_a_whole_number_that_doubles_hold(n, d):
    for what, largest in budgets(n, d).items():
        assert largest <= 2**53, what


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("d", [1, 2, 3, 1000, 2**15 + 1, 10**6])
def test_bits_add_up_and_are_not_wasted(n, d):
    grids = Grids(n, d)
    assert grids.value_bits + grids.slope_bits + math.log2(n) <= 52
    assert grids.value_bits + grids.weight_bits + math.log2(d) <= 52
    assert 2 * grids.value_bits + 2 + math.log2(d) <= 53
    assert 2 * grids.gram_bits + math.log2(n) <= 52
    # enough is left to be of use, also at the largest sizes
    assert min(grids.value_bits, grids.slope_bits, grids.weight_bits, grids.gram_bits) >= 10


def test_one_bit_more_would_break_the_budget():
    grids = Grids(2**20, 2**20)
    assert 2**20 * 2 ** (grids.value_bits + 1 + grids.slope_bits + 1) > 2**53


def test_worst_case_sums_are_exact_in_any_order():
    """All entries at their largest, signs mixed: sums by halves, backwards and by dot product agree."""
    n = 200_003
    grids = Grids(n, 7)
    rng = np.random.default_rng(0)
    values = rng.choice([-1, 1], n, p=[0.1, 0.9]) * (2**grids.value_bits - rng.integers(0, 3, n))
    slopes = rng.choice([-1, 1], n, p=[0.1, 0.9]) * (2**grids.slope_bits - rng.integers(0, 3, n))
    exact = sum(int(v) * int(s) for v, s in zip(values, slopes, strict=True))
    v, s = values.astype(float), slopes.astype(float)
    assert abs(exact) > 2**50
    assert v @ s == exact
    assert v[::-1] @ s[::-1] == exact
    assert np.cumsum(v * s)[-1] == exact
    assert v[:777] @ s[:777] + v[777:] @ s[777:] == exact


@given(st.floats(1e-300, 2.0**1022))
def test_power_of_two_above(value):
    power = power_of_two_above(value)
    assert math.frexp(power)[0] == 0.5
    assert power / 2 < value <= power


@pytest.mark.parametrize("value", [math.inf, math.nan, 1.7e308])
def test_numbers_without_a_grid_are_refused(value):
    with pytest.raises(InvalidInput, match="no power-of-two grid"):
        power_of_two_above(value)


@given(st.floats(-1e6, 1e6), st.integers(-40, 10))
def test_toward_zero_never_grows(value, exponent):
    spacing = 2.0**exponent
    (steps,) = toward_zero(np.array([value]), spacing)
    assert steps == math.trunc(steps)
    assert abs(steps) * spacing <= abs(value)
    assert abs(value) - abs(steps) * spacing < spacing
    assert steps * value >= 0.0


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20), st.integers(1, 40))
def test_weights_on_grid(weights, bits):
    array = np.array(weights)
    steps, spacing = weights_on_grid(array, bits)
    assert (steps == np.rint(steps)).all()
    assert np.abs(steps).max() <= 2.0**bits
    assert (np.abs(steps * spacing - array) <= spacing / 2).all()


def test_weights_on_grid_in_a_box():
    steps, spacing = weights_on_grid(np.array([-9.0, 0.3, 2.0, 9.0]), 8, box=4.0)
    assert spacing == 4.0 / 256
    assert (steps * spacing).tolist() == [-4.0, 19 / 64, 2.0, 4.0]
    # the grid of a run does not follow the weights
    assert weights_on_grid(np.array([1e-9]), 8, box=4.0)[1] == spacing


@pytest.mark.parametrize("weights", [[0.0, 0.0], [], [5e-324, 0.0], [1e-318]])
def test_weights_of_zero(weights):
    steps, spacing = weights_on_grid(np.array(weights, float), 30)
    assert not steps.any()
    assert spacing > 0.0


def test_tiny_and_huge_weights_keep_their_digits():
    for size in (1e-290, 1e300):
        steps, spacing = weights_on_grid(np.array([size, -size / 3]), 30)
        np.testing.assert_allclose(steps * spacing, [size, -size / 3], rtol=1e-8)
