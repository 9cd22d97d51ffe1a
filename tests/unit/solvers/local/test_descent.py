"""Descent in rounds: gradients and their ranges, one report per person, convergence, figures and bad input."""

from __future__ import annotations

import math
from itertools import chain

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.base import clone

from dperm import Bounds, Ledger, LocalLinearRegression, LocalLogisticRegression
from dperm.errors import InvalidBudget, InvalidInput, Unsupported
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import GradientCoordinates, LinearTask, LocalDescent, Task
from dperm.testing import ContractViolation
from dperm.testing.local import check_one_bit


def directions(n, p, rng):
    x = rng.normal(size=(n, p))
    return x / np.linalg.norm(x, axis=1, keepdims=True) * rng.uniform(0.5, 1.0, (n, 1))


def margin_records(n, w, rng):
    x = directions(n, len(w), rng)
    return x * np.where(rng.random(n) < expit(x @ w), 1.0, -1.0)[:, None]


def logistic(w, a):
    s = a @ w
    return np.logaddexp(0.0, -s).mean(), -(a * expit(-s)[:, None]).mean(axis=0)


class TestGradients:
    @pytest.mark.parametrize("loss", ["logistic", "squared"])
    def test_entries_are_those_of_the_mean_loss(self, loss):
        rng, w = np.random.default_rng(0), np.array([0.8, -0.5, 0.3])
        x, y = directions(500, 3, rng), rng.uniform(-1, 1, 500)
        records = x if loss == "logistic" else np.column_stack([x, y])
        sketch = GradientCoordinates(tuple(w), (1.0,) * 3, loss)
        found = [sketch.values(records, np.full(500, j)).mean() for j in range(3)]
        if loss == "logistic":
            assert found == pytest.approx(logistic(w, x)[1])
        else:
            assert found == pytest.approx((x * (x @ w - y)[:, None]).mean(axis=0))

    @pytest.mark.parametrize("loss", ["logistic", "squared"])
    def test_ranges_hold_and_are_not_wider_than_needed(self, loss):
        rng = np.random.default_rng(1)
        for w in ((0.0, 0.0), (2.0, -1.0), (0.1, 5.0)):
            sketch = GradientCoordinates(w, (1.0, 0.6), loss)
            x = rng.normal(size=(200_000, 2))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            x[::2] *= rng.random((100_000, 1))
            records = x if loss == "logistic" else np.column_stack([x, rng.choice([-1.0, 1.0], len(x))])
            for j in range(2):
                values = sketch.values(records, np.full(len(x), j))
                assert sketch.low[j] <= values.min()
                assert values.max() <= sketch.high[j]
                assert np.ptp(values) > 0.9 * (sketch.high[j] - sketch.low[j])

    def test_half_the_slope_bound_at_the_start(self):
        assert GradientCoordinates((0.0,), (1.0,)).high == pytest.approx([0.5])

    def test_the_report_keeps_its_epsilon_at_any_weights(self):
        task = Task("t", 1.0, GradientCoordinates((3.0, -40.0), (1.0, 1.0)))
        records = np.array([[0.0, 1.0], [0.0, -1.0], [1e300, 0.0], [np.nan, 0.0]])
        source = RandomSource(2)

        def send(which, task=task):
            return task.reports(records[which.astype(int)], source, np.ones(which.size, int)).bit

        check_one_bit(send, (0, 1, 2, 3), 1.0, n_samples=100_000)
        with pytest.raises(ContractViolation, match="claimed"):
            # a person who answers in two rounds: an observer who adds the two bits up
            check_one_bit(lambda which: send(which) & send(which), (0, 1, 2, 3), 1.0, n_samples=100_000)


def descent(p, n_rounds=40, **others):
    curvature = (0.116 / p,) * p
    return LocalDescent(**{"loss": "logistic", "epsilon": 1.0, "reach": (1.0,) * p, "radius": 2.0}
                        | {"curvatures": curvature, "n_rounds": n_rounds} | others)  # fmt: skip


