"""All errors and warnings of dperm.

::

    DpermError
     +-- InvalidInput (also ValueError)       bad parameter, bounds, shape or value       exit 2
     |    +-- InvalidBudget                   epsilon or delta outside its range          exit 2
     |    +-- InvalidBounds                   missing or contradictory bounds             exit 2
     |    +-- InvalidData                     NaN, infinite, wrong shape, one class       exit 2
     |    |    +-- NotNumbers (also TypeError) cells that are not numbers                 exit 2
     |    +-- SubjectFailed                   an audited function cannot be run           exit 2
     |    +-- Unsupported                     a combination that no proof covers          exit 2
     |         +-- TooFewPeople               a local model would be lost in its noise    exit 2
     +-- BudgetRefused                        the spending limit would be exceeded        exit 3
     +-- LedgerError                          the ledger cannot be used                   exit 1
     |    +-- LedgerUnreadable                cannot be opened or is not a ledger         exit 1
     |    +-- LedgerTampered                  its entries were changed                    exit 1
     +-- StoreError                           a collector's database cannot be used       exit 1
     +-- PlanViolation (also RuntimeError)    a release that was not planned (a bug)      exit 1
     +-- AccountingContradiction (also RuntimeError) bounds that exclude each other (a bug) exit 1
     +-- MissingDependency (also ImportError) an optional extra is not installed          exit 1
     +-- ClusterLost                          the cluster that held the rows is gone      exit 1
     +-- RunError                             a run between organisations failed          exit 1
          +-- ProtocolError                   a damaged or unexpected message             exit 1
          +-- StateLost                       a run's folder is missing or damaged        exit 1
          +-- PeerRefused                     another participant refused the run         exit 1

    DpermWarning (UserWarning)
     +-- InsecureSeedWarning                  the noise is reproducible: no guarantee
     +-- OwnerWarning                         for the data's owner only, not to be published
     |    +-- DataSetRenamed                  a data set was recognised under another name
     |    +-- DataSetResembles                a table resembles a known one
     +-- LedgerNotSaved                       a model was saved without its ledger in memory
     +-- UtilityWarning                       the model may be of little use, and why

Messages are one sentence: what is wrong, where, what to do. They never contain a row or a value of the data.
Errors whose sentence depends on where it is shown have fields; ``str(error)`` renders the sentence from them.
"""

from __future__ import annotations

import shlex

__all__ = [
    "AccountingContradiction",
    "BudgetRefused",
    "ClusterLost",
    "DataSetRenamed",
    "DataSetResembles",
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
    "OwnerWarning",
    "PeerRefused",
    "PlanViolation",
    "ProtocolError",
    "RunError",
    "StateLost",
    "StoreError",
    "SubjectFailed",
    "TooFewPeople",
    "Unsupported",
    "UtilityWarning",
]


class DpermError(Exception):
    """Base class; ``exit_code`` is what the command line returns.

    Attributes
    ----------
    places : tuple of str
        Where it happened, the outermost place first; shown before the sentence.
    """

    exit_code = 1
    places: tuple[str, ...] = ()

    def add_place(self, place: str) -> None:
        """Add a place around those that are known.

        >>> error = InvalidInput("epsilon must be above 0.")
        >>> error.add_place("candidate 'a'")
        >>> str(error)
        "candidate 'a': epsilon must be above 0."
        """
        self.places = (place, *self.places)

    @property
    def sentence(self) -> str:
        """The message without places."""
        return super().__str__()

    @property
    def clause(self) -> str:
        """The message without its full stop, to stand inside another sentence."""
        return str(self).removesuffix(".")

    def __str__(self) -> str:
        return ": ".join((*self.places, self.sentence))


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
    """Cells hold objects that are not numbers; the message names the column."""


class SubjectFailed(InvalidInput):
    """An audited function cannot be loaded or run.

    Attributes
    ----------
    raised : bool
        Whether the function itself raised an error on a table; it may run on others.
    """

    def __init__(self, reason: str, *, raised: bool = False) -> None:
        super().__init__(reason)
        self.raised = raised


class Unsupported(InvalidInput):
    """A combination that is refused because no proof covers it."""


class TooFewPeople(Unsupported):
    """A local model of so few people would be lost in its noise; all numbers are public.

    Attributes
    ----------
    n_people, n_features, epsilon
        What was asked for.
    min_people : int
        Number of people from which on weights are significant.
    people_needed : int
        Number of people with whom a fit reaches half of the possible improvement over the null model.
    option : str or None
        Parameter that overrides the refusal; None where there is none, as in a collection.
    """

    def __init__(self, n_people: int, n_features: int, epsilon: float, min_people: int, people_needed: int) -> None:
        super().__init__(n_people, n_features, epsilon, min_people, people_needed)
        self.n_people, self.n_features, self.epsilon = n_people, n_features, epsilon
        self.min_people, self.people_needed = min_people, people_needed
        self.option: str | None = "refuse_hopeless=False"

    @property
    def sentence(self) -> str:
        """The message without places."""
        advice = ["ask more people", "raise epsilon", "use fewer columns"]
        if self.option is not None:
            advice.append(f"or set {self.option}")
        return (
            f"{self.n_people} people are too few for {self.n_features} columns at epsilon {self.epsilon:g}: about "
            f"{self.min_people} people are needed to distinguish anything from noise, and about {self.people_needed} "
            f"for a useful model; {', '.join(advice)}."
        )


