"""Bounds of columns and target: declared by the user as public, or bought with part of the budget."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from dperm.data.design.matrix import Scaling
from dperm.errors import InvalidBounds
from dperm.types import BoolArray, FloatArray
from dperm.validation import is_finite_number, is_number

__all__ = ["Bounds", "QuantilePurchase", "default_prior_penalties", "default_quantile_grid"]

NumberPerColumn = float | Sequence[float] | FloatArray | Mapping[str, float]

_RANGE_SPREAD = 1.0 / math.sqrt(3.0)  # of values spread evenly over [-1, 1]

#: entries and letters of a long value that are shown
_MOST_SHOWN, _MOST_LETTERS = 4, 100

HOW_TO_DECLARE = (
    "declare what is publicly known of the columns, e.g. bounds=Bounds(features=(0, 100)) for all columns, "
    "Bounds(features=([18, 0], [100, 1])) per column, Bounds(features=({'age': 18}, {'age': 100})) by name, "
    "or bounds=None to buy them with part of the budget"
)


def default_quantile_grid() -> FloatArray:
    """Return the public grid for buying bounds: 0 and +-2^k for k from -4 to 12, every fourth k out to -20 and 40.

    Every additional point makes a wrong choice more likely, so the grid is coarse: a factor of 2 in the range of most
    columns, of 16 beyond. Values outside the grid count as its ends, about 10^12.
    """
    positive = 2.0 ** np.concatenate([np.arange(-20, -4, 4), np.arange(-4, 13), np.arange(16, 41, 4)]).astype(float)
    return np.concatenate([-positive[::-1], [0.0], positive])


def default_prior_penalties() -> FloatArray:
    """Return the prior of the default grid as minus its logarithm, in nats: 0 up to 16, then 0.25 per factor of 2.

    It does not increase towards zero: a range that is much too wide ruins a model, one that includes zero does not.
    """
    size = np.abs(default_quantile_grid())
    return 0.25 * np.log2(np.maximum(size, 16.0) / 16.0)


@dataclass(frozen=True)
class QuantilePurchase:
    """How bounds are bought: two private quantiles per column with ``budget_share`` of the budget (in rho).

    If the ranges of columns and target are both bought, the target's range gets half of it: a wrong range of one column
    costs that column, a wrong range of the target costs the whole model.
    """

    budget_share: float = 0.1
    low: float = 0.05
    high: float = 0.95
    grid: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("budget_share", "low", "high"):
            if not is_number(getattr(self, name)):
                raise InvalidBounds(f"{name} must be a number, not {type(getattr(self, name)).__name__}.")
        if not 0.0 < self.budget_share < 1.0:
            raise InvalidBounds(f"budget_share must be between 0 and 1, not {self.budget_share!r}.")
        if not 0.0 < self.low < self.high < 1.0:
            raise InvalidBounds(f"quantiles must satisfy 0 < low < high < 1, not {self.low!r} and {self.high!r}.")
        points = self.grid_points()
        if points.ndim != 1 or len(points) < 2 or not np.isfinite(points).all() or not (np.diff(points) > 0.0).all():
            raise InvalidBounds("the grid of a purchase needs at least two finite points in increasing order.")

    def grid_points(self) -> FloatArray:
        """Return the public grid."""
        if self.grid is None:
            return default_quantile_grid()
        try:
            return np.asarray(self.grid, np.float64)
        except (TypeError, ValueError):
            raise InvalidBounds("the grid of a purchase must hold numbers only.") from None

    def prior_penalties(self) -> FloatArray:
        """Return minus the log prior of each point of the grid, in nats; a user's grid has a uniform prior."""
        return default_prior_penalties() if self.grid is None else np.zeros(len(self.grid))


