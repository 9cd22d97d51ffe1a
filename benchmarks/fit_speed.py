"""Profile a fit of a9a, and compare its time with Opacus and diffprivlib in one run, one thread each.

python benchmarks/fit_speed.py [--repeats 3]

Peers run in their own environments (see peers.py), a new process for each of their fits, so that Opacus calibrates
every time; imports are never counted. dperm is also measured in a separate process, as the median of several
fits after a warm-up fit; the breakdown is that of the median fit in this process. Reads a9a from the folder
that DPERM_DATA names.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers_environments import HERE, ONE_THREAD, Unavailable

for variable, value in ONE_THREAD.items():
    os.environ.setdefault(variable, value)

import numpy as np
import scipy.sparse as sp
from peers import TUNING, work_through
from peers_data import Problem, make
from peers_methods import Method, all_methods

from dperm import Bounds, DPLogisticRegression
from dperm.data.design.matrix import DesignMatrix
from dperm.estimators.central import base as _base
from dperm.estimators.central import fit as _fit
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries import MappedGradient, MappedSecondMoment, RowLengths

#: timed functions, by owner and name
STAGES: dict[str, tuple[Any, str]] = {
    "plan, calibration, trial": (_base, "prepare"),
    "clip, scale and round the rows": (DesignMatrix, "from_array"),
    "lengths of rows": (RowLengths, "evaluate"),
    "second moments": (MappedSecondMoment, "evaluate"),
    "gradients": (MappedGradient, "evaluate"),
    "noise": (GaussianNoise, "apply"),
    "ledger": (Scope, "settle"),
    "report": (_fit, "report_of"),
}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="turns of the comparison, and fits of dperm in each")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".peers", help="folder of the environments")
    asked = parser.parse_args()
    try:
        problem = make("a9a", 1, 0)
    except (KeyError, FileNotFoundError):
        print("a9a was not found, nothing is measured: set DPERM_DATA to the folder that holds it.")
        return
    breakdown(problem, max(5, asked.repeats))
    comparison(problem, asked)


# ------------------------------------------------------------------------------------------------- breakdown
def breakdown(problem: Problem, repeats: int) -> None:
    """Milliseconds of processor time of each stage, for dense and for sparse rows."""
    X, y, _, _ = problem.split(0)
    spent: dict[str, float] = defaultdict(float)
    for name, (owner, attribute) in STAGES.items():
        setattr(owner, attribute, timed(owner, attribute, name, spent))
    columns: dict[str, dict[str, float]] = {}
    first = 0.0
    for form, rows in (("dense", X), ("CSR", sp.csr_array(X))):
        fits = []
        for _ in range(1 + repeats):  # the first fit is a warm-up
            spent.clear()
            start = time.process_time()
            model = fit(problem, rows, y)
            total = time.process_time() - start
            fits.append({**spent, "checks, solver's own steps and the rest": total - sum(spent.values()), "all": total})
        first = first or fits[0]["all"]
        columns[form] = {stage: float(np.median([one[stage] for one in fits[1:]])) for stage in fits[-1]}
    print(f"One fit of a9a, epsilon 1, {model.n_iter_[0]} gradients, milliseconds of processor time:\n")
    print(f"| {'stage':40s} | dense | CSR |\n| --- | --- | --- |")
    for stage in columns["dense"]:
        print(f"| {stage:40s} | {1e3 * columns['dense'][stage]:.1f} | {1e3 * columns['CSR'].get(stage, 0.0):.1f} |")
    print(f"\nThe first fit of the process took {first:.2f} s: it loads compiled kernels, or makes them.")


def timed(owner: Any, attribute: str, name: str, spent: dict[str, float]) -> Any:
    """Wrap a function so that its time is added up under a name."""
    inner: Callable[..., Any] = getattr(owner, attribute)

    def outer(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        try:
            return inner(*args, **kwargs)
        finally:
            spent[name] += time.process_time() - start

    return staticmethod(outer) if isinstance(vars(owner).get(attribute), classmethod) else outer


def fit(problem: Problem, X: Any, y: Any) -> DPLogisticRegression:
    """One fit as in the comparison with peers."""
    bounds = Bounds(centre=0.0, scale=1.0, clip=problem.clip, row_norm=problem.row_norm, classes=(0, 1))
    model = DPLogisticRegression(epsilon=1.0, delta=problem.delta, bounds=bounds, neighbours="zero-out")
    return model.fit(X, y.astype(int))


# ------------------------------------------------------------------------------------------------- comparison
def comparison(problem: Problem, asked: argparse.Namespace) -> None:
    """Seconds of alternating fits, and the ratio of the peers' times to dperm's."""
    methods = {method.key: method for method in all_methods("auto")}
    print("\nThe same fit next to peers, one thread each, in turn (s):\n")
    print("| turn | dperm | Opacus with calibration | ratio | of processor time | diffprivlib | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        problem.save(work / "a9a.npz")
        for turn in range(asked.repeats):
            took = {
                key: seconds(methods[key], asked, work, asked.repeats if key == "dperm" else 1, turn)
                for key in ("opacus", "dperm", "diffprivlib")
            }
            ours, opacus, diffprivlib = took["dperm"], took["opacus"], took["diffprivlib"]
            ratios.append([opacus[0] / ours[0], opacus[1] / ours[1], diffprivlib[0] / ours[0]])
            cells = [ours[0], opacus[0], *ratios[-1][:2], diffprivlib[0], ratios[-1][2]]
            print(f"| {turn + 1} | " + " | ".join(f"{cell:.3g}" for cell in cells) + " |", flush=True)
    middle = np.median(ratios, axis=0)
    print(
        f"\nMedian: dperm is {middle[0]:.0f} times faster than Opacus ({middle[1]:.0f} times in processor time, target "
        f"50) and {middle[2]:.1f} times as fast as diffprivlib (target 0.5)."
    )


def seconds(method: Method, asked: argparse.Namespace, work: Path, n_fits: int, seed: int) -> tuple[float, float]:
    """Median seconds and processor seconds of fits by a worker; NaN where its environment is missing."""
    order = {"epsilon": 1.0, "grid": [], "tuning_seed": TUNING, "method": method.key, "options": method.options}
    try:
        records = work_through(method, "a9a", [{**order, "cells": [[0, seed]] * n_fits}], asked, work)
        return tuple(float(np.median([one[clock] for one in records])) for clock in ("seconds", "cpu_seconds"))
    except (Unavailable, KeyError) as reason:
        print(f"{method.label} left out: {reason}.")
        return math.nan, math.nan


if __name__ == "__main__":
    main()
