"""Every way to declare bounds, every way to get it wrong, and bounds that are bought."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from dperm import Bounds, DPLogisticRegression, Ledger
from dperm.data.design.bounds import QuantilePurchase, default_quantile_grid, range_scaling
from dperm.data.holding.holder import DataHolder
from dperm.data.holding.table_data import TableData
from dperm.errors import InvalidBounds
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.randomness import RandomSource
from dperm.queries import FullGradient
from dperm.queries.quantiles import buy_scaling, rank_error, with_purchase


def sentence(raised):
    text = str(raised.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


# ------------------------------------------------------------------------------------------ declared
@pytest.mark.parametrize(
    ("bounds", "centre", "scale"),
    [
        (Bounds(features=(0, 10)), [5, 5], [5, 5]),
        (Bounds(features=[-1, 3]), [1, 1], [2, 2]),
        (Bounds(features=([0, 20], [10, 40])), [5, 30], [5, 10]),
        (Bounds(features=(0, np.array([2.0, 4.0]))), [1, 2], [1, 2]),
        (Bounds(features=({"a": 0, "b": 20}, {"b": 40, "a": 10})), [5, 30], [5, 10]),
        (Bounds(features=({"a": 0, "b": 20}, 40)), [20, 30], [20, 10]),
        (Bounds(features=(np.float32(0), np.int8(4))), [2, 2], [2, 2]),
        (Bounds(centre=3, scale=2, clip=5), [3, 3], [2, 2]),
        (Bounds(scale=[2, 4], clip=1), [0, 0], [2, 4]),
        (Bounds(centre={"a": 1, "b": 2}, scale={"a": 3, "b": 4}, clip=1), [1, 2], [3, 4]),
    ],
)
def test_ways_to_declare(bounds, centre, scale):
    scaling = bounds.scaling(2, ["a", "b"])
    assert scaling.centre.tolist() == centre
    assert scaling.scale.tolist() == scale
    assert scaling.clip == (bounds.clip or 1.0) == bounds.scaled_clip


def test_without_an_intercept_a_range_is_not_moved():
    scaling = Bounds(features=([-1, 2], [3, 5])).scaling(2, centred=False)
    assert scaling.centre.tolist() == [0, 0]
    assert scaling.scale.tolist() == [3, 5]


def test_names_follow_the_data_not_the_dict():
    bounds = Bounds(features=({"age": 18, "sex": 0}, {"sex": 1, "age": 100}))
    assert bounds.scaling(2, ["sex", "age"]).scale.tolist() == [0.5, 41.0]


def test_a_range_as_wide_as_all_doubles():
    scaling = Bounds(features=(-1.7e308, 1.7e308)).scaling(1)
    assert scaling.centre.tolist() == [0.0]
    assert scaling.scale.tolist() == [1.7e308]


def test_pandas_columns_by_name():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.uniform(18, 100, 60), "sex": rng.integers(0, 2, 60)})
    y = frame["sex"].to_numpy()
    bounds = Bounds(features=({"sex": 0, "age": 18}, {"sex": 1, "age": 100}))
    model = DPLogisticRegression(epsilon=50.0, bounds=bounds, insecure_seed=0).fit(frame, y)
    assert model.privacy_report_.public["centre"] == [59.0, 0.5]
    swapped = DPLogisticRegression(epsilon=50.0, bounds=bounds, insecure_seed=0).fit(frame[["sex", "age"]], y)
    assert swapped.privacy_report_.public["centre"] == [0.5, 59.0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "give exactly one of"),
        ({"features": (0, 1), "scale": 1, "clip": 1}, "give exactly one of"),
        ({"features": (0, 1), "purchase": QuantilePurchase()}, "give exactly one of"),
        ({"features": (0, 1), "clip": 3}, "belong to scale"),
        ({"features": (0, 1), "centre": 0}, "belong to scale"),
        ({"scale": 1}, "also needs clip="),
        ({"scale": 1, "clip": 0}, "clip must be a positive finite number"),
        ({"scale": 1, "clip": math.nan}, "clip must be a positive finite number"),
        ({"scale": 1, "clip": "3"}, "clip must be a positive finite number"),
        ({"scale": 1, "clip": True}, "clip must be a positive finite number"),
        ({"features": (0, 1), "row_norm": -1}, "row_norm must be a positive finite number"),
        ({"features": (0, 1), "row_norm": math.inf}, "row_norm must be a positive finite number"),
        ({"features": 3}, "pair"),
        ({"features": (0, 1, 2)}, "pair"),
        ({"features": {"a": (0, 1)}}, "pair"),
        ({"features": (0, 1), "target": (1, 1)}, "target bounds contradict"),
        ({"features": (0, 1), "target": (2, 1)}, "target bounds contradict"),
        ({"features": (0, 1), "target": (0, math.inf)}, "finite numbers"),
        ({"features": (0, 1), "target": (0, math.nan)}, "finite numbers"),
        ({"features": (0, 1), "target": (0, "1")}, "finite numbers"),
        ({"features": (0, 1), "target": 5}, "pair"),
        ({"features": (0, 1), "target": (0, 1, 2)}, "pair"),
        ({"features": (0, 1), "classes": 2}, "sequence of labels"),
        ({"features": (0, 1), "classes": "ab"}, "sequence of labels"),
        ({"features": (0, 1), "classes": [[0], [1]]}, "plain labels"),
        ({"features": (0, 1), "classes": []}, "at least two different labels"),
        ({"features": (0, 1), "classes": ["a"]}, "at least two different labels"),
        ({"features": (0, 1), "classes": ["a", "b", "a"]}, "at least two different labels"),
    ],
)
def test_contradictions_are_refused_at_once(arguments, words):
    with pytest.raises(InvalidBounds, match=words) as raised:
        Bounds(**arguments)
    sentence(raised)


@pytest.mark.parametrize(
    ("bounds", "names", "words"),
    [
        (Bounds(features=(0, [1, 2, 3])), None, "hi has 3 entries for 2 columns"),
        (Bounds(features=([[0, 1]], 2)), None, "lo has 2 entries for 2 columns"),
        (Bounds(features=(0, math.nan)), None, "hi must be finite in every column; column 0 is not"),
        (Bounds(features=(0, [1, math.inf])), ["a", "b"], "column 'b' is not"),
        (Bounds(features=("a", "b")), None, "lo must hold numbers only"),
        (Bounds(features=([0, "x"], 1)), None, "lo must hold numbers only"),
        (Bounds(features=(0, [1, -1])), ["a", "b"], "lo is above hi in column 'b'"),
        (Bounds(features=({"a": 0}, 1)), ["a", "b"], r"lo is missing for column 'b' \(1 missing in all\)"),
        (Bounds(features=(0, {"a": 1, "b": 1, "c": 1})), ["a", "b"], "names column 'c', which is not in the data"),
        (Bounds(features=({"a": 0, "b": 0}, 1)), None, "the data have no column names"),
        (Bounds(scale=0, clip=1), None, "scale must be above 0 in every column; column 0 is not"),
        (Bounds(scale=[1, -1], clip=1), ["a", "b"], "column 'b' is not"),
        (Bounds(scale=1, centre=[0], clip=1), None, "centre has 1 entries for 2 columns"),
        (Bounds.private_quantiles(), None, "bought during the fit"),
    ],
)
def test_bounds_that_do_not_fit_the_columns(bounds, names, words):
    with pytest.raises(InvalidBounds, match=words) as raised:
        bounds.scaling(2, names)
    sentence(raised)


@pytest.mark.parametrize("bounds", [Bounds(features=(0, [1, 2, 3])), Bounds(features=({"a": 0}, 1))])
def test_bounds_that_do_not_fit_cost_nothing(bounds):
    ledger = Ledger()
    before = ledger.entries()
    with pytest.raises(InvalidBounds):
        DPLogisticRegression(bounds=bounds, ledger=ledger).fit(np.zeros((4, 2)), [0, 1, 0, 1])
    assert ledger.entries() == before


# ------------------------------------------------------------------------------------------ bought
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"budget_share": 0}, "budget_share must be between 0 and 1"),
        ({"budget_share": 1}, "budget_share must be between 0 and 1"),
        ({"budget_share": math.nan}, "budget_share must be between 0 and 1"),
        ({"budget_share": "0.1"}, "budget_share must be a number"),
        ({"low": 0.9, "high": 0.1}, "0 < low < high < 1"),
        ({"low": 0.0}, "0 < low < high < 1"),
        ({"high": None}, "high must be a number"),
        ({"grid": [1.0]}, "at least two finite points"),
        ({"grid": []}, "at least two finite points"),
        ({"grid": 3.0}, "at least two finite points"),
        ({"grid": [3.0, 1.0]}, "increasing order"),
        ({"grid": [1.0, 1.0]}, "increasing order"),
        ({"grid": [0.0, math.inf]}, "finite points"),
        ({"grid": [0.0, math.nan]}, "finite points"),
        ({"grid": ["a", "b"]}, "numbers only"),
    ],
)
def test_a_bad_purchase_is_refused_before_the_fit(arguments, words):
    with pytest.raises(InvalidBounds, match=words) as raised:
        Bounds.private_quantiles(**arguments)
    sentence(raised)


def test_the_default_grid():
    grid = default_quantile_grid()
    assert (np.diff(grid) > 0).all()
    assert (grid == -grid[::-1]).all()
    assert {0.0, 1.0, 2.0**-20, 2.0**12, 2.0**40} <= set(grid.tolist())


def bought(X, epsilon=1.0, seed=0, **purchase):
    """Scaling bought for ``X`` as a fit would, and how many ranks it may be off."""
    bounds = Bounds.private_quantiles(**purchase)
    solver = Plan((PlannedRelease(FullGradient.name, "gaussian", 10),))
    plan = with_purchase(solver, bounds.purchase, X.shape[1])
    calibrated = calibrate(plan, Budget(epsilon, 1e-6))
    scope = Scope(calibrated, Ledger(), Neighbours.REPLACE_ONE, "test")
    holder = DataHolder(TableData(X), scope, RandomSource(seed), Neighbours.REPLACE_ONE)
    with scope:
        scaling = buy_scaling(holder, bounds, calibrated, True)
    return scaling, rank_error(bounds.purchase, calibrated), scope, holder


def columns(n=20_000):
    rng = np.random.default_rng(7)
    return np.column_stack(
        [
            rng.normal(0.0, 1.0, n),
            rng.lognormal(3.0, 1.0, n),
            rng.uniform(-900.0, -100.0, n),
            rng.random(n) < 0.4,  # few values, on the grid
            7.0 * (rng.random(n) < 0.5) + 3.0,  # few values, off the grid
            np.full(n, 5.0),  # one value
        ]
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_bought_bounds_enclose_the_true_quantiles_and_little_more(sparse):
    X = columns()
    n = len(X)
    scaling, error, _, _ = bought(sp.csr_array(X) if sparse else X)
    grid = default_quantile_grid()
    assert error < 0.03 * n
    for x, centre, scale in zip(X.T, scaling.centre, scaling.scale, strict=True):
        low, high = np.argmin(np.abs(grid - (centre - scale))), np.argmin(np.abs(grid - (centre + scale)))
        # the chosen cell of the grid holds the quantile, up to the stated error in rank
        assert (x < grid[low]).sum() <= 0.05 * n + error
        assert (x < grid[low + 1]).sum() >= 0.05 * n - error
        assert (x <= grid[high]).sum() >= 0.95 * n - error
        assert (x <= grid[high - 1]).sum() <= 0.95 * n + error


def test_zeros_and_ones_get_the_range_from_zero_to_one():
    """Many equal values leave one best point, not a whole range of equally good ones."""
    X = (np.random.default_rng(0).random((20_000, 4)) < 0.5).astype(float)
    for seed in range(5):
        scaling, *_ = bought(X, seed=seed)
        assert scaling.centre.tolist() == [0.5] * 4
        assert scaling.scale.tolist() == [0.5] * 4


def test_a_column_that_is_hardly_ever_set_becomes_a_constant():
    X = (np.random.default_rng(0).random((5000, 1)) < 0.01).astype(float)
    scaling, *_ = bought(X)
    assert scaling.scale.tolist() == [0.0]


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_cost_of_a_purchase(share):
    X = columns(200)
    p = X.shape[1]
    _, _, scope, holder = bought(X, budget_share=share)
    calibrated = scope.calibrated
    first, rest = calibrated.plan.releases
    assert (first.query, first.kind, first.count) == ("quantile", "selection", 2 * p)
    # in rho: a selection costs 1 / (2 m^2), as a Gaussian does
    rho = [r.count / (2.0 * r.noise_multiplier(calibrated.scale) ** 2) for r in (first, rest)]
    assert rho[0] / sum(rho) == pytest.approx(share)
    assert composition.epsilon(calibrated.event, 1e-6).epsilon <= 1.0
    assert len(holder.released) == 2 * p
    assert {(r.query, r.kind) for r in holder.released} == {("quantile", "selection")}
    made = [record for record in scope.records if not record.forfeited]
    assert [record.query for record in made] == ["quantile"] * (2 * p)


def test_a_fit_records_its_purchase():
    rng = np.random.default_rng(0)
    X, ledger = rng.normal(size=(400, 3)), Ledger()
    model = DPLogisticRegression(epsilon=2.0, ledger=ledger).fit(X, X[:, 0] > 0)
    report = model.privacy_report_
    assert report.public["bounds"] == "bought"
    line = report.releases[0]
    assert (line.query, line.kind, line.count, line.forfeited) == ("quantile", "selection", 6, 0)
    assert line.sensitivity == pytest.approx(1.0)
    assert report.guarantee.epsilon <= 2.0
    assert not any("bounds" in text for text in report.guarantee.assumptions)
    assert str(ledger.entries()).count("'quantile'") >= 1


@pytest.mark.parametrize("centred", [True, False])
def test_equal_bounds_are_a_constant(centred):
    scaling = range_scaling(np.array([0.0, 1.0]), np.array([0.0, 2.0]), centred=centred)
    assert scaling.scale[0] == 0.0
