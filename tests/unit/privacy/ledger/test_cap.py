"""The arithmetic of caps, against brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dperm.errors import BudgetRefused, InvalidBudget, InvalidInput
from dperm.privacy.accounting import composition, gdp
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.events import (
    ApproximateDP,
    Composed,
    Event,
    Gaussian,
    Laplace,
    RandomizedResponse,
    Repeat,
    Selection,
    restate,
)
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Cap, Ledger


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 1e3])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2, 0.5])
def test_the_order_is_the_best_one(epsilon: float, delta: float) -> None:
    cap = Cap.of(Budget(epsilon, delta))
    orders = 1.0 + np.geomspace(1e-5, 9e5, 20000)
    values = [(epsilon - composition.order_offset(float(a), delta)) / a for a in orders]
    assert cap.limit / cap.order >= max(values) * (1 - 1e-6)
    assert cap.limit == pytest.approx(epsilon - composition.order_offset(cap.order, delta), rel=1e-9)
    assert cap.limit + composition.order_offset(cap.order, delta) <= epsilon


def test_the_formula_written_out() -> None:
    cap = Cap.of(Budget(1.0, 1e-6), delta_reserve=4e-7)
    a = cap.order
    assert cap.limit == pytest.approx(1.0 - (math.log((a - 1) / a) - (math.log(6e-7) + math.log(a)) / (a - 1)))


def test_impossible_caps_are_refused() -> None:
    with pytest.raises(InvalidBudget, match="no Renyi order"):
        Cap.of(Budget(1e-7, 1e-12))
    for reserve in (-1e-9, 1e-6, math.nan):
        with pytest.raises(InvalidBudget, match="delta_reserve"):
            Cap.of(Budget(1.0, 1e-6), delta_reserve=reserve)
    with pytest.raises(InvalidInput, match="mode"):
        Cap.of(Budget(1.0, 1e-6), mode="exact")
    with pytest.raises(InvalidInput, match="Budget"):
        Cap.of((1.0, 1e-6))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="delta_reserve"):
        Cap.of(Budget(1.0, 1e-6), mode="gaussian-only", delta_reserve=1e-7)


def worst_adaptive_delta(budget: Budget, order: float, limit: float, p: float) -> float:
    """Exact delta of the worst adaptive run of two-answer releases under a filter, by dynamic programming.

    After each answer the adversary picks one of two strengths of randomized response, or stops, to make the
    hockey-stick divergence as large as possible. The filter allows any path whose charges stay within the limit.
    """
    strong = math.log(p / (1 - p))
    strengths = (strong, strong / 2)
    charges = [composition.renyi(RandomizedResponse(one), order) for one in strengths]
    seen: dict[tuple[int, int, int], float] = {}

    def worst(used: tuple[int, int], loss: float) -> float:
        """Largest E_P[(1 - e^(epsilon - loss))+] from here on; loss is the log ratio so far."""
        key = (*used, round(2 * loss / strong))
        if key not in seen:
            best = max(0.0, -math.expm1(budget.epsilon - loss))  # stop here
            for i, strength in enumerate(strengths):
                after = (used[0] + (i == 0), used[1] + (i == 1))
                if sum(after) <= 40 and math.fsum(n * c for n, c in zip(after, charges, strict=True)) <= limit:
                    top = 1 / (1 + math.exp(-strength))
                    up, down = worst(after, loss + strength), worst(after, loss - strength)
                    best = max(best, top * up + (1 - top) * down)
            seen[key] = best
        return seen[key]

    return worst((0, 0), 0.0)


@pytest.mark.parametrize(
    ("epsilon", "delta", "p"),
    [(0.5, 1e-6, 0.51), (1.0, 1e-6, 0.52), (1.0, 1e-2, 0.55), (4.0, 1e-5, 0.6), (8.0, 1e-3, 0.7)],
)
def test_an_adaptive_adversary_stays_within_the_cap(epsilon: float, delta: float, p: float) -> None:
    budget = Budget(epsilon, delta)
    cap = Cap.of(budget)
    assert 0.05 * delta < worst_adaptive_delta(budget, cap.order, cap.limit, p) <= delta
    # the check can fail: a limit half as large again lets the adversary through
    assert worst_adaptive_delta(budget, cap.order, 1.5 * cap.limit, p) > delta


def test_the_charge_is_the_renyi_divergence_of_the_densities() -> None:
    """Gaussian and Laplace charges against numeric integration at the cap's order."""
    x = np.linspace(-60.0, 60.0, 400_001)
    for event, log_density in (
        (Gaussian(5.0), lambda y: -((y / 5.0) ** 2) / 2 - math.log(5.0 * math.sqrt(2 * math.pi))),
        (Laplace(2.0), lambda y: -np.abs(y) / 2.0 - math.log(4.0)),
    ):
        ledger = Ledger()
        order = ledger.set_cap(Budget(4.0, 1e-6)).order
        moment = np.trapezoid(np.exp(order * log_density(x) + (1 - order) * log_density(x - 1.0)), x)
        exact = math.log(moment) / (order - 1)
        assert ledger.reserve(event, "replace-one").charge == pytest.approx(exact, rel=1e-4)


