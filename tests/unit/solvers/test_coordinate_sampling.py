"""Probabilities of samplings agree with a list of their subsets and with draws; nonsense is refused in a sentence.

The curvature constants that a sampling gives agree with their definition, and the propositions about them hold.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from itertools import product as cartesian

import numpy as np
import pytest
from scipy import stats

from dperm.errors import InvalidInput, Unsupported
from dperm.objective import Box, Constraint, L1Ball, Simplex
from dperm.privacy.randomness import RandomSource
from dperm.solvers.coordinate_sampling import (
    ArbitrarySampling,
    BlockSampling,
    DistributedSampling,
    ElementarySampling,
    NiceSampling,
    Sampling,
    _choose,
)
from dperm.solvers.theory.block_frank_wolfe import ProductSet
from dperm.solvers.theory.curvature import (
    Quadratic,
    distributed_bound,
    eso_bound,
    expected_curvature,
    expected_set_curvature,
    global_curvature,
    nice_bound,
    normalised_eigenvalue,
    pairwise_bound,
    product_curvature,
    relations,
    set_curvature,
)


class Independent(Sampling):
    """A user's own sampling: every coordinate on its own coin, so that the subset may be empty."""

    def __init__(self, chances):
        self.chances = np.asarray(chances, float)
        self.d = len(self.chances)

    def draw(self, source):
        return tuple(j for j in range(self.d) if source.below(2**32) < self.chances[j] * 2**32)

    def pairs(self):
        out = np.outer(self.chances, self.chances)
        np.fill_diagonal(out, self.chances)
        return out

    def subsets(self):
        out = []
        for size in range(self.d + 1):
            for subset in combinations(range(self.d), size):
                inside = np.isin(np.arange(self.d), subset)
                out.append((subset, float(np.where(inside, self.chances, 1 - self.chances).prod())))
        return out


SAMPLINGS = {
    "elementary": ElementarySampling(4),
    "one coordinate": NiceSampling(1, 1),
    "serial": BlockSampling.uniform(5, 5),
    "unequal blocks": BlockSampling.uniform(5, 2),
    "importance": BlockSampling.importance([1.0, 3.0, 2.0, 0.5], 3),
    "blocks in any order": BlockSampling([(3, 0), (1,), (2, 4)], [0.5, 0.2, 0.3]),
    "nice": NiceSampling(5, 2),
    "all are nice": NiceSampling(3, 3),
    "distributed": DistributedSampling(((0, 1, 2), (3, 4, 5)), 2),
    "unequal parties": DistributedSampling(((4, 1), (0, 2, 3), (5,)), 1),
    "arbitrary": ArbitrarySampling(3, (((0, 1), 0.3), ((2,), 0.2), ((0, 1, 2), 0.1), ((1, 0), 0.4))),
    "user's own": Independent([0.2, 0.9, 0.5]),
}


@pytest.fixture(params=sorted(SAMPLINGS))
def sampling(request):
    return SAMPLINGS[request.param]


def test_probabilities_agree_with_the_list_of_subsets(sampling):
    listed = sampling.subsets()
    assert math.isclose(sum(q for _, q in listed), 1.0)
    pairs = np.zeros((sampling.d, sampling.d))
    for subset, q in listed:
        assert list(subset) == sorted(set(subset))
        pairs[np.ix_(subset, subset)] += q
    np.testing.assert_allclose(sampling.pairs(), pairs, atol=1e-14)
    np.testing.assert_allclose(sampling.probabilities, pairs.diagonal(), atol=1e-14)
    assert sampling.smallest_probability == pytest.approx(pairs.diagonal().min())
    assert np.linalg.eigvalsh(sampling.pairs())[0] > -1e-12  # a second moment


def goodness_of_fit(sampling, draws, listed):
    wanted = Counter()
    for subset, q in listed:
        wanted[subset] += q
    counts = Counter(draws)
    assert set(counts) <= set(wanted)
    keys = sorted(wanted)
    if len(keys) == 1:
        return 1.0
    expected = np.array([wanted[k] for k in keys]) * len(draws)
    return float(stats.chisquare([counts[k] for k in keys], expected).pvalue)


def test_draws_follow_the_list_of_subsets(sampling):
    source = RandomSource(insecure_seed=4)
    draws = [sampling.draw(source) for _ in range(6000)]
    assert goodness_of_fit(sampling, draws, sampling.subsets()) > 1e-4


