"""The client of :mod:`scale_cluster`: one fit on a new cluster of two workers; prints one line of JSON."""

from __future__ import annotations

import json
import sys
import warnings

import dask.array as da
import numpy as np
import psutil
from distributed import Client, LocalCluster
from scale_worker import fitted


def main() -> None:
    warnings.simplefilter("ignore")
    asked = json.loads(sys.argv[1])
    n, p = asked["rows"], asked["columns"]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        X = da.random.default_rng(0).normal(size=(n, p), chunks=(max(1, n // asked["parts"]), p))
        noise = da.random.default_rng(1).uniform(1e-9, 1, size=n, chunks=X.chunks[0])
        w = np.random.default_rng(2).normal(size=p) / np.sqrt(p)
        y = (X @ w + da.log(noise / (1 - noise)) > 0).astype(int)
        X, y = client.persist([X, y])
        size, few = n // asked["parts"], 2000  # a few rows of every block: each worker compiles and loads
        some = np.concatenate([np.arange(first, first + few) for first in range(0, n, size)])
        fitted(X[some], y[some], asked)
        fitted(X, y, asked)  # as in memory: the first fit of all rows also waits for memory of the system
        process = psutil.Process()
        memory, sent = process.memory_info().rss, _sent()
        used = sum(process.cpu_times()[:2])
        model, seconds, passes = fitted(X, y, asked)
        found = {
            "seconds": seconds,
            "passes": passes,
            "steps": int(np.max(model.n_iter_)),
            "bytes": _sent() - sent,
            "memory": process.memory_info().rss - memory,
            "processor": sum(process.cpu_times()[:2]) - used,
        }
    print(json.dumps(found))


def _sent() -> int:
    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)


if __name__ == "__main__":
    main()