@dataclass(frozen=True, eq=False)
class Bounds:
    """Public bounds of features and target; values outside are clipped.

    Bounds that are not declared are bought: ``Bounds(classes=["no", "yes"])`` or ``Bounds(target=(0, 100))`` alone buys
    the range of the columns, ``Bounds(features=...)`` alone buys that of a regression target. Columns of type bool lie
    between 0 and 1 by construction and need neither.

    Parameters
    ----------
    features : (lo, hi), optional
        Range of the columns: scalars for all, arrays per column, or dicts by column name.
    target : (lo, hi), optional
        Range of a regression target.
    classes : sequence, optional
        The labels of a classification; taken from ``y`` if not given, and then stated as an assumption.
    row_norm : float, optional
        Bound on the L2 norm of a scaled row; longer rows are scaled down.
    centre, scale, clip : optional
        The same facts as public location and scale with a clip in scaled units: x becomes
        clip((x - centre) / scale, -clip, clip). Given instead of ``features``.
    purchase : QuantilePurchase, optional
        Buy the range of the columns instead; see :meth:`private_quantiles`.
    assumptions : tuple of str
        Sentences that a report adds to its assumptions; :meth:`from_schema` fills them.

    Examples
    --------
    >>> Bounds(features=(0, 10)).scaling(2).centre.tolist()
    [5.0, 5.0]
    >>> Bounds(features=({"age": 18, "sex": 0}, {"age": 100, "sex": 1})).scaling(2, ["sex", "age"]).scale.tolist()
    [0.5, 41.0]
    """

    features: tuple[NumberPerColumn, NumberPerColumn] | None = None
    target: tuple[float, float] | None = None
    classes: Sequence[Any] | None = None
    row_norm: float | None = None
    centre: NumberPerColumn | None = None
    scale: NumberPerColumn | None = None
    clip: float | None = None
    purchase: QuantilePurchase | None = None
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ways = [self.features is not None, self.scale is not None, self.purchase is not None]
        others = (self.target, self.classes, self.row_norm)
        if not any(ways) and any(other is not None for other in others):
            object.__setattr__(self, "purchase", QuantilePurchase())
        elif sum(ways) != 1:
            raise InvalidBounds(
                "give exactly one of features=(lo, hi), scale= (with centre= and clip=) or a purchase: "
                + HOW_TO_DECLARE
                + "."
            )
        if self.scale is None and (self.centre is not None or self.clip is not None):
            raise InvalidBounds("centre and clip belong to scale: give Bounds(centre=, scale=, clip=).")
        if self.scale is not None and self.clip is None:
            raise InvalidBounds("Bounds(centre=, scale=) also needs clip=, in scaled units (3 is usual).")
        if self.features is not None:
            self._check_features()
        for name in ("clip", "row_norm"):
            value = getattr(self, name)
            if value is not None and not (is_finite_number(value) and value > 0.0):
                raise InvalidBounds(f"{name} must be a positive finite number, not {value!r}.")
        if self.target is not None:
            self._check_target()
        if self.classes is not None:
            self._check_classes()

    def __repr__(self) -> str:
        """Return what is given, long parts cut short."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if not self.assumptions:
            del given["assumptions"]
        return f"Bounds({', '.join(f'{name}={_short(value)}' for name, value in given.items())})"

    def _check_features(self) -> None:
        given = self.features
        if isinstance(given, Mapping):  # a common mistake: one dict of pairs instead of a pair of dicts
            low, high = (
                "{" + ", ".join(f"{name!r}: {_end(pair, k)}" for name, pair in list(given.items())[:_MOST_SHOWN]) + "}"
                for k in (0, 1)
            )
            more = ", and the other columns likewise" if len(given) > _MOST_SHOWN else ""
            raise InvalidBounds(
                f"features must be a pair (lo, hi), not one dict: write features=({low}, {high}){more}."
            )
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise InvalidBounds(
                "features must be a pair (lo, hi): of numbers for all columns, of lists with one number per column, or "
                "of dicts by column name."
            )

    def _check_classes(self) -> None:
        given = self.classes.tolist() if isinstance(self.classes, np.ndarray) else self.classes
        if not isinstance(given, Collection) or isinstance(given, str):
            raise InvalidBounds(f"classes must be a sequence of labels, not {type(given).__name__}.")
        try:
            different = len(set(given))
        except TypeError:
            raise InvalidBounds("classes must be a sequence of plain labels.") from None
        if different < max(2, len(given)):
            raise InvalidBounds("classes must be at least two different labels.")

    def _check_target(self) -> None:
        assert self.target is not None
        if not isinstance(self.target, tuple | list) or len(self.target) != 2:
            raise InvalidBounds("target must be a pair (lo, hi) of finite numbers.")
        if not all(map(is_finite_number, self.target)):
            raise InvalidBounds("target must be a pair (lo, hi) of finite numbers.")
        if not self.target[0] < self.target[1]:
            raise InvalidBounds(
                f"target bounds contradict each other: lo={self.target[0]!r} is not below hi={self.target[1]!r}."
            )

    @classmethod
    def private_quantiles(
        cls,
        budget_share: float = 0.1,
        low: float = 0.05,
        high: float = 0.95,
        grid: Sequence[float] | None = None,
        **others: Any,
    ) -> Bounds:
        """Buy the range of the columns by private quantiles on a public grid, with ``budget_share`` of rho."""
        points = None if grid is None else tuple(grid) if isinstance(grid, Iterable) else (grid,)
        return cls(purchase=QuantilePurchase(budget_share, low, high, points), **others)

    @classmethod
    def from_schema(cls, schema: Any) -> Bounds:
        """Return the bounds of columns that a schema encodes, by their encoded names.

        ``schema`` is the path of a ``schema.toml`` or a :class:`~dperm.data.schema.schema.Schema`.
        """
        from dperm.data.schema.schema import Schema

        found = schema if isinstance(schema, Schema) else Schema.read(schema)
        return found.bounds(by_name=True)

    def scaling(
        self,
        n_features: int,
        names: Sequence[str] | None = None,
        centred: bool = True,
        boolean: BoolArray | None = None,
    ) -> Scaling:
        """Return the public constants that scale ``n_features`` columns.

        ``centred=False`` (a model without intercept) scales a range by its largest magnitude instead of moving it.
        ``boolean`` marks columns of type bool: a dict may omit them, and one range for all columns leaves them at 0 to
        1.
        """
        if self.bought_columns(n_features, boolean).any():
            raise InvalidBounds("these bounds are bought during the fit and are not available before it.")
        if self.purchase is not None:
            return range_scaling(np.zeros(n_features), np.ones(n_features), names, self._row_norm, centred)
        if self.scale is not None:
            scale = _per_column(self.scale, n_features, names, "scale", boolean, 0.5)
            centre = _per_column(0.0 if self.centre is None else self.centre, n_features, names, "centre", boolean, 0.5)
            if not (scale > 0.0).all():
                raise InvalidBounds(f"scale must be above 0 in every column; {_where(scale <= 0.0, names)} is not.")
            assert self.clip is not None
            return Scaling(centre, scale, float(self.clip), self._row_norm)
        assert self.features is not None
        ends = []
        for given, what, for_bool in ((self.features[0], "lo", 0.0), (self.features[1], "hi", 1.0)):
            end = _per_column(given, n_features, names, what, boolean, for_bool)
            ends.append(np.where(boolean, for_bool, end) if boolean is not None and is_number(given) else end)
        low, high = ends
        return range_scaling(low, high, names, self._row_norm, centred)

    def bought_columns(self, n_features: int, boolean: BoolArray | None = None) -> BoolArray:
        """Return which columns' ranges are bought: none if they are declared, else all except those of type bool."""
        if self.purchase is None:
            return np.zeros(n_features, bool)
        return np.ones(n_features, bool) if boolean is None else ~boolean

    @property
    def _row_norm(self) -> float | None:
        # in double precision: fewer digits would lose the margins against rounding
        return None if self.row_norm is None else float(self.row_norm)

    @property
    def spread(self) -> float:
        """Public guess of a scaled entry's root mean square."""
        return 1.0 if self.scale is not None else _RANGE_SPREAD

    @property
    def declares_ranges(self) -> bool:
        """Whether ranges are declared, also as half widths with clip 1, as by a schema; indicators do not count."""
        if self.scale is None or self.clip != 1.0:
            return self.features is not None

        def differs(given: NumberPerColumn | None, usual: float) -> bool:
            values = list(given.values()) if isinstance(given, Mapping) else given
            return values is not None and bool(np.any(np.asarray(values, np.float64) != usual))

        return differs(self.scale, 1.0) or differs(self.centre, 0.0)

    @property
    def scaled_clip(self) -> float:
        """Bound on a scaled entry."""
        return 1.0 if self.clip is None else float(self.clip)


