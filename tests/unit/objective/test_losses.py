"""Losses: derivatives, bounds, limits and the bit-for-bit promise of slope and curvature."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import logsumexp

from dperm.errors import InvalidInput
from dperm.objective import LOSSES, Huber, Logistic, Loss, Multinomial, SmoothedHinge, Squared

SCALAR = [
    Logistic(),
    Squared(),
    Squared(residual_clip=0.7),
    Huber(1.3),
    SmoothedHinge(0.5),
    SmoothedHinge(3.0),
]
VECTOR = [Multinomial(2), Multinomial(3), Multinomial(7), Multinomial(17)]
EXTREME = np.array(
    [0.0, -0.0, 5e-324, -5e-324, 1e-17, -1e-17, 1.0, -1.0, 36.9, -36.9, 709.0, -745.2, 1e16, -1e16, 1e308, -1e308]
)


def targets(loss: Loss, n: int, rng: np.random.Generator) -> np.ndarray:
    if loss.task == "classification":
        return rng.integers(0, max(2, loss.n_outputs), n)
    return rng.normal(size=n)


def draws(loss: Loss, n: int, rng: np.random.Generator, scale: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    shape = (n,) if loss.n_outputs == 1 else (n, loss.n_outputs)
    return rng.normal(size=shape) * scale, targets(loss, n, rng)


def extremes(loss: Loss, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Every extreme prediction with both labels (or extreme targets), or many random rows of extremes."""
    if loss.n_outputs > 1:
        z = rng.choice(EXTREME, size=(400, loss.n_outputs))
        return z, targets(loss, len(z), rng)
    y = np.array([0.0, 1.0]) if loss.task == "classification" else EXTREME
    grid_z, grid_y = np.meshgrid(EXTREME, y)
    return grid_z.ravel(), grid_y.ravel()


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint64)


def check_rows_are_alone(function: Callable[..., np.ndarray], z: np.ndarray, y: np.ndarray) -> None:
    """Compare the whole array with single rows, shifted, strided, reversed, shuffled and unaligned views."""
    n = len(z)
    whole = function(z, y)
    alone = np.concatenate([function(z[i : i + 1], y[i : i + 1]) for i in range(n)])
    np.testing.assert_array_equal(bits(whole), bits(alone))
    for shift in (1, 2, 3, 5):
        np.testing.assert_array_equal(bits(function(z[shift:], y[shift:])), bits(whole[shift:]))
        np.testing.assert_array_equal(bits(function(z[::shift], y[::shift])), bits(whole[::shift]))
    np.testing.assert_array_equal(bits(function(z[::-1], y[::-1])), bits(whole[::-1]))
    np.testing.assert_array_equal(bits(function(np.asfortranarray(z), y)), bits(whole))
    order = np.random.default_rng(n).permutation(n)
    np.testing.assert_array_equal(bits(function(z[order], y[order])), bits(whole[order]))
    unaligned = np.frombuffer(b"\0" + z.tobytes(), dtype=np.float64, offset=1).reshape(z.shape)
    np.testing.assert_array_equal(bits(function(unaligned, y)), bits(whole))


def test_registry_names_every_class() -> None:
    assert set(LOSSES) >= {"logistic", "multinomial", "squared", "huber", "smoothed_hinge"}
    assert all(cls.name == name for name, cls in LOSSES.items())
    assert {type(loss) for loss in (*SCALAR, *VECTOR)} == set(LOSSES.values()), "add the loss to the lists above"


@pytest.mark.parametrize("loss", SCALAR, ids=repr)
def test_slope_is_the_derivative_of_value(loss: Loss) -> None:
    z, y = draws(loss, 500, np.random.default_rng(0))
    h = 1e-5
    numeric = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.slope(z, y), numeric, atol=2e-5)


@pytest.mark.parametrize("loss", SCALAR, ids=repr)
def test_curvature_is_the_derivative_of_slope(loss: Loss) -> None:
    z, y = draws(loss, 500, np.random.default_rng(1))
    h = 1e-6
    curvature = loss.curvature(z, y)
    away_from_kinks = (loss.curvature(z - 2 * h, y) > 0) == (loss.curvature(z + 2 * h, y) > 0)
    numeric = (loss.slope(z + h, y) - loss.slope(z - h, y)) / (2 * h)
    assert away_from_kinks.mean() > 0.95
    np.testing.assert_allclose(curvature[away_from_kinks], numeric[away_from_kinks], atol=1e-6)


