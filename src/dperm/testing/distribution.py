"""Does a mechanism's output have the distribution it claims?"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from dperm.privacy.mechanisms import Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.testing._violation import demand

__all__ = ["check_mechanism"]

_LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}
_REJECT = 1e-6


def check_mechanism(mechanism: Mechanism, *, n_samples: int = 20_000, seed: int | None = 0) -> None:
    """Check the distribution of a mechanism's noise, and that the check itself tells x0.5 and x1.5 noise apart.

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
        # one coordinate at a time would be the claim; a vector of sensitivity `sensitivity` carries the same noise
        value = np.full(n_samples // 3, level)
        released = mechanism.apply(value, sensitivity, 1.0, source) - level
        parts.append(released / (mechanism.noise_multiplier * sensitivity))
    return np.concatenate(parts)


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
