"""The power of an audit: how much too little noise it would have found.

The model is a shift of a Gaussian statistic: without the record it is standard normal, with the record it is shifted
by the separation that the attack reaches. A method that uses f times the noise that its claim needs has a separation
1/f times as large.
"""

from __future__ import annotations

from dataclasses import replace

from dperm.audit.bounds.curves import ClaimedDeltas, Profile, gaussian_curve
from dperm.audit.bounds.rank_events import RankEvent, event_ranks
from dperm.audit.bounds.samples import check_confidence, share_of

__all__ = ["noise_factor_found"]

#: the separation is searched to this part of itself: a factor is shown with two digits
_PRECISION = 2e-3
#: separations up to this are tried: beyond it, results with and without the record never overlap
_MOST_SEPARATION = 64.0


def noise_factor_found(
    reached: float, n_present: int, n_absent: int, claim: ClaimedDeltas, *, confidence: float, power: float = 0.95
) -> float:
    """Return a noise factor, at most 1, that :func:`claim_violation` finds with probability ``power`` or more.

    Parameters
    ----------
    reached : float
        Separation of the statistic on the two data sets, in standard deviations of its noise. With f times the noise
        it would be 1/f of that.
    n_present, n_absent : int
        Runs on each of them.
    claim : callable
        The claimed delta(epsilon).
    confidence : float
        Confidence of the test.
    power : float
        Probability of finding it.

    Returns
    -------
    float
        0.0 if nothing is found, however little the noise.

    Notes
    -----
    All events together find it at least as often as the best single one, whose probability is an integral; a lower
    bound of it is used, so the power is not overstated (``bounds.proof.md``).
    """
    events = _decisive_events(Profile(claim), n_present, n_absent, check_confidence(confidence))

    def found(separation: float) -> bool:
        curve = gaussian_curve(separation)
        return any(event.least_probability(curve) >= power for event in events)

    if not reached > 0.0 or not found(_MOST_SEPARATION):
        return 0.0
    low, high = 0.0, _MOST_SEPARATION
    while high - low > _PRECISION * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if found(middle) else (middle, high)
    return min(reached / high, 1.0)


def _decisive_events(profile: Profile, n_present: int, n_absent: int, alpha: float) -> list[RankEvent]:
    """Return, for each rank that is tested, the event with the fewest hits that contradict the claim.

    Both tails are tested at these ranks and share ``alpha``; a shift upwards shows in the upper one.
    """
    ranks = event_ranks(n_absent)
    share, found = share_of(alpha, 2 * len(ranks)), []
    for rank in ranks:
        event = RankEvent(above=True, rank=int(rank), n_absent=n_absent, hits=n_present, n_present=n_present)
        if not event.contradicts(profile, share):
            continue
        too_few = 0
        while event.hits - too_few > 1:
            fewer = replace(event, hits=(too_few + event.hits) // 2)
            if fewer.contradicts(profile, share):
                event = fewer
            else:
                too_few = fewer.hits
        found.append(event)
    return found
