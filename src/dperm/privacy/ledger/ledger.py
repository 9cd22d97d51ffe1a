"""The ledger: every plan is reserved before anything is released, settled afterwards, and refused beyond the cap."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dperm.atomic_files import user_folder
from dperm.errors import BudgetRefused, InvalidInput, LedgerUnreadable
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.events import Event
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import chain, fingerprints
from dperm.privacy.ledger.cap import Cap
from dperm.privacy.ledger.contents import LedgerContents
from dperm.privacy.ledger.fingerprints import Fingerprint, ordered_digest, user_key
from dperm.privacy.ledger.recognition import Comparison, Resemblance, resembling
from dperm.privacy.ledger.reservations import (
    DataOrigin,
    Decision,
    Payload,
    ReleaseRecord,
    Reservation,
    as_stored,
    cap_row,
    check_dataset_name,
    check_releases,
    created_row,
    reservation_decision,
    settle_rows,
    unsettled_reservation,
)
from dperm.privacy.ledger.state import Journal, LedgerState, ReservationEntry
from dperm.privacy.ledger.storage import storage_at

__all__ = ["Ledger"]

#: name of a user's own ledger, in the dperm folder
DEFAULT_FILE = "ledger.db"


class Ledger(LedgerContents):
    """An append-only record of what was spent on each data set, shared by everybody who uses the data.

    Parameters
    ----------
    address
        A path or ``sqlite:///path`` (a file), ``postgresql://user@host/database`` (a server), or None: in memory,
        for this process only.
    dataset
        Name of the data set that this handle charges. The cap protects a person only if *all* tables with that
        person carry one name. Equal tables are recognised under any name; of one that resembles another the owner
        is warned (:class:`~dperm.errors.DataSetResembles`).
    neighbours
        The relation of the whole ledger, fixed when it is created (``"replace-one"`` unless given). None takes
        what is stored.
    create
        Whether a ledger that does not exist yet is created.
    refuse_resembling
        Whether this handle refuses, before anything is charged, a table that resembles one of another name, instead of
        warning. Such a refusal depends on the data that the ledger knows: it is for the owner only.

    Notes
    -----
    **Guarantee.** With a cap ``(epsilon, delta)`` everything reserved for the data set is together
    ``(epsilon, delta)``-DP under the ledger's neighbours, also when each plan is chosen from the results of earlier
    ones and when several processes reserve at once. The cap itself must not be chosen from earlier results.

    A ledger is shared, never copied: copies are the same object, and a file or server ledger pickles as its address
    (a server's password included).

    Examples
    --------
    >>> from dperm.privacy.accounting.events import Gaussian, Repeat
    >>> ledger = Ledger(dataset="patients")
    >>> cap = ledger.set_cap(Budget(2.0, 1e-6))
    >>> plan = Repeat(Gaussian(50.0), 10)
    >>> reservation = ledger.reserve(plan, neighbours="replace-one", purpose="gradient descent")
    >>> reservation.settle([ReleaseRecord("gradient", Gaussian(50.0), count=10)])
    >>> ledger.spent().n_fits
    1
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        dataset: str = "default",
        neighbours: str | Neighbours | None = None,
        *,
        create: bool = True,
        refuse_resembling: bool = False,
    ) -> None:
        wanted = None if neighbours is None else Neighbours.parse(neighbours)
        self._dataset = check_dataset_name(dataset)
        self._journal = Journal(storage_at(address))
        self._memory_key = fingerprints.new_key()
        self._origin = DataOrigin()
        self._refuse_resembling = bool(refuse_resembling)
        created = created_row(uuid.uuid4().hex, wanted or Neighbours.REPLACE_ONE)
        self._journal.storage.open(chain.link(None, [created])[0], create=create)
        self._neighbours = self._journal.read(lambda state: state.neighbours)
        if wanted not in (None, self._neighbours):
            raise InvalidInput(
                f"{self.address} was created for {str(self._neighbours)!r} neighbours, not {str(wanted)!r}: "
                "leave neighbours out, or create another ledger."
            )

    # ------------------------------------------------------------------------------------------ name and place
    @staticmethod
    def default_path() -> Path:
        """Path of this user's own ledger file, in a folder that is made if it is missing."""
        folder = user_folder()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerUnreadable(
                f"the folder {folder} cannot be made ({error.strerror}): set DPERM_HOME to a folder you may write."
            ) from None
        return folder / DEFAULT_FILE

    def for_dataset(self, dataset: str) -> Ledger:
        """Return a handle on the same ledger that charges another data set."""
        other = object.__new__(Ledger)
        other.__dict__.update(self.__dict__, _dataset=check_dataset_name(dataset))
        return other

    def recognising(self, *fingerprints: str) -> Ledger:
        """Return a handle whose reservations also record these fingerprints, such as that of the source file.

        They are written in the transaction that charges, so no interruption leaves charged data unrecognised. The cap
        of this handle's name also applies to handles that :meth:`for_dataset` makes from the new one. A pickle of the
        handle contains the fingerprints: keep it as private as the ledger.
        """
        return self._with(
            DataOrigin((*self._origin.fingerprints, *fingerprints), self._origin.given_as or self._dataset, [])
        )

    def made_here(self) -> list[dict[str, Any]]:
        """Return the rows of the reservations made with this handle of :meth:`recognising`, and no others."""
        return [
            row
            for row in self.entries()
            if row["kind"] == "reserve" and row["id"] in (self._origin.reservation_ids or ())
        ]

    def _with(self, origin: DataOrigin) -> Ledger:
        other = self.for_dataset(self._dataset)
        other._origin = origin
        return other

    # ------------------------------------------------------------------------------------------ cap
    @property
    def cap(self) -> Cap | None:
        """The data set's cap, None if none was set."""
        return self._journal.read(lambda state: state.account(self._dataset).cap)

    def set_cap(self, budget: Budget, mode: str = "mixed", delta_reserve: float = 0.0) -> Cap:
        """Set a permanent limit on what may be spent on the data set.

        Parameters
        ----------
        budget
            Epsilon and delta that all releases together satisfy.
        mode
            ``"mixed"`` admits every event with a Renyi curve; ``"gaussian-only"`` admits Gaussian releases only and
            accounts for them exactly.
        delta_reserve
            Part of delta kept for releases known only as (epsilon, delta).

        Raises
        ------
        InvalidInput
            The data set has a cap: it never changes.
        BudgetRefused
            The data set has already spent more than the cap.
        """
        cap = Cap.of(budget, mode, delta_reserve)

        def decide(state: LedgerState) -> tuple[list[Payload], Cap]:
            account = state.account(self._dataset)
            if account.cap is not None:
                raise InvalidInput(
                    f"data set {self._dataset!r} has a cap of epsilon={account.cap.budget.epsilon:g}, "
                    f"delta={account.cap.budget.delta:g} already: a cap never changes."
                )
            return [cap_row(cap, account)], cap

        with self._named_in_refusals():
            return self._journal.write(decide)

    # ------------------------------------------------------------------------------------------ reserve, settle
    def reserve(
        self,
        event: Event,
        neighbours: str | Neighbours,
        purpose: str = "",
        fingerprint: str | None = None,
        requested: Budget | None = None,
    ) -> Reservation:
        """Charge a plan, in one committed transaction, before anything of it is released.

        Parameters
        ----------
        event
            Everything the plan will release.
        neighbours
            The relation under which ``event`` is stated; restated under the ledger's own to be charged.
        purpose
            A few words for readers of the ledger; they are exported.
        fingerprint
            Of the data, from :meth:`fingerprint`. Data known under another name are charged to that name; no cap can
            be bypassed.
        requested
            The budget that the plan was made for, for display only; the charge comes from ``event`` alone.

        Raises
        ------
        BudgetRefused
            The plan does not fit the cap, would bypass another one, or the data resemble those of another name and the
            handle refuses that; nothing is written.
        Unsupported
            The event has no proof under the ledger's neighbours.
        """
        with self._named_in_refusals():
            return self._handle(self._journal.write(self._decision(event, neighbours, purpose, fingerprint, requested)))

    def check(
        self,
        event: Event,
        neighbours: str | Neighbours,
        fingerprint: str | None = None,
        then: Sequence[tuple[Event, str | None]] = (),
    ) -> str:
        """Refuse what :meth:`reserve` would refuse now, and write nothing.

        Another process may still reserve first. ``then`` lists plans that will be reserved afterwards, each with the
        fingerprint of its data: if one of them would be refused, so is this one. Returns the name of the data set that
        ``event`` would be charged to.
        """
        plans = [self._decision(one, neighbours, "", mark) for one, mark in ((event, fingerprint), *then)]

        def look(state: LedgerState) -> str:
            names = []
            for decide in plans:
                rows, made = decide(state)
                state = state.after(rows)
                names.append(made.dataset)
            return names[0]

        with self._named_in_refusals():
            return self._journal.read(look)

    @contextmanager
    def _named_in_refusals(self) -> Iterator[None]:
        """Let the command in a refusal name this ledger; a ledger in memory has no command."""
        try:
            yield
        except BudgetRefused as error:
            error.lasting = self.lasting
            if self.lasting and self.address != os.path.realpath(user_folder() / DEFAULT_FILE):
                error.ledger = self.address
            raise

    def _decision(
        self,
        event: Event,
        neighbours: str | Neighbours,
        purpose: str,
        fingerprint: str | None,
        requested: Budget | None = None,
    ) -> Decision:
        plan = (event, neighbours, self._neighbours, purpose, requested)
        comparison = Comparison(self._key, self._refuse_resembling)
        return reservation_decision(self._dataset, self._origin, fingerprint, *plan, comparison)

    def known_as(self, fingerprint: str) -> str | None:
        """Return the data set under which these data were first recorded, None if they are new."""
        return self._journal.read(lambda state: state.owner(fingerprint))

    def resume(self, reservation_id: str) -> Reservation:
        """Return an unsettled reservation, to continue it after a crash."""
        return self._handle(self._journal.read(lambda state: unsettled_reservation(state, reservation_id)))

    def unsettled(self, dataset: str | None = None) -> list[Reservation]:
        """Return the reservations that are running, crashed or abandoned; they count as spent."""
        accounts = self._journal.read(lambda state: list(state.accounts.values()))
        return [
            self._handle(made)
            for account in accounts
            if dataset in (None, account.dataset)
            for made in account.unsettled.values()
        ]

    def _handle(self, made: ReservationEntry) -> Reservation:
        cost = made.charge.amount if made.charge else None
        ledger = self.for_dataset(made.dataset)
        return Reservation(made.id, made.dataset, made.event, made.neighbours, made.purpose, cost, made.time, ledger)

    def _settle(self, reservation: Reservation, releases: Iterable[ReleaseRecord]) -> None:
        records = [
            ReleaseRecord(one.query, as_stored(one.event), bool(one.forfeited), int(one.count)) for one in releases
        ]

        def decide(state: LedgerState) -> tuple[list[Payload], None]:
            made = unsettled_reservation(state, reservation.id)
            check_releases(made.event, records)
            return settle_rows(made, records), None

        self._journal.write(decide)

    # ------------------------------------------------------------------------------------------ recognising data
    def fingerprint(self, X: Any, target: Any = None) -> Fingerprint:
        """Return a keyed fingerprint of a table of numbers, to give to :meth:`reserve`; it never leaves the ledger.

        It depends on the values of the rows alone: not on their order, nor on the container. Columns are told apart by
        position. The key is a file of this user outside the ledger. A ledger in memory has a key of its own.

        Parameters
        ----------
        X
            An array, a scipy sparse array, or a table with ``shape`` and ``blocks()``.
        target
            One value, or one row of values, for each row of ``X``.
        """
        table = np.asarray(X) if isinstance(X, list) else X
        if len(table.shape) != 2:
            raise InvalidInput("a fingerprint is that of a table with rows and columns.")
        return Fingerprint.of_table(table, target, self._key())

    def fingerprint_of_columns(self, chunks: Iterable[Mapping[str, Any]]) -> Fingerprint:
        """Return the fingerprint of a table before it is encoded: chunks of named columns of doubles or texts.

        It is the same for every file format, order of rows and order of columns.
        """
        return Fingerprint.of_columns(chunks, self._key())

    def ordered_digest(self, arrays: Iterable[Any]) -> str:
        """Return a keyed digest of arrays in their order, which recognises a table only in the same order of rows."""
        return ordered_digest(arrays, self._key())

    def _key(self) -> bytes:
        return self._memory_key if self._journal.storage.address is None else user_key()

    def resembling(self, *fingerprints: Fingerprint) -> list[Resemblance]:
        """Return the other data sets that tables resemble, the most alike first: for the owner only.

        The tables are those of the fingerprints given here and to :meth:`recognising`.
        """
        tables = [*self._origin.fingerprints, *fingerprints]
        return self._journal.read(lambda state: resembling(state, self._dataset, tables, self._key))

    # ------------------------------------------------------------------------------------------ shared, never copied
    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        address = self._journal.storage.address
        if address is None:
            raise TypeError(
                "a ledger in memory cannot be pickled, because spending through the copy would not be recorded here: "
                "share one with a file, as in Ledger('budget.db')."
            )
        return _reopen, (address, self._dataset, self._origin, self._refuse_resembling)

    def __repr__(self) -> str:
        return f"<Ledger {self.address!r}, dataset={self._dataset!r}, neighbours={str(self._neighbours)!r}>"


def _reopen(address: str, dataset: str, origin: DataOrigin, refuse_resembling: bool = False) -> Ledger:
    """Unpickle a handle; never creates a ledger, because a second, empty one would hide what is spent."""
    return Ledger(address, dataset, create=False, refuse_resembling=refuse_resembling)._with(origin)
