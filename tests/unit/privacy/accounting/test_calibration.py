"""The noise a plan gets: inside the budget, and no more than needed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dperm.errors import InvalidInput, Unsupported
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import (
    CalibratedPlan,
    Plan,
    PlannedRelease,
    _cached_scale,
    calibrate,
    clear_cache,
    smallest_scale,
)
from dperm.privacy.accounting.events import (
    ApproximateDP,
    Composed,
    Event,
    Gaussian,
    PoissonGaussian,
    Repeat,
    RepeatAndSelect,
    Selection,
)

BUDGET = Budget(1.0, 1e-6)


def plan(*groups: tuple[str, int, float], rate: float | None = None) -> Plan:
    return Plan(
        tuple(
            PlannedRelease(f"{kind} {i}", kind, count, share, rate=rate if kind == "poisson-gaussian" else None)
            for i, (kind, count, share) in enumerate(groups)
        )
    )


PLANS = {
    "one gaussian": plan(("gaussian", 1, 1.0)),
    "many gaussians": plan(("gaussian", 1000, 1.0)),
    "part of the shares": plan(("gaussian", 4, 0.25)),
    "more than all shares": plan(("gaussian", 4, 3.0), ("gaussian", 9, 5.0)),
    "laplace": plan(("laplace", 1, 1.0)),
    "laplaces": plan(("laplace", 40, 1.0)),
    "selection": plan(("selection", 1, 1.0)),
    "selections": plan(("selection", 200, 0.3)),
    "mixed": plan(("selection", 50, 0.75), ("gaussian", 50, 0.25)),
    "all": plan(("selection", 5, 0.2), ("gaussian", 7, 0.2), ("laplace", 3, 0.6)),
}


def fits(made: CalibratedPlan, factor: float = 1.0) -> bool:
    event = made.plan.at(made.scale * factor)
    return composition.epsilon(event, made.budget.delta).epsilon <= made.budget.epsilon


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("budget", [BUDGET, Budget(0.05, 1e-9), Budget(8.0, 1e-5), Budget(60.0, 1e-3)], ids=str)
def test_inside_the_budget_and_no_more_noise_than_needed(name: str, budget: Budget) -> None:
    made = calibrate(PLANS[name], budget)
    assert fits(made)
    assert not fits(made, 0.999)  # which also shows that this check can fail
    assert made.event == made.plan.at(made.scale)


def test_poisson_inside_the_budget() -> None:
    pytest.importorskip("dp_accounting")
    made = calibrate(plan(("poisson-gaussian", 100, 1.0), rate=0.1), BUDGET)
    assert fits(made)
    assert not fits(made, 0.999)
    assert made.noise_multiplier("poisson-gaussian 0") < 42.25 * 0.2  # amplified
    assert isinstance(made.release("poisson-gaussian 0").event(made.scale), PoissonGaussian)


def test_poisson_never_asks_for_a_nearly_noiseless_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    # a loss distribution at noise multiplier 0.01 has 10^9 points: none may be asked for on the way
    asked: list[float] = []

    def cheap(event: Event, delta: float) -> tuple[float, str]:
        asked.extend(leaf.noise_multiplier for leaf in composition.leaves(event))  # type: ignore[attr-defined]
        return 0.9 * composition.renyi_epsilon(event, delta), "stand-in"

    monkeypatch.setattr(composition, "upper_epsilon", cheap)
    clear_cache()
    made = calibrate(plan(("poisson-gaussian", 100, 1.0), rate=0.001), BUDGET)
    clear_cache()  # what the stand-in said is no answer for others
    assert min(asked) > 0.8 * made.noise_multiplier("poisson-gaussian 0")
    assert min(asked) > 0.4


@pytest.mark.parametrize(("n_steps", "selection", "gradient"), [(10, 25.6, 19.96), (50, 57.9, 45.17)])
def test_figures_of_greedy_steps(n_steps: int, selection: float, gradient: float) -> None:
    made = calibrate(plan(("selection", n_steps, 0.5), ("gaussian", n_steps, 0.5)), BUDGET)
    # the standard deviation of Gumbel noise of scale b is pi b / sqrt(6)
    assert made.noise_multiplier("selection 0") * math.pi / math.sqrt(6.0) == pytest.approx(selection, rel=2e-3)
    assert made.noise_multiplier("gaussian 1") == pytest.approx(gradient, rel=2e-3)


def test_default_split_figure() -> None:
    made = calibrate(plan(("selection", 10, 0.75), ("gaussian", 10, 0.25)), BUDGET)
    assert made.noise_multiplier("selection 0") * math.pi / math.sqrt(6.0) == pytest.approx(20.47, rel=2e-3)
    assert made.noise_multiplier("gaussian 1") == pytest.approx(27.65, rel=2e-3)


def test_gaussians_alone_are_exact() -> None:
    made = calibrate(PLANS["many gaussians"], BUDGET)
    assert made.noise_multiplier("gaussian 0") == pytest.approx(math.sqrt(1000) / BUDGET.mu, rel=1e-10)
    for name in ("one gaussian", "part of the shares", "more than all shares"):
        assert composition.mu(calibrate(PLANS[name], BUDGET).event) == pytest.approx(BUDGET.mu, rel=1e-10)


def test_the_closed_form_is_rounded_up_by_a_few_units_only() -> None:
    """For about every third budget the closed form misses it by rounding."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        budget = Budget(float(rng.uniform(0.1, 8.0)), float(10.0 ** rng.uniform(-9.0, -3.0)))
        counts = [int(count) for count in rng.integers(1, 200, 2)]
        plan = Plan(
            tuple(PlannedRelease(name, "gaussian", count, 0.5) for name, count in zip("ab", counts, strict=True))
        )
        unit = composition.mu(plan.at(1.0))
        assert unit is not None
        assert smallest_scale(plan, budget) == pytest.approx(unit / budget.mu, rel=1e-12)


