"""Objective perturbation: the search is certified, the limits are trusted optima, refusals cost nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize

from dperm import Bounds, DPLogisticRegression, Ledger
from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import L1, L2, Huber, L1Ball, Logistic, Multinomial, NoPenalty, Objective, SmoothedHinge, Squared
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.objective_perturbation import PerturbedObjective
from dperm.privacy.randomness import RandomSource
from dperm.queries import QUERIES
from dperm.queries.perturbed import PeopleObjective, PerturbedMinimum
from dperm.solvers import SOLVERS, PerturbedMinimiser
from dperm.testing import ContractViolation, check_gradient_canary, check_ledger_is_plan, check_query
from dperm.testing.data import Layout, design_data

LOSSES = [Logistic(), Huber(0.5), SmoothedHinge(0.5), Squared(residual_clip=0.8)]
LAYOUTS = [
    Layout(n=40, n_features=4),
    Layout(n=40, n_features=6, sparse=True, centre=0.4, clip=0.7),
    Layout(n=40, n_features=5, row_norm=1.3, intercept=0.0),
]


def data_of(layout, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.0, layout.clip, (layout.n, layout.n_features))
    X[rng.random(X.shape) < 0.4] = 0.0
    return design_data(layout, X, rng.integers(0, 2, layout.n))


def rows_of(data):
    return np.concatenate([block * data.design.spacing for _, block in data.design.row_chunks()])


def query_of(data, loss, strength=0.05):
    strengths = np.linspace(1.0, 2.0, data.design.d) * strength * data.facts.n
    radius = 100.0 * loss.slope_bound * data.facts.row_bound / strength
    return PerturbedMinimum(loss, strengths, radius)


def objective_of(data, strength=0.5):
    return Objective(Logistic(), L2(strength), unpenalised=(data.design.n_features,))


def run(solver, objective, data, calibrated, seed=0):
    scope = Scope(calibrated, Ledger(neighbours="zero-out"), Neighbours.ZERO_OUT, "test", unbounded="seeded")
    with scope:
        holder = DataHolder(data, scope, RandomSource(seed), Neighbours.ZERO_OUT)
        return solver.solve(objective, holder, calibrated), holder


# ------------------------------------------------------------------------------------------------- the certified search
def exact_gradient(data, query, weights, linear):
    """The gradient in many digits, for the logistic, Huber and hinge slopes."""
    with mpmath.workprec(200):
        out = [
            mpmath.mpf(float(s)) * mpmath.mpf(float(w)) + mpmath.mpf(float(b))
            for s, w, b in zip(query.strengths, weights, linear, strict=True)
        ]
        for row, y in zip(rows_of(data), data.target, strict=True):
            z = mpmath.fsum(mpmath.mpf(float(x)) * mpmath.mpf(float(w)) for x, w in zip(row, weights, strict=True))
            slope = exact_slope(query.loss, z, float(y))
            out = [total + slope * mpmath.mpf(float(x)) for total, x in zip(out, row, strict=True)]
        return out


def exact_slope(loss, z, y):
    if isinstance(loss, Logistic):
        return 1 / (1 + mpmath.exp(-z)) - y
    if isinstance(loss, SmoothedHinge):
        sign = 2 * y - 1
        return -sign * min(max((1 - sign * z) / mpmath.mpf(loss.smoothing), mpmath.mpf(0)), mpmath.mpf(1))
    return min(max(z - y, -mpmath.mpf(loss.slope_bound)), mpmath.mpf(loss.slope_bound))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_slopes_are_as_exact_as_assumed(loss):
    """The one assumption on elementary functions, measured with a margin of four."""
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(0.0, s, 400) for s in (1e-3, 1.0, 5.0, 40.0)])
    with mpmath.workprec(200):
        for y in (0.0, 1.0):
            found = loss.slope(z, np.full_like(z, y))
            for one, got in zip(z, found, strict=True):
                error = abs(mpmath.mpf(float(got)) - exact_slope(loss, mpmath.mpf(float(one)), y))
                allowed = 2.0**-49 * loss.slope_bound + 2.0**-50 * loss.curvature_bound * (1.0 + abs(one))
                assert error <= allowed / 4.0


def test_a_small_strength_keeps_the_output_noise_below_that_of_the_perturbation():
    """The data's curvature shrinks the effect of b, not the output noise, which must be small even then."""
    facts = Facts(n=20_000, n_features=100, d=101, value_bound=3.0, row_bound=10.0, intercept_height=1.0)
    query = PerturbedMinimiser(1.6)._query(Objective(Logistic(), unpenalised=(100,)), facts, 1.5, math.inf)
    mechanism = query.mechanism(1.5, facts)
    sensitivity = query.zero_out_sensitivity(facts)
    lattice = mechanism.output_lattice(sensitivity, query.bound(facts), facts.d)
    assert lattice.noise_scale < 0.01 * 1.5 * sensitivity / (0.2 * facts.n)


