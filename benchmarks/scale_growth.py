"""How the time of a fit grows with rows and with nonzeros, and a picture of it for the docs (needs ``dperm[report]``).

    python benchmarks/scale_growth.py [--most 10000000]

Dense rows of 20 columns, 10^4 to ``--most`` of them, and sparse rows of 1,000 columns with 1 to 30% nonzeros. The
number of gradients is fixed, so that only the data grow.
"""

from __future__ import annotations

import argparse

import numpy as np
from recorded import RESULTS, Recorded
from scale_worker import run

COLUMNS = ("kind", "rows", "entries", "fit (s)", "ns per entry and gradient")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=10_000_000)
    given = parser.parse_args()
    curves: dict[str, list[tuple[float, float]]] = {"dense rows": [], "nonzeros": []}
    with Recorded("scale_growth", "Growth of the time of a fit", COLUMNS) as out:
        for n in (10**k * m for k in range(4, 8) for m in (1, 3) if 10**k * m <= given.most):
            found = run({"data": "memory", "rows": n, "columns": 20, "solver": "gradient", "repeats": 2})
            _add(out, curves["dense rows"], "dense, 20 columns", n, 20 * n, found)
        for share in (0.01, 0.03, 0.1, 0.3):
            asked = {"data": "memory", "rows": 50_000, "columns": 1000, "kind": "sparse", "share": share}
            found = run({**asked, "solver": "gradient", "repeats": 2})
            _add(out, curves["nonzeros"], f"sparse, {share:.0%} nonzeros", 50_000, found["nonzeros"], found)
        for name, points in curves.items():
            entries, seconds = np.log(points).T
            slope = np.polyfit(entries[-3:], seconds[-3:], 1)[0]
            out.say(f"Slope of log time over log {name}, last three points: {slope:.2f}.")
    _picture(curves)


def _add(out: Recorded, points: list[tuple[float, float]], kind: str, rows: int, entries: int, found: dict) -> None:
    seconds = min(found["seconds"])
    points.append((entries, seconds))
    out.add(kind, str(rows), f"{entries:.3g}", f"{seconds:.3f}", f"{1e9 * seconds / entries / found['steps']:.2f}")


def _picture(curves: dict[str, list[tuple[float, float]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
    for name, points in curves.items():
        x, y = np.array(points).T
        axes.loglog(x, y, "o-", label=name)
        axes.loglog(x, y[-1] * x / x[-1], "--", color="0.7", zorder=0)
    axes.set(xlabel="entries of the table", ylabel="seconds of a fit", title="Time grows in proportion to the data")
    axes.legend(title="dashed: proportional")
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # addresses would stand in it
    figure.savefig(RESULTS.parents[1] / "docs" / "pictures" / "scale_growth.svg", metadata=nothing)


if __name__ == "__main__":
    main()
