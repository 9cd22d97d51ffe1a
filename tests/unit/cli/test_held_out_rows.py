"""`dperm fit --test-fraction`, repeated on neighbouring tables: one person never changes which rows are held out."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

import dperm
from dperm.cli import training
from dperm.cli.main import main
from dperm.testing import ContractViolation, check_recorded

pytest.importorskip("dp_accounting")

SCHEMA = """
format = 1
[target]
column = "state"
kind = "classes"
classes = ["0", "1"]
[columns.age]
kind = "number"
low = -1
high = 1
"""
N_PEOPLE = 60


@pytest.fixture
def fit(tmp_path, monkeypatch, capsys):
    """Fit with the command on a table of one column; returns the saved model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPERM_HOME", str(tmp_path / "home"))

    def run(X, y):
        (tmp_path / "schema.toml").write_text(SCHEMA)
        lines = [f"{value!r},{label}" for value, label in zip(X[:, 0].tolist(), y.astype(int).tolist(), strict=True)]
        (tmp_path / "people.csv").write_text("\n".join(["age,state", *lines]) + "\n")
        words = ["fit", "people.csv", "--epsilon", "4", "--schema", "schema.toml", "--test-fraction", "0.3", "--force"]
        monkeypatch.setattr(sys, "argv", ["dperm", *words, "--ledger", f"{len(os.listdir())}.db"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0, capsys.readouterr().err
        return dperm.load(tmp_path / "model.json")

    return run


def people():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (N_PEOPLE, 1))
    return X, X[:, 0] + 0.3 * rng.normal(size=N_PEOPLE) > 0.0


def test_one_person_changes_one_row_of_the_fit(fit):
    found = check_recorded(fit, *people(), n_starts=1, n_climbs=0, seed=1, check_noise=False)
    assert max(found.reached.values()) > 0.5  # the person is in the fit


def test_rows_that_are_held_out_by_label_are_caught(fit, monkeypatch):
    honest, labels = training.held_out, []
    read = training.read_by_schema

    def reading(*given):
        found = read(*given)
        labels[:] = [found.y]
        return found

    def by_label(n, fraction):
        spread = np.empty(n, bool)
        spread[np.argsort(labels[0], kind="stable")] = honest(n, fraction)
        return spread

    monkeypatch.setattr(training, "read_by_schema", reading)
    monkeypatch.setattr(training, "held_out", by_label)
    with pytest.raises(ContractViolation, match="sensitivity"):
        check_recorded(fit, *people(), n_starts=2, n_climbs=0, check_noise=False)
