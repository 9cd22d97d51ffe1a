"""A first draft of a schema: from the names and types of columns where they tell enough, else from the values.

What comes from values is not private. It is drafted for the data's owner, listed as ``unconfirmed``, and no fit takes
it until the owner confirms that it is public. Every other line follows from names and types alone. Usual bounds of a
name are compared with the values too, for the owner's eyes: the outcome is told and changes nothing in the schema.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np

from dperm.data.schema.encoding import TRUTH_WORDS, parsed
from dperm.data.schema.schema import (
    CATEGORY,
    CLASSES,
    DEFAULT_MISSING_VALUES,
    IGNORE,
    TRUTH,
    Column,
    Schema,
    Target,
)
from dperm.data.tables.files import TableFile
from dperm.data.tables.raw_columns import BOOLEAN, DATE, NUMBER, OTHER, TEXT, RawColumn, spelled
from dperm.errors import InvalidData

__all__ = ["Draft", "draft_schema", "not_taken"]

_MOST_CATEGORIES = 50
_MOST_CLASSES = 20
_MOST_WHOLE_CLASSES = 10  # more whole numbers than that are rather an amount
_MOST_OUTSIDE = 0.2  # share of values beyond the usual bounds of a name that errors in a table explain
_LEAST_ROWS_OF_AN_ID = 50

# What anyone may know of a number with such a word in its name.
_RANGES: dict[str, tuple[float, float]] = {
    "age": (0, 120),
    "year": (1900, 2100),
    "month": (1, 12),
    "weekday": (0, 7),
    "hour": (0, 24),
    "minute": (0, 60),
    "percent": (0, 100),
    "percentage": (0, 100),
    "pct": (0, 100),
    "probability": (0, 1),
    "fraction": (0, 1),
    "latitude": (-90, 90),
    "longitude": (-180, 180),
    "bmi": (10, 80),
    "systolic": (50, 260),
    "diastolic": (30, 160),
    "pulse": (20, 250),
}
_RANGES_OF_SEVERAL = {
    ("hours", "week"): (0.0, 168.0),
    ("heart", "rate"): (20.0, 250.0),
    ("height", "cm"): (30.0, 250.0),
}
_UNITS = {"years", "yrs", "y"}
_DATES = {"date", "dob", "birthday", "birthdate", "timestamp", "datetime"}
_IDS = {"id", "uuid", "guid", "ssn", "email", "phone", "iban", "surname", "firstname", "lastname", "fullname", "mrn"}
_COMMA_TEXT = re.compile(r"[-+]?\d+(,\d+)?")
_DATE_TEXT = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?|\d\d?[./-]\d\d?[./-](\d{4}|\d\d)( .*)?")

DATE_ADVICE = "Dates are not taken: derive a number that matters, such as an age or the days since a public day."
ID_ADVICE = "It seems to tell who somebody is: such a column predicts nothing about others."
TEXT_ADVICE = "Free text is not taken: a public list of categories would be."
COMMA_ADVICE = "numbers with a decimal comma: save the table with a decimal point."
MANY_ADVICE = f'More than {_MOST_CATEGORIES} labels: list those that matter, or write kind = "number", low and high.'
OTHER_ADVICE = "It holds neither numbers nor text."
UNUSUAL_ADVICE = (
    "many values of {!r} lie outside the usual bounds of its name, {:g} to {:g}, and would be clipped: check its unit "
    "and scale, and write the bounds that are publicly known. Seen in the values, so not for publication."
)
WHOLE_ADVICE = (
    'Few whole numbers, taken for classes: for an amount write kind = "number", low and high, and delete classes.'
)


@dataclass(frozen=True)
class Draft:
    """A schema to be read by the owner, and a note on every column that needs one.

    ``unusual`` is advice from the values on columns whose lines do not come from them: it stays with the owner.
    """

    schema: Schema
    notes: dict[str, str]
    unusual: dict[str, str] = field(default_factory=dict)

    @property
    def ignored(self) -> dict[str, str]:
        """Columns that the draft leaves out, and why."""
        return {one.name: self.notes.get(one.name, "") for one in self.schema.columns if one.kind == IGNORE}


@dataclass
class _Seen:
    """What the values of one column look like, ``usual`` bounds among them if its name has some."""

    usual: tuple[float, float] = (-math.inf, math.inf)
    rows: int = 0
    missing: int = 0
    numeric: bool = True
    whole: bool = True
    rising: bool = True
    dates: bool = True
    commas: bool = True
    low: float = math.inf
    high: float = -math.inf
    finite: int = 0
    outside: int = 0
    texts: set[str] = field(default_factory=set)
    numbers: set[float] = field(default_factory=set)

    def add(self, raw: RawColumn) -> None:
        self.rows += len(raw)
        if isinstance(raw, np.ndarray):
            self.missing += int(np.isnan(raw).sum())
            self.dates = self.commas = False
            self._numbers(raw[~np.isnan(raw)])
            return
        given = [one.strip() for one in raw if one is not None and one.strip() not in DEFAULT_MISSING_VALUES]
        self.missing += len(raw) - len(given)
        if len(self.texts) <= _MOST_CATEGORIES:
            self.texts.update(given)
        if self.dates:
            self.dates = all(_DATE_TEXT.fullmatch(one) for one in given)
        if self.commas:
            self.commas = all(_COMMA_TEXT.fullmatch(one) for one in given)
        if self.numeric:
            try:
                self._numbers(parsed(given))
            except ValueError:
                self.numeric = False

    def _numbers(self, values: np.ndarray) -> None:
        values = values[np.isfinite(values)]
        if not len(values):
            return
        self.rising = self.rising and bool((np.diff(values) > 0).all()) and float(values[0]) > self.high
        self.whole = self.whole and bool((values == np.rint(values)).all())
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        self.finite += len(values)
        self.outside += int(((values < self.usual[0]) | (values > self.usual[1])).sum())
        if len(self.numbers) <= _MOST_CATEGORIES:
            self.numbers.update(values.tolist())

    @property
    def empty(self) -> bool:
        return self.rows == self.missing or (self.numeric and not self.finite)

    @property
    def with_commas(self) -> bool:
        """Whether they would be numbers if their commas were points."""
        return self.commas and not self.numeric

    @property
    def unusual(self) -> bool:
        """Whether too many values lie outside the usual bounds."""
        return self.numeric and self.outside > _MOST_OUTSIDE * self.finite

    @property
    def labels(self) -> bool:
        """Whether they are numbers that seem to stand for classes: two, or a few that come again and again."""
        few = len(self.numbers) == 2 or (
            len(self.numbers) <= _MOST_WHOLE_CLASSES and self.finite >= 2 * len(self.numbers)
        )
        return self.numeric and self.whole and few

    @property
    def counts(self) -> bool:
        """Whether it is a row number: whole, always rising, never missing."""
        rising = self.numeric and self.whole and self.rising
        return rising and not self.missing and self.rows >= _LEAST_ROWS_OF_AN_ID

    @property
    def two_words(self) -> bool:
        """Whether all values are words for true and false."""
        return 0 < len(self.texts) <= 2 and all(one.lower() in TRUTH_WORDS for one in self.texts)


def draft_schema(table: TableFile, target: str) -> Draft:
    """Draft a schema for a table; reads the values of those columns whose name and type do not tell enough."""
    table.require([target])
    if len(table.names) < 2:
        raise InvalidData(f"{table.path.name} has one column only: a model needs a target and at least one column.")
    known: dict[str, Column] = {}
    notes: dict[str, str] = {}
    for name in table.names:
        kind = None if not table.typed else TEXT if table.labels(name) else table.kind(name)
        if name != target and (found := _by_name(name, kind)) is not None:
            known[name], notes[name] = found
    usual = {name: column.range for name, column in known.items() if column.kind == NUMBER}
    looked = [name for name in table.names if name not in known]
    seen = _look(table, [*looked, *usual], usual)
    unusual = {name: UNUSUAL_ADVICE.format(name, *ends) for name, ends in usual.items() if seen[name].unusual}
    unusual |= {name: f"column {name!r} holds {COMMA_ADVICE}" for name in usual if seen[name].with_commas}
    for name in looked:
        if name != target:
            known[name], note = _by_values(name, seen.get(name), table)
            if note:
                notes[name] = note
    drafted, note = _target(target, seen.get(target), table)
    if note:
        notes[target] = note
    return Draft(Schema(tuple(known[name] for name in table.names if name != target), drafted), notes, unusual)


def _look(table: TableFile, wanted: list[str], usual: dict[str, tuple[float, float]]) -> dict[str, _Seen]:
    names = [name for name in wanted if table.kind(name) not in (DATE, OTHER, BOOLEAN)]
    seen = {name: _Seen(usual[name]) if name in usual else _Seen() for name in names}
    for chunk in table.chunks(names) if names else ():
        for name, raw in chunk.items():
            seen[name].add(raw)
    if any(one.rows == 0 for one in seen.values()):
        raise InvalidData(f"{table.path.name} has column names and no rows.")
    return seen


def _words(name: str) -> list[str]:
    """Split a name: ``hours-per-week``, ``hoursPerWeek`` and ``hours_per_week`` are the same words."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def not_taken(name: str, kind: str | None) -> str:
    """Say why a column of this name and type (None where a file has none) is not to be used; empty if it may be."""
    words = set(_words(name))
    if kind == DATE or _DATES & words:
        return DATE_ADVICE
    if kind == OTHER:
        return OTHER_ADVICE
    return ID_ADVICE if _IDS & words else ""