def test_a_minimiser_that_the_noise_rules_is_not_cut_off():
    """Without data the minimiser is b over the strength: the public radius has room for the longest b drawn."""
    facts = Facts(n=100, n_features=400, d=400, value_bound=1.0, row_bound=20.0)
    query = PerturbedMinimiser(1.0)._query(Objective(Logistic(), L2(1e6)), facts, 1e4, math.inf)
    longest = 1e4 * query.zero_out_sensitivity(facts) * (math.sqrt(facts.d) + 12.0)
    assert query.radius >= longest / query.strengths.min()


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("layout", LAYOUTS, ids=["dense", "sparse", "short rows"])
def test_the_rounding_of_a_gradient_is_within_its_bound(loss, layout):
    data = data_of(layout)
    query = query_of(data, loss)
    rng = np.random.default_rng(1)
    for scale in (0.0, 1.0, 30.0):
        weights, linear = scale * rng.normal(size=data.design.d), rng.normal(size=data.design.d)
        found = PeopleObjective(data, query).gradient(weights, linear)
        exact = exact_gradient(data, query, weights, linear)
        error = math.sqrt(sum(float(f - e) ** 2 for f, e in zip(map(mpmath.mpf, found), exact, strict=True)))
        bound = query.rounding(data.facts, float(np.linalg.norm(weights)), float(np.linalg.norm(linear)))
        assert error <= bound / 4.0  # with a margin
        assert bound < 1e-9 * data.facts.n


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("layout", LAYOUTS, ids=["dense", "sparse", "short rows"])
def test_the_search_ends_where_the_true_gradient_is_small(loss, layout):
    data = data_of(layout)
    query = query_of(data, loss)
    mechanism = query.mechanism(3.0, data.facts)
    rng = np.random.default_rng(2)
    for size in (0.1, 3.0, 100.0):
        linear = size * query.zero_out_sensitivity(data.facts) * rng.normal(size=data.design.d)
        weights = PeopleObjective(data, query).minimise(linear, mechanism.precision)
        length = math.sqrt(sum(float(g) ** 2 for g in exact_gradient(data, query, weights, linear)))
        assert length <= mechanism.precision


def test_a_certified_length_counts_the_rounding_of_the_gradient():
    data = data_of(LAYOUTS[0])
    query = query_of(data, Logistic())
    weights, gradient, linear = np.random.default_rng(3).normal(size=(3, data.design.d))
    lengths = [float(np.linalg.norm(part)) for part in (weights, gradient, linear)]
    wanted = lengths[1] + query.rounding(data.facts, lengths[0], lengths[2])
    certified = PeopleObjective(data, query)._certified(weights, gradient, linear)
    assert wanted <= certified <= wanted * (1.0 + 1e-12)
    assert query.rounding(data.facts, lengths[0], lengths[2]) > 1e-14
    # for many columns the computed length may be short by as many roundings
    exact = PeopleObjective(data, query)._certified(0.0 * weights, gradient, 0.0 * linear)
    assert exact >= lengths[1] * (1.0 + data.design.d * 2.0**-53)


