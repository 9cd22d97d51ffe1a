"""The power statement: audits with the stated noise find the violation as often as it says."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import special
from simulated_power import claimed_mu, simulated_noise_factor

from dperm.audit.bounds import claim_violation, noise_factor_found, power
from dperm.audit.bounds.curves import Profile
from dperm.audit.claim import Claim
from dperm.privacy.accounting import composition, gdp
from dperm.privacy.accounting.events import Laplace

MU, CONFIDENCE, RUNS, REACHED = 1.0, 0.99, 200, 0.8
CLAIM = partial(gdp.delta_of, MU)


def share_found(factor, repeats):
    """The share of audits that find a violation, by the function that an audit calls."""
    rng = np.random.default_rng(21)
    separation = REACHED * MU / factor
    audits = (rng.standard_normal((2, RUNS)) for _ in range(repeats))
    found = [claim_violation(noise + separation, absent, CLAIM, confidence=CONFIDENCE) for noise, absent in audits]
    return np.mean([one is not None for one in found])


@pytest.mark.long
def test_noise_at_the_simulated_factor_is_found_as_often_as_stated():
    factor = simulated_noise_factor(RUNS, CLAIM, confidence=CONFIDENCE, reached=REACHED)
    assert 0.05 < factor < 0.8
    # 200 audits find it in 95% +- 1.5%, and the factor is known to about as much
    assert 0.89 < share_found(factor, 200) < 0.99
    assert share_found(1.3 * factor, 100) < 0.85
    assert share_found(0.8 * factor, 60) > 0.97


@pytest.mark.long
def test_noise_at_the_quick_factor_is_found_at_least_as_often():
    quick = noise_factor_found(REACHED * MU, RUNS, RUNS, CLAIM, confidence=CONFIDENCE)
    assert share_found(quick, 200) > 0.93


def test_more_runs_and_a_better_attack_find_more():
    def ask(n_runs, reached=MU, **settings):
        return noise_factor_found(reached, n_runs, n_runs, CLAIM, confidence=CONFIDENCE, **settings)

    few, many = ask(100), ask(2000)
    assert 0.0 < few < many < 1.0
    assert ask(100, 0.5 * MU) == pytest.approx(0.5 * few)
    assert ask(100, power=0.5) > few
    assert ask(100, 0.0) == 0.0


def test_too_few_runs_find_nothing():
    # 100 runs cannot show that a ratio of probabilities exceeds exp(3), whatever their results
    for claim, n_runs in ((CLAIM, 2), (Claim(3.0).delta_at, 100)):
        assert simulated_noise_factor(n_runs, claim, confidence=0.9999, draws=20) == 0.0
        assert noise_factor_found(5.0, n_runs, n_runs, claim, confidence=0.9999) == 0.0
    assert noise_factor_found(5.0, 300, 300, Claim(3.0).delta_at, confidence=0.9999) > 0.0


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("n_runs", [100, 400])
def test_the_quick_power_is_what_single_events_reach(epsilon, n_runs):
    """By simulated counts, without the integral: the best event finds it in 95%, less noise more often."""
    claim, rng, confidence = Claim(epsilon).delta_at, np.random.default_rng(3), 0.95
    factor = noise_factor_found(0.1, n_runs, n_runs, claim, confidence=confidence)
    separation, events = 0.1 / factor, power._decisive_events(Profile(claim), n_runs, n_runs, 1.0 - confidence)
    thresholds = -np.sort(-rng.standard_normal((4000, n_runs)), axis=1)
    reached = []
    for event in events:
        beyond = special.ndtr(separation - thresholds[:, event.rank - 1])
        reached.append((rng.binomial(n_runs, beyond) >= event.hits).mean())
    assert 0.945 < max(reached) < 0.975


GRID = [
    pytest.param(claim, n_runs, confidence, marks=() if (n_runs, confidence) == (100, 0.9999) else pytest.mark.long)
    for claim in (CLAIM, Claim(1.0).delta_at, Claim(0.5, 1e-3).delta_at, Claim(3.0).delta_at)
    for n_runs in (100, 300)
    for confidence in (0.99, 0.9999)
]


@pytest.mark.parametrize(("claim", "n_runs", "confidence"), GRID)
def test_the_quick_power_never_overstates_the_simulated_one(claim, n_runs, confidence):
    quick = noise_factor_found(claimed_mu(claim), n_runs, n_runs, claim, confidence=confidence)
    simulated = simulated_noise_factor(n_runs, claim, confidence=confidence, draws=150)
    # so many simulated audits know the factor to within 3%
    assert 0.75 * simulated <= quick <= 1.03 * simulated


def test_the_quick_power_leaves_out_no_share_of_the_error(monkeypatch):
    honest = noise_factor_found(1.0, 100, 100, CLAIM, confidence=0.99)
    monkeypatch.setattr(power, "share_of", lambda alpha, n_tests: alpha)
    assert noise_factor_found(1.0, 100, 100, CLAIM, confidence=0.99) > 1.08 * honest


def test_a_claim_of_pure_epsilon_has_a_separation():
    assert 0.3 < claimed_mu(partial(composition.delta, Laplace(1.0))) < 1.0
