"""A record of every release of a run, taken at the mechanism boundary; opt-in, for checks and audits.

    with recording() as recorder:
        model.fit(X, y)
    recorder.public_log()      # what may be shown: query, sensitivity, noise scale, event, size

A :class:`Recorder` also keeps, in memory, what must not be shown: the exact value of every query and what was released
for it. So it is for data that its user may see. It cannot be pickled or copied, its texts show public numbers only, and
nothing here writes a file. :mod:`dperm.testing.replay` recomputes the total cost from the public log and repeats the
run on neighbouring data.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

import numpy as np

from dperm.privacy.accounting.events import Event
from dperm.privacy.boundary import Observer, observing
from dperm.privacy.mechanisms.joint_selection import JointSelection
from dperm.privacy.mechanisms.objective_perturbation import PerturbedObjective
from dperm.privacy.mechanisms.selection import TwoLevelRace

__all__ = [
    "PublicRelease",
    "RecordedRelease",
    "RecordedReports",
    "Recorder",
    "recording",
    "snapshot",
]


#: replacement ratio of a release whose query is not known: a replaced record is one taken out and one put in
_REPLACED = 2.0


@dataclass(frozen=True)
class PublicRelease:
    """The public numbers of one release.

    Attributes
    ----------
    query : str
        Name of the release in its plan.
    kind, norm : str
        Kind of the mechanism, ``"joint selection"`` for one participant's part of one, and the norm of the sensitivity.
    sensitivity, bound, size
        As the query states them.
    noise_scale : float
        Absolute scale of the noise: a standard deviation, or the scale of Laplace or Gumbel noise.
    event : Event
        What was charged. An independent calculation must not use it.
    rate : float
        Probability with which each person is sampled; 1 without sampling.
    units : int
        How many planned releases paid for it.
    curvature_ratio, output_multiplier : float or None
        Of a perturbed objective: bound on one person's curvature against the quadratic's, and the noise on the
        minimiser in units of how far apart two computed minimisers may be.
    """

    query: str
    kind: str
    norm: str
    sensitivity: float
    bound: float
    size: int
    noise_scale: float
    event: Event
    rate: float = 1.0
    curvature_ratio: float | None = None
    output_multiplier: float | None = None
    units: int = 1


class _Private:
    """Refuses to be pickled or copied."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} keeps private values and cannot be pickled or copied.")

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = _refuse


@dataclass(frozen=True, repr=False, eq=False)
class RecordedRelease(_Private, PublicRelease):
    """One release with its private value and its output.

    Attributes
    ----------
    mechanism : Mechanism
        Public.
    asked : Query or None
        The query that was evaluated; its fields are public or released. None if a mechanism was used without a query.
    facts : Facts or None
        Public facts of the data.
    value : Any
        What the mechanism was given: an array, one summand per person, or an objective. Private. Scores that a
        :class:`~dperm.privacy.mechanisms.selection.TwoLevelRace` keeps are copied when they are recorded.
    output : Any
        What was released.
    charged : bool
        Whether a charge came before.
    """

    mechanism: Any = None
    asked: Any = None
    facts: Any = None
    value: Any = field(default=None)
    output: Any = field(default=None)
    charged: bool = True

    def public(self) -> PublicRelease:
        """Return the public numbers alone."""
        return PublicRelease(**{one.name: getattr(self, one.name) for one in fields(PublicRelease)})

    def __repr__(self) -> str:
        return f"RecordedRelease({self.query!r}, {self.kind!r}, size={self.size})"


@dataclass(frozen=True, repr=False, eq=False)
class RecordedReports(_Private):
    """One call of a local report: one number or category per person, and their reports."""

    kind: Any
    values: Any
    output: Any

    @property
    def n_people(self) -> int:
        """Number of people who reported."""
        return len(np.asarray(self.output))

    def __repr__(self) -> str:
        return f"RecordedReports({type(self.kind).__name__}, n_people={self.n_people})"


