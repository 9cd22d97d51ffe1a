"""The contracts of whole fits on a Dask cluster: nothing shows but releases, replays agree, the ledger is the plan."""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dperm import Bounds, DPLinearRegression, DPLogisticRegression, Ledger
from dperm.data.executors.dask_cluster import DaskExecutor
from dperm.data.executors.executor import Block
from dperm.data.executors.placing import place
from dperm.data.holding.holder import DryRunHolder, added
from dperm.data.tables.dask_tasks import Cluster
from dperm.data.tables.row_source import row_source
from dperm.errors import PlanViolation
from dperm.estimators.central import fit as fit_module
from dperm.estimators.central.base import prepare_fit
from dperm.objective import Logistic
from dperm.privacy.accounting import composition
from dperm.queries import FullGradient
from dperm.solvers import SOLVERS, CoordinateDescent, GradientDescent, GreedyCoordinateDescent
from dperm.solvers.central.auto.whitened import WhitenedDescent
from dperm.testing import ContractViolation, check_recorded, check_whole_path
from dperm.testing.executors import check_executor
from dperm.testing.whole_path.cases import whole_path_cases
from dperm.testing.whole_path.tables import Table

distributed = pytest.importorskip("distributed")
arrays = pytest.importorskip("dask.array")
pytest.importorskip("dp_accounting")

N = 45
RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (N, 3))
LABELS = (X[:, 0] + 0.5 * RNG.normal(size=N) > 0.0).astype(float)
NUMBERS = np.clip(X[:, 0] + 0.2 * RNG.normal(size=N), -1.0, 1.0)
CLASSES = Bounds(features=(-1, 1), classes=[0.0, 1.0])
RANGE = Bounds(features=(-1, 1), target=(-1, 1))
SHORT = GradientDescent(n_steps=3)


@pytest.fixture(scope="module")
def client():
    options = {"processes": False, "dashboard_address": ":0", "n_workers": 2, "threads_per_worker": 1}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as made:
        yield made


@pytest.fixture
def processes():
    options = {"dashboard_address": ":0", "n_workers": 2, "threads_per_worker": 1}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as made:
        yield made


