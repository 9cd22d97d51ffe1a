"""Fits on a Dask cluster: the bits of a fit in memory, one sum per query, and nothing about a single person."""

from __future__ import annotations

import os
import pickle
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from dperm import Bounds, DPLinearSVC, DPLogisticRegression, DPRidge, DPTuner, Ledger
from dperm.data.design.matrix import DesignMatrix
from dperm.data.design.scaling import Scaling
from dperm.data.design.weights import BoxedWeights, SparseWeights
from dperm.data.executors.dask_cluster import DaskExecutor
from dperm.data.executors.executor import PlacedData, TargetView
from dperm.data.executors.placing import place
from dperm.data.holding.holder import Query
from dperm.data.tables import dask_tasks
from dperm.data.tables.row_source import row_source
from dperm.data.tables.target_source import target_source
from dperm.errors import ClusterLost, InvalidData, PlanViolation
from dperm.estimators.central.scoring import paid_score
from dperm.estimators.progress import watching
from dperm.objective import Logistic
from dperm.queries import FullGradient
from dperm.queries.gradients import GradientCoordinate
from dperm.solvers import CoordinateDescent, GradientDescent, GreedyCoordinateDescent
from dperm.testing.examples import LOSS_EXAMPLES, QUERY_EXAMPLES
from dperm.testing.executors import check_executor

distributed = pytest.importorskip("distributed")
arrays = pytest.importorskip("dask.array")
frames = pytest.importorskip("dask.dataframe")

N, P = 700, 4
NAMES = ["age", "dose", "smokes", "score"]
UNIT = Bounds(features=(-1, 1), target=(-1, 1))
SHORT = GradientDescent(n_steps=3)


def people(n=N):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.2, 1.2, (n, P))
    return X, X[:, 0] - 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)


def labels(kinds):
    _, y = people()
    return np.digitize(y, [0.0] if kinds == 2 else [-0.4, 0.4]).astype(float)


@pytest.fixture(scope="module")
def client():
    options = {"processes": False, "dashboard_address": ":0", "n_workers": 2, "threads_per_worker": 1}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as made:
        yield made


def lazy(X=None, y=None):
    """The table and its targets in other chunks."""
    X = people()[0] if X is None else X
    return arrays.from_array(X, chunks=(200, 3)), None if y is None else arrays.from_array(y, chunks=150)


def copy_of(model):
    return type(model)(**model.get_params(deep=False))


def assert_same(found, wanted):
    assert np.array_equal(found.coef_, wanted.coef_)
    assert np.array_equal(found.intercept_, wanted.intercept_)
    assert found.privacy_report_.releases == wanted.privacy_report_.releases


# ------------------------------------------------------------------------------------------ the same bits
MODELS = {
    "ridge": (DPRidge(2.0, bounds=UNIT, solver=SHORT), 0),
    "bought": (DPRidge(50.0, solver=SHORT), 0),
    "row norm": (DPRidge(2.0, bounds=Bounds(scale=0.5, clip=2.0, row_norm=1.5, target=(-1, 1)), solver=SHORT), 0),
    "two classes": (DPLogisticRegression(2.0, bounds=UNIT, solver=SHORT), 2),
    "three classes": (DPLogisticRegression(2.0, bounds=UNIT, solver=SHORT), 3),
    "one against rest": (DPLinearSVC(2.0, bounds=UNIT, solver=SHORT), 3),
    "greedy": (DPLogisticRegression(2.0, bounds=UNIT, solver=GreedyCoordinateDescent(n_steps=3)), 2),
    "coordinate": (DPLogisticRegression(2.0, bounds=UNIT, solver=CoordinateDescent(n_rounds=1)), 2),
    "frank-wolfe": (DPLogisticRegression(2.0, bounds=UNIT, solver="frank-wolfe", penalty="none"), 2),
    "objective": (DPLogisticRegression(2.0, bounds=UNIT, solver="objective", neighbours="zero-out"), 2),
    "auto": (DPLogisticRegression(2.0, bounds=UNIT), 2),
    "sgd": (DPLogisticRegression(2.0, bounds=UNIT, solver="sgd", neighbours="zero-out"), 2),
}
LONG = ("auto", "sgd", "frank-wolfe", "bought", "row norm", "one against rest", "objective", "greedy")


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.long] * (one in LONG)) for one in MODELS])
def test_the_model_is_the_one_from_memory(client, name):
    model, kinds = MODELS[name]
    if name == "sgd":
        pytest.importorskip("dp_accounting")
    model.set_params(insecure_seed=0)
    X, y = people()
    y = labels(kinds) if kinds else y
    wanted = copy_of(model).fit(X, y)
    ledger = Ledger(neighbours=model.neighbours)
    found = copy_of(model).set_params(ledger=ledger).fit(*lazy(X, y))
    assert_same(found, wanted)
    assert ledger.spent().n_fits == 1
    planned = copy_of(model).plan(N, P, kinds or None)
    assert sum(one.count for one in planned.releases) == sum(one.count for one in found.privacy_report_.releases)