@pytest.mark.parametrize("loss", VECTOR, ids=repr)
def test_multinomial_derivatives(loss: Multinomial) -> None:
    z, y = draws(loss, 40, np.random.default_rng(2))
    h = 1e-5
    for k, unit in enumerate(np.eye(loss.n_outputs)):
        numeric = (loss.value(z + h * unit, y) - loss.value(z - h * unit, y)) / (2 * h)
        np.testing.assert_allclose(loss.slope(z, y)[:, k], numeric, atol=1e-8)
    for p, bound in zip(loss.inverse_link(z), loss.curvature(z, y), strict=True):
        spectral = np.linalg.norm(np.diag(p) - np.outer(p, p), 2)
        assert spectral <= bound + 1e-15 <= loss.curvature_bound + 1e-15


@pytest.mark.parametrize("loss", SCALAR + VECTOR, ids=repr)
def test_finite_input_gives_no_nan_no_warning_and_no_passed_bound(loss: Loss) -> None:
    rng = np.random.default_rng(3)
    for z, y in (extremes(loss, rng), draws(loss, 2000, rng, 0.1), draws(loss, 2000, rng, 20.0)):
        with np.errstate(all="raise"):
            value, slope, curvature = loss.value(z, y), loss.slope(z, y), loss.curvature(z, y)
            mean = loss.inverse_link(z)
        assert not any(np.isnan(a).any() for a in (value, slope, curvature, mean))
        assert (value >= 0).all()
        assert (curvature >= 0).all()
        assert (curvature <= loss.curvature_bound).all()
        if loss.n_outputs == 1:
            assert (np.abs(slope) <= loss.slope_bound).all()
        if loss.task == "classification":
            assert ((mean >= 0) & (mean <= 1)).all()


@pytest.mark.parametrize("loss", VECTOR, ids=repr)
def test_multinomial_slope_norm_in_exact_arithmetic(loss: Multinomial) -> None:
    rng = np.random.default_rng(4)
    # Gaps near 53 log 2 = 36.7 put the smallest powers at the last bit of the row sum.
    near_ties = np.where(rng.random((300, loss.n_outputs)) < 0.3, 0.0, -rng.uniform(33, 38, (300, loss.n_outputs)))
    limit = Fraction(loss.slope_bound) ** 2
    for z in (near_ties, extremes(loss, rng)[0], rng.normal(size=(200, loss.n_outputs)) * 30):
        y = rng.integers(0, loss.n_outputs, len(z))
        for row in loss.slope(z, y).tolist():
            assert sum(Fraction(entry) ** 2 for entry in row) <= limit


def test_bounds_are_attained() -> None:
    assert np.abs(Logistic().slope([1e3, -1e3], [0, 1])).min() == 1.0
    assert Logistic().curvature([0.0], [1]) == 0.25
    assert np.linalg.norm(Multinomial(3).slope([[1e3, 0.0, 0.0]], [1])) == math.sqrt(2)
    assert Multinomial(3).curvature([[0.0, 0.0, -1e3]], [1]) == 0.5
    assert Squared(0.7).slope([9.0], [0.0]) == 0.7
    assert Squared().slope_bound == math.inf
    assert Huber(1.3).slope([-9.0], [0.0]) == -1.3
    assert SmoothedHinge(0.5).slope([-3.0], [1]) == -1.0
    assert SmoothedHinge(0.5).curvature([0.75], [1]) == SmoothedHinge(0.5).curvature_bound == 2.0


@pytest.mark.parametrize("loss", SCALAR + VECTOR, ids=repr)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 31, 64, 257])
def test_each_element_is_one_scalar_function_of_its_own_row(loss: Loss, n: int) -> None:
    rng = np.random.default_rng(n)
    z, y = draws(loss, n, rng, 8.0)
    special = rng.random(z.shape) < 0.2
    z[special] = rng.choice(EXTREME, special.sum())
    y = y.astype(np.float64)
    for function in (loss.slope, loss.curvature):
        check_rows_are_alone(function, z, y)


def test_the_check_of_rows_fails_on_a_sum_in_another_order() -> None:
    def normalised_by_np_sum(z: np.ndarray, y: np.ndarray) -> np.ndarray:
        powers = 1.0 / (1.0 + z * z)
        return powers / powers.sum(axis=1, keepdims=True) - np.eye(17)[y.astype(int)]

    z, y = draws(Multinomial(17), 64, np.random.default_rng(0))
    with pytest.raises(AssertionError):
        check_rows_are_alone(normalised_by_np_sum, z, y)


def test_clipped_squared_loss_is_huber() -> None:
    z, y = draws(Huber(0.7), 200, np.random.default_rng(5))
    for method in ("value", "slope", "curvature"):
        clipped, huber = getattr(Squared(0.7), method)(z, y), getattr(Huber(0.7), method)(z, y)
        np.testing.assert_array_equal(clipped, huber)
    np.testing.assert_allclose(Squared().value(z, y), 0.5 * (z - y) ** 2, rtol=1e-15)


