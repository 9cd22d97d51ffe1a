"""Scores of released weights agree with plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.data.holding.design_data import DesignData
from dperm.errors import InvalidInput
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.queries import CorrectPredictions, SquaredErrors
from dperm.testing.data import Layout, design_data

LAYOUT = Layout(n=200, n_features=3, intercept=1.0)


def rows(seed=0):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (200, 3))


def test_correct_predictions_count_people():
    X, weights = rows(), np.array([1.0, -2.0, 0.5, 0.1])
    y = (X[:, 0] > 0).astype(float)
    found = CorrectPredictions(weights).evaluate(design_data(LAYOUT, X, y))
    predicted = X @ weights[:3] + weights[3] > 0
    assert found.tolist() == [np.sum(predicted == y) - 100.0]


def test_correct_predictions_of_several_classes():
    X, weights = rows(), np.random.default_rng(1).normal(size=(4, 3))
    y = np.digitize(X[:, 0], [-0.3, 0.3]).astype(float)
    found = CorrectPredictions(weights).evaluate(design_data(LAYOUT, X, y))
    predicted = (X @ weights[:3] + weights[3]).argmax(axis=1)
    assert found.tolist() == [np.sum(predicted == y) - 100.0]


def test_squared_errors_are_cut_at_half_the_range():
    X, weights = rows(), np.array([1.0, -4.0, 0.5, 0.1])
    y = np.clip(X[:, 0] - X[:, 1], -1.0, 1.0)
    data = DesignData(design_data(LAYOUT, X, y).design, y, -1.0, 1.0)
    errors = np.minimum(np.abs(np.clip(X @ weights[:3] + weights[3], -1.0, 1.0) - y), 1.0) ** 2
    found = SquaredErrors(weights).evaluate(data)[0]
    assert found == pytest.approx(100.0 - errors.sum(), abs=1e-3)  # rows stand on a grid
    assert (errors == 1.0).any()


def test_the_order_of_people_does_not_matter():
    X, weights = rows(), np.array([1.0, -4.0, 0.5, 0.1])
    y = np.random.default_rng(2).random(200)
    turned = np.random.default_rng(3).permutation(200)
    for query in (CorrectPredictions(weights), SquaredErrors(weights)):
        one, two = (query.evaluate(design_data(LAYOUT, X[i], y[i])) for i in (slice(None), turned))
        assert one.tolist() == two.tolist()
        facts = design_data(LAYOUT, X, y).facts
        assert query.sensitivity(facts, Neighbours.ZERO_OUT) == 0.5
        assert query.sensitivity(facts, Neighbours.REPLACE_ONE) == 1.0


@pytest.mark.parametrize("query", [CorrectPredictions, SquaredErrors])
@pytest.mark.parametrize("weights", [np.zeros(3), np.full(4, np.nan), np.zeros((3, 2))])
def test_weights_that_do_not_fit_are_refused(query, weights):
    with pytest.raises(InvalidInput, match="weight"):
        query(weights).size(design_data(LAYOUT, rows(), np.zeros(200)).facts)
