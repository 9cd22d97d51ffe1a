"""The gradient in factors and intercepts of classes: documented values, summands within the clip, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dperm.data.design.row_map import RowMap
from dperm.errors import InvalidInput
from dperm.objective import Logistic, Multinomial
from dperm.queries import ClassScoreGradient
from dperm.testing.data import Layout, design_data

LOSS, K, P = Multinomial(3), 3, 2
HEIGHTS = np.array([0.5, 0.7, 0.9])


@pytest.fixture(params=[False, True], ids=["dense", "sparse"])
def data(request):
    layout = Layout(n=40, n_features=4, sparse=request.param)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4)) * (rng.random((40, 4)) < 0.6)
    return replace(design_data(layout, X, rng.integers(0, K, 40)), target_high=2.0)


def query_for(data, clip=1e6, independence=0.0, heights=HEIGHTS, size=1.0):
    rng = np.random.default_rng(1)
    rows = RowMap(size * rng.normal(size=(data.design.d, P * K)), data.facts.grids)
    return ClassScoreGradient(LOSS, rows, rng.normal(size=P), rng.normal(size=K), heights, clip, independence)


def gradients(data, query, target):
    """Each person's gradient by its definition, one line for each person."""
    rows = np.concatenate([block for _, block in data.design.row_chunks()]) * data.design.spacing
    scores = (rows @ query.rows.matrix).reshape(-1, P, K)
    slopes = LOSS.slope(query.constants + np.einsum("p,npk->nk", query.factors, scores), target)
    return np.hstack([np.einsum("npk,nk->np", scores, slopes), slopes * query.heights])


def test_it_is_the_gradient_in_factors_and_intercepts(data):
    query = query_for(data)
    np.testing.assert_allclose(query.evaluate(data), gradients(data, query, data.target).sum(axis=0), atol=1e-5)

    def loss(change):
        moved = replace(query, factors=query.factors + change[:P])
        rows = np.concatenate([block for _, block in data.design.row_chunks()]) * data.design.spacing
        scores = (rows @ query.rows.matrix).reshape(-1, P, K)
        z = query.constants + np.einsum("p,npk->nk", moved.factors, scores) + HEIGHTS * change[P:]
        return LOSS.value(z, data.target).sum()

    numeric = [(loss(1e-5 * one) - loss(-1e-5 * one)) / 2e-5 for one in np.eye(P + K)]
    np.testing.assert_allclose(query.evaluate(data), numeric, atol=1e-4)


def test_without_intercepts_only_factors_are_left(data):
    with_them, without = query_for(data), query_for(data, heights=np.zeros(0))
    np.testing.assert_allclose(without.evaluate(data), with_them.evaluate(data)[:P], atol=1e-5)
    assert without.size(data.facts) == P


@pytest.mark.parametrize("independence", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("size", [1e-80, 1.0, 1e60])
def test_a_person_adds_at_most_the_clip(data, independence, size):
    query = query_for(data, 0.3, independence, size=size)
    for i in range(len(data.target)):
        one = replace(data, design=data.design.take(np.array([i])), target=data.target[[i]])
        assert np.linalg.norm(query.evaluate(one)) <= 0.3


def test_shortening_depends_on_the_label_as_much_as_is_asked(data):
    for independence in (0.0, 0.4, 1.0):
        query = query_for(data, 0.3, independence)
        of_labels = [gradients(data, query, np.full(40, float(k))) for k in range(K)]
        longest = np.max([np.linalg.norm(one, axis=1) for one in of_labels], axis=0)
        own = gradients(data, query, data.target)
        wanted = independence * longest + (1.0 - independence) * np.linalg.norm(own, axis=1)
        expected = own * np.minimum(1.0, 0.3 / wanted)[:, None]
        np.testing.assert_allclose(query.evaluate(data), expected.sum(axis=0), atol=1e-5)


def test_the_order_of_people_does_not_matter(data):
    query, order = query_for(data, 0.5, 0.3), np.random.default_rng(2).permutation(40)
    turned = replace(data, design=data.design.take(order), target=data.target[order])
    assert query.evaluate(turned).tolist() == query.evaluate(data).tolist()


def test_what_does_not_fit_is_refused(data):
    query = query_for(data)
    for change in ({"loss": Logistic()}, {"clip": 0.0}, {"clip": 1e-200}, {"label_independence": 1.5}):
        with pytest.raises(InvalidInput):
            replace(query, **change)
    for change in (
        {"factors": np.ones(3)},
        {"constants": np.ones(2)},
        {"heights": np.ones(2)},
        {"factors": np.array([np.nan, 1.0])},
        {"constants": np.array([1.0, 1e200, 0.0])},
    ):
        with pytest.raises(InvalidInput):
            replace(query, **change).size(data.facts)
