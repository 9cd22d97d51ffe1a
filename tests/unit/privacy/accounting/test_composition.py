"""One fold for everything: counts, totals, conversion to (epsilon, delta), restating, JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats
from scipy.optimize import brentq

from dperm.errors import AccountingContradiction, InvalidBudget, InvalidInput, Unsupported
from dperm.privacy.accounting import composition, curves, gdp, pld
from dperm.privacy.accounting.events import (
    ZCDP,
    ApproximateDP,
    Composed,
    Event,
    Gaussian,
    Laplace,
    PoissonGaussian,
    RandomizedResponse,
    Repeat,
    RepeatAndSelect,
    Selection,
    Unbounded,
    event_from_dict,
    event_to_dict,
    restate,
)
from dperm.privacy.accounting.neighbours import Neighbours

ZERO, SWAP = Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE


# ---------------------------------------------------------------------------------------------------------- the fold
def flat(event: Event) -> list[Event]:
    """Every use of every leaf, one by one: written without looking at the fold."""
    if isinstance(event, Repeat):
        return [leaf for _ in range(event.count) for leaf in flat(event.event)]
    if isinstance(event, Composed):
        return [leaf for part in event.events for leaf in flat(part)]
    return [event]


NESTED = [
    Repeat(Gaussian(4.0), 7),
    Repeat(Repeat(Selection(9.0), 3), 5),
    Repeat(Composed((Gaussian(4.0), Repeat(Composed((Laplace(8.0), Gaussian(4.0), Gaussian(5.0))), 2))), 3),
    Composed((Repeat(RandomizedResponse(0.3), 4), Repeat(RandomizedResponse(0.3), 5), Repeat(ZCDP(0.01), 0))),
    Composed((Repeat(ApproximateDP(0.1, 1e-9), 6), Repeat(Composed(()), 9))),
]


def count_violations() -> list[str]:
    """Totals that differ from adding up every single use."""
    found = []
    for event in NESTED:
        uses = flat(event)
        for order in (1.5, 8.0):
            one_by_one = math.fsum(curves.renyi(leaf, order) for leaf in uses)
            if not math.isclose(composition.renyi(event, order), one_by_one, rel_tol=1e-12):
                found.append(f"renyi of {event}")
        if sum(composition.leaves(event).values()) != len(uses):
            found.append(f"number of uses of {event}")
        if not math.isclose(composition.set_aside(event), sum(curves.delta_part(x) for x in uses), abs_tol=1e-20):
            found.append(f"delta of {event}")
        pure = math.fsum(curves.pure(leaf) for leaf in uses)
        if math.isfinite(pure) and composition.upper_epsilon(event, 0.5)[0] > pure:
            found.append(f"pure of {event}")
        if all(isinstance(leaf, Gaussian) for leaf in uses):
            mu = math.sqrt(math.fsum(1.0 / leaf.noise_multiplier**2 for leaf in uses))  # type: ignore[attr-defined]
            if not math.isclose(composition.mu(event) or 0.0, mu, rel_tol=1e-12):
                found.append(f"mu of {event}")
    return found


def test_every_use_is_counted() -> None:
    assert count_violations() == []


@pytest.mark.parametrize("bug", ["drop", "outer", "inner", "merge"])
def test_lost_counts_are_detected(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = composition.leaves

    def wrong(event: Event) -> dict[Event, int]:
        if bug == "drop":
            return dict.fromkeys(right(event), 1)
        if bug == "outer" and isinstance(event, Repeat):
            return right(event.event)
        if bug == "inner" and isinstance(event, Repeat) and isinstance(event.event, Repeat):
            return right(Repeat(event.event.event, event.count))
        if bug == "merge" and isinstance(event, Composed):  # equal leaves overwrite each other
            return {leaf: times for part in event.events for leaf, times in right(part).items()}
        return right(event)

    monkeypatch.setattr(composition, "leaves", wrong)
    assert count_violations()


def test_counts_of_randomized_response_are_not_lost() -> None:
    # an accountant that forgets the count reports 1.6 here
    event = Repeat(RandomizedResponse(math.log(9.0)), 100)  # right with probability 0.9
    reported = composition.epsilon(event, 1e-6)
    one = composition.epsilon(RandomizedResponse(math.log(9.0)), 1e-6).epsilon
    assert reported.epsilon > 50 * one
    assert reported.lower <= exact_binomial_epsilon(0.9, 0.1, 100, 1e-6) <= reported.epsilon


def exact_response_delta(epsilon: float, n_values: int, count: int, at: float) -> float:
    """Exact delta of repeated randomized response: the loss is epsilon times a walk with steps -1, 0, 1."""
    step = np.array([1.0, n_values - 2.0, math.exp(epsilon)])
    step /= step.sum()
    walk = np.ones(1)
    for _ in range(count):
        walk = np.convolve(walk, step)
    loss = epsilon * np.arange(-count, count + 1)
    return float(np.dot(walk, -np.expm1(np.minimum(at - loss, 0.0))))


def test_hundred_fold_randomized_response_figure() -> None:
    # an accountant that ignores the count of this event reports 1.609 = log 5 for all hundred together
    event = Repeat(RandomizedResponse(math.log(5.0), 4), 100)
    exact = brentq(lambda e: exact_response_delta(math.log(5.0), 4, 100, e) - 1e-6, 0.0, 161.0)
    bound = composition.epsilon(event, 1e-6)
    assert bound.lower <= exact <= bound.epsilon <= 1.03 * exact
    assert exact == pytest.approx(128.5, abs=0.05)
    assert composition.epsilon(RandomizedResponse(math.log(5.0), 4), 1e-6).epsilon == pytest.approx(1.609, abs=1e-3)


# --------------------------------------------------------------------------------------- upper and lower bounds
def exact_binomial_delta(p: float, q: float, count: int, epsilon: float) -> float:
    hits = np.arange(count + 1)
    one, two = stats.binom.pmf(hits, count, p), stats.binom.pmf(hits, count, q)
    return float(np.maximum(0.0, one - np.exp(epsilon) * two).sum())


def exact_binomial_epsilon(p: float, q: float, count: int, delta: float) -> float:
    top = count * abs(math.log(p / q)) + 1.0
    if exact_binomial_delta(p, q, count, 0.0) <= delta:
        return 0.0
    return float(brentq(lambda e: exact_binomial_delta(p, q, count, e) - delta, 0.0, top))


@pytest.mark.parametrize("count", [1, 3, 30, 300])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
def test_bounds_enclose_randomized_response(count: int, delta: float) -> None:
    for epsilon in (0.02, 0.3, 2.0):
        p = float(special.expit(epsilon))
        exact = exact_binomial_epsilon(p, 1 - p, count, delta)
        bound = composition.epsilon(Repeat(RandomizedResponse(epsilon), count), delta)
        assert bound.lower <= exact * (1 + 1e-9)
        assert exact <= bound.epsilon * (1 + 1e-9)
        assert bound.lower == pytest.approx(exact, rel=1e-5, abs=1e-9)
        assert composition.lower_epsilon(Repeat(RandomizedResponse(epsilon), count), delta) <= bound.epsilon
        assert bound.looseness == pytest.approx(bound.epsilon - bound.lower)
        # planted: one use forgotten is below what an attacker gets
        if count == 3 and epsilon == 2.0 and delta < 1e-3:
            assert composition.epsilon(Repeat(RandomizedResponse(epsilon), 2), delta).epsilon < exact


def test_bounds_enclose_two_candidates() -> None:
    # adaptive choices between two candidates, log odds moving across 0 by the whole range
    for loss_range, count in ((0.1, 50), (1.0, 8), (3.0, 2)):
        p = float(special.expit(loss_range / 2))
        exact = exact_binomial_epsilon(p, 1 - p, count, 1e-6)
        bound = composition.epsilon(Repeat(Selection(2.0 / loss_range), count), 1e-6)
        assert bound.lower <= exact * (1 + 1e-9) <= bound.epsilon


def test_many_uses_give_a_bound_quickly_and_on_the_right_side() -> None:
    for event in (
        Repeat(Selection(5e4), 10**8),
        Repeat(Laplace(1e8), 10**14),
        Composed((Repeat(Selection(5e3), 10**6), Gaussian(4.0))),
    ):
        bound = composition.epsilon(event, 1e-6)
        assert 0.0 < composition.lower_epsilon(event, 1e-6) <= bound.epsilon
        assert bound.looseness < 0.2 * bound.epsilon
    # grouping the hits loses little: compare with the ungrouped sum just below and above the switch
    one = composition.lower_epsilon(Repeat(Selection(200.0), 4000), 1e-6)
    two = composition.lower_epsilon(Repeat(Selection(200.0), 4001), 1e-6)
    p = float(special.expit(1.0 / 200.0))
    assert one == pytest.approx(exact_binomial_epsilon(p, 1 - p, 4000, 1e-6), rel=1e-5)
    assert two == pytest.approx(exact_binomial_epsilon(p, 1 - p, 4001, 1e-6), rel=1e-5)
    many = composition.lower_epsilon(Repeat(Selection(2000.0), 400_000), 1e-6)
    p = float(special.expit(1.0 / 2000.0))
    exact = exact_binomial_epsilon(p, 1 - p, 400_000, 1e-6)
    assert many <= exact * (1 + 1e-9)
    assert many == pytest.approx(exact, rel=2e-3)


def test_bounds_with_huge_epsilon_do_not_overflow() -> None:
    for event in (Selection(0.02), RandomizedResponse(40.0), RandomizedResponse(800.0, 3), ApproximateDP(50.0, 1e-9)):
        bound = composition.epsilon(event, 1e-6)
        assert 0.0 < bound.lower <= bound.epsilon
        assert bound.epsilon <= curves.pure(event)


def joint_delta(losses: Any, weights: Any, mu: float, epsilon: float) -> float:
    """Exact delta of a finite release next to a Gaussian: Phi(-a) - exp(a mu ...) conditional on the finite loss."""
    rest = epsilon - np.asarray(losses)
    first = special.ndtr(-rest / mu + mu / 2) - np.exp(rest) * special.ndtr(-rest / mu - mu / 2)
    return float(np.dot(weights, first))


def test_mixes_are_enclosed() -> None:
    # two candidates T times and a Gaussian: the finite part convolved with the Gaussian exactly
    for count, loss_range, multiplier in ((5, 0.3, 4.0), (20, 0.1, 10.0)):
        p = float(special.expit(loss_range / 2))
        hits = np.arange(count + 1)
        weights = stats.binom.pmf(hits, count, p)
        losses = (2 * hits - count) * loss_range / 2
        event = Composed((Repeat(Selection(2.0 / loss_range), count), Gaussian(multiplier)))
        for delta in (1e-6, 1e-3):
            bound = composition.epsilon(event, delta)
            mu = 1.0 / multiplier
            if joint_delta(losses, weights, mu, 0.0) > delta:
                exact = brentq(lambda e: joint_delta(losses, weights, mu, e) - delta, 0.0, 20.0)  # noqa: B023
                assert bound.lower <= exact * (1 + 1e-6)
                assert exact <= bound.epsilon
                assert bound.lower == pytest.approx(exact, rel=1e-4)


def test_delta_and_epsilon_are_consistent() -> None:
    for event in (
        Repeat(Gaussian(10.0), 9),
        Composed((Repeat(Selection(20.0), 5), Gaussian(5.0))),
        Composed((ApproximateDP(0.3, 1e-9), Laplace(3.0))),
        Repeat(RandomizedResponse(0.5), 10),
    ):
        for delta in (1e-3, 1e-6):
            at = composition.epsilon(event, delta).epsilon
            assert composition.delta(event, at) == pytest.approx(delta, rel=1e-3)
            assert composition.delta(event, at * 1.001) <= delta * (1 + 1e-6)
        assert composition.delta(event, 1e3) <= 1e-9 * (1 + 1e-12)
    assert composition.delta(Repeat(RandomizedResponse(0.5), 10), 5.0) == 0.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan])
def test_a_delta_outside_its_range_is_refused(delta: float) -> None:
    with pytest.raises(InvalidBudget):
        composition.epsilon(Selection(3.0), delta)


def test_mixes_against_a_privacy_loss_distribution() -> None:
    """The Renyi route never goes below an optimistic loss distribution of the same releases."""
    library = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    event = Composed((Repeat(Laplace(10.0), 4), Repeat(RandomizedResponse(0.2), 3), Gaussian(6.0)))
    options = {"value_discretization_interval": 1e-3, "pessimistic_estimate": False, "use_connect_dots": False}
    total = library.from_gaussian_mechanism(6.0, **options)
    for _ in range(4):
        total = total.compose(library.from_laplace_mechanism(10.0, **options))
    share = 2.0 * (1.0 - special.expit(0.2))
    for _ in range(3):
        total = total.compose(library.from_randomized_response(share, 2, False, 1e-3))
    for delta in (1e-8, 1e-5, 1e-2):
        assert composition.epsilon(event, delta).epsilon >= total.get_epsilon_for_delta(delta)


# -------------------------------------------------------------------------------------------------- Poisson sampling
def test_poisson_agrees_with_the_other_accountant() -> None:
    dp = pytest.importorskip("dp_accounting")
    accountant = pytest.importorskip("dp_accounting.pld.pld_privacy_accountant")
    for multiplier, rate, count in ((1.0, 0.02, 4), (2.5, 0.3, 3)):
        other = accountant.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4)
        one = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier))
        other.compose(dp.ComposedDpEvent([one] * count))
        bound = composition.epsilon(Repeat(PoissonGaussian(multiplier, rate), count), 1e-6)
        assert bound.epsilon == pytest.approx(other.get_epsilon(1e-6), rel=1e-4)
        assert "dp-accounting" in bound.method
        assert composition.lower_epsilon(Repeat(PoissonGaussian(multiplier, rate), count), 1e-6) <= bound.epsilon
        assert bound.looseness <= 0.02 * bound.epsilon
        # the Renyi route is an upper bound too, and looser
        assert composition.renyi_epsilon(Repeat(PoissonGaussian(multiplier, rate), count), 1e-6) >= bound.epsilon
        at = composition.delta(Repeat(PoissonGaussian(multiplier, rate), count), bound.epsilon)
        assert at == pytest.approx(1e-6, rel=1e-3)


@pytest.mark.parametrize(
    ("multiplier", "rate", "count"), [(0.574, 0.01, 1000), (1.066, 0.1, 200), (0.407, 0.01, 1000), (0.6235, 0.1, 200)]
)
def test_a_coarser_grid_of_losses_stays_an_upper_bound_and_a_tight_one(
    multiplier: float, rate: float, count: int
) -> None:
    """At epsilon 10 to 30 losses lie on a coarser grid, which must not lie below what a lower bound attains."""
    pytest.importorskip("dp_accounting")
    uses = {PoissonGaussian(multiplier, rate): count}
    assert pld._interval(uses) > pld.LOSS_INTERVAL
    upper = pld.upper_epsilon(uses, 1e-6)
    finer = float(pld._composed(uses, 0.5 * pld._interval(uses), pessimistic=True).get_epsilon_for_delta(1e-6))
    assert pld.lower_epsilon(uses, 1e-6) <= upper
    assert upper == pytest.approx(finer, rel=1e-4)
    assert pld.upper_delta(uses, upper) <= 1e-6 * (1.0 + 1e-3)


def distribution_violations() -> list[str]:
    """Where the bounds of a distribution of Gaussians lie on the wrong side of the closed form."""
    found = []
    for count, total in ((1, 1.0), (100, 0.3), (10_000, 1.0), (100_000, 4.0)):
        event = Repeat(PoissonGaussian(math.sqrt(count) / total, 1.0), count)  # every record taken: plain Gaussians
        for delta in (1e-6, 1e-9, 1e-11, 1e-12, 1e-13, 1e-14, 1e-17):
            exact = gdp.epsilon_of(total, delta)
            if composition.upper_epsilon(event, delta)[0] < gdp.epsilon_of(total, delta, lower=True) * (1 - 1e-12):
                found.append(f"upper epsilon, {count} uses, delta {delta}")
            if delta in (1e-6, 1e-12) and count <= 100 and composition.lower_epsilon(event, delta) > exact:
                found.append(f"lower epsilon, {count} uses, delta {delta}")
            try:
                upper = composition.delta(event, exact)
            except AccountingContradiction:
                upper = 0.0
            if upper < gdp.delta_of(total, exact, lower=True):
                found.append(f"delta, {count} uses, epsilon {exact}")
    return found


def test_a_distribution_is_a_bound_at_small_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    # Fourier transforms in double precision lose about 1e-17 of delta per use
    pytest.importorskip("dp_accounting")
    assert distribution_violations() == []
    monkeypatch.setattr(pld, "_fourier_error", lambda leaves: 0.0)
    assert distribution_violations()


def test_a_delta_too_small_for_a_distribution_uses_the_renyi_curve() -> None:
    pytest.importorskip("dp_accounting")
    bound = composition.epsilon(Repeat(PoissonGaussian(1.0, 0.01), 100), 1e-16)
    assert bound.method == "Renyi"
    assert 3.0 < bound.epsilon < 5.0


def test_looseness_is_the_distance_of_the_bounds_and_never_negative() -> None:
    assert composition.EpsilonBound(1.5, 1.25, 1e-6, "").looseness == 0.25
    assert composition.EpsilonBound(1.5, 1.5, 1e-6, "").looseness == 0.0
    with pytest.raises(AccountingContradiction, match="contradicts itself"):
        composition.EpsilonBound(1.5, 1.5 + 1e-12, 1e-6, "")
    assert composition.EpsilonBound(math.inf, 1.0, 1e-6, "").looseness == math.inf


@pytest.mark.parametrize("event", [Repeat(Laplace(8.0), 40), Repeat(RandomizedResponse(0.3), 30), ZCDP(0.02)])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_the_best_order_is_found(event: Event, delta: float) -> None:
    orders = 1.0 + np.geomspace(0.01, 1000.0, 2001)
    fine = min(composition.renyi(event, a) + composition.order_offset(a, delta) for a in orders.tolist())
    assert composition.renyi_epsilon(event, delta) <= fine * (1.0 + 1e-9)


def test_poisson_next_to_other_leaves() -> None:
    pytest.importorskip("dp_accounting")
    sampled = Repeat(PoissonGaussian(2.0, 0.1), 10)
    alone = composition.epsilon(sampled, 1e-6).epsilon
    with_gaussian = composition.epsilon(Composed((sampled, Repeat(Gaussian(10.0), 2))), 1e-6).epsilon
    with_laplace = composition.epsilon(Composed((sampled, Laplace(10.0))), 1e-6).epsilon
    assert alone < with_gaussian
    assert alone < with_laplace <= alone + 0.1 + 1e-3
    mixed = composition.epsilon(Composed((sampled, Selection(20.0))), 1e-6)
    assert mixed.method == "Renyi"
    assert mixed.epsilon > alone
    full = composition.epsilon(Repeat(PoissonGaussian(2.0, 1.0), 10), 1e-6)
    assert full.epsilon == pytest.approx(composition.epsilon(Repeat(Gaussian(2.0), 10), 1e-6).epsilon, rel=1e-3)


def test_the_distribution_path_keeps_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dp_accounting")

    def wrong_by() -> float:
        ten = pld.upper_epsilon({PoissonGaussian(2.0, 0.2): 10}, 1e-6)
        library = pld.distribution_library()
        one = library.from_gaussian_mechanism(2.0, sampling_prob=0.2)
        total = one
        for _ in range(9):
            total = total.compose(one)
        return abs(ten / float(total.get_epsilon_for_delta(1e-6)) - 1.0)

    assert wrong_by() < 1e-3
    right = pld._composed
    monkeypatch.setattr(pld, "_composed", lambda leaves, *a, **k: right(dict.fromkeys(leaves, 1), *a, **k))
    assert wrong_by() > 0.1


# ---------------------------------------------------------------------------------------------------------- restating
def test_restating_towards_zero_out_keeps_the_event() -> None:
    event = Composed((Gaussian(3.0), PoissonGaussian(1.0, 0.1)))
    assert restate(event, SWAP, ZERO) == event
    assert restate(event, ZERO, ZERO) == event
    assert restate(Gaussian(3.0), SWAP, SWAP) == Gaussian(3.0)


def test_restating_towards_replace_one() -> None:
    event = Repeat(
        Composed((Gaussian(3.0), Laplace(3.0, math.sqrt(2.0)), Selection(3.0, 1.0), RandomizedResponse(0.4, 3))), 4
    )
    wanted = Repeat(
        Composed((Gaussian(1.5), Laplace(3.0 / math.sqrt(2.0)), Selection(3.0), RandomizedResponse(0.4, 3))), 4
    )
    got = restate(event, ZERO, SWAP)
    for order in (1.5, 4.0, 30.0):
        assert composition.renyi(got, order) == pytest.approx(composition.renyi(wanted, order))
    assert restate(ZCDP(0.1), ZERO, SWAP) == ZCDP(0.4)
    assert restate(ApproximateDP(0.5, 1e-6), ZERO, SWAP) == ApproximateDP(1.0, 1e-6 * (1.0 + math.exp(0.5)))
    assert restate(ApproximateDP(800.0), ZERO, SWAP) == ApproximateDP(1600.0)
    assert restate(RepeatAndSelect(Gaussian(4.0), 3.0), ZERO, SWAP) == RepeatAndSelect(Gaussian(2.0), 3.0)


def group_of_two_violated(change: Callable[[Event], Event]) -> bool:
    """Whether three worlds, each two neighbours at log odds 0.5, exceed what the restated event claims at the ends."""
    worlds = special.expit(np.array([-0.5, 0.0, 0.5]))
    steps = [np.log(one / two) for one, two in zip(worlds[1:], worlds[:-1], strict=True)]
    steps += [np.log((1 - two) / (1 - one)) for one, two in zip(worlds[1:], worlds[:-1], strict=True)]
    event = ApproximateDP(float(max(steps)))
    return math.log(worlds[2] / worlds[0]) > curves.pure(change(event)) * (1 + 1e-12)


def test_group_privacy_is_not_forgotten() -> None:
    assert not group_of_two_violated(lambda e: restate(e, ZERO, SWAP))
    assert group_of_two_violated(lambda e: e)


@pytest.mark.parametrize(
    "event",
    [
        PoissonGaussian(1.0, 0.1),
        Repeat(PoissonGaussian(1.0, 0.1), 3),
        Composed((Gaussian(1.0), Repeat(PoissonGaussian(1.0, 0.1), 3))),
        RepeatAndSelect(PoissonGaussian(1.0, 0.1), 3.0),
    ],
    ids=str,
)
def test_poisson_is_refused_under_replace_one(event: Event) -> None:
    with pytest.raises(Unsupported, match="zero-out only"):
        restate(event, ZERO, SWAP)


def test_a_restated_delta_of_one_is_refused() -> None:
    with pytest.raises(Unsupported, match="has no guarantee"):
        restate(ApproximateDP(5.0, 0.01), ZERO, SWAP)


# ---------------------------------------------------------------------------------------------------------------- JSON
positive = st.floats(min_value=1e-6, max_value=1e6, allow_nan=False)
ratio = st.floats(min_value=1.0, max_value=2.0)
leaf_events = st.one_of(
    st.builds(Gaussian, positive, ratio),
    st.builds(Laplace, positive, ratio),
    st.builds(Selection, positive, ratio),
    st.builds(RandomizedResponse, positive, st.integers(2, 100)),
    st.builds(PoissonGaussian, positive, st.floats(min_value=1e-9, max_value=1.0)),
    st.builds(ZCDP, positive),
    st.builds(ApproximateDP, positive, st.floats(min_value=0.0, max_value=0.999)),
    st.builds(Unbounded, st.text(max_size=20)),
)
any_events = st.recursive(
    leaf_events,
    lambda inner: st.one_of(
        st.builds(Repeat, inner, st.integers(0, 10**6)),
        st.builds(Composed, st.lists(inner, max_size=4).map(tuple)),
        st.builds(RepeatAndSelect, inner, st.floats(1.5, 100.0), st.floats(-0.9, 3.0)),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(any_events)
def test_events_survive_json(event: Event) -> None:
    written = json.dumps(event_to_dict(event))
    again = event_from_dict(json.loads(written))
    assert again == event
    assert hash(again) == hash(event)
    assert composition.leaves(again) == composition.leaves(event)
    assert json.dumps(event_to_dict(again)) == written


@settings(max_examples=60, deadline=None)
@given(st.recursive(leaf_events, lambda i: st.builds(Repeat, i, st.integers(0, 9)), max_leaves=3), st.integers(0, 50))
def test_repeating_multiplies(event: Event, count: int) -> None:
    once, many = composition.leaves(event), composition.leaves(Repeat(event, count))
    assert many == {leaf: n * count for leaf, n in once.items() if count}


def test_numpy_counts_are_written_as_plain_numbers() -> None:
    event = Composed((Repeat(Gaussian(2.0), np.int64(3)), RandomizedResponse(1.0, np.int64(4))))  # type: ignore[arg-type]
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "Event"},
        {"kind": "Nonsense"},
        {},
        {"kind": "Gaussian", "noise_multiplier": -1.0},
        {"kind": "Gaussian", "sigma": 1.0},
        {"kind": "Repeat", "event": {"kind": "ZCDP", "rho": 1.0}, "count": -1},
    ],
    ids=str,
)
def test_broken_events_are_refused(data: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        event_from_dict(data)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian(0.0),
        lambda: Gaussian(math.nan),
        lambda: Laplace(math.inf),
        lambda: Selection(1.0, 2.5),
        lambda: Selection(1.0, 0.5),
        lambda: RandomizedResponse(1.0, 1),
        lambda: RandomizedResponse(1.0, 2.5),  # type: ignore[arg-type]
        lambda: PoissonGaussian(1.0, 0.0),
        lambda: PoissonGaussian(1.0, 1.5),
        lambda: ZCDP(-1.0),
        lambda: ApproximateDP(1.0, 1.0),
        lambda: RepeatAndSelect(Gaussian(1.0), 1.0),
        lambda: RepeatAndSelect(Gaussian(1.0), 2.0, -1.0),
        lambda: Repeat(Gaussian(1.0), 1.5),  # type: ignore[arg-type]
        lambda: Repeat(Gaussian(1.0), -1),
    ],
)
def test_invalid_events_are_refused(make: Callable[[], Event]) -> None:
    with pytest.raises(InvalidInput):
        make()


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_numbers_of_lower_precision_do_not_lower_a_bound(kind):
    """A curve that is computed in single or half precision is no upper bound: events keep doubles."""
    number = kind(7.828125)
    for event in (Gaussian, Laplace):
        assert type(event(number).noise_multiplier) in (float, np.float64)
        assert composition.upper_epsilon(event(number), 1e-6) == composition.upper_epsilon(event(float(number)), 1e-6)


@pytest.mark.parametrize("error", [OverflowError, ZeroDivisionError])
def test_noise_so_small_that_floats_overflow_has_no_bound(error: type[Exception], monkeypatch: Any) -> None:
    def overflowing(event: Event, order: float) -> float:
        raise error

    monkeypatch.setattr(composition, "renyi", overflowing)
    assert composition.renyi_or_infinite(Gaussian(1.0), 2.0) == math.inf
    assert composition.is_unbounded(Gaussian(1.0))


def test_the_best_order_is_searched_between_the_listed_ones() -> None:
    # a * rho + log(1/delta) / (a - 1) is smallest at rho + 2 sqrt(rho log(1/delta)); the listed orders alone miss it
    for rho in (0.001, 0.02, 0.3):
        exact = rho + 2.0 * math.sqrt(rho * math.log(1e6))
        found = composition._best_order(lambda order, rho=rho: order * rho + math.log(1e6) / (order - 1.0))
        assert found == pytest.approx(exact, rel=1e-9)
