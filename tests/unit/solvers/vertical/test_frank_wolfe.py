"""Distributed Frank-Wolfe: same result as with one holder, feasible, columns shared on demand; and its race."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import special, stats

from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import L2, Logistic, Objective, Squared
from dperm.privacy import Budget, Ledger, Neighbours, RandomSource, Scope, calibrate
from dperm.privacy.mechanisms.joint_selection import Finalist, JointSelection, joint_winner
from dperm.privacy.mechanisms.selection import race_scale
from dperm.solvers.central.frank_wolfe import FrankWolfe
from dperm.solvers.theory import distributed_frank_wolfe as costs
from dperm.solvers.vertical import DistributedFrankWolfe, SketchedFrankWolfe
from dperm.solvers.vertical.frank_wolfe_path import FrankWolfePath
from dperm.testing.data import Layout
from dperm.testing.vertical import facts_of, run_vertical, vertical_problem

BUDGET = Budget(2.0, 1e-6)
OBJECTIVE = Objective(Logistic())


def table(seed=0, n=300, d=12):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, d))
    return X, (rng.random(n) < special.expit(3.0 * X[:, 2] - 2.0 * X[:, 7])).astype(float)


def split(X, cuts, intercept=1.0):
    """Designs of parties with neighbouring columns; the last one has the intercept."""
    edges = [0, *cuts, X.shape[1]]
    out = {}
    for k, (start, stop) in enumerate(pairwise(edges)):
        last = k == len(edges) - 2
        scaling = Layout(n=len(X), n_features=stop - start).scaling()
        out[f"party {k}"] = DesignMatrix.from_array(X[:, start:stop], scaling, intercept if last else 0.0)
    return out


@pytest.mark.parametrize("cuts", [(5,), (3, 4, 9)])
@pytest.mark.parametrize("epsilon", [0.5, 50.0])
def test_one_seed_gives_the_iterates_of_one_holder(cuts, epsilon):
    X, y = table()
    budget = Budget(epsilon, 1e-6)
    designs = split(X, cuts)
    task = DistributedFrankWolfe(OBJECTIVE, facts_of(designs), budget, n_steps=25, radius=5.0)
    result = run_vertical(task, designs, y, seed=11).result
    data = DesignData(DesignMatrix.from_array(X, Layout(n=300, n_features=12).scaling(), 1.0), y)
    solver, objective = FrankWolfe(n_steps=25, radius=5.0), replace(OBJECTIVE, unpenalised=(12,))
    calibrated = calibrate(solver.plan(objective, data.facts), budget)
    scope = Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "x", unbounded="seeded")
    holder = DataHolder(data, scope, RandomSource(11), Neighbours.REPLACE_ONE)
    central = solver.solve(objective, holder, calibrated).weights
    assert calibrated.noise_multiplier("atom scores") == task.calibrated.noise_multiplier("joint atom choice")
    assert np.array_equal(np.concatenate(list(result.weights.values())), central)
    assert np.count_nonzero(central) >= 3


def test_other_seeds_and_secure_runs_differ():
    X, y = table()
    designs = split(X, (5,))
    task = DistributedFrankWolfe(OBJECTIVE, facts_of(designs), Budget(0.1, 1e-6), n_steps=25, radius=5.0)
    one, two, three, four = (
        np.concatenate(list(run_vertical(task, designs, y, seed=seed).result.weights.values()))
        for seed in (1, 2, None, None)
    )
    assert not np.array_equal(one, two)
    assert not np.array_equal(three, four)


@pytest.mark.parametrize("options", [{}, {"product": True}, {"n_sampled": 2}, {"product": True, "n_sampled": 2}])
def test_iterates_stay_in_their_ball(options):
    X, y = table(1)
    designs = split(X, (4, 8))
    task = DistributedFrankWolfe(OBJECTIVE, facts_of(designs), BUDGET, n_steps=20, radius=3.0, **options)
    run = run_vertical(task, designs, y)
    norms = {name: np.abs(value).sum() for name, value in run.result.weights.items()}
    assert sum(norms.values()) <= 3.0 * (1 + 1e-12)
    if "product" in options:
        assert max(norms.values()) <= 1.0 * (1 + 1e-12)
    assert len(task.calibrated.plan.releases) == (3 if "product" in options else 1)


def test_a_column_is_shared_once_and_only_when_it_becomes_active():
    X, y = table(2)
    designs = split(X, (6,))
    task = DistributedFrankWolfe(OBJECTIVE, facts_of(designs), Budget(50.0, 1e-6), n_steps=30, radius=5.0)
    run = run_vertical(task, designs, y)
    sent = [
        (name, request.facts["column"])
        for requests, replies in zip(run.messages.requests, run.messages.replies, strict=True)
        for name, request in requests.items()
        if "column" in replies[name].arrays
    ]
    active = sum(np.count_nonzero(value) for value in run.result.weights.values())
    assert len(sent) == len(set(sent))
    assert active - 1 <= len(sent) <= active + 5  # a weight may cancel; the last new one is never needed
    planned = costs.uplink_bytes(n_steps=30, n_parties=2, n_active=len(sent), length=300, per_choice=10)
    assert sum(run.messages.uplink_bytes.values()) == planned
    assert planned < costs.dense_uplink_bytes(n_rounds=30, n_parties=2, n=300) / 3


def test_sampling_draws_for_each_party_and_slows_the_step():
    X, _ = table(3)
    designs = split(X, (4, 8))
    task = DistributedFrankWolfe(OBJECTIVE, facts_of(designs), BUDGET, n_steps=5, radius=2.0, n_sampled=2)
    assert task.smallest_probability == pytest.approx(2 / 5)  # the widest party has an intercept too
    path = FrankWolfePath(2.0, 0.5)
    path.move({3: 1})
    path.move({4: -1})
    gamma = 2.0 / 2.5
    assert path.weights() == {3: pytest.approx(2.0 * (1 - gamma)), 4: pytest.approx(-2.0 * gamma)}
    with pytest.raises(InvalidInput, match="smallest party"):
        replace(task, n_sampled=5)


def test_what_does_not_fit_is_refused():
    designs, _ = vertical_problem()
    facts = facts_of(designs)
    with pytest.raises(Unsupported, match="takes no penalty"):
        DistributedFrankWolfe(Objective(Logistic(), L2(0.1)), facts, BUDGET)
    with pytest.raises(InvalidInput, match="residual_clip"):
        DistributedFrankWolfe(Objective(Squared()), facts, BUDGET)
    with pytest.raises(Unsupported, match="squared loss"):
        SketchedFrankWolfe(OBJECTIVE, facts, BUDGET)
    with pytest.raises(Unsupported, match="one atom"):
        SketchedFrankWolfe(Objective(Squared(residual_clip=1.0)), facts, BUDGET, product=True)


def test_a_sketched_run_without_noise_lowers_the_loss_and_caches_sketches():
    X, y = table(4, n=400)
    designs = split(X, (6,), intercept=0.0)
    objective = Objective(Squared(residual_clip=6.0))
    task = SketchedFrankWolfe(
        objective, facts_of(designs), Budget(1e9, 1e-6), n_steps=60, radius=1.5, n_sketch=300, target_low=-1.0
    )
    run = run_vertical(task, designs, 2.0 * y - 1.0)
    weights = np.concatenate(list(run.result.weights.values()))
    assert objective.value(X, 2.0 * y - 1.0, weights) < 0.8 * objective.value(X, 2.0 * y - 1.0, np.zeros(12))
    sketches = sum("sketch" in m.arrays for replies in run.messages.replies for m in replies.values())
    assert sketches <= 12
    used = [r for r in run.scopes["coordinator"].records if r.query == "sketched columns" and not r.forfeited]
    assert len(used) == sketches
    assert run.result.report.guarantee.view == "transcript"


# ------------------------------------------------------------------------------------------------- the race
SCORES = np.array([0.0, 1.0, -0.5, 2.0, 1.5, 0.3])
PARTS = ((0, 1), (2, 3, 4), (5,))


def joined(source, scale):
    finalists, places = [], []
    for part in PARTS:
        finalist = JointSelection(1.0).apply(SCORES[list(part)], scale, 100.0, source)
        finalists.append(finalist)
        places.append(part[finalist.place])
    return places[joint_winner(finalists, race_scale(scale, 1.0), source)]


def fit(draws, scale):
    observed = np.bincount(draws, minlength=len(SCORES))
    return stats.chisquare(observed, len(draws) * special.softmax(SCORES / scale)).pvalue


def test_a_joint_selection_has_the_law_of_one_race():
    source = RandomSource("joined")
    assert fit([joined(source, 0.8) for _ in range(3000)], 0.8) > 1e-3


def test_the_fit_rejects_a_referee_that_draws_again():
    source = RandomSource("wrong")

    def wrong():  # a second race among the winners by their scores
        finalists = [JointSelection(1.0).apply(SCORES[list(part)], 0.8, 100.0, source) for part in PARTS]
        again = [JointSelection(1.0).apply(np.array([f.score]), 0.8, 100.0, source) for f in finalists]
        best = joint_winner(again, race_scale(0.8, 1.0), source)
        return PARTS[best][finalists[best].place]

    assert fit([wrong() for _ in range(3000)], 0.8) < 1e-6


def test_near_ties_are_settled_by_the_digits_that_travelled():
    digits = np.zeros(8, np.uint64)
    digits[0], digits[3] = 2**62, 7
    more = digits.copy()
    more[3] = 6  # a smaller draw is a larger key, by the 250th digit only
    source = RandomSource()
    for order in ((digits, more), (more, digits)):
        finalists = [Finalist(0, 1.0, words) for words in order]
        assert order[joint_winner(finalists, 1.0, source)] is more
    with pytest.raises(InvalidInput, match="expected form"):
        joint_winner([Finalist(0, 1.0, np.zeros(3, np.uint64))], 1.0, source)


def test_labelled_streams():
    source = RandomSource(3)
    assert np.array_equal(source.stream("a").words(5), RandomSource(3).stream("a").words(5))
    assert not np.array_equal(source.stream("a").words(5), source.stream("b").words(5))
    assert not source.stream("a").secure
    secure = RandomSource()
    assert secure.stream("a") is secure


# ---------------------------------------------------------------------------------------------- published counts
def test_published_step_and_byte_counts():
    constant = costs.printed_gradient_constant(
        n_parties=4, nonzeros=100.0, distortion=0.1, singular_value=2.0, probability=0.5, epsilon=1.0, delta=1e-5
    )
    assert constant == pytest.approx((4 * 0.1 * 100 + 8 * 10 * 4) / 0.5 * np.sqrt(np.log(1e5) + 1))
    oracle = costs.printed_oracle_constant(gradient_bound=1.0, radius=2.0, delta=1e-5)
    assert oracle == pytest.approx(4.0 * np.sqrt(32 * np.log(2e5)))
    numbers = {"curvature": 1.0, "epsilon": 1.0, "gradient_constant": constant, "oracle_constant": oracle}
    assert costs.printed_steps(n=8_000_000, **numbers) == pytest.approx(
        4 * costs.printed_steps(n=1_000_000, **numbers), rel=0.02
    )
    small, large = (costs.printed_bytes(n=n, epsilon=1.0, n_parties=3, distortion=0.1) for n in (10**5, 10**6))
    assert 10 ** (2 / 3) < large / small < 10  # less than in proportion to n
    with pytest.raises(InvalidInput, match="must be above 0"):
        costs.sketch_rows(10, 0.1, 0.0)
