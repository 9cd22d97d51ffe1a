"""A search within one budget: its cost, what it releases, and that the checks can fail."""

from __future__ import annotations

import inspect
import math
import os
import pickle
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import integrate, stats
from scipy.optimize import minimize
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError

from dperm import Bounds, Budget, DPLasso, DPLinearSVC, DPLogisticRegression, DPRidge, DPTuner, Ledger
from dperm.data.executors.executor import TargetView
from dperm.errors import (
    BudgetRefused,
    InsecureSeedWarning,
    InvalidBounds,
    InvalidBudget,
    InvalidInput,
    LedgerNotSaved,
    PlanViolation,
    Unsupported,
)
from dperm.estimators.central import search as search_module
from dperm.estimators.central.fit import FitRun
from dperm.estimators.central.search import SearchPlan, SearchRun, plan_search
from dperm.estimators.progress import watching
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.events import Gaussian, OneOf, RepeatAndSelect, event_from_dict
from dperm.privacy.boundary import observing
from dperm.privacy.randomness import RandomSource
from dperm.solvers import GradientDescent, GreedyCoordinateDescent
from dperm.testing.canary import CanaryValues
from dperm.testing.evaluations import no_evaluations

BOUNDS = Bounds(features=(-1, 1), target=(-2, 2))
QUICK = GradientDescent(n_steps=3)
seeded = pytest.mark.filterwarnings("ignore::dperm.errors.InsecureSeedWarning")


def people(n=400, seed=0, p=4):
    X = np.random.default_rng(seed).uniform(-1, 1, (n, p))
    return X, X[:, 0] + 0.5 * X[:, 1]


def labels(n=400, seed=0):
    X, y = people(n, seed)
    return X, y > 0


def logistic(**options):
    return DPLogisticRegression(**{"bounds": Bounds(features=(-1, 1)), "solver": QUICK, **options})


def tuner(estimator=None, parameters=None, **options):
    return DPTuner(estimator or logistic(), parameters or {"strength": [1e-3, 1.0]}, **options)


# ------------------------------------------------------------------------------------------------ what it costs
@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
@pytest.mark.parametrize("estimator", [logistic(), DPLasso(bounds=BOUNDS), DPLinearSVC(solver=QUICK, bounds=BOUNDS)])
def test_the_ledger_holds_one_event_within_the_budget(estimator, neighbours):
    X, y = people()
    if is_classifier(estimator):
        y = y > 0
    ledger = Ledger(neighbours=neighbours)
    done = DPTuner(estimator, {"strength": [1e-3, 1e-1]}, epsilon=2.0, neighbours=neighbours, ledger=ledger).fit(X, y)
    guarantee = done.privacy_report_.guarantee
    assert 1.999 < guarantee.epsilon <= 2.0
    assert guarantee.delta == 1.0 / 400.0**2
    assert str(guarantee.neighbours) == neighbours
    assert ledger.spent().n_fits == 1
    before, after = (
        [event_from_dict(row["event"]) for row in ledger.entries() if row["kind"] == kind]
        for kind in ("reserve", "release")
    )
    assert before == after
    (event,) = after
    assert isinstance(event, RepeatAndSelect)
    assert (event.mean_runs, event.shape) == (4.0, 1.0)
    assert composition.epsilon(event, guarantee.delta).epsilon == guarantee.epsilon
    assert done.best_estimator_.privacy_report_ is done.privacy_report_
    assert set(done.best_params_) == {"strength"}
    assert done.best_estimator_.strength == done.best_params_["strength"]


def theorem(mu, mean, delta):
    """Papernot & Steinke's Theorem 2 for a Gaussian run and a geometric law, both orders searched, then converted."""

    def epsilon(logs):
        a, b = 1.0 + np.exp(np.clip(logs, -8.0, 8.0))
        divergence = a * mu**2 / 2 + 2 * (1 - 1 / b) * b * mu**2 / 2 + 2 * math.log(mean) / b + math.log(mean) / (a - 1)
        return divergence + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1)

    return min(minimize(epsilon, start, method="Nelder-Mead").fun for start in ([1.0, 1.0], [3.0, 3.0], [5.0, 2.0]))


def requests_of(models, X, y):
    return [(f"model {i}", model._request_for(model._training_data(X, y))) for i, model in enumerate(models)]


