"""Compare dperm with other libraries: same data, same epsilon, fresh noise; one table and one figure.

python benchmarks/peers.py --fast
python benchmarks/peers.py --sets breast_cancer a9a --epsilons 0.5 1 4

Peers run in separate environments, built on first use in the folder that ``--cache`` names, as workers that read the
splits from a file: dperm's environment never imports them. A row whose environment cannot be built is left out; the
reason is printed and listed under Skipped. a9a and california are read from the folder that DPERM_DATA names.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from peers_data import DEFAULTS, FAST, SCORES, make
from peers_environments import HERE, Unavailable, run_worker
from peers_methods import Method, all_methods
from peers_report import Report, mean_and_error

import dperm

TUNING = 2**31 - 1  # the seed with which an oracle chooses; seeds of reported fits are smaller


def main() -> None:
    """Run the comparison and write peers.json, peers.md and peers.png."""
    asked = arguments()
    methods = all_methods(asked.solver)
    path = asked.out / "peers.json"
    run = earlier(path, asked.seed) if asked.keep and path.exists() else new_run(asked.seed)
    if asked.methods or not asked.no_timing:  # with neither, only the table and the figure are written again
        command = shlex.join(["python", "benchmarks/peers.py", *sys.argv[1:]])
        run["facts"]["commands"].append(f"{command} # {code()}")
    for folder in (asked.out, asked.cache):
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for problem in asked.sets:
            compare(problem, [method for method in methods if wanted(method, asked)], asked, run, work)
            path.write_text(json.dumps(run))
        if (work / "a9a.npz").exists() and not asked.no_timing:
            measure_time(methods, asked, run, work)
            path.write_text(json.dumps(run))
        text = Report(run, methods).markdown()
        (asked.out / "peers.md").write_text(text)
        print(text)
        if not run["facts"]["sets"]:
            sys.exit("No set could be compared: the reasons are listed under Skipped.")
        panels = work / "panels.json"
        panels.write_text(json.dumps([panel(name, run, methods) for name in run["facts"]["sets"]]))
        try:
            run_worker("figure", asked.cache, "peers_figure.py", panels, asked.out / "peers.png")
        except Unavailable as reason:
            print(f"No figure: {reason}.")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    keys = [method.key for method in all_methods("auto")]
    parser.add_argument("--sets", nargs="+", choices=list(DEFAULTS), default=list(DEFAULTS))
    parser.add_argument("--methods", nargs="*", choices=keys, default=keys, help="none: only time the fits of a9a")
    parser.add_argument("--epsilons", nargs="+", type=float, default=None, help="default: 0.1 0.5 1 4; --fast: 1")
    parser.add_argument("--splits", type=int, default=None, help="random splits per set (a9a has one)")
    parser.add_argument("--seeds", type=int, default=None, help="noise seeds per split")
    parser.add_argument("--fast", action="store_true", help="minutes: few splits, one epsilon, no oracle")
    parser.add_argument("--keep", action="store_true", help="keep earlier results of rows that are not run again")
    parser.add_argument("--no-timing", action="store_true", help="skip the timing of a9a")
    parser.add_argument("--solver", default="auto", help="solver of the dperm rows")
    parser.add_argument("--seed", type=int, default=0, help="rules simulated rows, splits and the peers' noise")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".peers", help="folder of the environments")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the results")
    asked = parser.parse_args()
    for name in ("splits", "seeds"):
        value = getattr(asked, name)
        if value is not None and not 1 <= value <= 1000:
            parser.error(f"--{name} must be between 1 and 1000.")
    asked.epsilons = asked.epsilons or ([1.0] if asked.fast else [0.1, 0.5, 1.0, 4.0])
    if min(asked.epsilons) <= 0.0:
        parser.error("--epsilons must be above 0.")
    if not 0 <= asked.seed < 2**16:
        parser.error("--seed must be between 0 and 65535.")
    return asked


def wanted(method: Method, asked: argparse.Namespace) -> bool:
    """Whether a row is run."""
    return method.key in asked.methods and not (asked.fast and method.tuned_on is not None)


def new_run(seed: int) -> dict[str, Any]:
    """Return an empty set of results."""
    here = f"dperm {dperm.__version__}, scikit-learn {sklearn.__version__}, numpy {np.__version__}"
    facts = {
        "commands": [],
        "versions": f"Python {platform.python_version()}, {here}; peers: {', '.join(pins())}",
        "seed": seed,
        "sets": {},
    }
    return {"facts": facts, "records": [], "timing": [], "skipped": {}}


def pins() -> list[str]:
    """Versions of the peers."""
    return [
        line
        for name in ("opacus", "diffprivlib", "interpret")
        for line in (HERE / f"requirements-peers-{name}.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    ]


def code() -> str:
    """Identify the version of dperm's sources."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty=, with uncommitted changes"]
    try:
        return "sources at " + subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "sources of unknown version"


def earlier(path: Path, seed: int) -> dict[str, Any]:
    """Load earlier results, which must come from the same rows and splits."""
    run: dict[str, Any] = json.loads(path.read_text())
    if run["facts"]["seed"] != seed:
        sys.exit(f"{path.name} was made with --seed {run['facts']['seed']}: use it again, or leave --keep out.")
    versions = run["facts"]["versions"]
    run["facts"]["versions"] = ", ".join([versions, *(pin for pin in pins() if pin not in versions)])
    return run


