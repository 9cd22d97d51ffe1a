"""Selection among columns whose weights noise alone may explain: post-processing of released values.

``select_columns`` is for the posterior of a regression, ``column_penalties`` for the result of a descent.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from dperm.solvers.central.auto.constants import RULE, TINY
from dperm.types import FloatArray

__all__ = ["column_penalties", "inverse_with", "select_columns"]


def select_columns(observed: FloatArray, variances: FloatArray, prior: FloatArray, columns: FloatArray) -> FloatArray:
    """Return the posterior mean in mapped coordinates if some columns may have no weight at all.

    A share of the columns is relevant: 1, 1/2, 1/4, ..., all equally likely. If fewer are relevant, their weights are
    larger, so that together they explain the same. All other columns are accounted for when the chance that one is
    relevant is computed. A column that is relevant with chance c gets a ridge penalty, its own precision times
    (1 - c) / c: alone it would keep the share c of its weight, and columns with correlated weights move along. Where
    weights are so correlated that no column can be told from the others, nothing is removed.

    Parameters
    ----------
    observed, variances, prior : array of shape (d,)
        Observed weights in mapped coordinates, their variances, and their prior variances.
    columns : array of shape (p, d)
        Map from mapped coordinates to the weights of columns.

    >>> weights = np.append(np.full(4, 8.0), np.tile([1.0, -1.0], 18))
    >>> few = select_columns(weights, np.ones(40), np.full(40, 6.0), np.eye(40))
    >>> bool(few[:4].min() > 7.5), bool(np.abs(few[4:]).max() < 0.2)
    (True, True)
    >>> all_relevant = select_columns(np.full(40, 8.0), np.ones(40), np.full(40, 64.0), np.eye(40))
    >>> bool(all_relevant.min() > 7.5)
    True
    """
    p = len(columns)
    shares = 2.0 ** -np.arange(math.ceil(math.log2(p)) + 1.0)[:, None]
    log_rest = np.log1p(-np.minimum(shares, 1.0 - TINY))
    own_prior = np.square(columns) @ prior
    share, chances, penalties = 1.0, np.ones(p), np.zeros(p)
    for _ in range(RULE.most_rounds):
        spread = columns @ _covariance(variances, prior / share, columns, penalties)
        variance, mean = (spread * columns).sum(axis=1), spread @ (observed / variances)
        precision = np.maximum(1.0 / variance - penalties, TINY / variance)  # without its own penalty
        data = np.maximum(precision - share / own_prior, TINY * precision)  # and without its own prior
        signal, slab = np.square(mean / variance) / data, data * own_prior / shares
        log_odds = np.log(shares) - 0.5 * np.log1p(slab) + 0.5 * signal * slab / (1.0 + slab)
        log_total = np.logaddexp(log_odds, log_rest)
        fit = log_total.sum(axis=1)
        weights = np.exp(fit - fit.max())
        weights /= weights.sum()
        share = float(weights @ shares[:, 0])
        found = weights @ np.exp(log_odds - log_total)
        chances = np.sqrt(chances * np.clip(found, TINY, 1.0))  # half of each change: steady for pairs
        penalties = precision * (1.0 - chances) / chances
    out: FloatArray = _covariance(variances, prior / share, columns, penalties) @ (observed / variances)
    return out


def _covariance(variances: FloatArray, prior: FloatArray, columns: FloatArray, penalties: FloatArray) -> FloatArray:
    """Posterior covariance, computed in units in which it is the identity without penalties."""
    root = np.sqrt(variances * prior / (variances + prior))
    scaled = columns * root
    inverse = np.linalg.inv(np.eye(len(root)) + scaled.T @ (penalties[:, None] * scaled))
    out: FloatArray = root[:, None] * inverse * root
    return out


def inverse_with(covariance: FloatArray, added: float) -> FloatArray:
    """Return the inverse of a covariance matrix, with ``added`` on its diagonal."""
    matrix = covariance + added * np.eye(len(covariance))
    out: FloatArray
    factor, failed = dpotrf(matrix.T, lower=1)  # half the work of a general inverse; LAPACK reads columns first
    if failed:  # rounding has made a variance negative
        out = np.asarray(np.linalg.inv(matrix), np.float64)
        return out
    lower = dpotri(factor, lower=1, overwrite_c=1)[0]  # the other triangle is zero
    out = lower + lower.T
    np.fill_diagonal(out, lower.diagonal())
    return out


def column_penalties(weights: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return the strength of a ridge penalty for each column that removes weights explained by noise alone.

    Model: weights are normal around true weights with this covariance. A true weight is zero, or with probability
    ``share`` normal with one variance for all columns (spike and slab). Share and variance are fitted by variational
    inference, one coordinate at a time (Carbonetto & Stephens 2012); if all weights matter, all are kept. For a column
    that is relevant with probability c, the strength is its own precision times (1 - c) / c: alone it would keep the
    share c of its weight, and columns with correlated noise move along.

    >>> noise = np.eye(40)
    >>> strengths = column_penalties(np.append(np.full(4, 8.0), np.tile([1.0, -1.0], 18)), noise)
    >>> bool(strengths[:4].max() < 0.01), bool(strengths[4:].min() > 10.0)
    (True, True)
    >>> bool(column_penalties(np.full(40, 8.0), noise).max() < 0.01)
    True
    """
    from dperm.kernels.relevance import relevance_sweep  # compiled code: imported only when needed

    d = len(weights)
    noise, square = float(np.trace(covariance)), float(weights @ weights)
    if d == 0 or square == 0.0 or not noise > TINY * square:
        return np.zeros(d)
    unit = math.sqrt(noise / d)
    weights, precision = weights / unit, inverse_with(covariance / unit**2, TINY)
    own = np.diag(precision).copy()
    share, variance = 0.5, max(square / (noise / d) / d - 1.0, RULE.least_kept * square / noise, TINY)
    relevance = np.full(d, share)
    means = share * weights
    residual = precision @ (weights - means)
    for _ in range(RULE.most_rounds):
        spread = 1.0 / (own + 1.0 / variance)
        prior_odds = math.log(share / (1.0 - share)) + 0.5 * np.log(spread / variance)
        slab = np.zeros(d)
        change = relevance_sweep(precision, residual, means, slab, relevance, spread, prior_odds)
        total = float(relevance.sum())
        share = min((total + RULE.prior_relevant) / (d + RULE.prior_relevant), 1.0 - TINY)
        variance = max(float(relevance @ (slab * slab + spread)) / max(total, TINY), TINY)
        if change <= math.sqrt(TINY * variance):
            break
    strengths: FloatArray = own * (1.0 - relevance) / relevance / unit**2
    return strengths
