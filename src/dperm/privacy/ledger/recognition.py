"""Which account a table is charged to, and which other tables it resembles: decided by comparing it with earlier ones.

Everything here depends on private tables without noise. It decides what is charged or refused, and tells the owner; no
report may contain it (``cap.proof.md``).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dperm.errors import BudgetRefused
from dperm.privacy.ledger.fingerprints import Fingerprint, opened_sketch
from dperm.privacy.ledger.sketches import Likeness, compared
from dperm.privacy.ledger.state import LedgerState

__all__ = ["Comparison", "Resemblance", "dataset_to_charge", "refusal", "resembling"]


@dataclass(frozen=True)
class Comparison:
    """How a ledger's handle compares new tables with known ones.

    Attributes
    ----------
    key
        Returns the ledger's key; called only if there is a sketch to open.
    refuse
        Whether a table that resembles one of another name is refused; otherwise the owner is warned.
    """

    key: Callable[[], bytes]
    refuse: bool = False


def dataset_to_charge(state: LedgerState, given: Sequence[str], fingerprints: Sequence[str]) -> str:
    """Return the name to charge: a name by which the data are known, preferably one with a cap.

    The caps of all names by which the data are known or given apply, but only one name is charged. If a second name
    has a cap too, the reservation is refused.
    """

    def has_cap(name: str) -> bool:
        return state.account(name).cap is not None

    owners = list(dict.fromkeys(filter(None, map(state.owner, fingerprints))))
    name = next(filter(has_cap, owners), owners[0] if owners else given[-1])
    bypassed = [one for one in dict.fromkeys([*given, *owners]) if one != name and has_cap(one)]
    if not bypassed:
        return name
    known, others = " and as ".join(map(repr, owners or [name])), " and ".join(map(repr, bypassed))
    if set(bypassed) & set(owners):
        raise BudgetRefused(
            f"these data are known as {known}, and a charge to {name!r} would bypass the cap of {others}: "
            "read the table with the same columns as before."
        )
    if not has_cap(name):
        raise BudgetRefused(
            f"these data are known as {known}, which has no cap, while {others} has one: "
            f"set the cap on {name!r} and give the data by that name."
        )
    raise BudgetRefused(
        f"these data are known as {known}, and a charge to that name would bypass the cap of {others}: "
        f"give them as {name!r} if that cap should apply."
    )


@dataclass(frozen=True)
class Resemblance:
    """A table resembles one that the ledger knows by another name: for the owner only."""

    dataset: str
    capped: bool
    likeness: Likeness

    def sentence(self, given: str, charged: str) -> str:
        """Return what to tell the owner of data given by one name and charged to the same or another."""
        cap = ", which has a cap" if self.capped else ""
        without = "" if self.likeness.with_target or self.likeness.columns else "without the target, "
        return (
            f"{without}{self._shared(given)}{cap}: if they are the same people, give the data by that name (--dataset "
            f"{shlex.quote(self.dataset)}); a charge to {charged!r} does not count there."
        )

    def _shared(self, given: str) -> str:
        if self.likeness.columns is not None:
            return self.likeness.columns.sentence(given, self.dataset)
        ours, theirs = self.likeness.of_these, self.likeness.of_those
        if ours is None or theirs is None:
            return f"the data given as {given!r} have the same number of each kind of row as {self.dataset!r}"
        # as a share of the new data, unless the known table is clearly the smaller one
        if ours.limits[1] >= theirs.value:
            return f"{ours} of the different rows of the data given as {given!r} are also in {self.dataset!r}"
        return f"the data given as {given!r} contain {theirs} of the different rows of {self.dataset!r}"


def refusal(alike: Sequence[Resemblance], given: str, charged: str) -> BudgetRefused:
    """Return the error that refuses a table for its resemblance to others, for an owner who asked for that."""
    return BudgetRefused(
        f"tables that resemble one of another name are refused here, and nothing was charged: "
        f"{alike[0].sentence(given, charged)} If they are other people, repeat without refusing resemblances "
        "(--refuse-resembling, refuse_resembling)."
    )


def resembling(
    state: LedgerState, charged: str, fingerprints: Sequence[str], key: Callable[[], bytes]
) -> list[Resemblance]:
    """Return the accounts other than ``charged`` that hold a table like the new data, the most alike first.

    Data that the ledger knows already are not compared again: their owner was told when they were new.
    """
    new = [one for one in fingerprints if isinstance(one, Fingerprint) and state.owner(one) is None]
    others = [(dataset, sealed) for dataset, sealed in state.sketches if dataset != charged]
    if not new or not others:
        return []
    secret = key()
    tables = [opened_sketch(one.sealed, secret) for one in new]
    found: dict[str, Likeness] = {}
    for dataset, sealed in others:
        other = opened_sketch(sealed, secret)
        for mine in tables:
            like = None if mine is None or other is None else compared(mine, other)
            if like is not None and (dataset not in found or _rank(like) > _rank(found[dataset])):
                found[dataset] = like
    alike = [Resemblance(name, state.account(name).cap is not None, like) for name, like in found.items()]
    return sorted(alike, key=lambda one: _rank(one.likeness), reverse=True)


def _rank(like: Likeness) -> tuple[bool, float]:
    """Rows that agree with their target say more than rows without."""
    return like.with_target, like.share