@pytest.mark.parametrize("mean", [2.0, 7.5, 100.0])
def test_the_accounting_is_the_theorem(mean):
    X, y = labels()
    plan = plan_search(requests_of([logistic()], X, y), 400, 4, Budget(1.0, 1e-6), mean, 0.1)
    mu = composition.mu(plan.event.base)
    assert composition.epsilon(plan.event, 1e-6).epsilon == pytest.approx(theorem(mu, mean, 1e-6), rel=5e-3)
    assert 0.995 <= theorem(mu, mean, 1e-6) <= 1.0 + 1e-6


def test_the_score_has_its_share_and_the_noise_is_that_of_the_plan():
    X, y = labels()
    for share in (0.1, 0.4):
        plan = plan_search(requests_of([logistic()], X, y), 400, 4, Budget(1.0, 1e-6), 5.0, share)
        calibrated = plan.candidates[0].prepared.calibrated
        score = composition.zcdp(Gaussian(calibrated.noise_multiplier("correct predictions")))
        assert score / composition.zcdp(plan.event.base) == pytest.approx(share, rel=1e-6)
        assert plan.candidates[0].prepared.for_solver.scale == calibrated.scale


def test_candidates_of_different_cost_are_covered_by_the_largest():
    X, y = labels()
    models = [logistic(), logistic(solver=GreedyCoordinateDescent(n_steps=3)), logistic(bounds=None)]
    plan = plan_search(requests_of(models, X, y), 400, 4, Budget(1.0, 1e-6), 5.0, 0.1)
    assert isinstance(plan.event.base, OneOf)
    assert len(plan.event.base.events) == 3
    assert 0.999 <= composition.epsilon(plan.event, 1e-6).epsilon <= 1.0
    for one, event in zip(plan.candidates, plan.event.base.events, strict=True):
        assert one.prepared.calibrated.event == event
        assert composition.epsilon(RepeatAndSelect(event, 5.0), 1e-6).epsilon <= 1.0


def test_it_costs_less_than_fitting_every_candidate():
    X, y = labels()
    plan = plan_search(requests_of([logistic()], X, y), 400, 4, Budget(1.0, 1e-6), 30.0, 0.1)
    run = composition.mu(plan.event.base)
    assert run > 1.5 * Budget(1.0, 1e-6).mu / math.sqrt(30)  # 30 fits and scores, each paid for


def exact_delta(mu, mean, epsilon):
    """Delta of the best of a geometric number of N(0, 1) or N(mu, 1) draws, the larger direction, by quadrature."""

    def log_density(x):  # of the maximum: derivative of the law's generating function at the distribution function
        return stats.norm.logpdf(x) - math.log(mean) - 2.0 * np.log1p(-(1.0 - 1.0 / mean) * stats.norm.cdf(x))

    x = np.linspace(-12.0, 12.0 + mu, 200_001)
    p, q = log_density(x), log_density(x - mu)
    assert integrate.trapezoid(np.exp(p), x) == pytest.approx(1.0, abs=1e-9)
    gains = [np.exp(a) * np.maximum(0.0, -np.expm1(epsilon + b - a)) for a, b in ((p, q), (q, p))]
    return max(integrate.trapezoid(gain, x) for gain in gains)


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-4), Budget(4.0, 1e-6)])
@pytest.mark.parametrize("mean", [3.0, 50.0])
def test_the_best_of_all_runs_keeps_the_budget_exactly(budget, mean, monkeypatch):
    X, y = labels()
    requests = requests_of([logistic()], X, y)
    honest = plan_search(requests, 400, 4, budget, mean, 0.1)
    # a run is as telling as one Gaussian release that is its own score
    assert exact_delta(composition.mu(honest.event.base), mean, budget.epsilon) <= budget.delta
    # the planted bug: calibrated as if there were one run
    monkeypatch.setattr(search_module, "RepeatAndSelect", lambda base, runs: base)
    for cached in ("_multiplier_of_a_run", "_factor"):
        monkeypatch.setattr(search_module, cached, getattr(search_module, cached).__wrapped__)
    naive = plan_search(requests, 400, 4, budget, mean, 0.1)
    assert exact_delta(composition.mu(naive.event), mean, budget.epsilon) > 1.5 * budget.delta