def _by_name(name: str, kind: str | None) -> tuple[Column, str] | None:
    """Return what name and type (None where a file has none) tell, without looking at a value."""
    words = _words(name)
    if kind == BOOLEAN:
        return Column(name, TRUTH), "True and false by its type."
    if advice := not_taken(name, kind):
        return Column(name, IGNORE), advice
    if kind not in (NUMBER, None):
        return None
    ends = next((ends for several, ends in _RANGES_OF_SEVERAL.items() if set(several) <= set(words)), None)
    if ends is None and words:
        last = words[-2] if len(words) > 1 and words[-1] in _UNITS else words[-1]
        ends = _RANGES.get(last)
    return None if ends is None else (Column(name, NUMBER, *ends), "Usual bounds for this name: check them.")


def _by_values(name: str, seen: _Seen | None, table: TableFile) -> tuple[Column, str]:
    """Return what the values look like; all of it is unconfirmed, but for a kind that the file's types tell."""
    assert seen is not None
    by_type = table.typed
    kind_seen = () if by_type and table.kind(name) == NUMBER else ("kind",)  # that texts are numbers is seen in them
    if seen.empty:
        return Column(name, IGNORE, unconfirmed=("kind",)), "It has no values."
    if seen.counts:
        return Column(name, IGNORE, unconfirmed=("kind",)), ID_ADVICE
    if table.labels(name):
        return _labelled(name, seen)
    if seen.numeric:
        if seen.two_words and not by_type:
            return Column(name, TRUTH, unconfirmed=kind_seen), ""
        low, high = _outward(seen.low, seen.high)
        return Column(name, NUMBER, low, high, unconfirmed=(*kind_seen, "low", "high")), ""
    if seen.with_commas:
        return Column(name, IGNORE, unconfirmed=("kind",)), f"It holds {COMMA_ADVICE}"
    if seen.dates:
        return Column(name, IGNORE, unconfirmed=("kind",)), DATE_ADVICE
    if seen.two_words:
        return Column(name, TRUTH, unconfirmed=("kind",)), ""
    if len(seen.texts) > _MOST_CATEGORIES:
        return Column(name, IGNORE, unconfirmed=("kind",)), TEXT_ADVICE
    if len(seen.texts) < 2:
        return Column(name, IGNORE, unconfirmed=("kind",)), "It has one value only."
    texts = tuple(sorted(seen.texts))
    return Column(name, CATEGORY, categories=texts, unconfirmed=(*kind_seen, "categories")), ""


