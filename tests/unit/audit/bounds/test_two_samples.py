"""Bounds from many runs: right with the stated confidence, and close when there are many runs."""

from __future__ import annotations

import math
import re
from functools import partial

import numpy as np
import pytest

from dperm.audit.bounds import claim_violation, clopper_pearson_bound, gaussian_dp_bound, two_samples
from dperm.errors import InvalidInput
from dperm.privacy.accounting import composition, gdp
from dperm.privacy.accounting.events import Laplace

REPEATS, CONFIDENCE = 150, 0.8
BOUNDS = (clopper_pearson_bound, gaussian_dp_bound)


def gaussian(rng, n, mu):
    return rng.normal(mu, 1.0, n), rng.normal(0.0, 1.0, n)


def laplace(rng, n, epsilon):
    return rng.laplace(epsilon, 1.0, n), rng.laplace(0.0, 1.0, n)


def bits(rng, n, epsilon):
    q = 1.0 / (1.0 + math.exp(epsilon))
    return (rng.random(n) > q).astype(int), (rng.random(n) < q).astype(int)


def gaussian_alarm(present, absent):
    return gaussian_dp_bound(present, absent, delta=1e-3, confidence=CONFIDENCE).epsilon > gdp.epsilon_of(0.7, 1e-3)


def pure_alarm(present, absent):
    return clopper_pearson_bound(present, absent, delta=0.0, confidence=CONFIDENCE).epsilon > 0.8


def claim_alarm(present, absent):
    claim = partial(gdp.delta_of, 0.7)
    return claim_violation(present, absent, claim, confidence=CONFIDENCE) is not None


CASES = {
    "gaussian": (gaussian, 0.7, gaussian_alarm),
    "laplace": (laplace, 0.8, pure_alarm),
    "bits": (bits, 0.8, pure_alarm),
    "claim": (gaussian, 0.7, claim_alarm),
}


def false_alarms(case):
    """Share of audits of a method that keeps its claim exactly, and yet raise an alarm."""
    draw, claimed, alarm = CASES[case]
    rng = np.random.default_rng(list(case.encode()))
    return np.mean([alarm(*draw(rng, 120, claimed)) for _ in range(REPEATS)])


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_false_alarms_are_as_rare_as_stated(case):
    assert false_alarms(case) <= 1.0 - CONFIDENCE


@pytest.mark.long
@pytest.mark.parametrize("case", ["gaussian", "claim"])
def test_without_sharing_the_error_false_alarms_are_noticed(case, monkeypatch):
    monkeypatch.setattr(two_samples, "share_of", lambda alpha, n_tests: alpha)
    assert false_alarms(case) > 1.0 - CONFIDENCE + 3.0 * math.sqrt(0.2 * 0.8 / REPEATS)


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
def test_many_runs_find_most_of_a_gaussian_shift(mu):
    present, absent = gaussian(np.random.default_rng(1), 20_000, mu)
    bound = gaussian_dp_bound(present, absent, delta=1e-5, confidence=0.99)
    assert 0.88 * gdp.epsilon_of(mu, 1e-5) < bound.epsilon < gdp.epsilon_of(mu, 1e-5)
    assert (bound.delta, bound.confidence, bound.method) == (1e-5, 0.99, "gaussian-dp")


@pytest.mark.parametrize("flip", [False, True], ids=["larger with", "smaller with"])
@pytest.mark.parametrize("draw", [laplace, bits])
def test_many_runs_find_most_of_a_pure_epsilon(draw, flip):
    present, absent = draw(np.random.default_rng(2), 20_000, 1.0)
    sides = (-present, -absent) if flip else (present, absent)
    bound = clopper_pearson_bound(*sides, delta=0.0, confidence=0.99)
    assert 0.85 < bound.epsilon < 1.0
    assert bound.method == "clopper-pearson"
    often, rarely = (int(count) for count in re.findall(r"(\d+) of 20000 results", bound.detail))
    assert often > 2.0 * rarely  # a reader sees the ratio that the bound rests on


def test_a_statistic_that_tells_the_data_apart_shows_what_its_runs_allow():
    bound = clopper_pearson_bound(np.ones(500), np.zeros(500), delta=0.0, confidence=0.95)
    assert 3.5 < bound.epsilon < math.log(501)
    assert gaussian_dp_bound(np.ones(500), np.zeros(500), delta=1e-6, confidence=0.95).epsilon > 15.0


def test_the_direction_without_the_record_counts_too():
    # with the record, a value that is common without it never occurs: only P(absent) / P(present) is large
    rng = np.random.default_rng(3)
    absent = (rng.random(3000) < 0.1).astype(float)
    assert clopper_pearson_bound(np.zeros(3000), absent, delta=1e-4, confidence=0.95).epsilon > 2.5


