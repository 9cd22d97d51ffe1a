"""Logistic regression of diffprivlib with rows of length up to 100, for an audit in diffprivlib's own environment.

    dperm audit diffprivlib_logistic:fit --epsilon 1 --features 1 --range -100 100 --rows 2 \\
        --path examples/audit --python path/to/its/python

diffprivlib 0.6.6 claims epsilon; the audit finds more. The noise follows Chaudhuri, Monteleoni & Sarwate 2011, whose
correction for the curvature of the loss counts the square of the row's length, and the code counts its first power.
"""

from __future__ import annotations

import warnings

import numpy as np
from diffprivlib.models import LogisticRegression

warnings.filterwarnings("ignore")  # rows that are clipped, and convergence


def fit(X, y):
    """Return the coefficients; a row of length 100 is allowed, and longer ones are clipped by diffprivlib."""
    model = LogisticRegression(epsilon=1.0, data_norm=100.0, C=1.0, fit_intercept=False, tol=1e-10, max_iter=1000)
    model.fit(X, y)
    return np.ravel(model.coef_)
