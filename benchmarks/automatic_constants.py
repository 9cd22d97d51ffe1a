"""What halving and doubling each constant of the automatic rule changes, on the data sets of ``automatic.py``.

    python benchmarks/automatic_constants.py [--draws 2] [--first-draw 0] [--constants duration clear] [--keep]

Fits are paired: the same data, and noise with the same keys. (Other shares or numbers of releases use the keys in
another order, so part of a difference is noise: see its standard error.) Constants between a half and one are changed
by their odds. Sets that take seconds per fit are left out, and fits that a changed share makes impossible.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import argparse
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
from automatic import fit
from automatic_data import SETS
from recorded import Recorded

from dperm.errors import InvalidInput
from dperm.solvers.central.auto.constants import RULE
from dperm.testing.repeatable_noise import keys_named

EPSILONS = (0.1, 0.5, 1.0, 4.0)
SLOW = ("dorothea", "texts, five classes", "MNIST, 4 and 9")
SIDES = ("halved", "doubled")


def changed(value: float, side: str) -> float:
    """Half or double the value; of a share above one half, of its odds."""
    factor = 0.5 if side == "halved" else 2.0
    if 0.5 <= value < 1.0:
        odds = factor * value / (1.0 - value)
        return odds / (1.0 + odds)
    return type(value)(factor * value)


@contextmanager
def constant(name: str, side: str) -> Iterator[None]:
    """Change one constant; the dataclass is frozen for everybody but this benchmark."""
    usual = getattr(RULE, name)
    object.__setattr__(RULE, name, changed(usual, side))
    try:
        yield
    finally:
        object.__setattr__(RULE, name, usual)


def scores(job: tuple[str, int, list[str]]) -> dict[tuple[str, str], list[float]]:
    """Score of each variant at each epsilon for one draw of one set; of no variant under the name "" too."""
    set_name, seed, names = job
    warnings.simplefilter("ignore")
    kind = SETS[set_name]
    data = kind.draw(np.random.default_rng(seed))
    out: dict[tuple[str, str], list[float]] = {}

    def run(key: tuple[str, str]) -> None:
        for epsilon in EPSILONS:
            with keys_named(f"{set_name} {seed} {epsilon}"):
                try:
                    score = fit(kind, data, epsilon, "auto", "zero-out")[0]
                except InvalidInput:  # shares that add up to more than the budget
                    score = np.nan
            out.setdefault(key, []).append(score)

    run(("", ""))
    for name in names:
        for side in SIDES:
            with constant(name, side):
                run((name, side))
    return out


def cell(differences: Any) -> str:
    """Mean difference over sets, draws and epsilons, and its standard error over sets."""
    by_set = np.nanmean(differences, axis=(1, 2))
    return f"{by_set.mean():+.4f} ± {by_set.std() / max(len(by_set) - 1, 1) ** 0.5:.4f}"


def main() -> None:
    """Print and store the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--first-draw", type=int, default=0, help="seed of the first draw; data change with it")
    parser.add_argument("--constants", nargs="*", default=[one.name for one in fields(RULE)])
    parser.add_argument("--sets", nargs="*", default=[name for name in SETS if name not in SLOW])
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--keep", action="store_true", help="keep the table in results/")
    given = parser.parse_args()
    jobs = [(name, given.first_draw + k, given.constants) for name in given.sets for k in range(given.draws)]
    with ProcessPoolExecutor(given.workers) as pool:
        found = list(pool.map(scores, jobs))
    groups = {
        "accuracy": [k for k, name in enumerate(given.sets) if not SETS[name].is_regression],
        "R2": [k for k, name in enumerate(given.sets) if SETS[name].is_regression],
    }
    heads = ("constant", *(f"{what}, {side}" for side in SIDES for what in groups), "largest change of a set")
    title = "Sensitivity of the automatic rule to its constants"
    with Recorded("automatic_constants", title, heads, keep=given.keep) as out:
        shape = (len(given.sets), given.draws, len(EPSILONS))
        base = np.array([one[("", "")] for one in found]).reshape(shape)
        for name in given.constants:
            cells, largest = [], (0.0, "")
            for side in SIDES:
                change = np.array([one[(name, side)] for one in found]).reshape(shape) - base
                cells += [cell(change[group]) if group else "-" for group in groups.values()]
                by_set = np.nanmean(change, axis=(1, 2))
                worst = int(np.abs(by_set).argmax())
                if abs(by_set[worst]) > abs(largest[0]):
                    largest = (float(by_set[worst]), f"{given.sets[worst]}, {side}")
            out.add(name, *cells, f"{largest[0]:+.3f} ({largest[1]})" if largest[1] else "none")


if __name__ == "__main__":
    main()