def test_shares_are_respected() -> None:
    made = calibrate(plan(("selection", 30, 0.6), ("gaussian", 10, 0.3), ("laplace", 5, 0.1)), BUDGET)
    rho = {r.query: r.count / (2.0 * made.noise_multiplier(r.query) ** 2) for r in made.plan.releases}
    total = sum(rho.values())
    assert rho["selection 0"] / total == pytest.approx(0.6)
    assert rho["gaussian 1"] / total == pytest.approx(0.3)
    assert rho["laplace 2"] / total == pytest.approx(0.1)


@pytest.mark.parametrize("name", ["mixed", "many gaussians", "laplaces"])
def test_multiplying_all_shares_changes_nothing(name: str) -> None:
    one, two = calibrate(PLANS[name], BUDGET), calibrate(PLANS[name].scaled(0.37), BUDGET)
    for release in PLANS[name].releases:
        assert two.noise_multiplier(release.query) == pytest.approx(one.noise_multiplier(release.query), rel=3e-6)


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "selection"])
def test_noise_is_monotone_in_budget_and_count(kind: str) -> None:
    def noise(count: int, budget: Budget) -> float:
        return calibrate(plan((kind, count, 1.0)), budget).noise_multiplier(f"{kind} 0")

    assert noise(1, BUDGET) < noise(5, BUDGET) < noise(50, BUDGET)
    assert noise(5, Budget(2.0, 1e-6)) < noise(5, BUDGET) < noise(5, Budget(0.5, 1e-6))
    assert noise(5, Budget(1.0, 1e-3)) < noise(5, BUDGET) < noise(5, Budget(1.0, 1e-9))


class WithFixedCost:
    """A plan with one event that noise cannot touch."""

    def __init__(self, fixed: Event) -> None:
        self.fixed = fixed

    def at(self, scale: float) -> Event:
        return Composed((self.fixed, Repeat(Gaussian(scale), 3)))


@pytest.mark.parametrize("fixed", [ApproximateDP(0.1, 1e-5), ApproximateDP(1.5), Selection(0.5)], ids=str)
def test_impossible_plans_are_refused_in_a_sentence(fixed: Event) -> None:
    with pytest.raises(Unsupported, match="no amount of noise brings this plan to epsilon=1, delta=1e-06"):
        smallest_scale(WithFixedCost(fixed), BUDGET)


def test_a_plan_with_a_fixed_cost_that_fits() -> None:
    made = WithFixedCost(ApproximateDP(0.2, 1e-9))
    scale = smallest_scale(made, BUDGET)
    assert (
        composition.epsilon(made.at(scale), 1e-6).epsilon
        <= 1.0
        < composition.epsilon(made.at(0.999 * scale), 1e-6).epsilon
    )


class SlowlyFalling:
    """Gaussian whose multiplier is not proportional to the scale."""

    def at(self, scale: float) -> Event:
        return Gaussian(math.sqrt(scale))


class Tuned:
    """Best of several runs."""

    def at(self, scale: float) -> Event:
        return RepeatAndSelect(Repeat(Gaussian(scale), 10), 10.0)


