"""What a guarantee means for an attacker's posterior belief about one record.

Under an (epsilon, delta) guarantee the odds that the attacker gives to a record grow by at most e^epsilon, but not with
probability 1 - delta: delta weighs by how much the odds exceed that factor, and the probability that they exceed it at
all is larger. The whole curve of (epsilon, delta) statements bounds this probability. Proof: ``posterior.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from scipy.optimize import minimize_scalar

from dperm.privacy.accounting import gdp
from dperm.privacy.accounting.guarantee import Accounting, Guarantee

__all__ = ["PosteriorBelief", "exceedance_from_curve", "exceedance_of_gaussian", "posterior_belief"]


@dataclass(frozen=True)
class PosteriorBelief:
    """A bound on an attacker's posterior odds.

    Attributes
    ----------
    epsilon : float
        The odds grow by a factor of at most e^``epsilon``.
    exceedance : float
        Bound on the probability that they grow by more.
    """

    epsilon: float
    exceedance: float

    def after(self, before: float) -> float:
        """Return the largest posterior probability of a record that had the prior probability ``before``.

        >>> round(PosteriorBelief(1.0, 1e-5).after(0.5), 3)
        0.731
        """
        odds = math.exp(self.epsilon)
        return before * odds / (1.0 - before + before * odds)


def exceedance_from_curve(points: Iterable[tuple[float, float]], epsilon: float) -> float:
    """Bound the probability that the odds grow by more than e^``epsilon``, from (epsilon, delta) statements.

    >>> round(exceedance_from_curve([(0.0, 1e-3), (0.5, 1e-5), (1.0, 1e-6)], 1.0), 8)
    2.541e-05
    """
    bounds = (delta / -math.expm1(lower - epsilon) for lower, delta in points if lower < epsilon)
    return min(1.0, min(bounds, default=1.0))


def exceedance_of_gaussian(mu: float, epsilon: float) -> float:
    """Bound the same probability for ``mu``-GDP releases and everything computed from them; the bound is attained.

    >>> exceedance_of_gaussian(0.2367, 1.0) > 30 * gdp.delta_of(0.2367, 1.0)
    True
    """
    if epsilon <= 0.0:
        return 1.0

    def bound(lower: float) -> float:
        return gdp.delta_of(mu, lower) / -math.expm1(lower - epsilon)

    # every lower epsilon gives a valid bound, so a search that misses the best one only loses tightness
    found = minimize_scalar(lambda x: math.log(bound(x) + 5e-324), bounds=(0.0, epsilon), method="bounded")
    return min(1.0, bound(0.0), bound(min(float(found.x), math.nextafter(epsilon, 0.0))))


def posterior_belief(guarantee: Guarantee, planned: Accounting) -> PosteriorBelief:
    """Return what a guarantee, with the accounting behind it, means for an attacker's belief."""
    epsilon, delta = guarantee.epsilon, guarantee.delta
    if delta == 0.0:
        return PosteriorBelief(epsilon, 0.0)
    if (planned.epsilon, planned.delta) == (epsilon, delta):  # otherwise the curve belongs to other releases
        by_mu = 1.0 if planned.mu is None else exceedance_of_gaussian(planned.mu, epsilon)
        exceedance = min(by_mu, exceedance_from_curve(planned.curve, epsilon))
        if exceedance < 1.0:
            return PosteriorBelief(epsilon, exceedance)
    # a single statement does not bound how often odds exceed its own factor, but how often they exceed twice that
    wider = epsilon + math.log(2.0)
    return PosteriorBelief(wider, exceedance_from_curve([(epsilon, delta)], wider))
