"""Rows in a temporary file, or read again for every query, have the bits of rows in memory."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import pytest

from dperm.data.design.scaling import Scaling, Shape
from dperm.data.design.weights import BoxedWeights
from dperm.data.executors import files
from dperm.data.executors.executor import PlacedData
from dperm.data.executors.files import FileExecutor, RereadExecutor, file_executor, has_room
from dperm.data.tables import row_source as row_sources
from dperm.data.tables.row_source import ArrayRows
from dperm.errors import InvalidData
from dperm.objective import Logistic
from dperm.queries import FirstMoment, GradientCoordinate
from dperm.testing._violation import ContractViolation
from dperm.testing.executors import check_executor

P = 5
PLAIN = Scaling(np.zeros(P), np.ones(P), 1.0)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks of 256 rows, so that a few hundred rows make several."""
    monkeypatch.setattr(row_sources, "BLOCK_BYTES", 8 * P * 256)


def table(n=1000):
    return np.random.default_rng(0).normal(0.0, 1.5, (n, P))


def shape_of(scaling, n, height):
    return Shape.of(n, P, scaling.clip, scaling.row_norm, height, scaling.spread)


@pytest.mark.parametrize(
    "threads", ["2", pytest.param("1", marks=pytest.mark.long), pytest.param("3", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("kind", [FileExecutor, RereadExecutor])
def test_every_query_has_the_bits_of_one_block(kind, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    compared = check_executor(lambda X, y, scaling, h: kind(ArrayRows(X), y, scaling, shape_of(scaling, len(X), h)))
    assert compared > 200


def test_planted_bugs_are_found(monkeypatch):
    class LosesABlock(FileExecutor):
        def parts(self, work, view):
            self._blocks = self._blocks[:1]
            return super().parts(work, view)

    class GivesPeopleAway(FileExecutor):
        def parts(self, work, view):
            for block in self._blocks:
                yield np.resize(block.part(work, view), block.n_rows)

    def placed_by(kind):
        return lambda X, y, scaling, h: kind(ArrayRows(X), y, scaling, shape_of(scaling, len(X), h))

    with pytest.raises(ContractViolation, match="another value on the executor"):
        check_executor(placed_by(LosesABlock))
    with pytest.raises(ContractViolation, match=r"different shapes|another value|another size"):
        check_executor(placed_by(GivesPeopleAway))


@pytest.mark.parametrize(("n", "kind"), [(1000, np.int32), (10**7, np.int16)])
def test_few_bytes_are_stored(n, kind):
    shape = Shape.of(n, P, 1.0, None, 1.0)
    assert np.iinfo(kind).max >= shape.top
    assert files._stored_type(shape) == kind


def test_the_file_has_no_name_and_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    executor = file_executor(ArrayRows(table()), np.zeros(1000), PLAIN)
    if os.name == "posix":
        assert list(tmp_path.iterdir()) == []
    del executor
    assert list(tmp_path.iterdir()) == []


def test_without_room_on_the_disk_the_source_is_read_again(monkeypatch):
    monkeypatch.setattr(files.shutil, "disk_usage", lambda where: type("Usage", (), {"free": 10})())
    assert not has_room(shape_of(PLAIN, 1000, 1.0))
    executor = file_executor(ArrayRows(table()), np.zeros(1000), PLAIN, 1.0)
    assert isinstance(executor, RereadExecutor)
    read_again = FirstMoment().evaluate(PlacedData(executor))
    monkeypatch.undo()
    other = file_executor(ArrayRows(table()), np.zeros(1000), PLAIN, 1.0)
    assert isinstance(other, FileExecutor)
    assert np.array_equal(FirstMoment().evaluate(PlacedData(other)), read_again)


def test_on_a_disk_that_fills_up_the_source_is_read_again(monkeypatch):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no device that is always full")
    full = lambda **_: open("/dev/full", "wb", buffering=0)  # noqa: E731, SIM115
    monkeypatch.setattr(files.tempfile, "TemporaryFile", full)
    executor = file_executor(ArrayRows(table()), np.zeros(1000), PLAIN, 1.0)
    assert isinstance(executor, RereadExecutor)


@pytest.mark.parametrize("room", [True, False])
def test_progress_is_told_while_rows_are_read(monkeypatch, room):
    monkeypatch.setattr(files, "has_room", lambda shape: room)
    seen = []
    file_executor(ArrayRows(table()), np.zeros(1000), PLAIN, 1.0, reading=lambda done, n: seen.append((done, n)))
    assert seen == [(256, 1000), (512, 1000), (768, 1000), (1000, 1000)]


def test_rows_that_change_between_two_readings_are_refused():
    """Targets are kept, so rows in another order would get other people's targets."""
    rows = table()
    executor = RereadExecutor(ArrayRows(rows), np.zeros(1000), PLAIN, shape_of(PLAIN, 1000, 1.0))
    FirstMoment().evaluate(PlacedData(executor))
    rows[:] = rows[::-1].copy()
    with pytest.raises(InvalidData, match="X changed while it was read"):
        FirstMoment().evaluate(PlacedData(executor))


def test_coordinate_descent_reads_single_columns(monkeypatch):
    executor = FileExecutor(ArrayRows(table()), np.zeros(1000), PLAIN, shape_of(PLAIN, 1000, 1.0))
    data, read = PlacedData(executor), []
    real = files._ScratchFile.read
    monkeypatch.setattr(files._ScratchFile, "read", lambda self, at, count: read.append(count) or real(self, at, count))
    weights = BoxedWeights(np.zeros(P + 1), 8.0)
    for column in (1, 3):  # a descent starts at zero
        GradientCoordinate(Logistic(), weights, columns=(column,)).evaluate(data)
        weights = weights.with_weight(column, 0.5)
    assert max(read) <= 256  # never a whole block of 256 x 5