# ------------------------------------------------------------------------------------------------ what it releases
class Counting:
    """Stands for the runs of a search: remembers which candidate each drew, and returns made-up scores."""

    def __init__(self):
        self.drawn = []

    def __call__(self, index):
        self.drawn.append(index)
        return len(self.drawn), math.cos(37.0 * len(self.drawn))


def test_the_number_of_runs_is_geometric_and_candidates_are_uniform():
    counting = Counting()
    plan = SearchPlan(Budget(1.0, 1e-6), ("a", "b", "c"), 3.5, RepeatAndSelect(Gaussian(1.0), 3.5))
    with pytest.warns(InsecureSeedWarning):
        source = RandomSource(insecure_seed=3)
    counts, drawn = Counter(), Counter()
    for _ in range(5000):
        counting.drawn = []
        index, best = plan.best_run(source, counting)
        scores = [math.cos(37.0 * (i + 1)) for i in range(len(counting.drawn))]
        assert best == 1 + int(np.argmax(scores))
        assert index == counting.drawn[best - 1]
        counts[min(len(counting.drawn), 15)] += 1
        drawn.update(counting.drawn)
    law = stats.geom(1 / 3.5)
    expected = [*law.pmf(np.arange(1, 15)), law.sf(14)]
    assert stats.chisquare([counts[k] for k in range(1, 16)], 5000 * np.array(expected)).pvalue > 1e-3
    assert stats.chisquare(list(drawn.values())).pvalue > 1e-3
    # the check can fail: a search of mean 3 is told apart
    wrong = [*stats.geom(1 / 3).pmf(np.arange(1, 15)), stats.geom(1 / 3).sf(14)]
    assert stats.chisquare([counts[k] for k in range(1, 16)], 5000 * np.array(wrong)).pvalue < 1e-6


def blind_result(seed):
    """Search while every release is noise around zero, whatever the data."""
    with observing(CanaryValues(present=False)):
        X, y = labels(seed=seed)
        y = y ^ (seed % 2 == 0)  # the classes of one are the other way round than those of the other
        settings = {"strength": [1e-3, 0.1, 1.0, 5.0]}
        done = [tuner(parameters=settings, insecure_seed=s, expected_runs=8.0).fit(X, y) for s in range(3)]
    return [(one.best_params_, one.best_estimator_.coef_.tobytes(), one.privacy_report_.releases) for one in done]


@seeded
def test_nothing_but_releases_decides():
    assert blind_result(1) == blind_result(2)


@seeded
def test_a_score_without_noise_is_caught(monkeypatch):
    honest = SearchRun.fit_and_score

    def leaking(self, index, scope):
        solved, _ = honest(self, index, scope)
        rows = solved.rows.only_block(TargetView()).design
        return solved, float(np.mean((rows.scores(solved.weights) > 0) == self.data.target))

    monkeypatch.setattr(SearchRun, "fit_and_score", leaking)
    assert blind_result(1) != blind_result(2)


@seeded
def test_a_second_score_is_refused(monkeypatch):
    monkeypatch.setattr(search_module, "_score_noise", lambda candidate, calibrated: search_module.GaussianNoise(1e-3))
    with pytest.raises(PlanViolation, match="cost differs from the plan"):
        tuner(insecure_seed=1).fit(*labels())


@seeded
def test_ledger_and_model_do_not_reveal_the_number_of_runs(capfd):
    X, y = labels()
    shown = []
    for seed in range(4):
        done = tuner(logistic(verbose=True), insecure_seed=seed, expected_runs=6.0).fit(X, y)
        report = done.privacy_report_.to_dict()
        kept = {name: value for name, value in report["public"].items() if name not in ("strength", "support")}
        shown.append((sorted(vars(done)), sorted(vars(done.best_estimator_)), kept, report["releases"]))
    assert all(one == shown[0] for one in shown)
    assert not any("score" in name or "results" in name for name in shown[0][0] if name != "score_share")
    assert capfd.readouterr().err == ""


@seeded
def test_a_search_reports_no_progress(monkeypatch):
    """Steps that are shown could be counted, and with them the runs."""
    X, y = labels()
    told = []
    with watching(lambda done, in_all: told.append(done)):
        for bounds in (Bounds(features=(-1, 1)), None):  # declared, and bought in every run
            tuner(logistic(verbose=True, bounds=bounds), insecure_seed=3, expected_runs=6.0).fit(X, y)
        assert told == []
        logistic(insecure_seed=3).fit(X, y)
    assert told  # a plain fit reports its progress
    told.clear()
    honest = FitRun.solve
    monkeypatch.setattr(FitRun, "solve", lambda run, scope: told.append(run.request.progress) or honest(run, scope))
    with watching(lambda done, in_all: None):
        tuner(logistic(verbose=True), insecure_seed=3, expected_runs=6.0).fit(X, y)
    assert len(told) > 1
    assert set(told) == {None}


