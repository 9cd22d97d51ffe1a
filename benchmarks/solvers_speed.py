"""Measure the speed of solver steps as ratios to plain BLAS or scipy calls in the same run, one thread.

Run: python benchmarks/solvers_speed.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
import scipy.sparse as sp
from recorded import Recorded

from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.objective import L1, Logistic, NoPenalty, Objective, Squared
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.solvers import CoordinateDescent, GreedyCoordinateDescent


def best_of(function, repeats=5):
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def run(solver, objective, data):
    calibrated = calibrate(solver.plan(objective, data.facts), Budget(1.0, 1e-6))
    with Scope(calibrated, Ledger(), Neighbours.ZERO_OUT, "benchmark") as scope:
        holder = DataHolder(data, scope, RandomSource(), Neighbours.ZERO_OUT)
        start = time.perf_counter()
        solver.solve(objective, holder, calibrated)
        return time.perf_counter() - start


def one_step(solver, objective, data, skip):
    """Mean seconds of a step without the first ``skip``, which fill caches and make the first full pass."""
    calibrated = calibrate(solver.plan(objective, data.facts), Budget(1.0, 1e-6))
    ends = []
    with Scope(calibrated, Ledger(), Neighbours.ZERO_OUT, "benchmark") as scope:
        holder = DataHolder(data, scope, RandomSource(), Neighbours.ZERO_OUT)
        solver.solve(objective, holder, calibrated, lambda done, steps: ends.append(time.perf_counter()))
    return (ends[-1] - ends[skip - 1]) / (len(ends) - skip)


def dense(table, n, p):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    data = DesignData(DesignMatrix.from_array(X, Scaling(np.zeros(p), np.ones(p), 3.0)), (X[:, 0] > 0).astype(float))
    del X
    plain = data.design.columns(np.dtype(float)).T
    r = rng.normal(size=n)
    blas = best_of(lambda: plain.T @ r)
    table.add(f"dense {n}x{p}: X^T r, in milliseconds", f"{1e3 * blas:.1f}", "")
    objective = Objective(Logistic(), L1(0.01))
    for limit, name in ((None, "residual clipping"), (0.5, "elementwise clipping")):
        run(GreedyCoordinateDescent(n_steps=2, limit=limit), objective, data)  # compiles, fills caches
        seconds = min(run(GreedyCoordinateDescent(n_steps=10, limit=limit), objective, data) for _ in range(3)) / 10
        table.add(f"dense {n}x{p}: greedy step ({name}) / X^T r", f"{seconds / blas:.2f}", "<= 1.5")
    for loss, name in ((Squared(residual_clip=1.0), "squared"), (Logistic(), "logistic")):
        # without a penalty every step moves a weight, and with it all scores; with l1 most weights stay at zero
        for penalty, moves in ((NoPenalty(), "all move"), (L1(0.01), "few move")):
            objective = Objective(loss, penalty)
            run(CoordinateDescent(n_passes=1), objective, data)  # compiles
            seconds, blas = [], []
            for _ in range(8):  # alternate, because the machine may be shared
                blas.append(best_of(lambda: plain.T @ r, 1))
                seconds.append(run(CoordinateDescent(n_passes=1), objective, data))
            seconds, blas = min(seconds), min(blas)
            table.add(f"dense {n}x{p}: coordinate pass ({name} loss, {moves}) / X^T r", f"{seconds / blas:.2f}", "<= 5")


def sparse(table, n, p, nnz, target):
    kernels = "<= 2" if p < 10**6 else ""  # with one entry per column, the cost is that of iterating over columns
    rng = np.random.default_rng(0)
    places = (rng.integers(0, n, nnz), rng.integers(0, p, nnz))
    X = sp.coo_array((rng.choice([-1.0, 1.0], nnz), places), shape=(n, p)).tocsc()
    y = (rng.random(n) < 0.5).astype(float)
    data = DesignData(DesignMatrix.from_array(X, Scaling(np.zeros(p), np.ones(p), 1.0)), y)
    plain = sp.csr_array(X)
    r = rng.normal(size=n)
    scipy_time = best_of(lambda: plain.T @ r)
    steps = np.rint(r * 1000)
    table.add(
        f"sparse {n}x{p}: gradient sums / scipy X^T r",
        f"{best_of(lambda: data.design.sums(steps)) / scipy_time:.2f}",
        "<= 2",
    )
    limits = np.array([1e6])
    clipped = best_of(lambda: data.design.clipped_sums(steps, limits), 40)
    table.add(f"sparse {n}x{p}: clipped sums / scipy X^T r", f"{clipped / scipy_time:.2f}", kernels)
    objective = Objective(Logistic(), L1(0.001))
    one_step(GreedyCoordinateDescent(n_steps=3), objective, data, skip=1)
    incremental = min(one_step(GreedyCoordinateDescent(n_steps=120), objective, data, skip=20) for _ in range(5))
    passes = GreedyCoordinateDescent(n_steps=20, incremental=False)
    full = min(one_step(passes, objective, data, skip=5) for _ in range(3))
    table.add(f"sparse {n}x{p}: full greedy step / incremental step", f"{full / incremental:.2f}", target)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs; nothing is written")
    quick = parser.parse_args().quick
    title = "Speed of solver steps, ratios of shortest times, one thread"
    with Recorded("solvers_speed", title, ("what", "ratio", "target"), keep=not quick) as table:
        dense(table, *((5000, 100) if quick else (100_000, 1000)))
        sparse(table, 20_000, 50_000, 100_000 if quick else 1_000_000, ">= 5")
        if not quick:
            sparse(table, 20_000, 1_000_000, 1_000_000, ">= 20")


if __name__ == "__main__":
    main()
