"""Events: the privacy cost of releases, as frozen data without behaviour.

An event knows its kind and its noise multiplier (noise scale / sensitivity), never an absolute scale, so it
can be written before any data are seen. The cost of an event is in :mod:`dperm.privacy.accounting.curves`; how
events add up is in :mod:`dperm.privacy.accounting.composition`, the only code that reads a ``count``.

``replacement_ratio`` is the query's sensitivity under ``replace-one`` divided by the one under ``zero-out``
(2 for sums, sqrt(2) for Gram matrices, 1 for counts around a constant). It lets a ledger kept under
``replace-one`` charge a ``zero-out`` fit without guessing; it does not change the event's own cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.validation import positive

__all__ = [
    "UNCERTIFIED_CHOICE",
    "ZCDP",
    "ZERO_OUT_ONLY",
    "ApproximateDP",
    "Composed",
    "Event",
    "Gaussian",
    "Laplace",
    "ObjectivePerturbation",
    "OneOf",
    "PoissonGaussian",
    "RandomizedResponse",
    "Repeat",
    "RepeatAndSelect",
    "Selection",
    "Unbounded",
    "event_from_dict",
    "event_to_dict",
    "restate",
]


@dataclass(frozen=True)
class Event:
    """Base of all events."""

    def __post_init__(self) -> None:
        """Keep numbers of other types as doubles: a curve in lower precision is no upper bound."""
        for field in fields(self):
            value = getattr(self, field.name)
            # exactly these types: a subclass may compare and add up in its own way
            exact: tuple[type, ...] = (bool, int, float)
            if isinstance(value, Real) and type(value) not in exact:
                object.__setattr__(self, field.name, float(value))


@dataclass(frozen=True)
class _Noise(Event):
    noise_multiplier: float
    replacement_ratio: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(f"noise_multiplier of {type(self).__name__}", self.noise_multiplier)
        if not 1.0 <= self.replacement_ratio <= 2.0:
            raise InvalidInput(f"replacement_ratio must be between 1 and 2, not {self.replacement_ratio!r}.")


@dataclass(frozen=True)
class Gaussian(_Noise):
    """Gaussian noise of standard deviation ``noise_multiplier`` times the L2 sensitivity."""


@dataclass(frozen=True)
class Laplace(_Noise):
    """Laplace noise of scale ``noise_multiplier`` times the L1 sensitivity."""


@dataclass(frozen=True)
class Selection(_Noise):
    """Largest of scores with Gumbel noise of scale ``noise_multiplier`` times their common sensitivity.

    Its privacy loss lies in an interval of length ``2 / noise_multiplier`` (bounded range).
    """

    @property
    def loss_range(self) -> float:
        """Length of the interval that contains the privacy loss."""
        return 2.0 / self.noise_multiplier


@dataclass(frozen=True)
class RandomizedResponse(Event):
    """One of ``n_values`` answers; the true one is ``exp(epsilon)`` times as likely as each other one."""

    epsilon: float
    n_values: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("epsilon of RandomizedResponse", self.epsilon)
        if self.n_values != int(self.n_values) or self.n_values < 2:
            raise InvalidInput(f"n_values must be a whole number >= 2, not {self.n_values!r}.")
        object.__setattr__(self, "n_values", int(self.n_values))


@dataclass(frozen=True)
class PoissonGaussian(Event):
    """Gaussian noise on a sum over a Poisson sample that takes each record with probability ``rate``.

    Proved for ``zero-out`` only; ``noise_multiplier`` is relative to one record's bound.
    """

    noise_multiplier: float
    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("noise_multiplier of PoissonGaussian", self.noise_multiplier)
        if not 0.0 < self.rate <= 1.0:
            raise InvalidInput(f"rate must be in (0, 1], not {self.rate!r}.")


@dataclass(frozen=True)
class ObjectivePerturbation(Event):
    """Exact minimiser of a sum of convex losses plus a quadratic plus b.w, b Gaussian.

    ``noise_multiplier`` is the standard deviation of b divided by the bound on one record's gradient;
    ``curvature_ratio`` bounds how much one record's curvature adds to the quadratic's, in its own direction. Proved for
    ``zero-out`` only.
    """

    noise_multiplier: float
    curvature_ratio: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("noise_multiplier of ObjectivePerturbation", self.noise_multiplier)
        if not (math.isfinite(self.curvature_ratio) and self.curvature_ratio >= 0.0):
            raise InvalidInput(f"curvature_ratio must be finite and at least 0, not {self.curvature_ratio!r}.")


@dataclass(frozen=True)
class ZCDP(Event):
    """An event known only to be ``rho``-zero-concentrated."""

    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("rho of ZCDP", self.rho)


@dataclass(frozen=True)
class ApproximateDP(Event):
    """An event known only to be ``(epsilon, delta)``-DP; ``delta=0`` is pure."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("epsilon of ApproximateDP", self.epsilon)
        if not 0.0 <= self.delta < 1.0:
            raise InvalidInput(f"delta of ApproximateDP must be in [0, 1), not {self.delta!r}.")


