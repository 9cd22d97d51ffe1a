"""What is audited, a function in an environment, and how long its runs may take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Limits", "Subject"]


@dataclass(frozen=True)
class Subject:
    """What is audited: a function in an environment.

    Attributes
    ----------
    module, function : str
        Where it is; ``fit(X, y)`` returns the released vector, a (vector, object) pair or a fitted model.
    python : str or None
        Interpreter of its environment; None for the present one.
    path : tuple of str
        Folders to search for the module first.
    arguments : dict or None
        If given, ``function(**arguments)`` makes the function.
    any_width : bool
        Whether tables of other widths may be tried; the function may still refuse them.
    local : bool
        Whether every record is reported under noise of its own, in the local model.
    """

    module: str
    function: str
    python: str | None = None
    path: tuple[str, ...] = ()
    arguments: dict[str, Any] | None = None
    any_width: bool = True
    local: bool = False

    @property
    def name(self) -> str:
        """The name for readers."""
        return f"{self.module}:{self.function}"


@dataclass(frozen=True)
class Limits:
    """Seconds that runs may take.

    Attributes
    ----------
    run : float
        One run, imports aside.
    audit : float
        The whole audit: a single run that takes longer makes it pointless.
    note : callable
        Gets a sentence for the person who waits.
    """

    run: float = 60.0
    audit: float = math.inf
    note: Callable[[str], None] = lambda sentence: None

    @property
    def later(self) -> tuple[float, str]:
        """The limit of a run that is not the first, and the sentence if it takes longer."""
        if self.audit < self.run:
            return self.audit, f"one run takes longer than the whole audit should: raise --seconds {self.audit:g}"
        return self.run, f"one run took longer than {self.run:g} seconds: raise --timeout"

    def silent(self) -> Limits:
        """Return the same limits without notes."""
        return Limits(self.run, self.audit)
