"""The check itself: what it compares, what it leaves out, and what it says."""

from __future__ import annotations

import logging
import os
import sys
import uuid
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pytest

from dperm import Ledger
from dperm.estimators.progress import current_progress
from dperm.privacy.accounting.events import Gaussian
from dperm.privacy.ledger.contents import LedgerContents
from dperm.testing import ContractViolation
from dperm.testing.whole_path import PRIVATE, check_whole_path
from dperm.testing.whole_path.forms import differences, leaves_of

TABLES = {"one": 0.1234, "two": 0.9876}


@dataclass
class Holds:
    value: object


def write(path, secret):
    path.parent.mkdir()
    path.write_text(f"{secret}")


LEAKS = {
    "result": lambda secret, folder: secret,
    r"result\['a'\]\[1\]": lambda secret, folder: {"a": [1, secret]},
    r"result keys": lambda secret, folder: {"a": 1, "b": 2} if secret < 0.5 else {"b": 2, "a": 1},
    r"result\.value": lambda secret, folder: Holds(np.array([secret])),
    r"result\.value\b": lambda secret, folder: Holds(np.zeros(1, "f4" if secret < 0.5 else "f8")),
    "standard output": lambda secret, folder: print(secret),
    "standard error": lambda secret, folder: print(secret, file=sys.stderr),
    r"warnings\[0\]\[1\]": lambda secret, folder: warnings.warn(f"{secret}", UserWarning, stacklevel=1),
    "log records": lambda secret, folder: logging.getLogger("dperm.fit").debug("%s", secret),
    r"files\['a/b.txt'\]": lambda secret, folder: [
        (folder / "a").mkdir(),
        (folder / "a/b.txt").write_text(f"{secret}"),
    ],
    r"files\['page.db.txt'\]": lambda secret, folder: (folder / "page.db.txt").write_text(f"{secret}"),
    "progress": lambda secret, folder: current_progress.get()(round(100 * secret), 100),
    r"ledgers\['l.db'\]": lambda secret, folder: charge(Ledger(folder / "l.db"), f"mean {secret}"),
}


def charge(ledger, purpose):
    ledger.reserve(Gaussian(1.0), "replace-one", purpose)


@pytest.mark.parametrize("where", LEAKS)
def test_every_way_out_is_watched(where):
    with pytest.raises(ContractViolation, match=where) as found:
        check_whole_path(LEAKS[where], TABLES)
    assert not any(str(value) in str(found.value) for value in TABLES.values())  # it says where, not what


def test_an_error_on_one_table_is_a_difference():
    def run(secret, folder):
        if secret > 0.5:
            raise ValueError(f"{secret} is too large.")

    with pytest.raises(ContractViolation, match="on the table 'two' was refused"):
        check_whole_path(run, TABLES)


def test_what_differs_by_design_is_left_out():
    def run(secret, folder):
        (folder / PRIVATE / "table.txt").write_text(f"{secret}")
        made = uuid.uuid4()
        return made.hex, str(made), datetime.now(UTC).isoformat(), Ledger(folder / "l.db").head

    check_whole_path(run, TABLES)


def test_an_id_that_is_made_from_the_data_is_not_left_out():
    def run(secret, folder):
        return uuid.uuid5(uuid.NAMESPACE_DNS, f"{secret}").hex

    with pytest.raises(ContractViolation, match="result"):
        check_whole_path(run, TABLES)


def test_a_run_that_cannot_be_repeated_is_refused():
    with pytest.raises(ContractViolation, match="on the same table twice"):
        check_whole_path(lambda secret, folder: os.urandom(8), TABLES)


def test_one_table_is_not_enough():
    with pytest.raises(ContractViolation, match="two tables"):
        check_whole_path(lambda secret, folder: None, {"one": 1})


def test_leaves_tell_types_signs_and_cycles_apart():
    loop = [1]
    loop.append(loop)
    things = [0, 0.0, -0.0, False, None, "0", b"0", np.float64(0), np.float32(0), np.zeros(1), np.zeros((1, 1)), loop]
    things += [np.array([0, "a"], object), np.array([0, "b"], object), {1}, (1,), [1], Holds(1), Holds(2), print]
    found = [str(sorted(leaves_of(thing, "x").items())) for thing in things]
    assert len(set(found)) == len(found)
    assert differences(leaves_of({"a": 1, "b": 2}, "x"), leaves_of({"a": 1, "b": 3}, "x")) == ["x['b']"]


def test_a_check_leaves_the_ledger_class_as_it_was():
    before = vars(LedgerContents)["head"]

    def run(secret, folder):
        return Ledger(folder / "ledger.db", dataset="people").head  # a random hash, which is left out

    check_whole_path(run, TABLES)
    assert vars(LedgerContents)["head"] is before
    assert "head" not in vars(Ledger)
