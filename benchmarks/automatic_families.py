"""Compare the automatic rule with every named solver, the null model and a fit without privacy on simulated families.

    python benchmarks/automatic_families.py [--seeds 4] [--neighbours zero-out] [--families ...] [--out FILE]

Scores are test accuracy or R2, means over seeds; every seed draws new data and new noise. Named solvers run with their
defaults. "Best named" is the best of them in hindsight for each family and epsilon, a choice that cannot be made
without the results. Nothing is tuned.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LassoCV, LogisticRegression, LogisticRegressionCV, Ridge
from sklearn.svm import LinearSVC

from dperm import Bounds, DPHuberRegressor, DPLasso, DPLinearSVC, DPLogisticRegression, DPRidge
from dperm.errors import DpermError

EPSILONS = (0.1, 0.5, 1.0, 4.0)
N_TEST = 2000
DENSE = ("gradient", "newton", "objective", "blocks")
SPARSE = ("greedy", "peel", "gradient", "frank-wolfe")


@dataclass(frozen=True)
class Family:
    """A generator of rows and targets, the private estimator and one without privacy."""

    n: int
    draw: Callable[[np.random.Generator, int], tuple[Any, Any]]
    private: Callable[..., Any]
    plain: Callable[[], Any]
    named: tuple[str, ...]
    bounds: Bounds


def _labels(rng: np.random.Generator, scores: Any) -> Any:
    return (rng.random(len(scores)) < 1.0 / (1.0 + np.exp(-scores))).astype(int)


def _logistic(p: int, size: float, shift: float = 0.0) -> Callable[..., Any]:
    def draw(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
        X = rng.normal(size=(n, p))
        return X, _labels(rng, X @ (size * rng.normal(size=p)) + shift)

    return draw


def _pure_noise(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    return rng.normal(size=(n, 20)), (rng.random(n) < 0.7).astype(int)


def _factors(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    hidden = rng.normal(size=(n, 3)) * [3.0, 1.5, 1.0]
    X = hidden @ rng.normal(size=(3, 30)) + rng.normal(size=(n, 30))
    return X / X.std(axis=0), _labels(rng, hidden[:, 0] + hidden[:, 1] + 0.5)


def _long_rows(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    X = rng.standard_t(3, (n, 15)) / np.sqrt(3.0)
    return X, _labels(rng, np.clip(X, -3.0, 3.0) @ (0.6 * rng.normal(size=15)))


def _four_classes(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    X = rng.normal(size=(n, 10))
    return X, np.argmax(X @ rng.normal(size=(10, 4)) + rng.gumbel(size=(n, 4)), axis=1)


def _autoregressive(rng: np.random.Generator, n: int, p: int, correlation: float) -> Any:
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1.0 - correlation**2) * X[:, j]
    return X


def _sparse(p: int, k: int, size: float, correlation: float, labels: bool) -> Callable[..., Any]:
    def draw(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
        X = _autoregressive(rng, n, p, correlation)
        scores = X[:, rng.choice(p, k, replace=False)] @ (size * rng.choice([-1.0, 1.0], k))
        return X, _labels(rng, scores) if labels else scores + rng.normal(size=n)

    return draw


def _regression(errors: Callable[..., Any]) -> Callable[..., Any]:
    def draw(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
        X = _autoregressive(rng, n, 15, 0.5)
        return X, X @ (0.5 * rng.normal(size=15)) + errors(rng, n)

    return draw


def _skewed(rng: np.random.Generator, n: int) -> Any:
    return rng.lognormal(size=n) - np.exp(0.5)


def _families() -> dict[str, Family]:
    scales = Bounds(centre=0.0, scale=1.0, clip=3.0)
    target = Bounds(centre=0.0, scale=1.0, clip=3.0, target=(-20.0, 20.0))

    def logistic(**options: Any) -> Any:
        return DPLogisticRegression(**options)

    def sparse_logistic(**options: Any) -> Any:
        return DPLogisticRegression(penalty="l1", **options)

    def plain() -> Any:
        return LogisticRegression(max_iter=2000)

    def plain_sparse() -> Any:
        return LogisticRegressionCV(
            Cs=6,
            cv=3,
            l1_ratios=(1.0,),
            solver="liblinear",
            penalty="l1",
            use_legacy_attributes=False,
            scoring="accuracy",
        )

    for_several_classes = ("gradient", "sgd")
    return {
        "logistic, 10 columns": Family(1000, _logistic(10, 0.6), logistic, plain, DENSE, scales),
        "logistic, 50 columns": Family(4000, _logistic(50, 0.3), logistic, plain, DENSE, scales),
        "logistic, one in ten": Family(3000, _logistic(10, 0.6, -2.5), logistic, plain, DENSE, scales),
        "logistic, factors": Family(500, _factors, logistic, plain, DENSE, scales),
        "logistic, long rows": Family(1500, _long_rows, logistic, plain, DENSE, scales),
        "pure noise, 70:30": Family(500, _pure_noise, logistic, plain, DENSE, scales),
        "four classes": Family(3000, _four_classes, logistic, plain, for_several_classes, scales),
        "hinge": Family(2000, _logistic(20, 0.5), DPLinearSVC, lambda: LinearSVC(dual=False), DENSE, scales),
        "sparse logistic": Family(
            1000, _sparse(1000, 5, 1.5, 0.0, True), sparse_logistic, plain_sparse, SPARSE, scales
        ),
        "sparse regression": Family(
            1000, _sparse(1000, 10, 1.0, 0.0, False), DPLasso, lambda: LassoCV(cv=3), SPARSE, target
        ),
        "sparse, correlated": Family(
            1000, _sparse(1000, 10, 1.0, 0.8, False), DPLasso, lambda: LassoCV(cv=3), SPARSE, target
        ),
        "regression, normal": Family(2000, _regression(lambda r, n: r.normal(size=n)), DPRidge, Ridge, DENSE, target),
        "regression, heavy tails": Family(
            2000, _regression(lambda r, n: r.standard_t(2.5, n)), DPRidge, Ridge, DENSE, target
        ),
        "regression, skewed": Family(
            2000, _regression(_skewed), DPHuberRegressor, Ridge, ("gradient", "newton"), target
        ),
    }


def _score(model: Any, X: Any, y: Any) -> float:
    return float(model.score(X, y))


def _null(y: Any, y_test: Any) -> float:
    if y.dtype.kind == "i":
        return float(np.mean(y_test == np.bincount(y).argmax()))
    return 1.0 - float(np.mean((y_test - y.mean()) ** 2) / np.var(y_test))


def measure(family: Family, seeds: int, neighbours: str) -> dict[str, Any]:
    """Scores of one family, one per seed: null model, fit without privacy, and each solver at each epsilon."""
    out: dict[str, Any] = {"null": [], "plain": [], "private": {}}
    for seed in range(seeds):
        rng = np.random.default_rng([seed, family.n])
        X, y = family.draw(rng, family.n + N_TEST)
        inside, outside = (X[: family.n], y[: family.n]), (X[family.n :], y[family.n :])
        out["null"].append(_null(inside[1], outside[1]))
        out["plain"].append(_score(family.plain().fit(*inside), *outside))
        for epsilon in EPSILONS:
            for solver in ("auto", *family.named):
                if solver in ("sgd", "objective") and neighbours != "zero-out":
                    continue
                model = family.private(epsilon=epsilon, bounds=family.bounds, solver=solver, neighbours=neighbours)
                try:
                    score = _score(model.fit(*inside), *outside)
                except DpermError:  # the solver refuses this problem
                    continue
                out["private"].setdefault((epsilon, solver), []).append(score)
    return out


def _row(name: str, scores: dict[str, Any]) -> str:
    cells = [name]
    for epsilon in EPSILONS:
        means = {s: float(np.mean(v)) for (e, s), v in scores["private"].items() if e == epsilon}
        auto = scores["private"][epsilon, "auto"]
        error = float(np.std(auto, ddof=1) / np.sqrt(len(auto))) if len(auto) > 1 else float("nan")
        named = max((value, s) for s, value in means.items() if s != "auto")
        cells.append(f"{means['auto']:.3f} ± {error:.3f} / {named[0]:.3f} {named[1]}")
    return "| " + " | ".join([*cells, f"{np.mean(scores['plain']):.3f}", f"{np.mean(scores['null']):.3f}"]) + " |"


def main() -> None:
    families = _families()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--neighbours", default="zero-out", choices=("zero-out", "replace-one"))
    parser.add_argument("--families", nargs="*", default=list(families), choices=list(families))
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    heads = [f"epsilon {epsilon:g}: auto / best named" for epsilon in EPSILONS]
    lines = ["| " + " | ".join(["family", *heads, "no privacy", "null"]) + " |", "|" + " --- |" * (len(EPSILONS) + 3)]
    print("\n".join(lines), flush=True)
    for name in chosen.families:
        lines.append(_row(name, measure(families[name], chosen.seeds, chosen.neighbours)))
        print(lines[-1], flush=True)
    if chosen.out is not None:
        chosen.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
