"""The budget ledger: who spent how much of which data set's privacy budget, and the cap that limits it.

A plan is *reserved* in one committed transaction before anything is released, and *settled* in a second one that lists
every release. Reserved budget counts as spent, whether or not it is settled. ``ledger`` is the public interface;
``reservations`` decides what is written, ``state`` derives accounts from the rows, ``cap`` limits them, ``scope`` lets
a fit release exactly what it reserved. Rows form a hash ``chain`` and live in a ``storage`` (memory, ``sqlite`` or
``postgres``; a new kind is a subclass of ``Storage`` and a line in ``storage_at``). This package uses
:mod:`dperm.privacy.accounting` only and never sees data, apart from ``fingerprints`` and ``sketches``, by which
``recognition`` compares tables. ``contents`` is what a ledger shows, and what of it may be published.
"""

from dperm.privacy.ledger.cap import Cap
from dperm.privacy.ledger.ledger import Ledger
from dperm.privacy.ledger.reservations import ReleaseRecord, Reservation
from dperm.privacy.ledger.state import Receipt, Spent

__all__ = ["Cap", "Ledger", "Receipt", "ReleaseRecord", "Reservation", "Spent"]
