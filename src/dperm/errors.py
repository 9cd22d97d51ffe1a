"""Every exception dperm raises on purpose.

::

    DpermError
     +-- InvalidInput (also ValueError)       bad parameter, bounds, shape or value       exit 2
     |    +-- InvalidBudget                   epsilon or delta outside its range          exit 2
     |    +-- InvalidBounds                   missing or contradictory bounds             exit 2
     |    +-- InvalidData                     NaN, infinite, wrong shape, one class       exit 2
     |    |    +-- NotNumbers (also TypeError) cells that are no kind of number           exit 2
     |    +-- Unsupported                     a combination that no proof covers          exit 2
     +-- BudgetRefused                        a ledger's cap would be passed              exit 3
     +-- LedgerError                          the ledger cannot be used                   exit 1
     |    +-- LedgerUnreadable                cannot be opened or is not a ledger         exit 1
     |    +-- LedgerTampered                  its hash chain does not hold                exit 1
     +-- StoreError                           a collector's database cannot be used       exit 1
     +-- PlanViolation (also RuntimeError)    a release that was not planned (a bug)      exit 1
     +-- MissingDependency (also ImportError) an optional extra is not installed          exit 1
     +-- RunError                             a run between organisations failed          exit 1
          +-- ProtocolError                   a message that must not be answered         exit 1
          +-- StateLost                       a run's folder is missing or damaged        exit 1
          +-- PeerRefused                     another participant refused, and said why   exit 1

    DpermWarning (UserWarning)
     +-- InsecureSeedWarning                  noise is reproducible, so nothing is private
     +-- DataSetRenamed                       a data set was recognised under another name
     +-- LedgerNotSaved                       a model was saved without its ledger in memory
     +-- UtilityWarning                what a fit is likely to lack, known before it or from what it released

Messages are one sentence: what is wrong, where, what to do. They never contain a row or a value of the data.
"""

from __future__ import annotations

__all__ = [
    "BudgetRefused",
    "DataSetRenamed",
    "DpermError",
    "DpermWarning",
    "InsecureSeedWarning",
    "InvalidBounds",
    "InvalidBudget",
    "InvalidData",
    "InvalidInput",
    "LedgerError",
    "LedgerNotSaved",
    "LedgerTampered",
    "LedgerUnreadable",
    "MissingDependency",
    "NotNumbers",
    "PeerRefused",
    "PlanViolation",
    "ProtocolError",
    "RunError",
    "StateLost",
    "StoreError",
    "Unsupported",
    "UtilityWarning",
]


class DpermError(Exception):
    """Base class; ``exit_code`` is what the command line returns."""

    exit_code = 1


class InvalidInput(DpermError, ValueError):
    """A parameter, a bound, a shape or a value is wrong."""

    exit_code = 2


class InvalidBudget(InvalidInput):
    """Epsilon or delta is outside its range."""


class InvalidBounds(InvalidInput):
    """Bounds are missing, contradictory or do not fit the data's columns."""


class InvalidData(InvalidInput):
    """The data cannot be used; the message names no row and no value."""


class NotNumbers(InvalidData, TypeError):
    """Cells hold objects that are no kind of number; the message names the column."""


class Unsupported(InvalidInput):
    """A combination that is refused because no proof covers it."""


class BudgetRefused(DpermError):
    """The ledger's cap would be passed; nothing was released."""

    exit_code = 3


class LedgerError(DpermError):
    """The ledger cannot be used."""


class LedgerUnreadable(LedgerError):
    """The ledger cannot be opened, or the file is not a ledger."""


class LedgerTampered(LedgerError):
    """The ledger's hash chain does not hold."""


class StoreError(DpermError):
    """A collector's database cannot be used; nothing that failed was acknowledged."""


class PlanViolation(DpermError, RuntimeError):
    """A solver tried a release that its plan does not contain."""


class MissingDependency(DpermError, ImportError):
    """An optional dependency is not installed."""


class RunError(DpermError):
    """A run between organisations failed; what was reserved stays so, and the run can be resumed if it says so."""


class ProtocolError(RunError):
    """A message is damaged, repeated out of order, or from another run or state; it was not answered."""


class StateLost(RunError):
    """A run's folder is missing, damaged or older than the run."""


class PeerRefused(RunError):
    """Another participant refused; its own sentence is in the message."""


class DpermWarning(UserWarning):
    """Base class of dperm's warnings."""


class InsecureSeedWarning(DpermWarning):
    """The noise is reproducible, so the result has no guarantee."""


class DataSetRenamed(DpermWarning):
    """A data set was recognised under another name and charged there."""


class LedgerNotSaved(DpermWarning):
    """A model was saved without its ledger, which is in memory."""


class UtilityWarning(DpermWarning):
    """What a fit is likely to lack; said from public numbers before anything is charged, or from released values."""
