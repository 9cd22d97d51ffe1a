"""Releases with less noise than is charged, on purpose: a check or an audit must find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from dperm.data.holding.holder import DataHolder, Query
from dperm.privacy.boundary import observed_report
from dperm.privacy.local.categories import UnaryEncoding
from dperm.privacy.local.public_noise_bit import PublicNoiseBit
from dperm.privacy.local.registry import LOCAL_REPORTS
from dperm.privacy.mechanisms.selection import TwoLevelRace, gumbel_race, race_scale
from dperm.privacy.mechanisms.standard import Mechanism

__all__ = ["weaker", "weaker_noise", "weaker_reports"]


def weaker(mechanism: Mechanism, factor: float) -> Mechanism:
    """Return a mechanism that states the same event and the same scale, and draws ``factor`` times the noise."""
    honest: Any = type(mechanism)

    def draw(self: Any, value: Any, sensitivity: float, bound: float, source: Any) -> Any:
        multiplier = factor * self.noise_multiplier
        if isinstance(value, TwoLevelRace):  # it has its own scale
            return gumbel_race(value.scores(), race_scale(sensitivity, multiplier), source)
        return honest.draw(replace(mechanism, noise_multiplier=multiplier), value, sensitivity, bound, source)

    kind: Any = type(f"Weaker{honest.__name__}", (honest,), {"draw": draw})
    made: Mechanism = kind(**{field.name: getattr(mechanism, field.name) for field in fields(mechanism)})
    return made


@contextmanager
def weaker_noise(group: str | None = None, factor: float = 0.5) -> Iterator[None]:
    """Let releases of one group, or all of this process, have ``factor`` times the noise that they are charged for."""
    honest = DataHolder.release

    weakened = group

    def release(self: DataHolder, query: Query, mechanism: Mechanism, group: str | None = None, units: int = 1) -> Any:
        chosen = weakened is None or weakened == (group or query.name)
        return honest(self, query, weaker(mechanism, factor) if chosen else mechanism, group, units)

    DataHolder.release = release  # type: ignore[method-assign]
    try:
        yield
    finally:
        DataHolder.release = honest  # type: ignore[method-assign]


@contextmanager
def weaker_reports(factor: float = 0.5) -> Iterator[None]:
    """Let local reports state their epsilon and randomise for ``epsilon / factor``."""
    # local hashing reports its bucket as a registered category
    weakened: tuple[Any, ...] = (*LOCAL_REPORTS.values(), UnaryEncoding, PublicNoiseBit)
    honest = {kind: kind.report for kind in weakened}
    for kind, report in honest.items():
        kind.report = observed_report(_revealing(report.__wrapped__, factor))
    try:
        yield
    finally:
        for kind, report in honest.items():
            kind.report = report


def _revealing(report: Callable[..., Any], factor: float) -> Callable[..., Any]:
    def revealing(self: Any, *given: Any, **options: Any) -> Any:
        return report(replace(self, epsilon=self.epsilon / factor), *given, **options)

    return revealing
