"""The automatic rule: it chooses from public facts alone, and every estimator works with it."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

from dperm import (
    Bounds,
    DPElasticNet,
    DPHuberRegressor,
    DPLasso,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPRidge,
)
from dperm.data.design.facts import Facts
from dperm.errors import PlanViolation
from dperm.objective import (
    L1,
    L2,
    BoxPenalty,
    ElasticNet,
    Huber,
    L1Ball,
    Logistic,
    Multinomial,
    NoPenalty,
    Objective,
    SmoothedHinge,
    Squared,
)
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.solvers import Automatic, GradientDescent, SparsePursuit, WhitenedDescent, WideDescent, WideOrSparse
from dperm.solvers.central.auto.constants import RULE
from dperm.solvers.central.auto.descent import Descent
from dperm.solvers.central.auto.scales import scale_of
from dperm.testing.data import Layout, design_data

AUTO = Automatic()
LOSSES = [Logistic(), Multinomial(4), SmoothedHinge(0.5), Squared(residual_clip=1.0), Huber(0.5)]


def facts_of(n, n_features, intercept=True):
    return Facts(n, n_features, n_features + intercept, 1.0, (n_features + intercept) ** 0.5, float(intercept))


def chosen(loss, penalty, n, n_features, epsilon=1.0, neighbours=Neighbours.REPLACE_ONE, constraint=None):
    objective = Objective(loss, penalty, constraint=constraint)
    return AUTO.configured(objective, facts_of(n, n_features), Budget(epsilon, 1e-6), neighbours)


# ------------------------------------------------------------------------------------------------ the choice
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("penalty", [NoPenalty(), L2(0.1), L1(0.1), ElasticNet(0.1, 0.5)], ids=lambda p: p.name)
def test_few_columns_use_whitened_descent(loss, penalty):
    assert isinstance(chosen(loss, penalty, 50_000, 20), WhitenedDescent)


@pytest.mark.parametrize("loss", [LOSSES[0], *LOSSES[2:]], ids=lambda loss: loss.name)
@pytest.mark.parametrize("penalty", [L1(0.1), ElasticNet(0.1, 0.5)], ids=lambda p: p.name)
@pytest.mark.parametrize("n_features", [1000, 20_000])
def test_many_columns_with_an_l1_penalty_use_pursuit(loss, penalty, n_features):
    assert isinstance(chosen(loss, penalty, 1000, n_features), SparsePursuit)


@pytest.mark.parametrize("loss", [LOSSES[0], *LOSSES[2:]], ids=lambda loss: loss.name)
@pytest.mark.parametrize("penalty", [NoPenalty(), L2(0.1)], ids=lambda p: p.name)
def test_wide_data_are_not_whitened(loss, penalty):
    for n in (1000, 10**6):  # more columns than second moments are released of
        assert isinstance(chosen(loss, penalty, n, 5000), WideDescent)
    assert isinstance(chosen(loss, penalty, 4000, 800), WideDescent)  # many columns, some noise
    assert isinstance(chosen(loss, penalty, 10**6, 800), WhitenedDescent)  # many columns, hardly any noise
    assert isinstance(chosen(loss, penalty, 400, 30, 0.1), WideDescent)  # the noise of a metric exceeds any signal


def test_the_cheaper_geometry_is_chosen():
    """The metric costs noise in proportion to the squared number of columns, the other descent what it misses."""
    sizes = [chosen(Logistic(), L2(0.1), 2000, p, 0.5, Neighbours.ZERO_OUT) for p in (10, 30, 100, 300)]
    assert [isinstance(solver, WideDescent) for solver in sizes] == [False, False, True, True]
    rows = [chosen(Logistic(), L2(0.1), n, 100, 1.0, Neighbours.ZERO_OUT) for n in (300, 1500, 30_000, 300_000)]
    assert [isinstance(solver, WideDescent) for solver in rows] == [True, True, False, False]


def test_without_noise_the_metric_is_taken_however_few_rows_there_are():
    assert isinstance(chosen(Logistic(), L2(0.1), 100, 300, 1e5), WhitenedDescent)


def test_several_classes_use_the_same_rule_except_that_nothing_is_pursued():
    for penalty in (L1(0.1), L2(0.1)):
        assert isinstance(chosen(Multinomial(3), penalty, 1000, 5000), WideDescent)
    assert isinstance(chosen(Multinomial(10), L2(0.1), 1350, 64, 0.5), WideDescent)
    assert isinstance(chosen(Multinomial(4), L2(0.1), 3000, 10), WhitenedDescent)


def test_declared_short_rows_are_not_searched_for_single_columns():
    objective = Objective(Logistic(), L1(0.1))
    for n, row_bound, wanted in (
        (400, 2000**0.5, SparsePursuit),
        (400, 8.0, WideDescent),
        (2000, 2000**0.5, WideOrSparse),
        (2000, 8.0, WideDescent),
    ):
        facts = Facts(n, 2000, 2001, 1.0, row_bound, 1.0)
        assert type(AUTO.configured(objective, facts, Budget(1.0, 1e-6), Neighbours.ZERO_OUT)) is wanted


@pytest.mark.parametrize("loss", [LOSSES[0], *LOSSES[2:]], ids=lambda loss: loss.name)
@pytest.mark.parametrize("penalty", [NoPenalty(), L1(0.1), L2(1e-4)], ids=lambda p: p.name)
def test_a_test_is_paid_for_where_rows_and_columns_are_enough(loss, penalty):
    assert type(chosen(loss, penalty, 3000, 2000)) is WideOrSparse
    assert type(chosen(loss, penalty, 300, 2000)) is not WideOrSparse
    shares = [chosen(loss, penalty, n, 2000).test_share for n in (3000, 12_000)]
    assert shares[0] == pytest.approx(4.0 * shares[1])
    rule = chosen(loss, penalty, 3000, 2000)
    assert rule.n_steps % (4 * rule.n_columns) == 0


def test_all_other_problems_use_gradient_descent():
    assert isinstance(chosen(Logistic(), BoxPenalty(-1.0, 1.0), 1000, 5), GradientDescent)
    for n, n_features in ((10**5, 5), (500, 5000)):  # a constraint is never dropped
        solver = chosen(Logistic(), NoPenalty(), n, n_features, constraint=L1Ball(1.0))
        assert isinstance(solver, GradientDescent)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("penalty", [NoPenalty(), L1(0.1), L2(1e-4)], ids=lambda p: p.name)
def test_every_choice_can_be_planned(loss, penalty):
    """For all sizes and budgets the shares sum to one and the number of releases is bounded."""
    for n in (1, 2, 100, 10**4, 10**7):
        for n_features in (1, 30, 1499, 3000):
            for epsilon in (1e-3, 0.1, 1.0, 100.0):
                for neighbours in Neighbours:
                    solver = chosen(loss, penalty, n, n_features, epsilon, neighbours)
                    plan = solver.plan(Objective(loss, penalty), facts_of(n, n_features))
                    assert sum(release.share for release in plan.releases) == pytest.approx(1.0)
                    assert sum(release.count for release in plan.releases) <= 310


def test_the_choice_does_not_depend_on_the_data():
    """Two data sets with equal facts give the same choice."""
    layout = Layout(n=30, n_features=3)
    rng = np.random.default_rng(0)
    one = design_data(layout, rng.normal(size=(30, 3)), rng.integers(0, 2, 30))
    two = design_data(layout, np.zeros((30, 3)), np.zeros(30))
    assert one.facts == two.facts
    budget = Budget(1.0, 1e-6)
    for loss in LOSSES:
        objective = Objective(loss, L2(0.1))
        choices = {AUTO.configured(objective, d.facts, budget, Neighbours.ZERO_OUT) for d in (one, two, one)}
        assert len(choices) == 1


def test_choices_are_more_cautious_with_more_noise():
    noisy, quiet = (
        AUTO._whitened(Logistic(), facts_of(n, 20), Budget(e, 1e-6).mu, Neighbours.REPLACE_ONE)
        for n, e in ((200, 0.1), (10**6, 1.0))
    )
    assert noisy.noise_fraction > 0.9 > 0.1 > quiet.noise_fraction
    scale = scale_of(Logistic())
    assert scale.clip_at(noisy.noise_fraction) < scale.clip_at(quiet.noise_fraction)
    descents = [Descent.planned(scale, fraction, 1.0, 1.0, 48, 0.0) for fraction in (1.0, 0.0)]
    assert [descent.n_averaged for descent in descents] == [1, 24]


def test_the_target_share_balances_the_noise_of_intercept_and_columns():
    """With many rows the share depends on the number of coordinates alone, within the limits of the recipe."""
    many = 10**6
    for loss in (Logistic(), Squared()):
        shares = [chosen(loss, L2(0.1), many, p, 1.0).target_share for p in (2, 9, 99, 1400)]
        assert shares[0] == RULE.most_target_share
        assert shares[1] == pytest.approx(2.0 / 12.0)
        assert shares[2:] == [RULE.small_share] * 2
    # very few rows: most of the budget, because no column can be distinguished from noise
    tiny = [chosen(Squared(), L1(0.1), n, 2, 0.1).target_share for n in (4000, 20)]
    assert tiny == [RULE.most_target_share, 2.0 * RULE.most_target_share]
    several = chosen(Multinomial(8), L2(0.1), many, 19, 1.0)
    assert several.target_share == pytest.approx(4.0 / 24.0)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_shares_leave_a_tenth_for_the_gradients_for_any_number_of_rows(loss):
    rows = (1, 10, 30, 100, 150, 200, 250, 300, 400, 500, 1000, 10**4)
    for n, p, intercept, epsilon in itertools.product(
        rows, (1, 2, 5), (False, True), (0.001, 0.07, 0.1, 0.3, 4.0, 60.0)
    ):
        facts, budget = facts_of(n, p, intercept), Budget(epsilon, 1e-6)
        rule = AUTO.configured(Objective(loss, L2(0.1)), facts, budget, Neighbours.ZERO_OUT)
        metric = rule.refit_share if isinstance(rule, WideDescent) else rule.moment_share
        assert rule.target_share + rule.deviation_share + rule.length_share + metric < 0.89


def test_pursuit_gives_the_target_mean_a_minimum_share():
    """With many columns the balanced share would be almost zero."""
    shares = [chosen(loss, L1(0.1), 600, 5000, 1.0).target_share for loss in (Logistic(), Squared())]
    assert min(shares) >= RULE.small_share


def test_pursuit_takes_more_steps_with_more_budget():
    rules = [chosen(Logistic(), L1(0.1), 1000, 1000, epsilon) for epsilon in (1e-3, 0.5, 2.0, 8.0)]
    counts = [rule.n_columns if isinstance(rule, WideOrSparse) else rule.n_steps for rule in rules]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] <= RULE.most_steps // 4
    assert [isinstance(rule, SparsePursuit) for rule in rules] == [True, True, True, False]


def test_the_rule_itself_neither_plans_nor_solves():
    with pytest.raises(PlanViolation, match="configured with a budget"):
        AUTO.plan(Objective(Logistic()), facts_of(10, 2))
    with pytest.raises(PlanViolation, match="configured with a budget"):
        AUTO.solve(Objective(Logistic()), None, None)


# --------------------------------------------------------------------------------------- through estimators
def table(seed=0, n=4000):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return X, X @ np.array([1.5, -1.0, 0.5, 0.0, 0.0]) + 0.3 * rng.normal(size=n)


BOUNDS = Bounds(centre=0.0, scale=1.0, clip=3.0)
WITH_TARGET = Bounds(centre=0.0, scale=1.0, clip=3.0, target=(-8.0, 8.0))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("make", [DPLogisticRegression, DPLinearSVC], ids=lambda c: c.__name__)
@pytest.mark.parametrize("penalty", ["none", "l1", "l2", "elastic-net"])
def test_estimators_with_two_classes(make, penalty, fit_intercept):
    X, z = table()
    model = make(epsilon=2.0, bounds=BOUNDS, penalty=penalty, fit_intercept=fit_intercept, insecure_seed=0)
    assert model.fit(X, z > 0.0).score(X, z > 0.0) > 0.9
    assert fit_intercept or not model.intercept_.any()
    assert model.privacy_report_.planned.epsilon <= 2.0


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
def test_estimators_with_three_classes(fit_intercept, neighbours):
    X, z = table()
    y = np.digitize(z, [-1.0, 1.0])
    model = DPLogisticRegression(
        epsilon=4.0, bounds=BOUNDS, fit_intercept=fit_intercept, neighbours=neighbours, insecure_seed=0
    )
    assert model.fit(X, y).score(X, y) > max(np.bincount(y)) / len(y) + 0.15
    assert model.coef_.shape == (3, 5)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    "make", [DPLinearRegression, DPRidge, DPLasso, DPElasticNet, DPHuberRegressor], ids=lambda c: c.__name__
)
def test_regression_estimators(make, fit_intercept):
    X, z = table()
    model = make(epsilon=2.0, bounds=WITH_TARGET, fit_intercept=fit_intercept, insecure_seed=0)
    assert model.fit(X, z).score(X, z) > 0.85


@pytest.mark.parametrize("make", [DPLogisticRegression, DPLinearSVC, DPRidge, DPLasso], ids=lambda c: c.__name__)
def test_estimators_with_bought_bounds(make):
    X, z = table()
    y = z > 0.0 if make in (DPLogisticRegression, DPLinearSVC) else z
    assert make(epsilon=4.0, insecure_seed=0).fit(X, y).score(X, y) > 0.6


@pytest.mark.parametrize("make", [DPLogisticRegression, DPRidge, DPLasso, DPLinearSVC], ids=lambda c: c.__name__)
@pytest.mark.parametrize(("n", "n_features"), [(2, 1), (3, 40)])
def test_few_rows_give_finite_predictions(make, n, n_features):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, n_features)), np.arange(n) % 2
    bounds = Bounds(features=(-1, 1), target=(0, 1) if make in (DPRidge, DPLasso) else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(epsilon=0.5, bounds=bounds, insecure_seed=0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()


def test_labels_of_pure_noise_give_small_weights():
    """At a small budget accuracy is that of guessing, and weights are small."""
    accuracies, sizes = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(1000, 10)), rng.integers(0, 2, 1000)
        fresh, truth = rng.normal(size=(2000, 10)), rng.integers(0, 2, 2000)
        model = DPLogisticRegression(epsilon=0.1, bounds=BOUNDS, insecure_seed=seed).fit(X, y)
        accuracies.append(model.score(fresh, truth))
        sizes.append(np.linalg.norm(model.coef_))
    error = np.std(accuracies, ddof=1) / np.sqrt(20)
    assert abs(np.mean(accuracies) - 0.5) <= 3.0 * error
    # predicted probabilities of a typical person stay near one half
    assert np.median(sizes) < 0.3
