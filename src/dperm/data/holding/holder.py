"""Queries and the data holder: :meth:`DataHolder.release` is the only way out for a private value."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.errors import InvalidInput, PlanViolation
from dperm.privacy.accounting.events import Event
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.accounting.units import pays_for
from dperm.privacy.boundary import current_observer
from dperm.privacy.mechanisms.standard import Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.types import FloatArray

__all__ = ["Charges", "DataHolder", "DryRunHolder", "Query", "Released", "Shared", "TrustedDomain", "added"]

T = TypeVar("T")


class Query(ABC):
    """Base of all queries: a function of private data with its own sensitivity, from public facts alone.

    A query's fields hold public or already released values only; everything private happens inside :meth:`part`, which
    runs where the rows are. The value is a sum over people, exact in floating point, so it is the same for every split
    of the rows; dividing by the public ``n`` is the caller's post-processing.
    """

    #: name in plans, ledgers and reports
    name: ClassVar[str]
    #: norm of the sensitivity: "l2" for noise on values, "linf" for selection
    norm: ClassVar[str]
    #: sensitivity under replace-one divided by the one under zero-out
    replacement_ratio: ClassVar[float] = 2.0

    @property
    def family(self) -> Hashable | None:
        """Key of queries that share sensitivity, bound, size and checks, so that a holder computes them once.

        None, the default, means that they are computed for every release. An override must return None for subclasses,
        whose numbers may differ.
        """
        return None

    @property
    def reads_columns(self) -> bool:
        """Whether a part reads few columns of its block only."""
        return False

    def part(self, block: Any) -> FloatArray:
        """Return the sum over the people of one block, a multiple of a power of two, so that adding parts is exact."""
        raise NotImplementedError(f"{type(self).__name__} is no sum over blocks of people.")

    def total(self, parts: Iterable[FloatArray], facts: Facts) -> Any:
        """Return the value from the parts of all blocks, or from sums of them, in any order."""
        return added(parts)

    def evaluate(self, data: Any) -> Any:
        """Return the value on private data; called by a holder only."""
        return self.total(data.parts(self), data.facts)

    @abstractmethod
    def zero_out_sensitivity(self, facts: Facts) -> float:
        """Largest change of the value when one record is replaced by an empty one."""

    @abstractmethod
    def bound(self, facts: Facts) -> float:
        """Public bound on the absolute value of every coordinate."""

    @abstractmethod
    def size(self, facts: Facts) -> int:
        """Number of coordinates."""

    def part_size(self, facts: Facts) -> int:
        """Largest number of coordinates of a part, which never depends on the number of people in a block."""
        return self.size(facts)

    def sensitivity(self, facts: Facts, neighbours: Neighbours) -> float:
        """Largest change of the value between neighbours, in the query's norm."""
        base = self.zero_out_sensitivity(facts)
        return base if neighbours is Neighbours.ZERO_OUT else base * self.replacement_ratio


def added(parts: Iterable[FloatArray]) -> FloatArray:
    """Return the sum of exact parts, of which there is at least one.

    >>> added([np.array([1.0]), np.array([2.0])]).tolist()
    [3.0]
    """
    first, *others = parts
    total = np.array(first, np.float64)
    for part in others:
        if np.shape(part) != total.shape:
            raise PlanViolation("the parts of a query have different shapes: they are not one sum over people.")
        total += part
    return total


class Charges(Protocol):
    """The part of a scope that a holder uses: it charges a release to the plan."""

    def charge(self, query: str, event: Event, units: int = 1) -> None: ...


@dataclass(frozen=True)
class Released:
    """Public description of one release, for the report; ``units`` is how many planned releases paid for it."""

    query: str
    kind: str
    noise_multiplier: float
    sensitivity: float
    noise_scale: float
    size: int
    units: int = 1


@dataclass(frozen=True)
class TrustedDomain:
    """Named participants who may see un-noised per-person values of a run."""

    name: str
    members: tuple[str, ...]


class Shared:
    """An un-noised value that stays inside a trusted domain.

    It cannot become a release: mechanisms and queries refuse it, it has no arithmetic and cannot be pickled.
    ``reveal_inside`` returns the array to code that runs inside the same domain.
    """

    __slots__ = ("_value", "domain", "query")

    def __init__(self, value: FloatArray, domain: TrustedDomain, query: str) -> None:
        self._value = value
        self.domain = domain
        self.query = query

    def reveal_inside(self, domain: TrustedDomain) -> FloatArray:
        """Return the array to a participant of the same domain."""
        if domain != self.domain:
            raise PlanViolation(f"a value shared in domain {self.domain.name!r} was requested in {domain.name!r}.")
        return self._value

    def __array__(self, *args: Any, **kwargs: Any) -> FloatArray:
        raise TypeError("a shared value stays inside its trusted domain and is not an array.")

    def __reduce__(self) -> str:
        raise TypeError("a shared value stays inside its trusted domain and cannot be pickled.")

    def __repr__(self) -> str:
        return f"Shared(query={self.query!r}, domain={self.domain.name!r})"


