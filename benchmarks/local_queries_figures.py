"""Measure the local model's queries and the speed of a simulated collection."""

from __future__ import annotations

import time

import numpy as np

from dperm import Marginals, SmoothQueries
from dperm.experiments.local.marginals import uncut, worst_population
from dperm.experiments.local.queries import population, smooth_functions
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import LinearTask, ThetaGridTask

N_BITS, K = 32, 8


def marginals(fast):
    """Ordinary marginals of one population, and those with the largest possible bias; every person is simulated."""
    n = 1_000_000 if fast else 10_000_000
    model = Marginals(1.0, n_bits=N_BITS, k=K, n_people=10_000_000)
    stated, rng = model.expected_error, np.random.default_rng()
    out = {"n": n, "degree": model.polynomial.degree, "deviation": stated.deviation, "bias": stated.bias}
    out["worst_case_rmse"] = stated.error
    level = rng.uniform(0.6, 0.98, N_BITS)
    bits = rng.random((n, N_BITS), dtype=np.float32) < level.astype(np.float32)
    model.fit(bits)
    off, inside = [], []
    for _ in range(100):
        columns = rng.choice(N_BITS, K, replace=False)
        answer = model.query(columns)
        error = answer.value - float(bits[:, columns].all(axis=1).mean())
        off.append(error)
        inside.append(abs(error) <= answer.bias + 2.0 * answer.deviation)
    out["ordinary"] = {"rmse": float(np.sqrt(np.mean(np.square(off)))), "largest": float(np.abs(off).max())}
    out["ordinary"]["inside"] = float(np.mean(inside))
    worst = []
    for _ in range(2 if fast else 5):
        bits, zeros = worst_population(model, n, rng)
        model.fit(bits)
        # without the final clipping to [0, 1], which would hide half of the noise
        for block in range(N_BITS // K):
            worst.append(uncut(model, range(block * K, (block + 1) * K)))
    out["worst"] = {"zeros": zeros, "rmse": float(np.sqrt(np.mean(np.square(worst)))), "mean": float(np.mean(worst))}
    out["worst"] |= {"deviation": float(np.std(worst, ddof=1)), "marginals": len(worst)}
    return out


def smooth(fast):
    """Mean error of smooth functions of two columns; every person is simulated."""
    n, rng = 1_000_000 if fast else 10_000_000, np.random.default_rng()
    x = population(2, n, rng)
    functions = [one for each in smooth_functions(2, 12, rng).values() for one in each]
    truths = [np.mean([one(part).mean() for part in np.array_split(x, 10)]) for one in functions]
    errors, stated = [], []
    for _ in range(2 if fast else 6):
        model = SmoothQueries(1.0, low=[-1, -1], high=[1, 1]).fit(x)
        answers = [model.query(one) for one in functions]
        errors += [abs(answer.value - truth) for answer, truth in zip(answers, truths, strict=True)]
        stated += [answer.error for answer in answers]
    return {
        "n": n,
        "mean_error": float(np.mean(errors)),
        "standard_error": float(np.std(errors, ddof=1) / np.sqrt(len(errors))),
        "largest": float(np.max(errors)),
        "stated_rmse": float(np.mean(stated)),
        "queries": len(errors),
    }


def speed(fast):
    """Wall-clock and process seconds to simulate ten million people with given records, best of three."""
    n, rng, rows = 1_000_000 if fast else 10_000_000, np.random.default_rng(), []
    smooth_task = SmoothQueries(1.0, low=[-1, -1], high=[1, 1]).task
    tasks = [
        ("moments, 2 columns", LinearTask("logistic", 1.0, (1.0,) * 2, 2.0, 2.0).task),
        ("moments, 10 columns", LinearTask("logistic", 1.0, (1.0,) * 10, 2.0, 2.0).task),
        ("quartic moments, 3 columns", LinearTask("logistic", 1.0, (1.0,) * 3, 2.0, 2.0, degree=4).task),
        ("theta-grid, 2 columns", ThetaGridTask("logistic", 1.0, 2, 2.0).task),
        ("parities of 32 bits", Marginals(1.0, n_bits=N_BITS, k=K, n_people=n).task),
        ("Chebyshev, 2 columns", smooth_task),
    ]
    for name, task in tasks:
        columns = task.sketch.n_columns
        records = rng.random((n, columns)) < 0.5 if "bits" in name else rng.uniform(-1, 1, (n, columns))
        task.collect(records[:1000], RandomSource())  # kernels are compiled once
        wall, own = [], []
        for _ in range(3):
            start, used = time.perf_counter(), time.process_time()
            task.collect(records, RandomSource())
            wall.append(time.perf_counter() - start)
            own.append(time.process_time() - used)
        rows.append({"what": name, "n": n, "seconds": min(wall), "process_seconds": min(own)})
        print(rows[-1], flush=True)
    rows.append(speed_of_marginals(n, rng))
    print(rows[-1], flush=True)
    return rows


def speed_of_marginals(n, rng):
    """The same for all of ``Marginals.fit``, including its checks."""
    bits = rng.random((n, N_BITS), dtype=np.float32) < 0.5
    wall, own = [], []
    for _ in range(3):
        start, used = time.perf_counter(), time.process_time()
        Marginals(1.0, n_bits=N_BITS, k=K, n_people=n).fit(bits)
        wall.append(time.perf_counter() - start)
        own.append(time.process_time() - used)
    return {"what": "Marginals.fit, 32 bits", "n": n, "seconds": min(wall), "process_seconds": min(own)}
