"""Schemas: what is declared public about the columns of a table, and how they become numbers within bounds.

This module reads no data. A schema states which columns are used, what kind each is, its bounds or categories, and the
replacement for a missing value. :mod:`dperm.data.schema.encoding` applies it to a table, and :meth:`Schema.bounds`
returns the bounds that hold by construction for the encoded columns.
"""

from __future__ import annotations

import math
import os
import shlex
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.design.bounds import Bounds
from dperm.data.tables.raw_columns import BOOLEAN, NUMBER
from dperm.errors import InvalidBounds
from dperm.validation import is_finite_number

if TYPE_CHECKING:
    from dperm.data.schema.encoding import Encoded

__all__ = ["BOOLEAN", "CATEGORY", "CLASSES", "IGNORE", "NUMBER", "Column", "Schema", "Target"]

#: kinds of columns beside numbers and booleans, and the kind of a target with classes
CATEGORY, IGNORE, CLASSES = "category", "ignore", "classes"

#: rules for missing values: the middle of the range (numbers), no category (categories), or a refusal
MIDDLE, NO_CATEGORY, REFUSE = "middle", "none", "refuse"

DEFAULT_MISSING_VALUES = ("", "NA", "NaN", "null", "?")

_ADVICE = {
    "date": 'derive a number, such as an age or the days since a public date, or write kind = "ignore"',
    "id": 'an id identifies a person and predicts nothing: write kind = "ignore"',
    "text": 'free text cannot be bounded: give a public list of categories, or write kind = "ignore"',
}


def _check_range(low: Any, high: Any, what: str) -> None:
    if not (is_finite_number(low) and is_finite_number(high)):
        raise InvalidBounds(f"{what} needs publicly known numbers low and high.")
    if not low < high:
        raise InvalidBounds(f"the bounds of {what} contradict each other: low = {low:g} is not below high = {high:g}.")