def test_delta_lowers_the_bound():
    present, absent = gaussian(np.random.default_rng(4), 2000, 1.0)
    found = [clopper_pearson_bound(present, absent, delta=delta, confidence=0.95).epsilon for delta in (0.0, 0.01, 0.5)]
    assert found[0] > found[1] > found[2] == 0.0


def test_a_gaussian_curve_has_no_pure_epsilon():
    present, absent = gaussian(np.random.default_rng(4), 2000, 1.0)
    assert gaussian_dp_bound(present, absent, delta=0.0, confidence=0.95).epsilon == math.inf


def test_a_violated_claim_is_found_with_its_excess():
    present, absent = gaussian(np.random.default_rng(5), 4000, 1.0)
    found = claim_violation(present, absent, partial(gdp.delta_of, 0.5), confidence=0.9999)
    largest = max(gdp.delta_of(1.0, e) - gdp.delta_of(0.5, e) for e in np.linspace(0.0, 5.0, 501))
    assert 0.6 * largest < found.excess < largest
    assert found.claimed_delta == gdp.delta_of(0.5, found.epsilon)
    assert found.confidence == 0.9999
    assert "of 4000 results with" in found.detail


def test_halved_laplace_noise_is_found_and_right_noise_is_not():
    rng = np.random.default_rng(6)
    claim = partial(composition.delta, Laplace(1.0))
    absent = rng.laplace(0.0, 1.0, 3000)
    assert claim_violation(rng.laplace(1.0, 1.0, 3000), absent, claim, confidence=0.9999) is None
    assert claim_violation(rng.laplace(2.0, 1.0, 3000), absent, claim, confidence=0.9999).excess > 0.05


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(
    ("present", "absent", "said"),
    [
        ([], [1.0], "present is empty"),
        ([1.0], [], "absent is empty"),
        ([1.0, math.nan], [0.0], "present contains NaN or infinite"),
        ([1.0], [math.inf], "absent contains NaN or infinite"),
        ([1.0, 1.0], [1.0], "one and the same value"),
        ([[1.0]], [1.0], "2 axes"),
        (["a"], [1.0], "vector of numbers"),
    ],
)
def test_useless_results_are_refused_in_one_sentence(bound, present, absent, said):
    with pytest.raises(InvalidInput, match=said):
        bound(present, absent, delta=1e-5, confidence=0.95)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delta": -0.1, "confidence": 0.9}, "delta must be 0 or more"),
        ({"delta": 1.0, "confidence": 0.9}, "delta must be 0 or more"),
        ({"delta": 0.0, "confidence": 1.0}, "confidence must lie strictly between"),
        ({"delta": 0.0, "confidence": "high"}, "confidence must be a finite number"),
    ],
)
@pytest.mark.parametrize("bound", BOUNDS)
def test_useless_options_are_refused_in_one_sentence(bound, options, said):
    with pytest.raises(InvalidInput, match=said):
        bound([1.0, 2.0], [0.0, 1.0], **options)


@pytest.mark.parametrize("bound", BOUNDS)
def test_one_run_on_each_side_shows_nothing(bound):
    assert bound([1.0], [0.0], delta=1e-5, confidence=0.95).epsilon == 0.0


def test_the_same_results_give_nearly_the_same_bound_in_any_order():
    present, absent = bits(np.random.default_rng(7), 300, 1.0)
    one = clopper_pearson_bound(present, absent, delta=0.0, confidence=0.9)
    other = clopper_pearson_bound(np.sort(present), np.sort(absent), delta=0.0, confidence=0.9)
    assert other.epsilon == pytest.approx(one.epsilon, abs=0.3)  # ties are broken by other lots
    distinct = np.random.default_rng(8).normal(size=(2, 300))
    without_ties = [clopper_pearson_bound(*distinct, delta=0.0, confidence=0.9) for _ in range(2)]
    assert without_ties[0] == without_ties[1]


def test_ties_favour_neither_sample():
    # of this size, some fixed order of equal values raises a false alarm in nearly every audit of rare events
    rng, n, alarms = np.random.default_rng(5), 991, 0
    for _ in range(40):
        present, absent = (rng.random((2, n)) < 0.002).astype(float)
        if max(present.max(), absent.max()) > 0.0:
            alarms += clopper_pearson_bound(present, absent, delta=0.0, confidence=0.95).epsilon > 0.02
    assert alarms <= 6  # at most 5% of 40 are expected
