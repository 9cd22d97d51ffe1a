"""Bernstein polynomials: the operator, its iterates, global minima with a certificate."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from dperm.errors import InvalidInput
from dperm.solvers.local.bernstein import BernsteinPolynomial, basis, iterated


def nodes(k, p):
    axis = np.arange(k + 1) / k
    return np.stack(np.meshgrid(*[axis] * p, indexing="ij"), axis=-1)


def test_the_basis_sums_to_one_and_is_positive():
    values = basis(np.linspace(0, 1, 50), 7)
    assert values.sum(axis=1) == pytest.approx(np.ones(50))
    assert values.min() >= 0.0


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_the_iterated_operator_by_its_binomial_sum(order):
    """sum_i C(h, i) (-1)^(i-1) B^i, applied to values at the nodes."""
    k, x = 5, np.linspace(0, 1, 11)
    f = np.sin(3 * np.arange(k + 1) / k)
    matrix = basis(np.arange(k + 1) / k, k)
    direct = sum(
        comb(order, i) * (-1) ** (i - 1) * basis(x, k) @ np.linalg.matrix_power(matrix, i - 1) @ f
        for i in range(1, order + 1)
    )
    assert basis(x, k) @ iterated(k, order) @ f == pytest.approx(direct)


def test_higher_orders_approximate_better():
    points = np.random.default_rng(0).random((500, 2))
    errors = []
    for order in (1, 2, 4):
        values = np.exp(-nodes(8, 2).sum(axis=-1))
        errors.append(np.abs(BernsteinPolynomial.of_values(values, order)(points) - np.exp(-points.sum(axis=1))).max())
    assert errors[0] > 5 * errors[1] > 10 * errors[2]


def check_certificate(p, coefficients=None):
    """Nothing in the cube is below the value found by more than the stated gap."""
    rng = np.random.default_rng(p)
    for _ in range(5):
        polynomial = BernsteinPolynomial(rng.normal(size=(5,) * p) if coefficients is None else coefficients)
        found = polynomial.minimise(1e-3)
        assert (found.point >= 0.0).all()
        assert (found.point <= 1.0).all()
        assert polynomial(found.point[None])[0] == pytest.approx(found.value)
        others = np.concatenate([rng.random((20_000, p)), rng.integers(0, 2, (50, p)).astype(float)])
        assert polynomial(others).min() >= found.value - found.gap - 1e-12, "a point is below the certificate"
        assert found.gap < 0.3


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_minimum_is_global_within_its_gap(p):
    check_certificate(p)


def test_a_certificate_from_a_wrong_curvature_is_caught(monkeypatch):
    """A planted bug: second derivatives left out, so that cells with a dip beside their centre are dropped."""
    two_dips = np.array([0.0, 3.0, -3.6, 3.0, 0.4, 3.0, -3.0, 3.0, 0.0])
    check_certificate(1, two_dips)
    real = np.abs
    monkeypatch.setattr(
        BernsteinPolynomial, "derivative", lambda self, axis: BernsteinPolynomial(0.0 * real(self.coefficients))
    )
    with pytest.raises(AssertionError, match="below the certificate"):
        check_certificate(1, two_dips)


def test_the_certificate_counts_mixed_derivatives():
    """(2x - 1)(2y - 1) has a flat centre and falls towards two corners by its mixed derivative alone."""
    saddle = BernsteinPolynomial(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    for tolerance in (1e-4, 0.75, 2.0):
        found = saddle.minimise(tolerance)
        assert found.gap <= tolerance
        assert found.value - found.gap <= -1.0


def test_derivatives():
    rng = np.random.default_rng(9)
    polynomial, x = BernsteinPolynomial(rng.normal(size=(4, 6))), rng.random((50, 2))
    for axis in (0, 1):
        step = np.eye(2)[axis] * 1e-5
        slope = (polynomial(x + step) - polynomial(x - step)) / 2e-5
        assert polynomial.derivative(axis)(x) == pytest.approx(slope, abs=1e-5)


def test_a_constant_has_its_minimum_everywhere():
    assert BernsteinPolynomial(np.ones((2, 2))).minimise().gap == pytest.approx(0.0)


# ------------------------------------------------------------------------------------------ any number of variables
def test_smoothing_is_the_mean_over_a_box():
    rng = np.random.default_rng(11)
    polynomial, x = BernsteinPolynomial(rng.normal(size=(4, 3, 5))), 0.3 + 0.4 * rng.random((4, 3))
    offsets = 0.2 * (2.0 * rng.random((200_000, 3)) - 1.0)
    for point, smooth in zip(x, polynomial.smoothed(0.2)(x), strict=True):
        values = polynomial(point + offsets)
        assert smooth == pytest.approx(values.mean(), abs=5.0 * values.std() / np.sqrt(len(offsets)))


def bowl(points, centre):
    """Convex, with Lipschitz constant at most 1 on the cube."""
    return ((points - centre) ** 2).sum(axis=-1) / (2.0 * np.sqrt(points.shape[-1]))


@pytest.mark.parametrize("p", [2, 4, 6])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_nearly_convex_polynomials_are_minimised_within_the_gap(p, noise):
    rng = np.random.default_rng(p)
    k, centre = 2, rng.uniform(0.2, 0.8, p)
    values = bowl(nodes(k, p), centre)
    exact = BernsteinPolynomial.through(values)
    noisy = BernsteinPolynomial.through(values + noise * rng.uniform(-1, 1, values.shape))
    points = np.vstack([rng.random((5_000, p)), rng.integers(0, 2, (200, p)).astype(float)])
    deviation = float(np.abs(exact(points) - noisy(points)).max()) * 1.2
    found = noisy.minimise_nearly_convex(deviation)
    assert noisy(found.point[None])[0] == pytest.approx(found.value)
    assert noisy(points).min() >= found.value - found.gap
    assert bowl(found.point, centre) <= found.gap
    if noise == 0.0:
        assert bowl(found.point, centre) < 1e-6


def test_smoothing_passes_a_dip_that_noise_made():
    """Going downhill from the middle ends in the narrow dip; the smoothed gradient goes to the valley."""
    x = np.arange(21) / 20
    values = 0.6 * np.abs(x - 0.85) - 0.2 * np.exp(-(((x - 0.5) / 0.1) ** 2))
    dip = BernsteinPolynomial.of_values(values, 8)
    found = dip.minimise_nearly_convex(0.2)
    assert found.point[0] > 0.7
    assert dip._polished(np.array([0.5]), [dip.derivative(0)])[1][0] < 0.6


def test_a_wrong_smoothing_is_seen(monkeypatch):
    """A planted bug: the box has twice its width, so the mean is another one."""
    right = BernsteinPolynomial.smoothed
    monkeypatch.setattr(BernsteinPolynomial, "smoothed", lambda self, width: right(self, 2.0 * width))
    with pytest.raises(AssertionError):
        test_smoothing_is_the_mean_over_a_box()


def test_bad_input():
    with pytest.raises(InvalidInput, match="order"):
        BernsteinPolynomial.of_values(np.ones(3), 0)
    with pytest.raises(InvalidInput, match="3 variables"):
        BernsteinPolynomial(np.ones((2, 2, 2, 2))).minimise()