def _check_labels(labels: Any, what: str, least: int) -> None:
    plain = isinstance(labels, tuple) and all(isinstance(one, str | int | float | bool) for one in labels)
    if not plain or len(labels) < least or len({str(one) for one in labels}) < len(labels):
        raise InvalidBounds(f"{what} must be a list of at least {least} distinct texts or numbers.")


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes
    ----------
    kind : {"number", "boolean", "category", "ignore"}
    low, high : float
        Range of a number; values outside are clipped.
    scale : float, optional
        Public guess of a number's standard deviation; a good guess improves the fit.
    categories : tuple of str
        All categories; anything else counts as missing.
    missing : str or float
        ``"middle"`` or a number for numbers, ``"none"`` (no category at all) or a category for categories,
        ``"refuse"`` for both.
    unconfirmed, confirmed : tuple of str
        Entries that were read from the data: not yet public, and declared public by the owner.
    """

    name: str
    kind: str
    low: float | None = None
    high: float | None = None
    scale: float | None = None
    categories: tuple[str, ...] = ()
    missing: str | float = ""
    unconfirmed: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        what = f"column {self.name!r}"
        if self.kind in _ADVICE:
            raise InvalidBounds(f"{what} is of kind {self.kind!r}, which models do not support: {_ADVICE[self.kind]}.")
        if self.kind not in (NUMBER, BOOLEAN, CATEGORY, IGNORE):
            raise InvalidBounds(f"the kind of {what} must be number, boolean, category or ignore, not {self.kind!r}.")
        if self.missing == "":
            object.__setattr__(self, "missing", NO_CATEGORY if self.kind == CATEGORY else MIDDLE)
        if self.kind == NUMBER:
            _check_range(self.low, self.high, what)
            if self.scale is not None and not (is_finite_number(self.scale) and self.scale > 0):
                raise InvalidBounds(f"the scale of {what} must be a positive number.")
        if self.kind == CATEGORY:
            _check_labels(self.categories, f"categories of {what}", 2)
            if len(self.categories) > _MOST_CATEGORIES:
                raise InvalidBounds(f"{what} has more than {_MOST_CATEGORIES} categories: merge rare ones.")
        self._check_missing(what)

    def _check_missing(self, what: str) -> None:
        rule = self.missing
        if self.kind == CATEGORY:
            if rule not in (NO_CATEGORY, REFUSE, *self.categories):
                raise InvalidBounds(f'missing of {what} must be "none", "refuse" or one of its categories.')
        elif rule not in (MIDDLE, REFUSE) and not is_finite_number(rule):
            raise InvalidBounds(f'missing of {what} must be "middle", "refuse" or a number.')

    @property
    def range(self) -> tuple[float, float]:
        """Bounds of an encoded value."""
        if self.kind == NUMBER:
            assert self.low is not None
            assert self.high is not None
            return float(self.low), float(self.high)
        return 0.0, 1.0

    @property
    def encoded_names(self) -> tuple[str, ...]:
        """Names of the encoded columns: its own, one per category, or one for two categories."""
        if self.kind == IGNORE:
            return ()
        if self.kind != CATEGORY:
            return (self.name,)
        shown = self.categories[1:] if len(self.categories) == 2 else self.categories
        return tuple(f"{self.name}={one}" for one in shown)

    @property
    def one_hot(self) -> bool:
        """Whether it is encoded as indicators of which at most one is 1."""
        return len(self.encoded_names) > 1


_MOST_CATEGORIES = 1000
_MOST_NAMED = 12  # columns listed in one sentence of a report


@dataclass(frozen=True)
class Target:
    """The column to predict: ``"classes"`` with all labels, or a ``"number"`` between two bounds."""

    name: str
    kind: str
    classes: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    unconfirmed: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        what = f"target {self.name!r}"
        if self.kind == CLASSES:
            _check_labels(self.classes, f"classes of {what}", 2)
            if len({type(one) for one in self.classes}) > 1:
                raise InvalidBounds(f"classes of {what} must be all texts, all numbers or true and false.")
        elif self.kind == NUMBER:
            _check_range(self.low, self.high, what)
        else:
            raise InvalidBounds(f"the kind of {what} must be classes or number, not {self.kind!r}.")


@dataclass(frozen=True)
class Schema:
    """What is declared public about a table.

    Examples
    --------
    >>> schema = Schema((Column("age", "number", 18, 100), Column("job", "category", categories=("a", "b", "c"))),
    ...                 Target("ill", "classes", (False, True)))
    >>> schema.encoded_names
    ['age', 'job=a', 'job=b', 'job=c']
    >>> schema.encode({"age": [30, None], "job": ["b", "x"]}).X.tolist()
    [[30.0, 0.0, 1.0, 0.0], [59.0, 0.0, 0.0, 0.0]]
    """

    columns: tuple[Column, ...]
    target: Target
    missing_values: tuple[str, ...] = field(default=DEFAULT_MISSING_VALUES)

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        for name, times in Counter([*names, self.target.name]).items():
            if times > 1:
                raise InvalidBounds(
                    f"the schema has column {name!r} twice: the target must not be listed among the columns."
                )
        if not self.used:
            raise InvalidBounds("the schema uses no column: declare at least one that is not ignored.")
        twice = [name for name, times in Counter(self.encoded_names).items() if times > 1]
        if twice:
            raise InvalidBounds(f"two columns of the schema are encoded as {twice[0]!r}: rename one of them.")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a schema from a TOML file."""
        from dperm.data.schema.schema_file import read_schema

        return read_schema(path)

    # ---------------------------------------------------------------------------------- confirmation
    @property
    def parts(self) -> tuple[Column | Target, ...]:
        """The target, then all columns."""
        return (self.target, *self.columns)

    @property
    def unconfirmed(self) -> list[str]:
        """Names of columns with entries that were read from the data and are not confirmed as public."""
        return [part.name for part in self.parts if part.unconfirmed]

    def confirm(self) -> Schema:
        """Declare all entries that were read from the data public, unchanged; reports mention it."""
        columns = tuple(replace(one, unconfirmed=(), confirmed=_confirmed_entries(one)) for one in self.columns)
        target = replace(self.target, unconfirmed=(), confirmed=_confirmed_entries(self.target))
        return replace(self, columns=columns, target=target)

    def require_confirmed(self, path: str | None = None) -> None:
        """Refuse a schema with unconfirmed lines; ``path`` is its file, for the message."""
        names = self.unconfirmed
        if names:
            first = next(part for part in self.parts if part.unconfirmed)
            more = f" and {len(names) - 1} more column{'s' if len(names) > 2 else ''}" if len(names) > 1 else ""
            file = "FILE" if path is None else shlex.quote(path)
            raise InvalidBounds(
                f"{path or 'the schema'} has lines that were read from the data and are not confirmed as public "
                f"({first.name}: {', '.join(first.unconfirmed)}{more}): replace them by publicly known values and "
                f"delete the line `unconfirmed`, or run `dperm schema --confirm {file}` if they are already public."
            )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions that a report must state about values that were first read from the data."""
        found = [f"{part.name} ({', '.join(part.confirmed)})" for part in self.parts if part.confirmed]
        if not found:
            return ()
        more = f" and {len(found) - _MOST_NAMED} more, in the model file" if len(found) > _MOST_NAMED else ""
        return (
            "the declared bounds do not come from these data, except some that the owner confirmed to be public: "
            + "; ".join(found[:_MOST_NAMED])
            + more,
        )

    # ---------------------------------------------------------------------------------- encoding
    @cached_property
    def used(self) -> tuple[Column, ...]:
        """Columns that the model uses."""
        return tuple(column for column in self.columns if column.kind != IGNORE)

    @property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns, in order."""
        return [name for column in self.used for name in column.encoded_names]

    def bounds(self, *, by_name: bool = False) -> Bounds:
        """Return the bounds that every encoded row satisfies by construction.

        Categories lie between 0 and 1, and at most one of a column's indicators is 1, so the length of a row does not
        grow with the number of categories. ``by_name`` returns dicts by column name, for tables with names.
        """
        self.require_confirmed()
        target = self.target
        common: dict[str, Any] = {"classes": list(target.classes)} if target.kind == CLASSES else {}
        if target.kind == NUMBER:
            common["target"] = (target.low, target.high)
        common["assumptions"] = self.assumptions

        def given(values: list[float]) -> Any:
            return dict(zip(self.encoded_names, values, strict=True)) if by_name else np.array(values)

        each = [(column, *column.range) for column in self.used for _ in column.encoded_names]
        if not any(column.one_hot or column.scale is not None for column in self.used):
            return Bounds(features=(given([low for _, low, _ in each]), given([high for *_, high in each])), **common)
        centres = [0.0 if column.one_hot else low / 2.0 + high / 2.0 for column, low, high in each]
        scales = [_scale(column) for column, *_ in each]
        lengths = [_largest_length(column) for column in self.used]
        return Bounds(
            centre=given(centres),
            scale=given(scales),
            clip=max(lengths),
            row_norm=math.hypot(*lengths) * (1.0 + 1e-9),  # a margin for rounding: no row is longer
            **common,
        )

    def encode(self, table: Any, *, with_target: bool = False) -> Encoded:
        """Return the columns of a table as numbers within the declared bounds; the target too if ``with_target``.

        Parameters
        ----------
        table
            A file opened by :func:`dperm.data.tables.files.open_table`, a pandas, polars or Arrow table, or a dict of
            columns.
        with_target : bool
            Whether the target is read too.
        """
        from dperm.data.schema.encoding import encode

        return encode(self, table, with_target=with_target)

    def labels(self) -> NDArray[Any]:
        """Return the classes as an array."""
        return np.array(self.target.classes)


def _half_width(column: Column) -> float:
    low, high = column.range
    return high / 2.0 - low / 2.0


def _scale(column: Column) -> float:
    if column.one_hot:
        return 1.0
    return _half_width(column) if column.scale is None else float(column.scale)


def _largest_length(column: Column) -> float:
    """Return the largest L2 norm of a column's part of a scaled row."""
    return 1.0 if column.one_hot else _half_width(column) / _scale(column)


def _confirmed_entries(part: Column | Target) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*part.confirmed, *part.unconfirmed)))