class BudgetRefused(DpermError):
    """The spending limit of a data set would be exceeded; nothing was released.

    Parameters
    ----------
    reason : str
        What is refused, why, and what to do.
    dataset : str, optional
        Name of the data set in the ledger, where it helps to see who spent what: the sentence then shows the command.

    Attributes
    ----------
    ledger : str or None
        Address of the ledger for that command; None means the user's own ledger.
    lasting : bool
        Whether a command can show the ledger; one in memory has none.
    renamed : tuple of str or None
        The name by which the data were given and the one by which the ledger knows them, if they differ.
    """

    exit_code = 3

    def __init__(self, reason: str, dataset: str | None = None) -> None:
        super().__init__(reason)
        self.dataset = dataset
        self.ledger: str | None = None
        self.lasting = True
        self.renamed: tuple[str, str] | None = None

    @property
    def command(self) -> str | None:
        """The command that shows who spent what on the data set.

        >>> error = BudgetRefused("ask for less", dataset="my patients")
        >>> error.ledger = "budget.db"
        >>> error.command
        "dperm ledger show --ledger budget.db 'my patients'"
        """
        if self.dataset is None or not self.lasting:
            return None
        where = [] if self.ledger is None else ["--ledger", self.ledger]
        return shlex.join(["dperm", "ledger", "show", *where, self.dataset])

    @property
    def sentence(self) -> str:
        """The message without places."""
        reason = super().sentence.removesuffix(".")
        said = f"{reason}." if self.command is None else f"{reason}, and see who spent it with `{self.command}`."
        if self.renamed is None:
            return said
        given, known = self.renamed
        return f"{said} These data were given as {given!r}; the ledger knows them as {known!r}."


class LedgerError(DpermError):
    """The ledger cannot be used."""


class LedgerUnreadable(LedgerError):
    """The ledger cannot be opened, or the file is not a ledger."""


class LedgerTampered(LedgerError):
    """The ledger's entries were changed: its hash chain is broken."""


class StoreError(DpermError):
    """A collector's database cannot be used; no report that failed was acknowledged."""


class PlanViolation(DpermError, RuntimeError):
    """A solver tried a release that its plan does not contain."""


class ClusterLost(DpermError):
    """The cluster that held the rows does not answer, or cannot read them again; what was reserved stays spent."""


class AccountingContradiction(DpermError, RuntimeError):
    """A lower bound on a privacy cost exceeds the upper bound: one of them is wrong, so neither is reported.

    Parameters
    ----------
    what : str
        Which figure, such as ``"epsilon"``.
    lower, upper : float
        The two bounds.
    """

    def __init__(self, what: str, lower: float, upper: float) -> None:
        super().__init__(what, lower, upper)
        self.what, self.lower, self.upper = what, lower, upper

    @property
    def sentence(self) -> str:
        """The message without places."""
        return (
            f"the privacy accounting contradicts itself: {self.what} is at most {self.upper!r} by one calculation and "
            f"at least {self.lower!r} by another; this is a bug in dperm and no figure can be given, please report it "
            "with the parameters of this call."
        )


class MissingDependency(DpermError, ImportError):
    """An optional dependency is not installed."""


class RunError(DpermError):
    """A run between organisations failed; its reservation stays spent, and the message says if it can be resumed."""


class ProtocolError(RunError):
    """A message is damaged, repeated out of order, or from another run or state; it was not answered."""


class StateLost(RunError):
    """A run's folder is missing, damaged or older than the run."""


class PeerRefused(RunError):
    """Another participant refused; the message contains its reason."""


class DpermWarning(UserWarning):
    """Base class of dperm's warnings."""


class InsecureSeedWarning(DpermWarning):
    """The noise is reproducible, so the result has no guarantee."""


class OwnerWarning(DpermWarning):
    """Follows from an exact comparison of private tables, without noise: for the data's owner only."""


class DataSetRenamed(OwnerWarning):
    """A data set was recognised under another name and charged there."""


class DataSetResembles(OwnerWarning):
    """A table that is charged to one name resembles a table that the ledger knows by another name.

    Attributes
    ----------
    dataset : str or None
        That other name.
    """

    def __init__(self, sentence: str, dataset: str | None = None) -> None:
        super().__init__(sentence)
        self.dataset = dataset


class LedgerNotSaved(DpermWarning):
    """A model was saved without its ledger, which is in memory."""


class UtilityWarning(DpermWarning):
    """The model may be of little use, and why.

    Issued from public numbers before anything is charged, or from released values after the fit: it reveals nothing
    else about the data.
    """