def lazy(X, y):
    """The same people on the cluster, in three blocks; the target has other chunks."""
    chunk = -(-len(y) // 3)
    return Table(arrays.from_array(X, chunks=(chunk, 2)), arrays.from_array(y, chunks=chunk // 2))


def check_on_cluster(name, levels=("steady",)):
    """Check a case of the whole matrix with its tables on the cluster; to bound the time, two of them."""
    case = whole_path_cases()[name]
    assert not case.refused()
    tables = case.tables()
    check_whole_path(
        lambda table, folder: case.run(lazy(*table), folder),
        {kind: tables[kind] for kind in ("usual", "strange")},
        levels=levels,
        fields_are_public=case.fields_are_public,
        owner_only=case.owner_only,
    )


# ------------------------------------------------------------------------------------------ nothing but releases shows
CASES = [
    "DPLogisticRegression",
    "DPLogisticRegression by greedy",
    "DPLogisticRegression by coordinate",
    "DPLogisticRegression by objective",
    "three classes",
    "labels not declared",
    "bought features",
    "paid accuracy",
    "known table, fit",
]


@pytest.mark.parametrize("name", CASES)
def test_a_fit_shows_nothing_but_releases(client, name):
    check_on_cluster(name)


def test_two_processes_show_nothing_but_releases(processes):
    check_on_cluster("DPLogisticRegression by newton", ("mixed",))


# ------------------------------------------------------------------------------------------ record and replay
RECORDED = {
    "gradient": (DPLogisticRegression(0.4, 1e-5, bounds=CLASSES, solver=SHORT), LABELS),
    "greedy": (DPLogisticRegression(0.4, 1e-5, bounds=CLASSES, solver=GreedyCoordinateDescent(n_steps=3)), LABELS),
    "coordinate": (DPLogisticRegression(0.4, 1e-5, bounds=CLASSES, solver=CoordinateDescent(n_rounds=1)), LABELS),
    "auto": (DPLinearRegression(1.0, 1e-5, bounds=RANGE), NUMBERS),
}


def recorded(model, y, **options):
    tries = {"n_starts": 1, "n_climbs": 0, "check_noise": False} | options
    return check_recorded(lambda X, y: model.fit(*lazy(X, y)), X, y, **tries)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_fit_has_its_sensitivities(client, name):
    model, y = RECORDED[name]
    found = recorded(model, y)
    assert found.total.lower <= found.claim.epsilon
    assert max(found.reached.values()) > 0.4


# ------------------------------------------------------------------------------------------ the ledger is the plan
@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_the_ledger_is_the_plan(client, monkeypatch, solver):
    scopes = []
    honest = fit_module.check_settled
    monkeypatch.setattr(fit_module, "check_settled", lambda scope: scopes.append(scope) or honest(scope))
    neighbours = "replace-one"
    if solver != "auto":
        neighbours = str(SOLVERS[solver].supported_neighbours[0])
        made = SOLVERS[solver]()
        few = {"n_steps": 3, "n_rounds": 1, "n_passes": 1, "n_inner": 2}
        if solver == "wide-or-sparse":  # its steps are a multiple of its columns
            solver = made.shortened(3)
        else:
            solver = replace(made, **{part: n for part, n in few.items() if hasattr(made, part)})
    ledger = Ledger(neighbours=neighbours)
    short = Bounds(features=(-1, 1), classes=[0.0, 1.0], row_norm=1.0)
    model = DPLogisticRegression(2.0, 1e-5, bounds=short, solver=solver, neighbours=neighbours, ledger=ledger)
    planned = prepare_fit(model, *X.shape)
    model.fit(*lazy(X, LABELS))
    (scope,) = scopes
    made = Counter(event for record in scope.records for event in composition.leaves(record.event))
    assert made == Counter(composition.leaves(planned.calibrated.event))
    assert ledger.spent().n_fits == 1
    assert ledger.spent(delta=1e-5).epsilon <= 2.0 + 1e-9


# ------------------------------------------------------------------------------------------ planted bugs
def placed_data(holder):
    """The data of a holder on the cluster, through the memory of the interpreter."""
    return inspect.getclosurevars(holder._DataHolder__release).nonlocals["data"]


def solved_with(monkeypatch, bug):
    """Let ``bug(solution, data)`` have the last word of the automatic rule."""
    honest = WhitenedDescent.solve

    def solve(self, objective, holder, calibrated, progress=None):
        solution = honest(self, objective, holder, calibrated, progress)
        return solution if isinstance(holder, DryRunHolder) else bug(solution, placed_data(holder))

    monkeypatch.setattr(WhitenedDescent, "solve", solve)


def exact(weights):
    return FullGradient(Logistic(), weights)


def test_an_exact_gradient_in_the_automatic_rule_is_found(client, monkeypatch):
    """Its parts are added without a release, so that no evaluation is counted either."""

    def add(solution, data):
        return replace(solution, weights=solution.weights + 1e-9 * added(data.parts(exact(solution.weights))))

    solved_with(monkeypatch, add)
    with pytest.raises(ContractViolation, match=r"\['coef_'\]"):
        check_on_cluster("DPLogisticRegression")


def test_an_evaluation_that_is_not_charged_is_found(client, monkeypatch):
    solved_with(monkeypatch, lambda solution, data: exact(solution.weights).evaluate(data) is None or solution)
    with pytest.raises(ContractViolation, match="queries were evaluated"):
        check_on_cluster("DPLogisticRegression")


def test_a_part_with_a_number_per_person_ends_the_fit(client, monkeypatch):
    monkeypatch.setattr(FullGradient, "part", lambda self, block: block.design.scores(np.ones(block.design.d)))
    model = DPLogisticRegression(2.0, bounds=CLASSES, solver=SHORT)
    with pytest.raises(PlanViolation, match="nothing of it was sent"):
        model.fit(*lazy(X, LABELS))
    with pytest.raises(ContractViolation, match="was refused"):
        check_on_cluster("DPLogisticRegression by gradient")


def test_a_part_of_the_right_size_with_raw_scores_is_found(client, monkeypatch):
    """As many numbers as were declared, but one of them is a sum that is not clipped."""
    honest = FullGradient.part

    def part(self, block):
        found = honest(self, block)
        found[0] += 64.0 * block.design.scores(np.ones(block.design.d)).sum()
        return found

    monkeypatch.setattr(FullGradient, "part", part)
    with pytest.raises(ContractViolation, match="exceeds its public bound"):
        recorded(*RECORDED["gradient"])


def placed(X, y, scaling, height):
    return place(row_source(arrays.from_array(X, chunks=(130, 5))), y, scaling, height)


@pytest.mark.parametrize("bug", ["lost", "twice"])
def test_a_block_that_is_lost_or_counts_twice_is_found(client, monkeypatch, bug):
    honest = Cluster.sum_of_kept

    def planted(self, name, function, blocks, digests, constants=()):
        chosen = [*range(len(blocks) - 1)] if bug == "lost" else [*range(len(blocks)), len(blocks) - 1]
        return honest(
            self, name, function, *([one[k] for k in chosen] for one in (blocks, digests)), constants=constants
        )

    monkeypatch.setattr(Cluster, "sum_of_kept", planted)
    with pytest.raises(ContractViolation, match="another value on the executor"):
        check_executor(placed, every=20)


def test_a_block_that_counts_twice_breaks_a_sensitivity(client, monkeypatch):
    honest = Block.part
    monkeypatch.setattr(Block, "part", lambda self, work, view: 2.0 * honest(self, work, view))
    with pytest.raises(ContractViolation, match="times what its sensitivity allows"):
        recorded(*RECORDED["gradient"])


def test_a_digest_in_the_log_is_found(client, monkeypatch):
    """Whoever reads the log could compare tables."""
    honest = DaskExecutor.__init__

    def make(self, *data):
        honest(self, *data)
        logging.getLogger("dperm").debug("placed %s", self.__dict__["_digests"][0].hex())

    monkeypatch.setattr(DaskExecutor, "__init__", make)
    with pytest.raises(ContractViolation, match="log records"):
        check_on_cluster("DPLogisticRegression by gradient")
