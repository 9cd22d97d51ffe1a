"""Boosted trees with noise from interpret (DP-EBM), for an audit in interpret's own environment.

    dperm audit interpret_ebm:fit --epsilon 1 --delta 1e-5 --neighbours add-remove --features 1 --in-range \\
        --path examples/audit --python path/to/its/python

The released model is a set of curves. Their heights at fixed points are returned: what follows from a release is as
private as the release.
"""

from __future__ import annotations

import warnings

import numpy as np
from interpret.privacy import DPExplainableBoostingClassifier

warnings.filterwarnings("ignore")

EPSILON, DELTA = 1.0, 1e-5
POINTS = (-0.75, -0.25, 0.25, 0.75)


def fit(X, y):
    """Return the scores at a few points of every column."""
    bounds = dict.fromkeys(range(X.shape[1]), (-1.0, 1.0))
    model = DPExplainableBoostingClassifier(
        epsilon=EPSILON, delta=DELTA, privacy_bounds=bounds, max_rounds=4, max_bins=4, validation_size=0, n_jobs=1
    )
    model.fit(X, y)
    at = np.zeros((X.shape[1] * len(POINTS), X.shape[1]))
    for k in range(X.shape[1]):
        at[k * len(POINTS) : (k + 1) * len(POINTS), k] = POINTS
    return np.ravel(model.decision_function(at))
