"""One measurement of a fit in a process of its own, so that threads and memory are those of this fit alone.

``python benchmarks/scale_worker.py '{"data": "memory", "rows": 200000, "columns": 400}'`` prints one line of JSON. The
other programs named ``scale_*.py`` call it; the threads of a process are set by ``OMP_NUM_THREADS``.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def table(rows: int, columns: int, seed: int = 0) -> tuple[Any, Any]:
    """Return random rows, and labels that depend on all columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    w = rng.normal(size=columns) / np.sqrt(columns)
    return X, (X @ w + rng.logistic(size=rows) > 0.0).astype(int)


def fitted(X: Any, y: Any, asked: dict[str, Any]) -> tuple[Any, float, int]:
    """Fit once; return the model, the seconds it took and the number of passes over the rows."""
    import dperm
    from dperm.data.executors.executor import PlacedData

    passes, whole = [0], PlacedData.parts

    def counted(self: Any, work: Any) -> Any:
        passes[0] += 1
        return whole(self, work)

    bounds = dperm.Bounds(features=(-4, 4), classes=[0, 1])
    model = dperm.DPLogisticRegression(
        asked.get("epsilon", 1.0), bounds=bounds, solver=asked.get("solver", "auto"), insecure_seed=1
    )
    PlacedData.parts = counted  # type: ignore[method-assign]
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
    finally:
        PlacedData.parts = whole  # type: ignore[method-assign]
    return model, time.perf_counter() - start, passes[0]


def numpy_pass(X: Any, y: Any, repeats: int = 5) -> float:
    """Seconds of one plain gradient: X w, slopes, X' r."""
    w, best = np.ones(X.shape[1]) / X.shape[1], np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        slopes = 1.0 / (1.0 + np.exp(-(X @ w))) - y
        w = w + 0.0 * (X.T @ slopes)
        best = min(best, time.perf_counter() - start)
    return best


def sgd_pass(X: Any, y: Any, epochs: int = 3) -> float:
    """Seconds of one pass of scikit-learn's stochastic gradient descent, without privacy."""
    from sklearn.linear_model import SGDClassifier

    start = time.perf_counter()
    SGDClassifier(loss="log_loss", max_iter=epochs, tol=None, random_state=0).fit(X, y)
    return (time.perf_counter() - start) / epochs


def measure(asked: dict[str, Any]) -> dict[str, Any]:
    """Carry out what is asked."""
    out: dict[str, Any] = {}
    if asked["data"] == "parquet":
        from dperm import ParquetTable

        people = ParquetTable(asked["path"])
        X, y = people.drop("y"), people["y"].astype(int)
    else:
        X, y = table(asked["rows"], asked["columns"])
        if asked.get("reference"):
            out["numpy_c"], out["numpy_f"] = numpy_pass(X, y), numpy_pass(np.asfortranarray(X), y)
            out["sgd"] = sgd_pass(X, y)
        if asked.get("kind") == "sparse":
            import scipy.sparse as sp

            keep = np.random.default_rng(1).random(X.shape) < asked["share"]
            X = sp.csr_array(np.where(keep, X, 0.0))
            out["nonzeros"] = int(X.nnz)
    seconds = []
    for _ in range(asked.get("repeats", 1)):
        model, took, passes = fitted(X, y, asked)
        seconds.append(took)
    return {
        **out,
        "seconds": seconds,
        "passes": passes,
        "steps": int(np.max(model.n_iter_)),
        "rows": len(y),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "bits": hashlib.sha256(model.coef_.tobytes() + model.intercept_.tobytes()).hexdigest()[:16],
    }


def run(asked: dict[str, Any], threads: int | None = None) -> dict[str, Any]:
    """Carry out a measurement in a new process."""
    environment = dict(os.environ)
    if threads is not None:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            environment[name] = str(threads)
    command = [sys.executable, str(Path(__file__)), json.dumps(asked)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
