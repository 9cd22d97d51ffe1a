"""Check that a person's report satisfies its epsilon for every answer, uses it up, and decodes without bias."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
from scipy import stats

from dperm.privacy.accounting import composition
from dperm.privacy.local.categories import LocalHashing, RandomizedCategory, UnaryEncoding
from dperm.privacy.local.few_levels import FewLevels
from dperm.privacy.local.one_bit import OneBit, exp_lower_bound
from dperm.privacy.local.public_noise_bit import PublicNoiseBit
from dperm.privacy.randomness import RandomSource
from dperm.testing._violation import demand

__all__ = [
    "LOCAL_EXAMPLES",
    "OTHER_LOCAL_EXAMPLES",
    "check_answers",
    "check_local_report",
    "check_one_bit",
    "log_ratio_interval",
]

_REJECT = 1e-6
#: lags at which answers must be independent; mechanisms process reports in parts of the second length
_LAGS = (1, 64)
#: the ends, values that are clipped to them, and ordinary values
_VALUES = (-1.0, 1.0, 0.0, 0.37, -0.81, 7.0, -1e308, math.inf, math.nan, 5e-324, math.nextafter(1.0, 0.0))

#: examples of every registered report
LOCAL_EXAMPLES: dict[str, tuple[Any, ...]] = {
    OneBit.kind: (OneBit(0.5), OneBit(1.0), OneBit(4.0)),
    FewLevels.kind: (FewLevels(2.0, 3), FewLevels(3.0, 7), FewLevels(4.0)),
    RandomizedCategory.kind: (RandomizedCategory(1.0, 2), RandomizedCategory(2.0, 9)),
}

#: reports whose law is not one table of whole numbers for each value, so that they are not in the registry: several
#: bits, a bucket with its key, a bit with its public noise. They have tests of their own in ``tests/audit``.
OTHER_LOCAL_EXAMPLES: dict[str, tuple[Any, ...]] = {
    UnaryEncoding.kind: (UnaryEncoding(1.0, 4),),
    LocalHashing.kind: (LocalHashing(1.0, 8),),
    PublicNoiseBit.__name__: (PublicNoiseBit(1.0),),
}


def log_ratio_interval(counts: tuple[int, int], n: int, error: float) -> tuple[float, float]:
    """Return bounds on ln(p / q) from two binomial ``counts`` of ``n``, wrong with probability ``error`` at most."""
    (p_low, p_high), (q_low, q_high) = (_proportion(count, n, error / 2.0) for count in counts)
    return _log(p_low) - _log(q_high), _log(p_high) - _log(q_low)


def check_answers(
    report: Callable[[Any], Any],
    inputs: Any,
    epsilon: float,
    *,
    n_answers: int,
    n_samples: int = 200_000,
    slack: float = 0.05,
) -> None:
    """Check a report from its answers alone.

    Parameters
    ----------
    report : callable
        Takes an array of values, one per person, and returns their answers, 0 to ``n_answers`` - 1.
    inputs : sequence of float
        Values to compare, including the worst ones.
    epsilon : float
        Claimed privacy loss of one report.
    slack : float
        Relative amount by which the worst pair may stay below ``epsilon`` before the noise counts as excessive.
    """
    error = 1e-6 / (n_answers * len(inputs) ** 2)
    tallies = [_tally(report(np.full(n_samples, value)), n_answers) for value in inputs]
    largest = 0.0
    for first, second in permutations(tallies, 2):
        for answer, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            low, high = log_ratio_interval(pair, n_samples, error)
            which = f"the {'bit' if n_answers == 2 else 'answer'} {answer}"
            demand(
                low <= epsilon,
                f"{which} distinguishes two values by epsilon {low:.4g} or more; {epsilon:.4g} is claimed.",
            )
            largest = max(largest, high)
    demand(
        largest >= epsilon * (1.0 - slack),
        f"no pair of values comes near epsilon {epsilon:.4g}: the report is noisier than it claims.",
    )


def check_one_bit(
    report: Callable[[Any], Any], inputs: Any, epsilon: float, *, n_samples: int = 200_000, slack: float = 0.05
) -> None:
    """Check a one-bit report from its bits alone, as :func:`check_answers` does."""
    check_answers(report, inputs, epsilon, n_answers=2, n_samples=n_samples, slack=slack)


def check_local_report(mechanism: Any, *, n_samples: int = 60_000, seed: int | None = 0) -> None:
    """Check a registered report: exact ratios, its event, law and independence of the answers, and their decoding.

    The check itself must detect answers for half and for 1.5 times epsilon.
    """
    source = RandomSource(seed)
    values = _values(mechanism)
    laws = [mechanism.law(value) for value in values]
    _check_ratios(laws, mechanism.epsilon)
    _check_event(mechanism, laws)
    _check_decoding(mechanism, values, laws)
    name = type(mechanism).__name__
    for value, law in zip(values, laws, strict=True):
        answers = np.asarray(mechanism.report(np.full(n_samples, value), source))
        tally = _tally(answers, len(law))
        right = _fit(tally, law)
        demand(right > _REJECT, f"{name}'s answers to {value!r} do not fit their law (p = {right:.2g}).")
        expected = float((np.asarray(law, np.float64) ** 2).sum()) / float(sum(law)) ** 2
        for lag in _LAGS:
            same = (answers[lag:] == answers[:-lag]).sum()
            # two pairs may share a report, which raises the variance by less than a factor of 3
            apart = abs(same - (n_samples - lag) * expected) / math.sqrt(3.0 * n_samples * expected)
            demand(apart < 6.0, f"{name}'s answers to {value!r} are not independent of each other.")
    for factor in (0.5, 1.5):
        other = replace(mechanism, epsilon=factor * mechanism.epsilon)
        found = min(
            _fit(_tally(other.report(np.full(n_samples, value), source), len(law)), law)
            for value, law in zip(values[:2], laws[:2], strict=True)
        )
        demand(found < _REJECT, f"the check cannot tell epsilon x{factor} from the right one (p = {found:.2g}).")


def _values(mechanism: Any) -> list[Any]:
    if isinstance(mechanism, RandomizedCategory):
        return [0, mechanism.n_categories - 1, -5, mechanism.n_categories + 3]
    return list(_VALUES)


def _check_ratios(laws: list[tuple[int, ...]], epsilon: float) -> None:
    """Check every answer for all pairs of values, in whole numbers."""
    above, below = exp_lower_bound(epsilon)
    demand(len({sum(law) for law in laws}) == 1, "the laws of two values do not sum to one total.")
    for first, second in permutations(laws, 2):
        for answer, (p, q) in enumerate(zip(first, second, strict=True)):
            demand(
                p * below <= q * above,
                f"the answer {answer} is more than exp({epsilon:.4g}) times as likely for one value as for another.",
            )


def _check_event(mechanism: Any, laws: list[tuple[int, ...]]) -> None:
    """Check that the event charged to the ledger bounds delta of every pair of values, at every epsilon."""
    chances = [np.array([count / sum(law) for count in law]) for law in laws]
    for share in (0.0, 0.25, 0.5, 0.75, 0.95, 1.0):
        epsilon = share * mechanism.epsilon
        stated = composition.delta(mechanism.event, epsilon)
        found = max(
            float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())
            for first, second in permutations(chances, 2)
        )
        demand(
            found <= stated + 1e-9,
            f"{type(mechanism).__name__}'s event claims delta {stated:.3g} at epsilon {epsilon:.3g}; two values have "
            f"{found:.3g}.",
        )


def _check_decoding(mechanism: Any, values: list[Any], laws: list[tuple[int, ...]]) -> None:
    if not hasattr(mechanism, "decode"):
        return
    decoded = mechanism.decode(np.arange(len(laws[0])))
    for value, law in zip(values, laws, strict=True):
        truth = -1.0 if math.isnan(value) else min(1.0, max(-1.0, value))
        chance = np.array([count / sum(law) for count in law])
        demand(
            abs(float(chance @ decoded) - truth) < 1e-6,
            f"{type(mechanism).__name__}'s decoded answers are biased.",
        )
        square = float(chance @ decoded**2) - truth**2
        demand(
            abs(square - float(mechanism.variance(truth))) < 1e-6 * (1.0 + square),
            f"{type(mechanism).__name__}'s variance is not the one it states.",
        )


def _tally(answers: Any, n_answers: int) -> Any:
    return np.bincount(np.asarray(answers).astype(np.int64), minlength=n_answers)


def _fit(tally: Any, law: tuple[int, ...]) -> float:
    expected = np.array([count / sum(law) for count in law]) * tally.sum()
    rare = expected < 5.0  # too rare for the chi-square approximation: pooled
    if rare.any():
        tally, expected = (np.append(x[~rare], x[rare].sum()) for x in (tally, expected))
    return float(stats.chisquare(tally, expected).pvalue) if len(tally) > 1 else 1.0


def _proportion(count: int, n: int, error: float) -> tuple[float, float]:
    """Exact (Clopper-Pearson) interval of a proportion."""
    low = float(stats.beta.ppf(error / 2.0, count, n - count + 1)) if count else 0.0
    high = float(stats.beta.isf(error / 2.0, count + 1, n - count)) if count < n else 1.0
    return low, high


def _log(x: float) -> float:
    return math.log(x) if x > 0.0 else -math.inf