def test_the_goodness_of_fit_catches_a_wrong_distribution():
    """Pairs of coordinates drawn one after the other with slightly unequal chances."""
    rng = np.random.default_rng(0)
    sampling = NiceSampling(4, 2)
    draws = [
        tuple(sorted({int(j) for j in rng.choice(4, 2, p=[0.3, 0.25, 0.25, 0.2], replace=False)})) for _ in range(6000)
    ]
    assert goodness_of_fit(sampling, draws, sampling.subsets()) < 1e-6


def test_choices_without_repeats_are_uniform():
    source = RandomSource(insecure_seed=1)
    counts = Counter(tuple(_choose(6, 3, source)) for _ in range(8000))
    assert len(counts) == 20
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_distributed_sampling_of_equal_parties_takes_the_share_of_one_party():
    sampling = DistributedSampling(((0, 1, 2), (3, 4, 5)), 2)
    assert sampling.smallest_probability == pytest.approx(2 * 2 / 6)  # K tau / d, not its square
    assert sampling.d == 6


def test_probabilities_of_large_samplings_need_no_matrix_of_pairs():
    d = 1_000_000
    parts = (tuple(range(0, d, 2)), tuple(range(1, d, 2)))
    for sampling in (ElementarySampling(d), NiceSampling(d, 10), DistributedSampling(parts, 5)):
        assert len(sampling.probabilities) == d
        assert sampling.smallest_probability == pytest.approx(1.0 if isinstance(sampling, ElementarySampling) else 1e-5)
    with pytest.raises(InvalidInput, match="too many to list"):
        NiceSampling(100, 50).subsets()
    with pytest.raises(InvalidInput, match="too many to list"):
        DistributedSampling((tuple(range(50)), tuple(range(50, 100))), 10).subsets()


def test_whole_numbers_of_any_type_are_sizes():
    for number in (4, 4.0, np.int64(4), np.float32(4)):
        assert NiceSampling(number, 2).draw(RandomSource(insecure_seed=0))
        assert NiceSampling(8, number).tau == 4
        assert BlockSampling.uniform(8, number).d == 8
        assert type(ElementarySampling(number).d) is int


