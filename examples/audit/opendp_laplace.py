"""A private sum of OpenDP, with Laplace and with Gaussian noise: the audit finds nothing, as it should.

    dperm audit opendp_laplace:laplace_sums --epsilon 1 --path examples/audit
    dperm audit opendp_laplace:gaussian_sums --epsilon 1 --delta 1e-5 --gaussian --path examples/audit

Both claims are about tables in which one record is replaced by any other (in OpenDP: ChangeOneDistance).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import opendp.prelude as dp
from scipy.optimize import brentq
from scipy.stats import norm

dp.enable_features("contrib", "floating-point")

EPSILON, DELTA = 1.0, 1e-5
LOW, HIGH = -1.0, 1.0


@cache
def _laplace(n_features):
    # one record moves each of the sums by up to HIGH - LOW
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    return dp.m.make_laplace(*space, scale=n_features * (HIGH - LOW) / EPSILON)


@cache
def _gaussian(n_features):
    def delta(mu):  # of mu-GDP at EPSILON (Balle & Wang 2018)
        return norm.cdf(mu / 2 - EPSILON / mu) - np.exp(EPSILON) * norm.cdf(-mu / 2 - EPSILON / mu) - DELTA

    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale=np.sqrt(n_features) * (HIGH - LOW) / brentq(delta, 1e-3, 10.0))


def _sums(X):
    return np.clip(X, LOW, HIGH).sum(axis=0)


def laplace_sums(X, y):
    """Return the sums of the columns with Laplace noise."""
    return _laplace(X.shape[1])(_sums(X).tolist())


def gaussian_sums(X, y):
    """Return the sums of the columns with Gaussian noise."""
    return _gaussian(X.shape[1])(_sums(X).tolist())
