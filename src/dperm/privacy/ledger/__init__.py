"""The budget ledger: who spent how much of which data set's privacy, and the cap nobody may pass.

A plan is *reserved* in one committed transaction before anything leaves, and *settled* in a second one that
lists every release. What is reserved counts as spent, whether or not it was settled.
"""

from dperm.privacy.ledger.cap import Cap
from dperm.privacy.ledger.ledger import Ledger
from dperm.privacy.ledger.records import ReleaseRecord, Reservation, Spent

__all__ = ["Cap", "Ledger", "ReleaseRecord", "Reservation", "Spent"]
