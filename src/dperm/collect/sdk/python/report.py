"""What a report says; ``js/dperm.js`` computes the same, operation by operation, with the same results."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["RefusedTask", "answer", "check", "record", "word"]

_WORDS = 2**32
_NOT_MINE = "this task is not of a kind that this client was built for."


class RefusedTask(ValueError):
    """A task that this client was not built for, or that it must not answer."""


def word() -> int:
    """Return a random whole number below 2^32 from the operating system."""
    return secrets.randbits(32)


def clamp(v: float, low: float, high: float) -> float:
    """Return v within the range; not a number counts as the lower end."""
    return (v if v < high else high) if v > low else low


# ---------------------------------------------------------------------------------- statistics of a record
def _moments(s: Mapping[str, Any], a: Sequence[float], j: int, g: int, k: int) -> float:
    ball, reach = s["ball"], s.get("reach")
    longest, total, value = 1.0, 0.0, 1.0
    for x in a[:ball]:
        longest = max(longest, abs(x))
    for x in a[:ball]:
        total += (x / longest) * (x / longest)
    length = max(longest * math.sqrt(total), 1.0)
    for i, e in enumerate(s["exponents"][j]):
        r = reach[i] if reach else 1.0
        for _ in range(e):
            value *= clamp(a[i] / length if i < ball else a[i], -r, r)
    return value


def _theta_grid(s: Mapping[str, Any], a: Sequence[float], j: int, g: int, k: int) -> float:
    total = margin = 0.0
    for x, weight in zip(a, s["nodes"][j], strict=True):
        total += x * x
        margin += x * weight
    margin /= max(math.sqrt(total), 1.0)
    if s["loss"] == "logistic":
        return max(-margin, 0.0) + math.log1p(math.exp(-abs(margin)))
    if margin < 1.0:
        return 0.5 * (1.0 - margin) * (1.0 - margin) if margin > 0.0 else 0.5 - margin
    return 0.0


def _parity(s: Mapping[str, Any], a: Sequence[float], j: int, g: int, k: int) -> float:
    """Sets of g + 1 bits are numbered in increasing order of their masks."""
    value = 1.0
    for r in range(g + 1, 0, -1):
        c, n, m = r - 1, 0, 1
        while m <= k:
            c += 1
            n, m = m, m * (c + 1) // (c + 1 - r)
        k -= n
        if a[c] > 0.5:
            value = -value
    return value


def _chebyshev(s: Mapping[str, Any], a: Sequence[float], j: int, g: int, k: int) -> float:
    value = 1.0
    for i, e in enumerate(s["degrees"][j]):
        x = clamp(a[i], -1.0, 1.0)
        p, q = 1.0, x
        for _ in range(e):
            p, q = q, 2.0 * x * q - p
        value *= p
    return value


_KINDS: dict[str, Callable[[Mapping[str, Any], Sequence[float], int, int, int], float]] = {
    "moments": _moments,
    "theta-grid": _theta_grid,
    "parity": _parity,
    "chebyshev": _chebyshev,
}


# ---------------------------------------------------------------------------------- a report
def check(d: Mapping[str, Any]) -> None:
    """Refuse what this client was not built for, and whole numbers that do not keep the stated epsilon."""
    try:
        t = d["task"]
        epsilon = t["epsilon"]
        floor = t.get("floor", 0)
        rows = t["levels"]["rows"] if "levels" in t else [[_WORDS - floor, floor], [floor, _WORDS - floor]]
        built_for = d["format"] == "dperm collection 1" and t["format"] == "dperm local task 1"
        built_for = built_for and t["sketch"]["kind"] in _KINDS and 1e-3 <= epsilon <= 16.0
        whole = all(type(n) is int and n > 0 for row in rows for n in row) and all(sum(row) == _WORDS for row in rows)
        most = math.exp(epsilon) * (1.0 + 1e-9)
        kept = all(max(column) <= min(column) * most for column in zip(*rows, strict=True))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RefusedTask(_NOT_MINE) from None
    if not (built_for and whole and kept):
        raise RefusedTask(_NOT_MINE)


def _number(v: Any) -> float:
    try:
        return float(v) if isinstance(v, int | float) else math.nan
    except OverflowError:
        return math.nan


def record(d: Mapping[str, Any], x: Any, y: Any = None) -> list[float]:
    """Return a person's record from what the person knows: ``x`` by name or in the order of the columns.

    Unknown or missing values make it not a number, which is reported like the lower end: whether somebody has a value
    does not show.
    """
    columns, i = d["columns"], d["record"]
    if isinstance(x, Mapping):
        known = [_number(x.get(name)) for name in columns]
    else:
        given = x if isinstance(x, Sequence) else ()
        known = [_number(given[k]) if k < len(given) else math.nan for k in range(len(columns))]
    if not i or not all(map(math.isfinite, known)):
        return known
    centred = (
        clamp((v - centre) / scale, -i["clip"], i["clip"])
        for v, centre, scale in zip(known, i["centre"], i["scale"], strict=True)
    )
    row = list(centred)
    total = 0.0
    for v in row:
        total += v * v
    shorter = min(1.0, i["row_norm"] / max(math.sqrt(total), 1e-300))
    row = [v * shorter / i["divide_by"] for v in row] + [v / i["divide_by"] for v in i["constant"]]
    if "target" in i:
        centre, half = i["target"]
        y = _number(y)
        row.append(clamp((y - centre) / half, -1.0, 1.0) if math.isfinite(y) else math.nan)
    if "classes" not in i:
        return row
    # 1 and True are different labels
    member = [c == y and isinstance(c, bool) == isinstance(y, bool) for c in i["classes"]]
    if not any(member):
        return [math.nan]
    if len(member) == 2:
        return row if member[1] else [-v for v in row]
    return row + [1.0 if one else -1.0 for one in member]


def answer(d: Mapping[str, Any], a: Sequence[float], draw: Callable[[], int] = word) -> tuple[int, int]:
    """Return the number of a statistic and the answer to it; ``draw`` gives random whole numbers below 2^32."""
    t, sizes = d["task"], d["sizes"]
    u = draw()
    g = next(k for k, end in enumerate(t["thresholds"]) if u < end)
    k = math.floor(float(draw()) * sizes[g] / _WORDS)
    j = sum(sizes[:g]) + k
    low, high = (ends[j] if isinstance(ends, list) else ends for ends in (d["low"], d["high"]))
    sketch = t["sketch"]
    v = _KINDS[sketch["kind"]](sketch, a, j, g, k) if all(map(math.isfinite, a)) else math.nan
    x = (clamp(v, low, high) - low) / (high - low)
    if "levels" not in t:
        return j, int(draw() < t["floor"] + math.floor(x * (_WORDS - 2 * t["floor"])))
    rows, knots = t["levels"]["rows"], t["levels"]["knots"]
    z = clamp(2.0 * x - 1.0, -1.0, 1.0)
    n = 0
    while n < len(knots) - 2 and knots[n + 1] <= z:
        n += 1
    n += draw() < math.floor(clamp((z - knots[n]) / (knots[n + 1] - knots[n]), 0.0, 1.0) * _WORDS)
    w, b, end = draw(), 0, rows[n][0]
    while w >= end:
        b += 1
        end += rows[n][b]
    return j, b
