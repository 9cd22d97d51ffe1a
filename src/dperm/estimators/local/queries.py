"""Queries in the local model: marginals of bits and means of smooth functions, from one bit per person.

Proofs: ``linear_models.proof.md`` for what a collection costs, ``solvers/local/conjunctions.proof.md`` for errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from dperm.errors import InvalidBounds, InvalidData, InvalidInput
from dperm.estimators.central.base import check_ledger
from dperm.estimators.ledger_sharing import LedgerSharing
from dperm.estimators.local.report import (
    charge_simulation,
    charge_task,
    check_collection,
    local_report,
)
from dperm.privacy.ledger import Ledger
from dperm.privacy.local.one_bit import OneBit
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import Chebyshev, Counts, Parity, Task
from dperm.solvers.local.chebyshev_expansion import MOST_DEGREES, chebyshev_expansion
from dperm.solvers.local.conjunctions import Conjunction, best_conjunction, conjunction
from dperm.types import FloatArray
from dperm.validation import is_number, non_negative, whole

__all__ = ["Marginals", "QueryAnswer", "SmoothQueries"]


#: rows that are checked at a time, to bound memory
_BLOCK = 1 << 16


@dataclass(frozen=True)
class QueryAnswer:
    """An estimate, its standard deviation (noise and sampling) and its bias.

    For a marginal, ``bias`` is an upper bound. For a smooth query it is an upper bound if the Lipschitz constant of the
    function is given, and otherwise an estimate from many points.
    """

    value: float
    deviation: float
    bias: float

    @property
    def error(self) -> float:
        """Root mean squared error; an upper bound where ``bias`` is one."""
        return math.hypot(self.deviation, self.bias)


class _LocalQueries(LedgerSharing, BaseEstimator):  # type: ignore[misc]
    """Common part of both kinds of queries: the task, the collection and its charge."""

    ledger: Ledger | None
    insecure_seed: int | None
    #: names of the public parameters that determine the task
    _task_parameters: tuple[str, ...]

    @property
    def task(self) -> Task:
        """The task that people answer; its ``schema()`` is all that a device needs."""
        return self._task_and_details()[0]

    def _task_and_details(self) -> tuple[Task, Any]:
        """The task of the current parameters with what else was computed for it; cached until parameters change."""
        # arrays as lists, because the printed form of an array leaves out digits
        given = [getattr(self, name) for name in self._task_parameters]
        key = repr([value.tolist() if hasattr(value, "tolist") else value for value in given])
        if getattr(self, "_cached", (None, None))[0] != key:
            self._cached = key, self._make_task()
        made: tuple[Task, Any] = self._cached[1]
        return made

    def _make_task(self) -> tuple[Task, Any]:
        """Check the parameters and make the task."""
        raise NotImplementedError

    def fit(self, X: Any) -> Self:
        """Simulate a collection with one person per row; every call charges the ledger."""
        check_ledger(self.ledger)
        records = self._records(X)
        source = RandomSource(self.insecure_seed)
        fingerprint = None if self.ledger is None else self.ledger.fingerprint(records)
        with charge_simulation(self.ledger, self.task, source, fingerprint) as charged:
            counts = self.task.collect(records, source)
        return self._set_counts(counts, counts.n_people, charged, simulated=True)

    def fit_counts(self, counts: Counts, *, n_people: int | None = None) -> Self:
        """Take the counts of a collection; charges the ledger once per task.

        ``n_people`` is the number of people who were asked; more reports than people are refused. It is required with a
        ledger, because one charge covers one report per person. To ask the same people again, use another ``version``
        or ``window``.
        """
        if not isinstance(counts, Counts):
            raise InvalidInput(f"counts must be the Counts of a task, not {type(counts).__name__}.")
        self.task.scaled_sums(counts)  # refuses those of another task before anything is charged
        check_ledger(self.ledger)
        people = check_collection(self.ledger, counts, n_people)
        charged = charge_task(self.ledger, self.task, people, secure=counts.secure)
        return self._set_counts(counts, people, charged, simulated=False)

    def _records(self, X: Any) -> NDArray[Any]:
        """The records that people report on."""
        return self.task.sketch.records(X)

    def _set_counts(self, counts: Counts, people: int, charged: dict[str, Any], *, simulated: bool) -> Self:
        self.means_, self.variances_ = self.task.scaled_sums(counts)
        self.counts_ = counts
        public = {"reports": counts.n_people}
        self.privacy_report_ = local_report(
            self.task, people, public, (), charged, simulated=simulated, secure=counts.secure
        )
        return self

    def _check_fitted(self) -> None:
        if not hasattr(self, "counts_"):
            raise NotFittedError(f"{type(self).__name__} has no counts yet: call fit or fit_counts first.")
        if self.counts_.task != self.task.digest:
            raise InvalidInput("the parameters have changed since the counts were taken: call fit or fit_counts again.")


class Marginals(_LocalQueries):
    """Marginals of up to ``k`` of a record's bits, all of them from one collection.

    Records are rows of 0 and 1, or of true and false.

    Notes
    -----
    **Guarantee.**
    Released, to everyone: the index of a randomly drawn set of bits, and one bit per person, (epsilon, 0)-DP for the
    person against any other record. Assumes one report per person. Every answer is computed from counts of reports.

    Parameters
    ----------
    epsilon : float
        Epsilon of a person's report, between 0.001 and 16.
    n_bits : int
        Number of bits of a record.
    k : int
        Largest number of bits in a marginal.
    n_people : int
        Public number of people expected; it decides the trade-off between bias and noise.
    degree : int, optional
        Degree of the polynomial that approximates "all k bits are 1"; by default the one with the smallest error.
    version : int
        Part of the task: raise it to ask the same people again, which is another task with a charge of its own.
    window : str, optional
        Part of the task: a public name of the time in which people report, such as a week.
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
        version: int = 1,
        window: str | None = None,
        ledger: Ledger | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        self.epsilon, self.n_bits, self.k, self.n_people, self.degree = epsilon, n_bits, k, n_people, degree
        self.version, self.window = version, window
        check_ledger(ledger)
        self.ledger, self.insecure_seed = ledger, insecure_seed
        self._task_and_details()  # refuses bad parameters

    _task_parameters = ("epsilon", "n_bits", "k", "n_people", "degree", "version", "window")

    def _make_task(self) -> tuple[Task, Conjunction]:
        for name in ("n_bits", "k", "n_people"):
            whole(name, getattr(self, name))
        if not self.k <= self.n_bits:
            raise InvalidInput(f"k must be at most n_bits = {self.n_bits}, not {self.k!r}.")
        if self.degree is None:
            polynomial = best_conjunction(int(self.k), int(self.n_bits), int(self.n_people), OneBit(self.epsilon).gain)
        else:
            polynomial = conjunction(int(self.k), whole("degree", self.degree))
        levels = polynomial.levels(int(self.n_bits))
        # every set size gets a minimum share, because smaller marginals need sizes that the polynomial hardly uses
        levels = np.maximum(levels, 1e-3 * levels.max())
        sketch = Parity(int(self.n_bits), tuple((levels / levels.sum()).tolist()))
        return Task("marginals", self.epsilon, sketch, self.version, window=self.window), polynomial

    def _records(self, X: Any) -> NDArray[Any]:
        records = super()._records(X)
        # checked by the data owner before anything is charged, in blocks of rows because the table may be large
        parts = [] if records.dtype == bool else range(0, len(records), _BLOCK)
        if not all(((part == 0) | (part == 1)).all() for part in (records[i : i + _BLOCK] for i in parts)):
            raise InvalidData("X must contain only 0 and 1, or True and False: encode other values by a public rule.")
        return records

    @property
    def polynomial(self) -> Conjunction:
        """The polynomial that approximates a conjunction of ``k`` bits."""
        polynomial: Conjunction = self._task_and_details()[1]
        return polynomial

    @property
    def expected_error(self) -> QueryAnswer:
        """Expected bias and standard deviation of a marginal of ``k`` bits, before anybody is asked."""
        deviation = self.polynomial.deviation(self.n_bits, self.n_people, self.task.bit.gain)
        return QueryAnswer(math.nan, deviation, self.polynomial.bias)

    def query(self, columns: Sequence[int] | Mapping[int, int], values: Sequence[int] | None = None) -> QueryAnswer:
        """Estimate the share of people whose ``columns`` have these ``values`` (all ones if not given).

        ``query({0: 1, 2: 0})`` is ``query([0, 2], [1, 0])``.
        """
        self._check_fitted()
        if isinstance(columns, Mapping):
            if values is not None:
                raise InvalidInput("give either a dict of columns and values or two lists, not both.")
            values, columns = list(columns.values()), list(columns)
        chosen = _whole_numbers("columns", columns)
        wanted = [1] * len(chosen) if values is None else _whole_numbers("values", values)
        if not 1 <= len(chosen) <= self.k or len(set(chosen)) < len(chosen):
            raise InvalidInput(f"a marginal needs between 1 and k = {self.k} different columns.")
        if not all(0 <= column < self.n_bits for column in chosen):
            raise InvalidInput(f"columns must be between 0 and {self.n_bits - 1}.")
        if len(wanted) != len(chosen) or not set(wanted) <= {0, 1}:
            raise InvalidInput("values must be 0 or 1, one for every column.")
        short = min(len(chosen), self.polynomial.degree)
        polynomial = self.polynomial if len(chosen) == self.k else self._shorter(len(chosen), short)
        total, variance = polynomial.weights[0], 0.0
        for r in range(1, polynomial.degree + 1):
            subsets = list(combinations(range(len(chosen)), r))
            masks = [sum(1 << chosen[i] for i in subset) for subset in subsets]
            # the polynomial counts bits that differ from the wanted values, a parity counts ones: hence the signs
            signs = np.array([(-1.0) ** sum(wanted[i] for i in subset) for subset in subsets])
            index = self.task.sketch.find(masks, r)  # type: ignore[attr-defined]
            total += polynomial.weights[r] * float(signs @ self.means_[index])
            variance += polynomial.weights[r] ** 2 * float(self.variances_[index].sum())
        return QueryAnswer(min(1.0, max(0.0, total)), math.sqrt(variance), polynomial.bias)

    def _shorter(self, k: int, most: int) -> Conjunction:
        """Return the best polynomial for fewer bits that uses only statistics of the task."""
        per_level = [self.variances_[int(self.task.sketch.sizes[:r].sum())] for r in range(most)]

        def error(one: Conjunction) -> float:
            noise = sum(math.comb(k, r) * one.weights[r] ** 2 * per_level[r - 1] for r in range(1, one.degree + 1))
            return float(one.bias**2 + noise)

        return min((conjunction(k, degree) for degree in range(1, most + 1)), key=error)