def test_targets_in_memory_are_sent_with_their_rows(client):
    X, y = people()
    model = DPRidge(2.0, bounds=UNIT, solver=SHORT, insecure_seed=0)
    assert_same(copy_of(model).fit(lazy(X)[0], y), copy_of(model).fit(X, y))


def test_dataframes_with_text_labels_and_empty_partitions(client, tmp_path):
    X, y = people()
    frame = pd.DataFrame(X, columns=NAMES).assign(y=np.where(y > 0, "yes", "no"))
    model = DPLogisticRegression(2.0, bounds=UNIT, solver=SHORT, insecure_seed=0)
    wanted = copy_of(model).fit(frame[NAMES], frame["y"])
    for table in (frames.from_pandas(frame, npartitions=3), frames.from_pandas(frame, npartitions=3).clear_divisions()):
        found = copy_of(model).fit(table[NAMES], table["y"])
        assert_same(found, wanted)
        assert found.classes_.tolist() == ["no", "yes"]
        assert found.feature_names_in_.tolist() == NAMES
    some = frame[frame["age"] < 0.0]
    kept = table[table["age"] < 0.0]
    assert_same(copy_of(model).fit(kept[NAMES], kept["y"]), copy_of(model).fit(some[NAMES], some["y"]))
    pytest.importorskip("pyarrow")
    for k in range(3):
        frame.iloc[250 * k : 250 * (k + 1)].to_parquet(tmp_path / f"{k}.parquet")
    read = frames.read_parquet(tmp_path)
    assert_same(copy_of(model).fit(read[NAMES], read["y"]), wanted)


@pytest.mark.long
def test_the_search_and_a_paid_score(client):
    X, y = people()
    found, wanted = (
        DPTuner(
            DPRidge(bounds=UNIT, solver=SHORT), {"strength": [1e-3, 1.0]}, 2.0, insecure_seed=0, expected_runs=1.5
        ).fit(*data)
        for data in (lazy(X, y), (X, y))
    )
    assert found.best_params_ == wanted.best_params_
    assert_same(found.best_estimator_, wanted.best_estimator_)
    for model, target in ((found.best_estimator_, y), (classifier(), labels(3))):
        saved, costs = model.saved_model(), {"epsilon": 1.0, "insecure_seed": 1}
        ledger = Ledger()
        score = paid_score(saved, *lazy(X, target), ledger=ledger, **costs)
        assert score == paid_score(saved, X, target, **costs)
        assert ledger.spent().n_fits == 1


def classifier():
    return DPLogisticRegression(2.0, bounds=UNIT, solver=SHORT, insecure_seed=0).fit(people()[0], labels(3))


# ------------------------------------------------------------------------------------------ the ledger
FEW_KINDS = np.repeat([[0.0, 1.0], [1.0, 0.0]], 350, axis=0)[np.random.default_rng(3).permutation(N)]


@pytest.mark.parametrize("X", [people()[0], FEW_KINDS, np.zeros((N, 1))], ids=["people", "few kinds", "one kind"])
def test_a_ledger_recognises_the_rows(client, X):
    ledger, y = Ledger(), (X[:, 0] > 0).astype(float)
    source = row_source(lazy(X)[0])
    kept = target_source(lazy(X, y)[1], source)
    for here, there in ((None, None), (y, y), (y, kept)):
        assert ledger.fingerprint(source, there) == ledger.fingerprint(X, here)
    if np.ptp(X):
        assert ledger.fingerprint(source, 1.0 - y) != ledger.fingerprint(X, y)


