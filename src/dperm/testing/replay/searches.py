"""The cost of a search, the best of a geometric number K of runs, recomputed from the logs of its runs.

With mean m = E[K] and gamma = 1/m there are three calculations, none of which uses dperm's accounting:

Renyi     Papernot & Steinke 2022 (arXiv 2110.03620), Theorem 2, on the Renyi curve of one run. dperm claims this one.
profile   a second upper bound, from other numbers and with another proof: :func:`_from_profile`.
lower     the exact cost of a search whose score is a run's own privacy loss: :func:`_attained`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dperm.privacy.recording import PublicRelease
from dperm.testing.replay.totals import ORDERS, IndependentTotal, Parts, composed_losses, converted, renyi_curve
from dperm.types import FloatArray

__all__ = ["independent_search_total"]

_N_POINTS = 400  # of each grid of epsilons; every point gives a valid bound


def independent_search_total(
    runs: Sequence[Sequence[PublicRelease]], expected_runs: float, delta: float
) -> IndependentTotal:
    """Return bounds on epsilon of the best of a geometric number of runs, from the logs of the runs that were made.

    The upper bounds take the costliest run of the log for every run: candidates that were never drawn are not in it.
    ``upper`` is the Renyi bound, which a claim is compared with; ``bounds`` has the other one too.
    """
    parts = [Parts.of(run) for run in {tuple(run): run for run in runs}.values()]
    renyi = _from_renyi(np.array([renyi_curve(one) for one in parts]).max(axis=0), expected_runs, delta)
    lower = max(_attained(one, expected_runs, delta) for one in parts)
    profile = _from_profile(parts, expected_runs, delta, renyi)
    return IndependentTotal(lower, renyi, delta, {"search, Renyi": renyi, "search, profile": profile})


def _from_renyi(curve: FloatArray, mean_runs: float, delta: float) -> float:
    """Return the bound for shape 1: D_a + 2 (1 - 1/b) D_b + 2 ln(m) / b + ln(m) / (a - 1), for every order b."""
    extra = float((2.0 * (1.0 - 1.0 / ORDERS) * curve + 2.0 * math.log(mean_runs) / ORDERS).min())
    return converted(curve + extra + math.log(mean_runs) / (ORDERS - 1.0), delta)


def _from_profile(parts: Sequence[Parts], mean_runs: float, delta: float, most: float) -> float:
    """Return the smallest e + 2 ln(exp(h) + (m - 1) delta(h)), over h >= 0, with m delta(e) at most ``delta``.

    Here delta(.) is the profile of one run. The bound is that of Koskela, Redberg & Wang 2024 (arXiv 2402.06701) for
    the geometric law. Proof: let P and Q be a run's laws on neighbours, ordered by the score with ties broken at
    random, and p, q their probabilities of a better score than that of y. The search returns y with density f(p) dP(y),
    where f(p) = gamma / (gamma + (1 - gamma) p)^2 <= m. Since q <= exp(h) p + delta(h), f(p) <= exp(c) f(q) with
    c = 2 ln(exp(h) + (m - 1) delta(h)). So for every set the search's P-mass less exp(e + c) times its Q-mass is at
    most the integral of f(p) (dP - exp(e) dQ), which is at most m delta(e).
    """
    grid = np.linspace(0.0, most, _N_POINTS)
    profile = np.max([_delta_at(one, grid) for one in parts], axis=0)
    extra = float((2.0 * np.log(np.exp(grid) + (mean_runs - 1.0) * profile)).min())
    enough = mean_runs * profile <= delta
    return float(grid[enough].min()) + extra if enough.any() else math.inf


def _delta_at(parts: Parts, grid: FloatArray) -> FloatArray:
    losses, rounding = composed_losses(parts, upper=True)
    return np.asarray(losses.get_delta_for_epsilon(grid.tolist())) + rounding


def _attained(parts: Parts, mean_runs: float, delta: float) -> float:
    """Return an epsilon that a search attains if its score is a run's privacy loss, the largest or the smallest best.

    Some mechanism with the recorded noise has the distribution of losses that dp-accounting rounds down to. If a run
    has a loss of at least c with probability t, the best of K has it with probability t / (gamma + (1 - gamma) t) when
    large losses are best, and gamma t / (1 - (1 - gamma) t) when small ones are.
    """
    losses, rounding = composed_losses(parts, upper=False)
    gamma, best = 1.0 / mean_runs, 0.0
    # private names, as no public one gives the probabilities; safe because pyproject.toml pins dp-accounting to 0.6
    for pmf in (losses._pmf_remove, losses._pmf_add):
        dense = pmf.to_dense_pmf()
        steps = dense._lower_loss + np.arange(len(dense._probs))
        first = _tails(dense._probs)
        second = _tails(dense._probs * np.exp(-steps * dense._discretization))
        for of_best in (_largest_best, _smallest_best):
            gain = of_best(first, gamma) - delta - mean_runs * rounding
            cost = of_best(second, gamma) + mean_runs * rounding
            best = max(best, float(np.log(np.maximum(gain, 1e-300) / cost).max()))
    return best


def _largest_best(t: FloatArray, gamma: float) -> FloatArray:
    return t / (gamma + (1.0 - gamma) * t)


def _smallest_best(t: FloatArray, gamma: float) -> FloatArray:
    return gamma * t / (1.0 - (1.0 - gamma) * t)


def _tails(probabilities: Any) -> FloatArray:
    """Return the probability of each loss or a larger one."""
    tails: FloatArray = np.minimum(np.cumsum(probabilities[::-1])[::-1], 1.0)
    return tails
