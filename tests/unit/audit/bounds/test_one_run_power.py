"""Power of one run: noise of the stated factor is found as often as stated, by the bounds themselves."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.audit.bounds import CanaryScores, one_run_bound, one_run_fdp_bound, one_run_noise_factor
from dperm.audit.bounds.one_run import decisive_counts
from dperm.privacy.accounting import gdp

M, CONFIDENCE, DELTA = 200, 0.99, 1e-5
MU = 0.4  # a claim that 200 canaries can contradict
EPSILON = gdp.epsilon_of(MU, DELTA)


def share_found(factor, gap, other=0.0, repeats=120):
    """Share of runs with ``factor`` times the noise that contradict the claim, by either bound."""
    rng, found = np.random.default_rng(5), 0
    each = 1.0 - (1.0 - CONFIDENCE) / 2
    for _ in range(repeats):
        coins = rng.random(M) < 0.5
        scores = gap * coins + np.hypot(factor, np.sqrt(other)) * rng.standard_normal(M)
        sides = scores[coins], scores[~coins]
        found += (
            one_run_bound(*sides, delta=DELTA, confidence=each).epsilon > EPSILON
            or one_run_fdp_bound(*sides, delta=DELTA, confidence=each).epsilon > EPSILON
        )
    return found / repeats


@pytest.mark.parametrize("other", [0.0, 0.01])
def test_the_stated_factor_is_found_as_often_as_stated(other):
    factor = one_run_noise_factor(
        CanaryScores(MU, 1.0, other), M, epsilon=EPSILON, delta=DELTA, confidence=CONFIDENCE, mu=MU
    )
    assert 0.05 < factor < 1.0
    assert share_found(factor, MU, other) >= 0.9
    assert share_found(1.6 * factor, MU, other) < 0.9  # it is not far too careful either


def test_other_canaries_lower_the_power():
    def factor(other):
        return one_run_noise_factor(
            CanaryScores(MU, 1.0, other), M, epsilon=EPSILON, delta=DELTA, confidence=CONFIDENCE, mu=MU
        )

    assert factor(0.0) > factor(0.05) > factor(10.0) == 0.0


def test_nothing_is_found_without_a_gap_or_with_too_few_canaries():
    common = {"epsilon": EPSILON, "delta": DELTA, "mu": None}
    assert one_run_noise_factor(CanaryScores(0.0, 1.0, 0.0), M, confidence=CONFIDENCE, **common) == 0.0
    assert one_run_noise_factor(CanaryScores(5.0, 1.0, 0.0), 8, confidence=0.9999, **common) == 0.0


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.01])
def test_decisive_counts_decide(delta):
    alpha = 0.01
    for (n_in, n_out), enough in decisive_counts(M, 1.0, delta, alpha):
        made = n_in + n_out
        # the canaries at both ends are guessed: so many of them rightly, and half of the rest
        right = np.zeros(M, dtype=bool)
        right[np.linspace(0, M - 1, M).astype(int)] = np.arange(M) % 2 == 0
        order = np.r_[np.arange(M - n_in, M), np.arange(n_out)]
        is_in = right.copy()
        wrong = set(order[: made - enough].tolist())
        for k in order.tolist():
            is_in[k] = (k >= M - n_in) != (k in wrong)
        scores = np.arange(M, dtype=float)
        bound = one_run_bound(scores[is_in], scores[~is_in], delta=delta, confidence=1.0 - alpha)
        assert bound.epsilon > 1.0
