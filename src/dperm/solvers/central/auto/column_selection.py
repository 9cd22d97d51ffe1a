"""Selection among columns given the posterior of all weights: public numbers only."""

from __future__ import annotations

import math

import numpy as np

from dperm.types import FloatArray

__all__ = ["select_columns"]

#: rounds after which the chances of relevance have settled to within a few percent
_ROUNDS = 8
#: smallest chance of relevance, and smallest precision of a column's data in that of its posterior: finite numbers only
_LEAST_CHANCE, _LEAST_PRECISION = 1e-12, 1e-9


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
    log_rest = np.log1p(-np.minimum(shares, 1.0 - 1e-16))
    own_prior = np.square(columns) @ prior
    share, chances, penalties = 1.0, np.ones(p), np.zeros(p)
    for _ in range(_ROUNDS):
        spread = columns @ _covariance(variances, prior / share, columns, penalties)
        variance, mean = (spread * columns).sum(axis=1), spread @ (observed / variances)
        precision = np.maximum(1.0 / variance - penalties, _LEAST_PRECISION / variance)  # without its own penalty
        data = np.maximum(precision - share / own_prior, _LEAST_PRECISION * precision)  # and without its own prior
        signal, slab = np.square(mean / variance) / data, data * own_prior / shares
        log_odds = np.log(shares) - 0.5 * np.log1p(slab) + 0.5 * signal * slab / (1.0 + slab)
        log_total = np.logaddexp(log_odds, log_rest)
        fit = log_total.sum(axis=1)
        weights = np.exp(fit - fit.max())
        weights /= weights.sum()
        share = float(weights @ shares[:, 0])
        found = weights @ np.exp(log_odds - log_total)
        chances = np.sqrt(chances * np.clip(found, _LEAST_CHANCE, 1.0))  # half of each change: steady for pairs
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
