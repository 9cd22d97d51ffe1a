"""Measure weak signals, a descent in rounds and Algorithm 4 in the local model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from dperm import Bounds, LocalLinearRegression, LocalLogisticRegression
from dperm.experiments.local.people import LogisticPopulation, drawn
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local.projected import ProjectedLinearModel, public_signs

#: lengths of the first column's weight for either loss; the last is about what plans assume
LENGTHS = {"logistic": (0.0, 0.1, 0.3, 0.6, 1.5), "squared": (0.0, 0.15, 0.3, 0.5, 0.7)}


def summary(values):
    """Mean and standard error."""
    values = np.asarray(values, float)
    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return {"mean": float(values.mean()), "error": error, "runs": len(values)}


@dataclass(frozen=True)
class Weak:
    """A population with columns uniform on [-1, 1], a fitted intercept and a given weight of the first column.

    ``records`` have the chances ``likely``; ``risk`` is that of weights of scaled rows.
    """

    model: Any
    rows: Any
    records: np.ndarray
    likely: np.ndarray
    risk: Any

    @classmethod
    def of(cls, loss, p, length, solver, size, rng):
        x = rng.uniform(-1, 1, (size, p))
        x = np.vstack([x, -x])  # only the first column is informative
        if loss == "logistic":
            model = LocalLogisticRegression(1.0, bounds=Bounds(features=(-1, 1)), solver=solver, degree=2)
            rows = model._rows(p, None)
            scaled, chance = rows.apply(x), special.expit(length * x[:, 0])
            records, likely = np.vstack([scaled, -scaled]), np.append(chance, 1.0 - chance)
            return cls(model, rows, records, likely, lambda v: float(_logistic(scaled @ v, chance)))
        model = LocalLinearRegression(1.0, bounds=Bounds(features=(-1, 1), target=(-1, 1)), solver=solver)
        rows = model._rows(p, None)
        scaled, mean, off = rows.apply(x), length * x[:, 0], 0.3
        records = np.vstack([np.column_stack([scaled, mean + sign * off]) for sign in (1.0, -1.0)])
        gram, slope = scaled.T @ scaled / len(x), scaled.T @ mean / len(x)
        return cls(model, rows, records, np.ones(len(records)), lambda v: float(v @ gram @ v / 2.0 - slope @ v))

    @property
    def linear(self):
        return self.model._linear(self.rows, 1, 2)

    def chances(self, task):
        """Probability of a 1 for every statistic."""
        ends = zip(task.sketch.low, task.sketch.high, strict=True)
        out = []
        for j, (low, high) in enumerate(ends):
            values = task.sketch.values(self.records, np.full(len(self.records), j))
            out.append(np.average(task.bit.thresholds(values, low, high), weights=self.likely) / 2.0**32)
        return np.array(out)

    def moments(self, n, runs, rng):
        """Excess risk over that of weights 0, for collections drawn from the exact distribution of the bits."""
        linear, null = self.linear, self.risk(np.zeros(self.rows.n_columns))
        chances = self.chances(linear.task)
        found = [linear.estimates(drawn(linear.task, chances, n, rng))[0] for _ in range(runs)]
        return [self.risk(one.weights) - null if one.kept else 0.0 for one in found]

    def descents(self, n, runs, rng):
        """The same for descents in rounds."""
        descent, null = self.model._descent(self.linear, self.rows), self.risk(np.zeros(self.rows.n_columns))
        found = []
        for _ in range(runs):
            state = descent.start()
            for size in rng.multinomial(n, np.full(descent.n_rounds, 1.0 / descent.n_rounds)):
                task = descent.task(state)
                state = descent.next_state(state, drawn(task, self.chances(task), size, rng))
            found.append(self.risk(descent.shrunk(state)[0]) - null)
        return found


def _logistic(margin, chance):
    return (np.logaddexp(0.0, margin) - chance * margin).mean()


def weak(fast):
    """Mean excess over that of weights 0 for weights of any length including 0; bits drawn from their distribution."""
    rows = []
    for loss, solver, columns in (
        ("logistic", "moments", (1, 2)),
        ("squared", "moments", (1, 2)),
        ("logistic", "sgd", (2,)),
        ("squared", "sgd", (2,)),
    ):
        size, runs = (3_000, 1000) if solver == "moments" else (40, 24)
        for p in columns:
            for length in LENGTHS[loss]:
                rng = np.random.default_rng()
                one = Weak.of(loss, p, length, solver, size, rng)
                plan = one.model.plan(1000, p)
                best = np.append(length, np.zeros(p)) * one.rows.bound
                null = one.risk(np.zeros(p + 1)) - one.risk(best)
                for factor in (1.2, 4.0):
                    n = round(factor * plan.min_people)
                    draw = one.moments if solver == "moments" else one.descents
                    found = summary(draw(n, max(20, runs // 20) if fast else runs, rng))
                    row = {"loss": loss, "solver": solver, "p": p, "factor": factor, "n": n, "length": length}
                    rows.append(row | {"null": null, "typical": plan.null_excess} | found)
                print({k: v for k, v in rows[-1].items() if k != "runs"}, flush=True)
    return rows


def rounds(fast):
    """Excess risk of a descent in 40 rounds on the problems of the first table; every person is simulated."""
    rows = []
    plan = ((1, 10_000, 100), (2, 100_000, 60), (3, 1_000_000, 12), (5, 1_000_000, 12), (10, 1_000_000, 6))
    for p, n, runs in plan:
        found, kept = [], []
        for _ in range(max(3, runs // 10) if fast else runs):
            rng = np.random.default_rng()
            problem = LogisticPopulation.of(p, rng)
            bounds = Bounds(features=(-1, 1), row_norm=1.0)
            model = LocalLogisticRegression(
                1.0, bounds=bounds, fit_intercept=False, solver="sgd", refuse_hopeless=False
            )
            model.fit(*problem.people(n, rng))
            found.append(problem.excess(model.coef_[0]))
            kept.append(model.kept_)
        rows.append({"p": p, "n": n, "kept": float(np.mean(kept)), **summary(found)})
        print(rows[-1], flush=True)
    return rows


def projected(fast):
    """Algorithm 4 with 400 features in 20 dimensions: squared loss relative to that of weights 0; counts are drawn."""
    rows, size = [], 20_000
    for n in (100_000, 1_000_000, 10_000_000, 1_000_000_000):
        found = []
        for _ in range(2 if fast else 8):
            rng = np.random.default_rng()
            x = rng.normal(size=(size, 400))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            y = 0.8 * x[:, 0]
            model = ProjectedLinearModel(1.0, public_signs(20, 400, RandomSource()))
            task, records = model.task, model.records(x, y)
            ends = zip(task.sketch.low, task.sketch.high, strict=True)
            chances = [
                task.bit.thresholds(task.sketch.values(records, np.full(size, j)), low, high).mean() / 2.0**32
                for j, (low, high) in enumerate(ends)
            ]
            weights = model.estimate(drawn(task, np.array(chances), n, rng))
            # features of random directions have mean squares of 1/400 and no products
            truth = 0.8 * np.eye(400)[0]
            found.append(float(((weights - truth) ** 2).sum() / (truth**2).sum()))
        rows.append({"n": n, **summary(found)})
        print(rows[-1], flush=True)
    return rows