events = st.one_of(
    st.builds(Gaussian, st.floats(3.0, 300.0)),
    st.builds(Laplace, st.floats(3.0, 300.0)),
    st.builds(Selection, st.floats(3.0, 300.0)),
    st.builds(RandomizedResponse, st.floats(0.001, 1.0)),
    st.builds(ApproximateDP, st.floats(0.001, 0.5), st.floats(0.0, 2e-7)),
    st.builds(Repeat, st.builds(Gaussian, st.floats(10.0, 300.0)), st.integers(0, 20)),
)


@settings(max_examples=60, deadline=None)
@given(
    plans=st.lists(st.tuples(events, st.sampled_from(["zero-out", "replace-one"])), max_size=12),
    epsilon=st.floats(0.2, 4.0),
    late=st.integers(0, 3),
)
def test_spent_never_exceeds_the_cap(plans: list[tuple[Event, str]], epsilon: float, late: int) -> None:
    """Whatever is asked, in whatever order, the total stays within the cap by an independent sum."""
    ledger = Ledger()
    admitted: list[Event] = []

    def ask(event: Event, neighbours: str) -> None:
        try:
            made = ledger.reserve(event, neighbours)
        except BudgetRefused:
            return
        admitted.append(restate(event, made.neighbours, Neighbours.REPLACE_ONE))

    for plan in plans[:late]:
        ask(*plan)
    try:
        cap = ledger.set_cap(Budget(epsilon, 1e-6), delta_reserve=4e-7)
    except BudgetRefused:
        return
    last = 0.0
    for plan in plans[late:]:
        ask(*plan)
        spent = ledger.spent()
        assert last <= spent.epsilon <= epsilon
        assert 0.0 <= spent.remaining <= (epsilon - spent.epsilon) * (1 + 1e-9)
        last = spent.epsilon
        whole = Composed(tuple(admitted))
        if not spent.closed:
            assert composition.renyi(whole, cap.order) <= cap.limit
            assert composition.set_aside(whole) <= 4e-7
        # the tightest figure we have for fixed events is below the filter's
        assert composition.upper_epsilon(whole, 1e-6)[0] <= epsilon * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(multipliers=st.lists(st.floats(1.0, 100.0), max_size=15), epsilon=st.floats(0.2, 4.0))
def test_gaussian_only_never_exceeds_the_cap(multipliers: list[float], epsilon: float) -> None:
    ledger = Ledger()
    ledger.set_cap(Budget(epsilon, 1e-6), mode="gaussian-only")
    squares: list[float] = []
    for m in multipliers:
        try:
            ledger.reserve(Gaussian(m), "replace-one")
            squares.append(1.0 / m**2)
        except BudgetRefused:
            assert sum(squares) + 1.0 / m**2 > gdp.mu_of(epsilon, 1e-6) ** 2 * (1 - 1e-9)
    assert gdp.delta_of(math.sqrt(math.fsum(squares)), epsilon) <= 1e-6
    assert ledger.spent().epsilon <= epsilon


@pytest.mark.parametrize("cap", [Cap.of(Budget(2.0, 1e-6)), Cap.of(Budget(2.0, 1e-6), "gaussian-only")])
def test_what_still_fits_is_nothing_where_nothing_is_left_and_grows_with_what_is(cap):
    assert cap.fits_epsilon(0.0) == cap.fits_epsilon(-1.0) == 0.0
    half, whole = cap.fits_epsilon(cap.limit / 2.0), cap.fits_epsilon(cap.limit)
    assert 0.0 < half < whole <= 2.0


def test_nothing_remains_of_a_full_cap():
    ledger = Ledger(dataset="people")
    ledger.set_cap(Budget(1.0, 1e-6))
    ledger.reserve(Gaussian(1.0 / gdp.mu_of(1.0, 1e-6)), "replace-one")  # the whole cap by its own figure
    assert ledger.spent().remaining == 0.0
