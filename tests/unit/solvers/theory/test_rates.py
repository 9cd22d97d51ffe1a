"""Published rates as functions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dperm.errors import InvalidInput
from dperm.solvers.coordinate_sampling import BlockSampling
from dperm.solvers.theory import rates as theory


@pytest.mark.parametrize("p", [16, 100, 1024])
def test_importance_sampling_gains_sqrt_p_on_the_imbalanced_example(p):
    """One coordinate dominates smoothness and distance: uniform pays sqrt(p) more."""
    smoothness = np.full(p, 1e-9)
    smoothness[0] = 1.0
    distance = np.full(p, 1e-9)
    distance[0] = 1.0
    lipschitz = np.ones(p)
    uniform = theory.block_rate_convex(lipschitz, smoothness, distance, BlockSampling.uniform(p, p).probabilities)
    importance = theory.block_rate_convex(
        lipschitz, smoothness, distance, BlockSampling.importance(smoothness, p).probabilities
    )
    assert uniform / importance == pytest.approx(math.sqrt(p), rel=0.01)
    assert uniform == pytest.approx(theory.coordinate_rate_convex(lipschitz, smoothness, distance))


def test_table_rows_are_special_cases():
    rng = np.random.default_rng(0)
    M, L, R = rng.uniform(0.1, 2, 12), rng.uniform(0.1, 2, 12), rng.normal(size=12)
    for b in (1, 3, 12):
        blocks = [part.tolist() for part in np.array_split(np.arange(12), b)]
        largest = sum(max(M[j] for j in block) for block in blocks)
        uniform = theory.block_rate_convex(L, M, R, BlockSampling.uniform(12, b).probabilities)
        printed = np.sqrt((L**2 / M).sum()) * np.sqrt((M * R**2).sum()) * math.sqrt(b)
        assert uniform == pytest.approx(printed)
        importance = theory.block_rate_convex(L, M, R, BlockSampling.importance(M, b).probabilities)
        # the printed row bounds M_j / p_j by the sum of the blocks' largest
        assert importance <= np.sqrt((L**2 / M).sum()) * np.linalg.norm(R) * math.sqrt(largest) * (1 + 1e-12)
        strongly = theory.block_rate_strongly_convex(L, M, BlockSampling.importance(M, b).probabilities, 0.1)
        assert strongly <= (L**2 / M).sum() / 0.1 * largest * (1 + 1e-12)


def test_greedy_rates_move_the_right_way():
    base = {"p": 1000, "epsilon": 1.0, "delta": 1e-6, "smallest_smoothness": 0.25, "largest_lipschitz": 1.0}
    few, many = (theory.greedy_rate_convex(n=n, distance=1.0, **base) for n in (1000, 8000))
    assert few / many == pytest.approx(4.0)
    few, many = (theory.greedy_rate_strongly_convex(n=n, strong_convexity=0.1, **base) for n in (1000, 2000))
    assert few / many == pytest.approx(4.0)
    steps = [theory.greedy_steps_convex(n, 1.0, 1e-6, 1.0, 0.25, 1.0) for n in (1000, 8000)]
    assert steps[1] / steps[0] == pytest.approx(4.0)
    assert theory.greedy_steps_strongly_convex(10**6, 1000, 1.0, 1e-6, 0.1, 0.25, 1.0, 0.7) > 1.0


ARGUMENTS = {"n": 1000, "p": 50, "epsilon": 0.5, "delta": 1e-5, "smallest_smoothness": 0.25, "largest_lipschitz": 2.0}


@pytest.mark.parametrize(
    ("name", "power"),
    [
        ("n", -2 / 3),
        ("epsilon", -2 / 3),
        ("distance", 4 / 3),
        ("smallest_smoothness", -1 / 3),
        ("largest_lipschitz", 2 / 3),
    ],
)
def test_convex_greedy_rate_scales_as_printed(name, power):
    given = {**ARGUMENTS, "distance": 3.0}
    base, doubled = theory.greedy_rate_convex(**given), theory.greedy_rate_convex(**{**given, name: 2 * given[name]})
    assert doubled / base == pytest.approx(2.0**power)


@pytest.mark.parametrize(
    ("name", "power"),
    [
        ("n", 2 / 3),
        ("epsilon", 2 / 3),
        ("distance", 2 / 3),
        ("smallest_smoothness", 1 / 3),
        ("largest_lipschitz", -2 / 3),
    ],
)
def test_convex_greedy_steps_scale_as_printed(name, power):
    given = {**ARGUMENTS, "distance": 3.0}
    del given["p"]
    base, doubled = theory.greedy_steps_convex(**given), theory.greedy_steps_convex(**{**given, name: 2 * given[name]})
    assert doubled / base == pytest.approx(2.0**power)


def test_greedy_rates_are_the_printed_numbers():
    """Theorems 4.4 and 4.7 of Mangold et al. (2023), worked out by hand."""
    tail = math.log(1e5)
    convex = theory.greedy_rate_convex(**ARGUMENTS, distance=3.0, failure=0.1)
    assert convex == pytest.approx(
        3 ** (4 / 3) * 2 ** (2 / 3) * tail * math.log(500) / (500 ** (2 / 3) * 0.25 ** (1 / 3))
    )
    steps = theory.greedy_steps_convex(1000, 0.5, 1e-5, 3.0, 0.25, 2.0)
    assert steps == pytest.approx((1500**2 * 0.25 / (4 * tail)) ** (1 / 3))
    strong = theory.greedy_rate_strongly_convex(**ARGUMENTS, strong_convexity=0.2, failure=0.1)
    assert strong == pytest.approx(4 * tail * math.log(5000) / (0.25 * 0.04 * 500**2))
    inside = 0.25 * 0.2 * 1e6 * 3.0 / (2 * tail * math.log(1000))
    count = theory.greedy_steps_strongly_convex(10**6, 50, 1.0, 1e-5, 0.2, 0.25, 2.0, 3.0, failure=0.1)
    assert count == pytest.approx(math.log(inside) / 0.2)
    sparse = theory.greedy_quasi_sparse_bound(
        2, n=1000, p=50, epsilon=0.5, gap=3.0, tolerance=0.1, n_large=4, sparsity=1, strong_convexity=0.2,
        smallest_smoothness=0.25, largest_lipschitz=2.0,
    )  # fmt: skip
    contraction = (1 - 0.2 / (4 * 5)) ** 2
    assert sparse == pytest.approx(3.0 * contraction + 6 * 46 * 0.01 + 4 * 2 * 6 / (0.25 * 0.2 * 500**2))


def test_quasi_sparsity():
    w = [5.0, -2.0, 0.05, 0.0, -0.01]
    assert theory.quasi_sparsity(w, 0.1) == 2
    assert theory.is_quasi_sparse(w, 0.1, 2)
    assert not theory.is_quasi_sparse(w, 0.1, 1)
    assert theory.quasi_sparsity(w, 0.0) == 4


def test_quasi_sparse_bound_contracts_then_grows():
    given = {
        "n": 1000, "p": 1000, "epsilon": 1.0, "gap": 1.0, "tolerance": 0.0, "n_large": 2, "sparsity": 3,
        "strong_convexity": 0.9, "smallest_smoothness": 0.25, "largest_lipschitz": 1.0,
    }  # fmt: skip
    values = [theory.greedy_quasi_sparse_bound(n_steps=t, **given) for t in (0, 5, 50, 900)]
    assert values[0] == 1.0
    assert values[1] < values[0]
    assert values[3] > values[2]
    with pytest.raises(InvalidInput, match="needs"):
        theory.greedy_quasi_sparse_bound(n_steps=999, **given)
    with pytest.raises(InvalidInput, match="positive"):
        theory.block_rate_convex([1.0, -1.0], [1.0, 1.0], [1.0, 1.0], [0.5, 0.5])


def test_theorem_4_7_contracts_by_the_weights_that_can_be_there_by_then():
    """After t steps from 0 at most t weights are not zero, and never more than the iterates' sparsity."""
    bound = theory.greedy_quasi_sparse_bound(
        n_steps=4,
        n=10**9,
        p=50,
        epsilon=1e9,
        gap=2.0,
        tolerance=0.0,
        n_large=3,
        sparsity=2,
        strong_convexity=0.5,
        smallest_smoothness=1.0,
        largest_lipschitz=1.0,
    )
    left = (1 - 0.5 / (4 * 4)) * (1 - 0.5 / (4 * 5)) ** 3
    assert bound == pytest.approx(2.0 * left, rel=1e-12)
