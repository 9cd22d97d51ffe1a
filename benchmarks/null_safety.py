"""Is the automatic rule ever worse than a constant prediction? Targets with uninformative or weak columns.

    python benchmarks/null_safety.py [--draws 30] [--families ...] [--rows 1500 5000] [--out FILE]
    python benchmarks/null_safety.py --show benchmarks/results/null_safety.json    # table of docs/automatic-evidence.md

The excess is the loss on fresh rows minus that of the best constant of the training rows (mean or class frequencies),
divided by the latter; the loss is squared error or log loss. Every draw has new data and new noise. Reported are: the
mean excess and its standard error; the excess of the model's own mean prediction, which is noise of the released mean;
the excess of a private constant on which the whole budget is spent; and in how many fits the plan or the fit warned.
Every private model has the noise of a private constant. The rest of the excess is what the columns add. For classes
the accuracy lost against the larger class is reported too.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import itertools
import json
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from dperm import Bounds, DPLasso, DPLogisticRegression, DPRidge
from dperm.privacy.accounting.budget import Budget

N_TEST = 10_000
EPSILONS = (0.1, 0.5, 1.0, 4.0)

Draw = Callable[[np.random.Generator, Any], Any]


def _probability(scores: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-scores))


#: number of columns, target given the rows, range of the target or its classes
FAMILIES: dict[str, tuple[int, Draw, Any]] = {
    "normal": (10, lambda rng, X: np.clip(rng.normal(size=len(X)), -4.0, 4.0), (-4.0, 4.0)),
    "normal 50 columns": (50, lambda rng, X: np.clip(rng.normal(size=len(X)), -4.0, 4.0), (-4.0, 4.0)),
    "one in eight": (10, lambda rng, X: (rng.random(len(X)) < 0.125).astype(float), (0.0, 1.0)),
    "two groups": (10, lambda rng, X: np.where(rng.random(len(X)) < 0.8, 1.0, 9.0), (0.0, 10.0)),
    "mostly zero": (8, lambda rng, X: np.where(rng.random(len(X)) < 0.97, 0.0, 50.0), (0.0, 100.0)),
    "log-normal": (8, lambda rng, X: np.minimum(np.exp(rng.normal(size=len(X))), 50.0), (0.0, 50.0)),
    "counts": (8, lambda rng, X: np.minimum(rng.poisson(0.6, len(X)), 20).astype(float), (0.0, 20.0)),
    "weak, one column": (10, lambda rng, X: np.clip(0.15 * X[:, 0] + rng.normal(size=len(X)), -4.0, 4.0), (-4.0, 4.0)),
    "weak, all columns": (
        10,
        lambda rng, X: np.clip(0.08 * X.sum(axis=1) + rng.normal(size=len(X)), -4.0, 4.0),
        (-4.0, 4.0),
    ),
    "medium": (
        10,
        lambda rng, X: np.clip(0.4 * X[:, 0] - 0.3 * X[:, 1] + rng.normal(size=len(X)), -4.0, 4.0),
        (-4.0, 4.0),
    ),
    "normal, 500 columns, l1": (500, lambda rng, X: np.clip(rng.normal(size=len(X)), -4.0, 4.0), (-4.0, 4.0)),
    "70:30, 500 columns, l1": (500, lambda rng, X: rng.random(len(X)) < 0.7, (0, 1)),
    "70:30": (20, lambda rng, X: rng.random(len(X)) < 0.7, (0, 1)),
    "50:50": (10, lambda rng, X: rng.random(len(X)) < 0.5, (0, 1)),
    "1 in 100": (20, lambda rng, X: rng.random(len(X)) < 0.01, (0, 1)),
    "weak labels": (10, lambda rng, X: rng.random(len(X)) < _probability(0.3 * X[:, 0] + 0.5), (0, 1)),
    "many weak columns": (100, lambda rng, X: rng.random(len(X)) < _probability(0.05 * X.sum(axis=1)), (0, 1)),
    "80% and seven of 3%": (10, lambda rng, X: rng.choice(8, len(X), p=[0.8] + [0.2 / 7] * 7), tuple(range(8))),
}
REGRESSION = tuple(FAMILIES)[:11]


def _private_constant(truth: Any, bound: float, n: int, mu: float, neighbours: str, rng: np.random.Generator) -> Any:
    """Mean (or class frequencies) with the noise of a single release that takes the whole budget."""
    apart = {"zero-out": 1.0, "replace-one": 2.0 if np.ndim(truth) == 0 else np.sqrt(2.0)}[neighbours]
    noise = apart * bound / (n * mu)
    noisy = truth + noise * rng.normal(size=np.shape(truth))
    if np.ndim(truth) == 0:
        return noisy
    frequencies = np.maximum(noisy, max(3.0 / n, noise))
    return frequencies / frequencies.sum()


def _measure(
    family: str, n: int, neighbours: str, epsilon: float, seed: int
) -> tuple[float, float, float, float, bool]:
    """Excess of a fit, of its mean prediction and of a private constant; accuracy lost; whether it warned."""
    p, draw, public = FAMILIES[family]
    rng = np.random.default_rng([seed, n, list(FAMILIES).index(family), 77])
    X = np.clip(rng.normal(size=(n + N_TEST, p)), -3.0, 3.0)
    y, sparse = draw(rng, X), "l1" in family
    mu = Budget(epsilon, 1.0 / n**2).mu  # with the default delta of an estimator
    scaled: dict[str, Any] = {"scale": 1.0, "clip": 3.0}
    lost = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if family in REGRESSION:
            make = DPLasso if sparse else DPRidge
            model: Any = make(epsilon=epsilon, neighbours=neighbours, bounds=Bounds(**scaled, target=public))
            model.fit(X[:n], y[:n])
            predicted, test = model.predict(X[n:]), y[n:]
            null = np.mean((y[:n].mean() - test) ** 2)
            half = 0.5 * (public[1] - public[0])
            private = np.clip(_private_constant(y[:n].mean(), half, n, mu, neighbours, rng), *public)
            losses = [np.mean((values - test) ** 2) for values in (predicted, predicted.mean(), private)]
        else:
            model = DPLogisticRegression(
                epsilon=epsilon,
                neighbours=neighbours,
                bounds=Bounds(**scaled, classes=public),
                penalty="l1" if sparse else "l2",
            ).fit(X[:n], y[:n])
            test, k = np.asarray(y[n:], dtype=int), len(public)
            larger = np.bincount(np.asarray(y[:n], dtype=int)).argmax()
            lost = float(np.mean(test == larger) - np.mean(test == model.predict(X[n:]).astype(int)))
            counts = np.maximum(np.bincount(np.asarray(y[:n], dtype=int), minlength=k), 0.5)
            null = -np.mean(np.log(counts / counts.sum())[test])
            probabilities = model.predict_proba(X[n:])
            if k == 2:  # one frequency gives both: the sum of plus or minus one half has half the sensitivity
                one = np.clip(_private_constant(counts[1] / n, 0.5, n, mu, neighbours, rng), 3.0 / n, 1.0 - 3.0 / n)
                private = np.array([1.0 - one, one])
            else:
                private = _private_constant(counts / n, 1.0, n, mu, neighbours, rng)
            constants = (np.broadcast_to(p, probabilities.shape) for p in (probabilities.mean(axis=0), private))
            losses = [-np.mean(np.log(p[np.arange(N_TEST), test])) for p in (probabilities, *constants)]
    excess, constant, private = ((loss - null) / null for loss in losses)
    return float(excess), float(constant), float(private), lost, bool(model.privacy_report_.public["warnings"])


def _cell(cell: tuple[str, int, str, float], draws: int) -> dict[str, Any]:
    values = np.array([_measure(*cell, seed) for seed in range(draws)])
    columns = values[:, 0] - values[:, 1]
    error, columns_error, private_error = (
        part.std(ddof=1) / np.sqrt(draws) for part in (values[:, 0], columns, values[:, 2])
    )
    return {
        "family": cell[0],
        "rows": cell[1],
        "neighbours": cell[2],
        "epsilon": cell[3],
        "excess": round(float(values[:, 0].mean()), 5),
        "error": round(float(error), 5),
        "constant": round(float(values[:, 1].mean()), 5),
        "columns": round(float(columns.mean()), 6),
        "columns_error": round(float(columns_error), 6),
        "alone": round(float(values[:, 2].mean()), 5),
        "alone_error": round(float(private_error), 5),
        "lost": round(float(values[:, 3].mean()), 5),
        "lost_error": round(float(values[:, 3].std(ddof=1) / np.sqrt(draws)), 5),
        "warned": int(values[:, 4].sum()),
        "draws": draws,
    }


def _worker(job: tuple[tuple[str, int, str, float], int]) -> dict[str, Any]:
    return _cell(*job)


#: rows, neighbours and epsilon of the columns of the table
SHOWN = ((1500, "zero-out", 0.5), (1500, "zero-out", 1.0), (1500, "zero-out", 4.0), (5000, "zero-out", 0.5),
         (1500, "replace-one", 0.5), (1500, "replace-one", 1.0), (5000, "replace-one", 1.0))  # fmt: skip


def _table(results: list[dict[str, Any]]) -> str:
    """Excess with its standard error, and in brackets the excess of the mean prediction."""
    cells = {(one["family"], one["rows"], one["neighbours"], one["epsilon"]): one for one in results}
    lines = [
        "| uninformative columns | "
        + " | ".join(f"{n:,} rows, {kind}, {epsilon:g}" for n, kind, epsilon in SHOWN)
        + " |"
    ]
    lines.append("|---" * (len(SHOWN) + 1) + "|")
    uninformative = [name for name in FAMILIES if not name.startswith(("weak", "medium", "many"))]
    for family in uninformative:
        row = [cells[family, *where] for where in SHOWN]
        texts = (f"{one['excess']:.4f} ± {one['error']:.4f} ({one['constant']:.4f})" for one in row)
        lines.append(f"| {family} | " + " | ".join(texts) + " |")
    selected = [one for one in results if one["family"] in uninformative]
    lines += ["", _counts("all cells", selected), ""]
    enough = [one for one in selected if one["rows"] >= 1500 and one["epsilon"] >= 0.5]
    lines.append(_counts("1,500 rows or more, epsilon 0.5 or more", enough))
    return "\n".join(lines)


def _counts(name: str, cells: list[dict[str, Any]]) -> str:
    above = [one for one in cells if one["excess"] > 2.0 * one["error"]]
    warned = sum(one["warned"] >= 0.9 * one["draws"] for one in above)
    private = sum(one["alone"] > 2.0 * one["alone_error"] for one in cells)
    columns = sum(one["columns"] > 2.0 * one["columns_error"] for one in cells)
    largest = sorted((one["columns"] for one in cells), reverse=True)
    classes = [one for one in cells if one["family"] not in REGRESSION]
    missed = sum(one["lost"] > 2.0 * one["lost_error"] for one in classes)
    return (
        f"{len(cells)} cells ({name}): the excess that columns add exceeds two standard errors in {columns} "
        f"(expected by chance: {0.023 * len(cells):.0f}). Its mean is {np.mean(largest):.5f}, the three largest are "
        f"{', '.join(f'{one:.4f}' for one in largest[:3])}. The total excess over the exact null model exceeds two "
        f"standard errors in {len(above)} cells, in {warned} of which at least nine fits of ten warn; that of a "
        f"private constant with the whole budget does in {private}. Accuracy is below that of the larger class by more "
        f"than two standard errors in {missed} of {len(classes)} cells of classes."
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--rows", nargs="*", type=int, default=[500, 1500, 5000, 20_000])
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--neighbours", nargs="*", default=["zero-out", "replace-one"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path, help="print the table of stored results without running anything")
    options = parser.parse_args()
    if options.show:
        print(_table(json.loads(options.show.read_text())))
        return
    cells = itertools.product(options.families, options.rows, options.neighbours, options.epsilons)
    results = []
    with ProcessPoolExecutor(options.workers) as pool:
        for cell in pool.map(_worker, ((cell, options.draws) for cell in cells)):
            results.append(cell)
            worse = "  worse" if cell["excess"] > 2.0 * cell["error"] else ""
            print(
                f"{cell['family']:20} {cell['rows']:6} {cell['neighbours']:11} {cell['epsilon']:4} "
                f"{cell['excess']:+.4f} +- {cell['error']:.4f}  constant {cell['constant']:+.4f}  "
                f"warned {cell['warned']}/{cell['draws']}{worse}",
                flush=True,
            )
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