class Recorder(_Private, Observer):
    """Records every release; see the module.

    Attributes
    ----------
    releases : list of RecordedRelease
        In the order in which they were made.
    reports : list of RecordedReports
        Uses of local reports.
    charges : list of (str, Event)
        Every charge, also one that no release followed.
    """

    def __init__(self) -> None:
        self.releases: list[RecordedRelease] = []
        self.reports: list[RecordedReports] = []
        self.charges: list[tuple[str, Event]] = []
        self._open = threading.local()  # charge and query of the release that this thread is making
        self._lock = threading.Lock()

    # ------------------------------------------------------------------------------------------ what it sees
    def charged(self, query: str, event: Event, units: int = 1) -> None:
        with self._lock:
            self.charges.append((query, event))
        self._open.charge, self._open.query = (query, event, units), None

    def evaluated(self, query: Any, value: Any, facts: Any) -> Any:
        self._open.query = (query, facts)
        return value

    def apply(self, mechanism: Any, value: Any, sensitivity: float, bound: float, source: Any) -> Any:
        kept = snapshot(value)
        output = mechanism.draw(value, sensitivity, bound, source)
        entry = self.entry(mechanism, kept, sensitivity, bound, snapshot(output))
        with self._lock:
            self.releases.append(entry)
        return output

    def report(self, kind: Any, values: Any, draw: Callable[[Any], Any]) -> Any:
        kept = copy.deepcopy(values)
        output = draw(values)
        with self._lock:
            self.reports.append(RecordedReports(kind, kept, snapshot(output)))
        return output

    # ------------------------------------------------------------------------------------------ what it keeps
    def entry(self, mechanism: Any, value: Any, sensitivity: float, bound: float, output: Any) -> RecordedRelease:
        """Return the record of a release; uses up the charge that came before it in this thread."""
        charge = getattr(self._open, "charge", None)
        asked, facts = getattr(self._open, "query", None) or (None, None)
        self._open.charge = self._open.query = None
        name, event, units = charge or (
            f"{type(mechanism).__name__} without a charge",
            mechanism.event(_REPLACED),
            1,
        )
        size = _size(value)
        return RecordedRelease(
            query=name,
            kind="joint selection" if isinstance(mechanism, JointSelection) else mechanism.kind,
            norm=mechanism.norm,
            sensitivity=float(sensitivity),
            bound=float(bound),
            size=size,
            noise_scale=float(mechanism.noise_scale(sensitivity, bound, size)),
            event=event,
            rate=float(getattr(mechanism, "rate", 1.0)),
            curvature_ratio=getattr(mechanism, "curvature_ratio", None),
            output_multiplier=_output_multiplier(mechanism, sensitivity, bound, size),
            units=units,
            mechanism=mechanism,
            asked=asked,
            facts=facts,
            value=value,
            output=output,
            charged=charge is not None,
        )

    def public_log(self) -> list[PublicRelease]:
        """Return the public numbers of every release, in order; this may be shown."""
        return [entry.public() for entry in self.releases]

    def __repr__(self) -> str:
        return f"Recorder({len(self.releases)} releases, {len(self.reports)} uses of local reports)"


@contextmanager
def recording(recorder: Recorder | None = None) -> Iterator[Recorder]:
    """Record every release of this process; see :class:`Recorder`."""
    recorder = Recorder() if recorder is None else recorder
    with observing(recorder):
        yield recorder


def snapshot(value: Any) -> Any:
    """Return a value that later steps do not change; summands and objectives are functions of fixed data."""
    if isinstance(value, TwoLevelRace):
        return value.scores()
    return value.copy() if isinstance(value, np.ndarray) else value


def _output_multiplier(mechanism: Any, sensitivity: float, bound: float, size: int) -> float | None:
    """Return the noise on a perturbed minimiser over how far apart two computed minimisers may be."""
    if not isinstance(mechanism, PerturbedObjective):
        return None
    spacing, _ = mechanism.linear_noise(sensitivity)
    gradient = mechanism.tolerance(bound, size) + 0.5 * spacing * math.sqrt(size)
    lattice = mechanism.output_lattice(sensitivity, bound, size)
    return lattice.noise_scale / (2.0 * gradient / mechanism.strength)


def _size(value: Any) -> int:
    size = getattr(value, "size", None)
    return int(np.size(value) if size is None else size)
