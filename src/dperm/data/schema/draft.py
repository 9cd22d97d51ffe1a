"""First draft of a schema: from the names and types of columns if they are sufficient, else from the values.

Entries from values have no privacy guarantee. They are listed as ``unconfirmed`` for the data's owner, and no fit uses
them until the owner confirms that they are public. All other entries follow from names and types alone. The usual
bounds of a name are also compared with the values; the result is shown to the owner and changes nothing in the schema.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np

from dperm.data.schema.encoding import BOOLEAN_WORDS, parse_numbers
from dperm.data.schema.schema import (
    CATEGORY,
    CLASSES,
    DEFAULT_MISSING_VALUES,
    IGNORE,
    Column,
    Schema,
    Target,
)
from dperm.data.tables.files import TableFile
from dperm.data.tables.raw_columns import BOOLEAN, DATE, NUMBER, OTHER, TEXT, RawColumn, canonical_text
from dperm.errors import InvalidData

__all__ = ["Draft", "draft_schema", "reason_to_ignore"]

_MOST_CATEGORIES = 50
_MOST_CLASSES = 20
_MOST_WHOLE_CLASSES = 10  # more distinct whole numbers are more likely an amount
_MOST_OUTSIDE = 0.2  # a larger share of values outside the usual bounds is not explained by errors in a table
_LEAST_ROWS_OF_AN_ID = 50

# Usual bounds of a number with such a word in its name: general knowledge.
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

DATE_ADVICE = "Dates are not supported: derive a number, such as an age or the days since a public date."
ID_ADVICE = "It seems to identify people: such a column predicts nothing about others."
TEXT_ADVICE = "Free text is not supported: use a public list of categories instead."
COMMA_ADVICE = "numbers with a decimal comma: save the table with a decimal point."
MANY_ADVICE = f'More than {_MOST_CATEGORIES} labels: list the relevant ones, or write kind = "number", low and high.'
OTHER_ADVICE = "It holds neither numbers nor text."
UNUSUAL_ADVICE = (
    "many values of {!r} lie outside the usual bounds of its name, {:g} to {:g}, and would be clipped: check its unit "
    "and scale, and write publicly known bounds; this note comes from the values, so do not publish it."
)
WHOLE_ADVICE = (
    'Few distinct whole numbers, treated as classes: for an amount write kind = "number", low and high, and delete '
    "classes."
)


@dataclass(frozen=True)
class Draft:
    """A schema for the owner to check, with a note on every column that needs one.

    ``unusual`` is advice from the values on columns whose entries come from the name alone: it is for the owner only.
    """

    schema: Schema
    notes: dict[str, str]
    unusual: dict[str, str] = field(default_factory=dict)

    @property
    def ignored(self) -> dict[str, str]:
        """Columns that the draft leaves out, with the reason."""
        return {one.name: self.notes.get(one.name, "") for one in self.schema.columns if one.kind == IGNORE}


@dataclass
class _ColumnSummary:
    """Summary of one column's values; ``usual`` are the bounds of its name, if it has any."""

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
                self._numbers(parse_numbers(given))
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
        """Whether the values are numbers with decimal commas."""
        return self.commas and not self.numeric

    @property
    def unusual(self) -> bool:
        """Whether too many values lie outside the usual bounds."""
        return self.numeric and self.outside > _MOST_OUTSIDE * self.finite

    @property
    def is_class_labels(self) -> bool:
        """Whether the values seem to be class labels: two distinct whole numbers, or a few that repeat."""
        few = len(self.numbers) == 2 or (
            len(self.numbers) <= _MOST_WHOLE_CLASSES and self.finite >= 2 * len(self.numbers)
        )
        return self.numeric and self.whole and few

    @property
    def is_row_number(self) -> bool:
        """Whether the column looks like a row number: whole, always increasing, never missing."""
        rising = self.numeric and self.whole and self.rising
        return rising and not self.missing and self.rows >= _LEAST_ROWS_OF_AN_ID

    @property
    def is_boolean(self) -> bool:
        """Whether all values are words for true and false."""
        return 0 < len(self.texts) <= 2 and all(one.lower() in BOOLEAN_WORDS for one in self.texts)


