"""``dperm fit`` with blind mechanisms: model, page, terminal and ledger are the same for any table."""

from __future__ import annotations

import csv
import os
import sys
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from dperm.cli import fit as command
from dperm.cli import training
from dperm.cli.main import main
from dperm.cli.training import read_by_schema
from dperm.testing import ContractViolation
from dperm.testing.whole_path import PRIVATE, check_whole_path

SCHEMA = """
format = 1
[target]
column = "state"
kind = "classes"
classes = ["ill", "well"]
[columns.age]
kind = "number"
low = 0
high = 100
[columns.height]
kind = "number"
low = 100
high = 220
[columns.job]
kind = "category"
categories = ["clerk", "driver", "nurse"]
[columns.smoker]
kind = "boolean"
"""
N_PEOPLE = 160
FIT = ("fit", f"{PRIVATE}/people.csv", "--epsilon", "4")
BY_SCHEMA = (*FIT, "--schema", "schema.toml", "--test-fraction", "0.3", "--test-epsilon", "2")
BOUGHT = (*FIT, "--buy-bounds", "--target", "state", "--drop", "job", "--drop", "smoker", "--model", "logistic")


def people(seed):
    """Rows of age, height, job, smoker and state."""
    rng = np.random.default_rng(seed)
    age, height = rng.integers(18, 90, N_PEOPLE), rng.integers(140, 200, N_PEOPLE)
    job = rng.choice(["clerk", "driver", "nurse", ""], N_PEOPLE)
    smoker, ill = rng.choice(["yes", "no"], N_PEOPLE), rng.random(N_PEOPLE) < 1 / (1 + np.exp(-(age - 50) / 8))
    columns = (age, height, job, smoker, np.where(ill, "ill", "well"))
    return list(zip(*(one.tolist() for one in columns), strict=True))


def strange():
    """Return a table with a constant column, no job that is known and hardly an ill person."""
    return [(k * 1000, 170, "" if k % 3 else "pilot", "no", "ill" if k == 5 else "well") for k in range(N_PEOPLE)]


TABLES = {"usual": people(0), "neighbour": [*people(0)[:-1], (10**6, 100, "nurse", "yes", "ill")], "strange": strange()}


@contextmanager
def inside(folder, arguments):
    before, argv = os.getcwd(), sys.argv
    os.chdir(folder)
    sys.argv = ["dperm", *arguments]
    try:
        yield
    finally:
        os.chdir(before)
        sys.argv = argv


def running(*arguments, known=None):
    """Return a run of the command on a table in a file; all that it prints and writes is compared.

    With ``known`` the ledger has seen that table by another name before.
    """

    def run(table, folder):
        (folder / "schema.toml").write_text(SCHEMA)
        if known is not None:
            write_table(folder / PRIVATE / "earlier.csv", known)
            earlier = (arguments[0], f"{PRIVATE}/earlier.csv", *arguments[2:], "--out", f"{PRIVATE}/earlier.json")
            with inside(folder, earlier), pytest.raises(SystemExit):
                main()
        write_table(folder / PRIVATE / "people.csv", table)
        with inside(folder, arguments), pytest.raises(SystemExit) as ended:
            main()
        assert (folder / "model.json").exists()
        assert (folder / "model.html").exists()
        return ended.value.code

    return run


def write_table(path, table):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([("age", "height", "job", "smoker", "state"), *table])


@pytest.mark.parametrize(
    "arguments",
    [BY_SCHEMA, (*BY_SCHEMA, "--json"), pytest.param(BOUGHT, marks=pytest.mark.long)],
    ids=["schema", "json", "bought"],
)
def test_fit_writes_and_says_nothing_but_releases(arguments):
    check_whole_path(running(*arguments), TABLES)


def test_a_table_that_the_ledger_knows_by_another_name_writes_and_prints_the_same():
    # standard error and the ledger are for the owner, who is told
    run = running(*BY_SCHEMA, known=TABLES["usual"])
    check_whole_path(run, TABLES, owner_only=("ledgers", "standard error"), levels=("steady",))


def test_a_score_that_is_not_paid_for_is_shown_to_the_owner_only():
    not_paid = (*FIT, "--schema", "schema.toml", "--test-fraction", "0.3")
    with pytest.raises(ContractViolation, match="standard output"):
        check_whole_path(running(*not_paid), TABLES)
    check_whole_path(running(*not_paid), TABLES, owner_only=("standard output",), levels=("mixed",))


def test_an_encoding_that_depends_on_values_is_caught(monkeypatch):
    def by_values(*arguments):
        found = read_by_schema(*arguments)
        jobs = [k for k, name in enumerate(found.names) if name.startswith("job=")]
        names = np.array(found.names)
        if found.X[:, jobs].any():
            names[jobs] = names[jobs][::-1]
        return replace(found, names=names.tolist())

    monkeypatch.setattr("dperm.cli.training.read_by_schema", by_values)
    with pytest.raises(ContractViolation, match=r"files\['model"):
        check_whole_path(running(*BY_SCHEMA), TABLES)


def test_a_note_about_private_values_is_caught(monkeypatch):
    honest = command._note_warnings

    def note(prepared, training, output):
        honest(prepared, training, output)
        if (training.y == "ill").mean() < 0.1:
            output.note("note: hardly anybody is ill.")

    monkeypatch.setattr(command, "_note_warnings", note)
    with pytest.raises(ContractViolation, match="standard error"):
        check_whole_path(running(*BY_SCHEMA), TABLES)


@pytest.mark.long
def test_a_constant_column_that_is_dropped_is_caught(monkeypatch):
    honest = training.read_to_buy_bounds

    def dropping(*given):
        found = honest(*given)
        kept = np.flatnonzero(np.ptp(found.X, axis=0) > 0.0)
        return replace(found, X=found.X[:, kept], names=[found.names[k] for k in kept], n_columns=len(kept))

    monkeypatch.setattr(training, "read_to_buy_bounds", dropping)
    with pytest.raises(ContractViolation, match="standard output"):
        check_whole_path(running(*BOUGHT), TABLES)
