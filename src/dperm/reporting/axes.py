"""Axes of figures that are drawn as SVG text: places of values, and the values to mark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Axis"]


@dataclass(frozen=True)
class Axis:
    """Where values of a range stand on one side of a drawing, on a linear or logarithmic scale."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, log: bool) -> Axis:
        """Return the axis from ``start`` to ``end`` (in pixels) that holds all values."""
        low, high = min(values), max(values)
        if log:
            low, high = 10.0 ** math.floor(math.log10(low) + 1e-9), 10.0 ** math.ceil(math.log10(high) - 1e-9)
            high = high if high > low else 10.0 * low
        else:
            low = min(low, 0.0)
            high = _round_up(high if high > low else low + 1.0)
        return cls(low, high, start, end, log)

    def place(self, value: float) -> float:
        """Return the place of a value in pixels; values below a logarithmic axis stand at its start."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        at = math.log10(max(value, self.low)) if self.log else value
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self) -> list[tuple[float, str]]:
        """Return about six values to mark, with their text."""
        if self.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            step = max(1, math.ceil((last - first) / 6))
            return [(10.0**k, _power(k)) for k in range(first, last + 1, step)]
        width = _round_up((self.high - self.low) / 5.0)
        places = range(math.floor((self.high - self.low) / width + 1e-9) + 1)
        return [(self.low + k * width, f"{self.low + k * width:.3g}") for k in places]


def _power(exponent: int) -> str:
    if -2 <= exponent <= 3:
        return f"{10.0**exponent:g}"
    return f'10<tspan dy="-4" font-size="9">{exponent}</tspan>'


def _round_up(value: float) -> float:
    """Smallest of 1, 2, 2.5, 5 times a power of ten that is at least ``value``."""
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * size >= value * (1.0 - 1e-12))
