"""The server of Theorems 5 and 6: a polynomial-time minimiser in place of the grid, for more than three parameters."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from dperm.experiments.charts import Curve, Panel
from dperm.experiments.experiment import Experiment, Run
from dperm.experiments.local.people import PAPER, LogisticPopulation
from dperm.experiments.local.published import (
    REPAIR_B,
    largest_loss,
    mechanism_named,
    scaled_lipschitz,
    scaled_loss,
    weights_at,
)
from dperm.experiments.result import Measured, Result, ResultRow
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local.bernstein import GRID_PARAMETERS, BernsteinPolynomial
from dperm.solvers.theory.approximate_convexity import ball_conditioning, near_convex_error
from dperm.types import FloatArray

__all__ = ["EXPERIMENT", "ServerSettings"]

GRID, SMOOTHED = "grid", "polynomial time"
_DIAMETER_ONE = 0.5  # radius of the theorem's ball


@dataclass(frozen=True)
class ServerSettings:
    """Columns, people and collections; k and order of the polynomial."""

    columns: tuple[int, ...]
    n: int
    runs: int
    k: int = 2
    order: int = 2
    seed: int = 5


def _population(p: int, seed: int) -> LogisticPopulation:
    # the same length for every p, so that the problems are comparable
    weights = np.random.default_rng([seed, p]).normal(size=p)
    weights *= 1.5 / np.linalg.norm(weights)
    return LogisticPopulation.of(p, np.random.default_rng(seed), weights)


def _excess(population: LogisticPopulation, w: FloatArray) -> float:
    return (population.risk(w) - population.risk(population.weights)) / largest_loss(len(w))


def _servers(p: int, settings: ServerSettings) -> dict[str, list[list[float]]]:
    """Return excess and seconds of every collection, by server; both minimise the same polynomial."""
    population, out = _population(p, settings.seed), {}  # type: ignore[var-annotated]
    mechanism = mechanism_named(REPAIR_B, p, settings.k, order=settings.order)
    deviation, lipschitz = mechanism.deviation(settings.n), scaled_lipschitz(p)
    for run in range(settings.runs):
        records = population.records(settings.n, np.random.default_rng([settings.seed, p, run]))
        values = mechanism.values(scaled_loss, records, RandomSource()).reshape((settings.k + 1,) * p)
        polynomial = BernsteinPolynomial.of_values(values, settings.order)
        servers = {SMOOTHED: partial(polynomial.minimise_nearly_convex, deviation, lipschitz)}
        if p <= GRID_PARAMETERS:
            servers[GRID] = partial(polynomial.minimise, 1e-3)
        for name, server in servers.items():
            began = time.perf_counter()
            found = server()
            seconds = time.perf_counter() - began
            out.setdefault(name, []).append([_excess(population, weights_at(found.point)), seconds, found.gap])
    return out


def measure(run: Run) -> Result:
    """Minimise the same noisy polynomials with both servers."""
    settings: ServerSettings = run.settings
    found = run.pieces({f"{p} columns": partial(_servers, p, settings) for p in settings.columns})
    rows = []
    curves: dict[str, list[tuple[float, float]]] = {}
    times: dict[str, list[tuple[float, float]]] = {}
    for p in settings.columns:
        deviation = mechanism_named(REPAIR_B, p, settings.k, order=settings.order).deviation(settings.n)
        printed = near_convex_error(deviation, p, ball_conditioning(_DIAMETER_ONE))
        for name, fits in found[f"{p} columns"].items():
            excess, seconds, gap = (Measured.over([one[k] for one in fits]) for k in range(3))
            why = "the promise exceeds 1, the largest loss: it says nothing at this noise"
            rows.append(ResultRow(f"p = {p}, {name}: excess", excess, None, f"formula: at most {printed:.3g}", why))
            why = f"the paper gives orders: Poly(1/error), and (1/error)^p for a grid; own gap at most {gap.mean:.3g}"
            rows.append(ResultRow(f"p = {p}, {name}: seconds of the server", seconds, None, None, why))
            curves.setdefault(name, []).append((p, excess.mean))
            times.setdefault(name, []).append((p, seconds.mean))
    null = tuple((float(p), _excess(_population(p, settings.seed), np.zeros(p))) for p in settings.columns)
    panels = (
        Panel(
            f"{settings.n:g} people, epsilon 1",
            "parameters",
            "excess risk",
            (*(Curve(name, tuple(line), marked=True) for name, line in curves.items()), Curve("weights 0", null)),
            log_y=True,
        ),
        Panel(
            "time of the server",
            "parameters",
            "seconds",
            tuple(Curve(name, tuple(line), marked=True) for name, line in times.items()),
            log_y=True,
        ),
    )
    notes = (
        "Both servers get the same polynomial of the same reports (Algorithm 3, repair B, k = "
        f"{settings.k}, h = {settings.order}). The grid finds its lowest point, which is often a dip that noise made; "
        "the other follows gradients of the polynomial smoothed over boxes as wide as the noise asks for, and stays "
        "half a box, at most a quarter of the cube, away from the faces.",
        "The paper's column is Lemma 3 (Risteski and Li) at the stated deviation of the noise, over a ball of diameter "
        "1. Theorem 6 takes so many people that the deviation is below 1/16348.",
        "Excess is of the logistic loss divided by its largest value, in the population.",
    )
    baselines = tuple(
        _population(p, settings.seed).baseline(f"logistic, {p} columns", settings.n, settings.seed)
        for p in settings.columns
    )
    return Result(tuple(rows), baselines, panels, notes, columns=2)


EXPERIMENT = Experiment(
    name="local-server",
    paper=PAPER,
    what="the server of theorems 5 and 6 next to the grid: excess risk and seconds",
    minutes=0.3,
    measure=measure,
    full=ServerSettings(columns=(1, 2, 3, 4, 5, 6), n=1_000_000, runs=10),
    fast=ServerSettings(columns=(2, 4), n=20_000, runs=2),
)
