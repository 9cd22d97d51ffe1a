"""Weights of the two-level race, compiled.

A weight exp(u) is held as ``part * 2^power`` with 1 <= part <= 2, so that no weight overflows or vanishes however far
apart the scores are. Only a changed score costs an exponential; adding up weights costs a product each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dperm.kernels.compiling import kept_njit
from dperm.types import FloatArray

__all__ = ["NOT_FINITE", "OUTSIDE", "UNDECIDED", "locate", "update_weights"]


#: returned by the kernels instead of an index or a count
UNDECIDED = -1
NOT_FINITE = -2
OUTSIDE = -3

# 2^-k for k = 0..1022, then 0: smaller weights are negligible next to 1
_HALVES = np.append(0.5 ** np.arange(1023.0), 0.0)
_LAST = len(_HALVES) - 1
_LOG2E, _LN2 = 1.0 / math.log(2.0), math.log(2.0)


@kept_njit(nogil=True)
def update_weights(
    places: Any,
    scores: FloatArray,
    size: int,
    bound: float,
    scale: float,
    parts: FloatArray,
    powers: Any,
    totals: FloatArray,
    tops: Any,
    stale: Any,
) -> int:
    """Give the candidates at ``places`` the weights of ``scores`` and add up their groups; return how many groups.

    ``parts`` and ``powers`` have a row for each group. Nothing is changed if a score is not finite (``NOT_FINITE``) or
    a place is not below ``size`` (``OUTSIDE``). Of several scores for one place the last counts. ``stale`` marks groups
    whose total must be recomputed and is all False afterwards.
    """
    for i in range(places.size):
        if not math.isfinite(scores[i]):
            return NOT_FINITE
        if places[i] < 0 or places[i] >= size:
            return OUTSIDE
    width = parts.shape[1]
    for i in range(places.size):
        logit = min(max(scores[i], -bound), bound) / scale
        power = math.floor(logit * _LOG2E)
        group = places[i] // width
        k = places[i] - group * width
        # rounding may leave the interval by a little: nearest point of it
        parts[group, k] = math.exp(min(max(logit - power * _LN2, 0.0), _LN2))
        powers[group, k] = int(power)
        stale[group] = True
    n_groups = 0
    for i in range(places.size):
        group = places[i] // width
        if not stale[group]:
            continue
        stale[group] = False
        n_groups += 1
        top = powers[group, 0]
        for k in range(1, width):
            top = max(top, powers[group, k])
        total = 0.0
        for k in range(width):
            total += parts[group, k] * _HALVES[min(top - powers[group, k], _LAST)]
        totals[group], tops[group] = total, top
    return n_groups


@kept_njit(nogil=True)
def locate(parts: FloatArray, powers: Any, point: float) -> int:
    """Index into which ``point`` in (0, 1) of the sum of all weights falls, or ``UNDECIDED`` if rounding could matter.

    ``point`` may be off by 2^-53 of itself and 2^-64.
    """
    n = parts.size
    top = powers[0]
    for k in range(1, n):
        top = max(top, powers[k])
    total = 0.0
    for k in range(n):
        total += parts[k] * _HALVES[min(top - powers[k], _LAST)]
    target = point * total
    margin = total * (n + 16.0) * 2.0**-51
    before = after = 0.0
    for k in range(n):
        after = before + parts[k] * _HALVES[min(top - powers[k], _LAST)]
        # the first interval starts at exactly 0 and the last ends at exactly the total
        if k == n - 1 or target < after:
            sure = (k == 0 or target >= before + margin) and (k == n - 1 or target <= after - margin)
            return k if sure else UNDECIDED
        before = after
    return UNDECIDED
