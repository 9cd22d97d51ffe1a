"""Compute the content of a report; ``js/dperm.js`` computes the same, operation by operation."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from numbers import Real
from typing import Any

__all__ = ["RefusedTask", "answer", "check", "check_names", "random_word", "record"]

_WORDS = 2**32
_UNKNOWN_TASK = "this client does not support this task."


class RefusedTask(ValueError):
    """A task that this client does not support or must not answer."""


def random_word() -> int:
    """Return a random whole number below 2^32 from the operating system."""
    return secrets.randbits(32)


def clamp(v: float, low: float, high: float) -> float:
    """Return v within the range; NaN counts as the lower end."""
    return (v if v < high else high) if v > low else low


def ratio(a: float, b: float) -> float:
    """Return a / b as JavaScript does: division never fails."""
    if b == 0.0:
        return math.nan if a == 0.0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _at(values: Sequence[float], i: int) -> float:
    """Return a number of a list; NaN if it is not there."""
    return values[i] if i < len(values) else math.nan


# ---------------------------------------------------------------------------------- statistics of a record
def _moments(s: Mapping[str, Any], a: Sequence[float], j: int, g: int, k: int) -> float:
    ball, reach = s["ball"], s.get("reach") or []
    longest, total, value = 1.0, 0.0, 1.0
    inside = a[: int(ball)]
    for x in inside:
        longest = max(longest, abs(x))
    for x in inside:
        total += (x / longest) * (x / longest)
    length = max(longest * math.sqrt(total), 1.0)
    for i, e in enumerate(s["exponents"][j]):
        r = reach[i] if i < len(reach) else 1.0
        while e > 0:
            e -= 1
            value *= clamp(_at(a, i) / length if i < ball else _at(a, i), -r, r)
    return value


def _theta_grid(s: Mapping[str, Any], a: Sequence[float], j: int, g: int, k: int) -> float:
    total = margin = 0.0
    for i, x in enumerate(a):
        total += x * x
        margin += x * _at(s["nodes"][j], i)
    margin /= max(math.sqrt(total), 1.0)
    if s["loss"] == "logistic":
        return max(-margin, 0.0) + math.log1p(math.exp(-abs(margin)))
    if margin < 1.0:
        return (1.0 - margin) * (1.0 - margin) / 2.0 if margin > 0.0 else 0.5 - margin
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
        if _at(a, c) > 0.5:
            value = -value
    return value


def _chebyshev(s: Mapping[str, Any], a: Sequence[float], j: int, g: int, k: int) -> float:
    value = 1.0
    for i, e in enumerate(s["degrees"][j]):
        x = clamp(_at(a, i), -1.0, 1.0)
        p, q = 1.0, x
        while e > 0:
            e -= 1
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
    """Refuse tasks that this client does not support, and whole numbers that violate the stated epsilon."""
    try:
        t = d["task"]
        epsilon, floor = t["epsilon"], t.get("floor", 0)
        one_bit: dict[str, Any] = {"rows": [[_WORDS - floor, floor], [floor, _WORDS - floor]], "knots": [0, 1]}
        rows, knots = ((t.get("levels") or one_bit)[key] for key in ("rows", "knots"))
        supported = d["format"] == "dperm collection 1" and t["format"] == "dperm local task 1"
        supported = supported and t["sketch"]["kind"] in _KINDS and _plain(epsilon) and 1e-3 <= epsilon <= 16.0
        supported = supported and len(rows) == len(knots) and all(_plain(v) and math.isfinite(v) for v in knots)
        whole = all(_plain(n) and n > 0 and n % 1 == 0 for row in rows for n in row)
        whole = whole and all(sum(row) == _WORDS for row in rows)
        most = math.exp(epsilon) * (1.0 + 1e-9)
        within_epsilon = all(max(column) <= min(column) * most for column in zip(*rows, strict=True))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise RefusedTask(_UNKNOWN_TASK) from None
    if not (supported and whole and within_epsilon):
        raise RefusedTask(_UNKNOWN_TASK)


def _plain(v: Any) -> bool:
    """Whether a value of a description is a number, and not a string or Boolean that Python accepts as one."""
    return type(v) in (int, float)


def _number(v: Any) -> float:
    # Python does not count numpy's Booleans as numbers; this folder must not import numpy
    if not isinstance(v, Real) and type(v).__name__ not in ("bool", "bool_"):
        return math.nan
    try:
        return float(v)
    except OverflowError:
        return math.nan


def check_names(d: Mapping[str, Any], x: Any) -> None:
    """Refuse values whose names are not the description's; no value is looked at.

    An application may leave out what is missing. If only some names had to be right, a forged description that renames
    a column would get reports from exactly those persons who lack a value.
    """
    columns = d.get("columns")
    if not isinstance(columns, list):
        raise RefusedTask(_UNKNOWN_TASK)
    if isinstance(x, Mapping):
        given = list(x)
        if len(given) != len(columns) or any(name not in columns for name in given):
            raise RefusedTask(
                f"no report: give a value for each of {', '.join(map(str, columns))} and for no other name; None if it "
                "is missing."
            )
    elif not hasattr(x, "__len__") or isinstance(x, str | bytes | Set):
        raise RefusedTask("no report: the values must be given by name, or as a list in the order of the columns.")
    elif len(x) != len(columns):
        raise RefusedTask(
            f"no report: a list needs {len(columns)} values, in the order of the columns; None if missing."
        )


def _values(columns: Sequence[str], x: Any) -> list[float]:
    """Return a person's values, given by name or in the order of the columns."""
    given = [x[name] for name in columns] if isinstance(x, Mapping) else list(x)
    return [_number(value) for value in given]


