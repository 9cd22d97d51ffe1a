"""Fit a Parquet file that is larger than the allowed memory: peak memory, and speed next to reading it with pyarrow.

    python benchmarks/scale_files.py [--gigabytes 10] [--columns 100] [--folder /tmp]

The file contains random numbers and is written row group by row group; it is deleted at the end, and so is the
temporary file of the fit, which needs about a quarter of its size. Both are read by separate processes. The reader goes
through the file once in batches, without turning them into anything. The fit makes many passes; its speed is that of as
many readings.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from recorded import Recorded
from scale_worker import run

ROWS_AT_ONCE = 50_000
COLUMNS = ("file (GB)", "rows", "columns", "passes", "fit (s)", "peak memory (MB)", "one reading by pyarrow (s)",
           "speed of the fit / of reading as often")  # fmt: skip

READ = """
import json, sys, time
import pyarrow.parquet as pq
start = time.perf_counter()
with pq.ParquetFile(sys.argv[1]) as file:
    n = sum(batch.num_rows for batch in file.iter_batches())
print(json.dumps([n, time.perf_counter() - start]))
"""


def write(path: Path, n_rows: int, n_columns: int) -> None:
    """Write random rows with labels that depend on all columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    weights = rng.normal(size=n_columns) / np.sqrt(n_columns)
    names = [f"c{j}" for j in range(n_columns)]
    schema = pa.schema([*((name, pa.float64()) for name in names), ("y", pa.bool_())])
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for start in range(0, n_rows, ROWS_AT_ONCE):
            X = rng.normal(size=(min(ROWS_AT_ONCE, n_rows - start), n_columns))
            y = X @ weights + rng.logistic(size=len(X)) > 0.0
            columns = [pa.array(np.ascontiguousarray(X[:, j])) for j in range(n_columns)]
            writer.write_table(pa.table([*columns, pa.array(y)], schema=schema))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    given = parser.parse_args()
    n_rows = int(given.gigabytes * 1e9 / (8 * given.columns))
    with (
        tempfile.TemporaryDirectory(dir=given.folder) as folder,
        Recorded("scale_files", "A Parquet file larger than memory", COLUMNS) as out,
    ):
        path = Path(folder, "people.parquet")
        start = time.perf_counter()
        write(path, n_rows, given.columns)
        size = path.stat().st_size / 1e9
        print(f"{size:.2f} GB written in {time.perf_counter() - start:.0f} s", flush=True)
        readings = []
        for turn in range(2):  # before and after the fit
            done = subprocess.run([sys.executable, "-c", READ, str(path)], check=True, stdout=-1, text=True)
            readings.append(json.loads(done.stdout)[1])
            if turn == 0:
                found = run({"data": "parquet", "path": str(path)})
        reading, seconds = float(np.mean(readings)), found["seconds"][0]
        out.add(
            f"{size:.1f}", str(found["rows"]), str(given.columns), str(found["passes"]), f"{seconds:.0f}",
            f"{found['peak_megabytes']:.0f}", f"{reading:.1f}", f"{found['passes'] * reading / seconds:.2f}",
        )  # fmt: skip


if __name__ == "__main__":
    main()
