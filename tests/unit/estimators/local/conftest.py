"""Test problems of the local model, the excess loss of weights on them, and collections drawn from their law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from dperm import Bounds, LocalLinearRegression, LocalLogisticRegression
from dperm.solvers.local import Counts


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


# -------------------------------------------------------------------------- a multinomial and a few binomial draws
def chances(task, records, likely):
    """Chance of a 1 for every statistic, over people drawn from these records with these weights."""
    out = []
    for j in range(task.sketch.size):
        values = task.sketch.values(records, np.full(len(records), j))
        k = task.bit.thresholds(values, task.sketch.low[j], task.sketch.high[j])
        out.append(np.average(k, weights=likely) / 2.0**32)
    return np.array(out)


def drawn(task, chance, n, rng):
    asked = rng.multinomial(n, task.probabilities)
    return Counts(task.digest, asked, rng.binomial(asked, chance))


class Population:
    """Columns spread evenly over [-spread, spread], declared as [-1, 1]; only the first one tells anything."""

    def __init__(self, loss, p, length, size, rng, spread=1.0, epsilon=1.0, **options):
        x = spread * rng.uniform(-1, 1, (size, p))
        x = np.vstack([x, -x])
        if loss == "logistic":
            self.model = LocalLogisticRegression(epsilon, bounds=Bounds(features=(-1, 1)), degree=2, **options)
        else:
            self.model = LocalLinearRegression(epsilon, bounds=Bounds(features=(-1, 1), target=(-1, 1)), **options)
        self.rows = self.model._rows(p, None)
        self.linear = self.model._linear(self.rows, 1, 2)
        self.plan = self.model.plan(1000, p)
        scaled = self.scaled = self.rows.apply(x)
        if loss == "logistic":
            chance = special.expit(length * x[:, 0])
            self.records, self.likely = np.vstack([scaled, -scaled]), np.append(chance, 1.0 - chance)
            self.risk = lambda v: (np.logaddexp(0.0, scaled @ v) - chance * (scaled @ v)).mean()
        else:
            mean = length * x[:, 0]
            self.records = np.vstack([np.column_stack([scaled, mean + off]) for off in (0.3, -0.3)])
            self.likely = np.ones(len(self.records))
            gram, slope = scaled.T @ scaled / len(x), scaled.T @ mean / len(x)
            self.risk = lambda v: v @ gram @ v / 2.0 - slope @ v
        self.null = self.risk(np.zeros(self.rows.n_columns))

    def moments(self, n, runs, rng):
        """Excess risk beyond that of weights 0, run by run."""
        chance = chances(self.linear.task, self.records, self.likely)
        found = [self.linear.estimates(drawn(self.linear.task, chance, n, rng))[0] for _ in range(runs)]
        return np.array([self.risk(one.weights) - self.null if one.kept else 0.0 for one in found])

    def descents(self, n, runs, rng):
        """The same for descents in rounds, and without their shrinkage."""
        descent = self.model._descent(self.linear, self.rows)
        shrunk, plain = [], []
        for _ in range(runs):
            state = descent.start()
            for size in rng.multinomial(n, np.full(descent.n_rounds, 1.0 / descent.n_rounds)):
                task = descent.task(state)
                state = descent.next_state(state, drawn(task, chances(task, self.records, self.likely), size, rng))
            shrunk.append(self.risk(descent.shrunk(state)[0]) - self.null)
            plain.append(self.risk(descent.estimate(state)) - self.null)
        return np.array(shrunk), np.array(plain)


@pytest.fixture(scope="session")
def population():
    """The class of populations whose collections are drawn from the exact law of their bits, thousands of them fast."""
    return Population


@pytest.fixture(scope="session")
def law():
    """Chances of bits, and counts drawn with them."""
    return chances, drawn


@pytest.fixture(scope="session")
def table():
    """One column that decides, and labels."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (5000, 1))
    return x, x[:, 0] > 0.1 * rng.normal(size=5000)