@dataclass(frozen=True)
class RepeatAndSelect(Event):
    """The best of a random number of independent runs of ``base``.

    The number of runs is truncated negative binomial with mean ``mean_runs``; ``shape=1`` is geometric.
    Source of the law and its cost: Papernot & Steinke, ICLR 2022, arXiv 2110.03620.
    """

    base: Event
    mean_runs: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.mean_runs) and self.mean_runs > 1.0):
            raise InvalidInput(f"mean_runs must be above 1, not {self.mean_runs!r}.")
        if not (math.isfinite(self.shape) and self.shape > -1.0):
            raise InvalidInput(f"shape must be above -1, not {self.shape!r}.")


@dataclass(frozen=True)
class OneOf(Event):
    """One of several events, drawn at random without looking at the data; it costs as much as the costliest."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "events", tuple(self.events))
        if not self.events:
            raise InvalidInput("OneOf needs at least one event.")


@dataclass(frozen=True)
class Unbounded(Event):
    """A release without a guarantee (seeded noise, a printed calibration); no budget admits it."""

    reason: str


#: a choice by noise that was added before scores were taken, whose cost no theorem bounds
UNCERTIFIED_CHOICE = Unbounded("the cost of this printed choice is not bounded by any multiple of its epsilon")


@dataclass(frozen=True)
class Repeat(Event):
    """``count`` adaptive uses of one event."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count != int(self.count) or self.count < 0:
            raise InvalidInput(f"count must be a whole number >= 0, not {self.count!r}.")
        object.__setattr__(self, "count", int(self.count))


@dataclass(frozen=True)
class Composed(Event):
    """Adaptive composition of several events."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "events", tuple(self.events))


_KINDS: dict[str, type[Event]] = {
    cls.__name__: cls
    for cls in (
        Gaussian,
        Laplace,
        Selection,
        RandomizedResponse,
        PoissonGaussian,
        ObjectivePerturbation,
        ZCDP,
        ApproximateDP,
        RepeatAndSelect,
        OneOf,
        Unbounded,
        Repeat,
        Composed,
    )
}

#: events whose proof does not cover replacing a record by another one
ZERO_OUT_ONLY: tuple[type[Event], ...] = (PoissonGaussian, ObjectivePerturbation)


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return the event as plain data for JSON.

    >>> event_to_dict(Repeat(Gaussian(4.0), 3))["event"]["noise_multiplier"]
    4.0
    """
    out: dict[str, Any] = {"kind": type(event).__name__}
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, Event):
            value = event_to_dict(value)
        elif isinstance(value, tuple):
            value = [event_to_dict(part) for part in value]
        out[field.name] = value
    return out


def event_from_dict(data: dict[str, Any]) -> Event:
    """Inverse of :func:`event_to_dict`."""
    values = dict(data)
    try:
        cls = _KINDS[values.pop("kind")]
    except KeyError:
        raise InvalidInput(f"unknown event kind {data.get('kind')!r}.") from None
    for name, value in values.items():
        if isinstance(value, dict):
            values[name] = event_from_dict(value)
        elif isinstance(value, list):
            values[name] = tuple(event_from_dict(part) for part in value)
    try:
        return cls(**values)
    except TypeError:
        raise InvalidInput(f"the fields {sorted(values)} do not describe an event of kind {cls.__name__}.") from None


def restate(event: Event, stated: Neighbours, wanted: Neighbours) -> Event:
    """Restate the cost of ``event``, proved under ``stated``, under ``wanted``.

    A replace-one guarantee also holds for zero-out: no query's sensitivity is larger there
    (``replacement_ratio >= 1``). The other way each leaf's sensitivity grows by its ``replacement_ratio``;
    leaves without one use group privacy for two records, or are refused.
    """
    if stated is wanted or wanted is Neighbours.ZERO_OUT:
        return event
    return _map_leaves(event, _to_replace_one)


def _map_leaves(event: Event, change: Callable[[Event], Event]) -> Event:
    if isinstance(event, Repeat):
        return replace(event, event=_map_leaves(event.event, change))
    if isinstance(event, Composed | OneOf):
        return replace(event, events=tuple(_map_leaves(part, change) for part in event.events))
    if isinstance(event, RepeatAndSelect):
        return replace(event, base=_map_leaves(event.base, change))
    return change(event)


def _to_replace_one(leaf: Event) -> Event:
    if isinstance(leaf, _Noise):
        return replace(leaf, noise_multiplier=leaf.noise_multiplier / leaf.replacement_ratio)
    if isinstance(leaf, RandomizedResponse | Unbounded):
        return leaf  # a local report's bound covers all pairs of true answers: it is replace-one already
    if isinstance(leaf, ZCDP):
        return ZCDP(4.0 * leaf.rho)  # group privacy of two: Bun & Steinke 2016, Proposition 1.9
    if isinstance(leaf, ApproximateDP):
        # group privacy of two: (2 eps, (1 + e^eps) delta)
        delta = leaf.delta * (1.0 + math.exp(min(leaf.epsilon, 700.0)))
        if delta >= 1.0:
            raise Unsupported(
                f"an event known only to be ({leaf.epsilon:g}, {leaf.delta:g})-DP under zero-out has no guarantee "
                "under replace-one: use a ledger created with neighbours='zero-out'."
            )
        return ApproximateDP(2.0 * leaf.epsilon, delta)
    raise Unsupported(
        f"{type(leaf).__name__} is proved for zero-out only and cannot be charged under replace-one: "
        "use a ledger created with neighbours='zero-out'."
    )