class SmoothQueries(_LocalQueries):
    """Means of smooth functions of a record of one to three numbers, all of them from one collection.

    Notes
    -----
    **Guarantee.**
    Released, to everyone: the index of a randomly drawn product of Chebyshev polynomials, and one bit per person,
    (epsilon, 0)-DP for the person against any other record. Assumes one report per person. Every answer is computed
    from counts of reports.

    Parameters
    ----------
    epsilon : float
        Epsilon of a person's report, between 0.001 and 16.
    low, high : sequence of float
        Declared bounds of every column; values outside are clipped.
    n_degrees : int
        Number of degrees in every column, from 0 up; 8 suits functions that vary on the scale of half the range.
    decay : float
        A statistic is drawn in proportion to ``decay`` to the power of the sum of its degrees. Smoother functions have
        faster decaying coefficients and suit a smaller ``decay``.
    version, window :
        As for :class:`Marginals`.
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

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        low: Sequence[float],
        high: Sequence[float],
        n_degrees: int = 8,
        decay: float = 0.5,
        version: int = 1,
        window: str | None = None,
        ledger: Ledger | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        self.epsilon, self.low, self.high, self.n_degrees, self.decay = epsilon, low, high, n_degrees, decay
        self.version, self.window = version, window
        check_ledger(ledger)
        self.ledger, self.insecure_seed = ledger, insecure_seed
        self._task_and_details()  # refuses bad parameters

    _task_parameters = ("epsilon", "low", "high", "n_degrees", "decay", "version", "window")

    def _make_task(self) -> tuple[Task, tuple[FloatArray, FloatArray]]:
        whole("n_degrees", self.n_degrees, least=2, most=MOST_DEGREES)
        if not is_number(self.decay) or not 0.0 < self.decay <= 1.0:
            raise InvalidInput(f"decay must be a number above 0 and at most 1, not {self.decay!r}.")
        try:
            low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
        except (TypeError, ValueError):
            raise InvalidBounds("low and high must be numbers, one per column.") from None
        ends = low.ndim == 1 and low.shape == high.shape and 1 <= low.size <= 3
        if not ends or not np.isfinite(high - low).all() or not (low < high).all():
            raise InvalidBounds("low and high must be finite bounds of 1 to 3 columns, with low below high.")
        degrees = [r for r in product(range(self.n_degrees), repeat=low.size) if any(r)]
        shares = np.array([self.decay ** sum(r) for r in degrees])
        sketch = Chebyshev(tuple(degrees), tuple((shares / shares.sum()).tolist()))
        inputs = {"low": low.tolist(), "high": high.tolist()}
        task = Task("smooth queries", self.epsilon, sketch, self.version, inputs, window=self.window)
        return task, (low, high)

    def _records(self, X: Any) -> NDArray[Any]:
        X, (low, high) = np.asarray(X), self._task_and_details()[1]
        if X.ndim != 2 or X.shape[1] != low.size or X.dtype.kind not in "biuf":
            raise InvalidData(f"X must be an array of numbers with {low.size} columns, one row per person.")
        if not np.isfinite(X).all():
            raise InvalidData("X contains NaN or infinite values: remove those rows.")
        middle, half = low / 2.0 + high / 2.0, high / 2.0 - low / 2.0
        with np.errstate(all="ignore"):  # an error that only some values raise would reveal them
            return np.asarray((X - middle) / half)

    def query(self, function: Callable[[FloatArray], Any], *, lipschitz: float | None = None) -> QueryAnswer:
        """Estimate the mean of ``function``, which maps records of shape (m, d) to m numbers.

        ``deviation`` is an upper bound on the standard deviation. ``bias`` is an estimate: the sum of the coefficients
        of degrees outside the task, plus the largest error of the whole expansion at many other points. A function
        whose expansion is off by more than a tenth of its range is refused.

        Parameters
        ----------
        function : callable
            The function, defined for records within the bounds.
        lipschitz : float, optional
            Largest change of the function per unit of Euclidean distance between two records; with it ``bias`` is an
            upper bound.
        """
        self._check_fitted()
        if lipschitz is not None:
            non_negative("lipschitz", lipschitz)
        low, high = self._task_and_details()[1]
        coefficients, bias = chebyshev_expansion(function, low, high, self.n_degrees, lipschitz)
        weights = coefficients.ravel()[1:]
        value = float(coefficients.ravel()[0] + weights @ self.means_)
        return QueryAnswer(value, math.sqrt(float(weights**2 @ self.variances_)), bias)


def _whole_numbers(name: str, given: Any) -> list[int]:
    """Return whole numbers of a sequence or an array as a list; nothing is rounded."""
    several = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    entries = list(given) if several else [given]
    if not all(isinstance(one, int | np.integer | np.bool_) for one in entries):
        raise InvalidInput(f"{name} must be whole numbers, not {given!r}.")
    return [int(one) for one in entries]
