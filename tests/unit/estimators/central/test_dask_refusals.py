"""Dask collections that are refused, on a cluster or without one: one sentence, no value in it, and nothing charged."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dperm import Bounds, DPRidge, Ledger
from dperm.errors import InvalidData

UNIT = Bounds(features=(-1, 1), target=(-1, 1))


def private(raised):
    """Whether neither an error nor what it came from shows the value planted in the data."""
    seen, error = "", raised.value
    while error is not None:
        seen, error = seen + str(error), error.__cause__ or error.__context__
    return "Smith" not in seen


def lying_partitions(cells):
    """Partitions that hold other things than their declared type says."""
    dask_array, dask = pytest.importorskip("dask.array"), pytest.importorskip("dask")
    parts = [dask.delayed(np.array)(cells, dtype=object) for _ in range(3)]
    return dask_array.concatenate([dask_array.from_delayed(one, (2, 2), float) for one in parts])


def refused_partitions():
    """Collections to refuse, and words of the sentence."""
    dask_array, frames = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    cells = np.array([[0.1, 0.2]] * 6, dtype=object)
    cells[3, 1] = "Mrs. Smith"
    yield dask_array.from_array(cells, chunks=(2, 2)), "Dask array of type object"
    yield dask_array.from_array(np.ones((6, 2), complex), chunks=(2, 2)), "Dask array of type complex128"
    yield lying_partitions([["Mrs. Smith", 0.1], [0.1, 0.2]]), "one of its partitions could not be"
    yield lying_partitions([[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]]), "its number of columns is different"
    typed = pd.DataFrame({"a": [0.1] * 6, "b": [1, None] * 3}).astype({"b": "Int64"})
    yield frames.from_pandas(typed, npartitions=2), "NaN or infinite values in column 'b'"
    mixed = pd.DataFrame({"a": [0.1] * 6, "b": pd.Series([0.2, "Mrs. Smith"] * 3, dtype=object)})
    plain = frames.from_pandas(typed.astype(float), npartitions=2)
    lying = plain.map_partitions(lambda part: mixed.iloc[:3], meta=typed.astype(float).iloc[:0])
    yield lying, "one of its partitions could not be"
    objects = plain.map_partitions(lambda part: mixed.iloc[:3], meta=mixed.iloc[:0])
    yield objects, "column 'b' is of type object"


def check_partitions(caplog):
    for X, words in refused_partitions():
        for bounds in (UNIT, Bounds(target=(-1, 1))):  # declared, and bought
            ledger = Ledger()
            with pytest.raises(InvalidData, match=words) as raised:
                DPRidge(bounds=bounds, ledger=ledger).fit(X, np.arange(6.0))
            assert private(raised), words
            assert ledger.spent().n_fits == 0
        assert "Smith" not in caplog.text, words


def test_partitions_that_are_no_numbers(caplog):
    check_partitions(caplog)


def growing(path, after, then, declared=10):
    """Four partitions of ten rows that have another number of rows once they were worked out so often."""
    dask_array, dask = pytest.importorskip("dask.array"), pytest.importorskip("dask")

    def part(k):
        with path.open("a") as counter:
            counter.write("x")
        return np.full((10 if path.stat().st_size <= after else then[k], 2), 0.3)

    path.unlink(missing_ok=True)
    parts = [dask_array.from_delayed(dask.delayed(part, pure=False)(k), (declared, 2), float) for k in range(4)]
    return dask_array.concatenate(parts, allow_unknown_chunksizes=True)


def check_lengths(path, after, declared=10):
    for then in ([9, 9, 9, 9], [1, 1, 1, 1], [9, 11, 10, 10]):
        with pytest.raises(InvalidData, match="X changed while it was read: its rows"):
            DPRidge(bounds=UNIT).fit(growing(path, after, then, declared), np.arange(40.0))


def test_partitions_of_another_length_than_declared(tmp_path):
    check_lengths(tmp_path / "count", after=0)  # they are read once here


def test_partitions_that_change_their_length(tmp_path):
    check_lengths(tmp_path / "count", after=4, declared=np.nan)  # counted first, then read


def check_graph():
    """The user's own step fails at a value: a worker's log is not ours then, the error is."""
    dask_array = pytest.importorskip("dask.array")
    cells = np.array([[0.1, 0.2], [0.1, "Mrs. Smith"]], dtype=object)
    X = dask_array.from_array(cells, chunks=(1, 2)).astype(float)
    model = DPRidge(bounds=UNIT).fit(np.zeros((9, 2)), np.zeros(9))
    for use in (lambda: DPRidge(bounds=UNIT).fit(X, np.zeros(2)), lambda: model.saved_model().predict(X)):
        with pytest.raises(InvalidData, match="one of its partitions could not be computed") as raised:
            use()
        assert private(raised)


def test_a_step_that_fails():
    check_graph()


def test_a_cluster_refuses_the_same(tmp_path, caplog):
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "dashboard_address": ":0", "n_workers": 1, "threads_per_worker": 1}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        check_partitions(caplog)
        for after in (0, 4):  # other than declared, and in the second reading
            check_lengths(tmp_path / "count", after)
        check_lengths(tmp_path / "count", after=4, declared=np.nan)
        check_graph()