def test_gradient_steps_take_over_where_newton_does_not_arrive(monkeypatch):
    data = data_of(LAYOUTS[0])
    query = query_of(data, Logistic(), 0.5)
    objective = PeopleObjective(data, query)
    linear = np.ones(data.design.d)
    wanted = objective.minimise(linear, 1e-9)
    monkeypatch.setattr("dperm.queries.perturbed.NEWTON_STEPS", 0)
    np.testing.assert_allclose(objective.minimise(linear, 1e-9), wanted, atol=1e-9)


def test_many_columns_use_conjugate_gradients(monkeypatch):
    for layout in LAYOUTS:
        data = data_of(layout)
        objective = PeopleObjective(data, query_of(data, Logistic()))
        linear = np.linspace(-3.0, 3.0, data.design.d)
        wanted = objective.minimise(linear, 1e-9)
        with monkeypatch.context() as patch:
            patch.setattr("dperm.queries.perturbed.MOST_DIRECT", 0)
            np.testing.assert_allclose(objective.minimise(linear, 1e-9), wanted, atol=1e-8)


def test_an_impossible_factorisation_does_not_raise(monkeypatch):
    data = data_of(LAYOUTS[0])
    objective = PeopleObjective(data, query_of(data, Logistic(), 0.5))

    def fail(*args, **kwargs):
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr("dperm.queries.perturbed.linalg.cho_factor", fail)
    objective.minimise(np.ones(data.design.d), 1e-9)


def test_the_private_function_stays_inside():
    import pickle

    objective = PeopleObjective(data_of(LAYOUTS[0]), query_of(data_of(LAYOUTS[0]), Logistic()))
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(objective)
    with pytest.raises(TypeError, match="not an array"):
        np.asarray(objective, dtype=float)
    assert repr(objective) == "PeopleObjective(size=5)"


