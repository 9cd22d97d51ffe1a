"""How often a fit on a Dask cluster reads its table, as ``docs/scale.md`` says."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pytest

from dperm import Bounds, DPLogisticRegression, DPRidge, Ledger
from dperm.errors import InvalidData
from dperm.estimators.progress import watching
from dperm.solvers import GradientDescent

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")
arrays = pytest.importorskip("dask.array")
frames = pytest.importorskip("dask.dataframe")

NAMES = ["age", "dose"]
N_PARTS = 3
SHORT = GradientDescent(n_steps=2)
UNIT = Bounds(features=(-1, 1), target=(-1, 1))


@pytest.fixture(scope="module")
def client():
    options = {"processes": False, "dashboard_address": ":0", "n_workers": 1, "threads_per_worker": 1}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as made:
        yield made


class Source:
    """Partitions that count how often they are read; workers are threads of this process."""

    calls: dict[int, int]
    lock = threading.Lock()
    shuffled = False

    @classmethod
    def read(cls, k):
        with cls.lock:
            cls.calls[k] = cls.calls.get(k, 0) + 1
        # a source without a fixed order gives another one every time
        rng = np.random.default_rng([k, cls.calls[k] if cls.shuffled else 0])
        people = np.random.default_rng(k).uniform(-1.0, 1.0, (40, 2))[rng.permutation(40)]
        return pd.DataFrame(people, columns=NAMES).assign(y=np.sign(people[:, 0]))


def read(k):
    return Source.read(k)


def sources(shuffled=False):
    Source.calls, Source.shuffled = {}, shuffled
    return [dask.delayed(read, pure=True)(k) for k in range(N_PARTS)]


def as_arrays(counted):
    """Rows and targets of their own sources, of which one is counted: Dask never reads two arrays in one task."""
    parts = sources()
    free = [read_uncounted(k) for k in range(N_PARTS)]
    X = [arrays.from_delayed(one[NAMES].to_numpy(), (40, 2), float) for one in (parts if counted == "X" else free)]
    y = [arrays.from_delayed(one["y"].to_numpy(), (40,), float) for one in (parts if counted == "y" else free)]
    return arrays.concatenate(X), arrays.concatenate(y)


def read_uncounted(k):
    found = dask.delayed(read, pure=True)(k).compute(scheduler="sync")
    Source.calls = {}
    return dask.delayed(found)


def table(shuffled=False):
    parts = sources(shuffled)
    return frames.from_delayed(parts, meta=pd.DataFrame(np.zeros((0, 3)), columns=[*NAMES, "y"]))


def readings():
    assert set(Source.calls) == set(range(N_PARTS))
    assert len(set(Source.calls.values())) == 1
    return Source.calls[0]


@pytest.mark.parametrize("ledger", [pytest.param(None, marks=pytest.mark.long), Ledger()], ids=["", "ledger"])
@pytest.mark.parametrize(
    ("model", "frame_readings"),
    [
        (DPRidge(5.0, bounds=UNIT, solver=SHORT), 3),
        (DPLogisticRegression(5.0, bounds=Bounds(features=(-1, 1), classes=[-1.0, 1.0]), solver=SHORT), 3),
        (DPLogisticRegression(5.0, bounds=Bounds(features=(-1, 1)), solver=SHORT), 4),  # once for the labels alone
    ],
    ids=["numbers", "classes", "undeclared"],
)
def test_a_fit_reads_its_table(client, model, frame_readings, ledger):
    model.set_params(ledger=ledger)
    frame = table()
    model.fit(frame[NAMES], frame["y"])
    assert readings() == frame_readings
    model.fit(*as_arrays("X"))  # arrays know their lengths
    assert readings() == 2
    model.fit(*as_arrays("y"))
    assert readings() == frame_readings - 1


def test_progress_is_told_while_rows_are_read(client):
    seen, frame = [], table()
    with watching(lambda done, in_all: None, reading=lambda done, in_all: seen.append((done, in_all))):
        DPRidge(5.0, bounds=UNIT, solver=SHORT).fit(frame[NAMES], frame["y"])
    assert seen == [(40, 120), (80, 120), (120, 120)]


@pytest.mark.parametrize("ledger", [None, Ledger()], ids=["", "ledger"])
def test_rows_in_another_order_each_time_cost_nothing(client, ledger):
    frame = table(shuffled=True)
    with pytest.raises(InvalidData, match="another order of them"):
        DPRidge(5.0, bounds=UNIT, solver=SHORT, ledger=ledger).fit(frame[NAMES], frame["y"])
    assert ledger is None or ledger.spent().n_fits == 0
