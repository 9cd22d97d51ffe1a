"""A small table of people, a ledger of its own for every test, and the command in this process."""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from dperm.cli.main import main


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder to work in, and a ledger that no other test sees."""
    monkeypatch.setenv("DPERM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DPERM_DEBUG", raising=False)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def dperm(home, monkeypatch, capsys):
    """Run the command as ``dperm(...)``; what it says is plain text, as when it is piped."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dperm", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(ended.value.code or 0, said.out, said.err)

    return run


def write_people(path, n=300, seed=0):
    rng = np.random.default_rng(seed)
    age, visits = rng.integers(18, 90, n), rng.poisson(2, n)
    job, smoker = rng.choice(["clerk", "driver", "nurse"], n), rng.choice(["yes", "no"], n)
    ill = np.where(rng.random(n) < 1 / (1 + np.exp(-(age - 50) / 8 - (smoker == "yes"))), "ill", "well")
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["patient_id", "age", "visits", "job", "smoker", "born", "cost", "state"])
        for i in range(n):
            born = f"19{int(rng.integers(10, 99))}-01-02"
            blank = "" if i % 20 == 0 else job[i]
            writer.writerow([f"P{i}", age[i], visits[i], blank, smoker[i], born, round(40.0 * age[i], 2), ill[i]])
    return path


SCHEMA = """
format = 1
[target]
column = "state"
kind = "classes"
classes = ["ill", "well"]
[columns.patient_id]
kind = "ignore"
[columns.born]
kind = "ignore"
[columns.cost]
kind = "ignore"
[columns.age]
kind = "number"
low = 0
high = 100
[columns.visits]
kind = "number"
low = 0
high = 10
missing = "refuse"
[columns.job]
kind = "category"
categories = ["clerk", "driver", "nurse"]
[columns.smoker]
kind = "boolean"
"""


@pytest.fixture
def people(home):
    """``people.csv`` and a confirmed ``schema.toml``."""
    (home / "schema.toml").write_text(SCHEMA)
    return write_people(home / "people.csv")
