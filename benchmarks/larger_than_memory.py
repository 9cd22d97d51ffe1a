"""Fit a Parquet file that is larger than the allowed memory, and report peak memory and time.

    python benchmarks/larger_than_memory.py [--gigabytes 3] [--columns 100] [--folder /tmp] [--estimator logistic]

The file contains random numbers and is written row group by row group. A separate process reads it, its peak memory is
measured, and the file is deleted. ``--arrays`` uses a memory-mapped array instead: pages that the system keeps mapped
count as memory there until it needs them elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

ROWS_AT_ONCE = 50_000

FIT = """
import json, resource, sys, time
import numpy as np
import dperm

path, estimator, bounds, epsilon = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
if path.endswith(".npy"):
    X, y = np.load(path, mmap_mode="r"), np.load(path.replace(".npy", ".y.npy"))
else:
    table = dperm.ParquetTable(path)
    X, y = table.drop("y"), table["y"]
start = time.perf_counter()
declared = {"features": (-4, 4)} if bounds == "declared" else {}
if estimator == "ridge":
    model = dperm.DPRidge(epsilon, bounds=dperm.Bounds(**declared, target=(0, 1)))
else:
    model = dperm.DPLogisticRegression(epsilon, bounds=dperm.Bounds(**declared, classes=[False, True]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model.fit(X, y)
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "megabytes_before_the_fit": before / 1024,
    "rows": len(y),
    "steps": int(np.max(model.n_iter_)),
}))
"""


def weights(n_columns: int) -> np.ndarray:
    return np.random.default_rng(1).normal(0.0, 0.5, n_columns)


def parts(n_rows: int, n_columns: int):
    rng = np.random.default_rng(0)
    for start in range(0, n_rows, ROWS_AT_ONCE):
        X = rng.normal(size=(min(ROWS_AT_ONCE, n_rows - start), n_columns))
        yield X, X @ weights(n_columns) + rng.logistic(size=len(X)) > 0.0


def write_parquet(path: Path, n_rows: int, n_columns: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"c{j}" for j in range(n_columns)]
    schema = pa.schema([*((name, pa.float64()) for name in names), ("y", pa.bool_())])
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for X, y in parts(n_rows, n_columns):
            columns = [pa.array(np.ascontiguousarray(X[:, j])) for j in range(n_columns)]
            writer.write_table(pa.table([*columns, pa.array(y)], schema=schema))


def write_arrays(path: Path, n_rows: int, n_columns: int) -> None:
    out = np.lib.format.open_memmap(path, "w+", np.float64, (n_rows, n_columns))
    labels, start = np.empty(n_rows, bool), 0
    for X, y in parts(n_rows, n_columns):
        out[start : start + len(X)], labels[start : start + len(X)] = X, y
        start += len(X)
    np.save(path.with_suffix(".y.npy"), labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--estimator", choices=["logistic", "ridge"], default="logistic")
    parser.add_argument("--bounds", choices=["declared", "bought"], default="declared")
    parser.add_argument("--arrays", action="store_true", help="a memory-mapped array instead of Parquet")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    given = parser.parse_args()
    n_rows = int(given.gigabytes * 2**30 / (8 * given.columns))
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder, "x.npy" if given.arrays else "table.parquet")
        start = time.perf_counter()
        (write_arrays if given.arrays else write_parquet)(path, n_rows, given.columns)
        print(f"{path.stat().st_size / 2**30:.2f} GB written in {time.perf_counter() - start:.0f} s", flush=True)
        done = subprocess.run(
            [sys.executable, "-c", FIT, str(path), given.estimator, given.bounds, str(given.epsilon)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        print(json.dumps(json.loads(done.stdout), indent=1))


if __name__ == "__main__":
    main()
