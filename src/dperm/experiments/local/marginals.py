"""k-way marginals in the local model: polynomials of low degree against exact parities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from dperm import Marginals
from dperm.experiments.datasets import DataFolder, Dataset
from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.local.people import PAPER
from dperm.experiments.result import Baseline, Measured, Result, ResultRow
from dperm.solvers.local.conjunctions import krawtchouk
from dperm.types import BoolArray

__all__ = ["EXPERIMENT", "FILE", "MarginalSettings", "uncut", "worst_population"]

FILE = "a9a.npz"
_CORRELATED = 0.6  # share of a person's bits that follow a common one, in made data
_MADE = "made: correlated bits"
_WHY = "the paper leaves the method to a supplement and prints no measurements"


@dataclass(frozen=True)
class MarginalSettings:
    """Bits, size of a marginal, people, epsilon, collections, marginals that are asked, and degrees."""

    n_bits: int
    k: int
    n: int
    a9a_bits: int
    a9a_k: int
    runs: int
    asked: int
    degrees: tuple[int | None, ...]
    epsilon: float = 1.0
    seed: int = 8


def worst_population(model: Marginals, n: int, rng: np.random.Generator) -> tuple[BoolArray, int]:
    """Bits for which disjoint marginals have the largest bias: every person has the worst number of zeros.

    The polynomial that approximates a marginal is furthest from 0 there.
    """
    polynomial, n_bits, k = model.polynomial, model.n_bits, model.k
    g = [sum(w * krawtchouk(r, t, k) for r, w in enumerate(polynomial.weights)) for t in range(1, k + 1)]
    zeros = 1 + int(np.argmax(np.abs(g)))
    bits = np.ones((n, n_bits), bool)
    for block in range(n_bits // k):
        start = rng.integers(0, k, n, dtype=np.int8)
        for place in range(k):
            bits[:, block * k + place] = (place - start) % k >= zeros
    return bits, zeros


def uncut(model: Marginals, columns: range) -> float:
    """Return an all-ones marginal before it is clipped to [0, 1], which would hide half of the noise."""
    polynomial, total = model.polynomial, model.polynomial.weights[0]
    sketch: Any = model.task.sketch
    for r in range(1, polynomial.degree + 1):
        masks = [sum(1 << c for c in subset) for subset in combinations(columns, r)]
        total += polynomial.weights[r] * (-1.0) ** r * float(model.means_[sketch.find(masks, r)].sum())
    return total


# ------------------------------------------------------------------------------------------ populations
def _made(settings: MarginalSettings) -> BoolArray:
    """People whose bits follow a common one in part, so that marginals are far from products."""
    rng = np.random.default_rng(settings.seed)
    level = rng.uniform(0.6, 0.98, settings.n_bits)
    common = rng.random((settings.n, 1))
    own = rng.random((settings.n, settings.n_bits), dtype=np.float32)
    follows = rng.random((settings.n, settings.n_bits), dtype=np.float32) < _CORRELATED
    return np.asarray(np.where(follows, common, own) < level)


def _a9a(data: DataFolder, settings: MarginalSettings) -> tuple[BoolArray, str, int | None]:
    """Return the columns of a9a that are closest to half of the people."""

    def made() -> Dataset:
        rng = np.random.default_rng(settings.seed + 1)
        X = (rng.random((48_842, 2 * settings.a9a_bits)) < rng.uniform(0.1, 0.9, 2 * settings.a9a_bits)).astype(float)
        return Dataset(X, np.zeros(len(X)), len(X), "made: independent bits", settings.seed + 1)

    found = data.read(FILE, made)
    shares = np.asarray(found.X.mean(axis=0)).ravel()
    columns = np.sort(np.argsort(np.abs(shares - 0.5), kind="stable")[: settings.a9a_bits])
    chosen = found.X[:, columns]
    dense = chosen if isinstance(chosen, np.ndarray) else chosen.toarray()
    bits = np.asarray(dense)[: settings.n] > 0.5
    return bits, found.origin, found.seed


def _columns(n_bits: int, k: int, settings: MarginalSettings) -> list[list[int]]:
    rng = np.random.default_rng(settings.seed)
    return [sorted(rng.choice(n_bits, k, replace=False).tolist()) for _ in range(settings.asked)]


def _truth(bits: BoolArray, columns: list[int]) -> float:
    return float(bits[:, columns].all(axis=1).mean())


# ------------------------------------------------------------------------------------------ collections
def _model(n_bits: int, k: int, n: int, degree: int | None, settings: MarginalSettings) -> Marginals:
    return Marginals(
        settings.epsilon, n_bits=n_bits, k=k, n_people=n, degree=None if degree is None else min(degree, k)
    )


def _ordinary(
    population: Callable[[], BoolArray], k: int, degree: int | None, settings: MarginalSettings
) -> dict[str, Any]:
    """Return root mean square errors of the collections, and what the planner states; every person is simulated."""
    bits = population()
    columns = _columns(bits.shape[1], k, settings)
    truth = [_truth(bits, one) for one in columns]
    model = _model(bits.shape[1], k, len(bits), degree, settings)
    errors, inside = [], []
    for _ in range(settings.runs):
        model.fit(bits)
        answers = [model.query(one) for one in columns]
        off = [answer.value - value for answer, value in zip(answers, truth, strict=True)]
        errors.append(float(np.sqrt(np.mean(np.square(off)))))
        inside += [abs(one) <= answer.bias + 2.0 * answer.deviation for one, answer in zip(off, answers, strict=True)]
    stated = model.expected_error
    return {
        "errors": errors,
        "inside": float(np.mean(inside)),
        "degree": model.polynomial.degree,
        "deviation": stated.deviation,
        "bias": stated.bias,
    }


def _worst(degree: int | None, settings: MarginalSettings) -> dict[str, Any]:
    """The same for the population with the largest bias, without the final clipping."""
    model = _model(settings.n_bits, settings.k, settings.n, degree, settings)
    errors, zeros = [], 0
    for run in range(settings.runs):
        bits, zeros = worst_population(model, settings.n, np.random.default_rng([settings.seed, run]))
        model.fit(bits)
        blocks = range(settings.n_bits // settings.k)
        off = [uncut(model, range(block * settings.k, (block + 1) * settings.k)) for block in blocks]
        errors.append(float(np.sqrt(np.mean(np.square(off)))))
    return {"errors": errors, "zeros": zeros, "degree": model.polynomial.degree, "stated": model.expected_error.error}


def measure(run: Run) -> Result:
    """Ask for marginals of both populations, with several degrees."""
    settings: MarginalSettings = run.settings
    populations: dict[str, tuple[Callable[[], BoolArray], int]] = {
        f"made, k = {settings.k}": (partial(_made, settings), settings.k),
        f"a9a, k = {settings.a9a_k}": (lambda: _a9a(run.data, settings)[0], settings.a9a_k),
    }
    tasks: dict[str, Any] = {
        f"{name}, degree {degree or 'chosen'}": partial(_ordinary, population, k, degree, settings)
        for name, (population, k) in populations.items()
        for degree in settings.degrees
        if degree is None or degree <= k
    }
    tasks |= {f"worst, degree {degree or 'chosen'}": partial(_worst, degree, settings) for degree in settings.degrees}
    found = run.pieces(tasks)
    rows, baselines = [], []
    for name, one in found.items():
        if name.startswith("worst"):
            what = f"{name} ({one['degree']}), k = {settings.k}: error"
            why = f"{_WHY}; stated {one['stated']:.3g} for everybody with {one['zeros']} zeros"
        else:
            what = f"{name} ({one['degree']}): error"
            stated = f"stated deviation {one['deviation']:.3g}, bias at most {one['bias']:.3g}"
            why = f"{_WHY}; {stated}; {one['inside']:.0%} within bias and two deviations"
        rows.append(ResultRow(what, Measured.over(one["errors"]), None, None, why))
    for name, (population, k) in populations.items():
        bits = population()
        origin, seed = (
            ("made: correlated bits", settings.seed) if name.startswith("made") else _a9a(run.data, settings)[1:]
        )
        baselines.append(_baseline(name, bits, k, settings, origin, seed))
    notes = (
        f"Errors are root mean squares over {settings.asked} all-ones marginals, one collection at epsilon "
        f"{settings.epsilon:g} each; every person sends one bit. A degree of k is exact parities; dperm chooses the "
        "degree with the smallest bound on the mean squared error.",
        "Worst: populations whose every marginal has the largest possible bias; answers are not clipped to [0, 1].",
        "Without privacy: a sample of as many people, drawn with replacement, against the population; null: every "
        "marginal is 2^-k, as for fair bits.",
    )
    return Result(tuple(rows), tuple(baselines), notes=notes)


def _baseline(
    name: str, bits: BoolArray, k: int, settings: MarginalSettings, origin: str, seed: int | None
) -> Baseline:
    columns = _columns(bits.shape[1], k, settings)
    truth = np.array([_truth(bits, one) for one in columns])
    # the standard deviation of a share among n people
    sampling = float(np.sqrt(np.mean(truth * (1.0 - truth) / len(bits))))
    null = float(np.sqrt(np.mean((truth - 2.0**-k) ** 2)))
    return Baseline(name, origin, len(bits), bits.shape[1], seed, "error", sampling, null)


EXPERIMENT = Experiment(
    name="local-marginals",
    paper=PAPER,
    what="k-way marginals from one bit per person: polynomials of several degrees",
    minutes=1.3,
    measure=measure,
    full=MarginalSettings(
        n_bits=32, k=8, n=1_000_000, a9a_bits=16, a9a_k=3, runs=4, asked=100, degrees=(None, 2, 3, 4, 5, 6, 8)
    ),
    fast=MarginalSettings(n_bits=12, k=4, n=20_000, a9a_bits=8, a9a_k=3, runs=2, asked=20, degrees=(None, 2, 4)),
    data=(FILE,),
)
