"""Measure the local model: excess risk, people needed, marginals, smooth queries, coverage, the planner, speed.

Everything is random in each run: populations use the operating system's entropy, bits are drawn as in production. One
run writes benchmarks/results/local.md (tables), local.json (numbers) and local.png (risk against the number of people).
Run: python benchmarks/local_figures.py [--fast] [--only PART ...], the parts being risk, people, surrogate, planner,
weak, rounds, projected, coverage, regression, marginals, smooth and speed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from local_queries_figures import marginals, smooth, speed
from local_weak_figures import projected, rounds, summary, weak
from peers_environments import Unavailable, run_worker
from scipy import stats

import dperm
from dperm import Bounds, LocalLinearRegression, LocalLogisticRegression
from dperm.experiments.local.people import SIZE, LogisticPopulation, drawn
from dperm.experiments.local.published import ALGORITHM_2, REPAIR_A, REPAIR_B, published_weights
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import LinearTask, ThetaGridTask

HERE = Path(__file__).resolve().parent
UNIT = Bounds(features=(-1, 1), row_norm=1.0)
MOMENTS, GRID, NULL = "dperm, moments", "dperm, theta-grid", "weights 0"


def logistic(**options):
    return LocalLogisticRegression(1.0, **{"bounds": UNIT, "fit_intercept": False, "refuse_hopeless": False, **options})


# ------------------------------------------------------------------------------------------ excess risk
def risk(fast):
    """Excess risk with every person simulated; targets in units of 1e-4."""
    plan = [(1, 10_000, 400, 5.0), (2, 100_000, 100, 5.0), (3, 1_000_000, 24, 2.0), (5, 1_000_000, 24, 20.0)]
    plan.append((10, 1_000_000, 8, None))
    rows = []
    for p, n, runs, target in plan:
        found = {MOMENTS: [], "unshrunk": [], GRID: [], NULL: []}
        for _ in range(max(4, runs // 8) if fast else runs):
            rng = np.random.default_rng()
            problem = LogisticPopulation.of(p, rng)
            x, y = problem.people(n, rng)
            model = logistic().fit(x, y)
            found[MOMENTS].append(problem.excess(model.coef_[0]))
            records = np.where(y, 1.0, -1.0)[:, None] * x
            task = LinearTask("logistic", 1.0, (1.0,) * p, 2.0, 2.0, degree=model.degree_)
            estimate = task.estimates(task.task.collect(records, RandomSource()))[0]
            found["unshrunk"].append(problem.excess(estimate.unshrunk))
            if p <= 3:
                grid = ThetaGridTask("logistic", 1.0, p, 2.0)
                counts = grid.task.collect(records, RandomSource())
                found[GRID].append(problem.excess(grid.estimate(counts)[0]))
            found[NULL].append(problem.excess(np.zeros(p)))
        row = {"p": p, "n": n, "target": target, "degree": model.degree_}
        rows.append(row | {name: summary(values) for name, values in found.items() if values})
        print(row, {name: round(1e4 * rows[-1][name]["mean"], 2) for name in found if name in rows[-1]}, flush=True)
    return rows


# ------------------------------------------------------------------------------------------ people needed, p = 2
METHODS = (MOMENTS, ALGORITHM_2, REPAIR_A, REPAIR_B)
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)


def people(fast, sizes=SIZES, methods=METHODS):
    """Risk against n at p = 2, every person simulated; published algorithms use the best k and order for every n."""
    curves = {name: [] for name in methods}
    for n in sizes[:-1] if fast and len(sizes) > 1 else sizes:
        # around 1e5 the repaired algorithms start to work: more runs, because their risk varies widely
        runs = 4 if fast else 60 if n == 100_000 else int(np.clip(3e6 / n, 6, 24))
        found = {}
        for _ in range(runs):
            rng = np.random.default_rng()
            problem = LogisticPopulation.of(2, rng)
            x, y = problem.people(n, rng)
            found.setdefault((MOMENTS, 0, 0), []).append(problem.excess(logistic().fit(x, y).coef_[0]))
            for _ in range(3):  # fast: more runs make the reference curve more precise
                found[(MOMENTS, 0, 0)].append(problem.excess(logistic().fit(*problem.people(n, rng)).coef_[0]))
            records = np.where(y, 1.0, -1.0)[:, None] * x
            for name in (name for name in methods if name != MOMENTS):
                if name == ALGORITHM_2 and n > 1_000_000:  # one noisy number per node and person: slow, and no better
                    continue
                for k in (1, 2) if name == ALGORITHM_2 else (1, 2, 3) if n < 1_000_000 else (2, 3, 4, 5):
                    for h, weights in published_weights(name, k, records).items():
                        found.setdefault((name, k, h), []).append(problem.excess(weights))
        for name, curve in curves.items():
            kept = {key: values for key, values in found.items() if key[0] == name}
            if not kept:
                continue
            best = min(kept, key=lambda key: np.mean(kept[key]))
            curve.append({"n": n, "k": best[1], "order": best[2], **summary(kept[best])})
        print(
            n, {name: round(1e4 * c[-1]["mean"], 2) for name, c in curves.items() if c and c[-1]["n"] == n}, flush=True
        )
    times = times_fewer(curves) if set(METHODS) <= set(methods) else []
    return {"curves": curves, "null": float(problem.excess(np.zeros(2))), "times": times}


def merged(before, after):
    """Return the curves of an earlier run with points replaced by those of a later run."""
    curves = dict(before["curves"])
    for name, points in after["curves"].items():
        fresh = {point["n"] for point in points}
        kept = [point for point in before["curves"][name] if point["n"] not in fresh]
        curves[name] = sorted(kept + points, key=lambda point: point["n"])
    return {"curves": curves, "null": after["null"], "times": times_fewer(curves)}


def times_fewer(curves):
    """Factor by which the moments need fewer people than a repaired Algorithm 3 for the same risk."""
    ours_n, ours = (np.array([point[key] for point in curves[MOMENTS]]) for key in ("n", "mean"))
    out = []
    for name in (REPAIR_A, REPAIR_B):
        for point in curves[name]:
            # interpolate on a log-log line through the points of the moments; the risk falls with n
            if ours.min() <= point["mean"] <= ours.max():
                order = np.argsort(ours)
                equal = np.exp(np.interp(np.log(point["mean"]), np.log(ours[order]), np.log(ours_n[order])))
                out.append({"of": name, "n": point["n"], "risk": point["mean"], "times": float(point["n"] / equal)})
    return out


# ------------------------------------------------------------------------------------------ parabola or quartic
def surrogate(fast):
    """Excess risk of both degrees for weights of several lengths, and the planner's choice; counts are drawn."""
    rows = []
    for p, sizes in ((1, (10_000, 100_000, 1_000_000)), (2, (100_000, 1_000_000, 10_000_000))):
        for length in (0.5, 1.0, 1.5, 1.9):
            rng = np.random.default_rng()
            problem = LogisticPopulation.of(p, rng, length * np.ones(p) / np.sqrt(p))
            tasks = [LinearTask("logistic", 1.0, (1.0,) * p, 2.0, 2.0, degree=degree) for degree in (2, 4)]
            chances = [problem.chances(task.task) for task in tasks]
            for n in sizes:
                row = {"p": p, "length": length, "n": n, "taken": logistic().plan(n, p).degree}
                for task, chance in zip(tasks, chances, strict=True):
                    runs = [
                        problem.excess(task.estimates(drawn(task.task, chance, n, rng))[0].weights)
                        for _ in range(20 if fast else 100)
                    ]
                    row[f"degree {task.degree}"] = summary(runs)
                rows.append(row)
    return rows


