"""No container, numeric type or order of rows lets a table pass by the cap of the name under which it is known."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dperm import Bounds, Budget, DPLogisticRegression, DPRidge, DPTuner, Ledger, LocalLinearRegression, ParquetTable
from dperm.errors import BudgetRefused, DataSetResembles
from dperm.privacy.ledger import fingerprints

N = 300
#: values that single precision holds exactly, some of them zero
X = np.random.default_rng(0).integers(0, 256, (N, 3)) / 256.0 * (np.random.default_rng(1).random((N, 3)) < 0.7)
Y = X[:, 0]
BOUNDS = Bounds(features=(0, 1), target=(0, 1))
ORDER = np.random.default_rng(2).permutation(N)


def pandas_frame(_):
    return pytest.importorskip("pandas").DataFrame(X, columns=["a", "b", "c"])


def polars_frame(_):
    return pytest.importorskip("polars").DataFrame(X, schema=["a", "b", "c"])


def arrow_table(_):
    pa = pytest.importorskip("pyarrow")
    return pa.table({name: X[:, k] for k, name in enumerate("abc")})


def parquet_table(folder):
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(arrow_table(folder), folder / "t.parquet", row_group_size=64)
    return ParquetTable(folder / "t.parquet")


def memory_map(folder):
    np.save(folder / "t.npy", X)
    return np.load(folder / "t.npy", mmap_mode="r")


def dask_array(_):
    return pytest.importorskip("dask.array").from_array(X, chunks=(100, 3))


def duplicates_and_zeros(_):
    """A cell is stored as two halves, and all zeros are stored."""
    data, columns = np.hstack([X, X]) / 2.0, np.tile(np.arange(X.shape[1]), 2 * len(X))
    return sp.csr_array((data.ravel(), columns, np.arange(0, 2 * X.size + 1, 2 * X.shape[1])), shape=X.shape)


CONTAINERS = {
    "dense": lambda _: X.copy(),
    "F order": lambda _: np.asfortranarray(X),
    "float32": lambda _: X.astype(np.float32),
    "minus zeros": lambda _: np.where(X == 0.0, -0.0, X),
    "list": lambda _: X.tolist(),
    "csr": lambda _: sp.csr_array(X),
    "csc": lambda _: sp.csc_array(X),
    "coo": lambda _: sp.coo_array(X),
    "csr with duplicates and zeros": duplicates_and_zeros,
    "pandas": pandas_frame,
    "polars": polars_frame,
    "arrow": arrow_table,
    "parquet": parquet_table,
    "memory map": memory_map,
    "dask": dask_array,
}


@pytest.fixture
def full(tmp_path):
    """A ledger whose data set "A" has no room left."""
    ledger = Ledger(tmp_path / "budget.db", dataset="A")
    ledger.set_cap(Budget(1.0, 1e-5))
    DPRidge(1.0, 1e-5, bounds=BOUNDS, ledger=ledger).fit(X, Y)
    return ledger


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_container_does_not_pass_by_a_cap(kind, full, tmp_path):
    model = DPRidge(1.0, 1e-5, bounds=BOUNDS, ledger=full.for_dataset("B"))
    with pytest.raises(BudgetRefused, match="data set 'A' is closed"):
        model.fit(CONTAINERS[kind](tmp_path), Y)
    assert full.datasets() == ["A"]


@pytest.mark.parametrize("make", [lambda x: x, sp.csr_array, lambda x: x.astype(np.float32)])
def test_another_order_of_rows_does_not_either(make, full):
    with pytest.raises(BudgetRefused, match="data set 'A' is closed"):
        DPRidge(1.0, 1e-5, bounds=BOUNDS, ledger=full.for_dataset("B")).fit(make(X[ORDER]), Y[ORDER])


@pytest.mark.parametrize(
    "model",
    [
        DPRidge(4.0, bounds=None),
        DPTuner(DPRidge(bounds=BOUNDS), {"strength": [1e-3, 1.0]}),
        LocalLinearRegression(1.0, bounds=BOUNDS, refuse_hopeless=False),
    ],
    ids=["bought", "tuned", "local"],
)
def test_every_kind_of_fit_recognises_the_rows(model, full):
    model.set_params(ledger=full.for_dataset("B"))
    with pytest.raises(BudgetRefused, match="data set 'A' is closed"):
        model.fit(X[ORDER], Y[ORDER])


def test_labels_may_be_of_any_type(tmp_path):
    ledger = Ledger(tmp_path / "budget.db", dataset="A")
    ledger.set_cap(Budget(1.0, 1e-5))
    for dataset, labels in (("A", Y > 0.5), ("B", np.where(Y > 0.5, "yes", "no")), ("B", (Y > 0.5) * 1.0)):
        given = Bounds(features=(0, 1), classes=np.unique(labels).tolist())
        model = DPLogisticRegression(1.0, 1e-5, bounds=given, ledger=ledger.for_dataset(dataset))
        if dataset == "A":
            model.fit(X, labels)
            continue
        with pytest.raises(BudgetRefused, match="data set 'A' is closed"):
            model.fit(X[ORDER], labels[ORDER])


def test_one_cell_less_alike_is_told_to_the_owner_and_charged(full):
    changed = X.copy()
    changed[5, 1] = 0.123
    with pytest.warns(DataSetResembles, match="are also in 'A', which has a cap"):
        DPRidge(1.0, 1e-5, bounds=BOUNDS, ledger=full.for_dataset("B")).fit(changed, Y)
    assert full.for_dataset("B").spent().n_fits == 1


def test_a_fingerprint_that_depends_on_the_order_is_caught(full, monkeypatch):
    monkeypatch.setattr(fingerprints.RowSummary, "recognisable", lambda self: False)
    first = full.for_dataset("C")
    first.set_cap(Budget(1.0, 1e-5))
    with pytest.warns(DataSetResembles, match="are also in 'A'"):
        DPRidge(1.0, 1e-5, bounds=BOUNDS, ledger=first).fit(X, Y)
    with pytest.warns(
        DataSetResembles, match="all of the different rows"
    ):  # the sketch notices, but the cap is passed by
        DPRidge(1.0, 1e-5, bounds=BOUNDS, ledger=full.for_dataset("B")).fit(X[ORDER], Y[ORDER])
    assert full.for_dataset("B").spent().n_fits == 1