def range_scaling(
    low: FloatArray,
    high: FloatArray,
    names: Sequence[str] | None = None,
    row_norm: float | None = None,
    centred: bool = True,
) -> Scaling:
    """Return the constants that map [low, high] into [-1, 1]; equal bounds make the column a constant."""
    if (low > high).any():
        raise InvalidBounds(f"bounds contradict each other: lo is above hi in {_where(low > high, names)}.")
    if not centred:
        return Scaling(np.zeros_like(low), np.maximum(np.abs(low), np.abs(high)), 1.0, row_norm, _RANGE_SPREAD)
    # halves first: the width of a declared range may exceed the largest double
    return Scaling(low / 2.0 + high / 2.0, high / 2.0 - low / 2.0, 1.0, row_norm, _RANGE_SPREAD)


def _short(value: Any) -> str:
    """Return the text of a value, of long tables only the beginning.

    >>> _short(([0.0] * 3000, {"age": 100, "sex": 1})), _short(np.arange(9))
    ("([0.0, 0.0, 0.0, 0.0, ... 3,000 in all], {'age': 100, 'sex': 1})", '[0, 1, 2, 3, ... 9 in all]')
    """
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(plain, Mapping):
        ends, parts = "{}", [f"{name!r}: {_short(one)}" for name, one in islice(plain.items(), _MOST_SHOWN)]
    elif isinstance(plain, list | tuple):
        ends, parts = "[]" if isinstance(plain, list) else "()", [_short(one) for one in plain[:_MOST_SHOWN]]
    else:
        text = repr(plain)
        return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."
    more = [f"... {len(plain):,} in all"] if len(plain) > _MOST_SHOWN else []
    return ends[0] + ", ".join(parts + more) + ends[1]


