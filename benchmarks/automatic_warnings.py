"""How often the warnings of plans and fits tell the truth: every kind of warning, and how good the fits were.

    python benchmarks/automatic_warnings.py [--draws 2] [--epsilons 0.1 0.5 1 4] [--neighbours zero-out] [--sets ...]

The sets are those of ``automatic_data.py``, fitted with ``solver="auto"``. A fit is better than one prediction for
everybody if it gains two hundredths on test rows, in the share of that prediction's loss or in accuracy; it is worse if
it loses two hundredths of the loss and gains no accuracy. "Said" is the share of what the columns can explain that
``plan`` expects to be left, "measured" the gain of the fit over that of a fit of scikit-learn without noise.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from automatic import ESTIMATORS, r2
from automatic_data import SETS, Draw, Set
from recorded import Recorded
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss

from dperm import Bounds, DPLogisticRegression
from dperm.errors import UtilityWarning

CHOSEN = (
    "normal, 1,000 x 10",
    "normal, 1,500 x 100",
    "normal, one in ten",
    "spectrum 2, 1,000 x 100",
    "pure noise, 500 x 20",
    "pure noise, 1,000 x 2,000",
    "digits, below 5",
    "digits",
    "wine",
    "a9a, 2,000",
    "texts, unit rows",
    "factors, 1,000 x 2,000",
    "five of 300",
    "five of 2,000, l1",
    "regression, 2,000 x 15",
    "regression, 1,500 x 100",
    "regression, no signal",
    "ten of 1,000, lasso",
    "diabetes",
    "four classes",
    "texts, five classes",
)
#: gain, of the null model's loss or in accuracy, from which a fit is better
CLEAR = 0.02
NO_WARNING = "(none)"


def gains(kind: Set, data: Draw, model: Any) -> tuple[float, float]:
    """Share of the null model's test loss that the fit gains, and its gain of accuracy (0 in regression)."""
    if kind.is_regression:
        return r2(data.y_test, model.predict(data.X_test)) - r2(
            data.y_test, np.full(len(data.y_test), data.y.mean())
        ), 0.0
    values, counts = np.unique(data.y, return_counts=True)
    accuracy = float(
        np.mean(model.predict(data.X_test) == data.y_test) - np.mean(data.y_test == values[counts.argmax()])
    )
    p = np.clip(model.predict_proba(data.X_test), 1e-9, 1.0)
    null = log_loss(data.y_test, np.tile(counts / counts.sum(), (len(data.y_test), 1)), labels=values)
    return 1.0 - log_loss(data.y_test, p / p.sum(axis=1, keepdims=True), labels=values) / null, accuracy


def without_noise(kind: Set, data: Draw) -> float:
    """Largest gain of a few fits of scikit-learn; the best strength is chosen in hindsight."""
    if kind.is_regression:
        return gains(kind, data, RidgeCV(np.logspace(-2, 4, 13)).fit(data.X, data.y))[0]
    fits = (LogisticRegression(C=C, max_iter=300).fit(data.X, data.y) for C in (1e-3, 1e-2, 0.1, 1.0))
    return max(gains(kind, data, fit)[0] for fit in fits)


def fit(name: str, data: Draw, epsilon: float, neighbours: str, seed: int) -> dict[str, Any]:
    """Warnings, forecast and gains of one fit."""
    kind, bounds = SETS[name], dict(data.bounds)
    options: dict[str, Any] = {"epsilon": epsilon, "neighbours": neighbours, "insecure_seed": seed}
    if not kind.is_regression:
        bounds["classes"] = np.unique(data.y).tolist()
        options["penalty"] = kind.penalty
    model = ESTIMATORS.get(kind.estimator, DPLogisticRegression)(bounds=Bounds(**bounds), **options)
    plan = model.plan(*data.X.shape)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(data.X, data.y)
    loss, accuracy = gains(kind, data, model)
    return {
        "set": name,
        "epsilon": epsilon,
        "solver": plan.solver,
        "said": plan.share_left,
        "warnings": [str(one.message) for one in caught if issubclass(one.category, UtilityWarning)],
        "loss": loss,
        "accuracy": accuracy,
    }


def alike(warning: str) -> str:
    """Return a warning without its numbers."""
    return re.sub(r"\d+(\.\d+)?", "#", warning)


def outcome(one: dict[str, Any]) -> str:
    """Whether a fit is better or worse than one prediction for everybody, or neither."""
    if one["loss"] >= CLEAR or one["accuracy"] >= CLEAR:
        return "better"
    return "worse" if one["loss"] <= -CLEAR else "equal"


def by_kind(found: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Fits by kind of warning; fits without any have a kind of their own."""
    out: dict[str, list[dict[str, Any]]] = {}
    for one in found:
        for kind in {alike(text) for text in one["warnings"]} or {NO_WARNING}:
            out.setdefault(kind, []).append(one)
    return dict(sorted(out.items()))


def measured(fits: list[dict[str, Any]]) -> str:
    """What plans said was left, and what was: means over the fits of sets whose columns explain something."""
    known = [one for one in fits if one["said"] is not None and one["best"] >= 0.05]
    if not known:
        return ""
    said, left = (float(np.mean([one[key] for one in known])) for key in ("said", "left"))
    return f"{said:.0%}, {left:.0%} ({len(known)})"


def main() -> None:
    """Print and store the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.1, 0.5, 1.0, 4.0])
    parser.add_argument("--neighbours", choices=("zero-out", "replace-one"), default="replace-one")
    parser.add_argument("--sets", nargs="*", default=list(CHOSEN))
    parser.add_argument("--json", type=Path, help="also write every fit here")
    parser.add_argument("--keep", action="store_true", help="keep the table in results/")
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    for name in given.sets:
        for number in range(given.draws):
            try:
                data = SETS[name].draw(np.random.default_rng(number))
            except (KeyError, FileNotFoundError):
                print(f"{name} was left out: DPERM_DATA does not name a folder that has it.", flush=True)
                break
            best = without_noise(SETS[name], data)
            for epsilon in given.epsilons:
                one = fit(name, data, epsilon, given.neighbours, number)
                found.append({**one, "best": best, "left": min(max(one["loss"] / max(best, 1e-9), 0.0), 1.0)})
        if given.json:
            given.json.write_text(json.dumps(found))
    heads = ("warning", "fits", "better", "equal", "worse", "said, measured")
    with Recorded(
        "automatic_warnings", f"Warnings of the automatic rule, {given.neighbours}", heads, keep=given.keep
    ) as out:
        for kind, fits in by_kind(found).items():
            results = [outcome(one) for one in fits]
            shares = (f"{results.count(word)}" for word in ("better", "equal", "worse"))
            out.add(kind, f"{len(fits)}", *shares, measured(fits))


if __name__ == "__main__":
    main()
