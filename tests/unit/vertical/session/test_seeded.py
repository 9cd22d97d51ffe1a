"""One insecure seed through the whole runtime: Frank-Wolfe takes the central steps, and no two parties share noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.objective import Logistic, Objective
from dperm.privacy import Budget, Ledger, Neighbours, RandomSource, Scope, calibrate
from dperm.solvers.central.frank_wolfe import FrankWolfe
from dperm.testing.data import Layout
from dperm.testing.vertical import VERTICAL_EXAMPLES, facts_of, only_noise, run_vertical, vertical_problem
from dperm.vertical.methods.training import LabelHandler, TrainingHandler
from dperm.vertical.participant.tables import LabelTable, PartyTable
from dperm.vertical.session.simulate import simulate
from dperm.vertical.session.spec import RunSpec

PAIR = ("org-a", "org-b")
CLASSES = {"kind": "classes", "classes": ["no", "yes"]}


def _table(X):
    names = tuple(f"x{j}" for j in range(X.shape[1]))
    return PartyTable(X, names, Layout(n=len(X), n_features=X.shape[1]).scaling())


def _run(parts, y, tmp_path, method, **options):
    spec = RunSpec("fit-1", method, PAIR, {"delta": 1e-6, "penalty": "none", "insecure_seed": 11, **options}, True)
    parties = {
        name: TrainingHandler(name, _table(X), Ledger(), tmp_path / name) for name, X in zip(PAIR, parts, strict=True)
    }
    model = simulate(spec, LabelHandler("lab", LabelTable(y, 0.0, 1.0, CLASSES), Ledger(), None), parties)["model"]
    return [np.array(model["weights"][name]) for name in PAIR]


@pytest.mark.parametrize("epsilon", [0.5, 50.0])
def test_frank_wolfe_between_parties_takes_the_steps_of_one_holder(tmp_path, epsilon):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (300, 12))
    y = (rng.random(300) < special.expit(3.0 * X[:, 2] - 2.0 * X[:, 7])).astype(float)
    options = {"epsilon": epsilon, "n_steps": 25, "radius": 5.0, "intercept": "org-b"}
    found = np.concatenate(_run((X[:, :5], X[:, 5:]), y, tmp_path, "distributed-frank-wolfe", **options))
    data = DesignData(DesignMatrix.from_array(X, Layout(n=300, n_features=12).scaling(), 1.0), y)
    solver, objective = FrankWolfe(n_steps=25, radius=5.0), replace(Objective(Logistic()), unpenalised=(12,))
    calibrated = calibrate(solver.plan(objective, data.facts), Budget(epsilon, 1e-6))
    scope = Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "x", unbounded="seeded")
    central = solver.solve(objective, DataHolder(data, scope, RandomSource(11), Neighbours.REPLACE_ONE), calibrated)
    assert np.array_equal(found, central.weights)


def test_two_parties_with_equal_columns_add_different_noise(tmp_path):
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1.0, 1.0, (200, 3)), (rng.random(200) < 0.5).astype(float)
    options = {"epsilon": 1.0, "n_rounds": 2, "intercept": False}
    one, other = _run((X, X), y, tmp_path, "admm-sharing", **options)
    assert not np.any(one == other)
    again = _run((X, X), y, tmp_path / "again", "admm-sharing", **options)
    assert np.array_equal(one, again[0])
    assert np.array_equal(other, again[1])


def _tasks_with_gaussian_noise():
    designs, _ = vertical_problem()
    made = {name: make(facts_of(designs), Budget(1.0, 1e-6)) for name, make in VERTICAL_EXAMPLES.items()}
    return [
        name
        for name, task in made.items()  # methods without a guarantee release nothing
        if task.no_guarantee is None and any(release.kind == "gaussian" for release in task.plan().releases)
    ]


@pytest.mark.parametrize("name", _tasks_with_gaussian_noise())
def test_no_two_participants_draw_the_same_noise(name):
    """Over equal tables, with one seed: what is released is noise around zero, and all of it is different."""
    designs, y = vertical_problem(sizes={"north": (3, 0.0)})
    designs["south"] = designs["north"]
    task = VERTICAL_EXAMPLES[name](facts_of(designs), Budget(1.0, 1e-6))
    task = replace(task, **({"n_steps": 3} if hasattr(task, "n_steps") else {"n_rounds": 4}))
    drawn = []

    def watch(program):
        holder, mine = program.holder, []
        release = holder.release

        def recording(query, mechanism, group=None):
            value = release(query, mechanism, group)
            if mechanism.kind == "gaussian":
                mine.append(np.array(value))
            return value

        holder.release = recording
        drawn.append(mine)

    run_vertical(task, designs, y, seed=11, prepare=watch, observer=only_noise())
    _, north, south = drawn
    assert north
    assert len(north) == len(south)
    noise = [value.item() for mine in drawn for one in mine for value in one.ravel()]
    assert len(set(noise)) == len(noise)
