"""Populations for the measurements of the local model, and collections drawn from them.

People are drawn at random from a large finite population. Given the statistic, the bits of people drawn with
replacement are independent with the same probability of a 1. So a whole collection is one multinomial and a few
binomial draws: this has exactly the distribution of simulating every person and is much faster. Each measurement states
which of the two it uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from dperm.solvers.local import Counts, Task

SIZE = 100_000


def directions(p, n, rng):
    """Rows of length .5 to 1 in random directions."""
    x = rng.normal(size=(n, p))
    x *= rng.uniform(0.5, 1.0, (n, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    return x


def true_weights(p, rng):
    """The published weights for up to three columns, else a random direction of length 1.5."""
    if p <= 3:
        return np.array([1.3, -0.9, 0.6])[:p]
    w = rng.normal(size=p)
    return 1.5 * w / np.linalg.norm(w)


@dataclass(frozen=True)
class Logistic:
    """A population that follows the logistic model with these weights."""

    x: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, p, rng, weights=None):
        return cls(directions(p, SIZE, rng), true_weights(p, rng) if weights is None else np.asarray(weights))

    @property
    def chance(self):
        return special.expit(self.x @ self.weights)

    @property
    def unit(self):
        """Divisor of the excess risk: the largest loss for up to three columns."""
        p = len(self.weights)
        return np.log1p(np.exp(2.0 * np.sqrt(p))) if p <= 3 else 1.0

    def excess(self, w):
        """Excess risk in the population, where the true weights are best."""

        def risk(v):
            margin = self.x @ v
            return (self.chance * np.logaddexp(0, -margin) + (1 - self.chance) * np.logaddexp(0, margin)).mean()

        return (risk(np.asarray(w)) - risk(self.weights)) / self.unit

    def people(self, n, rng):
        """Features and labels (True or False) of ``n`` people, drawn anew."""
        x = directions(len(self.weights), n, rng)
        return x, rng.random(n) < special.expit(x @ self.weights)

    def chances(self, task: Task):
        """Probability of a 1 for every statistic of records y x, over people and their labels."""
        out = np.empty(task.sketch.size)
        for j in range(task.sketch.size):
            index, ends = np.full(SIZE, j), (task.sketch.low[j], task.sketch.high[j])
            yes, no = (task.bit.thresholds(task.sketch.values(y * self.x, index), *ends) for y in (1.0, -1.0))
            out[j] = (self.chance * yes + (1.0 - self.chance) * no).mean() / 2.0**32
        return out


def drawn(task: Task, chances, n, rng) -> Counts:
    """Counts of ``n`` people drawn at random."""
    asked = rng.multinomial(n, task.probabilities)
    return Counts(task.digest, asked, rng.binomial(asked, chances))