def test_logistic_value_keeps_relative_precision_in_the_tail() -> None:
    np.testing.assert_allclose(Logistic().value([50.0, -50.0], [1, 0]), np.exp(-50.0), rtol=1e-12)
    np.testing.assert_array_equal(Logistic().value([1e308, -1e308], [0, 1]), 1e308)


def test_multinomial_value_against_logsumexp_and_the_two_class_case() -> None:
    rng = np.random.default_rng(6)
    z, y = rng.normal(size=(50, 5)) * 200, rng.integers(0, 5, 50)
    expected = logsumexp(z, axis=1) - z[np.arange(50), y]
    np.testing.assert_allclose(Multinomial(5).value(z, y), expected, atol=1e-10)
    pair, label = rng.normal(size=(50, 2)), rng.integers(0, 2, 50)
    margin = pair[:, 1] - pair[:, 0]
    np.testing.assert_allclose(Multinomial(2).value(pair, label), Logistic().value(margin, label), rtol=1e-12)
    np.testing.assert_allclose(Multinomial(2).inverse_link(pair)[:, 1], Logistic().inverse_link(margin), rtol=1e-12)


def test_smoothed_hinge_lies_within_half_the_smoothing_below_the_hinge() -> None:
    z, y = draws(SmoothedHinge(0.5), 500, np.random.default_rng(7), 1.0)
    gap = np.maximum(0.0, 1.0 - (2 * y - 1) * z) - SmoothedHinge(0.5).value(z, y)
    assert gap.min() >= 0
    assert 0.2 < gap.max() <= 0.25


@pytest.mark.parametrize("smoothing", [0.3, 1.0, 2.5])
def test_smoothed_hinge_inverse_link_makes_the_prediction_optimal(smoothing: float) -> None:
    loss = SmoothedHinge(smoothing)
    z = np.linspace(-0.99, 0.99, 41)
    p = loss.inverse_link(z)
    slope = p * loss.slope(z, np.ones(41)) + (1 - p) * loss.slope(z, np.zeros(41))
    np.testing.assert_allclose(slope, 0.0, atol=1e-15)


def test_targets_outside_the_range_do_not_pass_the_bound() -> None:
    z = np.array([-2.0, 0.0, 3.0])
    for loss in (Logistic(), SmoothedHinge(0.5)):
        for y in (np.full(3, 7.0), np.full(3, -1e308)):
            assert (np.abs(loss.slope(z, y)) <= 1.0).all()
    stray = Multinomial(3).slope(np.zeros((2, 3)), [-1, 99])
    np.testing.assert_allclose(stray, 1 / 3)
    np.testing.assert_allclose(Multinomial(3).value(np.zeros((1, 3)), [99]), math.log(3))


@pytest.mark.parametrize("loss", [Squared(), Huber(2.0)], ids=repr)
def test_regression_prediction_is_the_mean(loss: Loss) -> None:
    np.testing.assert_array_equal(loss.inverse_link([1.0, -2.0]), [1.0, -2.0])


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, "1", True, None, 1e-320])
def test_bad_parameters_are_refused(bad: object) -> None:
    makers = [Huber, SmoothedHinge, Squared]
    if bad is None:
        makers.remove(Squared)  # None means "no clip" there
    if bad == 1e-320:
        makers = [SmoothedHinge]
    for make in makers:
        with pytest.raises(InvalidInput, match=r"^[^\n]+\.$"):
            make(bad)


@pytest.mark.parametrize("bad", [1, 0, -3, 2.5, "3"])
def test_bad_class_counts_are_refused(bad: object) -> None:
    with pytest.raises(InvalidInput, match="n_classes"):
        Multinomial(bad)


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(InvalidInput, match="one shape"):
        Logistic().slope(np.zeros(3), np.zeros(2))
    with pytest.raises(InvalidInput, match=r"shape \(n,\)"):
        Logistic().slope(np.zeros((3, 2)), np.zeros(3))
    with pytest.raises(InvalidInput, match=r"shape \(n, 3\)"):
        Multinomial(3).slope(np.zeros((3, 2)), np.zeros(3))
    with pytest.raises(InvalidInput, match="class indices"):
        Multinomial(3).value(np.zeros((4, 3)), np.zeros(3))


def test_losses_are_values() -> None:
    assert Huber(1) == Huber(1.0)
    assert len({Multinomial(3), Multinomial(3), Multinomial(4)}) == 2
    with pytest.raises(AttributeError):
        Huber(1.0).threshold = 2.0