@pytest.mark.parametrize("made", [SlowlyFalling(), Tuned()])
def test_any_event_that_falls_with_its_scale_can_be_calibrated(made: SlowlyFalling | Tuned) -> None:
    scale = smallest_scale(made, BUDGET)
    assert (
        composition.epsilon(made.at(scale), 1e-6).epsilon
        <= 1.0
        < composition.epsilon(made.at(0.999 * scale), 1e-6).epsilon
    )


def test_bad_plans_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one release"):
        Plan(())
    with pytest.raises(InvalidInput, match="only once"):
        Plan((PlannedRelease("a", "gaussian", 1), PlannedRelease("a", "laplace", 1)))
    for bad in (
        {"kind": "nothing", "count": 1},
        {"kind": "gaussian", "count": 0},
        {"kind": "gaussian", "count": 1.5},
        {"kind": "gaussian", "count": 1, "share": 0.0},
        {"kind": "gaussian", "count": 1, "rate": 0.5},
        {"kind": "poisson-gaussian", "count": 1},
    ):
        with pytest.raises(InvalidInput):
            PlannedRelease("a", **bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="no release named"):
        calibrate(PLANS["one gaussian"], BUDGET).noise_multiplier("other")


def test_a_second_calibration_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(("gaussian", 7, 0.5), ("selection", 3, 0.5))
    first = calibrate(made, BUDGET)
    asked: list[float] = []
    monkeypatch.setattr(composition, "upper_epsilon", lambda event, delta: asked.append(delta))
    again = calibrate(plan(("gaussian", 7, 0.5), ("selection", 3, 0.5)), Budget(BUDGET.epsilon, BUDGET.delta))
    assert again == first
    assert not asked


@pytest.mark.parametrize(
    "other", [{"share": 0.4}, {"count": 8}, {"kind": "laplace"}, {"replacement_ratio": 1.0}], ids=str
)
def test_only_the_same_plan_and_budget_share_a_result(other: dict[str, Any]) -> None:
    one = PlannedRelease("a", "gaussian", 7, 0.5)
    second = PlannedRelease("b", "selection", 3, 0.5)
    clear_cache()
    calibrate(Plan((one, second)), BUDGET)
    calibrate(Plan((replace(one, **other), second)), BUDGET)
    calibrate(Plan((one, second)), Budget(BUDGET.epsilon, 2.0 * BUDGET.delta))
    assert _cached_scale.cache_info().hits == 0


def test_a_curvature_left_to_the_budget_is_fixed_by_it() -> None:
    release = PlannedRelease("m", "objective", 1, curvature_ratio=math.inf, curvature_share=0.1)
    made = calibrate(Plan((release,)), Budget(2.0, 1e-6))
    assert made.plan.releases[0].curvature_ratio == pytest.approx(math.expm1(0.2))
    assert made == CalibratedPlan(Plan((release,)), made.scale, Budget(2.0, 1e-6))
    assert composition.epsilon(made.event, 1e-6).epsilon <= 2.0
    kept = calibrate(Plan((replace(release, curvature_ratio=0.01),)), Budget(2.0, 1e-6))
    assert kept.plan.releases[0].curvature_ratio == 0.01
    for wrong in (0.0, 1.0):
        with pytest.raises(InvalidInput, match="curvature_share belongs to"):
            replace(release, curvature_share=wrong)
    with pytest.raises(InvalidInput, match="curvature_share belongs to"):
        PlannedRelease("g", "gaussian", 1, curvature_share=0.5)


@pytest.mark.parametrize(("epsilon", "rate", "count"), [(30.0, 0.01, 1000), (100.0, 0.1, 200)])
def test_large_budgets_of_sampled_releases_are_used_with_few_evaluations(
    epsilon: float, rate: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one end of the bracket comes from a much looser bound, the search must not creep towards the other."""
    pytest.importorskip("dp_accounting")
    right, asked = composition.upper_epsilon, []

    def counted(event: Event, delta: float) -> tuple[float, str]:
        asked.append(event)
        return right(event, delta)

    monkeypatch.setattr(composition, "upper_epsilon", counted)
    made = plan(("poisson-gaussian", count, 1.0), rate=rate)
    scale = smallest_scale(made, Budget(epsilon, 1e-6))
    assert 0.999 * epsilon <= right(made.at(scale), 1e-6)[0] <= epsilon
    assert len(asked) <= 16
