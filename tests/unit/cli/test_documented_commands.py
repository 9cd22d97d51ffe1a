"""Run the ``dperm`` commands of the README and the pages for beginners, unchanged, on a small table."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from dperm.data.schema.schema_file import parse_schema

ROOT = Path(__file__).resolve().parents[3]
PAGES = {"README.md": 5, "docs/start.md": 6, "docs/commands.md": 15}


def blocks(page, language):
    text = (ROOT / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(page):
    """Arguments of every ``dperm`` command, without the shell's part of the line."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("dperm ")]
    return [shlex.split(line.partition(" > ")[0], comments=True)[1:] for line in lines]


def write_table(path, n, seed):
    rng = np.random.default_rng(seed)
    ages, jobs = rng.integers(18, 90, n), rng.choice(["clerk", "driver", "nurse"], n)
    ill = rng.random(n) < 1.0 / (1.0 + np.exp(-(ages - 50) / 10.0))
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["patient_id", "age", "job", "smoker", "readmitted"])
        for i in range(n):
            smoker = "yes" if rng.random() < 0.2 else "no"
            writer.writerow([f"P{i}", ages[i], jobs[i], smoker, "yes" if ill[i] else "no"])


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_one_after_the_other(dperm, home, monkeypatch, page):
    write_table(home / "people.csv", 400, 0)
    write_table(home / "new-people.csv", 50, 1)
    lines = commands(page)
    assert len(lines) == PAGES[page]  # a new line is run, and one that is not recognised fails here
    for arguments in lines:
        if arguments[:3] == ["ledger", "verify", "--head"]:
            assert arguments[3].endswith("...")
            arguments[3] = json.loads(dperm("ledger", "receipt", "model.json", "--json").out)["head"]
        monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))  # confirms the schema
        done = dperm(*arguments)
        assert done.code == 0, (arguments, done.err)
    assert {"schema.toml", "model.json", "model.html"} <= {path.name for path in home.iterdir()}


def test_the_shown_schema_is_valid():
    (text,) = blocks("docs/commands.md", "toml")
    schema = parse_schema(tomllib.loads(text))
    assert [column.kind for column in schema.columns] == ["ignore", "number", "category", "boolean"]
    assert schema.unconfirmed == []


def test_the_five_lines_of_the_readme_run(capsys):
    (code,) = blocks("README.md", "python")
    rng = np.random.default_rng(0)
    X = rng.random((300, 2))
    given = {"X": X, "y": (X[:, 0] > 0.5).astype(int), "X_new": X[:5], "low": [0, 0], "high": [1, 1]}
    exec(compile(code, "README.md", "exec"), given)
    assert "replaced by any other" in capsys.readouterr().out
