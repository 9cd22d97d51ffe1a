"""Time of a fit in memory next to as many plain passes of numpy over the same rows, on one thread and on two.

    python benchmarks/scale_memory.py [--rows 200000] [--turns 3]

A pass is X w, slopes, X' r: what one gradient costs without privacy. The fit has all its other work in it: scaling,
row lengths, second moments, noise, accounting. Turns alternate between one thread and two; the first fit of a process
is a warm-up. numpy is measured with the rows in both orders of storage. Next to it are one pass of scikit-learn's
stochastic gradient descent without privacy, and one of Opacus (batches of 256), which runs in an environment of its own
under ``.peers/``; its cell is empty where that cannot be built.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from peers_environments import HERE, Unavailable, run_worker
from recorded import Recorded
from scale_worker import run

COLUMNS = ("columns", "threads", "fit (s)", "gradients", "numpy pass, rows in C order (ms)", "in F order (ms)",
           "fit / passes in C order", "in F order", "pass of scikit-learn SGD (ms)", "pass of Opacus (ms)")  # fmt: skip


def opacus_pass(rows: int, columns: int, cache: Path) -> str:
    """Milliseconds of one epoch of Opacus, empty if it cannot be installed."""
    with tempfile.TemporaryDirectory() as folder:
        request, result = Path(folder, "request.json"), Path(folder, "result.json")
        request.write_text(json.dumps({"rows": rows, "columns": columns}))
        try:
            run_worker("opacus", cache, "scale_opacus.py", request, result)
        except Unavailable as why:
            print(f"Opacus was left out: {why}.", flush=True)
            return ""
        return f"{1e3 * json.loads(result.read_text()):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".peers", help="folder of Opacus' environment")
    given = parser.parse_args()
    with Recorded("scale_memory", f"Fits in memory, {given.rows} rows", COLUMNS) as out:
        sentences = list[str]()
        for columns in (100, 400):
            took: dict[int, list[float]] = {1: [], 2: []}
            passes: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
            bits = set()
            for _ in range(given.turns):
                for threads in (1, 2):
                    asked = {"data": "memory", "rows": given.rows, "columns": columns, "repeats": 3, "reference": True}
                    found = run(asked, threads)
                    took[threads].append(float(np.median(found["seconds"][1:])))
                    passes[threads].append((found["numpy_c"], found["numpy_f"], found["sgd"]))
                    bits.add(found["bits"])
            opacus = opacus_pass(given.rows, columns, given.cache)
            for threads in (1, 2):
                seconds, (c, f, sgd) = float(np.median(took[threads])), np.median(passes[1], axis=0)
                cells = [seconds / (found["steps"] * one) for one in (c, f)]
                out.add(
                    str(columns), str(threads), f"{seconds:.2f}", str(found["steps"]), f"{1e3 * c:.0f}",
                    f"{1e3 * f:.0f}", *(f"{cell:.2f}" for cell in cells), f"{1e3 * sgd:.0f}", opacus,
                )  # fmt: skip
            speedup = [one / two for one, two in zip(took[1], took[2], strict=True)]
            sentences.append(
                f"{columns} columns: two threads are {np.median(speedup):.2f} times as fast as one "
                f"({', '.join(f'{one:.2f}' for one in speedup)}); the models have "
                f"{'the same bits' if len(bits) == 1 else 'DIFFERENT BITS'}."
            )
        for sentence in sentences:
            out.say(sentence)


if __name__ == "__main__":
    main()
