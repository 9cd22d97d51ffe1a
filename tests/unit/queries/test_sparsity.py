"""Whether few columns matter: value, sensitivity with both terms at once, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.errors import InvalidInput
from dperm.objective import Multinomial, Squared
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.queries import GradientSparsity
from dperm.testing.data import Layout, design_data

LOSS = Squared(residual_clip=1.0)


def data_of(X, y):
    X = np.asarray(X, np.float64)
    return design_data(Layout(n=len(X), n_features=X.shape[1], intercept=1.0), X, np.asarray(y, np.float64))


def test_it_is_the_difference_of_the_two_norms():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1.0, 1.0, (50, 4)), rng.uniform(-1.0, 1.0, 50)
    query = GradientSparsity(LOSS, np.zeros(5), 0.3, 0.5, 1.5, 4.0)
    products = -y[:, None] * X
    short = products * np.minimum(1.0, 0.5 / np.linalg.norm(products, axis=1))[:, None]
    largest = np.abs(np.clip(products, -0.3, 0.3).sum(axis=0)).max()
    expected = 1.5 * largest / 0.3 - 4.0 * np.linalg.norm(short.sum(axis=0)) / 0.5
    np.testing.assert_allclose(query.evaluate(data_of(X, y)), [expected], rtol=1e-3)


@pytest.mark.parametrize("neighbours", Neighbours)
def test_one_person_can_move_both_terms_at_once(neighbours):
    """Nine others' clipped products cancel while their gradients do not: the declared sensitivity is reached."""
    limit, clip = 0.05, 0.9
    X = np.array([*[[1.0]] * 4, *[[limit]] * 4, [1.0]])
    y = np.array([*[1.0] * 4, *[-1.0] * 4, -1.0])
    other = y.copy()
    other[-1] = 0.0 if neighbours is Neighbours.ZERO_OUT else 1.0
    query = GradientSparsity(LOSS, np.zeros(2), limit, clip, 1.5, 4.0)
    one, two = (float(query.evaluate(data_of(X, targets))[0]) for targets in (y, other))
    declared = query.sensitivity(data_of(X, y).facts, neighbours)
    assert abs(one - two) <= declared * (1.0 + 1e-12)
    if neighbours is Neighbours.ZERO_OUT:
        assert abs(one - two) >= 0.98 * declared


@pytest.mark.parametrize("name", ["limit", "clip", "of_largest", "of_length"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan])
def test_its_numbers_must_be_positive(name, value):
    options = {"limit": 1.0, "clip": 1.0, "of_largest": 1.0, "of_length": 1.0, name: value}
    with pytest.raises(InvalidInput, match=name):
        GradientSparsity(LOSS, np.zeros(2), **options)


def test_losses_of_several_outputs_or_without_bounded_slopes_are_refused():
    with pytest.raises(InvalidInput, match="one output"):
        GradientSparsity(Multinomial(3), np.zeros((2, 3)), 1.0, 1.0, 1.0, 1.0)
    with pytest.raises(InvalidInput, match="unbounded slopes"):
        GradientSparsity(Squared(), np.zeros(2), 1.0, 1.0, 1.0, 1.0)
