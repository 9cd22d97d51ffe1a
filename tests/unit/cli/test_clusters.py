"""``dperm fit`` on a folder of Parquet files, here and by the workers of a Dask cluster."""

from __future__ import annotations

import sys

import pytest

import dperm as package
from dperm.data.schema.cluster_rows import ColumnsOnCluster, rows_on_cluster
from dperm.data.schema.schema import Schema
from dperm.data.tables.dask_tasks import Cluster
from dperm.data.tables.files import open_table

pq = pytest.importorskip("pyarrow.parquet")
distributed = pytest.importorskip("distributed")

FIT = ("fit", "parts", "--epsilon", "1", "--schema", "schema.toml")


@pytest.fixture
def parts(people, home):
    """The table of people in three files of a folder."""
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv("people.csv", keep_default_na=False)
    (home / "parts").mkdir()
    for k in range(3):
        some = table.iloc[100 * k : 100 * (k + 1)]
        some.to_parquet(home / "parts" / f"{k}.parquet", index=False, row_group_size=60)
    return home / "parts"


@pytest.fixture(scope="module")
def client():
    options = {"processes": False, "dashboard_address": ":0", "n_workers": 2, "threads_per_worker": 1}
    with (
        distributed.LocalCluster(protocol="tcp", **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as made,
    ):
        yield made


def test_a_folder_is_one_table(dperm, parts):
    done = dperm(*FIT)
    assert done.code == 0, done.err
    assert "of 300 people" in done.out
    assert "data set 'parts' has 1 use:" in done.err
    whole, files = open_table("people.csv"), open_table("parts")
    ledger = package.Ledger()
    assert ledger.fingerprint_of_columns(files.contents()) == ledger.fingerprint_of_columns(whole.contents())


def test_the_workers_of_a_cluster_read_and_encode_the_rows(dperm, parts, client):
    address = client.scheduler.address
    done = dperm(*FIT, "--cluster", address)
    assert done.code == 0, done.err
    assert "of 300 people" in done.out
    again = dperm("fit", "people.csv", *FIT[2:], "--out", "again.json")
    assert "'parts' has 2 uses" in again.err  # recognised, though the workers looked at it
    cluster, table, ledger = Cluster(client), open_table("parts"), package.Ledger()
    known = ledger.fingerprint_of_columns(table.contents())
    assert ledger.fingerprint_of_columns(ColumnsOnCluster(table, cluster)) == known
    schema = Schema.read("schema.toml")
    X, y = rows_on_cluster(schema, table, cluster)
    wanted = schema.encode(table, with_target=True)
    codes = (wanted.y == "well").astype(float)
    assert X.lengths == [60, 40] * 3
    assert ledger.fingerprint(X, y.in_numbers(is_well)) == ledger.fingerprint(wanted.X, codes)


def is_well(labels):
    return (labels == "well").astype(float)


@pytest.mark.long
def test_what_cannot_be_is_one_sentence_before_anything_is_charged(dperm, parts, client, monkeypatch):
    address = client.scheduler.address
    (parts.parent / "empty").mkdir()
    for arguments, says in [
        ((*FIT, "--cluster", "foo://bar"), "no Dask scheduler answers at 'foo://bar'"),
        ((*FIT, "--cluster", "tcp://127.0.0.1:1"), "no Dask scheduler answers at 'tcp://127.0.0.1:1'"),
        ((*FIT, "--cluster", address, "--test-fraction", "0.2"), "--test-fraction needs a table in memory"),
        (("fit", "empty", *FIT[2:]), "holds no Parquet file"),
        (
            ("fit", "parts", "--target", "state", "--epsilon", "1", "--buy-bounds", "--cluster", address),
            "needs --schema",
        ),
    ]:
        done = dperm(*arguments)
        assert done.code == 2
        assert says in done.err
        assert done.err.count("\n") == 1
    monkeypatch.setitem(sys.modules, "distributed", None)
    done = dperm(*FIT, "--cluster", address)
    assert (done.code, "install dperm[dask]" in done.err) == (2, True)
    assert not list(parts.parent.glob("*.json"))


def test_bad_cells_on_workers_are_refused_with_their_sentence(dperm, parts, client):
    table = pq.read_table(parts / "1.parquet").to_pandas()
    table.loc[5, "state"] = "Mrs. Smith"
    table.to_parquet(parts / "1.parquet", index=False)
    done = dperm(*FIT, "--cluster", client.scheduler.address)
    assert done.code == 2
    assert "contains a label that is not one of the classes" in done.err
    assert "Smith" not in done.err
