"""Bounds from one run with many canaries: right with the stated confidence, and as the formulas say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from dperm.audit.bounds import joint, one_run, one_run_bound, one_run_fdp_bound
from dperm.errors import InvalidInput
from dperm.privacy.accounting import gdp

REPEATS, CONFIDENCE = 150, 0.8
BOUNDS = (one_run_bound, one_run_fdp_bound)


def randomised_response(rng, m, epsilon, leak=0.0):
    """Scores of canaries whose bits pass randomised response; a share ``leak`` is shown openly, and looks surest."""
    inside = rng.random(m) < 0.5
    open_ = rng.random(m) < leak
    right = open_ | (rng.random(m) < special.expit(epsilon))
    scores = np.where(right == inside, 1.0, -1.0) * (rng.random(m) + open_)
    return scores[inside], scores[~inside]


def gaussian(rng, m, mu):
    inside = rng.random(m) < 0.5
    scores = rng.standard_normal(m) + mu * inside
    return scores[inside], scores[~inside]


#: audits of a planted bug, which errs much more often than stated, and a share of wrong ones that is not chance
FEW = 60
NOTICED = 1.0 - CONFIDENCE + 3.0 * math.sqrt(0.2 * 0.8 / FEW)


def false_alarms(delta=0.0, repeats=REPEATS, epsilon=1.0, m=200):
    """Share of audits of (epsilon, delta)-private reports that show more than epsilon."""
    rng = np.random.default_rng(11)
    return np.mean(
        [
            one_run_bound(*randomised_response(rng, m, epsilon, delta), delta=delta, confidence=CONFIDENCE).epsilon
            > epsilon
            for _ in range(repeats)
        ]
    )


@pytest.mark.long
@pytest.mark.parametrize("delta", [0.0, 0.002, 0.05])
def test_false_alarms_are_as_rare_as_stated(delta):
    assert false_alarms(delta) <= 1.0 - CONFIDENCE


@pytest.mark.long
def test_without_counting_all_numbers_of_guesses_false_alarms_are_noticed(monkeypatch):
    monkeypatch.setattr(joint, "_reached", lambda numbers, limits, epsilon: 0.0)
    assert false_alarms(repeats=FEW) > NOTICED


@pytest.mark.long
def test_without_the_term_for_delta_false_alarms_are_noticed(monkeypatch):
    monkeypatch.setattr(one_run, "_influence", lambda guesses, epsilon: 1e-9)
    assert false_alarms(0.05, repeats=FEW) > NOTICED


@pytest.mark.long
def test_false_alarms_are_rare_where_each_number_is_tested_for_itself(monkeypatch):
    monkeypatch.setattr(one_run, "_PART_FOR_DELTA", 0.0)
    assert false_alarms(1e-6) <= 1.0 - CONFIDENCE
    monkeypatch.setattr(one_run, "share_of", lambda alpha, n_tests: alpha)
    assert false_alarms(1e-6) > 1.0 - CONFIDENCE + 3.0 * math.sqrt(0.2 * 0.8 / REPEATS)


@pytest.mark.long
def test_false_alarms_of_the_gaussian_bound_are_as_rare_as_stated():
    rng = np.random.default_rng(12)
    limit = gdp.epsilon_of(1.0, 1e-3)
    alarms = [
        one_run_fdp_bound(*gaussian(rng, 100, 1.0), delta=1e-3, confidence=CONFIDENCE).epsilon > limit
        for _ in range(REPEATS)
    ]
    assert np.mean(alarms) <= 1.0 - CONFIDENCE


# ------------------------------------------------------------------------------------------------ known values
def test_all_right_without_delta_is_a_root_by_hand():
    # all of n guesses are right with probability q^n, so q = alpha^(1/n)
    found = one_run_bound(np.ones(20), np.zeros(20), delta=0.0, confidence=0.95, n_guesses=40)
    assert found.epsilon == pytest.approx(float(special.logit(0.05 ** (1 / 40))), abs=1e-9)
    assert found.detail == "40 of 40 guesses about 40 canaries are right."
    assert found.method == "one-run"


def test_one_canary_under_a_gaussian_curve_by_hand():
    # one guess is right with probability Phi(mu / 2) at most
    found = one_run_fdp_bound([1.0], [0.0], delta=0.01, confidence=0.2, n_guesses=(1, 0))
    assert one_run._largest_mu(1, 1, 1, 0.8) == pytest.approx(2.0 * special.ndtri(0.8), rel=1e-6)
    assert found.method == "one-run-fdp"


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("m", [1, 2, 7, 40])
def test_independent_gaussian_canaries_are_never_contradicted_at_their_own_probability(m, mu):
    for correct in range(m // 2 + 1, m + 1):
        exact = stats.binom.sf(correct - 1, m, special.ndtr(mu / 2.0))
        assert not one_run._contradicted(m, m, correct, exact * (1.0 - 1e-9), mu)


def test_impossible_success_is_contradicted():
    assert one_run._contradicted(40, 40, 40, 0.05, 0.5)
    assert not one_run._contradicted(40, 40, 20, 0.05, 0.5)


def test_the_influence_is_a_mean_of_modes():
    q = float(special.expit(0.7))
    modes = [stats.binom.pmf(np.arange(n + 1), n, q).max() for n in range(30)]
    assert one_run._influence(30, 0.7) == pytest.approx((1.0 - q) * np.mean(modes), rel=1e-12)


def test_the_influence_of_the_total_is_that_of_the_theorem():
    q, guesses, correct = float(special.expit(0.4)), 30, 24
    tail = stats.binom.sf(correct - 1, guesses, q)
    steps = [(stats.binom.sf(correct - i - 1, guesses, q) - tail) / i for i in range(1, correct + 1)]
    assert one_run._influence_of_total(guesses, correct, 0.4) == pytest.approx(2.0 * max(steps), rel=1e-9)


def test_guesses_are_the_highest_in_and_the_lowest_out():
    inside, outside = [9.0, 8.0, 1.0], [7.0, 0.0, -1.0]
    counted = [
        one_run_bound(inside, outside, delta=0.0, confidence=0.5, n_guesses=n).detail
        for n in ((2, 0), (3, 0), (0, 3), (2, 2), 6)
    ]
    assert [text.split(" guesses")[0] for text in counted] == ["2 of 2", "2 of 3", "2 of 3", "4 of 4", "4 of 6"]


# ------------------------------------------------------------------------------------------------ tightness
@pytest.mark.parametrize(("mu", "least"), [(0.5, 0.6), (1.0, 1.6), (2.0, 3.3), (4.0, 5.5)])
def test_many_canaries_find_a_good_part(mu, least):
    scores = gaussian(np.random.default_rng(13), 4000, mu)
    found = one_run_bound(*scores, delta=1e-6, confidence=0.95).epsilon
    assert least < found < gdp.epsilon_of(mu, 1e-6)
    assert found < one_run_fdp_bound(*scores, delta=1e-6, confidence=0.95).epsilon < gdp.epsilon_of(mu, 1e-6)


def test_randomised_response_is_found_nearly_whole():
    scores = randomised_response(np.random.default_rng(14), 10_000, 1.0)
    assert 0.9 < one_run_bound(*scores, delta=0.0, confidence=0.95).epsilon < 1.0


def test_delta_lowers_the_bound():
    scores = gaussian(np.random.default_rng(15), 500, 2.0)
    found = [one_run_bound(*scores, delta=delta, confidence=0.95).epsilon for delta in (0.0, 1e-4, 1e-3, 0.1)]
    assert found[0] > found[1] > found[2] > found[3] == 0.0


@pytest.mark.parametrize("bound", BOUNDS)
def test_guesses_that_are_mostly_wrong_show_nothing(bound):
    assert bound([0.0, 0.1, 0.2, 0.3], [1.0, 2.0, 3.0], delta=1e-5, confidence=0.9).epsilon == 0.0


# ------------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(
    ("inside", "outside", "n_guesses", "said"),
    [
        ([], [1.0], None, "scores_in is empty"),
        ([1.0], [], None, "scores_out is empty"),
        ([math.nan], [1.0], None, "scores_in contains NaN"),
        ([1.0], [-math.inf], None, "scores_out contains NaN or infinite"),
        ([2.0, 2.0], [2.0], None, "one and the same value"),
        ([1.0], [0.0], 3, "from 1 to the number of canaries, 2"),
        ([1.0], [0.0], (2, 1), "from 1 to the number of canaries, 2"),
        ([1.0], [0.0], 0, "n_guesses must be a whole number of 1 or more"),
        ([1.0], [0.0], (0, 0), "from 1 to the number of canaries, 2"),
    ],
)
def test_useless_results_are_refused_in_one_sentence(bound, inside, outside, n_guesses, said):
    with pytest.raises(InvalidInput, match=said):
        bound(inside, outside, delta=1e-5, confidence=0.95, n_guesses=n_guesses)


@pytest.mark.long
def test_tied_scores_favour_neither_coin():
    rng, m, epsilon, alarms = np.random.default_rng(6), 30, 0.5, 0
    for _ in range(400):
        coins = rng.random(m) < 0.5
        scores = np.where(rng.random(m) < special.expit(epsilon), coins, ~coins).astype(float)
        if 0 < coins.sum() < m and scores.min() < scores.max():
            alarms += one_run_bound(scores[coins], scores[~coins], delta=0.0, confidence=0.9).epsilon > epsilon
    assert alarms <= 56  # 40 are expected at most; 56 and more have probability .006