def _labelled(name: str, seen: _Seen) -> tuple[Column, str]:
    """Return what a column of labels that are numbers looks like; that they are labels is told by its type."""
    if len(seen.numbers) > _MOST_CATEGORIES:
        return Column(name, IGNORE, unconfirmed=("kind",)), MANY_ADVICE
    if len(seen.numbers) < 2:
        return Column(name, IGNORE, unconfirmed=("kind",)), "It has one value only."
    texts = tuple(str(spelled(one)) for one in sorted(seen.numbers))
    return Column(name, CATEGORY, categories=texts, unconfirmed=("categories",)), ""


def _target(name: str, seen: _Seen | None, table: TableFile) -> tuple[Target, str]:
    kind = table.kind(name)
    if kind == BOOLEAN:
        return Target(name, CLASSES, (False, True)), "True and false by its type."
    if kind in (DATE, OTHER) or (seen is not None and seen.dates and not seen.empty):
        raise InvalidData(f"target {name!r} holds neither numbers nor classes: choose another column.")
    assert seen is not None
    if seen.empty:
        raise InvalidData(f"target {name!r} has no values: choose another column.")
    if seen.with_commas:
        raise InvalidData(f"target {name!r} holds {COMMA_ADVICE}")
    if len(seen.numbers if seen.numeric else seen.texts) < 2:
        raise InvalidData(f"target {name!r} has one value only: there is nothing to predict.")
    kind_seen = ("kind",)
    by_type = table.labels(name) and seen.whole and len(seen.numbers) <= _MOST_CLASSES
    if seen.labels or by_type:
        classes = tuple(sorted(int(one) for one in seen.numbers))
        note = WHOLE_ADVICE if len(classes) > 2 and not by_type else ""
        return Target(name, CLASSES, classes, unconfirmed=(*kind_seen, "classes")), note
    if seen.numeric:
        low, high = _outward(seen.low, seen.high)
        note = 'For classes write kind = "classes" and classes = [...] instead.' if seen.whole else ""
        return Target(name, NUMBER, low=low, high=high, unconfirmed=(*kind_seen, "low", "high")), note
    if len(seen.texts) > _MOST_CLASSES:
        raise InvalidData(f"target {name!r} has more than {_MOST_CLASSES} different texts: choose another column.")
    return Target(name, CLASSES, tuple(sorted(seen.texts)), unconfirmed=(*kind_seen, "classes")), ""


def _outward(low: float, high: float) -> tuple[float, float]:
    """Return round numbers around a range: a hint for the owner, who writes what is known instead.

    >>> _outward(17, 90), _outward(-0.37, 0.2), _outward(3, 3)
    ((0, 100), (-0.5, 0.5), (0, 5))
    """
    if 0 <= low <= high / 2 or low == high > 0:
        low = 0
    if 0 >= high >= low / 2 or high == low < 0:
        high = 0
    if low == high:
        return low, low + 1
    size = 10.0 ** math.floor(math.log10(max(abs(low), abs(high))))
    steps = (0.1, 0.2, 0.5, 1, 2, 5, 10)
    top = next(step * size for step in steps if step * size >= max(abs(low), abs(high)))
    unit = top / 10 if low > 0 or high < 0 else top
    ends = (math.floor(low / unit) * unit, math.ceil(high / unit) * unit)
    low, high = (0 if end == 0 else int(end) if float(end).is_integer() else float(f"{end:.3g}") for end in ends)
    return low, high
