"""Check that a mechanism's output has the claimed distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from dperm.privacy.mechanisms.objective_perturbation import PerturbedObjective
from dperm.privacy.mechanisms.sampled_noise import SampledGaussianNoise, Summands
from dperm.privacy.mechanisms.standard import Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.testing._violation import demand
from dperm.testing.mechanisms import LinearObjective
from dperm.testing.noise_tests import LAGS, lag_p_value, nearness_p_value

__all__ = ["check_mechanism", "noise_at_levels", "noise_p_value"]

_LAWS = {"gaussian": stats.norm, "laplace": stats.laplace, "poisson-gaussian": stats.norm, "objective": stats.norm}
_REJECT = 1e-6
#: noise factors that the check must tell from the right one
_FACTORS = (0.5, 1.5)
#: values of the released coordinates, in units of their bound: noise must be missing on none of them
_LEVELS = np.array([0.3, 0.0, 1.0, 0.7, -1.0, 2.5, 0.0, -0.2, -3.0])
#: releases whose noise is compared, and their length
_REPEATED = (64, 12)
#: selections between equal scores, whose choices are compared
_N_SELECTIONS, _N_EQUAL_SCORES = 800, 8
#: largest step of a lattice in units of its noise: ``Lattice.design`` makes at least 256 steps of noise
_STEP = 1.0 / 256.0


def check_mechanism(mechanism: Mechanism, *, n_samples: int = 20_000, seed: int | None = 0) -> None:
    """Check the distribution of a mechanism's noise, and that the check itself detects noise x0.5 and x1.5.

    Values of 0, at their bound and beyond it are looked at on their own, and releases up to 8 apart must not share
    noise.

    ``seed=None`` uses fresh entropy (false alarms then happen with probability about 1e-6 per check).
    """
    source = RandomSource(seed)
    if mechanism.sampler == "integer":
        n_samples = min(n_samples, 4_000)
    name = type(mechanism).__name__
    if mechanism.kind == "selection":
        counts = _choices(mechanism, n_samples, source)
        right = _choice_p_value(counts, mechanism, 1.0)
        wrong = {factor: _choice_p_value(counts, mechanism, factor) for factor in _FACTORS}
    else:
        noise, levels = noise_at_levels(mechanism, n_samples, source)
        right = noise_p_value(noise, mechanism, 1.0)
        wrong = {factor: noise_p_value(noise, mechanism, factor) for factor in _FACTORS}
    demand(right > _REJECT, f"{name}'s output does not fit its law (p = {right:.2g}).")
    for factor, p in wrong.items():
        demand(p < _REJECT, f"the check cannot tell noise x{factor} from the right one (p = {p:.2g}).")
    if mechanism.kind != "selection":
        for level in np.unique(levels):
            p = noise_p_value(noise[levels == level], mechanism, 1.0)
            where = f"on values of {level:g} times their bound"
            demand(p > _REJECT, f"{name}'s output does not fit its law {where} (p = {p:.2g}).")
    p = _repeats_p_value(mechanism, source)
    demand(p > _REJECT, f"{name}'s noise is not independent between releases (p = {p:.2g}).")


def noise_at_levels(mechanism: Mechanism, n_samples: int, source: RandomSource) -> tuple[Any, Any]:
    """Noise in units of the promised scale, and the values under it, from releases at several sensitivities.

    A vector mixes all levels. Those beyond 1 are clipped to the bound.
    """
    parts, under = [], []
    for sensitivity in (1.0, 1e-3, 1e4):
        # the claim is about one coordinate; every coordinate of a vector with this sensitivity has the same noise
        value = np.resize(_LEVELS, n_samples // 3)
        parts.append(_one_release(mechanism, value, sensitivity, source))
        under.append(value)
    if isinstance(mechanism, SampledGaussianNoise):
        _check_sample(mechanism, n_samples, source)
    return np.concatenate(parts), np.concatenate(under)


def _one_release(mechanism: Mechanism, value: Any, sensitivity: float, source: RandomSource) -> Any:
    """Return the noise of one release in units of the promised scale; the bound is 1."""
    unit = mechanism.noise_multiplier * sensitivity
    if isinstance(mechanism, PerturbedObjective):
        return _linear_noise(mechanism, value, sensitivity, source) / unit
    private = Summands(0, value.size, lambda sample: value)
    given: Any = private if isinstance(mechanism, SampledGaussianNoise) else value
    return (mechanism.apply(given, sensitivity, 1.0, source) - np.clip(value, -1.0, 1.0)) / unit


def _repeats_p_value(mechanism: Mechanism, source: RandomSource) -> float:
    """Return the p-value of a test that consecutive releases do not share noise."""
    if mechanism.kind == "selection":
        scores = np.zeros(_N_EQUAL_SCORES)
        chosen = np.array([mechanism.apply(scores, 1.0, 1.0, source) for _ in range(_N_SELECTIONS)])
        starts = np.arange(_N_SELECTIONS)
        found = 1.0
        for lag in range(1, LAGS + 1):
            for odd in (0, 1):  # disjoint pairs are independent
                first = starts[:-lag][(starts[:-lag] // lag) % 2 == odd]
                again = int((chosen[first] == chosen[first + lag]).sum())
                found = min(found, stats.binomtest(again, first.size, 1.0 / _N_EQUAL_SCORES).pvalue)
        return min(1.0, 2 * LAGS * found)
    parts = [_one_release(mechanism, np.resize(_LEVELS, _REPEATED[1]), 1.0, source) for _ in range(_REPEATED[0])]
    law = "laplace" if mechanism.kind == "laplace" else "gaussian"
    return min(1.0, 2.0 * min(lag_p_value(parts, law), nearness_p_value(parts, law, _STEP)))


def _linear_noise(mechanism: PerturbedObjective, slopes: Any, sensitivity: float, source: RandomSource) -> Any:
    """Return the noise of a perturbed linear objective: - strength * minimiser - slopes."""
    objective = LinearObjective(slopes * sensitivity, mechanism.strength, mechanism.curvature_ratio)
    bound = (1.0 + 64.0 * mechanism.noise_multiplier) * sensitivity / mechanism.strength
    released = mechanism.apply(objective, sensitivity, bound, source)
    return -mechanism.strength * released - objective.slopes


def _check_sample(mechanism: SampledGaussianNoise, n_samples: int, source: RandomSource) -> None:
    """Check that everybody is sampled with the stated probability, independently of others and of earlier draws."""
    n_people, n_draws = 50, max(1, n_samples // 50)
    masks: list[Any] = []

    def record(sample: Any) -> Any:
        masks.append(sample.people(0, n_people))
        return np.zeros(1)

    for _ in range(n_draws):
        mechanism.apply(Summands(n_people, 1, record), 1.0, 1.0, source)
    sampled = np.array(masks)
    if mechanism.rate == 1.0:
        demand(bool(sampled.all()), "a rate of 1 must sample everyone.")
        return
    problem = f"{type(mechanism).__name__}'s sample does not fit its rate"
    for what, counts, size in (
        ("people", sampled.sum(axis=0), n_draws),
        ("batches", sampled.sum(axis=1), n_people),
        ("neighbours", (sampled[:, 1:] == sampled[:, :-1]).sum(axis=1), n_people - 1),
        ("repeats", (sampled[1:] == sampled[:-1]).sum(axis=1), n_people),
    ):
        chance = mechanism.rate
        if what in ("neighbours", "repeats"):
            chance = chance * chance + (1.0 - chance) ** 2
            # neighbouring pairs share a person, which raises the variance of their number by less than a factor of 3
            size *= 3
        variance = size * chance * (1.0 - chance)
        size = size if what in ("people", "batches") else size // 3
        mean = stats.norm.sf(abs(counts.mean() - size * chance) / np.sqrt(variance / len(counts))) * 2.0
        spread = 1.0
        if what in ("people", "batches"):
            square = ((counts - size * chance) ** 2).sum() / variance
            spread = 2.0 * min(stats.chi2.sf(square, len(counts)), stats.chi2.cdf(square, len(counts)))
        demand(min(mean, spread) > _REJECT, f"{problem} ({what}: p = {min(mean, spread):.2g}).")


def noise_p_value(samples: Any, mechanism: Mechanism, factor: float) -> float:
    law = _LAWS[mechanism.kind]
    uniform = law.cdf(samples / factor)
    bins = np.histogram(uniform, bins=100, range=(0.0, 1.0))[0]
    tails = np.array([(uniform < 1e-3).sum(), (uniform > 1 - 1e-3).sum()])
    expected_tail = len(samples) * 1e-3
    tail_p = min(stats.poisson.sf(tails - 1, expected_tail).min(), stats.poisson.cdf(tails, expected_tail).min()) * 4
    pairs = np.corrcoef(uniform[:-1], uniform[1:])[0, 1] * np.sqrt(len(samples))
    return float(
        min(
            1.0,
            4
            * min(
                stats.chisquare(bins).pvalue,
                stats.kstest(uniform, "uniform").pvalue,
                tail_p,
                2 * stats.norm.sf(abs(pairs)),
            ),
        )
    )


def _scores(mechanism: Mechanism) -> Any:
    # spread over a few noise scales, so that the winner is neither certain nor uniform
    return mechanism.noise_multiplier * np.array([0.0, 0.5, 1.5, 2.0, -1.0])


def _choices(mechanism: Mechanism, n_samples: int, source: RandomSource) -> Any:
    scores = _scores(mechanism)
    bound = float(np.abs(scores).max())
    return np.bincount(
        [mechanism.apply(scores, 1.0, bound, source) for _ in range(n_samples // 3)], minlength=len(scores)
    )


def _choice_p_value(counts: Any, mechanism: Mechanism, factor: float) -> float:
    logits = _scores(mechanism) / (mechanism.noise_multiplier * factor)
    weights = np.exp(logits - logits.max())
    return float(stats.chisquare(counts, counts.sum() * weights / weights.sum()).pvalue)