def test_the_report_lists_the_candidates():
    report = tuner().fit(*labels()).privacy_report_
    assert report.public["search"]["candidates"] == [{"strength": 1e-3}, {"strength": 1.0}]
    assert report.public["search"]["expected_runs"] == 4.0
    assert "the list of candidates does not come from these data" in report.guarantee.assumptions
    assert "the running time of the search" in report.not_covered[-1]
    assert type(report).from_json(report.to_json()) == report
    assert [line.query for line in report.releases] == ["gradient", "correct predictions"]


# ------------------------------------------------------------------------------------------------ a scikit-learn model
@seeded
def test_the_same_seed_gives_the_same_search():
    X, y = labels()
    one, two = (tuner(insecure_seed=7).fit(X, y) for _ in range(2))
    assert one.best_params_ == two.best_params_
    assert np.array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)
    assert one.privacy_report_.guarantee is None
    assert "insecure_seed" in one.privacy_report_.reason
    assert 0.999 < one.privacy_report_.planned.epsilon <= 1.0


def test_it_predicts_like_its_best_model():
    X, y = labels()
    done = tuner(epsilon=20.0).fit(X, y)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        assert np.array_equal(getattr(done, method)(X), getattr(done.best_estimator_, method)(X))
    assert done.score(X, y) == done.best_estimator_.score(X, y)
    assert done.classes_.tolist() == [False, True]
    assert done.n_features_in_ == 4
    assert is_classifier(done)
    ridge = DPTuner(DPRidge(bounds=BOUNDS), {"strength": [1e-3, 1.0]})
    assert is_regressor(ridge)
    assert not hasattr(ridge, "predict_proba")
    with pytest.raises(NotFittedError):
        ridge.predict(X)


def test_clone_and_pickle(tmp_path):
    X, y = labels()
    ledger = Ledger(tmp_path / "books.db")
    done = tuner(ledger=ledger).fit(X, y)
    again = clone(done)
    assert again.ledger is ledger
    assert not hasattr(again, "best_estimator_")
    assert again.get_params()["estimator__strength"] == done.estimator.strength
    copy = pickle.loads(pickle.dumps(done))
    assert np.array_equal(copy.predict(X), done.predict(X))
    assert copy.privacy_report_ == done.privacy_report_
    books = Ledger()
    searched = tuner(ledger=books).fit(X, y)
    with pytest.warns(LedgerNotSaved):
        assert pickle.loads(pickle.dumps(searched)).ledger is None
    assert deepcopy(searched).ledger is books
    sent = pickle.loads(pickle.dumps(tuner(ledger=Ledger())))
    with pytest.raises(InvalidInput, match="in the memory of another process"):
        sent.fit(X, y)


def test_tables_sparse_data_more_classes_and_bought_bounds():
    pandas = pytest.importorskip("pandas")
    X, y = people()
    three = np.digitize(y, [-0.5, 0.5])
    frame = pandas.DataFrame(X, columns=list("abcd"))
    done = tuner(logistic(multi_class="ovr", bounds=None), epsilon=50.0).fit(frame, three)
    assert done.feature_names_in_.tolist() == list("abcd")
    assert done.privacy_report_.public["bounds"] == "bought"
    assert done.score(frame, three) > 0.5
    assert tuner(logistic()).fit(sp.csr_array(X), three).best_estimator_.coef_.shape == (3, 4)


@seeded
def test_a_lasso_that_is_tuned_beats_a_bad_strength():
    X, y = people(4000, p=6)
    bad = DPLasso(epsilon=4.0, bounds=BOUNDS, strength=3.0, insecure_seed=0).fit(X, y).score(X, y)
    tuners = [
        DPTuner(DPLasso(bounds=BOUNDS), {"strength": [1e-4, 1e-2, 0.3, 3.0]}, epsilon=4.0, insecure_seed=seed)
        for seed in range(5)  # a single search may end before it draws a good candidate
    ]
    assert np.median([tuner.fit(X, y).score(X, y) for tuner in tuners]) > bad + 0.3


