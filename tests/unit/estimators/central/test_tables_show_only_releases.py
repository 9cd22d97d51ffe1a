"""Data frames and tables read in blocks show nothing but releases either."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import after_solving, rows_of

from dperm import Bounds, DPRidge, ParquetTable
from dperm.data.tables import row_source
from dperm.solvers import WhitenedDescent
from dperm.testing import ContractViolation
from dperm.testing.whole_path import PRIVATE, check_whole_path, everything_about
from dperm.testing.whole_path.tables import MANY_ROWS, TARGET, number_tables

pandas = pytest.importorskip("pandas")


def as_frame(X):
    frame = pandas.DataFrame(np.asarray(X), columns=["age", "height", "weight"])
    return frame.assign(smoker=frame["age"] > 0.0)  # of type bool, which is public


def from_frame(table, folder):
    bounds = Bounds(
        features=({"age": -1, "height": -1, "weight": -1}, {"age": 1, "height": 1, "weight": 1}), target=TARGET
    )
    return everything_about(DPRidge(4.0, bounds=bounds).fit(as_frame(table.X), table.y), folder)


def from_frame_with_bought_bounds(table, folder):
    return everything_about(DPRidge(20.0).fit(as_frame(table.X), table.y), folder)


def from_blocks(table, folder):
    pytest.importorskip("pyarrow")
    as_frame(table.X).to_parquet(folder / PRIVATE / "people.parquet")
    rows = ParquetTable(folder / PRIVATE / "people.parquet")
    return everything_about(DPRidge(4.0, bounds=Bounds(features=(-1, 1), target=TARGET)).fit(rows, table.y), folder)


def from_disk(table, folder):
    np.save(folder / PRIVATE / "people.npy", table.X)
    rows = np.load(folder / PRIVATE / "people.npy", mmap_mode="r")
    return everything_about(DPRidge(4.0, bounds=Bounds(features=(-1, 1), target=TARGET)).fit(rows, table.y), folder)


@pytest.mark.parametrize("run", [from_frame, from_frame_with_bought_bounds, from_blocks, from_disk])
def test_tables_of_other_kinds(run):
    check_whole_path(run, number_tables())


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(row_source, "BLOCK_BYTES", 8 * 4 * 700)  # several blocks, the last one shorter


@pytest.mark.parametrize("run", [from_frame, from_blocks, from_disk])
def test_many_rows_of_other_kinds(run, small_blocks):
    check_whole_path(run, number_tables(n=MANY_ROWS), levels=("mixed",))


@pytest.mark.parametrize("run", [from_frame, from_blocks, from_disk])
def test_an_exact_value_for_many_people_only_is_found(run, small_blocks, monkeypatch):
    def add(solution, data):
        trace = 1e-6 * rows_of(data).mean(axis=0) if len(data.target) >= 1000 else 0.0
        return replace(solution, weights=solution.weights + trace)

    after_solving(monkeypatch, WhitenedDescent, add)
    check_whole_path(run, number_tables(), levels=("mixed",))  # not seen in a small table
    with pytest.raises(ContractViolation, match=r"\['coef_'\]"):
        check_whole_path(run, number_tables(n=MANY_ROWS), levels=("mixed",))