def record(d: Mapping[str, Any], x: Any, y: Any = None) -> list[float]:
    """Return a person's record from the values ``x``, given by name or in the order of the columns.

    Unknown or missing values make it NaN, which is reported like the lower end: a report does not show whether a person
    has a value. Other names than the description's are refused.
    """
    check_names(d, x)
    try:
        return _scaled(d["record"], _values(d["columns"], x), y)
    except Exception:  # whatever fails for some records must not show
        return [math.nan]


def _scaled(i: Mapping[str, Any] | None, values: list[float], y: Any) -> list[float]:
    """Every record takes the same steps and has the same length: 0 * v adds NaN for what is missing, 0 otherwise."""
    if not i:
        return values
    row = [
        clamp(ratio(v - _at(i["centre"], k), _at(i["scale"], k)), -i["clip"], i["clip"]) + 0.0 * v
        for k, v in enumerate(values)
    ]
    total = 0.0
    for v in row:
        total += v * v
    shorter = ratio(i["row_norm"], max(math.sqrt(total), 1e-300))
    shorter = 1.0 if shorter >= 1.0 else shorter
    row = [ratio(v, i["divide_by"]) for v in [*(v * shorter for v in row), *i["constant"]]]
    if "target" in i:
        y = _number(y)
        row.append(clamp(ratio(y - i["target"][0], i["target"][1]), -1.0, 1.0) + 0.0 * y)
    if "classes" not in i:
        return row
    # 1 and True are different labels
    y = y.item() if hasattr(y, "item") else y
    same = [k for k, c in enumerate(i["classes"]) if c == y and isinstance(c, bool) == isinstance(y, bool)]
    label = same[0] if same else -1
    if label < 0:
        row = [math.nan] * len(row)
    if len(i["classes"]) < 3:
        return row if label else [-v for v in row]
    return row + [1.0 if k == label else -1.0 for k in range(len(i["classes"]))]


def answer(d: Mapping[str, Any], a: Sequence[float], draw: Callable[[], int] = random_word) -> tuple[int, int]:
    """Return the number of a statistic and the answer to it; ``draw`` returns random whole numbers below 2^32."""
    t, sizes = d["task"], d["sizes"]
    u = draw()
    g = next(k for k, end in enumerate(t["thresholds"]) if u < end)
    k = math.floor(float(draw()) * sizes[g] / _WORDS)
    j = sum(sizes[:g]) + k
    low, high = (_at(ends, j) if isinstance(ends, list) else ends for ends in (d["low"], d["high"]))
    sketch = t["sketch"]
    # computed from every record, complete or not, and a failure gives an answer too: no record prevents a report
    try:
        x = ratio(_KINDS[sketch["kind"]](sketch, a, j, g, k) - low, high - low)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        x = math.nan
    # last, so that x is in [0, 1] whatever a description says
    x = clamp(x if all(map(math.isfinite, a)) else math.nan, 0.0, 1.0)
    if not t.get("levels"):
        return j, int(draw() < t["floor"] + math.floor(x * (_WORDS - 2 * t["floor"])))
    rows, knots = t["levels"]["rows"], t["levels"]["knots"]
    z, n = 2.0 * x - 1.0, 0
    while n < len(knots) - 2 and knots[n + 1] <= z:
        n += 1
    n += draw() < math.floor(clamp(ratio(z - knots[n], _at(knots, n + 1) - knots[n]), 0.0, 1.0) * _WORDS)
    w, b, end = draw(), 0, rows[n][0]
    while w >= end:
        b += 1
        end += rows[n][b]
    return j, b
