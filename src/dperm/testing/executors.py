"""Contract of executors: every query has the bits that it has on one block, and only sums over people come back."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dperm.data.design.matrix import DesignMatrix
from dperm.data.design.scaling import Scaling
from dperm.data.executors.executor import Executor, PlacedData, TargetView
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import Query
from dperm.objective import Multinomial
from dperm.privacy.mechanisms.sampled_noise import PoissonSample, Summands
from dperm.privacy.randomness import KeyedWords
from dperm.queries import PerturbedMinimum, QuantileScores
from dperm.queries.perturbed import PeopleObjective
from dperm.queries.sharing import PartyQuery
from dperm.queries.transcript import LabelQuery
from dperm.testing._violation import demand
from dperm.testing.examples import QUERY_EXAMPLES
from dperm.types import FloatArray

__all__ = ["central_examples", "check_executor"]

#: makes an executor from a table, its targets, the scaling and the height of the intercept
Place = Callable[[FloatArray, FloatArray, Scaling, float], Executor]

_N_ROWS, _N_FEATURES = 300, 5


def central_examples(rng: Any, facts: Any, n_classes: int) -> Iterator[Query]:
    """Yield an example of every query of the central setting that reads scaled rows."""
    for make in QUERY_EXAMPLES.values():
        for query in make(rng, facts):
            of_table = isinstance(query, QuantileScores | PartyQuery | LabelQuery)
            fits = isinstance(getattr(query, "loss", None), Multinomial) == (n_classes == 3)
            if not of_table and fits:
                yield query


def check_executor(place: Place, seed: int = 0, every: int = 1) -> int:
    """Run central queries on an executor and on one block; returns how many were compared.

    ``every`` takes each of so many examples of every query, the first one always, for executors that need a moment for
    each.

    Raises
    ------
    ContractViolation
        If a bit differs, if a query cannot be sent to another process, or if a part grows with the number of rows.
    """
    compared, sizes = 0, list[list[int]]()
    for n_classes, n_rows in ((2, _N_ROWS), (3, _N_ROWS), (2, 2 * _N_ROWS)):
        rng = np.random.default_rng([seed, n_classes])
        X = rng.normal(0.0, 1.5, (n_rows, _N_FEATURES))
        target = rng.integers(0, n_classes, n_rows).astype(np.float64)
        for row_norm, height in ((None, 1.0), (1.2, 0.0)):
            scaling = Scaling(np.linspace(-0.2, 0.3, _N_FEATURES), np.linspace(0.5, 2.0, _N_FEATURES), 1.0, row_norm)
            whole = DesignData(DesignMatrix.from_array(X, scaling, height), target, 0.0, n_classes - 1.0)
            sums = _Sums(place(X, target, scaling, height))
            placed = PlacedData(sums, TargetView(0.0, n_classes - 1.0))
            demand(placed.facts == whole.facts, "the executor states other public facts than the design.")
            demand(placed.n_rows == n_rows, "the executor has another number of rows than the table.")
            examples = central_examples(np.random.default_rng([seed, 7]), whole.facts, n_classes)
            for query in _thinned(examples, every):
                sums.query = query.name
                sums.sizes.append(0)
                _demand_same(pickle.loads(pickle.dumps(query)).evaluate(placed), query.evaluate(whole), query)
                compared += 1
            if n_classes == 2 and row_norm is None:
                sizes.append(sums.sizes)
    demand(sizes[0] == sizes[1], "a part of a query has another size for another number of rows.")
    demand(compared > 0, "no query was compared.")
    return compared


def _thinned(examples: Iterator[Query], every: int) -> Iterator[Query]:
    """Yield each of so many examples of every query; each query has its first, however few examples it has."""
    seen = Counter[str]()
    for query in examples:
        if seen[query.name] % every == 0:
            yield query
        seen[query.name] += 1


@dataclass
class _Sums(Executor):
    """Records the sizes of what comes back from an executor."""

    inner: Executor

    def __post_init__(self) -> None:
        self.shape, self.n_rows = self.inner.shape, self.inner.n_rows
        self.query, self.sizes = "", list[int]()

    def parts(self, work: Any, view: TargetView) -> Iterator[FloatArray]:
        found = list(self.inner.parts(work, view))
        shapes = {np.shape(part) for part in found}
        demand(len(shapes) == 1, f"the parts of {self.query!r} have different shapes.")
        self.sizes[-1] = max(self.sizes[-1], int(np.prod(shapes.pop())))
        return iter(found)


def _demand_same(one: Any, two: Any, query: Query) -> None:
    problem = f"{query.name!r} has another value on the executor than on one block."
    if isinstance(two, Summands):
        for rate in (0.3, 1.0):
            sample = PoissonSample(rate, KeyedWords(bytes(32)))
            demand(np.array_equal(one.total(sample), two.total(sample)), problem)
    elif isinstance(two, PeopleObjective):
        assert isinstance(query, PerturbedMinimum)
        linear = np.linspace(-1.0, 1.0, two.size)
        for weights in (np.zeros(two.size), linear):
            demand(np.array_equal(one.gradient(weights, linear), two.gradient(weights, linear)), problem)
        demand(np.array_equal(one.minimise(linear, 1e-3), two.minimise(linear, 1e-3)), problem)
    else:
        demand(np.array_equal(np.asarray(one), np.asarray(two)), problem)