@pytest.mark.skipif("DPERM_DATA" not in os.environ, reason="DPERM_DATA names no folder of data sets")
@seeded
def test_a_tuned_strength_beats_a_bad_one_on_census_data():
    stored = np.load(Path(os.environ["DPERM_DATA"]) / "a9a.npz")
    X = sp.csr_array((stored["data"], stored["indices"], stored["indptr"]), shape=stored["shape"])[:3000]
    y = stored["y"][:3000]
    model = DPLogisticRegression(bounds=Bounds(features=(0, 1)))
    options = {"epsilon": 2.0, "neighbours": "zero-out", "insecure_seed": 2}
    bad = clone(model).set_params(strength=10.0, **options).fit(X, y).score(X, y)
    tuned = DPTuner(model, {"strength": [1e-4, 1e-2, 10.0]}, expected_runs=8.0, **options).fit(X, y)
    assert tuned.best_params_["strength"] < 10.0
    assert tuned.score(X, y) > bad + 0.02


# ------------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"parameters": {}}, InvalidInput, "must name what is searched"),
        ({"parameters": 3}, InvalidInput, "must name what is searched"),
        ({"parameters": []}, InvalidInput, "must name what is searched"),
        ({"parameters": {"strength": []}}, InvalidInput, "at least one value for 'strength'"),
        ({"parameters": {"strength": 0.1}}, InvalidInput, "at least one value for 'strength'"),
        ({"parameters": {"strength": [0.1]}}, InvalidInput, "one candidate"),
        ({"parameters": {"strenght": [0.1, 1.0]}}, InvalidInput, "no parameter 'strenght'"),
        ({"parameters": {"epsilon": [0.1, 1.0]}}, InvalidInput, "epsilon cannot be searched"),
        ({"parameters": {"ledger": [None, None]}}, InvalidInput, "ledger cannot be searched"),
        ({"parameters": {"strength": [0.1, -1.0]}}, InvalidInput, r"candidate strength=-1.0: strength"),
        ({"parameters": {"solver": ["gradient", "magic"]}}, InvalidInput, "candidate solver='magic'"),
        ({"parameters": {"penalty": ["l1", "l2"], "solver": ["newton"]}}, Unsupported, "candidate penalty='l1'"),
        ({"parameters": {"bounds": [Bounds(features=(-1, 1)), "declare"]}}, InvalidBounds, "bounds are not declared"),
        ({"estimator": logistic(epsilon=3.0)}, InvalidInput, "epsilon belongs to the search"),
        ({"estimator": logistic(neighbours="zero-out")}, InvalidInput, "neighbours belongs to the search"),
        ({"estimator": logistic(ledger=Ledger())}, InvalidInput, "ledger belongs to the search"),
        ({"estimator": logistic(calibration="paper")}, InvalidInput, "calibration='certified'"),
        ({"estimator": "lasso"}, InvalidInput, "estimator must be a private estimator"),
        ({"epsilon": -1.0}, InvalidBudget, "epsilon must be above 0"),
        ({"expected_runs": 1.0}, InvalidInput, "expected_runs must be"),
        ({"expected_runs": math.inf}, InvalidInput, "expected_runs must be"),
        ({"score_share": 1.0}, InvalidInput, "score_share must be"),
        ({"ledger": "books.db"}, InvalidInput, "ledger must be a Ledger"),
        ({"insecure_seed": "a"}, InvalidInput, "insecure_seed must be a whole number"),
    ],
)
def test_refused_before_anything_is_charged(options, kind, words):
    ledger = Ledger()
    options = {"estimator": logistic(), "parameters": {"strength": [1e-3, 1.0]}, "ledger": ledger, **options}
    with pytest.raises(kind, match=words):
        DPTuner(**options).fit(*labels())
    assert ledger.spent().n_fits == 0


def test_scores_must_be_comparable():
    X, y = people()
    with pytest.raises(InvalidBounds, match=r"target=\(lo, hi\)"):
        DPTuner(DPRidge(bounds=Bounds(features=(-1, 1))), {"strength": [1e-3, 1.0]}).fit(X, y)
    wide = Bounds(features=(-1, 1), target=(-4, 4))
    with pytest.raises(InvalidBounds, match="same target range"):
        DPTuner(DPRidge(), {"bounds": [BOUNDS, wide]}).fit(X, y)
    half = Bounds(features=(-0.5, 0.5), target=(-2, 2))
    assert DPTuner(DPRidge(), {"bounds": [BOUNDS, half]}).fit(X, y).best_params_["bounds"].target == (-2, 2)


