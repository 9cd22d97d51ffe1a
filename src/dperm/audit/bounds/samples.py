"""Checks of attack results, the order that breaks ties by lot, and the share of the error that each test may use."""

from __future__ import annotations

from typing import Any

import numpy as np

from dperm.errors import InvalidInput
from dperm.privacy.randomness import RandomSource
from dperm.types import FloatArray, IntArray
from dperm.validation import finite

__all__ = ["check_confidence", "check_delta", "pooled_ranks", "share_of"]


def check_confidence(confidence: Any) -> float:
    """Return one minus the confidence, which must lie strictly between 0 and 1."""
    value = finite("confidence", confidence)
    if not 0.0 < value < 1.0:
        raise InvalidInput(f"confidence must lie strictly between 0 and 1, got {confidence!r}.")
    return 1.0 - value


def check_delta(delta: Any) -> float:
    """Return delta, which must be 0 or more and below 1."""
    value = finite("delta", delta)
    if not 0.0 <= value < 1.0:
        raise InvalidInput(f"delta must be 0 or more and below 1, got {delta!r}.")
    return value


def share_of(alpha: float, n_tests: int) -> float:
    """Return the error that each of several tests may have, so that some test errs with probability ``alpha`` at most.

    Bonferroni's inequality: it holds however the tests depend on each other.
    """
    return alpha / n_tests


def pooled_ranks(first: Any, second: Any, names: tuple[str, str]) -> tuple[IntArray, IntArray]:
    """Return both samples as ranks in their union, which are all different: equal values are ordered by lot.

    So a statistic with ties, such as a bit, is treated as the pair of the statistic and an independent random number,
    which is private if the statistic is. The lots are drawn afresh in every call: fixed ones would favour the same
    sample each time, and a false alarm would repeat.
    """
    checked = [_checked(sample, name) for sample, name in zip((first, second), names, strict=True)]
    pooled = np.concatenate(checked)
    if pooled.min() == pooled.max():
        raise InvalidInput(
            f"{names[0]} and {names[1]} contain one and the same value: such a statistic shows nothing, choose another."
        )
    lots = np.random.default_rng(RandomSource().words(4)).permutation(len(pooled))
    ranks = np.empty(len(pooled), dtype=np.int64)
    ranks[np.lexsort((lots, pooled))] = np.arange(len(pooled))
    return ranks[: len(checked[0])], ranks[len(checked[0]) :]


def _checked(sample: Any, name: str) -> FloatArray:
    """Return a sample as a vector of finite numbers."""
    try:
        values = np.asarray(sample, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a vector of numbers, one per run or canary.") from None
    if values.ndim != 1:
        raise InvalidInput(f"{name} must be a vector of numbers, got an array with {values.ndim} axes.")
    if len(values) == 0:
        raise InvalidInput(f"{name} is empty: an audit needs at least one result on each side.")
    if not np.isfinite(values).all():
        raise InvalidInput(f"{name} contains NaN or infinite numbers: give a failed run a finite number of its own.")
    return values
