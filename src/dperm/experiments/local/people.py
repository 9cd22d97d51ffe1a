"""Populations for the measurements of the local model, and collections drawn from them.

People are drawn at random from a large finite population. Given the statistic, the bits of people drawn with
replacement are independent with the same probability of a 1. So a whole collection is one multinomial and a few
binomial draws: this has exactly the distribution of simulating every person and is much faster. Each measurement states
which of the two it uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import optimize, special

from dperm.errors import InvalidInput
from dperm.experiments.result import Baseline
from dperm.privacy.local.one_bit import OneBit
from dperm.solvers.local import Counts, Task
from dperm.types import BoolArray, FloatArray

__all__ = ["PAPER", "SIZE", "LogisticPopulation", "directions", "drawn", "logistic_risk", "true_weights"]

PAPER = "Wang, Gaboardi & Xu 2018, local model"
#: people in a population
SIZE = 100_000
#: box in which every weight lies
BOUND = 2.0


def directions(p: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Rows of length .5 to 1 in random directions."""
    x = rng.normal(size=(n, p))
    x *= rng.uniform(0.5, 1.0, (n, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    return x


def true_weights(p: int, rng: np.random.Generator) -> FloatArray:
    """Weights of the usual test problems for up to three columns, else a random direction of length 1.5."""
    if p <= 3:
        return np.array([1.3, -0.9, 0.6])[:p]
    w = rng.normal(size=p)
    return np.asarray(1.5 * w / np.linalg.norm(w))


def logistic_risk(records: FloatArray, w: FloatArray) -> float:
    """Mean logistic loss of records, which are labels times features."""
    return float(np.logaddexp(0.0, -(records @ w)).mean())


@dataclass(frozen=True)
class LogisticPopulation:
    """A population that follows the logistic model with these weights."""

    x: FloatArray
    weights: FloatArray

    @classmethod
    def of(
        cls, p: int, rng: np.random.Generator, weights: Sequence[float] | FloatArray | None = None
    ) -> LogisticPopulation:
        """Draw a population."""
        return cls(directions(p, SIZE, rng), true_weights(p, rng) if weights is None else np.asarray(weights))

    @cached_property
    def chance(self) -> FloatArray:
        """Probability of every row's label."""
        return np.asarray(special.expit(self.x @ self.weights))

    @property
    def unit(self) -> float:
        """Divisor of the excess risk: the largest loss for up to three columns."""
        p = len(self.weights)
        return float(np.log1p(np.exp(BOUND * np.sqrt(p)))) if p <= 3 else 1.0

    def risk(self, w: FloatArray) -> float:
        """Mean loss in the population."""
        margin = self.x @ np.asarray(w)
        losses = self.chance * np.logaddexp(0, -margin) + (1 - self.chance) * np.logaddexp(0, margin)
        return float(losses.mean())

    def excess(self, w: FloatArray) -> float:
        """Excess risk in the population, where the true weights are best."""
        return (self.risk(w) - self.risk(self.weights)) / self.unit

    def empirical_excess(self, w: FloatArray, records: FloatArray) -> float:
        """Excess risk on the people who were asked, over the best weights for them in the box."""

        def objective(v: FloatArray) -> tuple[float, FloatArray]:
            slopes = -special.expit(-(records @ v))
            return logistic_risk(records, v), records.T @ slopes / len(records)

        box = [(-BOUND, BOUND)] * len(self.weights)
        best = optimize.minimize(objective, self.weights, jac=True, bounds=box, method="L-BFGS-B").fun
        return (logistic_risk(records, w) - float(best)) / self.unit

    def people(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, BoolArray]:
        """Features and labels (True or False) of ``n`` people, drawn anew."""
        x = directions(len(self.weights), n, rng)
        return x, rng.random(n) < special.expit(x @ self.weights)

    def records(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Labels, -1 or 1, times the features of ``n`` people, drawn anew."""
        x, y = self.people(n, rng)
        return np.where(y, 1.0, -1.0)[:, None] * x

    def chances(self, task: Task) -> FloatArray:
        """Probability of a 1 for every statistic of records y x, over people and their labels."""
        bit = task.bit
        if not isinstance(bit, OneBit):
            raise InvalidInput("chances are those of one-bit reports.")
        out = np.empty(task.sketch.size)
        for j in range(task.sketch.size):
            index, ends = np.full(SIZE, j), (task.sketch.low[j], task.sketch.high[j])
            yes, no = (bit.thresholds(task.sketch.values(y * self.x, index), *ends) for y in (1.0, -1.0))
            out[j] = (self.chance * yes + (1.0 - self.chance) * no).mean() / 2.0**32
        return out

    def baseline(self, name: str, n: int, seed: int) -> Baseline:
        """The problem without privacy, and with weights of 0, in the population."""
        p, data = len(self.weights), "made: rows in random directions"
        least, null = self.risk(self.weights), self.risk(np.zeros(p))
        return Baseline(name, data, n, p, seed, "logistic loss", least, null)


def drawn(task: Task, chances: FloatArray, n: int, rng: np.random.Generator) -> Counts:
    """Counts of ``n`` people drawn at random."""
    asked = rng.multinomial(n, task.probabilities)
    return Counts(task.digest, asked, rng.binomial(asked, chances))
