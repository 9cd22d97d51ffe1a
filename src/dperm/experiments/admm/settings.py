"""Options of the certified runs, by epsilon; ``benchmarks/admm_settings.py`` chose them, on noise of its own.

As in the paper the choice is not paid for: methods are compared at their best. More budget pays for more rounds, and
more rounds allow a smaller rho.
"""

from __future__ import annotations

__all__ = ["certified_options"]

#: from this epsilon on: (rounds, rho)
_CHOSEN = ((0.0, 40, 0.02), (3.0, 80, 0.02), (10.0, 200, 0.01), (100.0, 400, 0.005))


def certified_options(epsilon: float, most_rounds: int) -> tuple[int, float]:
    """Return rounds, at most so many, and rho of a certified run.

    >>> certified_options(1.0, 1000), certified_options(30.0, 1000), certified_options(30.0, 5)
    ((40, 0.02), (200, 0.01), (5, 0.01))
    """
    _, rounds, rho = next(one for one in reversed(_CHOSEN) if epsilon >= one[0])
    return min(rounds, most_rounds), rho