def draft_schema(table: TableFile, target: str) -> Draft:
    """Draft a schema for a table; reads the values of columns whose name and type are not sufficient."""
    table.require([target])
    if len(table.names) < 2:
        raise InvalidData(
            f"{table.path.name} has only one column: a model needs a target and at least one other column."
        )
    known: dict[str, Column] = {}
    notes: dict[str, str] = {}
    for name in table.names:
        kind = None if not table.typed else TEXT if table.has_numeric_categories(name) else table.kind(name)
        if name != target and (drafted_column := _column_from_name(name, kind)) is not None:
            known[name], notes[name] = drafted_column
    usual = {name: column.range for name, column in known.items() if column.kind == NUMBER}
    unknown = [name for name in table.names if name not in known]
    seen = _summarise(table, [*unknown, *usual], usual)
    unusual = {name: UNUSUAL_ADVICE.format(name, *ends) for name, ends in usual.items() if seen[name].unusual}
    unusual |= {name: f"column {name!r} holds {COMMA_ADVICE}" for name in usual if seen[name].with_commas}
    for name in unknown:
        if name != target:
            known[name], note = _column_from_values(name, seen.get(name), table)
            if note:
                notes[name] = note
    drafted, note = _target(target, seen.get(target), table)
    if note:
        notes[target] = note
    return Draft(Schema(tuple(known[name] for name in table.names if name != target), drafted), notes, unusual)


def _summarise(table: TableFile, wanted: list[str], usual: dict[str, tuple[float, float]]) -> dict[str, _ColumnSummary]:
    names = [name for name in wanted if table.kind(name) not in (DATE, OTHER, BOOLEAN)]
    seen = {name: _ColumnSummary(usual[name]) if name in usual else _ColumnSummary() for name in names}
    for chunk in table.chunks(names) if names else ():
        for name, raw in chunk.items():
            seen[name].add(raw)
    if any(one.rows == 0 for one in seen.values()):
        raise InvalidData(f"{table.path.name} has column names but no rows.")
    return seen


def _words(name: str) -> list[str]:
    """Split a name: ``hours-per-week``, ``hoursPerWeek`` and ``hours_per_week`` are the same words."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def reason_to_ignore(name: str, kind: str | None) -> str:
    """Return why a column of this name and type (None if the file has no types) is left out; empty if it is not."""
    words = set(_words(name))
    if kind == DATE or _DATES & words:
        return DATE_ADVICE
    if kind == OTHER:
        return OTHER_ADVICE
    return ID_ADVICE if _IDS & words else ""


def _column_from_name(name: str, kind: str | None) -> tuple[Column, str] | None:
    """Draft a column from its name and type (None if the file has no types), without reading a value."""
    words = _words(name)
    if kind == BOOLEAN:
        return Column(name, BOOLEAN), "True and false by its type."
    if advice := reason_to_ignore(name, kind):
        return Column(name, IGNORE), advice
    if kind not in (NUMBER, None):
        return None
    ends = next((ends for several, ends in _RANGES_OF_SEVERAL.items() if set(several) <= set(words)), None)
    if ends is None and words:
        last = words[-2] if len(words) > 1 and words[-1] in _UNITS else words[-1]
        ends = _RANGES.get(last)
    return None if ends is None else (Column(name, NUMBER, *ends), "Usual bounds for this name: check them.")


def _column_from_values(name: str, seen: _ColumnSummary | None, table: TableFile) -> tuple[Column, str]:
    """Draft a column from its values; everything is unconfirmed, except a kind that follows from the file's types."""
    assert seen is not None
    by_type = table.typed
    kind_seen = (
        () if by_type and table.kind(name) == NUMBER else ("kind",)
    )  # in a text column the kind comes from the values
    if seen.empty:
        return Column(name, IGNORE, unconfirmed=("kind",)), "It has no values."
    if seen.is_row_number:
        return Column(name, IGNORE, unconfirmed=("kind",)), ID_ADVICE
    if table.has_numeric_categories(name):
        return _column_from_labels(name, seen)
    if seen.numeric:
        if seen.is_boolean and not by_type:
            return Column(name, BOOLEAN, unconfirmed=kind_seen), ""
        low, high = _round_outward(seen.low, seen.high)
        return Column(name, NUMBER, low, high, unconfirmed=(*kind_seen, "low", "high")), ""
    if seen.with_commas:
        return Column(name, IGNORE, unconfirmed=("kind",)), f"It holds {COMMA_ADVICE}"
    if seen.dates:
        return Column(name, IGNORE, unconfirmed=("kind",)), DATE_ADVICE
    if seen.is_boolean:
        return Column(name, BOOLEAN, unconfirmed=("kind",)), ""
    if len(seen.texts) > _MOST_CATEGORIES:
        return Column(name, IGNORE, unconfirmed=("kind",)), TEXT_ADVICE
    if len(seen.texts) < 2:
        return Column(name, IGNORE, unconfirmed=("kind",)), "It has only one value."
    texts = tuple(sorted(seen.texts))
    return Column(name, CATEGORY, categories=texts, unconfirmed=(*kind_seen, "categories")), ""


