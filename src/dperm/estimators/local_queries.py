"""Queries in the local model: marginals of bits and means of smooth functions, from one bit per person."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from sklearn.exceptions import NotFittedError

from dperm.errors import InvalidBounds, InvalidData, InvalidInput
from dperm.privacy.ledger import Ledger
from dperm.privacy.one_bit import OneBit
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import Chebyshev, Counts, Parity, Task
from dperm.solvers.local.conjunctions import Conjunction, best_conjunction, conjunction

from .local_report import checked_ledger, collection_charged, local_report, task_charged

__all__ = ["Answer", "Marginals", "SmoothQueries"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Answer:
    """An estimate, its standard deviation (noise and sampling) and a bound on its bias."""

    value: float
    deviation: float
    bias: float

    @property
    def error(self) -> float:
        """Bound on the root mean squared error."""
        return math.hypot(self.deviation, self.bias)


class _Queries:
    """What both kinds of queries share: a task, a collection, and what it cost."""

    task: Task
    ledger: Ledger | None
    insecure_seed: int | None

    def fit(self, X: Any) -> Self:
        """Simulate the collection with one person per row; charges the ledger with every call."""
        records = self._records(X)
        source = RandomSource(self.insecure_seed)
        fingerprint = None if self.ledger is None else self.ledger.fingerprint([np.ascontiguousarray(records)])
        with collection_charged(self.ledger, self.task, source, fingerprint) as charged:
            counts = self.task.collect(records, source)
        return self._take(counts, source, charged)

    def fit_counts(self, counts: Counts) -> Self:
        """Take the counts of a collection; charges the ledger once per task."""
        if not isinstance(counts, Counts):
            raise InvalidInput(f"counts must be the Counts of a task, not {type(counts).__name__}.")
        self.task.scaled_sums(counts)  # refuses those of another task before anything is charged
        return self._take(counts, None, task_charged(self.ledger, self.task))

    def _records(self, X: Any) -> NDArray[Any]:
        """What people report on."""
        return self.task.sketch.records(X)

    def _take(self, counts: Counts, source: RandomSource | None, charged: dict[str, Any]) -> Self:
        self.means_, self.variances_ = self.task.scaled_sums(counts)
        self.counts_ = counts
        self.privacy_report_ = local_report(self.task, counts.n_people, {}, (), source, charged)
        return self

    def _check_fitted(self) -> None:
        if not hasattr(self, "counts_"):
            raise NotFittedError(f"{type(self).__name__} has no counts yet: call fit or fit_counts first.")


class Marginals(_Queries):
    """Marginals of up to ``k`` of a record's bits, all of them from one collection.

    Records are rows of numbers; entries above 1/2 are ones.

    Guarantee
    ---------
    Released, to everyone: a random set of bits and one bit per person, (epsilon, 0)-DP for the person against any other
    record. Assumes one report per person. Every answer is computed from counts of reports.

    Parameters
    ----------
    epsilon : float
        Epsilon of a person's report, between 0.001 and 16.
    n_bits : int
        Number of bits of a record.
    k : int
        Largest number of bits in a marginal.
    n_people : int
        Public number of people expected; decides how much bias is worth taking.
    degree : int, optional
        Degree of the polynomial that stands for a conjunction of ``k`` bits; the one of least error if not given.
    ledger : Ledger, optional
        Where a collection is charged, epsilon for every person.
    insecure_seed : int, optional
        Makes a simulated collection reproducible, for tests; voids the guarantee.

    Examples
    --------
    >>> import numpy as np
    >>> bits = np.random.default_rng(0).random((100_000, 4)) < 0.5
    >>> answer = Marginals(4.0, n_bits=4, k=2, n_people=100_000).fit(bits).query([0, 2])
    >>> abs(answer.value - 0.25) < 0.05
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        n_bits: int,
        k: int,
        n_people: int,
        degree: int | None = None,
        ledger: Ledger | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        for name, value in (("n_bits", n_bits), ("k", k), ("n_people", n_people)):
            _whole(name, value)
        if not k <= n_bits:
            raise InvalidInput(f"k must not exceed n_bits = {n_bits}, not {k!r}.")
        self.epsilon, self.n_bits, self.k, self.n_people = epsilon, n_bits, k, n_people
        self.ledger, self.insecure_seed = checked_ledger(ledger), insecure_seed
        gain = OneBit(epsilon).gain
        self.polynomial: Conjunction = (
            best_conjunction(k, n_bits, n_people, gain) if degree is None else conjunction(k, degree)
        )
        levels = self.polynomial.levels(n_bits)
        # a size of sets that the polynomial hardly uses is asked for now and then, so that smaller marginals have it
        levels = np.maximum(levels, 1e-3 * levels.max())
        self.task = Task("marginals", epsilon, Parity(n_bits, tuple((levels / levels.sum()).tolist())))

    @property
    def expected_error(self) -> Answer:
        """Bias and deviation of a marginal of ``k`` bits, before anybody is asked."""
        deviation = self.polynomial.deviation(self.n_bits, self.n_people, self.task.bit.gain)
        return Answer(math.nan, deviation, self.polynomial.bias)

    def query(self, columns: Sequence[int], values: Sequence[int] | None = None) -> Answer:
        """Estimate the share of people whose ``columns`` hold ``values`` (all ones if not given)."""
        self._check_fitted()
        chosen = [int(column) for column in columns]
        wanted = [1] * len(chosen) if values is None else [int(value) for value in values]
        if not 1 <= len(chosen) <= self.k or len(set(chosen)) < len(chosen):
            raise InvalidInput(f"a marginal needs between 1 and k = {self.k} different columns.")
        if not all(0 <= column < self.n_bits for column in chosen):
            raise InvalidInput(f"columns must be between 0 and {self.n_bits - 1}.")
        if len(wanted) != len(chosen) or not set(wanted) <= {0, 1}:
            raise InvalidInput("values must hold 0 or 1 for every column.")
        short = min(len(chosen), self.polynomial.degree)
        polynomial = self.polynomial if len(chosen) == self.k else self._shorter(len(chosen), short)
        total, variance = polynomial.weights[0], 0.0
        for r in range(1, polynomial.degree + 1):
            subsets = list(combinations(range(len(chosen)), r))
            masks = [sum(1 << chosen[i] for i in subset) for subset in subsets]
            # the polynomial counts unwanted bits; a parity counts ones
            signs = np.array([(-1.0) ** sum(wanted[i] for i in subset) for subset in subsets])
            index = self.task.sketch.find(masks, r)  # type: ignore[attr-defined]
            total += polynomial.weights[r] * float(signs @ self.means_[index])
            variance += polynomial.weights[r] ** 2 * float(self.variances_[index].sum())
        return Answer(min(1.0, max(0.0, total)), math.sqrt(variance), polynomial.bias)

    def _shorter(self, k: int, most: int) -> Conjunction:
        """Return the best polynomial for fewer bits, of what was asked."""
        per_level = [self.variances_[int(self.task.sketch.sizes[:r].sum())] for r in range(most)]

        def error(one: Conjunction) -> float:
            noise = sum(math.comb(k, r) * one.weights[r] ** 2 * per_level[r - 1] for r in range(1, one.degree + 1))
            return float(one.bias**2 + noise)

        return min((conjunction(k, degree) for degree in range(1, most + 1)), key=error)


