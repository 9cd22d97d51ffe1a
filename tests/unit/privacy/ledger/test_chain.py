"""Edits, rollbacks and reorderings of rows are detected."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from dperm.errors import InvalidInput, LedgerTampered, LedgerUnreadable
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.events import Gaussian
from dperm.privacy.ledger import Ledger, ReleaseRecord, chain


def edit(address: str, *statements: str) -> None:
    """Change rows behind the ledger's back."""
    if address.startswith("postgresql"):
        with psycopg.connect(address) as server:
            for statement in statements:
                server.execute(statement)
        return
    with closing(sqlite3.connect(address)) as file, file:
        for statement in statements:
            file.execute(statement)


def filled(address: str) -> Ledger:
    ledger = Ledger(address, dataset="patients")
    ledger.set_cap(Budget(2.0, 1e-6))
    for _ in range(3):
        ledger.reserve(Gaussian(50.0), "replace-one").settle([ReleaseRecord("g", Gaussian(50.0))])
    return ledger


EDITS = {
    "payload": ["UPDATE dperm_ledger SET payload = replace(payload, '50.0', '90.0') WHERE seq = 3"],
    "newest payload": ["UPDATE dperm_ledger SET payload = replace(payload, 'settle', 'sattle') WHERE seq = 11"],
    "hash": ["UPDATE dperm_ledger SET hash = previous WHERE seq = 4"],
    "a row removed": ["DELETE FROM dperm_ledger WHERE seq = 5"],
    "the first row removed": ["DELETE FROM dperm_ledger WHERE seq = 1"],
    "all rows removed": ["DELETE FROM dperm_ledger"],
    "reordered": [
        "UPDATE dperm_ledger SET seq = 100 WHERE seq = 4",
        "UPDATE dperm_ledger SET seq = 4 WHERE seq = 7",
        "UPDATE dperm_ledger SET seq = 7 WHERE seq = 100",
    ],
}


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_is_detected(kind: str, address: str) -> None:
    ledger = filled(address)
    head = ledger.head
    assert ledger.verify(head) == head
    edit(address, *EDITS[kind])
    with pytest.raises(LedgerTampered):
        Ledger(address)
    with pytest.raises(LedgerTampered):
        ledger.verify()


def test_a_rollback_is_detected_by_the_printed_head(address: str) -> None:
    ledger = filled(address)
    head = ledger.head
    edit(address, "DELETE FROM dperm_ledger WHERE seq > 8")
    again = Ledger(address)  # what is left is a chain of its own
    again.verify()
    with pytest.raises(LedgerTampered, match="rolled back"):
        again.verify(head)
    with pytest.raises(LedgerTampered, match="rolled back"):  # a process that saw the rows refuses to go on
        ledger.reserve(Gaussian(50.0), "replace-one")
    for wrong in ("head", "g" * 64, head[:-1], head + "0"):
        with pytest.raises(InvalidInput, match="64 hexadecimal"):
            again.verify(wrong)


def test_an_old_head_stays_in_the_chain(address: str) -> None:
    ledger = filled(address)
    head = ledger.head
    ledger.reserve(Gaussian(50.0), "replace-one")
    assert ledger.verify(head.upper()) == ledger.head != head


def test_a_forged_chain_does_not_contain_the_head(tmp_path: Path) -> None:
    ledger = filled(str(tmp_path / "a.db"))
    forged = filled(str(tmp_path / "b.db"))
    with pytest.raises(LedgerTampered, match="another ledger"):
        forged.verify(ledger.head)


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ({"kind": "cap", "dataset": "patients"}, LedgerTampered),
        ({"kind": "settle", "dataset": "patients", "reservation": "x"}, LedgerTampered),
        ({"kind": "created"}, LedgerTampered),
        ({"kind": "from the future"}, LedgerUnreadable),
    ],
)
def test_rows_that_do_not_follow_from_earlier_ones_are_refused(
    payload: dict[str, str], error: type[Exception], tmp_path: Path
) -> None:
    path = tmp_path / "budget.db"
    filled(str(path))
    with closing(sqlite3.connect(path)) as file, file:
        newest = chain.Row(*file.execute("SELECT * FROM dperm_ledger ORDER BY seq DESC LIMIT 1").fetchone())
        (row,) = chain.link(newest, [payload])
        file.execute("INSERT INTO dperm_ledger VALUES (?, ?, ?, ?)", (row.seq, row.previous, row.payload, row.digest))
    with pytest.raises(error):
        Ledger(path)


def test_floats_survive_and_nan_does_not() -> None:
    value = 0.1 + 0.2
    assert json.loads(chain.canonical({"x": value}))["x"] == value
    with pytest.raises(ValueError):
        chain.canonical({"x": float("nan")})
    with pytest.raises(LedgerTampered):
        chain.Row(1, "", "[]", "").data()