def skip(run: dict[str, Any], who: str, why: str) -> None:
    """Say and keep why something is missing."""
    run["skipped"][who] = why
    print(f"Skipped {who}: {why}.", flush=True)


def compare(name: str, methods: list[Method], asked: argparse.Namespace, run: dict[str, Any], work: Path) -> None:
    """Run all methods on one data set."""
    splits, seeds = (FAST if asked.fast else DEFAULTS)[name]
    splits, seeds = 1 if name == "a9a" else asked.splits or splits, asked.seeds or seeds
    try:
        problem = make(name, splits, asked.seed)
    except (KeyError, FileNotFoundError):
        skip(run, name, "its file was not found; set DPERM_DATA to the folder that holds it")
        return
    run["skipped"].pop(name, None)
    problem.save(work / f"{name}.npz")
    facts = {"splits": splits, "seeds": seeds, "task": problem.task, "delta": problem.delta}
    if run["facts"]["sets"].setdefault(name, facts) != facts:
        sys.exit(f"the results kept for {name} have other numbers of splits or seeds: use those, or leave --keep out.")
    for method in methods:
        if problem.task not in method.tasks:
            continue
        used = seeds if method.is_private else 1
        cells = [[split, noise_seed(asked.seed, split, number)] for split in range(splits) for number in range(used)]
        orders = [
            {"method": method.key, "epsilon": epsilon, "options": method.options, "cells": cells}
            | {"grid": method.grid(problem), "tuning_seed": TUNING, "tuned_on": method.tuned_on}
            for epsilon in (asked.epsilons if method.is_private else [None])
        ]
        again = {(name, method.key, order["epsilon"]) for order in orders}
        run["records"] = [one for one in run["records"] if (one["set"], one["method"], one["epsilon"]) not in again]
        who = f"{method.label}, {name}"
        print(f"{who}: {len(cells)} fits at each of {len(orders)} epsilons ...", flush=True)
        try:
            records = work_through(method, name, orders, asked, work)
            failed = [f"epsilon {one['epsilon']}, {one['failed']}" for one in records if "failed" in one]
            run["records"] += [one for one in records if "failed" not in one]
        except Unavailable as reason:
            failed = [str(reason)]
        run["skipped"].pop(who, None)
        if failed:
            skip(run, who, "; ".join(failed))


def noise_seed(seed: int, split: int, number: int) -> int:
    """Seed of a peer's noise; dperm draws its own, fresh every time."""
    return int(np.random.SeedSequence([seed, split, number]).generate_state(1)[0]) % TUNING


def work_through(
    method: Method, name: str, orders: list[dict[str, Any]], asked: argparse.Namespace, work: Path
) -> list[dict[str, Any]]:
    """Let a worker carry out its orders."""
    ordered, done = work / "orders.json", work / "results.jsonl"
    ordered.write_text(json.dumps(orders))
    done.unlink(missing_ok=True)
    run_worker(method.environment, asked.cache, method.script, work / f"{name}.npz", ordered, done)
    return [json.loads(line) for line in done.read_text().splitlines()]


def measure_time(methods: list[Method], asked: argparse.Namespace, run: dict[str, Any], work: Path) -> None:
    """Time alternating fits of a9a by dperm and Opacus; each Opacus fit has a new worker, so that it calibrates."""
    order = {"epsilon": 1.0, "grid": [], "tuning_seed": TUNING}
    turns = []
    try:
        for repeat in range(1 if asked.fast else 3):
            took = {}
            for method in methods:
                if method.key in ("opacus", "dperm"):
                    cells = [[0, repeat]] * (1 if method.key == "opacus" else 3)
                    asked_of = [{**order, "method": method.key, "options": method.options, "cells": cells}]
                    records = work_through(method, "a9a", asked_of, asked, work)
                    if any("failed" in one for one in records):
                        raise Unavailable(f"{method.label} failed")
                    took[method.key] = [
                        float(np.median([one[clock] for one in records])) for clock in ("seconds", "cpu_seconds")
                    ]
            ratios = [theirs / ours for theirs, ours in zip(took["opacus"], took["dperm"], strict=True)]
            turns.append(
                {"opacus": took["opacus"][0], "dperm": took["dperm"][0], "ratio": ratios[0], "cpu_ratio": ratios[1]}
            )
    except Unavailable as reason:
        skip(run, "timing", str(reason))
        return
    run["skipped"].pop("timing", None)
    run["timing"] = turns


def panel(name: str, run: dict[str, Any], methods: list[Method]) -> dict[str, Any]:
    """Return the data of one panel of the figure."""
    curves, lines = [], []
    for method in methods:
        found = [one for one in run["records"] if one["set"] == name and one["method"] == method.key]
        if not found:
            continue
        if not method.is_private:
            lines.append({"label": method.label, "value": mean_and_error(found, "score")[0]})
            continue
        epsilons = sorted({one["epsilon"] for one in found})
        points = [mean_and_error([one for one in found if one["epsilon"] == value], "score") for value in epsilons]
        means, errors = zip(*points, strict=True)
        label = method.label if method.neighbours in method.label else f"{method.label}, {method.neighbours}"
        curves.append({"label": label, "epsilon": epsilons, "mean": means, "error": errors})
    return {"title": name, "score": SCORES[run["facts"]["sets"][name]["task"]], "curves": curves, "lines": lines}


if __name__ == "__main__":
    main()
