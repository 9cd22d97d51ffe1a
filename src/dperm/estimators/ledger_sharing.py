"""How estimators carry a ledger about: shared by copies in this process, never duplicated in a saved one."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, Self

from dperm.errors import InvalidInput, LedgerNotSaved
from dperm.privacy.ledger import Ledger

__all__ = ["LedgerElsewhere", "LedgerSharing", "check_ledger"]


class LedgerElsewhere:
    """Stands for a ledger in the memory of another process: nothing can be charged to that from here."""


def check_ledger(ledger: Any) -> None:
    """Refuse what is not a ledger of this process."""
    if isinstance(ledger, LedgerElsewhere):
        raise InvalidInput(
            "the ledger is in the memory of another process and cannot be charged from this one: keep it in a file, as "
            "in Ledger('budget.db'), which all processes share, or fit in one process (n_jobs=1)."
        )
    if not isinstance(ledger, Ledger | None):
        raise InvalidInput(f"ledger must be a Ledger or None, not {type(ledger).__name__}.")


class LedgerSharing:
    """Copies share the ledger; what is pickled keeps only a ledger that outlives the process.

    A fitted object is saved without a ledger in memory, and says so. One that is yet to be fitted keeps a mark in its
    place, and its copy refuses to be fitted: the fit would be charged where nobody sees it.
    """

    def __getstate__(self) -> Any:
        state = super().__getstate__()  # type: ignore[misc]
        ledger = state.get("ledger")
        if not isinstance(ledger, Ledger) or ledger.lasting:
            return state
        if "privacy_report_" not in state:
            return {**state, "ledger": LedgerElsewhere()}
        warnings.warn(
            "the ledger in memory is not saved with the model, so a later fit of the copy is charged to a new one: "
            "keep the ledger in a file, as in Ledger('budget.db').",
            LedgerNotSaved,
            stacklevel=2,
        )
        return {**state, "ledger": None}

    def __copy__(self) -> Self:
        """Return a copy in this process, which shares the ledger."""
        return self._copied(lambda value: value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy in this process, which shares the ledger."""
        return self._copied(lambda value: copy.deepcopy(value, memo))

    def _copied(self, copied: Callable[[Any], Any]) -> Self:
        other = type(self).__new__(type(self))
        vars(other).update({name: copied(value) for name, value in vars(self).items()})
        return other
