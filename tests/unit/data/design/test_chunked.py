"""A design in blocks, on disk or on workers, is the design in memory, bit for bit."""

from __future__ import annotations

import inspect
import os
import tempfile

import numpy as np
import pytest

from dperm.data.design import chunked as chunked_design
from dperm.data.design.chunked import ChunkedDesign, ScratchFile
from dperm.data.design.matrix import DesignMatrix, Scaling, Shape, build_design
from dperm.data.holding.table_data import TableData
from dperm.data.tables import row_source as chunked
from dperm.data.tables.row_source import ArrayRows, row_source, rows_per_block
from dperm.errors import InvalidData, InvalidInput
from dperm.objective import Logistic, Squared

N, P = 1000, 5
SCALINGS = [
    Scaling(np.zeros(P), np.ones(P), 1.0),
    Scaling(np.array([0.5, -1.0, 0.0, 3.0, 0.2]), np.array([1.0, 2.0, 0.0, 1.5, 0.7]), 0.8),
    Scaling(np.zeros(P), np.full(P, 0.3), 2.0, row_norm=0.9),
]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks of 256 rows: 1000 rows make four, the last one shorter."""
    monkeypatch.setattr(chunked, "BLOCK_BYTES", 8 * P * 256)


def table(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.0, 1.5, (N, P))
    X[rng.random(X.shape) > 0.6] = 0.0
    return X


def mapped(X, folder):
    path = folder / "x.npy"
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def both(X, folder, scaling=SCALINGS[0], intercept=1.0):
    rows = row_source(mapped(X, folder))
    return DesignMatrix.from_array(X, scaling, intercept), build_design(rows, scaling, intercept)


def arguments(d, intercept):
    """Arguments for every operation of a design; None as the only one means none."""
    rng = np.random.default_rng(1)

    def whole(*shape):
        return rng.integers(-1000, 1000, shape).astype(float)

    scores, target = whole(N), rng.random(N)
    return {
        "scores": [(whole(d),), (whole(d, 3),), (whole(2), [0, 3]), (whole(1), [d - 1])],
        "sums": [(whole(N),), (whole(N, 3),), (whole(N), [4, 0]), (whole(N), [d - 1])],
        "squared_norms": [(), ([1, 2],), ([d - 1],)],
        "norms": [(), ([0],)],
        "clipped_sums": [(whole(N), np.full(d, 2000.0))],
        "dense_column": [(0,), (P - 1,), *([(P,)] if intercept else [])],
        "column_sum": [
            (j, 5e4, scores, 2.0**-10, target, loss, 2.0**-12)
            for j in (0, d - 1)
            for loss in (Logistic(), Squared(1.0))
        ],
        "mapped_lengths": [(whole(d, 2),), (whole(d),)],
        "second_moments": [(rng.random(N), 2.0**-10, 2.0**-6), (rng.random(N), 2.0**-10, 2.0**-2, whole(d))],
    }


@pytest.mark.parametrize("scaling", SCALINGS, ids=["plain", "centred", "row norm"])
@pytest.mark.parametrize("intercept", [0.0, 1.0])
def test_every_operation_is_that_of_the_matrix_in_memory(scaling, intercept, tmp_path):
    one, other = both(table(), tmp_path, scaling, intercept)
    assert isinstance(other, ChunkedDesign)
    assert len(other._blocks.parts) == 4
    assert (other.n_rows, other.shape, other.dense) == (N, one.shape, True)
    assert other.compressed_columns is None
    for name, cases in arguments(one.d, intercept).items():
        for case in cases:
            assert np.array_equal(getattr(one, name)(*case), getattr(other, name)(*case)), name
    blocks = [np.concatenate([block for _, block in design.row_chunks()]) for design in (one, other)]
    assert np.array_equal(*blocks)
    parts = [part for part, _ in other.row_chunks()]
    assert [part.start for part in parts] == [0, 256, 512, 768]
    for column in (0, one.d - 1):
        added = [np.arange(float(N)), np.arange(float(N))]
        for design, scores in zip((one, other), added, strict=True):
            design.add_column(column, 3.0, scores)
        assert np.array_equal(*added)
    for rows in (np.array([0, 3, 255, 256, 999]), np.array([999, 0, 512, 0]), np.zeros(0, np.intp)):
        assert np.array_equal(one.take(rows).scores(np.ones(one.d)), other.take(rows).scores(np.ones(one.d)))
    assert np.array_equal(one.without_row(300).sums(np.ones(N - 1)), other.without_row(300).sums(np.ones(N - 1)))


def test_every_operation_of_the_matrix_is_overridden():
    """A design in blocks holds no matrix, so it must answer every operation itself."""
    public = {name for name, _ in inspect.getmembers(DesignMatrix, inspect.isfunction) if not name.startswith("_")}
    in_terms_of_others = {"norms", "without_row"}
    assert public - in_terms_of_others <= set(vars(ChunkedDesign))


def test_a_planted_bug_is_found(tmp_path, monkeypatch):
    """A block that is read at a wrong place gives other sums."""
    one, other = both(table(), tmp_path)
    other._blocks._offsets[1] = other._blocks._offsets[0]
    assert not np.array_equal(one.sums(np.ones(N)), other.sums(np.ones(N)))


@pytest.mark.parametrize(("n", "kind"), [(1000, np.int32), (10**7, np.int16)])
def test_few_bytes_are_stored(n, kind):
    shape = Shape.of(n, P, 1.0, None, 1.0)
    assert np.iinfo(kind).max >= shape.top
    assert chunked_design._stored_type(shape) == kind


def test_the_file_has_no_name_and_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    _, other = both(table(), tmp_path)
    if os.name == "posix":
        assert list((tmp_path / "scratch").iterdir()) == []
    del other
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_full_disk_is_reported(tmp_path, monkeypatch):
    shape = Shape.of(N, P, 1.0, None, 1.0)
    monkeypatch.setattr(chunked_design.shutil, "disk_usage", lambda where: type("Usage", (), {"free": 10})())
    with pytest.raises(InvalidInput, match=r"do not fit on the disk of .* set TMPDIR"):
        ScratchFile(shape)
    monkeypatch.undo()
    if not os.path.exists("/dev/full"):
        return
    scratch = ScratchFile(shape)
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(scratch, "_file", full)
        monkeypatch.setattr(scratch, "_end", lambda: 0)
        with pytest.raises(InvalidInput, match="set TMPDIR"):
            scratch.append(DesignMatrix.from_array(table(), SCALINGS[0], shape=shape))


# ------------------------------------------------------------------------------------------ sources of rows
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
        lambda: build_design(source, SCALINGS[0]),
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
