"""Run the automatic rule on data that were not used to tune it.

    python benchmarks/automatic_held_out.py [--fits 3]

Needs mnist49, dorothea, arcene and meltingpoint_qsar in the folder that DPERM_DATA names. Neighbours are zero-out and
delta is the default. Every fit draws new noise and, for sets without a suitable test part, a new split. Columns of the
melting points are standardised by their own moments, taken as public. Run it once per rule: once a constant is changed
because of these results, the data are no longer held out.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dperm import Bounds, DPLogisticRegression, DPRidge

EPSILONS = (0.1, 0.5, 1.0, 4.0)


def _stored(name: str) -> tuple[Any, Any, int]:
    path = Path(os.environ["DPERM_DATA"]) / f"{name}.npz"
    with np.load(path, allow_pickle=False) as stored:
        y, n_train = stored["y"], int(stored["n_train"])
        X = sp.load_npz(path).astype(float).tocsr() if "indptr" in stored.files else stored["X"].astype(float)
    return X, y, n_train


def _problems() -> Iterator[tuple[str, Any, Any, int, bool, Any]]:
    """Yield name, rows, targets, number of training rows, whether to draw splits, and a function that makes a model."""
    X, y, n = _stored("mnist49")
    yield "MNIST 4 against 9", X, y, n, False, lambda e: DPLogisticRegression(e, bounds=_range(0, 255, y), **OPTIONS)
    X, y, _ = _stored("dorothea")
    yield (
        "dorothea, l1",
        X,
        y,
        640,
        True,
        lambda e: DPLogisticRegression(e, penalty="l1", bounds=_range(0, 1, y), **OPTIONS),
    )
    X, y, n = _stored("arcene")
    yield "arcene", X, y, n, False, lambda e: DPLogisticRegression(e, bounds=_range(0, 999, y), **OPTIONS)
    X, y, _ = _stored("meltingpoint_qsar")
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    bounds = Bounds(centre=0.0, scale=1.0, clip=3.0, target=(0.0, 400.0))
    yield "melting points", X, y, 3600, True, lambda e: DPRidge(e, bounds=bounds, **OPTIONS)


OPTIONS = {"neighbours": "zero-out"}


def _range(low: float, high: float, y: Any) -> Bounds:
    return Bounds(features=(low, high), classes=tuple(np.unique(y).tolist()))


def _null(y: Any, y_test: Any) -> float:
    if y.dtype.kind == "f":
        return 1.0 - float(np.mean((y_test - y.mean()) ** 2) / np.var(y_test))
    values, counts = np.unique(y, return_counts=True)
    return float(np.mean(y_test == values[counts.argmax()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=3)
    fits = parser.parse_args().fits
    warnings.simplefilter("ignore")
    print("| set | " + " | ".join(f"epsilon {e:g}" for e in EPSILONS) + " | null |", flush=True)
    for name, X, y, n_train, draws, make in _problems():
        scores, null = np.zeros((fits, len(EPSILONS))), []
        for fit in range(fits):
            order = np.random.default_rng(fit).permutation(len(y)) if draws else np.arange(len(y))
            inside, outside = order[:n_train], order[n_train:]
            null.append(_null(y[inside], y[outside]))
            for k, epsilon in enumerate(EPSILONS):
                scores[fit, k] = make(epsilon).fit(X[inside], y[inside]).score(X[outside], y[outside])
        errors = scores.std(axis=0, ddof=1) / np.sqrt(fits) if fits > 1 else np.full(len(EPSILONS), np.nan)
        cells = [f"{value:.3f} ± {error:.3f}" for value, error in zip(scores.mean(axis=0), errors, strict=True)]
        print("| " + " | ".join([name, *cells, f"{np.mean(null):.3f}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
