"""Measure vertical methods on real data: convergence, accuracy, bytes. vertical_figures.py plots the results.

Run: DPERM_DATA=... python benchmarks/vertical_algorithms.py [--runs 5] [--only a9a certified identity uplink ...]
Writes benchmarks/results/vertical.json, part by part, and prints the results.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from itertools import pairwise
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.objective import L2, Logistic, Objective
from dperm.privacy import Budget, Ledger, Neighbours, RandomSource, Scope, calibrate
from dperm.solvers import FrankWolfe
from dperm.solvers.theory import distributed_frank_wolfe as costs
from dperm.solvers.vertical import (
    AdmmSharing,
    BlocksOverParties,
    DistributedFrankWolfe,
    ExactSharing,
    MessageLog,
    SgdOverParties,
    centralised,
    local_only,
    run_in_process,
)

RESULTS = Path(__file__).parent / "results"
DATA = Path(os.environ.get("DPERM_DATA", "."))
STRENGTH = 1e-4
BUDGET = Budget(1.0, 1e-6)
CERTIFIED = {"n_rounds": 40, "rho": 0.1, "step": 6.0, "limit": 0.6, "averaging": 0.25}


class Vertical:
    """A data set split by columns; the last party has the intercept."""

    def __init__(self, X, y, n_train, cuts, row_norms):
        self.n, self.y, self.y_test = n_train, y[:n_train], y[n_train:]
        edges = [0, *cuts, X.shape[1]]
        self.designs, self.test = {}, {}
        for k, (start, stop) in enumerate(pairwise(edges)):
            last = stop == X.shape[1]
            part, width = X[:, start:stop], stop - start
            scaling = Scaling(np.zeros(width), np.ones(width), 1.0, row_norms[k])
            train = part[:n_train].tocsc() if sp.issparse(part) else part[:n_train]
            self.designs[f"party {k + 1}"] = DesignMatrix.from_array(train, scaling, 1.0 if last else 0.0)
            test = part[n_train:].toarray() if sp.issparse(part) else part[n_train:]
            self.test[f"party {k + 1}"] = np.column_stack([test, np.ones(len(test))]) if last else test
        self.facts = {name: Facts.of_design(design.shape) for name, design in self.designs.items()}
        ones = np.ones((X.shape[0], 1))
        self.pooled = sp.hstack([X, ones]).tocsr() if sp.issparse(X) else np.column_stack([X, ones])

    def run(self, task, seed=None, watch=None, designs=None):
        """Run a task with real programs; return result and messages."""
        designs = self.designs if designs is None else designs
        unbounded = task.no_guarantee if seed is None else "seeded, for comparison"
        scopes = [
            Scope(task.calibrated, Ledger(), task.neighbours, "benchmark", unbounded=unbounded)
            for _ in range(1 + len(designs))
        ]
        coordinator = task.coordinator(self.y, scopes[0], task.source("coordinator", seed))
        if watch is not None:
            coordinator.on_round = watch
        parties = {
            name: task.party(name, design, scope, task.source(name, seed))
            for (name, design), scope in zip(designs.items(), scopes[1:], strict=True)
        }
        messages = MessageLog()
        result = run_in_process(coordinator, parties, messages)
        for scope in scopes:
            scope.settle()
        return result, messages

    def margin(self, weights):
        """Predictions on the test part."""
        return sum(self.test[name] @ weights[name] for name in weights)

    def accuracy(self, weights):
        """Share of the test part that is classified correctly."""
        return float(np.mean((self.margin(weights) > 0.0) == (self.y_test == 1.0)))

    def test_loss(self, weights):
        """Mean log loss on the test part."""
        return log_loss(self.margin(weights), self.y_test)

    def objective(self, weights, strength=STRENGTH):
        """Training objective of weights of all parties."""
        whole = np.concatenate(list(weights.values()))
        free = np.ones(len(whole))
        free[-1] = 0.0
        return log_loss(self.pooled[: self.n] @ whole, self.y) + 0.5 * strength * float(free @ whole**2)

    def optimum(self, strength=STRENGTH, columns=None):
        """Best training objective by scipy, and its weights; of all columns or some."""
        X = self.pooled[: self.n] if columns is None else self.pooled[: self.n][:, columns]
        free = np.full(X.shape[1], strength)
        free[-1] = 0.0

        def cost(w):
            z = X @ w
            gradient = X.T @ (expit(z) - self.y) / self.n + free * w
            return log_loss(z, self.y) + 0.5 * float(free @ w**2), gradient

        options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-8}
        found = minimize(cost, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options=options)
        return float(found.fun), found.x


def log_loss(margin, y):
    """Mean logistic loss."""
    return float(-np.mean(y * log_expit(margin) + (1.0 - y) * log_expit(-margin)))


def a9a():
    """Adult, 66 and 57 columns: eight and six groups of which at most one bit is set, so row norms are public."""
    X = sp.load_npz(DATA / "a9a.npz").astype(float).tocsr()
    stored = np.load(DATA / "a9a.npz")
    return Vertical(X, (stored["y"] > 0).astype(float), int(stored["n_train"]), (66,), (8**0.5, 6**0.5))


def mnist():
    """Digits 4 against 9 in three parts of neighbouring pixels."""
    stored = np.load(DATA / "mnist49.npz")
    X = stored["X"].astype(float)
    X /= X.max()  # the range of a pixel is public
    return Vertical(X, (stored["y"] > 0).astype(float), int(stored["n_train"]), (262, 523), (None, None, None))


def noise_free(data, n_rounds, rho, batch, step):
    """Curves of exact ADMM and of stochastic descent: relative gap of the objective, test error."""
    best, _ = data.optimum()
    out = {"optimum": best}
    objective = Objective(Logistic(), L2(STRENGTH))
    sgd_rounds = n_rounds * max(1, data.n // batch)
    for label, task, every in (
        ("ADMM", ExactSharing(objective, data.facts, BUDGET, n_rounds=n_rounds, rho=rho), 1),
        (
            "SGD over parties",
            SgdOverParties(objective, data.facts, BUDGET, n_rounds=min(sgd_rounds, 4000), batch=batch, step=step),
            max(1, data.n // batch),
        ),
    ):
        gap, error, count = [], [], [0]

        def watch(weights, gap=gap, error=error, count=count, every=every):
            count[0] += 1
            if count[0] % every == 0:
                gap.append(data.objective(weights) / best - 1.0)
                error.append(1.0 - data.accuracy(weights))

        start = time.perf_counter()
        result, _ = data.run(task, watch=watch)
        out[label] = {
            "gap": gap,
            "error": error,
            "seconds": time.perf_counter() - start,
            "rounds_to_1e-3": next((t + 1 for t, value in enumerate(gap) if value <= 1e-3), None),
            "lyapunov": result.diagnostics.get("lyapunov", np.zeros(0)).tolist(),
        }
    return out


def certified(data, n_runs):
    """Test accuracy and loss at epsilon 1 of the certified methods."""
    objective = Objective(Logistic(), L2(1e-5))
    tasks = {
        "ADMM sharing": AdmmSharing(objective, data.facts, BUDGET, **CERTIFIED),
        "ADMM sharing, defaults": AdmmSharing(objective, data.facts, BUDGET),
        "blocks over parties": BlocksOverParties(
            objective, data.facts, BUDGET, n_rounds=40, step=6.0, limit=0.6, averaging=0.25
        ),
    }
    out = {}
    for label, task in tasks.items():
        weights = [data.run(task)[0].weights for _ in range(n_runs)]
        out[label] = {
            "accuracy": [data.accuracy(w) for w in weights],
            "loss": [data.test_loss(w) for w in weights],
            "epsilon": task.report().guarantee.epsilon,
            "rounds": task.n_rounds,
        }
    return out


def help_of_others(data, n_runs):
    """Party 1 alone, with help, and everything in one place: test loss over epsilon, and without noise."""
    out = {"epsilon": [0.5, 1.0, 2.0, 4.0, 8.0], "with help": [], "alone, certified": [], "pooled, certified": []}
    alone_columns = [*range(66), 123]
    whole_test = data.pooled[data.n :]
    out["alone"] = log_loss(whole_test[:, alone_columns] @ data.optimum(columns=alone_columns)[1], data.y_test)
    out["pooled"] = log_loss(whole_test @ data.optimum()[1], data.y_test)
    for epsilon in out["epsilon"]:
        task = AdmmSharing(Objective(Logistic(), L2(1e-5)), data.facts, Budget(epsilon, 1e-6), **CERTIFIED)
        alone, pooled = local_only(task, data.designs, "party 1"), centralised(task, data.designs)
        for label, (made, designs), columns in (
            ("with help", (task, data.designs), None),
            ("alone, certified", alone, alone_columns),
            ("pooled, certified", pooled, None),
        ):
            test = whole_test if columns is None else whole_test[:, columns]
            runs = [data.run(made, designs=designs)[0].weights for _ in range(n_runs)]
            out[label].append([log_loss(test @ np.concatenate(list(one.values())), data.y_test) for one in runs])
    return out


def identity(data):
    """Check that distributed and central Frank-Wolfe make the same choices with one seed."""
    n_steps, radius = 40, 20.0
    task = DistributedFrankWolfe(Objective(Logistic()), data.facts, BUDGET, n_steps=n_steps, radius=radius)
    result, messages = data.run(task, seed=7)
    X = data.pooled[: data.n, :-1].tocsc()
    whole = DesignMatrix.from_array(X, Scaling(np.zeros(X.shape[1]), np.ones(X.shape[1]), 1.0), 1.0)
    held = DesignData(whole, data.y)
    objective, solver = Objective(Logistic(), unpenalised=(X.shape[1],)), FrankWolfe(n_steps=n_steps, radius=radius)
    calibrated = calibrate(solver.plan(objective, held.facts), BUDGET)
    scope = Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "benchmark", unbounded="seeded")
    with scope:
        holder = DataHolder(held, scope, RandomSource(7), Neighbours.REPLACE_ONE)
        central = solver.solve(objective, holder, calibrated).weights
    same = bool(np.array_equal(np.concatenate(list(result.weights.values())), central))
    return {"identical": same, "steps": n_steps, "uplink": sum(messages.uplink_bytes.values())}


def uplink(data):
    """Objective against bytes sent by all parties, without noise.

    Frank-Wolfe that shares columns on demand; the same steps with every party sending its scores (dense); exact
    ADMM, which is dense sharing too and takes far better steps; one-shot sketching of all columns.
    """
    radius, free = 20.0, Budget(1e9, 1e-6)
    at_need = {"bytes": [], "objective": []}
    dense = {"bytes": [], "objective": []}
    for n_steps in (2, 4, 8, 16, 32, 64, 128, 256):
        task = DistributedFrankWolfe(Objective(Logistic()), data.facts, free, n_steps=n_steps, radius=radius)
        result, messages = data.run(task)
        value = data.objective(result.weights, 0.0)
        at_need["bytes"].append(sum(messages.uplink_bytes.values()))
        at_need["objective"].append(value)
        dense["bytes"].append(costs.dense_uplink_bytes(n_rounds=n_steps, n_parties=2, n=data.n))
        dense["objective"].append(value)  # the same steps, with every party sending its scores in each
    admm = {"bytes": [], "objective": []}

    def watch(weights):
        rounds = 1 + len(admm["bytes"])
        admm["bytes"].append(costs.dense_uplink_bytes(n_rounds=rounds, n_parties=2, n=data.n))
        admm["objective"].append(data.objective(weights, 0.0))

    data.run(ExactSharing(Objective(Logistic(), L2(STRENGTH)), data.facts, BUDGET, n_rounds=60, rho=0.1), watch=watch)
    rng = np.random.default_rng(0)
    one_shot = {"bytes": [], "objective": []}
    X = data.pooled[: data.n, :-1]
    for rows in (4, 8, 16, 32, 64, 96):
        parts = []
        for columns, share in ((slice(0, 66), 66 / 123), (slice(66, 123), 57 / 123)):
            width = max(1, round(rows * share))
            part = X[:, columns]
            parts.append(np.asarray(part @ rng.normal(0.0, 1.0 / np.sqrt(width), (part.shape[1], width))))
        Z = np.column_stack([*parts, np.ones(data.n)])

        def cost(w, Z=Z):
            z = Z @ w
            return log_loss(z, data.y), Z.T @ (expit(z) - data.y) / data.n

        found = minimize(cost, np.zeros(Z.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 300})
        one_shot["bytes"].append(costs.one_shot_uplink_bytes(n=data.n, n_rows=Z.shape[1] - 1))
        one_shot["objective"].append(float(found.fun))
    return {
        "Frank-Wolfe, sharing at need": at_need,
        "dense Frank-Wolfe": dense,
        "exact ADMM (dense)": admm,
        "one-shot sketching": one_shot,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=["a9a", "certified", "identity", "uplink", "help", "mnist"])
    args = parser.parse_args()
    adult = a9a()
    parts = {
        "a9a": lambda: noise_free(adult, 60, 0.1, 2048, 1.0),
        "certified": lambda: certified(adult, args.runs),
        "identity": lambda: identity(adult),
        "uplink": lambda: uplink(adult),
        "help": lambda: help_of_others(adult, min(args.runs, 2)),
        "mnist": lambda: noise_free(mnist(), 300, 0.003, 1024, 0.06),
    }
    stored = RESULTS / "vertical.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    for name in args.only:
        results[name] = parts[name]()
        stored.write_text(json.dumps(results, indent=1))
        show(name, results[name])


def show(name, part):
    """Print the results of one part."""
    if name in ("a9a", "mnist"):
        for label in ("ADMM", "SGD over parties"):
            one = part[label]
            print(
                f"{name} {label}: gap {one['gap'][-1]:.2e}, rounds to 1e-3 {one['rounds_to_1e-3']}, "
                f"test error {one['error'][-1]:.4f} (best {min(one['error']):.4f}), {one['seconds']:.0f} s"
            )
    elif name == "certified":
        for label, one in part.items():
            print(f"{label} at epsilon {one['epsilon']:.3g}: accuracy {np.round(one['accuracy'], 4).tolist()}")
    else:
        print(name, json.dumps(part), flush=True)


if __name__ == "__main__":
    main()