def _end(pair: Any, k: int) -> str:
    """Return one end of a pair as it was written, or its name."""
    is_pair = isinstance(pair, tuple | list) and len(pair) == 2 and all(map(is_number, pair))
    return repr(pair[k]) if is_pair else ("lo", "hi")[k]


def _where(bad: BoolArray, names: Sequence[str] | None) -> str:
    first = int(np.flatnonzero(bad)[0])
    return f"column {names[first]!r}" if names is not None else f"column {first}"


def _per_column(
    given: NumberPerColumn,
    n_features: int,
    names: Sequence[str] | None,
    what: str,
    boolean: BoolArray | None = None,
    for_bool: float = 0.0,
) -> FloatArray:
    """Return one number per column; a dict may omit columns of type bool, which then get ``for_bool``."""
    if isinstance(given, Mapping):
        if names is None:
            raise InvalidBounds(
                f"{what} is given by column name, but the data have no column names: pass a table whose names are text."
            )
        if boolean is not None:
            given = {**{name: for_bool for name, is_bool in zip(names, boolean, strict=True) if is_bool}, **given}
        missing = [name for name in names if name not in given]
        if missing:
            raise InvalidBounds(f"{what} is missing for column {missing[0]!r} ({len(missing)} missing in all).")
        unknown = [name for name in given if name not in set(names)]
        if unknown:
            raise InvalidBounds(f"{what} names column {unknown[0]!r}, which is not in the data.")
        given = [given[name] for name in names]
    try:
        values = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise InvalidBounds(f"{what} must hold numbers only.") from None
    if values.ndim == 0:
        values = np.full(n_features, float(values))
    if values.shape != (n_features,):
        raise InvalidBounds(f"{what} has {values.size} entries for {n_features} columns.")
    if not np.isfinite(values).all():
        raise InvalidBounds(f"{what} must be finite in every column; {_where(~np.isfinite(values), names)} is not.")
    return values
