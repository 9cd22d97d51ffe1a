"""Local-only and centralised baselines: the same task with one holder."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.errors import InvalidInput
from dperm.objective import L2, Logistic, Objective
from dperm.privacy import Budget
from dperm.solvers.vertical import TASKS, AdmmSharing, ExactSharing, centralised, local_only
from dperm.testing.vertical import VERTICAL_EXAMPLES, facts_of, run_vertical, vertical_problem

BUDGET = Budget(1.0, 1e-6)
SIZES = {"north": (3, 0.0), "south": (2, 1.0)}


def _values(design):
    return np.concatenate([block * design.spacing for _, block in design.row_chunks()])


def _optimum(X, y, strength):
    free = np.full(X.shape[1], strength)
    free[-1] = 0.0

    def cost(w):
        z = X @ w
        value = -np.mean(y * log_expit(z) + (1.0 - y) * log_expit(-z)) + 0.5 * free @ w**2
        return value, X.T @ (expit(z) - y) / len(y) + free * w

    return minimize(cost, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9}).x


def test_the_centralised_design_holds_all_columns_and_one_intercept():
    designs, _ = vertical_problem(3, sizes=SIZES)
    task = AdmmSharing(Objective(Logistic()), facts_of(designs), BUDGET)
    one, held = centralised(task, designs)
    design = held["everyone"]
    north, south = _values(designs["north"]), _values(designs["south"])
    assert one.parties == facts_of(held)
    assert (design.n_features, design.d) == (5, 6)
    np.testing.assert_allclose(_values(design), np.column_stack([north, south]), atol=1e-6)
    bounds = [designs[name].row_bound for name in designs]
    assert design.row_bound == pytest.approx(np.hypot(*bounds), rel=1e-9)
    assert (one.budget, one.rho, one.n_rounds) == (task.budget, task.rho, task.n_rounds)


def test_bounds_of_one_holder_follow_from_unequal_bounds_of_the_parties():
    """Values up to 1 beside values up to 4: the smaller bound would clip, the longer row alone would be too short."""
    rng, designs = np.random.default_rng(7), {}
    for name, clip, spread, height in (("north", 1.0, 0.5, 0.0), ("south", 4.0, 1.0, 1.0)):
        scaling = Scaling(np.zeros(2), np.ones(2), clip, None, spread)
        designs[name] = DesignMatrix.from_array(np.sign(rng.uniform(-1, 1, (30, 2))) * clip, scaling, height)
    task = AdmmSharing(Objective(Logistic()), facts_of(designs), BUDGET)
    _, held = centralised(task, designs)
    design, values = held["everyone"], _values(held["everyone"])
    np.testing.assert_allclose(values, np.column_stack([_values(one) for one in designs.values()]), atol=1e-5)
    assert design.row_bound == pytest.approx(np.sqrt(2 * 1.0 + 2 * 16.0 + 1.0), rel=1e-5)
    assert np.linalg.norm(values, axis=1).max() <= design.row_bound
    assert design.shape.value_bound == pytest.approx(4.0, rel=1e-5)
    assert design.shape.spread == 0.5
    alone, own = local_only(task, designs, "north")
    assert own["north"].shape.value_bound == pytest.approx(1.0, rel=1e-5)
    assert own["north"].row_bound == pytest.approx(np.sqrt(2 * 1.0 + 1.0), rel=1e-5)
    assert alone.parties == facts_of(own)


def test_without_noise_they_reach_the_optima_of_their_columns():
    designs, y = vertical_problem(4, n=200, sizes=SIZES)
    task = ExactSharing(Objective(Logistic(), L2(0.05)), facts_of(designs), BUDGET, n_rounds=150, rho=0.5)
    whole = np.concatenate(list(run_vertical(task, designs, y).result.weights.values()))
    one, held = centralised(task, designs)
    pooled = run_vertical(one, held, y).result.weights["everyone"]
    np.testing.assert_allclose(pooled, _optimum(_values(held["everyone"]), y, 0.05), atol=2e-3)
    np.testing.assert_allclose(pooled, whole, atol=2e-3)
    for party in designs:
        alone, own = local_only(task, designs, party)
        assert list(own) == [party]
        found = run_vertical(alone, own, y).result.weights[party]
        np.testing.assert_allclose(found, _optimum(_values(own[party]), y, 0.05), atol=2e-3)
        assert len(found) == designs[party].n_features + 1  # the run's intercept, whoever has it there


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_task_has_both(name):
    designs, y = vertical_problem(5)
    task = VERTICAL_EXAMPLES[name](facts_of(designs), BUDGET)
    for made, held in (centralised(task, designs), local_only(task, designs, "north")):
        result = run_vertical(made, held, y).result
        assert list(result.weights) == list(held)
        if task.no_guarantee is None:
            assert result.report.guarantee.epsilon <= BUDGET.epsilon


def test_an_unknown_party_is_refused():
    designs, _ = vertical_problem()
    task = AdmmSharing(Objective(Logistic()), facts_of(designs), BUDGET)
    with pytest.raises(InvalidInput, match="'west' is not a party"):
        local_only(task, designs, "west")
