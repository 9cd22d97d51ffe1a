"""Measure a collection at scale: bytes per id, time of an estimate, time to merge a hundred collectors.

python benchmarks/collect_scale.py [--people 10000000] [--collectors 100] [--out benchmarks/results/collect_scale.json]
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from dperm.collect import Collection, simulate
from dperm.collect.service.results import estimate_document
from dperm.collect.store.store import open_store
from dperm.privacy import RandomSource


def _model(columns: int) -> dict[str, Any]:
    return {
        "kind": "logistic",
        "epsilon": 1.0,
        "names": [f"x{k}" for k in range(columns)],
        "bounds": {"features": [[-1.0] * columns, [1.0] * columns]},
        "classes": ["no", "yes"],
        "degree": 2,
    }


def _estimate(people: int) -> dict[str, Any]:
    """Time everything that is published, for ten columns."""
    one, counts = Collection("ten", _model(10)), None
    for reports in simulate.report_batches(one, people, 250_000, np.random.default_rng(0), RandomSource()):
        found = one.task.count(reports)
        counts = found if counts is None else counts + found
    started = time.perf_counter()
    data = estimate_document(one, counts)
    return {"people": people, "seconds": round(time.perf_counter() - started, 3), "model": data["model"] is not None}


def _merged(n_collectors: int, each: int) -> dict[str, Any]:
    one, rng, source = Collection("many", _model(2)), np.random.default_rng(1), RandomSource()
    total, sizes = one.task.no_counts(), []
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "all.db", create=True) as store:
        store.register(one)
        seconds = 0.0
        for k in range(n_collectors):
            path = Path(folder) / f"{k}.db"
            with open_store(path, create=True) as part:
                part.register(one)
                for reports in simulate.report_batches(one, each, each, rng, source):
                    part.add([simulate.store_entry(one, reports)], 0.0)
                    total += one.task.count(reports)
                exported = part.counters.export(one)
            sizes.append(len(json.dumps(exported)))
            path.unlink()
            started = time.perf_counter()
            assert store.counters.merge(exported) == each
            assert store.counters.merge(exported) == 0
            seconds += time.perf_counter() - started
        counts = store.counts(one)
        assert np.array_equal(counts.by_answer, total.by_answer)
        data = estimate_document(one, counts)
    return {
        "collectors": n_collectors,
        "reports": counts.n_people,
        "seconds_for_all_merges_done_twice": round(seconds, 2),
        "bytes_of_an_export": max(sizes),
        "coef": data["model"]["coef"],
        "intervals": data["model"]["intervals"],
    }


def _bytes_per_id(n: int) -> dict[str, Any]:
    one, rng = Collection("ids", _model(2)), np.random.default_rng(2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ids.db"
        with open_store(path, create=True) as store:
            store.register(one)
            started = time.perf_counter()
            for reports in simulate.report_batches(one, n, 2000, rng, RandomSource()):
                store.add([simulate.store_entry(one, reports)], 0.0)
            seconds = time.perf_counter() - started
        return {"ids": n, "bytes_per_id": round(path.stat().st_size / n, 1), "reports_per_second": round(n / seconds)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=10_000_000)
    parser.add_argument("--collectors", type=int, default=100)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = {
        "estimate": _estimate(given.people),
        "merged": _merged(given.collectors, 10_000),
        "ids": _bytes_per_id(given.people // 10),
    }
    print(json.dumps(results, indent=1))
    if given.out:
        given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
