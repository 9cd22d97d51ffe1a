"""Parquet files, arrays on disk and Dask collections: the same model as from memory, bit for bit, in little memory."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

import dperm
from dperm import Bounds, DPLinearSVC, DPLogisticRegression, DPRidge, DPTuner, Ledger, ParquetTable
from dperm.data.tables import row_source as chunked
from dperm.data.tables.row_source import row_source
from dperm.errors import InvalidData, InvalidInput
from dperm.solvers import CoordinateDescent, GradientDescent, GreedyCoordinateDescent

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N, P = 900, 4
NAMES = ["age", "dose", "smokes", "score"]
UNIT = Bounds(features=(-1, 1), target=(-1, 1))


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(chunked, "BLOCK_BYTES", 8 * P * 256)


def people():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.2, 1.2, (N, P))
    return X, X[:, 0] - 0.5 * X[:, 1] + 0.1 * rng.normal(size=N)


def write(path, columns, **options):
    pq.write_table(pa.table(columns), path, **{"row_group_size": 300, **options})
    return ParquetTable(path)


def parquet(folder, y=None):
    X, target = people()
    columns = dict(zip(NAMES, X.T, strict=True))
    return write(folder / "people.parquet", {**columns, "y": target if y is None else y})


def on_disk(folder):
    np.save(folder / "x.npy", people()[0])
    return np.load(folder / "x.npy", mmap_mode="r")


def forms(folder):
    yield on_disk(folder)
    yield parquet(folder).drop("y")
    if find_spec("dask") is not None:
        from dask import array, dataframe

        yield array.from_array(people()[0], chunks=(331, 3))
        yield dataframe.from_pandas(pd.DataFrame(people()[0], columns=NAMES), npartitions=3)


MODELS = {
    "ridge": (DPRidge(2.0, bounds=UNIT), False),
    "bought": (DPRidge(50.0), False),
    "row norm": (DPRidge(2.0, bounds=Bounds(scale=0.5, clip=2.0, row_norm=1.5, target=(-1, 1))), False),
    "logistic": (DPLogisticRegression(2.0, bounds=UNIT), True),
    "no intercept": (DPLogisticRegression(2.0, bounds=UNIT, fit_intercept=False), True),
    "svc": (DPLinearSVC(2.0, bounds=UNIT, solver=GradientDescent(n_steps=5)), True),
    "greedy": (DPLogisticRegression(2.0, bounds=UNIT, solver=GreedyCoordinateDescent(n_steps=4)), True),
    "coordinate": (DPLogisticRegression(2.0, bounds=UNIT, solver=CoordinateDescent(n_rounds=2)), True),
    "coordinate, squared": (DPRidge(2.0, bounds=UNIT, solver=CoordinateDescent(n_rounds=2)), False),
    "sgd": (DPLogisticRegression(2.0, bounds=UNIT, solver="sgd", neighbours="zero-out"), True),
    "frank-wolfe": (DPLogisticRegression(2.0, bounds=UNIT, solver="frank-wolfe", penalty="none"), True),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_the_one_from_memory(name, tmp_path):
    model, classes = MODELS[name]
    if name == "sgd":
        pytest.importorskip("dp_accounting")
    model.set_params(insecure_seed=0)
    X, y = people()
    y = y > 0 if classes else y
    wanted = dperm_copy(model).fit(X, y)
    for form in forms(tmp_path):
        found = dperm_copy(model).fit(form, y)
        assert np.array_equal(found.coef_, wanted.coef_)
        assert np.array_equal(found.intercept_, wanted.intercept_)
        assert found.privacy_report_.releases == wanted.privacy_report_.releases
        assert np.array_equal(found.predict(form), wanted.predict(X))
        assert found.score(form, y) == wanted.score(X, y)
        assert found.n_features_in_ == P
        named = not isinstance(form, np.ndarray) and hasattr(form, "columns")
        assert getattr(found, "feature_names_in_", np.array(NAMES)).tolist() == NAMES
        assert hasattr(found, "feature_names_in_") == named


def dperm_copy(model):
    return type(model)(**model.get_params(deep=False))


def test_objective_perturbation_ends_within_its_tolerance(tmp_path):
    """Its search adds up floating-point numbers: another split may stop elsewhere, as near to the minimum."""
    X, y = people()
    model = DPLogisticRegression(2.0, bounds=UNIT, solver="objective", neighbours="zero-out", insecure_seed=0)
    wanted, found = dperm_copy(model).fit(X, y > 0), dperm_copy(model).fit(on_disk(tmp_path), y > 0)
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-4)


def test_the_search_takes_them_too(tmp_path):
    X, y = people()
    tuner = {"epsilon": 2.0, "insecure_seed": 0}
    wanted = DPTuner(DPRidge(bounds=UNIT), {"strength": [1e-3, 1.0]}, **tuner).fit(X, y)
    found = DPTuner(DPRidge(bounds=UNIT), {"strength": [1e-3, 1.0]}, **tuner).fit(on_disk(tmp_path), y)
    assert found.best_params_ == wanted.best_params_
    assert np.array_equal(found.predict(on_disk(tmp_path)), wanted.predict(X))


def test_a_ledger_recognises_the_data_in_any_form(tmp_path, monkeypatch):
    monkeypatch.setenv("DPERM_HOME", str(tmp_path / "home"))
    X, y = people()
    ledger = Ledger()
    known = ledger.fingerprint(X, y)
    assert ledger.fingerprint(np.asfortranarray(X), y) == known
    for form in forms(tmp_path):
        assert ledger.fingerprint(row_source(form), y) == known
        DPRidge(bounds=UNIT, ledger=ledger).fit(form, y)
    X[-1, -1] += 1e-9
    assert ledger.fingerprint(X, y) != known


def test_saved_models_predict_from_them(tmp_path):
    _, y = people()
    table = parquet(tmp_path).drop("y")
    model = DPRidge(2.0, bounds=UNIT).fit(table, y)
    again = dperm.load(model.save(tmp_path / "model.json"))
    for form in forms(tmp_path):
        assert np.array_equal(again.predict(form), model.predict(table))
    with pytest.raises(InvalidData, match="feature names should match"):
        again.predict(ParquetTable(tmp_path / "people.parquet", NAMES[::-1]))
    with pytest.raises(InvalidData, match="X has 3 features"):
        again.predict(on_disk(tmp_path)[:, :3])


# ------------------------------------------------------------------------------------------ Parquet
def test_columns_of_a_parquet_table(tmp_path):
    table = parquet(tmp_path, y=["yes", "no"] * (N // 2))
    assert table.columns == [*NAMES, "y"]
    assert len(table) == N
    assert repr(table) == "ParquetTable('people.parquet', 900 rows, 5 columns)"
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.parquet", "b.parquet"):
        shutil.copy(tmp_path / "people.parquet", folder / name)
    assert repr(ParquetTable(folder)) == "ParquetTable('folder', 1800 rows, 5 columns)"
    assert repr(ParquetTable(folder).drop("y")) == "ParquetTable('folder', 1800 rows, 4 columns)"
    assert repr(ParquetTable(folder)[["age"]]) == "ParquetTable('folder', 1800 rows, 1 columns)"
    assert repr(ParquetTable(sorted(folder.iterdir()))) == "ParquetTable('a.parquet' and 1 more, 1800 rows, 5 columns)"
    assert table["y"].tolist() == ["yes", "no"] * (N // 2)
    assert np.array_equal(table["dose"], people()[0][:, 1])
    chosen = ParquetTable(tmp_path / "people.parquet", ["score", "age"])
    assert np.array_equal(np.concatenate(list(chosen.blocks())), people()[0][:, [3, 0]])
    assert pickle.loads(pickle.dumps(chosen)).columns == ["score", "age"]
    model = DPLogisticRegression(1e3, bounds=Bounds(features=(-1, 1)), insecure_seed=0).fit(table.drop("y"), table["y"])
    assert model.classes_.tolist() == ["no", "yes"]


def test_several_files_and_folders(tmp_path):
    X, _ = people()
    (tmp_path / "parts").mkdir()
    for k in range(3):
        write(tmp_path / "parts" / f"{k}.parquet", dict(zip(NAMES, X[300 * k : 300 * (k + 1)].T, strict=True)))
    files = sorted((tmp_path / "parts").iterdir())
    for path in (tmp_path / "parts", files, [str(one) for one in files]):
        assert np.array_equal(np.concatenate(list(ParquetTable(path).blocks())), X)
    write(tmp_path / "parts" / "3.parquet", {"age": [1.0]})
    with pytest.raises(InvalidData, match=r"'3.parquet' has different columns from '0.parquet'"):
        ParquetTable(tmp_path / "parts")


@pytest.mark.parametrize("other", [["Smith"] * 3, [1.0, 2.0, 3.0], [None, None, None]])
def test_files_with_other_types_are_refused(tmp_path, other):
    """What a type says, such as that a column lies between 0 and 1, is said of the rows of all files."""
    write(tmp_path / "a.parquet", {"age": [1.0, 2.0, 3.0], "smokes": [True, False, True]})
    write(tmp_path / "b.parquet", {"age": [1, 2, 3], "smokes": other})
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    with pytest.raises(InvalidData, match=r"column 'smokes' has different types in 'b.parquet' and 'a.parquet'"):
        ParquetTable(files)
    assert ParquetTable(files, ["age"]).shape == (6, 1)  # numbers are numbers, of whatever width


def test_types_of_columns(tmp_path):
    flags = people()[0][:, 0] > 0
    table = write(tmp_path / "t.parquet", {"f": flags, "i": np.arange(N, dtype=np.int8), "r": np.ones(N, np.float32)})
    assert table.boolean.tolist() == [True, False, False]
    report = DPLogisticRegression(5.0).fit(table, flags).privacy_report_
    assert report.releases[0].count == 2 * 2
    assert table.drop("f").boolean is None


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (["Mrs. Smith"] * N, "column 'bad' holds text"),
        ([None, 1.0] * (N // 2), "NaN or infinite values in column 'bad'"),
        ([np.inf] * N, "NaN or infinite values in column 'bad'"),
        (np.full(N, "2020-01-01", "datetime64[s]"), "column 'bad' holds dates"),
        ([{"a": 1}] * N, "column 'bad' holds text"),
    ],
)
@pytest.mark.parametrize("bounds", [UNIT, None])
def test_bad_columns_cost_nothing(tmp_path, column, words, bounds):
    X, y = people()
    table = write(tmp_path / "t.parquet", {"age": X[:, 0], "bad": column})
    ledger = Ledger()
    with pytest.raises(InvalidData, match=words) as raised:
        DPRidge(bounds=bounds, ledger=ledger).fit(table, y)
    assert "Smith" not in str(raised.value)
    assert ledger.spent().n_fits == 0


def test_wrong_use(tmp_path):
    X, y = people()
    table = parquet(tmp_path)
    (tmp_path / "no.parquet").write_text("no")
    (tmp_path / "empty").mkdir()
    for wrong, error, words in [
        (lambda: ParquetTable(tmp_path / "missing.parquet"), InvalidInput, "'missing.parquet' cannot be read: No such"),
        (lambda: ParquetTable(tmp_path / "no.parquet"), InvalidInput, "'no.parquet' cannot be read: not a Parquet"),
        (lambda: ParquetTable(tmp_path / "empty"), InvalidInput, "holds no Parquet file"),
        (lambda: ParquetTable(tmp_path / "people.parquet", ["age", "agee"]), InvalidInput, "has no column 'agee'"),
        (lambda: ParquetTable(tmp_path / "people.parquet", "age"), InvalidInput, "list of distinct names"),
        (lambda: table.drop("agee"), InvalidInput, "no column 'agee'; the columns are"),
        (lambda: table[0], InvalidInput, "by a name or by a list of names"),
        (lambda: DPRidge(bounds=UNIT).fit(table, y[:-1]), InvalidData, "X has 900 rows and y has 899: y must hold one"),
        (lambda: DPRidge(bounds=UNIT).fit(table.drop("y"), None), InvalidData, "requires y to be passed"),
        (lambda: DPRidge(bounds=UNIT).fit(X, y).predict(table), InvalidData, "X has 5 features"),
        (lambda: DPRidge(bounds="declare").fit(table.drop("y"), y), InvalidInput, r"\{'age': lo, 'dose': lo"),
    ]:
        with pytest.raises(error, match=words):
            wrong()
    empty = write(tmp_path / "empty.parquet", {"age": np.zeros(0)})
    with pytest.raises(InvalidData, match=r"0 sample\(s\)"):
        DPRidge(bounds=UNIT).fit(empty, [])


# ------------------------------------------------------------------------------------------ Dask
def test_dask_labels_and_bad_partitions():
    dask_array = pytest.importorskip("dask.array")
    frames = pytest.importorskip("dask.dataframe")
    X, y = people()
    model = DPRidge(2.0, bounds=UNIT, insecure_seed=0)
    wanted = dperm_copy(model).fit(X, y).coef_
    lazy = dask_array.from_array(X, chunks=(200, P))
    assert np.array_equal(dperm_copy(model).fit(lazy, dask_array.from_array(y, chunks=100)).coef_, wanted)
    unknown = lazy[dask_array.from_array(np.ones(N, bool), chunks=200)]  # sizes of its chunks are not known
    assert np.array_equal(dperm_copy(model).fit(unknown, y).coef_, wanted)
    frame = pd.DataFrame(X, columns=NAMES).assign(score="Smith")
    with pytest.raises(InvalidData, match="column 'score' holds text") as raised:
        dperm_copy(model).fit(frames.from_pandas(frame, npartitions=2), y)
    assert "Smith" not in str(raised.value)
    with pytest.raises(InvalidData, match="column 'dose'"):
        dperm_copy(model).fit(frames.from_pandas(frame.assign(score=1.0, dose=np.nan), npartitions=2), y)
    with pytest.raises(InvalidData, match="two-dimensional Dask array"):
        dperm_copy(model).fit(lazy[:, 0], y)


def test_dask_without_a_cluster_refuses_y_alone_in_dask():
    dask_array = pytest.importorskip("dask.array")
    X, y = people()
    with pytest.raises(InvalidData, match="y is a Dask collection and X is not"):
        DPRidge(2.0, bounds=UNIT).fit(X, dask_array.from_array(y, chunks=100))


# ------------------------------------------------------------------------------------------ memory
# the most that this process itself held, in kB; what getrusage tells begins with what its parent held
PEAK = """
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
"""

CEILING = """
import sys
import numpy as np
import pyarrow as pa, pyarrow.parquet as pq
import dperm, dperm.solvers