class TestRounds:
    def test_everybody_is_asked_once(self, monkeypatch):
        seen = []
        plain = Task.collect

        def remember(self, records, source):
            seen.append((self.name, np.asarray(records)[:, 0]))
            return plain(self, records, source)

        monkeypatch.setattr(Task, "collect", remember)
        records = np.column_stack([np.arange(1000.0) / 1000.0, np.zeros(1000)])
        state = descent(2, 7).run(records, RandomSource(3))
        assert state.n_people == 1000
        assert sorted(np.concatenate([people for _, people in seen])) == records[:, 0].tolist()
        assert len({name for name, _ in seen}) == 7
        assert min(len(people) for _, people in seen) > 90

    def test_groups_do_not_depend_on_records(self, monkeypatch):
        groups = []
        plain = Task.collect
        monkeypatch.setattr(
            Task, "collect", lambda self, r, s: (groups.append(r[:, 1].tolist()), plain(self, r, RandomSource(0)))[1]
        )
        for seed in (1, 2):
            number = np.arange(500) / 500  # who is who, whatever the rest of the record says
            records = np.column_stack([np.random.default_rng(seed).uniform(-1, 1, 500), number])
            descent(2, 5).run(records, RandomSource(4))
        assert groups[:5] == groups[5:]
        assert sorted(chain.from_iterable(groups[:5])) == number.tolist()

    def test_a_round_computed_by_hand(self):
        """One round of a real collection, step by step."""
        one = descent(1, 2, curvatures=(0.5,))
        task = one.task(one.start())
        reports = task.reports(np.full((100_000, 1), 1.0), RandomSource(5))
        counts = task.count(reports)
        state = one.next_state(one.start(), counts)
        gradient = task.means(counts)[0]
        assert state.delay == 1.0
        assert state.weights == pytest.approx(-1.5 / 0.5 * gradient)
        assert one.estimate(state) == pytest.approx(state.weights)
        assert one.estimate(one.start()).tolist() == [0.0]
        with pytest.raises(InvalidInput, match="another task"):
            one.next_state(state, counts)
        with pytest.raises(InvalidInput, match="rounds of this descent are over"):
            one.next_state(one.next_state(state, one.task(state).no_counts()), counts)

    def test_weights_stay_in_the_ball_whatever_is_reported(self):
        one = descent(3, 5)
        state = one.start()
        for _ in range(5):
            counts = one.task(state).no_counts()
            liars = type(counts)(counts.task, counts.n + 10, counts.ones)
            state = one.next_state(state, liars)
            assert np.linalg.norm(state.weights) <= 2.0 + 1e-12
        assert np.linalg.norm(one.estimate(state)) <= 2.0 + 1e-12

    @pytest.mark.parametrize("penalty", [0.0, 0.3])
    def test_without_much_noise_it_finds_the_minimiser(self, penalty):
        rng, w = np.random.default_rng(6), np.array([1.3, -0.9])
        a = margin_records(200_000, w, rng)
        truth = minimize(
            lambda v: tuple(x + y for x, y in zip(logistic(v, a), (penalty * v @ v / 2, penalty * v), strict=True)),
            np.zeros(2),
            jac=True,
        ).x
        one = descent(2, 60, epsilon=12.0, n_levels=16, penalty=penalty, curvatures=(0.058 + penalty,) * 2)
        assert one.estimate(one.run(a, RandomSource(7))) == pytest.approx(truth, abs=0.05)

    def test_least_squares_with_an_intercept_that_is_not_penalised(self):
        rng = np.random.default_rng(8)
        x = np.column_stack([rng.uniform(-0.7, 0.7, 200_000), np.full(200_000, 0.7)])
        y = np.clip(0.5 * x[:, 0] + 0.6 * x[:, 1] + rng.normal(0, 0.1, 200_000), -1, 1)
        normal = x.T @ x / len(x) + np.diag([0.1, 0.0])
        truth = np.linalg.solve(normal, x.T @ y / len(x))
        one = descent(2, 60, loss="squared", epsilon=12.0, n_levels=16, reach=(0.7, 0.7), penalty=0.1, intercept=True,
                      curvatures=(0.26, 0.49))  # fmt: skip
        assert one.estimate(one.run(np.column_stack([x, y]), RandomSource(9))) == pytest.approx(truth, abs=0.03)

    def test_nobody_in_a_round(self):
        one = descent(2, 50)
        assert one.run(np.zeros((3, 2)), RandomSource(10)).round == 50
        assert np.isfinite(one.estimate(one.run(np.zeros((0, 2)), RandomSource(10)))).all()


@pytest.mark.parametrize(("p", "n", "reps", "most"), [(1, 10_000, 20, 6.1e-4), (2, 100_000, 8, 4.5e-4)])
def test_excess_loss_of_documented_figures(p, n, reps, most):
    """Mean excess risk at epsilon 1, relative to the largest loss."""
    w, excess = np.array([1.3, -0.9])[:p], []
    for seed in range(reps):
        a = margin_records(n, w, np.random.default_rng(seed))
        best = minimize(logistic, np.zeros(p), (a,), jac=True).fun
        one = descent(p)
        found = one.estimate(one.run(a, RandomSource(seed)))
        excess.append((logistic(found, a)[0] - best) / math.log1p(math.exp(2.0 * math.sqrt(p))))
    assert np.mean(excess) < most
    assert 0.3 < np.mean(excess) * math.log1p(math.exp(2.0 * math.sqrt(p))) / descent(p).forecast(n).excess < 2.5


