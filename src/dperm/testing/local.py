"""Does a one-bit report keep its epsilon, for both bits, and does it spend it?"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
from scipy import stats

from dperm.testing._violation import demand

__all__ = ["check_one_bit", "log_ratio_interval"]


def log_ratio_interval(counts: tuple[int, int], n: int, error: float) -> tuple[float, float]:
    """Return bounds on ln(p / q) from two binomial ``counts`` of ``n``, wrong with probability ``error`` at most."""
    (p_low, p_high), (q_low, q_high) = (_proportion(count, n, error / 2.0) for count in counts)
    return _log(p_low) - _log(q_high), _log(p_high) - _log(q_low)


def check_one_bit(
    report: Callable[[Any], Any], inputs: Any, epsilon: float, *, n_samples: int = 200_000, slack: float = 0.05
) -> None:
    """Check a one-bit report from its bits alone.

    Parameters
    ----------
    report : callable
        Takes an array of values, one per person, and returns their bits.
    inputs : sequence of float
        Values to compare, the worst ones among them.
    epsilon : float
        What is claimed for one report.
    slack : float
        How far below ``epsilon`` the worst pair may stay, relatively, before the noise counts as too much.
    """
    error = 1e-6 / (2 * len(inputs) ** 2)
    ones = [int(np.count_nonzero(report(np.full(n_samples, value)))) for value in inputs]
    largest = 0.0
    for first, second in permutations(ones, 2):
        for bit, pair in ((1, (first, second)), (0, (n_samples - first, n_samples - second))):
            low, high = log_ratio_interval(pair, n_samples, error)
            demand(
                low <= epsilon,
                f"the bit {bit} tells two values apart by epsilon {low:.4g} or more; {epsilon:.4g} is claimed.",
            )
            largest = max(largest, high)
    demand(
        largest >= epsilon * (1.0 - slack),
        f"no pair of values comes near epsilon {epsilon:.4g}: the report is noisier than it claims.",
    )


def _proportion(count: int, n: int, error: float) -> tuple[float, float]:
    """Exact (Clopper-Pearson) interval of a proportion."""
    low = float(stats.beta.ppf(error / 2.0, count, n - count + 1)) if count else 0.0
    high = float(stats.beta.isf(error / 2.0, count + 1, n - count)) if count < n else 1.0
    return low, high


def _log(x: float) -> float:
    return math.log(x) if x > 0.0 else -math.inf
