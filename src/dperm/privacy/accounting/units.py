"""Releases that are paid with several units of a planned group of Gaussian releases. Proof: ``units.proof.md``.

A plan reserves a number of Gaussian releases with one noise multiplier. A release with less noise may take the place of
several of them: one Gaussian release of ``multiplier / sqrt(units)`` costs exactly what ``units`` of them cost, and a
selection never costs more than the Gaussian releases that dominate it. So a solver may decide after earlier releases
how it divides a planned group, and the ledger still records the planned events and nothing else.
"""

from __future__ import annotations

import math
from fractions import Fraction

from scipy import special

from dperm.privacy.accounting.events import Event, Gaussian, Selection

__all__ = ["gaussian_in_units", "pays_for", "selection_in_units"]

# relative error of a computed log odds, with a safety factor above 100; noise is rounded up by more than that
_ERROR, _UP = 1e-12, 1.0 + 1e-11
# a release must use up its units to this relative precision: what it was charged for, it also used
_WASTE = 1e-9


def _log_odds(multiplier: float, units: int) -> float:
    """Return the log odds of Phi(mu / 2), mu that of ``units`` Gaussian releases: half the range it dominates.

    >>> round(_log_odds(0.5, 1), 3)
    1.668
    """
    half = math.sqrt(units) / (2.0 * multiplier)
    if half < 1.0:  # without cancellation
        return 2.0 * math.atanh(math.erf(half / math.sqrt(2.0)))
    return float(special.log_ndtr(half) - special.log_ndtr(-half))


def gaussian_in_units(multiplier: float, units: int) -> float:
    """Return the multiplier of one Gaussian release that costs ``units`` of those with ``multiplier``, rounded up.

    >>> round(gaussian_in_units(30.0, 9), 6)
    10.0
    """
    return multiplier if units == 1 else multiplier / math.sqrt(units) * _UP


def selection_in_units(multiplier: float, units: int) -> float:
    """Return the multiplier of a selection that ``units`` Gaussian releases dominate, rounded up.

    >>> round(selection_in_units(30.0, 9) / 10.0, 3)  # the square root of pi / 2, for little loss
    1.253
    """
    return 1.0 / _log_odds(multiplier, units) * _UP


def pays_for(event: Event, unit: Event, units: int) -> bool:
    """Whether ``units`` releases of the planned ``unit`` pay for one release that costs ``event``.

    They must cost at least as much, under the plan's own neighbours and where a ``zero-out`` plan is restated for
    ``replace-one``, and not noticeably more.

    >>> pays_for(Gaussian(15.0), Gaussian(30.0), 4), pays_for(Gaussian(15.0), Gaussian(30.0), 3)
    (True, False)
    """
    if type(units) is not int:  # a subclass could count as one number here and as another where units are added up
        return False
    if units == 1 and event == unit:
        return True
    if not isinstance(unit, Gaussian) or not isinstance(event, Gaussian | Selection) or units < 1:
        return False
    if event.replacement_ratio != unit.replacement_ratio:
        return False
    if isinstance(event, Gaussian):
        paid = Fraction(event.noise_multiplier) ** 2 * units / Fraction(unit.noise_multiplier) ** 2
        return 1 <= paid <= 1 + Fraction(_WASTE)
    ratio = unit.replacement_ratio
    used = [
        factor / event.noise_multiplier / _log_odds(unit.noise_multiplier / factor, units) for factor in (1.0, ratio)
    ]
    return max(used) <= 1.0 - _ERROR and used[0] >= 1.0 - _WASTE