# ------------------------------------------------------------------------------------------ what comes back
class Gathered:
    """Every result that reaches the client."""

    def __init__(self, client, monkeypatch):
        self.sizes, self.longest = [], 0
        gather = client.gather

        def counting(futures, *args, **kwargs):
            found = gather(futures, *args, **kwargs)
            for one in found if isinstance(found, list) else [found]:
                self.sizes.append(len(pickle.dumps(one)))
                self.longest = max(self.longest, np.size(one))
            return found

        monkeypatch.setattr(client, "gather", counting)


@pytest.mark.parametrize("kinds", [0, 3])
def test_nothing_of_the_length_of_the_table_reaches_the_client(client, monkeypatch, kinds):
    X, y = people()
    gathered = Gathered(client, monkeypatch)
    model = DPLogisticRegression if kinds else DPRidge
    model(50.0, bounds=UNIT, solver=SHORT, ledger=Ledger()).fit(*lazy(X, labels(kinds) if kinds else y))
    assert gathered.longest <= 3 * (P + 1)
    assert sorted(gathered.sizes)[-2] < 600  # the largest is the sketch of the table, of one size for all tables
    assert max(gathered.sizes) < 40_000


def placed(X, y, chunks=200):
    return place(row_source(arrays.from_array(X, chunks=(chunks, P))), y, UNIT.scaling(P), 1.0)


@dataclass(frozen=True, eq=False)
class OneNumberPerPerson(FullGradient):
    """A planted bug: its part is the scores of the people."""

    name: ClassVar[str] = "planted"

    def part(self, block):
        return block.design.scores(np.ones(block.design.d))


@dataclass(frozen=True, eq=False)
class DeclaredPerPerson(OneNumberPerPerson):
    """The same, with a size that admits it."""

    def size(self, facts):
        return facts.n


def test_a_part_with_one_number_per_person_stays_on_its_worker(client, monkeypatch):
    X, y = people()
    data = PlacedData(placed(X, y), TargetView(-1.2, 1.2))
    gathered = Gathered(client, monkeypatch)
    for planted in (OneNumberPerPerson, DeclaredPerPerson):  # the last partition is shorter than the others
        with pytest.raises(PlanViolation, match="nothing of it was sent"):
            next(data.parts(planted(Logistic(), np.zeros(P + 1))))
    assert gathered.longest <= 1


@pytest.mark.parametrize("name", [one for one in QUERY_EXAMPLES if "quantile" not in one])
def test_every_query_can_be_sent_and_its_part_has_the_declared_size(name):
    """Quantiles are counted on the columns before they are scaled; queries of organisations have no parts."""
    X, y = people()
    y = (y > 0).astype(float)
    whole = PlacedData(place(X, y, UNIT.scaling(P), 1.0))
    few = PlacedData(place(X[:50], y[:50], UNIT.scaling(P), 1.0))
    for query in QUERY_EXAMPLES[name](np.random.default_rng(1), whole.facts):
        if type(query).part is Query.part:
            continue
        (wanted,) = whole.parts(query)
        (found,) = whole.parts(pickle.loads(pickle.dumps(query)))
        assert np.array_equal(found, wanted)
        assert found.dtype == np.float64
        assert found.size <= query.part_size(whole.facts)
        if getattr(query, "rows", None) is None:  # a map of rows is for one number of people
            assert next(few.parts(query)).shape == wanted.shape


def test_losses_and_weights_can_be_sent():
    values = np.arange(P + 1.0)
    for weights in (values, BoxedWeights(values, 8.0), SparseWeights(P + 1, {1: 0.5}, 8.0)):
        for loss in LOSS_EXAMPLES:
            again = pickle.loads(pickle.dumps(loss))
            assert again == loss
        pickle.loads(pickle.dumps(FullGradient(Logistic(), weights)))


