"""Penalties: values, gradients, and prox against a numerical minimiser and its optimality condition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dperm.errors import InvalidInput, Unsupported
from dperm.objective import L1, L2, PENALTIES, BoxPenalty, ElasticNet, GroupL2, NoPenalty, Penalty

ALL = [
    NoPenalty(),
    L1(0.7),
    L1(0.0),
    L2(1.4),
    ElasticNet(0.9, 0.3),
    ElasticNet(0.9, 0.0),
    ElasticNet(0.9, 1.0),
    BoxPenalty(-0.5, 0.8),
    BoxPenalty((-1.0, 0.0, -math.inf, 0.2), (1.0, math.inf, 0.5, 0.2)),
    GroupL2(0.6, ((0, 2), (3,))),
]
SEPARABLE = [penalty for penalty in ALL if penalty.separable]


def test_registry_names_every_class() -> None:
    assert set(PENALTIES) == {"none", "l1", "l2", "elastic_net", "box", "group_l2"}
    assert all(cls.name == name for name, cls in PENALTIES.items())


def test_values_by_hand() -> None:
    w = np.array([[3.0, 0.0], [4.0, -1.0]])
    assert NoPenalty().value(w) == 0.0
    assert L1(0.5).value(w) == 4.0
    assert L2(0.5).value(w) == 6.5
    assert ElasticNet(0.5, 0.25).value(w) == pytest.approx(0.25 * 4.0 + 0.75 * 6.5)
    assert BoxPenalty(-1.0, 4.0).value(w) == 0.0
    assert BoxPenalty((-1.0, -2.0), (3.0, 3.5)).value(w) == math.inf
    assert GroupL2(0.5, ((0, 1),)).value(w) == pytest.approx(0.5 * math.sqrt(2) * math.sqrt(26))
    assert GroupL2(0.5, ((1,),)).value(w) == pytest.approx(0.5 * math.sqrt(17))


@pytest.mark.parametrize("penalty", ALL, ids=repr)
@pytest.mark.parametrize("outputs", [None, 3])
def test_prox_beats_every_point_nearby(penalty: Penalty, outputs: int | None) -> None:
    """A convex function is minimal where it is minimal locally: directions of every scale must not improve."""
    rng = np.random.default_rng(0)
    shape = (4,) if outputs is None else (4, outputs)
    for step in (0.0, 0.3, 2.0):
        w = rng.normal(size=shape) * 1.5
        u = penalty.prox(w, step)

        def target(v: np.ndarray, w: np.ndarray = w, step: float = step) -> float:
            value = penalty.value(v)
            return 0.5 * float(np.square(v - w).sum()) + (step * value if math.isfinite(value) else math.inf)

        best = target(u)
        assert math.isfinite(best)
        for scale in (1e-3, 1e-2, 0.1, 1.0):
            for _ in range(60):
                v = u + scale * rng.normal(size=shape) * (rng.random(shape) < 0.5)
                # Strong convexity of the prox problem: the target grows by at least half the squared distance.
                assert target(v) >= best + 0.5 * float(np.square(v - u).sum()) - 1e-12


@pytest.mark.parametrize("penalty", [L1(0.7), L2(1.4), ElasticNet(0.9, 0.3), GroupL2(0.6, ((0, 2), (3,)))], ids=repr)
def test_prox_against_a_numerical_minimiser(penalty: Penalty) -> None:
    rng = np.random.default_rng(1)
    for step in (0.2, 1.0):
        w = rng.normal(size=4)
        found = minimize(
            lambda v, w=w, step=step: 0.5 * np.square(v - w).sum() + step * penalty.value(v),
            w,
            method="Powell",
            options={"xtol": 1e-10, "ftol": 1e-14, "maxiter": 10_000},
        )
        # Powell can stop early at a kink, so the values are compared strictly and the points loosely.
        u = penalty.prox(w, step)
        assert 0.5 * np.square(u - w).sum() + step * penalty.value(u) <= found.fun + 1e-10
        np.testing.assert_allclose(u, found.x, atol=1e-3)


def test_prox_optimality_conditions() -> None:
    rng = np.random.default_rng(2)
    w, step = rng.normal(size=200) * 2, 0.8
    for penalty, ratio in ((L1(0.7), 1.0), (ElasticNet(0.7, 0.4), 0.4)):
        u = penalty.prox(w, step)
        # (w - u)/step - smooth part must be a subgradient of strength * ratio * ||.||_1 at u.
        residual = (w - u) / step - 0.7 * (1 - ratio) * u
        zero = u == 0
        assert 0 < zero.sum() < len(w)
        np.testing.assert_allclose(residual[~zero], 0.7 * ratio * np.sign(u[~zero]), atol=1e-12)
        assert (np.abs(residual[zero]) <= 0.7 * ratio + 1e-12).all()
    group = GroupL2(0.7, (tuple(range(150)),))
    u = group.prox(w, step)
    np.testing.assert_allclose(
        (w[:150] - u[:150]) / step, 0.7 * math.sqrt(150) * u[:150] / np.linalg.norm(u[:150]), atol=1e-12
    )
    np.testing.assert_array_equal(u[150:], w[150:])
    np.testing.assert_array_equal(group.prox(w, 100.0)[:150], 0.0)
    np.testing.assert_array_equal(group.prox(np.zeros(150), 1.0), 0.0)


@pytest.mark.parametrize("penalty", SEPARABLE, ids=repr)
def test_steps_per_weight_agree_with_one_weight_at_a_time(penalty: Penalty) -> None:
    rng = np.random.default_rng(3)
    w, steps = rng.normal(size=4), rng.random(4)
    together = penalty.prox(w, steps)
    for j, step in enumerate(steps):
        assert penalty.prox(w, step)[j] == together[j]


@pytest.mark.parametrize("penalty", [p for p in ALL if p.smooth], ids=repr)
def test_gradient_is_the_derivative_of_value(penalty: Penalty) -> None:
    w = np.random.default_rng(4).normal(size=(3, 2))
    numeric = np.zeros_like(w)
    for index in np.ndindex(w.shape):
        unit = np.zeros_like(w)
        unit[index] = 1e-6
        numeric[index] = (penalty.value(w + unit) - penalty.value(w - unit)) / 2e-6
    np.testing.assert_allclose(penalty.gradient(w), numeric, atol=1e-8)


@pytest.mark.parametrize("penalty", [p for p in ALL if not p.smooth], ids=repr)
def test_penalties_without_a_gradient_are_refused(penalty: Penalty) -> None:
    with pytest.raises(Unsupported, match="no gradient"):
        penalty.gradient(np.ones(4))


@pytest.mark.parametrize("penalty", ALL, ids=repr)
def test_strong_convexity(penalty: Penalty) -> None:
    rng = np.random.default_rng(5)
    m = penalty.strong_convexity
    for _ in range(50):
        u, v = penalty.prox(rng.normal(size=(2, 4))[0], 1.0), penalty.prox(rng.normal(size=4), 1.0)
        middle = penalty.value((u + v) / 2) + m / 8 * np.square(u - v).sum()
        assert middle <= (penalty.value(u) + penalty.value(v)) / 2 + 1e-12
    assert L2(1.4).strong_convexity == 1.4
    assert ElasticNet(0.9, 0.3).strong_convexity == pytest.approx(0.63)


def test_prox_does_not_change_its_argument() -> None:
    for penalty in ALL:
        w = np.full(4, 0.3)
        result = penalty.prox(w, 1.0)
        result[:] = 9.0
        np.testing.assert_array_equal(w, 0.3)


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf, "1", None, True])
def test_bad_strength_is_refused(bad: object) -> None:
    for make in (L1, L2, lambda s: ElasticNet(s, 0.5), lambda s: GroupL2(s, ((0,),))):
        with pytest.raises(InvalidInput, match=r"^strength [^\n]+\.$"):
            make(bad)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_bad_l1_ratio_is_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match="l1_ratio"):
        ElasticNet(1.0, bad)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1.0, 0.0, "above high"),
        ((0.0, 2.0), 1.0, "above high"),
        ((0.0, 0.0), (1.0, 1.0, 1.0), "same length"),
        (math.nan, 1.0, "low must be"),
        (0.0, (1.0, math.nan), "high must be"),
        (0.0, "x", "high must be"),
        (0.0, (), "high must be"),
        (math.inf, math.inf, "below infinity"),
    ],
)
def test_bad_boxes_are_refused(low: object, high: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        BoxPenalty(low, high)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (((0, 1), (1, 2)), "disjoint"),
        (((0, 0),), "twice"),
        (((-1,),), "0 or more"),
        (((),), "empty"),
        (((0.5,),), "integer"),
        ((0, 1), "tuple of index tuples"),
    ],
)
def test_bad_groups_are_refused(groups: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        GroupL2(1.0, groups)


def test_bad_weights_and_steps_are_refused() -> None:
    with pytest.raises(InvalidInput, match="finite"):
        L1(1.0).value([math.nan])
    with pytest.raises(InvalidInput, match=r"shape \(d,\)"):
        L1(1.0).value(np.zeros((1, 1, 1)))
    with pytest.raises(InvalidInput, match="empty"):
        L1(1.0).prox([], 1.0)
    for bad in (-1.0, math.inf, math.nan, "1"):
        with pytest.raises(InvalidInput, match="step"):
            L1(1.0).prox([1.0], bad)
    with pytest.raises(InvalidInput, match="step"):
        L1(1.0).prox([1.0, 2.0], np.array([1.0, -1.0]))
    with pytest.raises(InvalidInput, match="shape"):
        L1(1.0).prox([1.0, 2.0], np.ones(3))
    with pytest.raises(InvalidInput, match="couples"):
        GroupL2(1.0, ((0,),)).prox([1.0, 2.0], np.ones(2))
    with pytest.raises(InvalidInput, match="only 2"):
        GroupL2(1.0, ((2,),)).value([1.0, 2.0])
    with pytest.raises(InvalidInput, match="3 weights"):
        BoxPenalty((0.0, 0.0, 0.0), 1.0).prox([1.0, 2.0], 1.0)


def test_penalties_are_values() -> None:
    assert GroupL2(1, [[0, 1], [2]]) == GroupL2(1.0, ((0, 1), (2,)))
    assert len({BoxPenalty(np.zeros(2), 1), BoxPenalty((0, 0), 1.0)}) == 1
