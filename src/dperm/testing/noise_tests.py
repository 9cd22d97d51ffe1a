"""Exact tests of noise in units of its claimed scale: is it independent between releases, and never missing?

``parts`` is a list of vectors, the noise of one release each, in the order of the releases. The tests hold for the
claimed noise and for any larger one. Proofs: ``audit/releases/releases.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations_with_replacement

import numpy as np
from scipy import special
from scipy.spatial.distance import cdist

from dperm.types import FloatArray

__all__ = ["LAGS", "lag_p_value", "nearness_p_value", "share_below", "too_small_p_value"]

#: releases up to this far apart are compared
LAGS = 8
#: fewer values say nothing about an angle
_FEWEST_ANGLES = 4
#: most releases whose noise is compared with that of every other: a million pairs take a second
_MOST_COMPARED = 1500
#: largest density of the difference of two independent values, times two
_NEARNESS = {"gaussian": 1.0 / math.sqrt(math.pi), "laplace": 0.5}


def lag_p_value(parts: Sequence[FloatArray], law: str = "gaussian") -> float:
    """Return the p-value of a test that noise of releases up to ``LAGS`` apart is independent.

    For each lag, disjoint pairs make two long vectors: once the pairs that start in an even block of that length, once
    those in an odd one, so that every pair is in one of the two. The angle between independent Gaussian vectors has a
    known law, whatever their lengths; for another symmetric law the number of equal signs has one.
    """
    found = 1.0
    for lag in range(1, LAGS + 1):
        for odd in (0, 1):
            starts = [i for i in range(len(parts) - lag) if (i // lag) % 2 == odd]
            sizes = [min(parts[i].size, parts[i + lag].size) for i in starts]
            if sum(sizes) < _FEWEST_ANGLES:
                continue
            one = np.concatenate([parts[i][:n] for i, n in zip(starts, sizes, strict=True)])
            two = np.concatenate([parts[i + lag][:n] for i, n in zip(starts, sizes, strict=True)])
            found = min(found, _angle(one, two) if law == "gaussian" else _signs(one, two))
    return min(1.0, 2 * LAGS * found)


def _angle(one: FloatArray, two: FloatArray) -> float:
    cosine = float(one @ two) / max(float(np.linalg.norm(one) * np.linalg.norm(two)), 1e-300)
    freedom = one.size - 1
    statistic = abs(cosine) * math.sqrt(freedom / max(1.0 - cosine**2, 1e-300))
    return float(2.0 * special.stdtr(freedom, -statistic))


def _signs(one: FloatArray, two: FloatArray) -> float:
    equal = int((one * two > 0.0).sum())
    fewer, more = special.bdtr(equal, one.size, 0.5), special.bdtrc(equal - 1, one.size, 0.5) if equal else 1.0
    return float(min(1.0, 2.0 * min(fewer, more)))


def nearness_p_value(parts: Sequence[FloatArray], law: str = "gaussian", step: float = 0.0) -> float:
    """Return the p-value of the two most alike noise vectors of all releases, whatever lies between them.

    Two independent values differ by t at most with a probability below ``c t``, so vectors whose m common coordinates
    all do have one below ``(c t)^m``. Vectors of opposite sign count too. ``step`` is the lattice's, in the same units:
    rounding moves each value by half a step.

    >>> again = np.array([0.3, -1.2, 0.7, 2.0])
    >>> nearness_p_value([again, np.ones(4), again], step=1e-4) < 1e-12
    True
    """
    kept = [part for part in parts[:_MOST_COMPARED] if part.size]
    by_size: dict[int, list[FloatArray]] = {}
    for part in kept:
        by_size.setdefault(part.size, []).append(part)
    best = 0.0
    for short, long in combinations_with_replacement(sorted(by_size), 2):
        one, two = np.array(by_size[short]), np.array(by_size[long])[:, :short]
        for sign in (1.0, -1.0):
            apart = cdist(one, sign * two, "chebyshev")
            if short == long:
                apart = apart[np.triu_indices(len(apart), 1)]
            if apart.size:
                chance = _NEARNESS[law] * (float(apart.min()) + 2.0 * step)
                best = min(best, short * math.log(max(chance, 1e-300)))
    pairs = len(kept) * (len(kept) - 1)  # of each two, both signs
    return min(1.0, pairs * math.exp(best)) if pairs else 1.0


def too_small_p_value(shares: FloatArray) -> float:
    """Return the p-value of a test that none of the noise is missing, be it in a few releases or values only.

    Parameters
    ----------
    shares : array
        One per independent draw: the probability under the claim of noise as small as this one. The k-th smallest of n
        has the Beta law of (k, n - k + 1), or is larger; the most extreme of all k counts n-fold.

    >>> too_small_p_value(np.linspace(0.01, 1.0, 100)) > 0.5
    True
    >>> too_small_p_value(np.array([*np.linspace(0.01, 1.0, 100), *[1e-4] * 4])) < 1e-6
    True
    """
    if not shares.size:
        return 1.0
    ordered, k = np.sort(shares), np.arange(1, shares.size + 1)
    return min(1.0, shares.size * float(special.betainc(k, shares.size - k + 1, ordered).min()))


def share_below(values: FloatArray, law: str = "gaussian", step: float = 0.0) -> FloatArray:
    """Return the probability, under the claim, that a value is as near to 0 as each of these, up to a lattice step."""
    near = np.abs(values) + step
    shares: FloatArray = -np.expm1(-near) if law == "laplace" else special.erf(near / math.sqrt(2.0))
    return shares