# ------------------------------------------------------------------------------------------ kept state
def test_a_step_of_coordinate_descent_reuses_kept_scores(client, monkeypatch):
    X, y = people()
    data, calls = PlacedData(placed(X, y > 0)), []
    whole = DesignMatrix.scores
    monkeypatch.setattr(DesignMatrix, "scores", lambda self, *a: calls.append(self.n_rows) or whole(self, *a))
    weights, memory = BoxedWeights(np.full(P + 1, 0.25), 8.0), PlacedData(place(X, y > 0, UNIT.scaling(P), 1.0))
    for step in range(6):
        query = GradientCoordinate(Logistic(), weights, columns=(step % P,))
        (found,) = data.parts(query)
        before = len(calls)
        assert np.array_equal(found, sum(memory.parts(query)))
        del calls[before:]
        weights = weights.with_weight(step % P, 0.1 * step)
    assert sorted(calls) == [100, 200, 200, 200]  # once for every block, at the first step


def test_blocks_that_are_moved_or_computed_twice_give_the_same_bits(client):
    X, y = people()
    executor = placed(X, y > 0)
    assert isinstance(executor, DaskExecutor)
    query = GradientCoordinate(Logistic(), BoxedWeights(np.full(P + 1, 0.25), 8.0), columns=(1,))
    (wanted,) = executor.parts(query, TargetView())
    client.replicate(distributed.futures_of(executor.__dict__["_blocks"]))
    for _ in range(2):
        (found,) = executor.parts(query, TargetView())
        assert np.array_equal(found, wanted)


# ------------------------------------------------------------------------------------------ refusals
def with_value(value, column=2):
    X, y = people()
    X[300, column] = value
    return X, y


@pytest.mark.parametrize("bounds", [UNIT, None])
def test_unusable_rows_and_targets_cost_nothing(client, bounds):
    X, y = people()
    bad_y = y.copy()
    bad_y[300] = np.nan
    ledger = Ledger()
    for data, words in [
        (lazy(*with_value(np.nan)), "infinite values in column 2"),
        (lazy(X, bad_y), "y contains NaN or infinite"),
        (lazy(X, y[:-1]), "y must hold one label or number for each row"),
        ((X, lazy(X, y)[1]), "y is a Dask collection and X is not"),
        ((lazy(X)[0], lazy(X, np.column_stack([y, y]))[1]), "one-dimensional Dask array"),
        ((lazy(X)[0], frames.from_pandas(pd.Series(y), npartitions=3)), "X and y have different partitions"),
        ((lazy(X)[0], arrays.from_array(y.astype(str), chunks=200)), "one number per row"),
    ]:
        with pytest.raises(InvalidData, match=words):
            DPRidge(50.0, bounds=bounds, solver=SHORT, ledger=ledger).fit(*data)
    assert ledger.spent().n_fits == 0


