"""How a reservation is decided, inside the transaction that writes it: whose data they are, and is there room."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dperm.errors import BudgetRefused, DataSetRenamed
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.events import Event, restate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.cap import admit, is_unbounded
from dperm.privacy.ledger.rows import Payload, alias_row, as_stored, now, reserve_row
from dperm.privacy.ledger.state import LedgerState, Reserved

__all__ = ["Decision", "Origin", "reserving"]

Decision = Callable[[LedgerState], tuple[list[Payload], Reserved]]


@dataclass(frozen=True)
class Origin:
    """Where the data of a handle come from.

    Attributes
    ----------
    marks
        Fingerprints beside that of the rows, such as that of the file.
    given_as
        The name by which the data were given, if the handle has that by which they are known: its cap holds too.
    ids
        Takes the id of each reservation before it is written, so that after an interruption at any place the rows tell
        whether it was; None keeps none.
    """

    marks: tuple[str, ...] = ()
    given_as: str | None = None
    ids: list[str] | None = None


def reserving(
    dataset: str,
    origin: Origin,
    fingerprint: str | None,
    event: Event,
    neighbours: str | Neighbours,
    of_ledger: Neighbours,
    purpose: str,
    requested: Budget | None,
) -> Decision:
    """Return what decides on a reservation of ``event``, given as ``dataset``, of data with this fingerprint."""
    stated = Neighbours.parse(neighbours)
    event = as_stored(event)
    if stated is Neighbours.REPLACE_ONE:
        restate(event, Neighbours.ZERO_OUT, stated)  # refuses events that have no replace-one proof at all
    charged = restate(event, stated, of_ledger)
    unbounded = is_unbounded(charged)
    # the file first: its name is the one that a handle on it was opened with
    marks = [*origin.marks, *(() if fingerprint is None else (str(fingerprint),))]
    given = [dataset] if origin.given_as is None else [origin.given_as, dataset]

    def decide(state: LedgerState) -> tuple[list[Payload], Reserved]:
        name = _whose(state, given, marks)
        account = state.account(name)
        cost = None if account.cap is None else admit(account.cap, charged, account.charged())
        made = Reserved(uuid.uuid4().hex, name, event, charged, stated, str(purpose), cost, unbounded, now())
        new = [alias_row(name, mark, made.time) for mark in marks if state.owner(mark) is None]
        if name != dataset:
            # inside the transaction: where warnings are errors, nothing is written
            warnings.warn(
                f"the data given as {dataset!r} are known to the ledger as {name!r}, which is charged.",
                DataSetRenamed,
                stacklevel=4,
            )
        if origin.ids is not None:
            origin.ids.append(made.id)
        return [*new, reserve_row(made, requested)], made

    return decide


def _whose(state: LedgerState, given: Sequence[str], marks: Sequence[str]) -> str:
    """Return the name to charge: one by which the data are known, with a cap if one of them has it.

    The data are under the caps of all names by which they are known and given, and one is charged: if another has a
    cap too, nothing is.
    """

    def capped(name: str) -> bool:
        return state.account(name).cap is not None

    owners = list(dict.fromkeys(filter(None, map(state.owner, marks))))
    name = next(filter(capped, owners), owners[0] if owners else given[-1])
    passed_by = [one for one in dict.fromkeys([*given, *owners]) if one != name and capped(one)]
    if not passed_by:
        return name
    known, others = " and as ".join(map(repr, owners or [name])), " and ".join(map(repr, passed_by))
    if set(passed_by) & set(owners):
        raise BudgetRefused(
            f"these data are known as {known}, and a charge to {name!r} would pass by the cap of {others}: "
            "read the table with the columns with which it was read before."
        )
    if not capped(name):
        raise BudgetRefused(
            f"these data are known as {known}, which has no cap, while {others} has one: "
            f"set the cap on {name!r} and give them by that name."
        )
    raise BudgetRefused(
        f"these data are known as {known}, and a charge there would pass by the cap of {others}: "
        f"give them as {name!r} if that is the cap which is to hold."
    )