def test_a_cap_refuses_before_the_data_are_used():
    ledger = Ledger()
    ledger.set_cap(Budget(0.5, 1e-5))
    with no_evaluations():
        with pytest.raises(BudgetRefused):
            tuner(ledger=ledger).fit(*labels())
        assert ledger.spent().n_fits == 0
        with pytest.raises(BudgetRefused, match="without a finite guarantee"), pytest.warns(InsecureSeedWarning):
            tuner(epsilon=0.1, ledger=ledger, insecure_seed=1).fit(*labels())


def test_a_search_that_fails_stays_charged_and_keeps_the_earlier_model(monkeypatch):
    ledger = Ledger()
    X, y = labels()
    done = tuner(ledger=ledger).fit(X, y)
    before = done.best_estimator_
    monkeypatch.setattr(SearchRun, "_scored", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        done.fit(X, y)
    assert done.best_estimator_ is before
    assert ledger.spent().n_fits == 2
    assert ledger.spent().reserved_unsettled == 0


def test_parameters_are_kept_as_given():
    names = set(inspect.signature(DPTuner.__init__).parameters) - {"self"}
    estimator, parameters = logistic(), {"strength": [1e-3, 1.0]}
    made = DPTuner(estimator, parameters)
    assert names == set(made.get_params(deep=False))
    assert made.estimator is estimator
    assert made.parameters is parameters


def test_nothing_is_said_of_runs_that_did_not_win(monkeypatch):
    solve, made = FitRun.solve, []

    def noting(self, scope):
        solved = replace(solve(self, scope), notes=(f"a note of run {len(made)}",))
        made.append(solved)
        return solved

    monkeypatch.setattr(FitRun, "solve", noting)
    model = DPLogisticRegression(bounds=Bounds(features=(-1, 1), classes=[0, 1]), solver="gradient")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    tuner = DPTuner(model, {"strength": [0.1, 1.0]}, epsilon=4.0, expected_runs=6.0)
    with pytest.warns() as caught:
        tuner.fit(X, (X[:, 0] > 0).astype(int))
    assert len(made) > 1  # some run lost
    assert len([one for one in caught if "a note of run" in str(one.message)]) == 1


@pytest.mark.parametrize(
    ("setting", "error"), [({"epsilon": -1.0}, InvalidBudget), ({"ledger": "budget.db"}, InvalidInput)]
)
def test_a_bad_budget_or_ledger_is_refused_before_the_data_are_looked_at(setting, error):
    model = DPLogisticRegression(bounds=Bounds(features=(-1, 1), classes=[0, 1]))
    with pytest.raises(error, match=next(iter(setting))):
        DPTuner(model, {"strength": [0.1, 1.0]}, **setting).fit(None, None)


def test_noise_of_a_score_that_cannot_be_drawn_is_refused_with_the_plan(monkeypatch):
    class Impossible:
        def noise_scale(self, *given):
            raise InvalidInput("no such noise")

    monkeypatch.setattr(search_module, "_score_noise", lambda *given: Impossible())
    model = DPLogisticRegression(bounds=Bounds(features=(-1, 1), classes=[0, 1]))
    with pytest.raises(InvalidInput, match="no such noise"):
        DPTuner(model, {"strength": [0.1, 1.0]}, epsilon=2.0).plan(500, 2)


@pytest.mark.parametrize("first", [True, False])
def test_candidates_with_and_without_an_intercept_have_designs_of_their_own(first):
    made = []

    class Seen(SearchRun):
        def search(self):
            self.scale_declared()
            made.extend(one.scaled[1].shape.intercept_height > 0.0 for one in self.fits)
            return super().search()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dperm.estimators.central.tuning.SearchRun", Seen)
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (200, 2))
        model = DPLogisticRegression(bounds=Bounds(scale=[1.0, 1.0], clip=1.0, classes=[0, 1]), solver="gradient")
        order = [first, not first]
        DPTuner(model, {"fit_intercept": order}, epsilon=4.0).fit(X, (X[:, 0] > 0).astype(int))
    assert made == order
