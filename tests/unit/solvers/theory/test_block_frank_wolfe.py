"""Block Frank-Wolfe stays under its bounds for every sampling; curvature constants agree with brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dperm.errors import InvalidInput
from dperm.objective import Box, L1Ball, Simplex
from dperm.privacy.randomness import RandomSource
from dperm.solvers.coordinate_sampling import (
    ArbitrarySampling,
    BlockSampling,
    DistributedSampling,
    ElementarySampling,
    NiceSampling,
    Sampling,
)
from dperm.solvers.theory.block_frank_wolfe import (
    Inexactness,
    ProductSet,
    block_frank_wolfe,
    duality_gap,
    universal_step,
)
from dperm.solvers.theory.curvature import (
    Quadratic,
    distributed_bound,
    expected_curvature,
    gap_bound,
    global_curvature,
    jaggi_bound,
    lacoste_julien_bound,
    product_curvature,
    sharp_gap_bound,
    wang_bound,
)

N_BLOCKS = 6
SAMPLINGS = {
    "elementary": ElementarySampling(N_BLOCKS),
    "serial": BlockSampling.uniform(N_BLOCKS, N_BLOCKS),
    "importance": BlockSampling.importance([1.0, 2.0, 3.0, 1.0, 5.0, 1.0], N_BLOCKS),
    "nice": NiceSampling(N_BLOCKS, 2),
    "distributed": DistributedSampling(((0, 1, 2), (3, 4, 5)), 2),
    "unequal parties": DistributedSampling(((5, 0), (1, 2, 3, 4)), 1),
    "arbitrary": ArbitrarySampling(N_BLOCKS, (((0, 1, 2), 0.4), ((2, 3), 0.3), ((4, 5, 0), 0.2), ((1,), 0.1))),
}


# --------------------------------------------------------------------------------------------- structured problems
def structured_svm(seed=0):
    """Dual of a structured SVM: one simplex of labels per example, a Gram matrix of feature differences."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(5, 3 * N_BLOCKS))
    features[:, ::3] = 0.0  # the true label differs from itself by nothing
    costs = np.where(np.arange(3 * N_BLOCKS) % 3 == 0, 0.0, 1.0)
    return Quadratic(features.T @ features / N_BLOCKS, -costs), ProductSet.equal(Simplex(), N_BLOCKS, 3)


def group_fused_lasso(seed=1):
    """Dual of denoising a signal with few jumps in the largest entry of a group: an l1 ball per jump."""
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=(N_BLOCKS + 1, 2)) + np.where(np.arange(N_BLOCKS + 1) < 3, 0.0, 2.0)[:, None]
    jumps = np.diff(np.eye(N_BLOCKS + 1), axis=0)
    operator = np.kron(jumps, np.eye(2))
    return Quadratic(operator @ operator.T, -operator @ signal.ravel()), ProductSet.equal(L1Ball(0.7), N_BLOCKS, 2)