def _column_from_labels(name: str, seen: _ColumnSummary) -> tuple[Column, str]:
    """Draft a column of numeric labels; that they are labels follows from its type."""
    if len(seen.numbers) > _MOST_CATEGORIES:
        return Column(name, IGNORE, unconfirmed=("kind",)), MANY_ADVICE
    if len(seen.numbers) < 2:
        return Column(name, IGNORE, unconfirmed=("kind",)), "It has only one value."
    texts = tuple(str(canonical_text(one)) for one in sorted(seen.numbers))
    return Column(name, CATEGORY, categories=texts, unconfirmed=("categories",)), ""


def _target(name: str, seen: _ColumnSummary | None, table: TableFile) -> tuple[Target, str]:
    kind = table.kind(name)
    if kind == BOOLEAN:
        return Target(name, CLASSES, (False, True)), "True and false by its type."
    if kind in (DATE, OTHER) or (seen is not None and seen.dates and not seen.empty):
        raise InvalidData(f"target {name!r} contains neither numbers nor classes: choose another column.")
    assert seen is not None
    if seen.empty:
        raise InvalidData(f"target {name!r} has no values: choose another column.")
    if seen.with_commas:
        raise InvalidData(f"target {name!r} holds {COMMA_ADVICE}")
    if len(seen.numbers if seen.numeric else seen.texts) < 2:
        raise InvalidData(f"target {name!r} has only one value: there is nothing to predict.")
    kind_seen = ("kind",)
    by_type = table.has_numeric_categories(name) and seen.whole and len(seen.numbers) <= _MOST_CLASSES
    if seen.is_class_labels or by_type:
        classes = tuple(sorted(int(one) for one in seen.numbers))
        note = WHOLE_ADVICE if len(classes) > 2 and not by_type else ""
        return Target(name, CLASSES, classes, unconfirmed=(*kind_seen, "classes")), note
    if seen.numeric:
        low, high = _round_outward(seen.low, seen.high)
        note = 'For classes write kind = "classes" and classes = [...] instead.' if seen.whole else ""
        return Target(name, NUMBER, low=low, high=high, unconfirmed=(*kind_seen, "low", "high")), note
    if len(seen.texts) > _MOST_CLASSES:
        raise InvalidData(f"target {name!r} has more than {_MOST_CLASSES} different texts: choose another column.")
    return Target(name, CLASSES, tuple(sorted(seen.texts)), unconfirmed=(*kind_seen, "classes")), ""


def _round_outward(low: float, high: float) -> tuple[float, float]:
    """Return round numbers around a range: a hint for the owner, who replaces them by known ones.

    >>> _round_outward(17, 90), _round_outward(-0.37, 0.2), _round_outward(3, 3)
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
