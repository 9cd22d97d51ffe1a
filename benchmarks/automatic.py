"""The automatic rule on many data sets, next to fixed noisy descents and to every named solver.

    python benchmarks/automatic.py [--draws 4] [--epsilons 0.1 0.5 1 4] [--neighbours zero-out] [--sets ...]

Every draw has new data (or a new split) and new noise; delta = 1/n^2. Scores are test accuracy, or R2. The fixed
descents are untuned baselines: gradients of rows with a constant column are clipped at 1, 40 steps of length 0.1, 0.5
or 2 from zero, with the noise that Gaussian composition allows. In regression residuals are in units of a twentieth or
a fifth of the target's half range. "Best fixed" and "best named" are the best means of each cell in hindsight, a choice
that nobody can make without the results.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from automatic_data import SETS, Draw, Set
from recorded import Recorded
from scipy.special import expit, softmax
from sklearn.metrics import log_loss, roc_auc_score

from dperm import Bounds, DPHuberRegressor, DPLasso, DPLinearSVC, DPLogisticRegression, DPRidge
from dperm.errors import DpermError
from dperm.privacy.accounting.gdp import mu_of

RATES, UNITS, STEPS = (0.1, 0.5, 2.0), (0.05, 0.2), 40
ESTIMATORS = {"hinge": DPLinearSVC, "ridge": DPRidge, "lasso": DPLasso, "huber": DPHuberRegressor}


def fixed_descent(kind: Set, data: Draw, mu: float, rate: float, unit: float, rng: np.random.Generator) -> float:
    """Score of a plain noisy descent; the average of the last half of the iterates."""
    rows = sp.csr_array(sp.hstack([sp.csr_array(data.X), np.ones((data.X.shape[0], 1))]))
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).reshape(-1, 1)
    classes, middle = np.unique(data.y), 0.0
    if kind.is_regression:
        low, high = data.bounds["target"]
        middle, unit = 0.5 * (low + high), unit * 0.5 * (high - low)
        targets = (np.clip(data.y, low, high)[:, None] - middle) / unit
    else:
        targets = (data.y[:, None] == classes[-1:] if len(classes) == 2 else data.y[:, None] == classes).astype(float)
    w = total = np.zeros((rows.shape[1], targets.shape[1]))
    for t in range(STEPS):
        scores = rows @ w
        outputs = scores if kind.is_regression else expit(scores) if len(classes) == 2 else softmax(scores, axis=1)
        slopes = outputs - targets
        slopes = slopes / np.maximum(1.0, lengths * np.linalg.norm(slopes, axis=1, keepdims=True))
        w = w - rate * (rows.T @ slopes + np.sqrt(STEPS) / mu * rng.normal(size=w.shape)) / rows.shape[0]
        total = total + w * (t >= STEPS // 2)
    w = total / (STEPS - STEPS // 2)
    scores = np.asarray(data.X_test @ w[:-1] + w[-1])
    if kind.is_regression:
        return r2(data.y_test, middle + unit * scores.ravel())
    chosen = classes[(scores[:, 0] > 0).astype(int)] if len(classes) == 2 else classes[scores.argmax(axis=1)]
    return float(np.mean(chosen == data.y_test))


def r2(y: Any, predicted: Any) -> float:
    """Share of the variance that is explained."""
    return 1.0 - float(np.mean((y - predicted) ** 2) / np.var(y))


def fit(kind: Set, data: Draw, epsilon: float, solver: str, neighbours: str) -> list[float]:
    """Score of a private fit; for two classes also its log loss and the area under the curve."""
    options: dict[str, Any] = {"solver": solver, "neighbours": neighbours}
    bounds = dict(data.bounds)
    if not kind.is_regression:
        bounds["classes"] = np.unique(data.y).tolist()
    if kind.estimator in ("logistic", "classes"):
        options["penalty"] = kind.penalty
    make = ESTIMATORS.get(kind.estimator, DPLogisticRegression)
    delta = 1.0 / data.X.shape[0] ** 2
    model = make(epsilon=epsilon, delta=delta, bounds=Bounds(**bounds), **options).fit(data.X, data.y)
    if kind.is_regression:
        return [r2(data.y_test, model.predict(data.X_test))]
    score = float(np.mean(model.predict(data.X_test) == data.y_test))
    if kind.estimator == "hinge":
        return [score]
    p = np.clip(model.predict_proba(data.X_test), 1e-9, 1.0)
    auc = roc_auc_score(data.y_test, p[:, 1]) if p.shape[1] == 2 else np.nan
    return [score, log_loss(data.y_test, p / p.sum(axis=1, keepdims=True), labels=bounds["classes"]), auc]


def null_score(kind: Set, data: Draw) -> float:
    """Score of one constant prediction."""
    if kind.is_regression:
        return r2(data.y_test, np.full(len(data.y_test), data.y.mean()))
    values, counts = np.unique(data.y, return_counts=True)
    return float(np.mean(data.y_test == values[counts.argmax()]))


class Comparison:
    """Scores of one set, by method and epsilon, one per draw."""

    def __init__(self, name: str, given: argparse.Namespace) -> None:
        self.kind, self.given = SETS[name], given
        self.draws = [self.kind.draw(np.random.default_rng(number)) for number in given.seeds]
        self.null = float(np.mean([null_score(self.kind, data) for data in self.draws]))
        self.scores: dict[str, list[list[float]]] = {}
        self.seconds = 0.0

    def run(self, epsilon: float) -> None:
        """Fit everything at one epsilon."""
        for number, data in zip(self.given.seeds, self.draws, strict=True):
            began = time.perf_counter()
            self._add("auto", fit(self.kind, data, epsilon, "auto", self.given.neighbours), epsilon)
            self.seconds = max(self.seconds, time.perf_counter() - began)
            if self.given.only_auto:
                continue
            for solver in self.kind.named:
                if data.X.shape[1] > 1000 and solver in ("newton", "objective", "blocks", "whitened"):
                    continue
                try:
                    self._add(solver, fit(self.kind, data, epsilon, solver, self.given.neighbours), epsilon)
                except DpermError:  # the solver refuses this problem
                    continue
            mu = mu_of(epsilon, 1.0 / data.X.shape[0] ** 2) / (1.0 if self.given.neighbours == "zero-out" else 2.0)
            for rate in RATES:
                for unit in UNITS if self.kind.is_regression else UNITS[:1]:
                    rng = np.random.default_rng([number, 1])
                    key = f"fixed {rate:g}" + (f", {unit:g}" if self.kind.is_regression else "")
                    self._add(key, [fixed_descent(self.kind, data, mu, rate, unit, rng)], epsilon)

    def _add(self, method: str, scores: list[float], epsilon: float) -> None:
        self.scores.setdefault(f"{epsilon:g} {method}", []).append(scores)

    def cells(self, epsilon: float) -> list[str]:
        """The automatic rule, the best of the others, and the paired difference from the better one."""
        prefix = f"{epsilon:g} "
        found = {key[len(prefix) :]: np.array(one) for key, one in self.scores.items() if key.startswith(prefix)}
        auto = found.pop("auto")
        more = f" ({np.nanmean(auto[:, 1]):.3f}, {np.nanmean(auto[:, 2]):.3f})" if auto.shape[1] > 1 else ""
        out = [f"{auto[:, 0].mean():.3f}{more}"]
        best = max(found, key=lambda key: float(found[key][:, 0].mean()), default=None)
        for group in (True, False):
            inside = {key: value for key, value in found.items() if key.startswith("fixed") == group}
            top = max(inside, key=lambda key: float(inside[key][:, 0].mean()), default=None)
            out.append("-" if top is None else f"{inside[top][:, 0].mean():.3f} {top}")
        if best is None:
            return [*out, "-"]
        gap = auto[:, 0] - found[best][:, 0]
        return [*out, f"{gap.mean():+.3f} ± {gap.std() / np.sqrt(max(len(gap) - 1, 1)):.3f}"]


def main() -> None:
    """Print and store the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--first-draw", type=int, default=0, help="seed of the first draw; data change with it")
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.1, 0.5, 1.0, 4.0])
    parser.add_argument("--neighbours", choices=("zero-out", "replace-one"), default="zero-out")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--only-auto", action="store_true")
    parser.add_argument("--json", type=Path, help="also write every score here")
    parser.add_argument("--keep", action="store_true", help="keep the table in results/")
    given = parser.parse_args()
    given.seeds = range(given.first_draw, given.first_draw + given.draws)
    warnings.simplefilter("ignore")
    heads = ("set", "null", "epsilon", "auto (log loss, AUC)", "best fixed", "best named", "difference", "seconds")
    name = "automatic" if given.neighbours == "zero-out" else "automatic_replace_one"
    stored: dict[str, Any] = {}
    with Recorded(name, f"The automatic rule, {given.neighbours}", heads, keep=given.keep) as out:
        for name in given.sets:
            try:
                one = Comparison(name, given)
            except (KeyError, FileNotFoundError):
                print(f"{name} was left out: DPERM_DATA does not name a folder that has it.", flush=True)
                continue
            for epsilon in given.epsilons:
                one.run(epsilon)
                out.add(name, f"{one.null:.3f}", f"{epsilon:g}", *one.cells(epsilon), f"{one.seconds:.1f}")
            stored[name] = one.scores
            if given.json:
                given.json.write_text(json.dumps(stored))


if __name__ == "__main__":
    main()