class DataHolder:
    """Keeps private data and answers queries with noise.

    Parameters
    ----------
    data : object with ``facts``
        The private data, e.g. :class:`DesignData`.
    charges : Charges
        The scope that holds the plan and its reservation in the ledger.
    source : RandomSource
        Source of the noise.
    neighbours : Neighbours
        Relation for which sensitivities are computed; that of the scope.
    domain : TrustedDomain, optional
        Participants with whom un-noised values may be shared; by default nothing can be shared.
    """

    def __init__(
        self,
        data: Any,
        charges: Charges,
        source: RandomSource,
        neighbours: Neighbours,
        domain: TrustedDomain | None = None,
    ) -> None:
        if getattr(charges, "neighbours", neighbours) != neighbours:
            raise PlanViolation("the holder and its scope must have the same neighbours.")
        if not source.secure and getattr(charges, "binding", False):
            raise PlanViolation("seeded noise has no guarantee, so its scope must be marked as unbounded.")
        self.facts: Facts = data.facts
        self.neighbours = neighbours
        self._source = source
        self._computed: dict[Hashable, tuple[Released, float, Event]] = {}
        self.released: list[Released] = []
        self.shared: list[tuple[str, str]] = []
        # only these two functions know the data: neither gives a value that is not paid for or inside the domain
        self.__release = _paid_release(data, charges, source, self.released)
        self.__share = _sharing(data, domain, self.shared)

    @property
    def public_randomness(self) -> RandomSource:
        """Random draws that may be known to everyone, such as which coordinates a step moves."""
        return self._source

    def release(self, query: Query, mechanism: Mechanism, group: str | None = None, units: int = 1) -> Any:
        """Charge the plan, evaluate a query and return its value with noise: the only way out for a private value.

        ``group`` names the planned release that is charged, the query's own name by default, and ``units`` says how
        many of that name pay for this one.
        """
        # every possible refusal comes before the charge; the noise scale depends on public numbers only
        numbers = self._public_numbers(query, mechanism, group, units)
        self._refuse_shared_fields(query)
        return self.__release(query, mechanism, numbers)

    def _public_numbers(
        self, query: Query, mechanism: Mechanism, group: str | None, units: int = 1
    ) -> tuple[Released, float, Event]:
        """Return the record of a release, the bound on its values and its cost; computed once per family of queries."""
        family = query.family if isinstance(query, Query) else None
        key = None if family is None else (type(query), family, type(mechanism), mechanism, group, units)
        computed = self._computed.get(key) if key is not None else None
        if computed is not None:
            return computed
        self._check(query, mechanism)
        sensitivity = query.sensitivity(self.facts, self.neighbours)
        bound, size = query.bound(self.facts), query.size(self.facts)
        scale = mechanism.noise_scale(sensitivity, bound, size)
        name = group or query.name
        released = Released(name, mechanism.kind, mechanism.noise_multiplier, sensitivity, scale, size, units)
        numbers = released, bound, mechanism.event(query.replacement_ratio)
        if key is not None:
            self._computed[key] = numbers
        return numbers

    def share(self, query: Query, domain: TrustedDomain) -> Shared:
        """Give an un-noised value to participants of a trusted domain; it is logged and can never become a release."""
        self._refuse_shared_fields(query)
        return self.__share(query, domain)

    def _check(self, query: Query, mechanism: Mechanism) -> None:
        if not isinstance(query, Query):
            raise InvalidInput(f"release needs a Query, not {type(query).__name__}.")
        if query.norm != mechanism.norm:
            raise InvalidInput(
                f"{type(mechanism).__name__} needs a sensitivity in {mechanism.norm}, "
                f"but query {query.name!r} states it in {query.norm}."
            )

    @staticmethod
    def _refuse_shared_fields(query: Query) -> None:
        for value in _state(query):
            if not _cannot_hold(type(value)) and _holds_shared(value):
                raise PlanViolation("a query's fields must be public or released values; a shared value is neither.")

    def __reduce__(self) -> str:
        raise TypeError("a DataHolder keeps raw data and cannot be pickled.")

    def __repr__(self) -> str:
        return f"DataHolder(n={self.facts.n}, d={self.facts.d})"


