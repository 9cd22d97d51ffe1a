"""Table 1 of the DP-SkGD paper: printed rows against the general one, and the gain of importance sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dperm.errors import InvalidInput
from dperm.privacy.randomness import RandomSource
from dperm.solvers.coordinate_sampling import BlockSampling, NiceSampling
from dperm.solvers.theory import rates
from dperm.solvers.theory.block_descent import BlockProblem, block_lipschitz, importance_gain, sketch, table1

D = 12


def problem(rng):
    M, L, R = rng.uniform(0.1, 2, D), rng.uniform(0.1, 2, D), rng.uniform(0, 1, D)
    return BlockProblem(tuple(M), tuple(L), tuple(R), 0.05, 0.03)


def example(d, small=1e-9):
    """The paper's example: the first coordinate has nearly all smoothness and distance."""
    one = np.full(d, small)
    one[0] = 1.0
    return BlockProblem(tuple(one), (1.0,) * d, tuple(one), 1e-3, 1e-3)


@pytest.mark.parametrize("b", [1, 3, D])
def test_printed_rows_follow_from_the_general_row(b):
    one = problem(np.random.default_rng(b))
    blocks = [block for block, _ in BlockSampling.uniform(D, b).subsets()]
    L = block_lipschitz(one.lipschitz, blocks)
    rows = {(row.method, row.sampling, row.n_blocks): row for row in table1(one, b)}
    uniform, important = (rows["DP-SkGD", name, b] for name in ("uniform", "importance"))
    p = BlockSampling.uniform(D, b).probabilities
    assert uniform.convex == pytest.approx(rates.block_rate_convex(L, one.smoothness, one.distance, p))
    assert uniform.strongly_convex == pytest.approx(rates.block_rate_strongly_convex(L, one.smoothness, p, 0.05))
    p = BlockSampling.importance(one.smoothness, b).probabilities
    # the printed row bounds M_j/p_j by the sum of the blocks' largest, which is exact for single coordinates
    general = rates.block_rate_convex(L, one.smoothness, one.distance, p)
    assert important.convex == pytest.approx(general) if b == D else important.convex >= general
    strongly = rates.block_rate_strongly_convex(L, one.smoothness, p, 0.05)
    assert important.strongly_convex == pytest.approx(strongly)


def test_special_rows_agree():
    one = problem(np.random.default_rng(7))
    rows = {(row.method, row.sampling, row.n_blocks): row for row in table1(one, 3)}
    assert rows["DP-CD", "uniform", D].convex == pytest.approx(rows["DP-SkGD", "uniform", D].convex)
    assert rows["DP-SkGD", "all coordinates", 1].convex == pytest.approx(
        next(row for row in table1(one, 1) if (row.sampling, row.n_blocks) == ("uniform", 1)).convex
    )
    whole = math.sqrt(sum(L**2 for L in one.lipschitz))
    trace = sum(1.0 / M for M in one.smoothness)
    assert rows["DP-SkGD", "all coordinates", 1].strongly_convex == pytest.approx(
        whole**2 * trace * max(one.smoothness) / 0.05
    )
    assert rows["DP-SGD, DP-SVRG", "all coordinates", 1].convex == pytest.approx(
        whole * np.linalg.norm(one.distance) * math.sqrt(D)
    )
    assert len(table1(one, D)) == 5


@pytest.mark.parametrize("d", [4, 64, 400])
def test_the_example_gains_sqrt_d_and_d(d):
    convex, strongly = importance_gain(example(d), d)
    assert convex == pytest.approx(math.sqrt(d), rel=1e-3)
    assert strongly == pytest.approx(d, rel=1e-3)
    assert importance_gain(BlockProblem((2.0,) * d, (1.0,) * d, (1.0,) * d, 1.0, 1.0), d) == pytest.approx((1.0, 1.0))


def test_gains_never_exceed_their_limits():
    rng = np.random.default_rng(3)
    for _ in range(50):
        convex, strongly = importance_gain(problem(rng), 6)
        assert convex <= math.sqrt(6) + 1e-9
        assert 1.0 - 1e-9 <= strongly <= 6 + 1e-9


@pytest.mark.parametrize("sampling", [BlockSampling.importance((1.0, 3.0, 2.0, 0.5), 4), NiceSampling(4, 2)])
def test_the_sketch_is_unbiased(sampling):
    """Definition 0."""
    mean = sum(q * sketch(drawn, sampling.probabilities) for drawn, q in sampling.subsets())
    assert mean == pytest.approx(np.ones(4))
    drawn = sampling.draw(RandomSource(1))
    assert np.flatnonzero(sketch(drawn, sampling.probabilities)).tolist() == list(drawn)


def test_the_lipschitz_constant_of_a_block_bounds_a_linear_function():
    """Assumption 3 with |f(w + v) - f(w)| <= |g_U| |v| for v on U."""
    rng = np.random.default_rng(5)
    g = rng.normal(size=6)
    L = block_lipschitz(np.abs(g), [[0, 1, 2], [3], [4, 5]])
    for block in ([0, 1, 2], [3], [4, 5]):
        v = np.zeros(6)
        v[block] = rng.normal(size=len(block))
        assert abs(g @ v) <= L[block[0]] * np.linalg.norm(v) + 1e-12


def test_lists_of_different_length_are_refused():
    with pytest.raises(InvalidInput, match="one number per coordinate"):
        BlockProblem((1.0,), (1.0, 1.0), (1.0,), 1.0, 1.0)
