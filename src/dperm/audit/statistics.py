"""Test statistics of a released vector, learnt on pilot runs: they are higher on the first table of a pair.

Any function of the vector is a valid statistic: what it finds on fresh runs is real. A good one finds more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from dperm.types import FloatArray

__all__ = [
    "Statistic",
    "atom_statistic",
    "bit_statistics",
    "density_statistics",
    "discounted_separation",
    "evidence",
    "linear_statistics",
    "separation",
]

#: most coordinates that are looked at one by one
_MOST_COORDINATES = 3
#: most parameters for which covariances are learnt in full; a pilot is too short for more
_MOST_QUADRATIC = 12
#: values are cut at this many spreads from the median before means and covariances are learnt: tails can be heavy
_CUT = 8.0
#: runs of a pilot for one cell of a learnt partition, on average: the pilot chooses between coarse and fine
_RUNS_PER_CELL = (40, 15, 6)
#: most bins of one parameter: finer ones only add noise
_MOST_BINS = 40
#: part of a covariance that is taken from its diagonal: correlations of a short pilot are overestimated
_SHRINKAGE = 0.05
#: added to variances of scaled coordinates, so that a constant one leaves the covariance invertible; far below 1
_RIDGE = 1e-6
#: standard errors by which pilot estimates are discounted, so that rare events do not look better than they are
_DISCOUNT = 2.0
#: weight of the separation in a score, so that it decides where few runs leave nothing after the discount
_TIE = 0.05


@dataclass(frozen=True)
class Statistic:
    """A function of released vectors (one per row) with its name in words."""

    name: str
    of: Callable[[FloatArray], FloatArray]


class _Scale:
    """Puts coordinates on one scale and cuts their tails."""

    def __init__(self, pooled: FloatArray) -> None:
        self._middle = np.median(pooled, axis=0)
        spread = np.subtract(*np.quantile(pooled, (0.75, 0.25), axis=0))
        fallback = pooled.std(axis=0)
        spread = np.where(spread > 0.0, spread, fallback)
        self._spread = np.where(spread > 0.0, spread, 1.0)

    def __call__(self, outputs: FloatArray) -> FloatArray:
        scaled: FloatArray = np.clip((outputs - self._middle) / self._spread, -_CUT, _CUT)
        return scaled


def _best_coordinates(one: FloatArray, two: FloatArray, most: int) -> list[int]:
    """Return the coordinates whose distributions differ most (largest distance between distribution functions)."""
    distance = [stats.ks_2samp(a, b, method="asymp").statistic for a, b in zip(one.T, two.T, strict=True)]
    return list(np.argsort(distance)[::-1][:most])


def linear_statistics(first: FloatArray, second: FloatArray) -> list[Statistic]:
    """Return single coordinates, directions and a quadratic discriminant."""
    scale = _Scale(np.concatenate([first, second]))
    one, two = scale(first), scale(second)
    shift = one.mean(axis=0) - two.mean(axis=0)
    found = []
    for j in _best_coordinates(first, second, _MOST_COORDINATES):
        sign = 1.0 if shift[j] >= 0.0 else -1.0
        found.append(Statistic(f"parameter {j}", lambda out, j=j, sign=sign: sign * out[:, j]))  # type: ignore[misc]
    if first.shape[1] == 1:
        return [*found, *_distances(scale, one, two)]
    found.append(Statistic("projection on the difference of means", lambda out: scale(out) @ shift))
    found.append(
        Statistic("number of signs in the expected direction", lambda out: np.sign(scale(out)) @ np.sign(shift))
    )
    if first.shape[1] <= _MOST_QUADRATIC:
        covariance = _covariance(np.concatenate([one - one.mean(axis=0), two - two.mean(axis=0)]))
        direction = np.linalg.solve(covariance, shift)
        found.append(Statistic("linear discriminant", lambda out: scale(out) @ direction))
        found.append(_quadratic(scale, one, two))
    return [*found, *_distances(scale, one, two)]


def _covariance(centred: FloatArray) -> FloatArray:
    """Return a covariance that can be inverted."""
    found = np.atleast_2d(np.cov(centred.T))
    diagonal = np.diag(np.diag(found))
    shrunk: FloatArray = (1.0 - _SHRINKAGE) * found + _SHRINKAGE * diagonal + _RIDGE * np.eye(len(found))
    return shrunk


def _quadratic(scale: _Scale, one: FloatArray, two: FloatArray) -> Statistic:
    laws = [stats.multivariate_normal(a.mean(axis=0), _covariance(a - a.mean(axis=0))) for a in (one, two)]
    return Statistic(
        "quadratic discriminant", lambda out: np.atleast_1d(laws[0].logpdf(scale(out)) - laws[1].logpdf(scale(out)))
    )


def _distances(scale: _Scale, one: FloatArray, two: FloatArray) -> list[Statistic]:
    """Return the distance from the middle, oriented: noise of another size moves no mean."""
    middle = np.median(np.concatenate([one, two]), axis=0)
    sizes = [np.abs(a - middle).sum(axis=1).mean() for a in (one, two)]
    sign = 1.0 if sizes[0] >= sizes[1] else -1.0
    return [Statistic("distance from the middle", lambda out: sign * np.abs(scale(out) - middle).sum(axis=1))]


def density_statistics(first: FloatArray, second: FloatArray) -> list[Statistic]:
    """Return the learnt ratio of densities on partitions of one, two and three parameters by quantiles."""
    found = []
    pooled = np.concatenate([first, second])
    columns = _best_coordinates(first, second, 3)
    for k in range(1, len(columns) + 1):
        names = " and ".join(str(j) for j in sorted(columns[:k]))
        tried = {int(min(_MOST_BINS, (len(pooled) / runs) ** (1.0 / k))): fineness
                 for runs, fineness in zip(_RUNS_PER_CELL, ("coarse", "medium", "fine"), strict=True)}  # fmt: skip
        for n_bins, fineness in tried.items():
            if n_bins >= 2:
                name = f"{fineness} partition of parameter{'s' * (k > 1)} {names}"
                found.append(_by_cells(name, first, second, columns[:k], n_bins, pooled))
    return found


def _by_cells(
    name: str, first: FloatArray, second: FloatArray, columns: Sequence[int], n_bins: int, pooled: FloatArray
) -> Statistic:
    edges = [np.unique(np.quantile(pooled[:, j], np.linspace(0.0, 1.0, n_bins + 1)[1:-1])) for j in columns]

    def cells(outputs: FloatArray) -> FloatArray:
        # values that many runs share are cells of their own, apart from their neighbours on both sides
        places = [
            np.searchsorted(e, outputs[:, j], "left") + np.searchsorted(e, outputs[:, j], "right")
            for e, j in zip(edges, columns, strict=True)
        ]
        return np.array(np.ravel_multi_index(tuple(places), tuple(2 * len(e) + 1 for e in edges)))

    ratios = _log_ratios(cells(first), cells(second), int(np.prod([2 * len(e) + 1 for e in edges])))
    return Statistic(name, lambda out: ratios[cells(out)])


def _log_ratios(first: FloatArray, second: FloatArray, n_cells: int) -> FloatArray:
    """Return the log ratio of frequencies, shrunk towards 0 where a cell was seldom seen."""
    counts = [np.bincount(cells, minlength=n_cells) + 1.0 for cells in (first, second)]
    ratios: FloatArray = np.log(counts[0] / len(first)) - np.log(counts[1] / len(second))
    return ratios


def atom_statistic(first: Iterable[FloatArray], second: Iterable[FloatArray]) -> Statistic:
    """Return whether a vector, bit for bit, was seen twice on the first table alone (1), or on the second (-1).

    >>> seen = atom_statistic(np.array([[1.0], [1.0], [2.0]]), np.array([[3.0], [3.0]]))
    >>> seen.of(np.array([[1.0], [2.0], [3.0], [4.0]])).tolist()
    [1.0, 0.0, -1.0, 0.0]
    """
    counts = [Counter(row.tobytes() for row in rows) for rows in (first, second)]
    # one occurrence may be chance: on a grid, many values come back that mean nothing
    one, two = ({key for key, n in count.items() if n > 1} for count in counts)

    def of(outputs: FloatArray) -> FloatArray:
        keys = [row.tobytes() for row in outputs]
        return np.array([float(key in one) - float(key in two) for key in keys])

    return Statistic("values that occur again, bit for bit", of)


def bit_statistics(first: FloatArray, second: FloatArray) -> list[Statistic]:
    """Return statistics of the low-order bits: floating-point noise can leave traces of the value under it.

    A floating-point number is odd times a power of two. Adding noise to a large value loses the noise's lowest bits,
    adding it to a small value does not (Mironov 2012); each statistic asks about that power of two.
    """
    n_used = min(first.shape[1], _MOST_COORDINATES)
    found = []
    for what, of in (("lowest bit", _lowest_bit), ("trailing zero bits", _trailing_zeros)):
        ratios = [_log_ratios(of(first[:, j]), of(second[:, j]), _N_BIT_CELLS) for j in range(n_used)]
        for j in range(n_used):
            found.append(_of_bits(f"{what} of parameter {j}", of, {j: ratios[j]}))
        if n_used > 1:
            found.append(_of_bits(f"{what} of {n_used} parameters", of, dict(enumerate(ratios))))

    def smallest(outputs: FloatArray) -> FloatArray:
        exponents: FloatArray = np.min([_lowest_bit(outputs[:, j]) for j in range(n_used)], axis=0)
        return exponents

    sign = 1.0 if smallest(first).mean() >= smallest(second).mean() else -1.0
    return [*found, Statistic("smallest of the lowest bits", lambda out: sign * smallest(out))]


def _of_bits(name: str, of: Callable[[FloatArray], FloatArray], ratios: dict[int, FloatArray]) -> Statistic:
    return Statistic(name, lambda out: np.sum([ratio[of(out[:, j])] for j, ratio in ratios.items()], axis=0))


#: exponents of the lowest bit run from -1074 to 971, and 0 has none
_N_BIT_CELLS = 2100


def _lowest_bit(values: FloatArray) -> FloatArray:
    """Exponent of the lowest bit that is set, moved to start at 0."""
    mantissa, exponent = np.frexp(values)
    zeros = _mantissa_zeros(mantissa)
    return np.where(values == 0.0, _N_BIT_CELLS - 1, exponent - 53 + zeros + 1080)


def _trailing_zeros(values: FloatArray) -> FloatArray:
    """Number of zero bits at the end of the mantissa."""
    return np.where(values == 0.0, _N_BIT_CELLS - 1, _mantissa_zeros(np.frexp(values)[0]))


def _mantissa_zeros(mantissa: FloatArray) -> FloatArray:
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = whole & -whole
    return np.where(whole == 0, 0, np.frexp(lowest.astype(np.float64))[1] - 1)


def evidence(first: FloatArray, second: FloatArray) -> float:
    """Return a discounted estimate of epsilon from two samples of a statistic, to compare candidates in a pilot."""
    hits, alarms = _rates(first, second)
    return float(np.log(hits / alarms).max(initial=0.0)) + _TIE * separation(first, second)


def separation(first: FloatArray, second: FloatArray) -> float:
    """Return the shift between two samples in standard deviations of a normal law with the same order of ranks.

    >>> round(separation(np.arange(100.0) + 50.0, np.arange(100.0)), 2)
    1.63
    """
    ranks = stats.rankdata(np.concatenate([first, second]))[: len(first)]
    area = (ranks.sum() - len(first) * (len(first) + 1) / 2.0) / (len(first) * len(second))
    return float(np.sqrt(2.0) * abs(stats.norm.ppf(np.clip(area, 1e-6, 1.0 - 1e-6))))


def discounted_separation(first: FloatArray, second: FloatArray) -> float:
    """Return the same less some standard errors, to compare candidates in a pilot."""
    found = separation(first, second)
    return max(found - _DISCOUNT * math.sqrt(1.0 / len(first) + 1.0 / len(second)), 0.0) + _TIE * found


def _rates(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return discounted probabilities of {statistic > t} and of {statistic <= t}, under both tables, in both roles."""
    pooled = np.concatenate([first, second])
    thresholds = np.unique(np.quantile(pooled, np.linspace(0.0, 1.0, 41), method="lower"))
    above = [1.0 - np.searchsorted(np.sort(a), thresholds, "right") / len(a) for a in (first, second)]
    events = np.concatenate([[above[0], above[1]], [1.0 - above[1], 1.0 - above[0]]], axis=1)
    n = np.array([len(first), len(second)])[:, None]
    middle = (events * n + 1.0) / (n + 2.0)
    error = _DISCOUNT * np.sqrt(middle * (1.0 - middle) / n)
    return np.clip(middle[0] - error[0], 1e-9, 1.0 - 1e-9), np.clip(middle[1] + error[1], 1e-9, 1.0 - 1e-9)
