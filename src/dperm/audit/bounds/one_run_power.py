"""Power of one run with many canaries: how little noise it would have found, in a Gaussian model of the scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dperm.audit.bounds.one_run import decisive_counts, decisive_counts_fdp
from dperm.audit.bounds.samples import check_confidence, check_delta
from dperm.types import BoolArray

__all__ = ["CanaryScores", "one_run_noise_factor"]

#: runs that are simulated: the share of them that finds it is then known to within 1.1% (one standard error); the draws
#: are fixed, so the same question has the same answer
_DRAWS, _SEED = 400, 11
#: the separation is searched up to here, where all guesses are right, and to this part of itself
_MOST_SEPARATION, _PRECISION = 64.0, 5e-3


@dataclass(frozen=True)
class CanaryScores:
    """What is known of the scores of canaries.

    Attributes
    ----------
    gap : float
        Mean score of canaries that are in, less that of those that are out.
    noise_variance : float
        Variance of a canary's score between runs on one table.
    other_variance : float
        Variance between canaries that noise does not explain: the effect of the other canaries on a score.
    """

    gap: float
    noise_variance: float
    other_variance: float


def one_run_noise_factor(
    scores: CanaryScores,
    n_canaries: int,
    *,
    epsilon: float,
    delta: float,
    confidence: float,
    mu: float | None = None,
    power: float = 0.95,
) -> float:
    """Return the largest noise factor, at most 1, that one run finds with probability ``power`` or more.

    Parameters
    ----------
    scores : CanaryScores
    n_canaries : int
    epsilon, delta : float
        The claim.
    confidence : float
        Of the whole attack.
    mu : float, optional
        The claim in Gaussian form, if it has one: both bounds are then tried, with half of the error each.
    power : float
        Probability of finding it.

    Returns
    -------
    float
        0.0 if nothing is found, however little the noise.
    """
    alpha = check_confidence(confidence) / (1 if mu is None else 2)
    counts = decisive_counts(n_canaries, epsilon, check_delta(delta), alpha)
    if mu is not None:
        counts += decisive_counts_fdp(n_canaries, mu, alpha)
    needed = _separation_needed(counts, n_canaries, power)
    if not scores.gap > 0.0 or math.isinf(needed):
        return 0.0
    # the separation is gap / sqrt(other + f^2 noise), which must reach what is needed
    room = (scores.gap / needed) ** 2 - scores.other_variance
    if room <= 0.0:
        return 0.0
    return min(math.sqrt(room / scores.noise_variance), 1.0) if scores.noise_variance > 0.0 else 1.0


def _separation_needed(counts: list[tuple[tuple[int, int], int]], m: int, power: float) -> float:
    """Return the separation, in standard deviations of a score, at which enough guesses are right often enough."""
    rng = np.random.default_rng(_SEED)
    coins, noise = rng.random((_DRAWS, m)) < 0.5, rng.standard_normal((_DRAWS, m))

    def found(separation: float) -> bool:
        order = np.argsort(noise + separation * coins, axis=1)
        is_in: BoolArray = np.take_along_axis(coins, order, axis=1)
        hits = np.zeros(_DRAWS, dtype=np.bool_)
        for (n_in, n_out), enough in counts:
            right = is_in[:, m - n_in :].sum(axis=1) + n_out - is_in[:, :n_out].sum(axis=1)
            hits |= right >= enough
        return bool(hits.mean() >= power)

    if not counts or not found(_MOST_SEPARATION):
        return math.inf
    low, high = 0.0, _MOST_SEPARATION
    while high - low > _PRECISION * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if found(middle) else (middle, high)
    return high
