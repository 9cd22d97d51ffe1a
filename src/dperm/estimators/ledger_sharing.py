"""Copies of an estimator share its ledger; a pickled estimator never holds a duplicate of it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, Self

from dperm.errors import LedgerNotSaved
from dperm.privacy.ledger import Ledger

__all__ = ["LedgerElsewhere", "LedgerSharing"]


class LedgerElsewhere:
    """Placeholder for a ledger in the memory of another process, which cannot be charged from this one."""


class LedgerSharing:
    """Mixin: copies share the ledger, and a pickle keeps only a ledger that outlives the process.

    A fitted object is pickled without a ledger in memory, with a warning. An unfitted one keeps a placeholder, and its
    copy refuses to be fitted: nobody would see the charge.
    """

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
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