def single_coordinates(seed=2):
    """Boxes and blocks of one coordinate, correlated."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(4, N_BLOCKS)) + 1.0
    return Quadratic(columns.T @ columns, rng.normal(size=N_BLOCKS) * 3), ProductSet.equal(Box(-0.5, 1.0), N_BLOCKS)


PROBLEMS = {"structured svm": structured_svm, "group fused lasso": group_fused_lasso, "coordinates": single_coordinates}


def best_value(function, product):
    """Accelerated projected gradient, certified by the duality gap."""
    step = 1.0 / np.linalg.eigvalsh(function.hessian)[-1]
    x = momentum = product.corner()
    every, t = np.arange(product.d), 1.0
    for _ in range(20_000):
        new = product.project(momentum - step * function.partial(momentum, every))
        if (new - x) @ (momentum - new) > 0.0:
            t = 1.0
        t, previous = (1.0 + math.sqrt(1.0 + 4.0 * t * t)) / 2.0, t
        momentum, x = new + (previous - 1.0) / t * (new - x), new
        if duality_gap(function, product, x) < 1e-10:
            return function.value(x)
    raise AssertionError("the reference did not converge")


@pytest.fixture(scope="module", params=sorted(PROBLEMS))
def problem(request):
    function, product = PROBLEMS[request.param]()
    return function, product, best_value(function, product)


def mean_gaps(problem, sampling, n_steps=80, n_runs=12, inexactness=None):
    function, product, best = problem
    runs = [
        block_frank_wolfe(
            function, product, sampling, n_steps, RandomSource(insecure_seed=seed), inexactness=inexactness
        ).gaps(best)
        for seed in range(1 if isinstance(sampling, ElementarySampling) else n_runs)
    ]
    return np.mean(runs, axis=0)


def most_harmful_gradient(call, exact):
    """Make the best corner look bad and the worst one good, as far as allowed."""
    direction = call.constraint.best_atom(exact) - call.constraint.best_atom(-exact)
    size = np.linalg.norm(direction)
    return exact + direction * (call.tolerance / size) if size else exact


def most_harmful_atom(call, gradient, best):
    """Go from the best corner toward the worst as far as allowed."""
    worst = call.constraint.best_atom(-gradient)
    loss = gradient @ (worst - best)
    return best + min(1.0, call.tolerance / loss) * (worst - best) if loss > 0.0 else best


# ------------------------------------------------------------------------------------------------------ theorem 1
@pytest.mark.parametrize("name", sorted(SAMPLINGS))
def test_gaps_stay_under_the_bound(problem, name):
    function, product, _ = problem
    sampling = SAMPLINGS[name]
    curvature = expected_curvature(function.hessian, product, sampling)
    gaps = mean_gaps(problem, sampling)
    assert gaps.min() > -1e-9
    assert gaps[-1] < 0.2 * gaps[0]
    p = sampling.smallest_probability
    for t, gap in enumerate(gaps):
        assert gap <= sharp_gap_bound(gaps[0], curvature, p, t) + 1e-12
        assert sharp_gap_bound(gaps[0], curvature, p, t) <= gap_bound(gaps[0], curvature, p, t)


@pytest.mark.parametrize("name", sorted(SAMPLINGS))
@pytest.mark.parametrize(("rho_g", "rho_l"), [(2.0, 0.0), (0.0, 1.0), (0.3, 0.5)])
def test_inexact_gaps_stay_under_the_bound(problem, name, rho_g, rho_l):
    function, product, _ = problem
    sampling = SAMPLINGS[name]
    curvature = expected_curvature(function.hessian, product, sampling)
    spoilt = Inexactness(curvature, rho_g, rho_l, most_harmful_gradient, most_harmful_atom)
    gaps = mean_gaps(problem, sampling, n_steps=30, n_runs=4, inexactness=spoilt)
    rho, p = spoilt.rho(product, sampling), sampling.smallest_probability
    assert all(gap <= gap_bound(gaps[0], curvature, p, t, rho) + 1e-12 for t, gap in enumerate(gaps))
    if name == "nice":  # the callbacks do harm
        assert gaps.sum() > mean_gaps(problem, sampling, n_steps=30, n_runs=4).sum()


def test_exact_answers_of_callbacks_change_nothing(problem):
    function, product, _ = problem
    idle = Inexactness(1.0, 0.0, 0.0, lambda call, g: g, lambda call, g, s: s)
    sampling = SAMPLINGS["distributed"]
    plain, idled = (
        block_frank_wolfe(function, product, sampling, 20, RandomSource(insecure_seed=0), inexactness=way)
        for way in (None, idle)
    )
    np.testing.assert_array_equal(plain.values, idled.values)


def test_all_blocks_always_is_jaggis_method(problem):
    """Same iterates as the textbook loop, and its rate 2 C_f / (t + 2) without the first gap."""
    function, product, best = problem
    run = block_frank_wolfe(function, product, ElementarySampling(N_BLOCKS), 60, RandomSource(insecure_seed=0))
    x, every = product.corner(), np.arange(product.d)
    for t in range(60):
        x = x + 2.0 / (t + 2.0) * (product.best_atom(function.partial(x, every)) - x)
    np.testing.assert_allclose(run.x, x, atol=1e-12)
    curvature = global_curvature(function.hessian, product)
    for t, gap in enumerate(run.gaps(best)):
        assert t == 0 or gap <= jaggi_bound(curvature, t) + 1e-12
    assert jaggi_bound(3.0, 4, rho=1.0) == pytest.approx(2 * 2 * 3.0 / 6)


def test_one_block_at_a_time_is_lacoste_juliens_method(problem):
    function, product, _ = problem
    sampling = SAMPLINGS["serial"]
    d, curvature = N_BLOCKS, product_curvature(function.hessian, product)
    gaps = mean_gaps(problem, sampling)
    assert universal_step(1 / d, 7) == pytest.approx(2 * d / (7 + 2 * d))
    exact = expected_curvature(function.hessian, product, sampling)
    assert exact == pytest.approx(curvature / d)  # proposition 2, with equality for quadratics
    for t, gap in enumerate(gaps):
        bound = lacoste_julien_bound(gaps[0], curvature, d, t)
        assert gap <= bound
        assert bound == pytest.approx(2 * d * (gaps[0] + curvature) / (t + 2 * d))
        assert bound == pytest.approx(gap_bound(gaps[0], exact, 1 / d, t))


def test_rows_of_the_papers_table_are_special_cases():
    h0, c, d, rho = 1.7, 2.3, 12, 0.4
    for t in (0, 1, 10, 1000):
        assert gap_bound(h0, c, 1.0, t, rho) == pytest.approx(2 * (h0 + (1 + rho) * c) / (t + 2))
        assert gap_bound(h0, c, 1 / d, t, rho) == pytest.approx(2 * d * (h0 + (1 + rho) * d * c) / (t + 2 * d))
        for tau in (1, 3, 12):
            p = NiceSampling(d, tau).smallest_probability
            row = 2 * d * (tau * h0 + (1 + rho) * d * c) / (tau**2 * t + 2 * d * tau)
            assert gap_bound(h0, c, p, t, rho) == pytest.approx(row)
            # the same rate as for their own step, up to the weight of the first gap
            assert wang_bound(0.0, c, d, tau, t, rho) >= gap_bound(0.0, c, p, t, rho) * (1 - 1e-12)
        k, tau = 3, 2
        p = DistributedSampling((range(4), range(4, 8), range(8, 12)), tau).smallest_probability
        row = 2 * d * (k * tau * h0 + (1 + rho) * d * c) / ((tau * k) ** 2 * t + 2 * d * k * tau)
        assert gap_bound(h0, c, p, t, rho) == pytest.approx(row)
    assert p == pytest.approx(k * tau / d)


# ------------------------------------------------------------------------------------- slips that the tests can see
def test_the_printed_bracket_fails_and_is_caught():
    """2 (h_0 + (1 + rho)/p) C / (p t + 2) is zero for linear functions, whose gap is not."""
    product = ProductSet.equal(Box(0.0, 1.0), N_BLOCKS)
    linear = Quadratic(np.zeros((N_BLOCKS, N_BLOCKS)), np.ones(N_BLOCKS))
    run = block_frank_wolfe(
        linear, product, SAMPLINGS["serial"], 5, RandomSource(insecure_seed=0), start=np.ones(N_BLOCKS)
    )
    gaps, p = run.gaps(0.0), 1.0 / N_BLOCKS
    printed = [2 * (gaps[0] + 1 / p) * 0.0 / (p * t + 2) for t in range(6)]
    assert any(gap > bound for gap, bound in zip(gaps, printed, strict=True))
    assert all(gap <= gap_bound(gaps[0], 0.0, p, t) for t, gap in enumerate(gaps))


def test_a_bound_without_the_sampling_probability_is_caught(problem):
    function, product, _ = problem
    sampling = SAMPLINGS["serial"]
    curvature = expected_curvature(function.hessian, product, sampling)
    gaps = mean_gaps(problem, sampling)
    as_if_all_moved = [gap_bound(gaps[0], curvature, 1.0, t) for t in range(len(gaps))]
    assert any(gap > bound for gap, bound in zip(gaps, as_if_all_moved, strict=True))


def test_the_bound_of_proposition_4_is_reached_when_every_block_of_two_parties_moves():
    square, everyone = ProductSet.equal(Box(0.0, 1.0), n_blocks=4), DistributedSampling(((0, 1), (2, 3)), 2)
    exact = expected_curvature(np.ones((4, 4)), square, everyone)
    assert exact == pytest.approx(16.0)
    assert distributed_bound(np.ones((4, 4)), square, everyone) == pytest.approx(exact)


def test_a_callback_may_be_off_by_half_the_step_times_the_curvature():
    tolerances = {}

    def gradient(call, exact):
        tolerances[call.step] = call.tolerance
        return exact

    def atom(call, gradient, best):
        assert call.tolerance == pytest.approx(2.0 * tolerances[call.step])
        return best

    product = ProductSet.equal(Box(-1.0, 1.0), n_blocks=2)
    spoilt = Inexactness(3.0, 0.5, 1.0, gradient, atom)
    block_frank_wolfe(Quadratic(np.eye(2)), product, NiceSampling(2, 1), 3, RandomSource(0), inexactness=spoilt)
    assert list(tolerances.values()) == pytest.approx([0.5 * 0.5 * universal_step(0.5, t) * 3.0 for t in range(3)])


def test_the_printed_inexactness_is_too_small_for_long_blocks():
    """(D + |S|) rho_g + |S| rho_l, D the L2 diameter of the product, against sum_i p_i (rho_l + D_i rho_g)."""
    m, width, rho_g = 100, 10.0, 0.01
    product = ProductSet.equal(Box(0.0, width), m)
    hessian = 1e-3 * np.eye(m)
    curvature = global_curvature_of_a_diagonal(hessian, width)
    # a slope just small enough to be turned around by the largest allowed error at the first step
    function = Quadratic(hessian, np.full(m, 0.499 * rho_g * curvature))
    spoilt = Inexactness(curvature, rho_g, 0.0, lambda call, g: g - call.tolerance)
    sampling = ElementarySampling(m)
    run = block_frank_wolfe(
        function, product, sampling, 1, RandomSource(insecure_seed=0), start=np.zeros(m), inexactness=spoilt
    )
    gap = run.values[1] - 0.0  # the optimum is the start
    printed = (width * math.sqrt(m) + m) * rho_g
    assert gap > gap_bound(0.0, curvature, 1.0, 1, printed)
    assert gap <= gap_bound(0.0, curvature, 1.0, 1, spoilt.rho(product, sampling))


def global_curvature_of_a_diagonal(hessian, width):
    return float(np.trace(hessian)) * width**2


# --------------------------------------------------------------------------------------------------------- bad input
class Outside(Sampling):
    d = N_BLOCKS

    def draw(self, source):
        return (N_BLOCKS,)

    def pairs(self):
        return np.eye(self.d)

    def subsets(self):
        return []


class Improper(Outside):
    def pairs(self):
        return np.diag([0.0] + [1.0] * (N_BLOCKS - 1))


def run(**changes):
    function, product = single_coordinates()
    options = {"product": product, "sampling": SAMPLINGS["nice"], "n_steps": 2, **changes}
    return block_frank_wolfe(function, source=RandomSource(insecure_seed=0), **options)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: run(n_steps=0), "n_steps must be a whole number"),
        (lambda: run(n_steps=1.5), "n_steps must be a whole number"),
        (lambda: run(n_steps=True), "n_steps must be a whole number"),
        (lambda: run(sampling=NiceSampling(5, 1)), "over 5 blocks and the product has 6"),
        (lambda: run(sampling=Outside()), "not a subset"),
        (lambda: run(sampling=Improper()), "proper"),
        (lambda: run(p_min=0.9), "p_min must be a lower bound"),
        (lambda: run(p_min=0.0), "p_min must be above 0"),
        (lambda: run(start=np.full(6, 2.0)), "start must be a point of the set"),
        (lambda: run(start=np.zeros(5)), r"shape \(6,\)"),
        (lambda: Inexactness(-1.0), "curvature must be 0 or more"),
        (lambda: Inexactness(1.0, rho_g=math.nan), "rho_g must be a finite number"),
        (lambda: run(inexactness=Inexactness(1.0, 0.1, 0.0, lambda c, g: g + 1.0)), "more than its tolerance"),
        (lambda: run(inexactness=Inexactness(1.0, 0.1, 0.0, lambda c, g: g[:0])), "perturb_gradient must return"),
        (lambda: run(inexactness=Inexactness(1.0, 0.0, 0.1, None, lambda c, g, s: s + 9.0)), "outside the set"),
        (lambda: run(inexactness=Inexactness(1e-9, 0.0, 0.1, None, lambda c, g, s: 0.5 - s)), "worse than its"),
        (lambda: ProductSet(((0,), (2,)), (Box(0, 1), Box(0, 1))), "partition"),
        (lambda: ProductSet(((0,), ()), (Box(0, 1), Box(0, 1))), "partition"),
        (lambda: ProductSet(((0,), (1,)), (Box(0, 1),)), "as many constraints"),
        (lambda: ProductSet(((0,),), ("box",)), "as many constraints"),
        (lambda: ProductSet.equal(Box(0, 1), 0), "n_blocks must be a whole number"),
        (lambda: Quadratic([[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
        (lambda: Quadratic(-np.eye(2)), "positive semidefinite"),
        (lambda: Quadratic(np.eye(2), [1.0]), "2 finite numbers"),
        (lambda: Quadratic(np.ones((2, 3))), "square matrix"),
        (lambda: gap_bound(1.0, 1.0, 0.0, 1), "p_min must be a probability"),
        (lambda: gap_bound(1.0, -1.0, 0.5, 1), "curvature must be 0 or more"),
        (lambda: gap_bound(1.0, 1.0, 0.5, -1), "t must be 0 or more"),
        (lambda: jaggi_bound(1.0, 0), "from t = 1 on"),
    ],
)
def test_bad_input(call, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        call()


def test_a_known_lower_bound_of_the_probabilities_is_enough(problem):
    function, product, best = problem
    sampling, p = SAMPLINGS["nice"], 0.2
    curvature = expected_curvature(function.hessian, product, sampling)
    result = block_frank_wolfe(function, product, sampling, 60, RandomSource(insecure_seed=3), p_min=p)
    np.testing.assert_allclose(result.steps, [universal_step(p, t) for t in range(60)])
    gaps = result.gaps(best)
    assert gaps[-1] <= gap_bound(gaps[0], curvature, p, 60)
    assert duality_gap(function, product, result.x) >= gaps[-1] - 1e-12
    assert product.contains(result.x)
