"""The analysis of ADMM sharing, checked on runs of the algorithm itself, written here a second time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.optimize import minimize
from scipy.special import expit

from dperm.errors import InvalidInput
from dperm.solvers.theory.admm_sharing import (
    SharingProblem,
    augmented_lagrangian,
    joint_change,
    printed_block_condition,
    separate_change,
    smallest_rho,
)
from dperm.solvers.vertical.exact_admm import printed_sensitivity

STRENGTH = 0.5  # of the whole penalty, not of its mean over people


@dataclass
class State:
    """x of every party, z, y; and the values that the theory speaks about."""

    x: list
    z: np.ndarray
    dual: np.ndarray


class Admm:
    """Parallel ADMM sharing for logistic loss and an l2 penalty (equations (6) to (8)), with extra damping."""

    def __init__(self, seed, n_parties, rho, damping, n=30, width=3):
        rng = np.random.default_rng(seed)
        shared = rng.normal(size=(n, width))  # columns of different parties are correlated
        self.D = [0.7 * shared + rng.normal(size=(n, width)) for _ in range(n_parties)]
        self.y = (rng.random(n) < 0.5).astype(float)
        self.rho, self.damping, self.n = rho, damping, n
        values = [np.linalg.eigvalsh(D.T @ D) for D in self.D]
        low, high = (tuple(float(v[k]) for v in values) for k in (0, -1))
        self.problem = SharingProblem(rho, damping, low, high, 0.25, STRENGTH)

    def start(self):
        return State([np.zeros(D.shape[1]) for D in self.D], np.zeros(self.n), expit(np.zeros(self.n)) - self.y)

    def scores(self, x):
        return sum(D @ w for D, w in zip(self.D, x, strict=True))

    def loss(self, z):
        return float(np.logaddexp(0.0, z).sum() - self.y @ z)

    def penalty(self, x):
        return 0.5 * STRENGTH * sum(float(w @ w) for w in x)

    def lagrangian(self, s):
        return augmented_lagrangian(self.loss(s.z), self.penalty(s.x), self.scores(s.x), s.z, s.dual, self.rho)

    def round(self, s):
        residual = s.dual + self.rho * (self.scores(s.x) - s.z)
        x = []
        for D, w in zip(self.D, s.x, strict=True):
            curvature = self.rho * (1.0 + self.damping) * (D.T @ D)
            x.append(np.linalg.solve(curvature + STRENGTH * np.eye(len(w)), curvature @ w - D.T @ residual))
        total = self.scores(x)
        z = s.z.copy()
        for _ in range(60):  # Newton, one number for each person
            p = expit(z)
            z -= (p - self.y - s.dual + self.rho * (z - total)) / (p * (1.0 - p) + self.rho)
        return State(x, z, s.dual + self.rho * (total - z))

    def lyapunov(self, s):
        """V of equation (13): proximal gradients of the blocks, gradient in z, constraint."""
        gap = self.scores(s.x) - s.z
        out = float(np.sum((expit(s.z) - self.y - s.dual - self.rho * gap) ** 2) + gap @ gap)
        for D, w in zip(self.D, s.x, strict=True):
            shrunk = (w - D.T @ (s.dual + self.rho * gap)) / (1.0 + STRENGTH)
            out += float(np.sum((w - shrunk) ** 2))
        return out

    def best(self):
        pooled, edges = np.hstack(self.D), np.cumsum([D.shape[1] for D in self.D])[:-1]
        found = minimize(lambda w: self.loss(pooled @ w) + self.penalty(np.split(w, edges)), np.zeros(pooled.shape[1]))
        return float(found.fun)


def changes(before, after):
    blocks = [float(np.linalg.norm(a - b)) for a, b in zip(after.x, before.x, strict=True)]
    return blocks, float(np.linalg.norm(after.z - before.z))


CASES = [(2, 0.0, 0.36), (2, 1.0, 0.4), (2, 0.0, 2.0), (3, 2.0, 0.4), (4, 1.01, 0.6)]


@pytest.mark.parametrize(("n_parties", "damping", "rho"), CASES)
def test_every_round_falls_as_much_as_lemma_4_says(n_parties, damping, rho):
    run = Admm(n_parties, n_parties, rho, damping)
    assert run.problem.converges
    state, tightest = run.round(run.start()), 0.0
    for _ in range(40):
        after = run.round(state)
        fall = run.lagrangian(state) - run.lagrangian(after)
        promised = run.problem.descent(*changes(state, after))
        assert fall >= promised - 1e-9 * abs(run.lagrangian(state))
        if fall > 1e-6:
            tightest = max(tightest, promised / fall)
        state = after
    assert tightest > 0.02  # the promise is of the size of what happens


@pytest.mark.parametrize(("n_parties", "damping", "rho"), CASES)
def test_lemma_2_and_lemma_5_along_a_run(n_parties, damping, rho):
    run = Admm(7, n_parties, rho, damping)
    state, best = run.round(run.start()), run.best()
    for _ in range(20):
        np.testing.assert_allclose(expit(state.z) - run.y, state.dual, atol=1e-9)
        assert run.lagrangian(state) >= best - 1e-8
        after = run.round(state)
        assert np.linalg.norm(after.dual - state.dual) <= 0.25 * np.linalg.norm(after.z - state.z) + 1e-12
        state = after


@pytest.mark.parametrize(("n_parties", "damping", "rho"), CASES)
def test_theorem_2_bounds_the_stationarity_along_a_run(n_parties, damping, rho):
    run = Admm(11, n_parties, rho, damping)
    state, best = run.round(run.start()), run.best()
    first, smallest, start = run.lagrangian(state), math.inf, run.lyapunov(state)
    for t in range(1, 100):
        after = run.round(state)
        blocks, z = changes(state, after)
        squares = sum(length**2 for length in blocks) + z**2
        assert run.lyapunov(state) <= run.problem.stationarity_factor * squares + 1e-12
        smallest = min(smallest, run.lyapunov(state))
        assert t <= run.problem.rounds_until(smallest, first, best)
        state = after
    assert smallest < 0.02 * start  # and it converges, as Theorem 1 says


def three_alike(rho, damping):
    """Three parties that hold nearly the same columns: each corrects the whole error."""
    run, rng = Admm(3, 3, rho, damping), np.random.default_rng(0)
    shared = rng.normal(size=(30, 3))
    run.D = [shared + 0.01 * rng.normal(size=(30, 3)) for _ in range(3)]
    values = [np.linalg.eigvalsh(D.T @ D) for D in run.D]
    low, high = (tuple(float(v[k]) for v in values) for k in (0, -1))
    run.problem = SharingProblem(rho, damping, low, high, 0.25, STRENGTH)
    return run


@pytest.mark.parametrize(("damping", "converges"), [(0.0, False), (2.0, True)])
def test_three_parties_may_diverge_with_the_printed_step(damping, converges):
    run = three_alike(0.4, damping)
    assert run.problem.converges == converges
    state = run.start()
    for _ in range(60):
        state = run.round(state)
    assert (run.lyapunov(state) < 0.01) == converges
    assert (run.lyapunov(state) > 100.0) != converges


@pytest.mark.parametrize("rho", [40.0, 400.0])
def test_lemma_4_as_printed_is_false_for_three_parties(rho):
    """Its condition holds, and the augmented Lagrangian falls by about half of what it promises."""
    run = three_alike(rho, 0.0)
    pairs = list(zip(run.problem.smallest, run.problem.largest, strict=True))
    assert all(printed_block_condition(rho, low, high, STRENGTH) for low, high in pairs)
    assert not run.problem.converges
    state = run.round(run.start())
    after = run.round(state)
    blocks, z = changes(state, after)
    gains = [0.5 * (STRENGTH + rho * low) - high for low, high in pairs]
    promised = sum(gain * length**2 for gain, length in zip(gains, blocks, strict=True)) + run.problem.z_descent * z**2
    assert run.lagrangian(state) - run.lagrangian(after) < 0.6 * promised


def test_smallest_rho_is_where_the_dual_step_stops_costing():
    for convex in (True, False):
        rho = smallest_rho(0.25, convex=convex)
        made = SharingProblem(rho, 1.0, (1.0, 1.0), (2.0, 2.0), 0.25, convex=convex)
        assert made.z_descent == pytest.approx(0.0, abs=1e-12)
        assert replace(made, rho=1.001 * rho).converges
        assert not replace(made, rho=0.999 * rho).converges
        assert math.isinf(replace(made, rho=0.999 * rho).rate_constant)


def test_lemma_3_holds_as_corrected_and_not_as_printed():
    rng = np.random.default_rng(1)
    for n_parties in (2, 3, 6):
        for _ in range(200):
            moves = list(rng.normal(size=(n_parties, 4)) + rng.normal(size=4))
            residual = rng.normal(size=4)
            joint = joint_change(residual, moves)
            assert joint <= separate_change(residual, moves) + 1e-9
            if n_parties == 2:
                assert joint <= separate_change(residual, moves, printed=True) + 1e-9
    same = [np.ones(4)] * 5
    assert joint_change(np.zeros(4), same) == pytest.approx(separate_change(np.zeros(4), same))
    assert joint_change(np.zeros(4), same) > 2.0 * separate_change(np.zeros(4), same, printed=True)


def test_the_printed_sensitivity_of_lemma_1_is_too_small_for_many_columns():
    """Two tables that differ by 1 in one column; rows of length 1 and all variables within the paper's bound."""
    n, d, rho, bound = 16, 12, 1.0, 1.0
    H = hadamard(n).astype(float)
    small = 1.0 / math.sqrt(2.0 * n)
    common = H[:, 1:d] * math.sqrt((1.0 - small**2) / (d - 1))
    tables = [np.column_stack([common, small * H[:, k]]) for k in (d, d + 1)]
    assert np.linalg.norm(tables[0] - tables[1]) <= 1.0 + 1e-12
    dual, z = np.zeros(n), np.zeros(n)
    dual[0], z[0] = -bound, bound  # of l1 norm 1, so of any norm
    messages = []
    for D in tables:
        np.testing.assert_allclose(np.linalg.norm(D, axis=1), 1.0)
        x = np.linalg.solve(rho * D.T @ D, -D.T @ (dual - rho * z))  # one party, no penalty
        messages.append(D @ x)
    printed = printed_sensitivity(d, 1, rho, 0.0, bound, 1.0)
    assert np.linalg.norm(messages[0] - messages[1]) > 1.4 * printed


def test_bad_numbers_are_refused():
    with pytest.raises(InvalidInput, match="smallest and a largest"):
        SharingProblem(1.0, 0.0, (1.0,), (1.0, 2.0), 0.25)
    with pytest.raises(InvalidInput, match="the smallest at most"):
        SharingProblem(1.0, 0.0, (2.0,), (1.0,), 0.25)
