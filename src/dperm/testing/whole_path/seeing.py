"""Sees everything that a run shows: its result, files, warnings, texts, log records, progress, errors and ledgers."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dperm.errors import OwnerWarning
from dperm.estimators.progress import watching
from dperm.privacy.boundary import observing
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.contents import LedgerContents
from dperm.testing._violation import ContractViolation
from dperm.testing.evaluations import counted_evaluations
from dperm.testing.repeatable_noise import keys_named
from dperm.testing.whole_path.blind import BlindMechanisms
from dperm.testing.whole_path.forms import Leaves, Replacements, exported, leaves_of

__all__ = ["PRIVATE", "Run", "Seen", "SharedValues", "see"]

#: a run on a table, in a folder of its own; it returns whatever is to be compared
Run = Callable[[Any, Path], Any]

#: subfolder for what a run's owner keeps, such as the table itself; its files are not compared, but ledgers in it are
PRIVATE = "private"

#: endings of a ledger and of the files that SQLite keeps beside it
_LEDGER_FILES = (".db", ".db-journal", ".db-shm", ".db-wal")


@dataclass(frozen=True)
class SharedValues:
    """The result of a run in which ``count`` values stayed, without noise, inside a declared trusted domain."""

    result: Any
    count: int


@dataclass(frozen=True)
class Seen:
    """Everything that one run showed."""

    leaves: Leaves
    error: BaseException | None
    evaluations: int
    charges: int
    #: values that stayed inside a trusted domain
    shared: int


def see(run: Run, table: Any, folder: Path, blind: BlindMechanisms, noise: str) -> Seen:
    """Run on a table with blind mechanisms and return everything that it showed; ``noise`` names its noise."""
    replacements, steps, records = Replacements(), list[Any](), list[Any]()
    result: Any = None
    error: BaseException | None = None
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        enter(_home(folder / PRIVATE))
        enter(keys_named(f"whole path {noise}"))
        enter(_known(replacements))
        out, err = enter(_written())
        caught = enter(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        enter(_logged(records))
        enter(watching(lambda done, in_all: steps.append((done, in_all))))
        evaluations = enter(counted_evaluations())
        enter(observing(blind))
        try:
            result = run(table, folder)
        except ContractViolation:
            raise
        except (Exception, SystemExit) as raised:
            error = raised
    shared = result.count if isinstance(result, SharedValues) else 0
    warned = [(one.category, str(one.message), one.filename, one.lineno) for one in caught]
    parts = {
        "result": result.result if isinstance(result, SharedValues) else result,
        "error": None if error is None else (type(error), str(error), getattr(error, "__notes__", None)),
        "standard output": out.getvalue(),
        "standard error": err.getvalue(),
        "warnings": [one for one in warned if not issubclass(one[0], OwnerWarning)],
        "warnings for the owner": [one for one in warned if issubclass(one[0], OwnerWarning)],
        "log records": records,
        "progress": steps,
        "calls of mechanisms": blind.calls,
        "ledgers": _ledgers(folder),
        "files": _files(folder),
    }
    leaves: Leaves = {}
    for name, part in parts.items():
        leaves |= leaves_of(part, name)
    return Seen(replacements.applied(leaves), error, evaluations.count, blind.charges, shared)


def _ledgers(folder: Path) -> dict[str, Any]:
    """Return what may be exported of every ledger in the folder."""
    paths = sorted(folder.rglob("*.db"))
    return {str(path.relative_to(folder)): exported(Ledger(path, create=False)) for path in paths}


def _files(folder: Path) -> dict[str, bytes]:
    """Return every file that a run left behind, but not its private ones and not the ledgers, which are exported."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = [(path.relative_to(folder), path) for path in paths]
    return {
        str(name): path.read_bytes()
        for name, path in names
        if name.parts[0] != PRIVATE and not path.name.endswith(_LEDGER_FILES)
    }


# ------------------------------------------------------------------------------------------------- what is caught
@contextmanager
def _home(folder: Path) -> Iterator[None]:
    """Give a run a home of its own, so that its user's ledger and key are not used."""
    before = os.environ.get("DPERM_HOME")
    os.environ["DPERM_HOME"] = str(folder / "home")
    try:
        yield
    finally:
        os.environ.pop("DPERM_HOME")
        if before is not None:
            os.environ["DPERM_HOME"] = before


@contextmanager
def _known(replacements: Replacements) -> Iterator[None]:
    """Learn the random ids and the hashes of a run where they are made; a model may show them."""
    # where it lives: set on a subclass it would stay there as an attribute of its own
    make, head = uuid.uuid4, vars(LedgerContents)["head"]

    def learnt_id() -> uuid.UUID:
        made = make()
        replacements.add(made.hex, "id")
        replacements.add(str(made), "id")
        return made

    def learnt_head(ledger: LedgerContents) -> str:
        found: str = head.fget(ledger)
        replacements.add(found, "hash")
        return found

    uuid.uuid4 = learnt_id
    LedgerContents.head = property(learnt_head)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        uuid.uuid4 = make
        LedgerContents.head = head  # type: ignore[method-assign]


class _Text(io.TextIOWrapper):
    """A text stream in memory with a binary buffer, as standard output has."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", newline="")

    def getvalue(self) -> bytes:
        self.flush()
        stream = self.buffer
        assert isinstance(stream, io.BytesIO)  # made above
        return stream.getvalue()


@contextmanager
def _written() -> Iterator[tuple[_Text, _Text]]:
    out, err = _Text(), _Text()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        yield out, err
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def _logged(records: list[Any]) -> Iterator[None]:
    """Collect the log records of dperm at every level."""

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append((record.name, record.levelno, record.getMessage()))

    root, handler = logging.getLogger(), Collect(logging.NOTSET)
    logger, before = logging.getLogger("dperm"), logging.getLogger("dperm").level
    root.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(before)
        root.removeHandler(handler)