def test_labels_are_refused_with_the_sentences_of_arrays(client):
    X, y = people()
    mixed = np.array([1, "a"] * (N // 2), object)
    missing = labels(2)
    missing[5] = np.nan
    for target, classes in (
        (y, None),
        (np.arange(N), None),
        (np.zeros(N), None),
        (labels(3), [0, 1]),
        (missing, None),
        (missing, [0, 1]),
        (mixed, None),
    ):
        model = DPLogisticRegression(bounds=Bounds(features=(-1, 1), classes=classes), solver=SHORT)
        sentences = []
        for data in ((X, target), lazy(X, target)):
            with pytest.raises(InvalidData) as raised:
                copy_of(model).fit(*data)
            sentences.append(str(raised.value))
        assert sentences[0] == sentences[1]


def secret(block):
    raise ValueError("Mrs. Smith")


def test_errors_of_workers_show_no_value(client):
    X, y = people()
    broken = lazy(X)[0].rechunk((200, P)).map_blocks(secret, dtype=float, meta=np.zeros((0, P)))
    with pytest.raises(InvalidData, match="could not be computed") as raised:
        DPRidge(bounds=UNIT, solver=SHORT).fit(broken, y)
    assert raised.value.__context__ is None
    assert "Smith" not in str(raised.value)


# ------------------------------------------------------------------------------------------ losses of workers
@contextmanager
def processes(n_workers=2):
    options = {"dashboard_address": ":0", "n_workers": n_workers, "threads_per_worker": 1}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield cluster, client


@pytest.mark.long
def test_a_killed_worker_changes_nothing():
    X, y = people()
    model = DPLogisticRegression(2.0, bounds=UNIT, solver=CoordinateDescent(n_rounds=3), insecure_seed=0)
    wanted = copy_of(model).fit(X, y > 0)
    with processes() as (_, client):
        victim, ledger = min(client.run(os.getpid).values()), Ledger()

        def kill(done, in_all):
            if done == in_all // 2:
                os.kill(victim, signal.SIGKILL)

        with watching(kill):
            found = copy_of(model).set_params(ledger=ledger).fit(*lazy(X, y > 0))
        assert victim not in client.run(os.getpid).values()
    assert_same(found, wanted)
    assert ledger.spent().n_fits == 1


@pytest.mark.long
def test_a_cluster_that_is_gone_is_one_sentence(monkeypatch):
    monkeypatch.setattr(dask_tasks, "LOOK", 0.5)
    monkeypatch.setattr(dask_tasks, "PATIENCE", 2.0)
    X, y = people()
    ledger = Ledger()
    with processes(1) as (cluster, _):

        def stop(done, in_all):
            if done == 1:
                cluster.scale(0)

        with watching(stop), pytest.raises(ClusterLost, match="anything that was reserved before stays spent"):
            DPRidge(1.0, bounds=UNIT, solver=SHORT, ledger=ledger).fit(*lazy(X, y))
    assert ledger.spent().n_fits == 1


def test_a_cluster_without_workers_is_one_sentence(monkeypatch):
    monkeypatch.setattr(dask_tasks, "LOOK", 0.2)
    monkeypatch.setattr(dask_tasks, "PATIENCE", 0.5)
    options = {"processes": False, "dashboard_address": ":0", "n_workers": 0}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster),
        pytest.raises(ClusterLost, match="has no workers: start some"),
    ):
        DPRidge(1.0, bounds=UNIT, solver=SHORT).fit(*lazy(*people()))


@pytest.mark.long
def test_rows_that_only_a_lost_worker_had_are_one_sentence(monkeypatch):
    monkeypatch.setattr(dask_tasks, "LOOK", 0.5)
    monkeypatch.setattr(dask_tasks, "PATIENCE", 2.0)
    X, y = people()
    ledger = Ledger()
    with processes(1) as (_, client):
        futures = client.scatter([X[:350], X[350:]])
        parts = [arrays.from_delayed(client_part, (350, P), float) for client_part in map(delayed_of, futures)]
        table, pid = arrays.concatenate(parts), next(iter(client.run(os.getpid).values()))

        def kill(done, in_all):
            if done == 1:
                os.kill(pid, signal.SIGKILL)

        with watching(kill), pytest.raises(ClusterLost, match="cannot read again"):
            DPRidge(1.0, bounds=UNIT, solver=SHORT, ledger=ledger).fit(table, y)
    assert ledger.spent().n_fits == 1


def delayed_of(future):
    from dask import delayed

    return delayed(future)


# ------------------------------------------------------------------------------------------ the contract of executors
@pytest.mark.long
def test_every_query_has_the_bits_of_one_block(client):
    def placed(X, y, scaling, height):
        rows = row_source(arrays.from_array(X, chunks=(130, 5)))
        return place(rows, y, scaling, height)

    assert check_executor(placed) > 200


def test_rows_that_are_others_when_a_block_is_made_again_are_refused(client):
    """A partition of a random source gives other people every time: some would count twice."""
    X, y = people()
    executor = placed_rows(X, y)
    assert FullGradient(Logistic(), np.zeros(P + 1)).evaluate(PlacedData(executor)).shape == (P + 1,)
    others = placed_rows(X[::-1].copy(), y)
    executor._blocks[1] = others._blocks[1]
    with pytest.raises(InvalidData, match="X changed while it was read"):
        FullGradient(Logistic(), np.zeros(P + 1)).evaluate(PlacedData(executor))


def placed_rows(X, y):
    scaling = Scaling(np.zeros(P), np.ones(P), 1.0)
    return place(row_source(lazy(X)[0]), y, scaling, 1.0)
