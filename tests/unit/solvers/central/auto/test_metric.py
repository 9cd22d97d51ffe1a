"""The metric of released second moments and the proximal step in it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dperm import Bounds, DPLogisticRegression
from dperm.data.design.facts import Facts
from dperm.errors import Unsupported
from dperm.kernels.exact import Grids
from dperm.objective import L1, L2, BoxPenalty, ElasticNet, L1Ball, Logistic, Multinomial, NoPenalty, Objective
from dperm.solvers import WhitenedDescent
from dperm.solvers.central.auto.constants import RULE
from dperm.solvers.central.auto.metric import Metric, MetricProx

PENALTIES = [NoPenalty(), L2(0.7), L1(0.3), ElasticNet(0.5, 0.4)]


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: p.name)
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("free", [(), (3,)], ids=["all", "intercept free"])
def test_proximal_step_minimises_distance_plus_penalty(penalty, n_outputs, free):
    """No nearby point is lower, and a generic solver finds the same minimum."""
    rng = np.random.default_rng(0)
    loss = Logistic() if n_outputs == 1 else Multinomial(n_outputs)
    shape = (4,) if n_outputs == 1 else (4, n_outputs)
    objective = Objective(loss, penalty, unpenalised=free)
    matrix = rng.normal(size=(4, 4)) + 2.0 * np.eye(4)
    start, v, before = (rng.normal(size=shape) for _ in range(3))
    step = 0.8
    point = MetricProx(objective, matrix, start)(v, before, step)

    def cost(u):
        u = u.reshape(shape)
        w = start + matrix @ u
        kept = np.delete(w, list(free), axis=0)
        return float(((u - v) ** 2).sum() / (2.0 * step) + penalty.value(kept))

    least = cost(point)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(200):
            assert cost(point + size * rng.normal(size=shape)) >= least - 1e-9
    smooth = penalty.name in ("none", "l2")
    found = minimize(cost, np.zeros(np.prod(shape)), method="BFGS" if smooth else "Powell", tol=1e-9)
    assert least <= found.fun + 1e-9
    if smooth:
        np.testing.assert_allclose(point.ravel(), found.x, atol=1e-4)
    if penalty.name == "none":
        assert np.array_equal(point, v)


def test_proximal_step_with_l1_sets_weights_to_zero():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(6, 6)) + 2.0 * np.eye(6)
    prox = MetricProx(Objective(Logistic(), L1(50.0), unpenalised=(5,)), matrix, np.zeros(6))
    w = matrix @ prox(rng.normal(size=6), np.zeros(6), 1.0)
    np.testing.assert_allclose(w[:5], 0.0, atol=1e-12)
    assert abs(w[5]) > 1e-3


@pytest.mark.parametrize(
    "objective", [Objective(Logistic(), BoxPenalty(-1.0, 1.0)), Objective(Logistic(), constraint=L1Ball(1.0))]
)
def test_unsupported_penalties_are_refused(objective):
    with pytest.raises(Unsupported, match="none, l1, l2 and elastic-net"):
        WhitenedDescent().plan(objective, Facts(n=10, n_features=2, d=2))


def test_mapped_rows_are_isotropic():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4)) * [1.0, 0.3, 0.1, 0.05]
    heights = np.array([1.0, 1.0, 1.0, 0.5])
    moments = (X * heights).T @ (X * heights) / 500
    metric = Metric.of(moments, heights, 1e-7, 3.0, Grids(500, 4))
    Z = X @ metric.row_map.matrix
    np.testing.assert_allclose(Z.T @ Z / 500, np.eye(4), atol=1e-3)
    np.testing.assert_allclose(metric.row_moments, 1.0)
    assert metric.row_length == pytest.approx(2.0)


def test_directions_below_the_noise_are_not_stretched():
    rng = np.random.default_rng(0)
    moments = np.diag([1.0, 1e-6, -1e-3, 0.0])
    noise, d = 0.01, 4
    metric = Metric.of(moments, np.ones(d), noise, 1.0, Grids(500, d))
    assert np.linalg.norm(metric.row_map.matrix, 2) <= (noise * math.sqrt(2.0 * d)) ** -0.5 * (1.0 + 1e-6)
    assert (metric.row_moments >= 0.0).all()
    assert metric.row_moments.max() == pytest.approx(1.0)
    assert metric.row_length == pytest.approx(math.sqrt(metric.row_moments.sum()))
    only_noise = rng.normal(0.0, noise, (d, d))
    wild = Metric.of(only_noise + only_noise.T, np.ones(d), 100.0 * noise, 1.0, Grids(500, d))
    assert np.isfinite(wild.row_map.matrix).all()
    # only noise: all directions are equal, and the trace is that of rows about as long as their clipping threshold
    np.testing.assert_allclose(wild.row_moments, wild.row_moments[0])
    assert wild.row_length**2 == pytest.approx(RULE.prior_length / (100.0 * noise * math.sqrt(2.0 * d)), rel=0.05)


def test_second_moments_are_denoised():
    """Along released eigenvectors the second moments are the shrunken eigenvalues, not the noisy ones."""
    rng = np.random.default_rng(0)
    d, noise = 60, 0.02
    truth = np.diag(np.concatenate([[0.8, 0.5], np.full(d - 2, 0.005)]))
    estimated, real, naive = [], [], []
    for _ in range(20):
        drawn = rng.normal(0.0, noise / math.sqrt(2.0), (d, d))
        released = truth + np.triu(drawn, 1) + np.triu(drawn, 1).T + np.diag(rng.normal(0.0, noise, d))
        values, vectors = np.linalg.eigh(released)
        metric = Metric.of(released, np.ones(d), noise, math.sqrt(np.trace(truth) / 0.85), Grids(500, d))
        stretched = np.maximum(1e-300, (metric.row_map.matrix**2).sum(axis=0))
        estimated.append(metric.row_moments / stretched)
        real.append(np.einsum("ji,jk,ki->i", vectors, truth, vectors))
        naive.append(np.maximum(values, 0.0))
    estimated, real, naive = np.mean(estimated, axis=0), np.mean(real, axis=0), np.mean(naive, axis=0)
    np.testing.assert_allclose(estimated[-2:], real[-2:], rtol=0.05)
    assert np.abs(estimated - real).sum() < 0.25 * np.abs(naive - real).sum()


def test_the_intercept_entry_of_the_mean_row_is_one_for_any_noise():
    facts = Facts(1000, 2, 3, intercept_height=1.0)
    for square in (1.0, 0.1, -0.2):
        moments = np.diag([1.0, 1.0, square])
        assert Metric.of(moments, np.ones(3), 0.2, 2.0, facts.grids).mean_row[-1] == 1.0


@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_a_plan_decomposes_no_matrix(monkeypatch, penalty):
    """A dry run has no second moments: with many columns their decompositions would take as long as a fit."""

    def refuse(*args):
        raise AssertionError("a dry run needs no decomposition")

    for name in ("eigh", "inv"):
        monkeypatch.setattr(np.linalg, name, refuse)
    model = DPLogisticRegression(4.0, bounds=Bounds(features=(-1, 1)), penalty=penalty, solver="whitened")
    assert model.plan(1000, 30).solver == "whitened"