# -------------------------------------------------------------------------------------------- what is released
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_without_noise_it_is_the_trusted_optimum(loss):
    data = data_of(LAYOUTS[0])
    objective = Objective(loss, L2(0.3), unpenalised=(4,))
    solver = PerturbedMinimiser(curvature_part=1.0, intercept_strength=0.2)
    calibrated = CalibratedPlan(solver.plan(objective, data.facts), 1e-7, Budget(1e8, 1e-6))
    solution, _ = run(solver, objective, data, calibrated)
    X, strengths = rows_of(data), np.array([0.3, 0.3, 0.3, 0.3, 0.2])

    def value(w):
        return loss.value(X @ w, data.target).mean() + 0.5 * float(strengths @ w**2)

    best = minimize(value, np.zeros(5), method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose(solution.weights, best, atol=2e-5)


def test_the_release_is_the_minimiser_with_the_drawn_noise():
    """Same keyed stream: the weights solve the stationarity equation with the b that was drawn."""
    from dperm.privacy.mechanisms.lattice import floor_noise

    data = data_of(LAYOUTS[0])
    query = query_of(data, Logistic())
    mechanism = query.mechanism(2.0, data.facts)
    sensitivity = query.zero_out_sensitivity(data.facts)
    released = mechanism.apply(query.evaluate(data), sensitivity, query.bound(data.facts), RandomSource(5))
    spacing, scale = mechanism.linear_noise(sensitivity)
    assert spacing * scale >= 2.0 * sensitivity
    linear = (floor_noise(5, scale, RandomSource(5)) + 0.5) * spacing
    wanted = PeopleObjective(data, query).minimise(linear, 1e-7)
    lattice = mechanism.output_lattice(sensitivity, query.bound(data.facts), 5)
    assert np.abs(released - wanted).max() <= 6.0 * lattice.noise_scale
    assert lattice.noise_scale <= 2.0**-8 * 2.0 * sensitivity / mechanism.strength  # next to nothing beside b


def test_a_query_and_a_mechanism_that_do_not_fit_are_refused():
    data = data_of(LAYOUTS[0])
    query = query_of(data, Logistic())
    mechanism = query.mechanism(2.0, data.facts)
    for wrong in ({"curvature_ratio": mechanism.curvature_ratio / 2}, {"strength": mechanism.strength * 2}):
        with pytest.raises(InvalidInput, match="less strength than this release charges for"):
            replace(mechanism, **wrong).apply(query.evaluate(data), 1.0, 1.0, RandomSource(0))


def test_the_curvature_ratio_is_attained():
    """The longest row along the weakest direction: neither the features nor the intercept are forgotten."""
    facts = Facts(n=10, n_features=2, d=3, value_bound=1.0, row_bound=math.sqrt(3.0), intercept_height=1.0)
    query = PerturbedMinimum(Logistic(), np.array([2.0, 2.0, 0.5]), 1.0)
    assert query.curvature_ratio(facts) == pytest.approx(0.25 * (2.0 / 2.0 + 1.0 / 0.5), rel=1e-12)


# -------------------------------------------------------------------------------------------------- plan and refusals
FACTS = Facts(n=1000, n_features=3, d=4, value_bound=1.0, row_bound=2.0, intercept_height=1.0)


@pytest.mark.parametrize("intercept", [None, 0.005])
def test_the_smallest_strength_is_public_and_exact(intercept):
    solver = PerturbedMinimiser(0.5, extra_strength=0.0, intercept_strength=intercept)
    objective = Objective(Logistic(), unpenalised=(3,))
    smallest = solver.minimum_strength(objective, FACTS)
    (release,) = solver.plan(replace(objective, penalty=L2(smallest)), FACTS).releases
    assert math.log1p(release.curvature_ratio) == pytest.approx(0.5, rel=1e-6)
    assert math.log1p(release.curvature_ratio) <= 0.5
    with pytest.raises(Unsupported, match=f"at least {smallest:.4g}"):
        solver.plan(replace(objective, penalty=L2(0.99 * smallest)), FACTS)
    with pytest.raises(Unsupported, match="at least"):
        solver.plan(replace(objective, penalty=NoPenalty()), FACTS)
    for extra in (smallest, None):
        replace(solver, extra_strength=extra).plan(replace(objective, penalty=NoPenalty()), FACTS)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 8.0])
@pytest.mark.parametrize("intercept", [None, 5.0])
@pytest.mark.parametrize("strength", [0.0, 1e-6, 2.0])
def test_by_default_the_budget_sets_the_smallest_strength(epsilon, intercept, strength):
    """Nothing is refused; curvature takes a tenth of epsilon, or less where the penalty is strong enough by itself."""
    solver = PerturbedMinimiser(intercept_strength=intercept)
    objective = Objective(Logistic(), L2(strength) if strength else NoPenalty(), unpenalised=(3,))
    calibrated = calibrate(solver.plan(objective, FACTS), Budget(epsilon, 1e-6))
    ratio = calibrated.plan.releases[0].curvature_ratio
    part = min(0.1 * epsilon, 2.0)
    assert math.log1p(ratio) <= part * (1.0 + 1e-12)
    strengths = solver._query(objective, FACTS, 1.0, ratio).strengths / FACTS.n
    smallest = replace(solver, curvature_part=part).minimum_strength(objective, FACTS)
    assert strengths[0] == pytest.approx(max(strength, smallest), rel=1e-6)
    assert strengths[0] >= strength
    if smallest > strength:
        assert math.log1p(ratio) == pytest.approx(part)
    assert solver.minimum_strength(objective, FACTS, epsilon) == pytest.approx(smallest)
    if intercept is None:  # the formula of the docstring
        assert smallest == pytest.approx(0.25 * FACTS.row_bound**2 / (FACTS.n * math.expm1(part)))