# ------------------------------------------------------------------------------------------ planner
def planner(fast):
    """Mean excess relative to weights 0 for n around the number below which a fit is refused; counts are drawn."""
    rows = []
    for p in (1, 2, 5, 10):
        rng = np.random.default_rng()
        needed = logistic().plan(1000, p).min_people
        task = LinearTask("logistic", 1.0, (1.0,) * p, 2.0, 2.0)
        problems = [LogisticPopulation.of(p, rng) for _ in range(2 if fast else 4)]
        chances = [problem.chances(task.task) for problem in problems]
        for factor in (0.125, 0.25, 0.5, 1, 2, 4, 8, 32):
            n = max(4, round(factor * needed))
            found = []
            for problem, chance in zip(problems, chances, strict=True):
                null = problem.excess(np.zeros(p))
                for _ in range(10 if fast else 40):
                    weights = task.estimates(drawn(task.task, chance, n, rng))[0].weights
                    found.append(problem.excess(weights) / null)
            rows.append({"p": p, "needed": needed, "n": n, "refused": n < needed, **summary(found)})
    return rows


# ------------------------------------------------------------------------------------------ coverage
def coverage(fast):
    """Coverage of the surrogate's minimiser by 95% intervals over 500 collections; counts are drawn."""
    rows = []
    for p, degree, n in ((1, 2, 10_000), (2, 2, 100_000), (3, 2, 300_000), (1, 4, 30_000), (2, 4, 300_000)):
        rng = np.random.default_rng()
        problem = LogisticPopulation.of(p, rng, np.array([0.8, -0.6, 0.4])[:p])
        task = LinearTask("logistic", 1.0, (1.0,) * p, 2.0, 2.0, degree=degree)
        truth = minimiser(task, problem)
        chance, hits, given, runs = problem.chances(task.task), 0, 0, 100 if fast else 500
        for _ in range(runs):
            estimate = task.estimates(drawn(task.task, chance, n, rng))[0]
            if estimate.covariance is not None:
                off = np.abs(estimate.unshrunk - truth) / np.sqrt(np.diag(estimate.covariance))
                hits, given = hits + int((off <= stats.norm.isf(0.025)).sum()), given + p
        row = {"p": p, "degree": degree, "n": n, "runs": runs}
        rows.append(row | {"given": given / (runs * p), "cover": hits / given})
    return rows


