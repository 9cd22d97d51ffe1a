"""Common part of the workers: read a problem and its orders, fit, and write one line of JSON per fit.

A worker is a script that calls :func:`main` with its own ``fit``. It is started by ``benchmarks/peers.py`` with the
Python of the environment it needs, one thread, and these arguments: the problem, the orders, the file of results.
"""

from __future__ import annotations

import json
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from peers_data import Problem


@dataclass
class Order:
    """One requested fit."""

    method: str
    epsilon: float
    delta: float
    seed: int
    options: dict[str, Any]


@dataclass
class Outcome:
    """A fit, as the function that predicts scaled rows: log odds (or any score above 0 for label 1), or the target.

    ``calibration_seconds`` is the part of the time that went into a search for the noise; 0 when an earlier fit of the
    same worker had already made the search. ``mu`` is known of a fit that is Gaussian-DP.
    """

    predict: Callable[[Any], Any]
    calibration_seconds: float = 0.0
    mu: float | None = None

    @classmethod
    def linear(cls, coef: Any, intercept: float, **facts: Any) -> Outcome:
        """A linear fit, given by its weights in scaled units."""
        return cls(lambda X: X @ coef + intercept, **facts)


Fit = Callable[[Problem, Any, Any, Order], Outcome]


def main(fit: Fit, *, warm_up: bool = False) -> None:
    """Carry out all orders; the first failure of a method at an epsilon ends that pair with one sentence.

    With ``warm_up`` the first order is carried out once before anything is timed: kernels are compiled, caches filled.
    """
    problem_path, orders_path, results_path = sys.argv[1:4]
    problem = Problem.load(problem_path)
    with open(orders_path) as file:
        asked = json.load(file)
    if warm_up and asked:
        list(_records(problem, [{**asked[0], "cells": asked[0]["cells"][:1]}], fit))
    with open(results_path, "a") as results:
        for record in _records(problem, asked, fit):
            results.write(json.dumps(record) + "\n")
            results.flush()


def _records(problem: Problem, asked: list[dict[str, Any]], fit: Fit) -> Iterator[dict[str, Any]]:
    for group in asked:
        key = {"set": problem.name, "method": group["method"], "epsilon": group["epsilon"]}
        try:
            options = group["options"]
            if group["grid"]:
                options = _best_of(problem, group, fit)
            for split, seed in group["cells"]:
                yield {**key, **_one(problem, group, options, split, seed, fit), "options": options}
        except Exception as error:  # any failure of a peer is reported in the table
            traceback.print_exc()
            yield {**key, "failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}


def _one(problem: Problem, group: dict[str, Any], options: Any, split: int, seed: int, fit: Fit) -> dict[str, Any]:
    X, y, X_test, y_test = problem.split(split)
    order = Order(group["method"], group["epsilon"], problem.delta, seed, options)
    start, start_cpu = time.perf_counter(), time.process_time()
    outcome = fit(problem, X, y, order)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    return {
        "split": split,
        "seed": seed,
        "score": problem.score(y_test, outcome.predict(X_test)),
        "train_loss": problem.train_loss(y, outcome.predict(X)),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "calibration_seconds": outcome.calibration_seconds,
        "mu": outcome.mu,
    }


def _best_of(problem: Problem, group: dict[str, Any], fit: Fit) -> dict[str, Any]:
    """Return the options with the least train loss or the best test score, on noise that no reported fit uses."""
    tried = []
    for options in group["grid"]:
        merged = {**group["options"], **options}
        fits = [
            _one(problem, group, merged, split, group["tuning_seed"], fit) for split in range(min(problem.n_splits, 3))
        ]
        costs = [one["train_loss"] if group["tuned_on"] == "train_loss" else -one["score"] for one in fits]
        tried.append((sum(costs), merged))
    finite = [one for one in tried if math.isfinite(one[0])]
    return min(finite, key=lambda one: one[0])[1]
