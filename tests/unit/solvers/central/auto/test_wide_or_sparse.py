"""The paid test between descent and pursuit: its decision, and that the plan is kept whatever it says."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dperm import Bounds, DPLogisticRegression
from dperm.errors import InvalidInput, Unsupported
from dperm.estimators.progress import watching
from dperm.objective import L1, L2, L1Ball, Logistic, Multinomial, NoPenalty, Objective
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import calibrate
from dperm.privacy.accounting.events import Gaussian, Selection
from dperm.privacy.recording import recording
from dperm.solvers import WideOrSparse
from dperm.solvers.central.auto.constants import RULE
from dperm.testing import check_gradient_canary, check_ledger_is_plan, check_non_interference
from dperm.testing.data import Layout, design_data
from dperm.testing.replay import check_recorded
from dperm.testing.solvers import problem

GROUP = WideOrSparse.group


class Pursues(WideOrSparse):
    """Releases the test and does not listen to it."""

    value = 5.0

    def _test(self, *arguments):
        super()._test(*arguments)
        return self.value


class DoesBoth(Pursues):
    value = 0.0


class Descends(Pursues):
    value = -5.0


OUTCOMES = [Pursues, DoesBoth, Descends]


@pytest.mark.parametrize("solver", OUTCOMES)
def test_every_outcome_keeps_the_contracts(solver):
    check_ledger_is_plan(solver())
    check_non_interference(solver())
    check_gradient_canary(solver(), Objective(Logistic(), L2(0.01), unpenalised=(3,)), problem(n=8), n_runs=300)


def few_of_many(rng, n=2000, p=600):
    """Five relevant columns among unrelated ones."""
    X = np.clip(rng.normal(size=(n, p)), -3.0, 3.0)
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-X[:, :5].sum(axis=1)))).astype(int)


def texts(rng, n=2000, p=3000):
    """Rows of few ones, in columns of very different frequency, all of which matter a little."""
    frequency = np.minimum(1.0, 8.0 / (np.arange(p) + 8.0))
    topic = rng.integers(2, size=n)
    tilt = np.exp(0.6 * rng.normal(size=p))
    X = rng.random((n, p)) < frequency * np.where(topic[:, None] == 1, tilt, 1.0 / tilt)
    return sp.csr_array(X.astype(np.float64)), topic


def fitted(X, y, **options):
    clip = 1.0 if sp.issparse(X) else 3.0
    bounds = Bounds(centre=0.0, scale=1.0, clip=clip, classes=[0, 1])
    model = DPLogisticRegression(bounds=bounds, neighbours="zero-out", insecure_seed=1, **options)
    with recording() as recorder:
        model.fit(X, y)
    kinds = {one.kind for one in recorder.releases if one.query == GROUP}
    return model, kinds, recorder


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_pursuit_where_few_of_many_columns_matter(penalty):
    X, y = few_of_many(np.random.default_rng(0))
    model, kinds, _ = fitted(X, y, epsilon=2.0, penalty=penalty)
    assert model.privacy_report_.public["solver"] == "wide-or-sparse"
    assert kinds == {"gaussian", "selection"}
    assert (np.abs(model.coef_[0]) > 0.0).sum() <= 40
    assert model.score(X, y) > 0.75


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_descent_where_many_columns_matter_a_little(penalty):
    X, y = texts(np.random.default_rng(0))
    model, kinds, _ = fitted(X, y, epsilon=2.0, penalty=penalty)
    assert model.privacy_report_.public["solver"] == "wide-or-sparse"
    assert kinds == {"gaussian"}
    assert model.score(X, y) > 0.7


@pytest.mark.parametrize("solver", OUTCOMES)
def test_all_planned_releases_are_used_and_counted(solver):
    X, y = few_of_many(np.random.default_rng(1), 400, 30)
    model, _, recorder = fitted(X, y, epsilon=1.0, solver=solver(n_steps=84, n_columns=7))
    line = next(line for line in model.privacy_report_.releases if line.query == GROUP)
    assert (line.count, line.forfeited) == (84, 0)
    made = [one for one in recorder.releases if one.query == GROUP]
    assert sum(one.units for one in made) == 84
    selections = [one for one in made if one.kind == "selection"]
    assert len(selections) == {Pursues: 7, DoesBoth: 3, Descends: 0}[solver]
    kinds = {(9, Selection), (3, Gaussian)} if selections else set()
    assert {(one.units, type(one.event)) for one in made if one.units > 1} == kinds
    assert np.ravel(model.n_iter_).tolist() == [84 + 48]


@pytest.mark.parametrize("solver", OUTCOMES)
def test_a_recorded_run_costs_what_it_claims(solver):
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1.0, 1.0, (60, 6)), rng.integers(2, size=60)

    def fit(X, y):
        options = {"bounds": Bounds(features=(-1, 1), classes=[0, 1]), "solver": solver(n_steps=24, n_columns=3)}
        return DPLogisticRegression(1.0, delta=1e-5, **options).fit(X, y)

    found = check_recorded(fit, X, y, n_starts=1, n_climbs=1)
    assert max(found.reached.values()) <= 1.0


def test_progress_reaches_its_end_in_every_outcome():
    X, y = few_of_many(np.random.default_rng(1), 400, 30)
    for solver in OUTCOMES:
        seen = []
        bounds = Bounds(centre=0.0, scale=1.0, clip=3.0, classes=[0, 1])
        with watching(lambda done, in_all, seen=seen: seen.append((done, in_all))):
            DPLogisticRegression(bounds=bounds, solver=solver()).fit(X, y)
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        assert seen[-1] == (2 * RULE.n_steps, 2 * RULE.n_steps)
        assert {in_all for _, in_all in seen} == {2 * RULE.n_steps}


def test_the_test_takes_its_share_from_the_gradients():
    objective, data = Objective(Logistic(), L1(0.1), unpenalised=(3,)), problem()
    solver = WideOrSparse(test_share=0.2)
    plan = {release.query: release for release in solver.plan(objective, data.facts).releases}
    assert plan["gradient sparsity"].share == 0.2
    assert sum(release.share for release in plan.values()) == pytest.approx(1.0)
    assert calibrate(solver.plan(objective, data.facts), Budget(1.0, 1e-6)).event


@pytest.mark.parametrize(
    "options",
    [{"n_columns": 1}, {"n_columns": 7}, {"n_columns": 40}, {"test_share": 0.9}, {"selection_share": 1.0}],
)
def test_bad_options_are_refused(options):
    with pytest.raises(InvalidInput):
        WideOrSparse(**options)


def test_unsupported_problems_are_refused_in_the_plan():
    facts = design_data(Layout(n=10, n_features=2, intercept=1.0), np.zeros((10, 2)), np.zeros(10)).facts
    with pytest.raises(Unsupported, match="no constraint"):
        WideOrSparse().plan(Objective(Logistic(), NoPenalty(), constraint=L1Ball(1.0)), facts)
    with pytest.raises(Unsupported, match="two classes"):
        WideOrSparse().plan(Objective(Multinomial(3)), facts)
