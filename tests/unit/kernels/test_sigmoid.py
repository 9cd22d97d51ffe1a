"""The compiled logistic function: correct to 1e-15, in [0, 1], and the same bits at every position."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dperm.kernels import short_sigmoid as short
from dperm.kernels import sigmoid
from dperm.kernels.coordinate import moved_logistic_sum, moved_short_logistic_sum
from dperm.kernels.exact import toward_zero
from dperm.kernels.sigmoid import logistic_slopes
from dperm.objective import Logistic

BOUND = 1e-15  # of kernels/sigmoid.proof.md


def draws(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) * 10.0 ** rng.uniform(-9, 2.8, n)


def values(z):
    return logistic_slopes(np.asarray(z, float), np.zeros(len(z)))


def error(got, z):
    with mpmath.workprec(160):
        return abs(float(mpmath.mpf(float(got)) * (1 + mpmath.exp(-mpmath.mpf(float(z)))) - 1))


def test_relative_error():
    edges = np.arange(-990, 990) * (math.log(2) / 2)  # where the whole part of the exponent changes
    z = np.concatenate([draws(4000), edges, np.nextafter(edges, 1e9)])
    z = z[np.abs(z) < 690.0]
    assert max(error(a, b) for a, b in zip(values(z), z, strict=True)) <= BOUND


def test_it_stays_between_0_and_1_and_never_falls_by_more_than_its_error():
    z = np.sort(np.concatenate([draws(200_000), [-1e308, -691.0, -690.0, 690.0, 1e308, 36.7, 37.5]]))
    p = values(z)
    assert ((p >= 0.0) & (p <= 1.0)).all()
    assert (np.diff(p) >= -BOUND * p[1:]).all()
    assert (values([-1e308, -700.0]) < 1e-299).all()
    assert (values([37.5, 1e308]) == 1.0).all()
    assert values([0.0, -0.0]).tolist() == [0.5, 0.5]


def test_slopes_keep_their_bound_for_any_target():
    z = draws(5000)
    for y in (-3.0, 0.0, 0.25, 1.0, 7.0):
        slopes = logistic_slopes(z, np.full(len(z), y))
        assert (np.abs(slopes) <= 1.0).all()
        assert (slopes == values(z) - min(max(y, 0.0), 1.0)).all()


def once_rounded(z: float) -> float:
    """The same formula with every operation carried out exactly and rounded once."""

    def fma(a: float, b: float, c: float) -> float:
        return float(Fraction(a) * Fraction(b) + Fraction(c))

    x = min(max(z, -690.0), 690.0)
    shifted = fma(x, -sigmoid._PER_LOG_2, sigmoid._WHOLE)
    k = shifted - sigmoid._WHOLE
    r = fma(k, sigmoid._LOG_2_LOW, fma(k, sigmoid._LOG_2_HIGH, x))
    square = r * r
    even = fma(square + sigmoid._EVEN_1, square, sigmoid._EVEN_0)
    odd = fma(fma(square, sigmoid._ODD_2, sigmoid._ODD_1), square, sigmoid._ODD_0)
    down = fma(odd, r, even)
    return down / fma(fma(odd, -r, even), math.ldexp(1.0, int(k)), down)


def test_every_operation_is_rounded_once_and_none_is_fused_unasked():
    z = draws(3000, seed=1)
    assert values(z).tolist() == [once_rounded(x) for x in z.tolist()]


# --------------------------------------------------------------------------------------- position in the array
def position_matters(function) -> bool:
    """Whether some element changes with length (all residues mod 16), offset, order, stride or neighbours."""
    z, y = draws(64, seed=2), np.random.default_rng(3).integers(0, 2, 64).astype(float)
    alone = np.concatenate([function(z[i : i + 1].copy(), y[i : i + 1].copy()) for i in range(64)])
    room_z, room_y = np.empty(64 + 8), np.empty(64 + 8)
    for offset in range(8):
        for n in range(1, 49):
            room_z[offset : offset + n], room_y[offset : offset + n] = z[:n], y[:n]
            got = function(room_z[offset : offset + n], room_y[offset : offset + n])
            if got.tobytes() != alone[:n].tobytes():
                return True
    order = np.random.default_rng(4).permutation(64)
    shuffled, backwards = function(z[order], y[order]), function(z[::-1], y[::-1])
    return shuffled.tobytes() != alone[order].tobytes() or backwards.tobytes() != alone[::-1].tobytes()


def fused_slopes(z, y):
    """Slopes on a fine grid as the one-pass kernel of coordinate descent computes them."""
    out, zeros = np.empty(len(z)), np.zeros(len(z))
    moved_logistic_sum(zeros, 0.0, zeros, z.copy(), 1.0, y * 2.0**40, 2.0**40, math.inf, out)
    return out


def scaled_slopes(z, y):
    return toward_zero(Logistic().slope(z, y), 2.0**-40)


def short_slopes(z, y):
    """Slopes on a short grid, in single precision."""
    out, zeros = np.empty(len(z), np.float32), np.zeros(len(z))
    target = (y * 2.0**22).astype(np.float32)
    moved_short_logistic_sum(zeros, 0.0, zeros, z.copy(), 1.0, target, 2.0**22, math.inf, out)
    return out


@pytest.mark.parametrize("function", [logistic_slopes, fused_slopes, scaled_slopes, short_slopes])
def test_position_does_not_matter(function):
    assert not position_matters(function)


def test_a_tail_that_rounds_differently_is_detected():
    def with_a_tail(z, y):
        out = logistic_slopes(z, y)
        body = len(z) - len(z) % 4
        out[body:] = 1.0 / (1.0 + np.array([math.exp(-x) for x in z[body:]])) - y[body:]
        return out

    assert position_matters(with_a_tail)


def test_both_computations_of_a_slope_agree():
    z, y = draws(1003, seed=5), np.random.default_rng(6).integers(0, 2, 1003).astype(float)
    assert fused_slopes(z, y).tobytes() == scaled_slopes(z, y).tobytes()


# -------------------------------------------------------------------------------------------- single precision
def test_short_slopes_are_off_by_less_than_two_steps():
    z = np.concatenate([draws(200_000, seed=7), np.linspace(-90.0, 90.0, 100_001), [-1e308, -0.0, 1e308]])
    y = np.random.default_rng(8).integers(0, 2, len(z)).astype(float)
    got = short_slopes(z, y)
    assert (got == np.trunc(got)).all()
    assert (np.abs(got) <= 2.0**22).all()
    assert (
        np.abs(got - logistic_slopes(z, y) * 2.0**22).max() < 1.0 + 0.75
    )  # rounded toward zero, and Claim 5 of the proof


def to_single(exact: Fraction) -> np.float32:
    """The nearest single-precision number, ties to even, without rounding twice."""
    if exact == 0:
        return np.float32(0.0)
    exponent = math.frexp(float(abs(exact)))[1] - 24
    steps = exact / Fraction(2) ** exponent
    whole = round(steps)  # of a Fraction: exact, ties to even
    return np.float32(math.ldexp(whole, exponent))


def once_rounded_short(z: np.float32) -> np.float32:
    def fma(a, b, c):
        return to_single(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))

    x = min(max(z, -short._FARTHEST), short._FARTHEST)
    shifted = fma(x, short._PER_LOG_2, short._WHOLE)
    k = shifted - short._WHOLE
    r = fma(k, short._LOG_2_LOW, fma(k, short._LOG_2_HIGH, x))
    square = r * r
    even, odd = fma(square, short._EVEN_1, short._EVEN_0), square + short._ODD_0
    down = fma(odd, r, even)
    return down / fma(fma(odd, -r, even), np.float32(math.ldexp(1.0, int(k))), down)


def test_every_short_operation_is_rounded_once():
    z = draws(3000, seed=9)
    expected = [math.trunc(float(once_rounded_short(np.float32(x))) * 2.0**22) for x in z.tolist()]
    assert short_slopes(z, np.zeros(len(z))).tolist() == expected
