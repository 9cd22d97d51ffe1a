"""A fit on a Dask cluster of two workers on this machine: time, bytes, and what the client holds.

    python benchmarks/scale_cluster.py [--rows 4000000] [--columns 20] [--most 10000000]

Rows and targets are made on the workers and stay there. Bytes are everything that passes the loopback device during the
fit, counted once: client, scheduler and workers together, whatever else runs included. The client's memory is
the growth of its process during the fit. In memory the same rows are fitted on one thread.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from recorded import Recorded
from scale_worker import run

COLUMNS = ("rows", "columns", "where", "fit (s)", "gradients", "MB per gradient, all connections",
           "client: growth of memory (MB)", "client: processor ms per gradient")  # fmt: skip


def on_cluster(rows: int, columns: int, parts: int) -> dict[str, float]:
    """Fit on a cluster, with this process's client in a new process."""
    script = Path(__file__).with_name("scale_cluster_client.py")
    asked = json.dumps({"rows": rows, "columns": columns, "parts": parts, "solver": "gradient"})
    done = subprocess.run([sys.executable, str(script), asked], check=True, stdout=-1, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--most", type=int, default=10_000_000)
    given = parser.parse_args()
    with Recorded("scale_cluster", "Fits on a Dask cluster of two workers", COLUMNS) as out:
        ratios = list[str]()
        for columns in (given.columns, 5 * given.columns):
            asked = {"data": "memory", "rows": given.rows, "columns": columns, "solver": "gradient", "repeats": 2}
            here = run(asked, threads=1)
            size = str(given.rows), str(columns)
            out.add(*size, "memory, one thread", f"{min(here['seconds']):.2f}", str(here["steps"]), "", "", "")
            smaller = {10**k for k in range(5, 8) if 10**k <= given.most} if columns == given.columns else set()
            ratio = np.nan
            for rows in sorted({given.rows, *smaller}):
                found = on_cluster(rows, columns, parts=8)
                out.add(
                    str(rows), str(columns), "two workers", f"{found['seconds']:.2f}", str(found["steps"]),
                    f"{found['bytes'] / found['steps'] / 1e6:.2f}", f"{found['memory'] / 1e6:.0f}",
                    f"{1e3 * found['processor'] / found['steps']:.1f}",
                )  # fmt: skip
                if rows == given.rows:
                    ratio = min(here["seconds"]) / found["seconds"]
            ratios.append(f"{columns} columns: two workers are {ratio:.2f} times as fast as one thread in memory.")
        for sentence in ratios:
            out.say(f"{given.rows} rows of {sentence}")


if __name__ == "__main__":
    main()
