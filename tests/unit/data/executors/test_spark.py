"""Spark DataFrames: the same model as from memory, bit for bit, and nothing of a single person at the driver."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading

import numpy as np
import pandas as pd
import pytest
from spark_session import MARKS, frame_of

from dperm import Bounds, DPLinearSVC, DPLogisticRegression, DPRidge, DPTuner, Ledger
from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.executors.executor import Block, TargetView
from dperm.data.executors.placing import place
from dperm.data.executors.spark_cluster import KeptBlocks
from dperm.data.tables import row_source as row_sources
from dperm.data.tables.row_source import row_source
from dperm.data.tables.spark_rows import rows_and_target
from dperm.errors import InvalidData
from dperm.estimators.central.scoring import paid_score
from dperm.objective import Logistic
from dperm.queries.gradients import FullGradient
from dperm.solvers import (
    SOLVERS,
    BlockDescent,
    CoordinateDescent,
    FrankWolfe,
    GradientDescent,
    GreedyCoordinateDescent,
    Newton,
    Peel,
    StochasticGradientDescent,
    VarianceReducedDescent,
)

pytestmark = MARKS

N, P = 900, 4
NAMES = ["age", "dose", "smokes", "score"]
UNIT = Bounds(features=(-1, 1), target=(-1, 1))


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(row_sources, "BLOCK_BYTES", 8 * P * 256)


def people():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.2, 1.2, (N, P))
    return X, X[:, 0] - 0.5 * X[:, 1] + 0.1 * rng.normal(size=N)


def people_frame(spark, X, y, parts=2):
    return frame_of(spark, X, y, NAMES, parts)


@pytest.fixture(scope="module")
def numbers(spark):
    return people_frame(spark, *people()).persist()


@pytest.fixture(scope="module")
def labels(spark):
    X, y = people()
    return people_frame(spark, X, y > 0).persist()


def again(model):
    return type(model)(**model.get_params(deep=False))


def demand_same(model, frame, X, y):
    wanted, found = again(model).fit(X, y), again(model).fit(frame, "label")
    assert np.array_equal(found.coef_, wanted.coef_)
    assert np.array_equal(found.intercept_, wanted.intercept_)
    assert found.privacy_report_.releases == wanted.privacy_report_.releases
    assert found.feature_names_in_.tolist() == NAMES
    return found


SHORT = {
    "gradient": GradientDescent(n_steps=3),
    "greedy": GreedyCoordinateDescent(n_steps=3),
    "blocks": BlockDescent(n_rounds=1),
    "coordinate": CoordinateDescent(n_rounds=2),
    "frank-wolfe": FrankWolfe(n_steps=3),
    "newton": Newton(n_steps=2),
    "peel": Peel(n_steps=2),
    "sgd": StochasticGradientDescent(n_steps=4),
    "svrg": VarianceReducedDescent(n_steps=4),
}


SAMPLE = ("gradient", "coordinate")  # one that reads rows, and one that keeps something beside them


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.sample] * (one in SAMPLE)) for one in ("auto", *SOLVERS)]
)
def test_every_solver_has_the_bits_of_memory(labels, name):
    if name in ("sgd", "svrg"):
        pytest.importorskip("dp_accounting")
    X, y = people()
    options = {"penalty": "none"} if name in ("frank-wolfe", "peel", "pursuit") else {}
    model = DPLogisticRegression(
        2.0, bounds=UNIT, insecure_seed=0, solver=SHORT.get(name, name), neighbours="zero-out", **options
    )
    demand_same(model, labels, X, y > 0)


def test_three_classes(spark):
    X, y = people()
    words = np.array(["high", "low", "middle"])[np.digitize(y, [-0.4, 0.4])]
    frame = people_frame(spark, X, words).persist()
    short = GradientDescent(n_steps=2)
    for model in (
        DPLogisticRegression(2.0, bounds=UNIT, insecure_seed=0, solver=short),
        DPLinearSVC(2.0, bounds=UNIT, insecure_seed=0, solver=short),
    ):
        found = demand_same(model, frame, X, words)
        assert found.classes_.tolist() == ["high", "low", "middle"]
        assert np.array_equal(found.predict(frame.drop("label")), found.predict(pd.DataFrame(X, columns=NAMES)))


def test_regression_with_bought_bounds(numbers):
    X, y = people()
    demand_same(DPRidge(50.0, insecure_seed=0, solver=GradientDescent(n_steps=2)), numbers, X, y)


def test_boolean_columns_need_no_bounds(spark):
    X, y = people()
    frame = people_frame(spark, X, y > 0)
    frame = frame.withColumn("smokes", frame["smokes"] > 0)
    table = pd.DataFrame(X, columns=NAMES).assign(smokes=X[:, 2] > 0)
    model = DPLogisticRegression(5.0, insecure_seed=0, solver=GradientDescent(n_steps=2))
    demand_same(model, frame, table, y > 0)


@pytest.mark.sample
def test_the_ledger_holds_the_plan_and_recognises_the_data(numbers, tmp_path, monkeypatch):
    monkeypatch.setenv("DPERM_HOME", str(tmp_path))
    X, y = people()
    ledger = Ledger()
    model = DPRidge(2.0, bounds=UNIT, ledger=ledger, solver=GradientDescent(n_steps=3))
    planned = model.plan(N, P)
    model.fit(numbers, "label")
    assert [entry.count for entry in model.privacy_report_.releases] == [entry.count for entry in planned.releases]
    assert ledger.fingerprint(*rows_and_target(numbers, "label")) == ledger.fingerprint(X, y)


def test_search_and_score(numbers):
    X, y = people()
    grid, options = {"strength": [1e-3, 1.0]}, {"epsilon": 2.0, "insecure_seed": 0}
    inner = DPRidge(bounds=UNIT, solver=GradientDescent(n_steps=2))
    wanted = DPTuner(inner, grid, **options).fit(X, y)
    found = DPTuner(inner, grid, **options).fit(numbers, "label")
    assert found.best_params_ == wanted.best_params_
    model = DPRidge(2.0, bounds=UNIT, insecure_seed=0).fit(X, y).saved_model()
    named = pd.DataFrame(X, columns=NAMES)
    assert paid_score(model, numbers, "label", epsilon=1.0, insecure_seed=1) == paid_score(
        model, named.to_numpy(), y, epsilon=1.0, insecure_seed=1
    )


# ------------------------------------------------------------------------------------------ what comes back
@pytest.mark.sample
def test_nothing_of_a_person_comes_to_the_driver(labels, monkeypatch):
    """Everything that is collected during a fit is as small for 900 people as it would be for nine."""
    from pyspark import RDD

    sizes, collect = [], RDD.collect

    def measured(rdd):
        found = collect(rdd)
        sizes.append(max(len(pickle.dumps(one)) for one in found))
        return found

    monkeypatch.setattr(RDD, "collect", measured)
    for solver in (GradientDescent(n_steps=2), CoordinateDescent(n_rounds=1)):
        DPLogisticRegression(2.0, bounds=UNIT, solver=solver).fit(labels, "label")
    assert len(sizes) > 8
    assert max(sizes) < N  # less than one byte for each person


def test_many_partitions_are_added_on_the_workers(spark):
    X, y = people()
    frame = people_frame(spark, X, y, parts=17)
    model = DPRidge(2.0, bounds=UNIT, insecure_seed=0, solver=GradientDescent(n_steps=1))
    demand_same(model, frame, X, y)


def test_blocks_are_released_with_their_executor(spark):
    X, y = people()
    frame = people_frame(spark, X, y)
    stored = spark.sparkContext._jsc.getPersistentRDDs
    gc.collect()
    before = len(stored())
    scaling = Scaling(np.zeros(P), np.ones(P), 1.0)
    executor = place(*rows_and_target(frame, "label"), scaling, 1.0)
    assert len(stored()) == before + 1
    del executor
    gc.collect()
    assert len(stored()) == before


def test_jobs_are_named_and_the_names_of_others_come_back(spark, numbers):
    context = spark.sparkContext
    context.setJobDescription("mine")
    row_source(numbers)
    assert context.getLocalProperty("spark.job.description") == "mine"
    assert context.getLocalProperty("spark.jobGroup.id") is None
    context.setJobDescription(None)


# ------------------------------------------------------------------------------------------ lost workers
def workers():
    """Processes of Spark that compute in Python; they are children of a daemon that Spark started."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    command = file.read()
                with open(f"/proc/{entry}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"pyspark.daemon" in command:
                found.append((int(entry), parent))
    daemons = {pid for pid, _ in found}
    return [pid for pid, parent in found if parent in daemons and is_ours(parent)]


def is_ours(pid):
    """Whether a process descends from this one."""
    while pid > 1:
        if pid == os.getpid():
            return True
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    return False


@pytest.mark.sample
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are listed as in Linux")
def test_killed_workers_change_no_bit_and_charge_nothing_twice(labels):
    X, y = people()
    model = DPLogisticRegression(2.0, bounds=UNIT, insecure_seed=0, solver=CoordinateDescent(n_rounds=4))
    wanted = again(model).fit(X, y > 0)
    killed, done = [], threading.Event()

    def kill():
        while not done.wait(1.0):
            for pid in workers()[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            if len(killed) >= 3:
                return

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        found = again(model).fit(labels, "label")
    finally:
        done.set()
        thread.join()
    assert killed
    assert np.array_equal(found.coef_, wanted.coef_)
    assert found.privacy_report_.releases == wanted.privacy_report_.releases


def test_what_a_worker_keeps_is_bounded():
    scaling = Scaling(np.zeros(1), np.ones(1), 1.0)
    blocks = [Block(DesignMatrix.from_array(np.zeros((2, 1)), scaling), np.zeros(2), 0) for _ in range(4)]
    kept = KeptBlocks(most=20)
    kept.keep(b"a", 0, blocks[0], 10)
    kept.keep(b"a", 1, blocks[1], 10)
    kept.keep(b"a", 2, blocks[2], 10)  # no room
    assert [kept.found(b"a", k) for k in range(3)] == [blocks[0], blocks[1], None]
    kept.keep(b"b", 0, blocks[3], 10)  # a new run
    assert [kept.found(b"a", k) for k in range(2)] == [None, blocks[1]]
    assert kept.found(b"b", 0) is blocks[3]


# ------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("'Mrs. Smith'", "column 'dose' is of type string"),
        ("date'2020-01-01'", "column 'dose' is of type date"),
        ("if(age > 0, 'NaN', '1')", "column 'dose' is of type string"),
        ("if(age > 0, double('NaN'), 1.0D)", "NaN or infinite values in column 'dose'"),
        ("if(age > 0, null, 1.0D)", "NaN or infinite values in column 'dose'"),
    ],
)
@pytest.mark.parametrize("bounds", [UNIT, None])
def test_bad_columns_cost_nothing(numbers, change, words, bounds):
    from pyspark.sql.functions import expr

    ledger = Ledger()
    with pytest.raises(InvalidData, match=words):
        DPRidge(bounds=bounds, ledger=ledger).fit(numbers.withColumn("dose", expr(change)), "label")
    assert ledger.spent().epsilon == 0.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("if(age > 0, double('NaN'), 1.0D)", "y contains NaN"),
        ("if(age > 0, null, 1.0D)", "y contains missing values"),
        ("'Mrs. Smith'", "y must hold one number per row|X and y must hold numbers"),
        ("date'2020-01-01'", "the target 'label' is of type date"),
    ],
)
def test_bad_targets_are_refused_without_their_values(numbers, change, words):
    from pyspark.sql.functions import expr

    with pytest.raises(InvalidData, match=words) as caught:
        DPRidge(bounds=UNIT).fit(numbers.withColumn("label", expr(change)), "label")
    assert "Smith" not in str(caught.value)


