"""One rule for every pair of bounds: a lower bound above its upper bound is an error, never corrected.

Taking the smaller of the two would hide the mistake and report the wrong figure as exact. There is no tolerance: every
upper bound here is rounded up and every lower bound down, by more than the rounding errors of its own formula, so for
correct formulas ``lower <= upper`` holds for the computed numbers too (``curves.proof.md``, "Lower bounds").
"""

from __future__ import annotations

from dperm.errors import AccountingContradiction

__all__ = ["refuse_contradiction"]


def refuse_contradiction(what: str, lower: float, upper: float) -> None:
    """Raise unless ``lower <= upper``; a value that is not a number is refused too.

    >>> refuse_contradiction("epsilon", 0.99, 1.0)
    """
    if not lower <= upper:
        raise AccountingContradiction(what, lower, upper)