@pytest.mark.parametrize("wrong", [0, -1, 1.5, math.nan, math.inf, "3", None, True])
def test_wrong_sizes(wrong):
    for make in (ElementarySampling, lambda d: NiceSampling(d, 1), lambda d: BlockSampling.uniform(d, 1)):
        with pytest.raises(InvalidInput, match=r"^d must be a whole number"):
            make(wrong)
    for make in (lambda k: NiceSampling(4, k), lambda k: DistributedSampling(((0, 1), (2, 3)), k)):
        with pytest.raises(InvalidInput, match=r"^tau must be"):
            make(wrong)
    with pytest.raises(InvalidInput, match=r"^n_blocks must be"):
        BlockSampling.uniform(4, wrong)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: NiceSampling(3, 4), "tau must be a whole number from 1 to 3"),
        (lambda: BlockSampling.uniform(3, 4), "n_blocks must be a whole number from 1 to 3"),
        (lambda: DistributedSampling(((0, 1), (2,)), 2), "tau must be a whole number from 1 to 1"),
        (lambda: DistributedSampling(((0, 1), ()), 1), "at least one coordinate"),
        (lambda: DistributedSampling(((0, 1), (1,)), 1), "partition"),
        (lambda: DistributedSampling((), 1), "partition"),
        (lambda: DistributedSampling(((0.5, 1),), 1), "whole numbers"),
        (lambda: BlockSampling([(0, 2)], [1.0]), "partition"),
        (lambda: BlockSampling([], []), "partition"),
        (lambda: BlockSampling([(0,), (1,)], [1.0]), "as many probabilities"),
        (lambda: BlockSampling.importance([0.0, 0.0], 2), "positive, finite smoothness"),
        (lambda: BlockSampling.importance([1.0, math.nan], 2), "positive, finite smoothness"),
        (lambda: ArbitrarySampling(2, (((0,), 1.0),)), "proper"),
        (lambda: ArbitrarySampling(2, (((0, 1), 0.9),)), "sum to 1"),
        (lambda: ArbitrarySampling(2, (((0, 1), 1.5), ((0,), -0.5))), "positive"),
        (lambda: ArbitrarySampling(2, (((0, 1), math.nan),)), "positive"),
        (lambda: ArbitrarySampling(2, (((0, 0), 1.0),)), "without repeats"),
        (lambda: ArbitrarySampling(2, (((), 1.0),)), "non-empty"),
        (lambda: ArbitrarySampling(2, (((0, 2), 1.0),)), "within"),
        (lambda: ArbitrarySampling(2, (((0.7, 1), 1.0),)), "whole numbers"),
        (lambda: ArbitrarySampling(2, ()), "sum to 1"),
    ],
)
def test_wrong_distributions(make, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        make()


# ------------------------------------------------------------------------------------------------------- curvatures
def random_instance(seed):
    """A random quadratic on a product of up to six random sets, and samplings of every kind over its blocks."""
    rng = np.random.default_rng(seed)
    n_blocks = int(rng.integers(2, 7))
    sizes = rng.integers(1, 3, n_blocks)
    kinds = [L1Ball(rng.uniform(0.2, 2)), Simplex(rng.uniform(0.2, 2)), Box(-rng.uniform(0, 2), rng.uniform(0, 2))]
    constraints = [kinds[int(rng.integers(3))] for _ in sizes]
    order, blocks = rng.permutation(sizes.sum()), []
    for size in sizes:
        blocks.append(tuple(order[:size].tolist()))
        order = order[size:]
    root = rng.normal(size=(int(rng.integers(1, 6)), int(sizes.sum()))) + rng.normal()
    cut = int(rng.integers(1, n_blocks))
    places = rng.permutation(n_blocks).tolist()
    chances = rng.dirichlet(np.ones(n_blocks + 1))
    user = [((i, *(j for j in range(n_blocks) if j != i and rng.random() < 0.3)), chances[i]) for i in range(n_blocks)]
    samplings = [
        ElementarySampling(n_blocks),
        BlockSampling.uniform(n_blocks, n_blocks),
        NiceSampling(n_blocks, int(rng.integers(1, n_blocks + 1))),
        DistributedSampling((places[:cut], places[cut:]), int(rng.integers(1, min(cut, n_blocks - cut) + 1))),
        ArbitrarySampling(n_blocks, (*user, (tuple(range(n_blocks)), chances[-1]))),
    ]
    return root.T @ root, ProductSet(tuple(blocks), tuple(constraints)), samplings


def corners(constraint, size):
    """Corners of a set, written down independently of the code under test."""
    if isinstance(constraint, Box):
        return [np.array(c) for c in cartesian((constraint.low, constraint.high), repeat=size)]
    signs = (1.0,) if isinstance(constraint, Simplex) else (1.0, -1.0)
    return [sign * constraint.radius * row for row in np.eye(size) for sign in signs]


def brute_force(hessian, product, sampling, gamma=0.37):
    """The definition: all corners s and x, the mean over listed subsets, one gamma."""
    f = Quadratic(hessian, np.arange(product.d, dtype=float))
    pairs = [[s - x for s in c for x in c] for c in map(corners, product.constraints, map(len, product.blocks))]
    pairs = [np.unique(np.round(p, 12), axis=0) for p in pairs]
    if math.prod(len(p) for p in pairs) > 3000:
        return None
    x = product.corner()  # for a quadratic the deviation does not depend on x
    every, best = np.arange(product.d), 0.0
    slope, base = f.partial(x, every), f.value(x)
    for delta_parts in cartesian(*pairs):
        mean = 0.0
        for subset, q in sampling.subsets():
            delta = np.zeros(product.d)
            for i in subset:
                delta[list(product.blocks[i])] = delta_parts[i]
            mean += q * 2 / gamma**2 * (f.value(x + gamma * delta) - base - gamma * delta @ slope)
        best = max(best, mean)
    return best


def test_expected_curvature_is_its_definition():
    compared = 0
    for seed in range(40):
        hessian, product, samplings = random_instance(seed)
        sampling = samplings[seed % len(samplings)]
        if len(sampling.subsets()) > 8:
            continue
        wanted = brute_force(hessian, product, sampling)
        if wanted is not None:
            compared += 1
            assert expected_curvature(hessian, product, sampling) == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    assert compared >= 8


def test_the_propositions_hold():
    seen = set()
    for seed in range(60):
        hessian, product, samplings = random_instance(seed)
        for sampling in samplings:
            for name, (smaller, larger) in relations(hessian, product, sampling).items():
                seen.add(name)
                assert smaller <= larger * (1 + 1e-9) + 1e-12, (seed, name)
            if isinstance(sampling, NiceSampling):
                assert pairwise_bound(hessian, product, sampling) <= nice_bound(hessian, product, sampling.tau) + 1e-9
                alone = NiceSampling(product.n_blocks, 1)
                serial = product_curvature(hessian, product) / product.n_blocks
                assert expected_curvature(hessian, product, alone) == pytest.approx(serial)
    assert seen >= {"eso", "expected set curvature", "product curvature", "elementary", "nice", "distributed"}


def halved_pairs(hessian, product, sampling):
    """Proposition 3 with every pair counted once instead of twice."""
    tau = sampling.tau
    single = nice_bound(hessian, product, 1)
    return tau * single + (nice_bound(hessian, product, tau) - tau * single) / 2


def no_pairs_of_parties(hessian, product, sampling):
    """Proposition 4 without its last term."""
    k = len(sampling.parts)
    lone = DistributedSampling((range(product.n_blocks),), sampling.tau)
    return k * distributed_bound(hessian, product, lone)


def eso_of_the_wrong_eigenvalue(hessian, product, sampling):
    """The plain largest eigenvalue of the pair probabilities instead of the normalised one."""
    scale = np.linalg.eigvalsh(sampling.pairs())[-1] / normalised_eigenvalue(sampling.pairs())
    return scale * eso_bound(hessian, product, sampling)


@pytest.mark.parametrize(
    ("kind", "planted"),
    [
        (NiceSampling, halved_pairs),
        (DistributedSampling, no_pairs_of_parties),
        (NiceSampling, eso_of_the_wrong_eigenvalue),
        (ElementarySampling, lambda h, p, s: product_curvature(h, p)),
        (NiceSampling, lambda h, p, s: expected_set_curvature(h, p, s) / s.tau),
    ],
)
def test_planted_constants_are_caught(kind, planted):
    caught = 0
    for seed in range(60):
        hessian, product, samplings = random_instance(seed)
        hessian = np.abs(hessian) + 10 * np.eye(len(hessian)) if seed % 2 else hessian
        hessian = hessian + max(0.0, -np.linalg.eigvalsh(hessian)[0]) * np.eye(len(hessian))
        for sampling in (s for s in samplings if isinstance(s, kind)):
            exact = expected_curvature(hessian, product, sampling)
            caught += exact > planted(hessian, product, sampling) * (1 + 1e-9)
    assert caught >= 1


def test_known_curvatures():
    product = ProductSet.equal(Box(0.0, 1.0), 3)
    ones = np.ones((3, 3))
    assert global_curvature(ones, product) == 9.0
    assert product_curvature(ones, product) == 3.0
    assert set_curvature(ones, product, [0, 2]) == 4.0
    assert set_curvature(ones, product, []) == 0.0
    assert expected_curvature(ones, product, NiceSampling(3, 2)) == pytest.approx(4.0)
    assert nice_bound(ones, product, 2) == 4.0
    assert distributed_bound(ones, product, DistributedSampling(((0,), (1, 2)), 1)) == 4.0
    assert normalised_eigenvalue(np.zeros((2, 2))) == 1.0
    # columns of very different scales
    assert normalised_eigenvalue(np.outer([1.0, 1e-7], [1.0, 1e-7])) == pytest.approx(2.0)
    three = np.outer([1.0, 1e-7, 2e-7], [1.0, 1e-7, 2e-7]) + np.diag([0.0, 1e-14, 0.0])
    assert normalised_eigenvalue(three, [[0], [1, 2]]) == pytest.approx(
        normalised_eigenvalue(three * np.outer([1, 1e7, 1e7], [1, 1e7, 1e7]), [[0], [1, 2]])
    )
    ball = ProductSet.equal(L1Ball(2.0), 1, 4)
    assert global_curvature(np.diag([1.0, 5.0, 2.0, 0.0]), ball) == 80.0  # (2 radius)^2 times the largest
    assert global_curvature(np.eye(1), ProductSet.equal(Simplex(), 1)) == 0.0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: global_curvature(np.eye(2), ProductSet.equal(Box(0, 1), 3)), "2 rows and the product 3"),
        (lambda: expected_curvature(np.eye(3), ProductSet.equal(Box(0, 1), 3), NiceSampling(2, 1)), "over 2 blocks"),
        (lambda: set_curvature(np.eye(3), ProductSet.equal(Box(0, 1), 3), [0, 0]), "different blocks"),
        (lambda: nice_bound(np.eye(3), ProductSet.equal(Box(0, 1), 3), 4), "tau must be"),
    ],
)
def test_curvatures_of_what_does_not_fit(call, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        call()


class Ellipse(Constraint):
    name = "ellipse"
    separable = False
    project = contains = best_atom = atoms_count = diameter = None


def test_what_cannot_be_listed_is_said():
    with pytest.raises(Unsupported, match="use one of the bounds"):
        global_curvature(np.eye(30), ProductSet.equal(Box(0, 1), 30))
    assert eso_bound(np.eye(30), ProductSet.equal(Box(0, 1), 30), NiceSampling(30, 3)) == pytest.approx(3.0)
    with pytest.raises(Unsupported, match="not for 'ellipse'"):
        global_curvature(np.eye(1), ProductSet(((0,),), (Ellipse.__new__(Ellipse),)))
