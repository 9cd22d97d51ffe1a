"""What exact repetition proves. Proof: ``exact_repeats.proof.md``."""

from __future__ import annotations

import math

__all__ = ["epsilon_of_constants", "p_value_of_repeats", "runs_for_constants"]


def epsilon_of_constants(n_runs: int, delta: float, confidence: float) -> float:
    """Return the epsilon proved by a value that is the same in all runs on a table and another on its neighbour.

    Parameters
    ----------
    n_runs : int
        Runs on each of the two tables.

    >>> round(epsilon_of_constants(30, 0.0, 0.9999), 2)
    1.76
    """
    if n_runs < 2:
        return 0.0
    likely = (1.0 - confidence) ** (0.5 / (n_runs - 1))
    ratio = (likely - delta) / (1.0 - likely)
    return math.log(ratio) if ratio > 1.0 else 0.0


def runs_for_constants(epsilon: float, delta: float, confidence: float) -> int:
    """Return the runs on each table after which :func:`epsilon_of_constants` exceeds ``epsilon``.

    >>> runs_for_constants(1.0, 0.0, 0.9999)
    17
    """
    likely = min((math.exp(min(epsilon, 30.0)) + delta) / (1.0 + math.exp(min(epsilon, 30.0))), 1.0 - 1e-15)
    return 2 + math.ceil(math.log(1.0 - confidence) / (2.0 * math.log(likely)))


def p_value_of_repeats(n_equal: int, n_different: int) -> float:
    """Return the largest probability, for independent runs of one law, of so many equal and different disjoint pairs.

    >>> p_value_of_repeats(2, 500) < 1e-5
    True
    >>> p_value_of_repeats(0, 500)
    1.0
    """
    if n_equal == 0:
        return 1.0
    share = n_equal / (n_equal + n_different)
    return share**n_equal * (1.0 - share) ** n_different if n_different else 1.0
