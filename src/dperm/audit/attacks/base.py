"""What every attack is: a name, a share of the runs, and a result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.audit.claim import Claim
from dperm.audit.pilot import Pilot
from dperm.audit.pool import Pool
from dperm.audit.result import AttackResult
from dperm.audit.tables import PublicFacts, TablePair
from dperm.errors import SubjectFailed
from dperm.types import FloatArray

__all__ = ["Attack", "AttackContext", "SharedPilot"]


class SharedPilot:
    """The pilot of an audit, made once for all attacks that use it."""

    def __init__(self, maker: Callable[[], Pilot]) -> None:
        self._maker = maker
        self._made: Pilot | SubjectFailed | None = None

    def make(self) -> None:
        """Make it; a function that fails on a table of every pair fails once, not again for every attack."""
        if self._made is None:
            try:
                self._made = self._maker()
            except SubjectFailed as error:
                if not error.raised:
                    raise
                self._made = error

    @property
    def made(self) -> Pilot:
        """The pilot."""
        self.make()
        if isinstance(self._made, SubjectFailed):
            raise self._made
        assert self._made is not None
        return self._made

    @property
    def one_pair(self) -> bool:
        """Whether it was made, and all attacks share its only pair."""
        return isinstance(self._made, Pilot) and self._made.one_pair


@dataclass(frozen=True)
class AttackContext:
    """What an attack may use.

    Attributes
    ----------
    pool : Pool
        Runs the audited function.
    claim : Claim
    facts : PublicFacts
    pairs : list of TablePair
        Candidates; the function runs on the first of them, and the pilot has the best of them.
    first_runs : list of arrays
        The first vectors of each process, all on the first table of the first pair.
    confidence : float
        Of this attack alone: it may call a correct claim a violation with probability 1 - confidence.
    n_runs : int
        About how many runs it should use.
    rng : numpy generator
        For choices of the attack.
    counted : bool
        Whether a number of runs was asked for, and not a time: it is then kept.
    hurried : bool
        Whether there is time for so few runs that an attack of little power had better leave them to others.
    """

    pool: Pool
    claim: Claim
    facts: PublicFacts
    pairs: list[TablePair]
    first_runs: list[FloatArray]
    confidence: float
    n_runs: int
    rng: np.random.Generator
    shared_pilot: SharedPilot
    counted: bool = False
    hurried: bool = False

    @property
    def pilot(self) -> Pilot:
        """Pilot runs, which all attacks share."""
        return self.shared_pilot.made


class Attack(ABC):
    """One attack; enter it in ``ATTACKS`` of ``attacks/__init__.py``.

    Class attributes: its ``name``, its ``share`` of the runs relative to other attacks, the ``fewest`` runs that it
    needs to say anything, whether it uses the ``pilot``, ``about``, one line for readers, and ``advice``, the usual
    cause of a violation and its remedy in plain words.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    advice: ClassVar[str]
    share: ClassVar[float]
    fewest: ClassVar[int]
    uses_pilot: ClassVar[bool] = False
    #: whether its tables are of another size, so that the time of its runs says nothing about that of others
    other_tables: ClassVar[bool] = False

    @abstractmethod
    def run(self, context: AttackContext) -> AttackResult:
        """Attack, and say what was found; ``runs`` and ``seconds`` of the result are filled in by the runner."""
