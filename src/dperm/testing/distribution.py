"""Check that a mechanism's output has the claimed distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from dperm.privacy.mechanisms.objective_perturbation import PerturbedObjective, PrivateObjective
from dperm.privacy.mechanisms.sampled_noise import SampledGaussianNoise, Summands
from dperm.privacy.mechanisms.standard import Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.testing._violation import demand

__all__ = ["check_mechanism"]

_LAWS = {"gaussian": stats.norm, "laplace": stats.laplace, "poisson-gaussian": stats.norm, "objective": stats.norm}
_REJECT = 1e-6


def check_mechanism(mechanism: Mechanism, *, n_samples: int = 20_000, seed: int | None = 0) -> None:
    """Check the distribution of a mechanism's noise, and that the check itself detects noise x0.5 and x1.5.

    ``seed=None`` uses fresh entropy (false alarms then happen with probability about 1e-6 per check).
    """
    source = RandomSource(seed)
    if mechanism.sampler == "integer":
        n_samples = min(n_samples, 4_000)
    p_value = _choice_p_value if mechanism.kind == "selection" else _noise_p_value
    samples = (
        _choices(mechanism, n_samples, source)
        if mechanism.kind == "selection"
        else _noise(mechanism, n_samples, source)
    )
    right = p_value(samples, mechanism, 1.0)
    demand(right > _REJECT, f"{type(mechanism).__name__}'s output does not fit its law (p = {right:.2g}).")
    for factor in (0.5, 1.5):
        wrong = p_value(samples, mechanism, factor)
        demand(wrong < _REJECT, f"the check cannot tell noise x{factor} from the right one (p = {wrong:.2g}).")


def _noise(mechanism: Mechanism, n_samples: int, source: RandomSource) -> Any:
    """Noise in units of the promised scale, from releases of a constant at several sensitivities."""
    parts = []
    for sensitivity, level in ((1.0, 0.3), (1e-3, 0.7), (1e4, -0.2)):
        # the claim is about one coordinate; every coordinate of a vector with this sensitivity has the same noise
        value = np.full(n_samples // 3, level)
        unit = mechanism.noise_multiplier * sensitivity
        if isinstance(mechanism, PerturbedObjective):
            parts.append(_linear_noise(mechanism, value, sensitivity, source) / unit)
            continue
        private = Summands(0, value.size, lambda mask, value=value: value)  # type: ignore[misc]
        given: Any = private if isinstance(mechanism, SampledGaussianNoise) else value
        parts.append((mechanism.apply(given, sensitivity, 1.0, source) - level) / unit)
    if isinstance(mechanism, SampledGaussianNoise):
        _check_sample(mechanism, n_samples, source)
    return np.concatenate(parts)


class _Linear(PrivateObjective):
    """slopes.w + strength |w|^2 / 2, minimised exactly: the release is the noise b, up to a factor."""

    def __init__(self, slopes: Any, strength: float, curvature_ratio: float) -> None:
        self.slopes, self.size = slopes, len(slopes)
        self.strength, self.curvature_ratio = strength, curvature_ratio

    def minimise(self, linear: Any, tolerance: float) -> Any:
        return -(self.slopes + linear) / self.strength


def _linear_noise(mechanism: PerturbedObjective, slopes: Any, sensitivity: float, source: RandomSource) -> Any:
    """Return the noise of a perturbed linear objective: - strength * minimiser - slopes."""
    objective = _Linear(slopes * sensitivity, mechanism.strength, mechanism.curvature_ratio)
    bound = (1.0 + 64.0 * mechanism.noise_multiplier) * sensitivity / mechanism.strength
    released = mechanism.apply(objective, sensitivity, bound, source)
    return -mechanism.strength * released - objective.slopes


def _check_sample(mechanism: SampledGaussianNoise, n_samples: int, source: RandomSource) -> None:
    """Check that everybody is sampled with the stated probability, independently of others and of earlier draws."""
    n_people, n_draws = 50, max(1, n_samples // 50)
    masks: list[Any] = []

    def record(mask: Any) -> Any:
        masks.append(mask)
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


def _noise_p_value(samples: Any, mechanism: Mechanism, factor: float) -> float:
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