class TestEstimators:
    bounds = Bounds(features=(-1, 1), target=(-1, 1))

    def people(self, n=100_000, p=3):
        rng = np.random.default_rng(11)
        X = rng.uniform(-1, 1, (n, p))
        return X, rng.random(n) < expit(2.0 * X[:, 0] + 0.3), np.clip(0.5 * X[:, 0] + 0.1 * X[:, 1], -1, 1)

    @pytest.mark.parametrize("n_levels", [2, 8])
    def test_models(self, n_levels):
        X, label, number = self.people()
        settings = {"epsilon": 2.0, "bounds": self.bounds, "solver": "sgd", "n_levels": n_levels}
        model = LocalLogisticRegression(**settings).fit(X, label)
        assert model.score(X, label) > 0.65
        assert model.privacy_report_.guarantee.epsilon == 2.0
        assert model.privacy_report_.guarantee.delta == 0.0
        assert any("one round only" in text for text in model.privacy_report_.guarantee.assumptions)
        assert model.privacy_report_.public["n_rounds"] == 40
        assert model.intervals_ is None
        assert "no intervals" in model.intervals_reason_
        assert clone(model).get_params()["solver"] == "sgd"
        assert LocalLinearRegression(**settings).fit(X, number).score(X, number) > 0.5

    def test_the_ledger_is_charged_once(self):
        X, label, _ = self.people(30_000)
        ledger = Ledger()
        LocalLogisticRegression(2.0, bounds=self.bounds, solver="sgd", ledger=ledger).fit(X, label)
        assert ledger.spent().epsilon == pytest.approx(2.0, rel=1e-6)

    def test_the_plan_refuses_too_few(self):
        X, label, _ = self.people(300, 20)
        model = LocalLogisticRegression(1.0, bounds=self.bounds, solver="sgd")
        assert model.plan(10**7, 20).hopeless is False
        with pytest.raises(Unsupported, match="too few"):
            model.fit(X, label)

    def test_fewer_people_than_moments_for_many_columns(self):
        plans = [LocalLogisticRegression(1.0, bounds=self.bounds, solver=s).plan(10**7, 30) for s in ("sgd", "moments")]
        assert plans[0].noise < 0.8 * plans[1].noise
        assert "polynomial" not in str(plans[0])
        assert "polynomial of degree 2" in str(plans[1])

    def test_refusals(self):
        X, label, _ = self.people(1000)
        model = LocalLogisticRegression(1.0, bounds=Bounds(features=(-1, 1), classes=[0, 1]), solver="sgd")
        with pytest.raises(Unsupported, match="in rounds"):
            model.task(3)
        counts = LocalLogisticRegression(1.0, bounds=model.bounds).task(3).no_counts()
        with pytest.raises(Unsupported, match="in rounds"):
            model.fit_counts(counts, 3)
        with pytest.raises(Unsupported, match="two classes or a regression"):
            clone(model).set_params(bounds=self.bounds).fit(X, np.arange(1000) % 3)
        with pytest.raises(InvalidInput, match="solver must be one of"):
            clone(model).set_params(solver="adam").fit(X, label)
        with pytest.raises(InvalidInput, match="n_rounds"):
            clone(model).set_params(n_rounds=0).fit(X, label)


def test_bad_input():
    for change in (
        {"radius": 0.0},
        {"curvatures": (1.0,)},
        {"curvatures": (0.0, 1.0)},
        {"n_rounds": True},
        {"n_rounds": 10_001},
        {"penalty": -1.0},
        {"loss": "hinge"},
        {"reach": (2.0, 1.0)},
    ):
        with pytest.raises(InvalidInput):
            descent(2, **change)
    with pytest.raises(InvalidBudget, match="one-bit report"):
        descent(2, epsilon=20.0)
    with pytest.raises(InvalidInput, match="finite"):
        GradientCoordinates((math.nan,), (1.0,))
    with pytest.raises(InvalidInput, match="one weight and one reach"):
        GradientCoordinates((1.0,), (1.0, 1.0))
    with pytest.raises(InvalidInput, match=r"^n must be a whole number"):
        descent(2).forecast(0)
    three = LinearTask("logistic", 1.0, (0.5, 0.5), 2.0, 2.0, n_outputs=3)
    with pytest.raises(Unsupported, match="two classes or a regression"):
        LocalDescent.from_linear_task(three, np.ones(2), 5)


def test_equal_numbers_of_another_kind_are_the_same_descent():
    """Else its reports would be refused, or charged a second time."""
    plain = descent(2, epsilon=1.0, version=2)
    for change in ({"epsilon": 1}, {"epsilon": np.float32(1.0)}, {"version": np.int64(2)}):
        assert descent(2, **{"epsilon": 1.0, "version": 2, **change}).digest == plain.digest
    assert descent(2, epsilon=1.0, version=3).digest != plain.digest