def test_a_user_who_passes_nothing_gets_a_model():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (3000, 3))
    y = (X @ [3.0, -2.0, 1.0] > 0.0).astype(int)
    for epsilon in (0.1, 1.0):
        model = DPLogisticRegression(epsilon, bounds=Bounds((-1.0, 1.0)), solver="objective", neighbours="zero-out")
        assert model.fit(X, y).privacy_report_.guarantee.epsilon <= epsilon
    assert model.score(X, y) > 0.8


def test_strength_that_leaves_nothing_for_the_noise_is_refused_before_anything_is_reserved():
    solver = PerturbedMinimiser(extra_strength=0.0)
    weak = solver.plan(Objective(Logistic(), L2(1e-5)), FACTS)
    with pytest.raises(Unsupported, match="raise the l2 strength"):
        calibrate(weak, Budget(1.0, 1e-6))
    with pytest.raises(Unsupported, match="takes inf of epsilon"):
        calibrate(solver.plan(Objective(Logistic()), FACTS), Budget(1.0, 1e-6))


def test_an_intercept_that_is_too_weak_is_refused():
    solver = PerturbedMinimiser(0.5, intercept_strength=1e-6)
    with pytest.raises(Unsupported, match="at least inf"):
        solver.plan(Objective(Logistic(), L2(1.0), unpenalised=(3,)), FACTS)
    data = data_of(LAYOUTS[0])
    solver = PerturbedMinimiser(intercept_strength=1e-6)
    calibrated = calibrate(solver.plan(objective_of(data), data.facts), Budget(1.0, 1e-6))
    with pytest.raises(Unsupported, match="intercept_strength=1e-06 alone"):
        run(solver, objective_of(data), data, calibrated)


@pytest.mark.parametrize(
    ("objective", "word"),
    [
        (Objective(Logistic(), L1(0.1)), "no penalty or l2"),
        (Objective(Logistic(), L2(1.0), L1Ball(1.0)), "without a constraint"),
        (Objective(Multinomial(3), L2(1.0)), "one output"),
        (Objective(Squared(), L2(1.0)), "bounded slopes"),
    ],
    ids=["l1", "constraint", "several outputs", "squared"],
)
def test_what_is_not_proved_is_refused_in_the_plan(objective, word):
    with pytest.raises(Unsupported, match=word):
        PerturbedMinimiser().plan(objective, FACTS)


@pytest.mark.parametrize(
    "wrong",
    [{"curvature_part": v} for v in (0.0, -1.0, math.nan, "1")]
    + [{"extra_strength": v} for v in (-0.1, math.inf, "1", True)]
    + [{"intercept_strength": v} for v in (0.0, math.nan, "1")],
)
def test_bad_options(wrong):
    with pytest.raises(InvalidInput, match="must be"):
        PerturbedMinimiser(**wrong)


def classifier(**others):
    bounds = Bounds(features=(-1.0, 1.0), row_norm=1.0, classes=(0, 1))
    solver = PerturbedMinimiser(curvature_part=0.3, extra_strength=None)
    return DPLogisticRegression(2.0, 1e-5, bounds=bounds, solver=solver, **others)


def test_an_estimator_carries_its_guarantee():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (4000, 3))
    y = (X @ [3.0, -2.0, 1.0] + rng.logistic(0.0, 0.2, 4000) > 0.0).astype(int)
    ledger = Ledger(neighbours="zero-out")
    model = classifier(neighbours="zero-out", ledger=ledger).fit(X, y)
    report = model.privacy_report_
    assert report.guarantee.epsilon <= 2.0
    assert str(report.guarantee.neighbours) == "zero-out"
    assert model.score(X, y) > 0.9
    (line,) = report.releases
    assert (line.kind, line.count, line.forfeited) == ("objective", 1, 0)
    assert ledger.spent(delta=1e-5).epsilon <= 2.0


