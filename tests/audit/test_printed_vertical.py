"""Counterexamples to printed guarantees of vertical methods, and what participants of a model view can reconstruct."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from dperm.data.design.matrix import DesignMatrix
from dperm.objective import L2, Logistic, Objective
from dperm.privacy import Budget
from dperm.privacy.accounting.gdp import epsilon_of
from dperm.solvers.theory import distributed_frank_wolfe as costs
from dperm.solvers.vertical import AdmmSharing, DistributedFrankWolfe, ExactSharing
from dperm.testing.data import Layout
from dperm.testing.vertical import facts_of, run_vertical, vertical_problem


def rows_of(design):
    return np.concatenate([block * design.spacing for _, block in design.row_chunks()])


def off_column_space(message, X):
    """Length of the part of a message outside the column space of a guess of the table, relative to the message."""
    inside = X @ np.linalg.lstsq(X, message, rcond=None)[0]
    return np.linalg.norm(message - inside) / np.linalg.norm(message)


@pytest.mark.parametrize("bound", [1.0, 1e4])
def test_one_message_of_printed_admm_tells_neighbours_apart(bound):
    """Its noise lives in the column space of the true table: a test of the guess is never wrong, at any sigma."""
    designs, target = vertical_problem(1, n=80)
    task = ExactSharing(
        Objective(Logistic(), L2(0.05)),
        facts_of(designs),
        Budget(1.0, 1e-5),
        n_rounds=1,
        calibration="paper",
        printed_bound=bound,
        box=1e7,
    )
    true = rows_of(designs["north"])
    other = true.copy()
    other[17] = [0.9, -0.9, 0.4]  # the neighbour: one person's record replaced
    for seed in range(20):
        first = run_vertical(task, designs, target, seed=seed).messages.replies[0]["north"]
        message = first.arrays["scores"].astype(float)
        assert off_column_space(message, true) < 1e-7  # what rounding to the grid of scores leaves
        assert off_column_space(message, other) > 1e-5
    assert task.printed_deviation("north") > 10.0 * bound  # plenty of noise, in the wrong place


def test_printed_feature_noise_is_too_small():
    """A sketched feature moves by about 2 whatever n is; the printed noise shrinks with n."""
    rng = np.random.default_rng(0)
    n, m, n_parties, n_steps, epsilon, delta = 10_000, 200, 4, 50, 1.0, 1e-5
    J = rng.normal(0.0, 1.0 / math.sqrt(m), (m, n))
    singular = math.sqrt(float(np.linalg.eigvalsh(J @ J.T)[-1]))
    printed = costs.printed_feature_deviation(
        n=n, n_parties=n_parties, n_steps=n_steps, singular_value=singular, epsilon=epsilon, delta=delta
    )
    change = 2.0 * np.linalg.norm(J[:, 0])  # one person's entry goes from 1 to -1
    honest = printed * n / singular * change  # the same formula with the true change in place of sigma(J) / n
    assert honest / printed == pytest.approx(change * n / singular)
    assert honest / printed > 2000.0
    # what one release with the printed noise really costs, and an attack that never fails
    assert epsilon_of(change / printed, delta) > 10.0
    column = rng.choice([-1.0, 1.0], n)
    column[0] = 1.0
    moved = column.copy()
    moved[0] = -1.0
    one, other, right = J @ column, J @ moved, 0
    for trial in range(200):
        seen = (one if trial % 2 else other) + rng.normal(0.0, printed, m)
        right += (np.linalg.norm(seen - one) < np.linalg.norm(seen - other)) == bool(trial % 2)
    assert right == 200


def test_printed_updates_leave_the_ball():
    """The same choices, by the printed update and by dperm's: one leaves the ball, the other never does."""
    eta, n_steps = 2.0, 12
    designs, target = vertical_problem(3, n=80)
    task = DistributedFrankWolfe(
        Objective(Logistic()), facts_of(designs), Budget(50.0, 1e-5), n_steps=n_steps, radius=eta, product=True
    )
    run = run_vertical(task, designs, target)
    printed, ours, norms = np.zeros(task.d), task.path(), []
    for t, replies in enumerate(run.messages.replies[::2]):
        atoms, signs = np.zeros((len(designs), task.d)), {}
        for k, (name, reply) in enumerate(replies.items()):
            place, d = int(reply.arrays["choice"][0]), task.parties[name].d
            column, sign = task.offsets[name] + place % d, 1 if place < d else -1
            atoms[k, column], signs[column] = sign * eta, sign
        printed = costs.printed_update(printed, atoms, 2.0 / (t + 2.0))
        ours.move(signs)
        norms.append((np.abs(printed).sum(), sum(map(abs, ours.weights().values()))))
    assert norms[0][0] == len(designs) * eta  # K eta after the first step
    assert all(own <= eta * (1.0 + 1e-12) for _, own in norms)
    final = np.concatenate(list(run.result.weights.values()))
    assert np.abs(final).sum() == pytest.approx(norms[-1][1])  # the path above is the one that the run took


def test_participants_of_a_model_view_reconstruct_rows_and_labels():
    """What "model" means: partial scores at known weights are linear equations for the rows, residuals show labels."""
    rng = np.random.default_rng(2)
    n, d = 150, 20
    X = rng.uniform(-1.0, 1.0, (n, d))
    target = (rng.random(n) < special.expit(2.0 * X[:, 0])).astype(float)
    design = DesignMatrix.from_array(X, Layout(n=n, n_features=d).scaling(), 0.0)
    designs = {"clinic": design}
    task = AdmmSharing(Objective(Logistic()), facts_of(designs), Budget(1.0, 1e-6), n_rounds=40)
    run = run_vertical(task, designs, target)
    replies = [batch["clinic"].arrays for batch in run.messages.replies]
    weights = np.array([arrays["weights"] for arrays in replies])
    scores = np.array([arrays["scores"] * task.score_spacing(task.box) for arrays in replies])
    rebuilt = np.linalg.lstsq(weights, scores, rcond=None)[0].T
    assert np.array_equal(np.rint(rebuilt / design.spacing), np.rint(rows_of(design) / design.spacing))
    first = run.messages.requests[0]["clinic"].arrays["residual"]
    assert np.array_equal(first < 0.0, target == 1.0)
    assert any("reconstruct" in text for text in run.result.report.not_covered)
