"""Releases that take the place of several planned Gaussian ones: they cost no more, and hardly less."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from dperm.privacy.accounting.events import Gaussian, Laplace, Selection
from dperm.privacy.accounting.units import _log_odds, gaussian_in_units, pays_for, selection_in_units

MULTIPLIERS = [0.05, 0.3, 0.7, 2.0, 30.0, 1e4]
UNITS = [1, 2, 3, 7, 60]


def worst_pairs(span):
    """Probabilities of the larger loss under both laws, for losses t and t - span at many t."""
    t = np.linspace(0.0, span, 2001)[1:-1]
    under_second = -np.expm1(t - span) / (np.exp(t) * -np.expm1(-span))
    return np.exp(t) * under_second, under_second


@pytest.mark.parametrize("span", [1e-3, 0.05, 0.5, 2.0, 8.0])
def test_gaussian_units_dominate_every_pair_of_bounded_range(span):
    first, second = worst_pairs(span)
    mu = stats.norm.ppf(first) - stats.norm.ppf(second)  # that of the Gaussian trade-off through the kink
    bound = 2.0 * stats.norm.ppf(1.0 / (1.0 + math.exp(-span / 2.0)))
    assert mu.max() <= bound * (1.0 + 1e-9)
    assert mu.max() >= bound * (1.0 - 1e-4)  # reached, halfway


@pytest.mark.parametrize("span", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("place", [0.02, 0.3, 0.5, 0.9])
def test_the_trade_off_of_a_selection_lies_above_that_of_its_units(span, place):
    first, second = (float(p[int(place * 1998)]) for p in worst_pairs(span))
    mu = 2.0 * stats.norm.ppf(1.0 / (1.0 + math.exp(-span / 2.0)))
    errors = np.linspace(1e-6, 1.0 - 1e-6, 4001)
    missed = np.interp(errors, [0.0, second, 1.0], [1.0, 1.0 - first, 0.0])
    assert (missed >= stats.norm.cdf(stats.norm.ppf(1.0 - errors) - mu) - 1e-12).all()


@pytest.mark.parametrize("multiplier", MULTIPLIERS)
@pytest.mark.parametrize("units", UNITS)
def test_log_odds_are_as_precise_as_assumed(multiplier, units):
    with mpmath.workdps(60):
        half = mpmath.sqrt(units) / (2 * mpmath.mpf(multiplier))
        exact = mpmath.log(mpmath.ncdf(half)) - mpmath.log(mpmath.ncdf(-half))
        assert abs(_log_odds(multiplier, units) / exact - 1) < 1e-14


@pytest.mark.parametrize("ratio", [1.0, math.sqrt(2.0), 2.0])
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("multiplier", MULTIPLIERS)
def test_units_pay_for_what_they_are_meant_for_and_for_nothing_else(multiplier, units, ratio):
    unit = Gaussian(multiplier, ratio)
    gaussian = Gaussian(gaussian_in_units(multiplier, units), ratio)
    selection = Selection(selection_in_units(multiplier, units), ratio)
    assert pays_for(gaussian, unit, units)
    assert pays_for(selection, unit, units)
    for event, kind in ((gaussian, Gaussian), (selection, Selection)):
        assert not pays_for(event, unit, units - 1)
        assert not pays_for(event, unit, units + 1)
        assert not pays_for(kind(event.noise_multiplier * 0.999999, ratio), unit, units)
        assert not pays_for(kind(event.noise_multiplier * 1.000001, ratio), unit, units)
        assert not pays_for(kind(event.noise_multiplier, 1.5), unit, units)
    assert not pays_for(Laplace(gaussian.noise_multiplier, ratio), unit, units)


def test_only_gaussian_releases_are_units():
    assert pays_for(Selection(3.0), Selection(3.0), 1)
    assert not pays_for(Selection(3.0), Selection(3.0), 2)
    assert not pays_for(Gaussian(3.0), Selection(3.0), 1)
    assert not pays_for(Gaussian(3.0), Gaussian(3.0), 0)