n, p, path = 400_000, 40, sys.argv[1]
names = [f"c{j}" for j in range(p)]
rng = np.random.default_rng(0)
with pq.ParquetWriter(path, pa.schema([(name, pa.float64()) for name in names]), use_dictionary=False) as writer:
    for _ in range(20):
        writer.write_table(pa.table(list(rng.uniform(-1, 1, (p, n // 20))), names=names))
table = dperm.ParquetTable(path)
y = table["c0"] > 0
short = dperm.solvers.GradientDescent(n_steps=3)
model = dperm.DPLogisticRegression(bounds=dperm.Bounds(features=(-1, 1)), solver=short)
model.fit(dperm.ParquetTable(path, names[:4]), y)  # whatever is compiled and loaded once
before = peak()
model.fit(table, y)
print((peak() - before) * 1024 / (8 * n * p))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured in Linux's units")
def test_a_fit_takes_a_fraction_of_the_table(tmp_path):
    """128 MB of doubles: the fit adds blocks and a few numbers per row, not the table."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK + CEILING, str(tmp_path / "t.parquet")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.4


SINGLE = """
import numpy as np
import dperm, dperm.solvers

n, p = 400_000, 40
X, rng = np.empty((n, p), np.float32), np.random.default_rng(0)
for start in range(0, n, 10_000):
    X[start : start + 10_000] = rng.uniform(-1, 1, (10_000, p))
y = X[:, 0] > 0
short = dperm.solvers.GradientDescent(n_steps=3)
model = dperm.DPLogisticRegression(bounds=dperm.Bounds(features=(-1, 1)), solver=short)
model.fit(X[:5000], y[:5000])  # whatever is compiled and loaded once
before = peak()
model.fit(X, y)
print((peak() - before) * 1024 / (8 * n * p))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured in Linux's units")
def test_single_precision_is_not_copied_whole():
    """The scaled view, and no doubles of the user's own table beside it."""
    done = subprocess.run([sys.executable, "-c", PEAK + SINGLE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.5


@pytest.mark.parametrize("bounds", [UNIT, None])
def test_single_precision_gives_the_model_of_its_doubles(bounds):
    X, y = people()
    single, model = X.astype(np.float32), DPRidge(50.0, bounds=bounds, insecure_seed=0)
    wanted = dperm_copy(model).fit(single.astype(np.float64), y)
    for form in (single, pd.DataFrame(single, columns=NAMES)):
        found = dperm_copy(model).fit(form, y)
        assert np.array_equal(found.coef_, wanted.coef_)
        assert np.array_equal(found.predict(form), wanted.predict(single.astype(np.float64)))


@pytest.mark.long
def test_a_model_does_not_depend_on_the_number_of_threads():
    """Neither sums over people nor the linear algebra between releases: eigenvectors round by the number of threads."""
    code = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from dperm import Bounds, DPLogisticRegression
rng = np.random.default_rng(0)
X = rng.normal(size=(30_000, 120))
y = (X[:, 0] + rng.logistic(size=len(X)) > 0).astype(int)
bounds = Bounds(features=(-4, 4), classes=[0, 1])
print(DPLogisticRegression(4.0, bounds=bounds, insecure_seed=1).fit(X, y).coef_.tobytes().hex())
"""
    found = set()
    for count in ("1", "2", "3"):
        environment = {**os.environ, "OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=300
        )
        found.add(done.stdout)
    assert len(found) == 1