class SmoothQueries(_Queries):
    """Means of any smooth function of a record of few numbers, all of them from one collection.

    Guarantee
    ---------
    Released, to everyone: a random pair of degrees and one bit per person, (epsilon, 0)-DP for the person against any
    other record. Assumes one report per person. Every answer is computed from counts of reports.

    Parameters
    ----------
    epsilon : float
        Epsilon of a person's report, between 0.001 and 16.
    low, high : sequence of float
        Declared bounds of every column; values outside are clipped.
    n_degrees : int
        Chebyshev polynomials of degrees below this in every column are asked for; 8 suits functions that vary on the
        scale of half the range.
    decay : float
        A statistic is asked for in proportion to ``decay`` to the power of the sum of its degrees: smoother functions
        have faster decaying coefficients.
    ledger : Ledger, optional
        Where a collection is charged, epsilon for every person.
    insecure_seed : int, optional
        Makes a simulated collection reproducible, for tests; voids the guarantee.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(0, 10, (100_000, 1))
    >>> answer = SmoothQueries(4.0, low=[0], high=[10]).fit(x).query(lambda x: np.exp(-(((x[:, 0] - 5) / 4) ** 2)))
    >>> abs(answer.value - 0.65) < 0.1
    True
    """

    _NODES = 64

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        low: Sequence[float],
        high: Sequence[float],
        n_degrees: int = 8,
        decay: float = 0.5,
        ledger: Ledger | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        _whole("n_degrees", n_degrees)
        if not 2 <= n_degrees <= self._NODES // 2:
            raise InvalidInput(f"n_degrees must be between 2 and {self._NODES // 2}, not {n_degrees!r}.")
        if not 0.0 < decay <= 1.0:
            raise InvalidInput(f"decay must be above 0 and at most 1, not {decay!r}.")
        self.low, self.high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        ends = self.low.ndim == 1 and self.low.shape == self.high.shape and 1 <= self.low.size <= 3
        if not ends or not np.isfinite(self.high - self.low).all() or not (self.low < self.high).all():
            raise InvalidBounds("low and high must hold finite bounds of 1 to 3 columns, low below high.")
        self.epsilon, self.n_degrees, self.decay = epsilon, n_degrees, decay
        self.ledger, self.insecure_seed = checked_ledger(ledger), insecure_seed
        degrees = [r for r in product(range(n_degrees), repeat=self.low.size) if any(r)]
        shares = np.array([decay ** sum(r) for r in degrees])
        sketch = Chebyshev(tuple(degrees), tuple((shares / shares.sum()).tolist()))
        inputs = {"low": self.low.tolist(), "high": self.high.tolist()}
        self.task = Task("smooth queries", epsilon, sketch, inputs=inputs)

    def _records(self, X: Any) -> NDArray[Any]:
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.low.size or X.dtype.kind not in "biuf":
            raise InvalidData(f"X must be an array of numbers with {self.low.size} columns, one row per person.")
        middle, half = self.low / 2.0 + self.high / 2.0, self.high / 2.0 - self.low / 2.0
        return np.asarray((X - middle) / half)

    def query(self, function: Callable[[FloatArray], Any]) -> Answer:
        """Estimate the mean of ``function``, which maps records of shape (m, d) to m numbers.

        ``deviation`` bounds the standard deviation; ``bias`` sums the coefficients of degrees that were not asked for.
        """
        self._check_fitted()
        d, nodes = self.low.size, self._NODES if self.low.size < 3 else self._NODES // 2
        axis = np.cos(np.pi * (np.arange(nodes) + 0.5) / nodes)
        grid = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
        points = self.low + (grid + 1.0) / 2.0 * (self.high - self.low)
        values = np.asarray(function(points), np.float64)
        if values.shape != (len(points),) or not np.isfinite(values).all():
            raise InvalidInput("a query must give one finite number for every record inside the bounds.")
        coefficients = fft.dctn(values.reshape((nodes,) * d), type=2) / nodes**d
        for one in range(d):
            np.moveaxis(coefficients, one, 0)[0] /= 2.0
        asked = coefficients[tuple(slice(self.n_degrees) for _ in range(d))]
        left_out = float(np.abs(coefficients).sum() - np.abs(asked).sum())
        weights = asked.ravel()[1:]
        value = float(asked.ravel()[0] + weights @ self.means_)
        return Answer(value, math.sqrt(float(weights**2 @ self.variances_)), left_out)


def _whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidInput(f"{name} must be a whole number of 1 or more, not {value!r}.")