@pytest.mark.sample
def test_y_is_the_name_of_a_column(numbers):
    for y in (people()[1], numbers.select("label"), None):
        with pytest.raises(InvalidData, match="give y as the name of a column"):
            DPRidge(bounds=UNIT).fit(numbers, y)
    with pytest.raises(InvalidData, match="X has no column named 'wage'"):
        DPRidge(bounds=UNIT).fit(numbers, "wage")


@pytest.mark.sample
def test_errors_of_spark_show_no_value(numbers):
    from pyspark.sql.functions import expr

    bad = numbers.withColumn("dose", expr("assert_true(age < 0, concat('Mrs. Smith ', age)) is null"))
    with pytest.raises(InvalidData, match="Spark could not finish the job") as caught:
        DPRidge(bounds=UNIT).fit(bad, "label")
    assert "Smith" not in str(caught.value)
    assert caught.value.__context__ is None


def test_rows_that_change_are_refused(spark, numbers):
    X, y = people()
    rows, target = rows_and_target(numbers, "label")
    scaling = Scaling(np.zeros(P), np.ones(P), 1.0)
    object.__setattr__(rows.table, "frame", people_frame(spark, X[:700], y[:700]))
    with pytest.raises(InvalidData, match="X changed while it was read"):
        rows.check()
    with pytest.raises(InvalidData, match="X changed while it was read"):
        place(rows, target, scaling, 1.0)


def test_a_lost_block_that_comes_back_with_other_rows_is_refused(spark):
    """Spark makes a lost block again from the DataFrame; a person could else be counted twice."""
    from pyspark.sql.functions import udf

    fresh = udf(lambda: float(np.random.default_rng().uniform(-1, 1)), "double").asNondeterministic()
    X, y = people()
    frame = people_frame(spark, X, y).withColumn("dose", fresh())
    executor = place(*rows_and_target(frame, "label"), Scaling(np.zeros(P), np.ones(P), 1.0), 1.0)
    query = FullGradient(Logistic(), np.zeros(P + 1))
    next(executor.parts(query, TargetView()))
    executor._blocks.unpersist(blocking=True)  # what a lost executor does
    for pid in workers():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(InvalidData, match="X changed while it was read"):
        next(executor.parts(query, TargetView()))