def _paid_release(
    data: Any, charges: Charges, source: RandomSource, released: list[Released]
) -> Callable[[Query, Mechanism, tuple[Released, float, Event]], Any]:
    """Return the function that charges a query, evaluates it on ``data`` and adds noise: all three or none.

    The data are known to this function alone, so there is no exact value to be had without a charge.
    """

    def release(query: Query, mechanism: Mechanism, numbers: tuple[Released, float, Event]) -> Any:
        entry, bound, event = numbers
        charges.charge(entry.query, event, entry.units)
        released.append(entry)
        observer = current_observer()
        if observer is not None:
            observer.charged(entry.query, event, entry.units)
        value = _value(query, data)
        if observer is not None:
            value = observer.evaluated(query, value, data.facts)
        return mechanism.apply(value, entry.sensitivity, bound, source)

    return release


def _sharing(
    data: Any, own_domain: TrustedDomain | None, shared: list[tuple[str, str]]
) -> Callable[[Query, TrustedDomain], Shared]:
    """Return the function that gives un-noised values of ``data`` to the one domain that was declared."""

    def share(query: Query, domain: TrustedDomain) -> Shared:
        if own_domain is None or domain != own_domain:
            raise PlanViolation("this holder may not share un-noised values: no such trusted domain was declared.")
        shared.append((query.name, domain.name))
        return Shared(_value(query, data), domain, query.name)

    return share


def _value(query: Query, data: Any) -> Any:
    cache = getattr(data, "cache", None)
    lock = contextlib.nullcontext() if cache is None else cache.lock
    with lock, np.errstate(all="ignore"):  # a floating-point warning would reveal something about a person
        return query.evaluate(data)


def _once_per_type(function: Callable[[type], T]) -> Callable[[type], T]:
    return lru_cache(maxsize=256)(function)


def _state(thing: object) -> Iterable[Any]:
    """Return the values that an object holds, in its fields or as plain attributes."""
    plain: dict[str, Any] = getattr(thing, "__dict__", {})
    others = _field_names(type(thing)) - plain.keys()  # in slots, or a default of the class
    return [*plain.values(), *(getattr(thing, name) for name in others)] if others else plain.values()


@_once_per_type
def _field_names(cls: type) -> frozenset[str]:
    return frozenset(f.name for f in fields(cls)) if is_dataclass(cls) else frozenset()


@_once_per_type
def _cannot_hold(cls: type) -> bool:
    """Whether values of a type are neither shared nor a container."""
    return not issubclass(cls, Shared | np.ndarray | Mapping | list | tuple | set | frozenset)


def _holds_shared(value: Any) -> bool:
    """Whether a value is shared, or a container or an array of objects with a shared value in it."""
    if _cannot_hold(type(value)):
        return False
    if isinstance(value, Shared):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype == object and any(_holds_shared(part) for part in value.flat)
    if isinstance(value, Mapping):
        return any(_holds_shared(part) for pair in value.items() for part in pair)
    if all(map(_cannot_hold, map(type, value))):  # the usual case, such as a tuple of many columns
        return False
    return any(_holds_shared(part) for part in value)


class _AllPlannedReleasesSeen(Exception):
    """Every planned group of releases was requested once."""


class DryRunHolder(DataHolder):
    """A holder without data, for a dry run of a solver before anything is reserved.

    It computes sensitivities and noise scales as a real release would, so anything that would be refused is refused
    here, at no cost. It returns zeros and stops the solver once every group of the plan was requested.
    """

    def __init__(self, facts: Facts, neighbours: Neighbours, planned: Mapping[str, Event]) -> None:
        self.facts = facts
        self.neighbours = neighbours
        self._source = RandomSource()
        self._planned = planned
        self._missing = set(planned)

    def release(self, query: Query, mechanism: Mechanism, group: str | None = None, units: int = 1) -> Any:
        """Check a release and return zeros."""
        self._check(query, mechanism)
        self._refuse_shared_fields(query)
        sensitivity = query.sensitivity(self.facts, self.neighbours)
        size = query.size(self.facts)
        mechanism.noise_scale(sensitivity, query.bound(self.facts), size)
        name = group or query.name
        planned = self._planned.get(name)
        if planned is None or not pays_for(mechanism.event(query.replacement_ratio), planned, units):
            raise PlanViolation(f"the solver would release {name!r} at a different cost from the one in its plan.")
        self._missing.discard(name)
        if not self._missing:
            raise _AllPlannedReleasesSeen
        if query.norm in ("linf", "coordinatewise"):
            return 0
        n_outputs = getattr(getattr(query, "loss", None), "n_outputs", 1)
        return np.zeros(size if n_outputs == 1 else (size // n_outputs, n_outputs))

    def share(self, query: Query, domain: TrustedDomain) -> Shared:
        """Refuse: a dry run has no data to share."""
        raise PlanViolation("a dry run has no un-noised values to share.")

    def run(self, solve: Callable[[DataHolder], object]) -> None:
        """Run ``solve`` on this holder."""
        with contextlib.suppress(_AllPlannedReleasesSeen):
            solve(self)
