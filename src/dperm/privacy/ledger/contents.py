"""What a ledger shows: names, balances, rows and the hash chain; and what of it may be published."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from dperm.errors import InvalidInput, LedgerTampered
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.reservations import DataOrigin, Reservation
from dperm.privacy.ledger.state import Journal, Receipt, Spent

__all__ = ["LedgerContents"]


class LedgerContents(ABC):
    """The part of a ledger's handle that only reads."""

    _dataset: str
    _neighbours: Neighbours
    _origin: DataOrigin
    _journal: Journal

    @abstractmethod
    def for_dataset(self, dataset: str) -> Self:
        """Return a handle on the same ledger that charges another data set."""

    @property
    def dataset(self) -> str:
        """Name of the data set that this handle charges."""
        return self._dataset

    @property
    def given_as(self) -> str:
        """Name by which the caller gave the data; the only name that may be published."""
        return self._origin.given_as or self._dataset

    @property
    def neighbours(self) -> Neighbours:
        """The relation of every figure in this ledger."""
        return self._neighbours

    @property
    def lasting(self) -> bool:
        """Whether the ledger outlives this process."""
        return self._journal.storage.address is not None

    @property
    def address(self) -> str:
        """Where the ledger is kept, without a password."""
        return self._journal.storage.label

    def for_report(self, reservation: Reservation | None = None) -> dict[str, Any]:
        """Return everything that a report may say about the ledger, for any state of the ledger.

        Which data set was charged follows from an exact comparison of the private table with earlier ones. So do all
        balances and the head of the hash chain. They are for the owner only: see :meth:`receipt`.
        """
        public: dict[str, Any] = {"dataset": self.given_as, "neighbours": str(self._neighbours)}
        return public if reservation is None else {**public, "reservation": reservation.id}

    def receipt(self, reservation: str | Mapping[str, Any]) -> Receipt:
        """Return what the owner should know and nobody else: which data set was charged, its balance, the chain's head.

        Parameters
        ----------
        reservation
            Id of a reservation, or ``privacy_report_.ledger`` of the fit that made it.

        Raises
        ------
        InvalidInput
            The ledger has no such reservation.
        """
        wanted = reservation if isinstance(reservation, str) else reservation.get("reservation")
        if wanted is None:
            raise InvalidInput("this report names no reservation: look the data set up with Ledger.spent.")
        own = [
            row
            for row in self._journal.checked_rows()
            if wanted in (row.data().get("id"), row.data().get("reservation"))
        ]
        if not own:
            raise InvalidInput(f"{self.address} has no reservation {str(wanted)!r}: it is of another ledger.")
        dataset = own[0].data()["dataset"]
        return Receipt(str(wanted), dataset, self.for_dataset(dataset).spent(), own[-1].digest)

    def spent(self, delta: float | None = None) -> Spent:
        """Sum up the data set.

        Epsilon is an upper bound that assumes the events were **not** chosen from earlier results. Without a cap it
        is the tightest figure for everything composed, at ``delta`` (1e-6 unless given). With a cap it is read at the
        cap's Renyi order (or as GDP), at the cap's delta unless given, and never exceeds the cap. The cap is the
        guarantee that holds however plans are chosen.
        """
        account = self._journal.read(lambda state: state.account(self._dataset))
        return account.spent(self._neighbours, delta)

    def datasets(self) -> list[str]:
        """Return the names of all data sets in the ledger."""
        return self._journal.read(lambda state: sorted(state.accounts))

    def entries(self, dataset: str | None = None) -> list[dict[str, Any]]:
        """Return every row (of one data set) as a plain dict, without fingerprints and sketches."""
        found = [{"seq": row.seq, "hash": row.digest, **row.data()} for row in self._journal.checked_rows()]
        for row in found:
            row.pop("fingerprint", None)
            row.pop("sketch", None)
        return [row for row in found if dataset is None or row.get("dataset") == dataset]

    def export(self) -> dict[str, Any]:
        """Return the whole ledger as data for JSON, without fingerprints, sketches and the names given for known data.

        Which data set was charged still follows from comparing tables: whoever gets it must be trusted like the owner.
        """
        entries = [{key: value for key, value in row.items() if key != "given_as"} for row in self.entries()]
        return {
            "ledger": entries[0]["ledger"],
            "neighbours": str(self._neighbours),
            "head": entries[-1]["hash"],
            "datasets": [self.for_dataset(name).spent().to_dict() for name in self.datasets()],
            "entries": entries,
        }

    @property
    def head(self) -> str:
        """Digest of the newest row, for the owner to keep: a later edit or rollback can then be detected."""
        newest = self._journal.read(lambda state: state.newest)
        assert newest is not None
        return newest.digest

    def verify(self, head: str | None = None) -> str:
        """Recompute the whole hash chain and return its head.

        Parameters
        ----------
        head
            A head that was noted earlier (:meth:`receipt`); it must be in the chain.

        Raises
        ------
        LedgerTampered
            A row was edited, removed or reordered, or ``head`` is missing.
        """
        rows = self._journal.checked_rows()
        if head is not None:
            wanted = head.strip().lower()
            if len(wanted) != 64 or set(wanted) - set("0123456789abcdef"):
                raise InvalidInput(
                    "head must be the 64 hexadecimal digits that `dperm fit`, `dperm ledger show` or `dperm ledger "
                    "receipt` printed."
                )
            if all(row.digest != wanted for row in rows):
                raise LedgerTampered(
                    f"the head {wanted[:12]}... is not in {self.address}: "
                    "the ledger was edited or rolled back since it was printed, or it is another ledger."
                )
        return rows[-1].digest
