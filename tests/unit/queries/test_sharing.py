"""Values that participants of a trusted domain share are what they are named: against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.data.holding.party import LabelData, PartyData, ReceivedValues
from dperm.objective.penalties import SeparablePenalty
from dperm.queries.sharing import (
    RESIDUAL,
    BlockMinimiser,
    ColumnValues,
    InverseRoot,
    PlainGradient,
    Stationarity,
)
from dperm.testing.data import Layout, design_data

N, D = 60, 3
PENALTY = SeparablePenalty(l1=0.05, l2=0.1)


@pytest.fixture(params=[1.0, 0.2], ids=["all", "a batch"])
def party(request):
    """A party with rows of two columns and an intercept, and residuals of all people or of few."""
    rng = np.random.default_rng(3)
    data = design_data(Layout(n=N, n_features=2), rng.normal(size=(N, 2)), rng.integers(0, 2, N))
    received = ReceivedValues()
    received.put(RESIDUAL, np.where(rng.random(N) < request.param, rng.normal(size=N), 0.0))
    return PartyData(data.design, received)


def rows_of(party):
    return np.concatenate([block for _, block in party.design.row_chunks()]) * party.design.spacing


def test_a_shared_column_has_its_values(party):
    for column in range(D):
        query = ColumnValues(column)
        np.testing.assert_allclose(query.evaluate(party), rows_of(party)[:, column], rtol=1e-12)
        assert query.size(party.facts) == N


def test_a_plain_gradient_is_rows_times_residuals(party):
    np.testing.assert_allclose(
        PlainGradient().evaluate(party), rows_of(party).T @ party.received.get(RESIDUAL), rtol=1e-9
    )


@pytest.mark.parametrize("penalty", [PENALTY, SeparablePenalty(l2=0.1)], ids=["l1", "smooth"])
def test_a_block_minimiser_satisfies_the_optimality_conditions(party, penalty):
    old, curvature = np.array([0.3, -0.2, 0.1]), 0.7
    found = BlockMinimiser(old, curvature, penalty, unpenalised=(2,)).evaluate(party)
    X = rows_of(party)
    weights = np.array([1.0, 1.0, 0.0])
    smooth = X.T @ party.received.get(RESIDUAL) + curvature * X.T @ X @ (found - old) + N * penalty.l2 * weights * found
    bound = N * penalty.l1 * weights
    zero = np.abs(found) < 1e-7
    assert (np.abs(smooth[zero]) <= bound[zero] + 1e-5).all()
    np.testing.assert_allclose(smooth[~zero], -(bound * np.sign(found))[~zero], atol=1e-5)


def test_stationarity_is_the_length_of_a_proximal_step(party):
    weights = np.array([0.3, -0.2, 0.1])
    query = Stationarity(weights, PENALTY, unpenalised=(2,))
    moved = weights - rows_of(party).T @ party.received.get(RESIDUAL)
    shrunk = np.sign(moved) * np.maximum(np.abs(moved) - N * PENALTY.l1, 0.0) / (1.0 + N * PENALTY.l2)
    shrunk[2] = moved[2]
    np.testing.assert_allclose(query.evaluate(party), [np.sum((weights - shrunk) ** 2)], rtol=1e-9)
    assert query.size(party.facts) == len(query.evaluate(party))


def test_an_inverse_root_undoes_the_second_moments(party):
    root = InverseRoot().evaluate(party)
    np.testing.assert_allclose(root @ (rows_of(party).T @ rows_of(party)) @ root, np.eye(D), atol=1e-9)


def test_a_label_holder_has_no_columns():
    facts = LabelData(np.array([0.0, 1.0]), 2, -1.0, 2.0).facts
    assert (facts.n, facts.n_features, facts.d, facts.target_low, facts.target_high) == (2, 0, 0, -1.0, 2.0)
    assert LabelData(np.empty(0)).facts.n == 0
