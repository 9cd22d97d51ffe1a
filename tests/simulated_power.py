"""The oracle of an audit's power: whole audits are simulated in the Gaussian model, with all their events."""

from __future__ import annotations

import numpy as np

from dperm.audit.bounds.curves import Profile
from dperm.audit.bounds.rank_events import rank_events
from dperm.audit.bounds.samples import check_confidence, pooled_ranks, share_of
from dperm.privacy.accounting import gdp

#: audits that are simulated: the share of them that find a violation is then known to within 1.1% (one standard error)
DRAWS = 400
_SEED = 7
#: the separation is searched to this part of itself, less than what the draws leave uncertain
_PRECISION = 2e-3
#: beyond this, results with and without the record never overlap
_MOST_SEPARATION = 64.0
#: differences of delta that no audit resolves, so that a claim of pure epsilon has a separation too
_RESOLVED = 1e-3


def claimed_mu(claim):
    """Return the separation that a claim allows a Gaussian statistic: the largest mu such that mu-GDP keeps it."""
    profile, low, high = Profile(claim), 0.0, 40.0
    allowed = np.maximum(profile.deltas, _RESOLVED)
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        deltas = np.array([gdp.delta_of(middle, float(epsilon), lower=True) for epsilon in profile.epsilons])
        low, high = (middle, high) if (deltas <= allowed).all() else (low, middle)
    return low


def simulated_noise_factor(n_runs, claim, *, confidence, reached=1.0, power=0.95, draws=DRAWS):
    """Return the largest noise factor, at most 1, that an audit of a claim finds with probability ``power``.

    ``reached`` is the separation of the attack over the one that the claim allows; the draws are fixed.
    """
    search = _Search(n_runs, Profile(claim), confidence, draws)
    low, high = 0.0, 1.0
    while search.share_found(high) < power:
        low, high = high, 2.0 * high
        if high > _MOST_SEPARATION:
            return 0.0
    while high - low > _PRECISION * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if search.share_found(middle) >= power else (middle, high)
    return min(reached * claimed_mu(claim) / high, 1.0)


def contradicted(present, absent, curve, confidence):
    """Whether the results contradict a claim that is given by its curve."""
    events = rank_events(*pooled_ranks(present, absent, ("present", "absent")))
    share = share_of(check_confidence(confidence), len(events))
    return any(event.contradicts(curve, share) for event in events)


class _Search:
    """Simulated audits, each with its own draws; remembers at which separations each found a violation.

    A larger separation is found if a smaller one is, with the same draws, so most answers are known beforehand.
    """

    def __init__(self, n_runs, curve, confidence, draws):
        self._n_runs, self._curve, self._confidence = n_runs, curve, confidence
        self._found_at, self._missed_at = np.full(draws, np.inf), np.full(draws, -np.inf)

    def share_found(self, separation):
        """Return the share of audits that find a violation at a separation."""
        for draw in np.flatnonzero((self._found_at > separation) & (self._missed_at < separation)):
            noise, absent = np.random.default_rng([_SEED, int(draw)]).standard_normal((2, self._n_runs))
            found = contradicted(noise + separation, absent, self._curve, self._confidence)
            (self._found_at if found else self._missed_at)[draw] = separation
        return float((self._found_at <= separation).mean())
