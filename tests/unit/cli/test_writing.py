"""No command writes over what it reads, over a ledger or its key; over other files only with --force."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dperm import Ledger

FIT = ("fit", "people.csv", "--epsilon", "1", "--schema", "schema.toml")


def contents(*folders):
    return {path: path.read_bytes() for folder in folders for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def books(dperm, people, home):
    """A model, a ledger with its key, and a link to the table."""
    assert dperm(*FIT).code == 0
    os.symlink("people.csv", home / "link.json")
    return Path(Ledger.default_path()).parent


def spent(dperm):
    return json.loads(dperm("ledger", "list", "--json").out)["datasets"][0]["n_fits"]


@pytest.mark.parametrize(
    "out", ["model.html", "people.csv", "schema.toml", "link.json", "LEDGER", "KEY", "LEDGER-journal", "people.html"]
)
def test_a_fit_never_writes_over_its_page_its_inputs_or_the_ledger(dperm, home, books, out):
    out = out.replace("LEDGER", str(books / "ledger.db")).replace("KEY", str(books / "fingerprint.key"))
    if out == "people.html":  # the page of the model would replace the table
        os.rename("people.csv", "people.html.csv")
        os.symlink("people.html", "people.csv")
        os.rename("people.html.csv", "people.html")
        out = "people.json"
    before, fits = contents(home, books), spent(dperm)
    done = dperm(*FIT, "--out", out, "--force")
    assert done.code == 2, done.err
    assert spent(dperm) == fits
    assert contents(home, books) == before


@pytest.mark.parametrize("address", ["own.json", "own.html", "sqlite:///own.json"])
def test_a_fit_does_not_write_over_the_ledger_that_it_is_about_to_make(dperm, people, home, address):
    done = dperm(*FIT, "--out", "own.json", "--ledger", address, "--force")
    assert done.code == 2
    assert "belongs to a ledger" in done.err
    assert {path.name for path in home.iterdir()} == {"people.csv", "schema.toml"}


COMMANDS = {
    "predict": (("predict", "model.json", "people.csv"), ["model.json", "people.csv", "link.json"]),
    "report": (("report", "model.json"), ["model.json"]),
    "export": (("ledger", "export"), []),
    "schema": (("schema", "people.csv", "--target", "state"), ["people.csv", "link.json"]),
    "plan": (("plan", "--rows", "900", "--columns", "3", "--epsilon", "1"), []),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_needed_is_written_over_even_by_force(dperm, home, books, name):
    arguments, inputs = COMMANDS[name]
    before = contents(home, books)
    for out in [*inputs, books / "ledger.db", books / "fingerprint.key"]:
        done = dperm(*arguments, "--out", out, "--force")
        assert done.code == 2, (out, done.err)
    assert contents(home, books) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_an_existing_file_needs_force(dperm, home, books, name):
    arguments, _ = COMMANDS[name]
    out = home / ("taken.svg" if name == "plan" else "taken.json")
    out.write_text("somebody's work")
    refused = dperm(*arguments, "--out", out)
    assert refused.code == 2
    assert "exists: choose another --out, or --force" in refused.err
    assert out.read_text() == "somebody's work"
    assert dperm(*arguments, "--out", home).code == 2
    assert dperm(*arguments, "--out", out, "--force").code == 0
    assert out.read_text() != "somebody's work"


def test_an_export_of_a_given_ledger_does_not_replace_it(dperm, home, books):
    dperm("ledger", "cap", "people", "--epsilon", "1", "--yes", "--ledger", "own.db")
    before = Path("own.db").read_bytes()
    done = dperm("ledger", "export", "--ledger", "own.db", "--out", "own.db", "--force")
    assert (done.code, "belongs to a ledger" in done.err) == (2, True)
    assert Path("own.db").read_bytes() == before
