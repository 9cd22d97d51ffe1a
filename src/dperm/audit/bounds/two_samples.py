"""Bounds from many runs on two neighbouring data sets, one number per run. Proofs: ``bounds.proof.md``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq

from dperm.audit.bounds.curves import ClaimedDeltas, Curve, Profile, epsilon_delta_curve, gaussian_curve
from dperm.audit.bounds.rank_events import RankEvent, rank_events
from dperm.audit.bounds.results import LowerBound, Violation
from dperm.audit.bounds.samples import check_confidence, check_delta, pooled_ranks, share_of
from dperm.privacy.accounting import gdp

__all__ = ["claim_violation", "clopper_pearson_bound", "gaussian_dp_bound"]

_NAMES = ("present", "absent")
#: no audit of feasible size shows more: exp(-40) is rarer than any count of runs resolves
_MOST_EPSILON, _MOST_MU = 40.0, 40.0


def clopper_pearson_bound(present: Any, absent: Any, *, delta: float, confidence: float) -> LowerBound:
    """Return the largest epsilon shown at ``delta``, without any assumption about the method.

    Parameters
    ----------
    present, absent : vectors of numbers
        The attack's statistic in independent runs on the two neighbouring data sets. Larger may mean either.
    delta, confidence : float
        With probability ``confidence`` or more, the method is not (e, delta)-private for any e below the result.

    Notes
    -----
    Events are tails of the statistic, on both sides, in both directions. They are tested by exact binomial
    probabilities, as by Clopper & Pearson 1934, but for both error rates at once (``bounds.proof.md``): the bound is
    never below that from two Clopper-Pearson limits of the same event.

    >>> rng = np.random.default_rng(0)
    >>> bound = clopper_pearson_bound(rng.normal(2, 1, 2000), rng.normal(0, 1, 2000), delta=1e-5, confidence=0.95)
    >>> 3.0 < bound.epsilon < 9.0
    True
    """
    alpha, delta = check_confidence(confidence), check_delta(delta)
    epsilon, event = _largest(present, absent, alpha, lambda value: epsilon_delta_curve(value, delta), _MOST_EPSILON)
    return LowerBound(epsilon, delta, confidence, "clopper-pearson", f"{event}.")


def gaussian_dp_bound(present: Any, absent: Any, *, delta: float, confidence: float) -> LowerBound:
    """Return epsilon at ``delta`` of the largest mu of Gaussian DP that the results contradict.

    It assumes that the method's trade-off curve is Gaussian (Nasr et al. 2023, arXiv 2302.07956). For a claim stated as
    mu-GDP it is a test of the claim itself: if the claim holds, the result exceeds the claim's epsilon with probability
    at most ``1 - confidence``. For a claim stated as (epsilon, delta) it is evidence under that assumption: a method
    whose curve is not Gaussian, such as Laplace noise, may keep its claim and yet give a larger result.

    Parameters as for :func:`clopper_pearson_bound`; ``delta`` only converts mu to epsilon.
    """
    alpha, delta = check_confidence(confidence), check_delta(delta)
    mu, event = _largest(present, absent, alpha, gaussian_curve, _MOST_MU)
    epsilon = math.inf if delta == 0.0 and mu > 0.0 else gdp.epsilon_of(mu, delta, lower=True)
    return LowerBound(epsilon, delta, confidence, "gaussian-dp", f"{event}: mu is at least {mu:.4g}.")


def claim_violation(present: Any, absent: Any, claim: ClaimedDeltas, *, confidence: float) -> Violation | None:
    """Return how the results contradict a claimed privacy profile, or None if they do not.

    Parameters
    ----------
    present, absent : vectors of numbers
        The attack's statistic in independent runs on the two neighbouring data sets. Larger may mean either.
    claim : callable
        delta(epsilon) for epsilon of 0 or more, such as ``partial(composition.delta, event)``.
    confidence : float
        A claim that holds is contradicted with probability at most ``1 - confidence``.

    >>> from functools import partial
    >>> rng = np.random.default_rng(0)
    >>> with_record, without = rng.normal(1, 1, 2000), rng.normal(0, 1, 2000)
    >>> claim_violation(with_record, without, partial(gdp.delta_of, 1.0), confidence=0.999) is None
    True
    >>> claim_violation(with_record, without, partial(gdp.delta_of, 0.5), confidence=0.999).excess > 0.05
    True
    """
    alpha, profile = check_confidence(confidence), Profile(claim)

    def raised(excess: float) -> Curve:
        return lambda u: np.minimum(profile(u) + excess, 1.0)

    excess, event = _largest(present, absent, alpha, raised, 1.0)
    if excess <= 0.0:
        return None
    epsilon, claimed = profile.worst(event.hits / event.n_present, event.rank / (event.n_absent + 1))
    return Violation(epsilon, claimed, excess, confidence, f"{event}.")


def _largest(
    present: Any, absent: Any, alpha: float, curve: Callable[[float], Curve], most: float
) -> tuple[float, RankEvent]:
    """Return the largest value whose curve some event contradicts, and that event; 0.0 if none does.

    ``curve`` must grow with the value. The events share ``alpha`` equally.
    """
    events = rank_events(*pooled_ranks(present, absent, _NAMES))
    share = share_of(alpha, len(events))
    best, shown_by = 0.0, events[0]
    for event in events:
        if not event.contradicts(curve(best), share):
            continue
        if event.contradicts(curve(most), share):
            return most, event
        # the logarithm is nearly straight, so that few steps are needed
        root = float(brentq(lambda v, e=event: math.log(e.p_value(curve(v)) / share), best, most, xtol=1e-9, rtol=1e-9))
        best, shown_by = max((best, shown_by), (root, event), key=lambda one: one[0])
    return best, shown_by
