"""The test problems of the local model, and the excess risk of weights on them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special


def directions(p, n, rng):
    """Rows of length .5 to 1 in random directions."""
    x = rng.normal(size=(n, p))
    x *= rng.uniform(0.5, 1.0, (n, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    return x


@pytest.fixture(scope="session")
def people():
    """Make rows and labels that follow a logistic model with weights of length about 1.5, and the weights."""

    def make(p, n, seed):
        rng = np.random.default_rng(seed)
        w = np.array([1.3, -0.9, 0.6])[:p] if p <= 3 else rng.normal(size=p)
        if p > 3:
            w *= 1.5 / np.linalg.norm(w)
        x = directions(p, n, rng)
        return x, rng.random(n) < special.expit(x @ w), w

    return make


@pytest.fixture(scope="session")
def excess():
    """Excess risk in the population, over the largest loss for up to three columns."""

    def of(weights, truth):
        p = len(truth)
        x = directions(p, 20_000, np.random.default_rng(0))
        chance = special.expit(x @ truth)

        def risk(v):
            return (chance * np.logaddexp(0, -x @ v) + (1 - chance) * np.logaddexp(0, x @ v)).mean()

        return (risk(np.asarray(weights)) - risk(truth)) / (np.log1p(np.exp(2.0 * np.sqrt(p))) if p <= 3 else 1.0)

    return of
