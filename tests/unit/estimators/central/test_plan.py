"""What a fit would release, before any data."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dperm import Bounds, DPLinearSVC, DPLogisticRegression, DPRidge
from dperm.errors import InvalidBounds, InvalidBudget, InvalidInput, Unsupported
from dperm.reporting.labels import query_label
from dperm.solvers import GradientDescent, GreedyCoordinateDescent

UNIT = Bounds(features=(-1, 1), target=(-2, 2))


def people(n=300):
    X = np.random.default_rng(0).uniform(-1, 1, (n, 4))
    return X, X[:, 0] + X[:, 1]


@pytest.mark.parametrize("bounds", [UNIT, None, Bounds(features=(-1, 1))])
@pytest.mark.parametrize("maker", [DPRidge, DPLogisticRegression, DPLinearSVC])
@pytest.mark.parametrize("solver", [GradientDescent(), GreedyCoordinateDescent(n_steps=4)], ids=["gradient", "greedy"])
def test_the_fit_keeps_the_plan(bounds, maker, solver):
    # fewer than about a thousand rows buy no range of a target at epsilon 1
    model = maker(4.0, bounds=bounds, solver=solver, neighbours="zero-out")
    X, y = people()
    if maker is not DPRidge:
        y = np.digitize(y, [-0.5, 0.5]) if maker is DPLinearSVC else y > 0
    plan = model.plan(300, 4, n_classes=3 if maker is DPLinearSVC else None)
    report = model.fit(X, y).privacy_report_
    assert plan.solver == report.public["solver"]
    assert plan.epsilon == report.guarantee.epsilon
    assert plan.budget.delta == report.guarantee.delta == 1e-5
    assert [(r.query, r.kind, r.count, r.noise_multiplier) for r in plan.releases] == [
        (r.query, r.kind, r.count, r.noise_multiplier) for r in report.releases
    ]
    assert sum(r.share for r in plan.releases) == pytest.approx(1.0)
    assert plan.bounds["features"] == report.public["bounds"]
    assert plan.bounds.get("target") == report.public.get("target_bounds")
    for release in plan.releases:
        assert f"{release.count} x {query_label(release.query)}" in str(plan)


def test_classes_come_from_the_declaration():
    bounds = Bounds(features=(-1, 1), classes=["a", "b", "c"])
    assert DPLinearSVC(bounds=bounds, solver=GradientDescent(n_steps=5)).plan(100, 2).releases[0].count == 15
    assert DPLinearSVC(bounds=UNIT, solver=GradientDescent(n_steps=5)).plan(100, 2).releases[0].count == 5


def test_warnings():
    assert "declare bounds if you can" in str(DPLogisticRegression().plan(100, 50))
    assert "several times too wide" in str(DPRidge().plan(1200, 5))
    assert not any("range" in text for text in DPRidge().plan(20_000, 5).warnings)
    assert DPRidge(bounds=UNIT).plan(10_000, 5).warnings == ()
    assert "above 1/n" in str(DPRidge(bounds=UNIT, delta=0.1).plan(100, 5))
    assert "no guarantee: insecure_seed" in str(DPRidge(bounds=UNIT, insecure_seed=0).plan(100, 5))
    printed = DPRidge(bounds=UNIT, calibration="paper", solver=GreedyCoordinateDescent(n_steps=3, rule="GS-s"))
    assert any("no guarantee" in text for text in printed.plan(100, 5).warnings)


@pytest.mark.parametrize(
    ("excess", "left", "warned"),
    [
        (0.02, "most", False),
        (0.1, "part", False),
        (0.4, "little", False),
        (0.495, "little", True),
        (0.9, "little", True),
    ],
)
def test_a_forecast_is_shown(monkeypatch, excess, left, warned):
    seen = []

    def foresee(self, objective, facts, calibrated, neighbours):
        seen.append((facts.n, facts.n_features, objective.loss.name))
        return SimpleNamespace(
            excess=excess,
            null_excess=0.5,
            basis="a theorem",
            assumptions=("a short optimum",),
            warnings=(),
            min_column_deviation=None,
        )

    monkeypatch.setattr(GradientDescent, "forecast", foresee, raising=False)
    plan = DPRidge(bounds=UNIT, solver="gradient").plan(100, 5)
    assert seen == [(100, 5, "squared")]
    assert f"the objective is expected to end {excess} above its minimum (a theorem)" in str(plan)
    assert f"left after the noise: {left} of what the columns can explain (estimate)" in str(plan)
    assert plan.share_left == pytest.approx(max(0.0, 1.0 - excess / 0.5))
    assert "assuming a short optimum" in str(plan)
    assert any("as large as what columns usually explain" in text for text in plan.warnings) == warned


@pytest.mark.parametrize(
    ("model", "arguments", "error", "words"),
    [
        (DPRidge(bounds=UNIT), (0, 5), InvalidInput, "n must be a whole number of 1 or more"),
        (DPRidge(bounds=UNIT), (10, 2.5), InvalidInput, "n_features must be a whole number"),
        (DPLinearSVC(bounds=UNIT), (10, 2, 1), InvalidInput, "n_classes must be a whole number of 2 or more"),
        (DPRidge(bounds=UNIT, epsilon=-1), (10, 2), InvalidBudget, "epsilon"),
        (DPRidge(bounds="declare"), (10, 2), InvalidBounds, r"Bounds\(features=\(\[lo, lo\], \[hi, hi\]\)"),
        (DPRidge(bounds=UNIT, solver="sgd"), (10, 2), Unsupported, "zero-out"),
    ],
)
def test_a_plan_refuses_what_a_fit_would_refuse(model, arguments, error, words):
    with pytest.raises(error, match=words):
        model.plan(*arguments)