def test_replace_one_is_refused_before_anything_is_reserved():
    X, y = np.zeros((50, 2)), np.arange(50) % 2
    ledger = Ledger()
    with pytest.raises(Unsupported, match="proved for neighbours='zero-out' only"):
        classifier(neighbours="replace-one", ledger=ledger).fit(X, y)
    with pytest.raises(Unsupported, match="zero-out only"):
        classifier(neighbours="zero-out", ledger=ledger).fit(X, y)  # a ledger kept under replace-one
    assert ledger.spent().epsilon == 0.0


# -------------------------------------------------------------------------------------------------------- planted bugs
def test_the_solver_is_registered():
    assert SOLVERS["objective"] is PerturbedMinimiser
    assert QUERIES["perturbed minimiser"] is PerturbedMinimum


class ForgetsTheSlopeBound(PerturbedMinimum):
    def zero_out_sensitivity(self, facts):
        return 0.5 * super().zero_out_sensitivity(facts)


class ForgetsTheCurvature(PerturbedMinimum):
    def curvature_ratio(self, facts):
        return 1e-3 * super().curvature_ratio(facts)


@pytest.mark.parametrize(
    ("bug", "word"), [(ForgetsTheSlopeBound, "gradient changed"), (ForgetsTheCurvature, "curvature is outside")]
)
def test_a_query_with_wrong_numbers_is_caught(bug, word):
    with pytest.raises(ContractViolation, match=word):
        check_query(lambda rng, facts: [bug(Logistic(), np.full(facts.d, 1.0 * facts.n), 1e3)], n_random=1)


class AddsTooLittleOutputNoise(PerturbedObjective):
    """Charges for the full noise and draws half of it."""

    def linear_noise(self, sensitivity):
        spacing, scale = super().linear_noise(sensitivity)
        return spacing / 2.0, scale


class AddsTooLittleNoise(PerturbedMinimiser):
    def solve(self, objective, holder, calibrated, progress=None):
        honest = holder.release

        def release(query, mechanism, group=None):
            return honest(query, AddsTooLittleOutputNoise(**vars(mechanism)), group)

        holder.release = release
        return super().solve(objective, holder, calibrated, progress)


def test_the_canary_catches_a_perturbation_of_half_the_size():
    """With the output noise as it should be; the contract suite passes the honest solver at the same setting."""
    data = data_of(Layout(n=8, n_features=3))
    # at the weights of a strong penalty the hinge's slope is at its bound, the logistic one only half of it
    objective = Objective(SmoothedHinge(0.5), L2(20.0), unpenalised=(3,))
    with pytest.raises(ContractViolation, match="leaks more than it claims"):
        check_gradient_canary(AddsTooLittleNoise(), objective, data, n_runs=1500, budget=Budget(6.0, 1e-3))


class PlansLessCurvature(PerturbedMinimiser):
    def plan(self, objective, facts):
        plan = super().plan(objective, facts)
        return replace(plan, releases=(replace(plan.releases[0], curvature_ratio=1e-6),))


class RunsUnderAnything(PerturbedMinimiser):
    def check_neighbours(self, neighbours):
        """Forget to refuse."""


@pytest.mark.parametrize(("bug", "word"), [(PlansLessCurvature, "left its plan"), (RunsUnderAnything, "not proved")])
def test_leaving_the_plan_is_caught(bug, word):
    with pytest.raises(ContractViolation, match=word):
        check_ledger_is_plan(bug(curvature_part=3.0), Budget(2.0, 1e-6))


def test_the_noise_follows_the_budget():
    data = data_of(LAYOUTS[0])
    objective = objective_of(data)
    solver = PerturbedMinimiser()
    scales = []
    for epsilon in (1.0, 4.0):
        calibrated = calibrate(solver.plan(objective, data.facts), Budget(epsilon, 1e-6))
        scales.append(run(solver, objective, data, calibrated)[1].released[0].noise_scale)
    assert scales[0] > 2.0 * scales[1]
