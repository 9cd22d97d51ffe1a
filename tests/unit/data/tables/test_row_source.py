"""Tables that are read in blocks of rows."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.data.design.scaling import Scaling
from dperm.data.executors.placing import place
from dperm.data.holding.table_data import TableData
from dperm.data.tables import row_source as row_sources
from dperm.data.tables.parquet import ParquetTable
from dperm.data.tables.row_source import ArrayRows, row_source, rows_per_block
from dperm.errors import InvalidData, InvalidInput

N, P = 1000, 5


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks of 256 rows: 1000 rows make four, the last one shorter."""
    monkeypatch.setattr(row_sources, "BLOCK_BYTES", 8 * P * 256)


def table(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.0, 1.5, (N, P))
    X[rng.random(X.shape) > 0.6] = 0.0
    return X


def mapped(X, folder):
    path = folder / "x.npy"
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def test_arrays_on_disk(tmp_path):
    X = table()
    for kind in (np.float64, np.float32, np.int8, bool):
        made = mapped(X.astype(kind), tmp_path)
        source = row_source(made)
        assert isinstance(source, ArrayRows)
        assert source.shape == (N, P)
        assert (source.boolean is not None) == (kind is bool)
        assert np.array_equal(np.concatenate(list(source.blocks())), X.astype(kind).astype(float))
        assert max(len(block) for block in source.blocks()) == 256
        assert row_source(source) is source
    for other in (X, X.tolist(), None, mapped(X[:, 0], tmp_path), mapped(X.astype(str), tmp_path)):
        assert row_source(other) is None


def test_rows_that_are_not_finite_are_refused_wherever_they_are_read(tmp_path):
    X = table()
    X[700, 3] = np.nan
    source = row_source(mapped(X, tmp_path))
    for read in (
        source.check,
        lambda: place(source, np.zeros(N), Scaling(np.zeros(P), np.ones(P), 1.0)),
        lambda: TableData(source).ranks(0, np.arange(2.0)),
    ):
        with pytest.raises(InvalidData, match="NaN or infinite values in column 3:") as raised:
            read()
        assert "700" not in str(raised.value)


def test_a_file_that_changes_is_refused(tmp_path):
    source = row_source(mapped(table(), tmp_path))
    source.shape = (N + 1, P)
    with pytest.raises(InvalidData, match="X changed while it was read"):
        source.check()


def test_blocks_of_any_width():
    assert rows_per_block(0) >= 256
    for width in (1, 7, 100, 10**5):
        rows = rows_per_block(width)
        assert rows >= 256
        assert rows & (rows - 1) == 0


def test_ranks_are_counted_in_one_pass(tmp_path):
    X, grid = table(), np.array([-2.0, -1.0, 0.0, 0.5, 3.0])
    source = row_source(mapped(X, tmp_path))
    passes = []
    whole = source.blocks
    source.blocks = lambda: passes.append(1) or whole()
    streamed, plain = TableData(source), TableData(X)
    for column in range(P):
        for strict in (False, True):
            assert np.array_equal(streamed.ranks(column, grid, strict=strict), plain.ranks(column, grid, strict=strict))
    assert len(passes) == 1
    assert streamed.facts == plain.facts
    streamed.ranks(0, grid[:3])
    assert len(passes) == 2


@pytest.mark.parametrize("name", ["more.csv", "part"])
def test_a_folder_with_anything_else_is_refused(name, tmp_path):
    """Leaving a file out would leave people out; notes of other programs are not people."""
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    for file in ("a.parquet", "b.pq"):
        parquet.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / file)
    (tmp_path / "_SUCCESS").touch()
    assert ParquetTable(tmp_path).shape == (4, 1)
    (tmp_path / name).mkdir() if name == "part" else (tmp_path / name).touch()
    with pytest.raises(InvalidInput, match=f"holds '{name}', which is no Parquet file and would be left out"):
        ParquetTable(tmp_path)