def regression(fast):
    """Coverage for least squares with an intercept, also where few people answer with many levels; all simulated."""
    rows = []
    for p, n, epsilon, n_levels in (
        (1, 1_000, 1.0, 2),
        (1, 4_000, 1.0, 2),
        (1, 20_000, 1.0, 2),
        (2, 20_000, 1.0, 2),
        (2, 3_000, 3.0, 8),
        (1, 300, 4.0, 16),
        (1, 1_000, 4.0, 16),
        (1, 1_000, 16.0, 16),
        (1, 1_000, 8.0, 2),
    ):
        rng, truth = np.random.default_rng(), np.append(np.array([0.3, -0.2])[:p], 0.1)
        inside, given, runs = 0, 0, 100 if fast else 500
        for _ in range(runs):
            x = rng.uniform(-1, 1, (n, p))
            y = x @ truth[:-1] + truth[-1] + rng.uniform(-0.3, 0.3, n)
            bounds = Bounds(features=(-1, 1), target=(-1, 1))
            model = LocalLinearRegression(epsilon, bounds=bounds, refuse_hopeless=False, n_levels=n_levels).fit(x, y)
            if model.intervals_ is not None:
                inside += int(((model.intervals_[:, 0] <= truth) & (truth <= model.intervals_[:, 1])).sum())
                given += p + 1
        row = {"p": p, "n": n, "epsilon": epsilon, "n_levels": n_levels, "runs": runs}
        rows.append(row | {"given": given / (runs * (p + 1)), "cover": inside / given if given else None})
    return rows


def minimiser(task, problem):
    """The population's minimiser of the surrogate, by Newton's method on the population itself."""
    powers = [(2 * k, c) for k, c in enumerate(task.coefficients, start=1)]
    w, target = np.zeros(len(problem.weights)), problem.x.T @ (2.0 * problem.chance - 1.0) / (2.0 * SIZE)
    for _ in range(50):
        s = problem.x @ w
        slope = sum(k * c * s ** (k - 1) for k, c in powers)
        bend = sum(k * (k - 1) * c * s ** (k - 2) for k, c in powers)
        w = w - np.linalg.solve((problem.x * bend[:, None]).T @ problem.x / SIZE, problem.x.T @ slope / SIZE - target)
    return w


PARTS = {
    "risk": risk,
    "people": people,
    "surrogate": surrogate,
    "planner": planner,
    "weak": weak,
    "rounds": rounds,
    "projected": projected,
    "coverage": coverage,
    "regression": regression,
    "marginals": marginals,
    "smooth": smooth,
    "speed": speed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="few repetitions; nothing is written")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="keep the other parts")
    parser.add_argument("--sizes", nargs="+", type=int, help="numbers of people to run again; the others are kept")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="methods of people to run again")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".peers", help="where the figure's environment is")
    options = parser.parse_args()
    folder = HERE / "results"
    kept = folder / "local.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    for name in options.only:
        start = time.perf_counter()
        if name == "people" and (options.sizes or options.methods):
            part = people(options.fast, options.sizes or SIZES, options.methods or METHODS)
            results[name] = merged(results[name], part)
        else:
            results[name] = PARTS[name](options.fast)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
        results["about"] = {"version": dperm.__version__, "python": platform.python_version(), "threads": 1}
        if not options.fast:
            kept.write_text(json.dumps(results, indent=1) + "\n")
    if options.fast:
        print(json.dumps({name: results[name] for name in options.only}, indent=1))
        return
    from local_tables import write_tables

    write_tables(results, folder / "local.md")
    if "people" in results:
        try:
            run_worker("figure", options.cache, "local_figure.py", kept, folder / "local.png")
        except Unavailable as reason:
            print(f"no picture: {reason}")


if __name__ == "__main__":
    main()
