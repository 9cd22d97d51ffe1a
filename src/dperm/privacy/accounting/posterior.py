"""What a guarantee means for somebody's suspicion about one record, and how often that may fail.

The proof is in ``posterior.proof.md``. An (epsilon, delta) statement multiplies the odds of a suspicion by at most
e^epsilon, but not with probability 1 - delta: delta weighs how far the odds pass that, and the probability that they
pass it at all is larger. It is bounded by the whole curve of (epsilon, delta) statements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from scipy.optimize import minimize_scalar

from dperm.privacy.accounting import gdp
from dperm.privacy.accounting.guarantee import Accounting, Guarantee

__all__ = ["PosteriorBelief", "passed_by_curve", "passed_by_gaussian", "posterior_belief"]


@dataclass(frozen=True)
class PosteriorBelief:
    """Odds of a suspicion grow by at most e^``epsilon``, but with a probability of at most ``passed``."""

    epsilon: float
    passed: float

    def after(self, before: float) -> float:
        """Return the most that a suspicion of probability ``before`` grows to.

        >>> round(PosteriorBelief(1.0, 1e-5).after(0.5), 3)
        0.731
        """
        odds = math.exp(self.epsilon)
        return before * odds / (1.0 - before + before * odds)


def passed_by_curve(points: Iterable[tuple[float, float]], epsilon: float) -> float:
    """Bound the probability that odds grow by more than e^``epsilon``, from (epsilon, delta) statements.

    >>> round(passed_by_curve([(0.0, 1e-3), (0.5, 1e-5), (1.0, 1e-6)], 1.0), 8)
    2.541e-05
    """
    bounds = (delta / -math.expm1(lower - epsilon) for lower, delta in points if lower < epsilon)
    return min(1.0, min(bounds, default=1.0))


def passed_by_gaussian(mu: float, epsilon: float) -> float:
    """Bound the same probability for ``mu``-GDP releases and all that is computed from them; attained.

    >>> passed_by_gaussian(0.2367, 1.0) > 30 * gdp.delta_of(0.2367, 1.0)
    True
    """
    if epsilon <= 0.0:
        return 1.0

    def bound(lower: float) -> float:
        return gdp.delta_of(mu, lower) / -math.expm1(lower - epsilon)

    # every lower epsilon gives a bound, so a search that misses the best one costs tightness alone
    found = minimize_scalar(lambda x: math.log(bound(x) + 5e-324), bounds=(0.0, epsilon), method="bounded")
    return min(1.0, bound(0.0), bound(min(float(found.x), math.nextafter(epsilon, 0.0))))


def posterior_belief(guarantee: Guarantee, planned: Accounting) -> PosteriorBelief:
    """Return what a guarantee, with the accounting behind it, means for a suspicion."""
    epsilon, delta = guarantee.epsilon, guarantee.delta
    if delta == 0.0:
        return PosteriorBelief(epsilon, 0.0)
    if (planned.epsilon, planned.delta) == (epsilon, delta):  # else the curve is of something else
        by_mu = 1.0 if planned.mu is None else passed_by_gaussian(planned.mu, epsilon)
        passed = min(by_mu, passed_by_curve(planned.curve, epsilon))
        if passed < 1.0:
            return PosteriorBelief(epsilon, passed)
    # one statement says nothing of odds that pass its own epsilon, but bounds those that pass twice its factor
    wider = epsilon + math.log(2.0)
    return PosteriorBelief(wider, passed_by_curve([(epsilon, delta)], wider))
