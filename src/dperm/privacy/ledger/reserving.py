"""How a reservation is decided, inside the transaction that writes it: whose data they are, and is there room."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Sequence

from dperm.errors import BudgetRefused, DataSetRenamed
from dperm.privacy.budget import Budget
from dperm.privacy.events import Event, restate
from dperm.privacy.ledger.cap import admit, is_unbounded
from dperm.privacy.ledger.rows import Payload, alias_row, as_stored, now, reserve_row
from dperm.privacy.ledger.state import Reserved, State
from dperm.privacy.neighbours import Neighbours

__all__ = ["Decision", "reserving"]

Decision = Callable[[State], tuple[list[Payload], Reserved]]


def reserving(
    dataset: str,
    marks: Sequence[str],
    event: Event,
    neighbours: str | Neighbours,
    of_ledger: Neighbours,
    purpose: str,
    requested: Budget | None,
) -> Decision:
    """Return what decides on a reservation of ``event``, given as ``dataset``, of data with these fingerprints."""
    stated = Neighbours.parse(neighbours)
    event = as_stored(event)
    if stated is Neighbours.REPLACE_ONE:
        restate(event, Neighbours.ZERO_OUT, stated)  # refuses events that have no replace-one proof at all
    charged = restate(event, stated, of_ledger)
    unbounded = is_unbounded(charged)

    def decide(state: State) -> tuple[list[Payload], Reserved]:
        name = next(filter(None, map(state.owner, marks)), dataset)
        account = state.account(name)
        if account.cap is None and state.account(dataset).cap is not None:
            raise BudgetRefused(
                f"these data are known as {name!r}, which has no cap, while {dataset!r} has one: "
                f"set the cap on {name!r}."
            )
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
        return [*new, reserve_row(made, requested)], made

    return decide
