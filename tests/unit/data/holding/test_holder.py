"""The data holder: only planned releases are made, and no value is released without noise."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from dperm import Ledger
from dperm.data.design.weights import BoxedWeights
from dperm.data.holding.holder import DataHolder, Query, Shared, TrustedDomain
from dperm.errors import InvalidInput, PlanViolation
from dperm.objective import Logistic, SmoothedHinge
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.boundary import Observer, observing
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.standard import GaussianNoise, LaplaceNoise, NoisyMax
from dperm.privacy.randomness import RandomSource
from dperm.queries import AtomScores, FirstMoment, FullGradient, GradientBlock, GradientCoordinate, PartialPredictions
from dperm.testing.solvers import problem

DOMAIN = TrustedDomain("clinics", ("north", "south"))


class Evaluated(Exception):
    """Raised by a query that must not be reached."""


class Tripwire(FullGradient):
    def evaluate(self, data):
        raise Evaluated


@dataclass(frozen=True, eq=False)
class Holds(Query):
    """A query that carries something."""

    field: Any
    name: ClassVar[str] = "gradient"
    norm: ClassVar[str] = "l2"

    def evaluate(self, data):
        raise Evaluated

    def zero_out_sensitivity(self, facts):
        return 1.0

    def bound(self, facts):
        return 1.0

    def size(self, facts):
        return 1


class HoldsAsAttribute(Holds):
    def __init__(self, value):
        object.__setattr__(self, "field", None)
        object.__setattr__(self, "hidden", value)


class PlannedHolder:
    """A holder with its plan of ``count`` gradients."""

    def __init__(self, count=2, neighbours=Neighbours.REPLACE_ONE):
        self.data = problem()
        plan = Plan((PlannedRelease(FullGradient.name, "gaussian", count),))
        self.calibrated = calibrate(plan, Budget(1.0, 1e-6))
        self.ledger = Ledger(neighbours=neighbours)
        self.scope = Scope(self.calibrated, self.ledger, neighbours, "test")
        self.holder = DataHolder(self.data, self.scope, RandomSource(0), neighbours, DOMAIN)
        self.mechanism = GaussianNoise(self.calibrated.noise_multiplier(FullGradient.name))
        self.weights = np.zeros(self.data.facts.d)

    def query(self, kind=FullGradient):
        return kind(Logistic(), self.weights)


@pytest.fixture
def planned():
    return PlannedHolder()


def test_a_planned_release_is_made_and_recorded(planned):
    value = planned.holder.release(planned.query(), planned.mechanism)
    assert value.shape == planned.weights.shape
    assert not np.array_equal(value, planned.query().evaluate(planned.data))
    (line,) = planned.holder.released
    facts = planned.data.facts
    assert line.sensitivity == planned.query().sensitivity(facts, Neighbours.REPLACE_ONE)
    assert line.noise_scale >= line.sensitivity * planned.mechanism.noise_multiplier
    assert [record.query for record in planned.scope.records] == ["gradient"]


def test_zero_out_uses_half_the_sensitivity():
    one, two = PlannedHolder(neighbours=Neighbours.ZERO_OUT), PlannedHolder()
    for planned in (one, two):
        planned.holder.release(planned.query(), planned.mechanism)
    assert one.holder.released[0].sensitivity * 2 == two.holder.released[0].sensitivity


@pytest.mark.parametrize("mechanism", [LaplaceNoise, NoisyMax])
def test_a_sensitivity_in_the_wrong_norm_is_refused(planned, mechanism):
    with pytest.raises(InvalidInput, match=r"needs a sensitivity in l.*states it in l2"):
        planned.holder.release(planned.query(Tripwire), mechanism(1.0))
    with pytest.raises(InvalidInput, match="states it in linf"):
        planned.holder.release(AtomScores(Logistic(), planned.weights), planned.mechanism)
    assert not planned.scope.records


def test_a_release_past_the_plan_is_refused_before_it_is_evaluated(planned):
    for _ in range(2):
        planned.holder.release(planned.query(), planned.mechanism)
    with pytest.raises(PlanViolation, match="release 3 of 'gradient' was attempted; 2 are planned"):
        planned.holder.release(planned.query(Tripwire), planned.mechanism)
    assert len(planned.holder.released) == 2


def test_a_query_outside_the_plan_is_refused_before_it_is_evaluated(planned):
    query = GradientBlock(Logistic(), planned.weights, None, (0,))
    with pytest.raises(PlanViolation, match="the plan does not contain"):
        planned.holder.release(query, planned.mechanism)
    with pytest.raises(PlanViolation, match="the plan does not contain"):
        planned.holder.release(planned.query(Tripwire), planned.mechanism, group="another")


def test_less_noise_than_planned_is_refused_before_it_is_evaluated(planned):
    for factor in (0.5, 1.0 - 1e-15, 2.0):
        cheap = replace(planned.mechanism, noise_multiplier=planned.mechanism.noise_multiplier * factor)
        with pytest.raises(PlanViolation, match="cost differs from the plan"):
            planned.holder.release(planned.query(Tripwire), cheap)


def test_a_different_replacement_ratio_is_a_different_event(planned):
    class Cheaper(Tripwire):
        replacement_ratio = 1.0

    with pytest.raises(PlanViolation, match="cost differs from the plan"):
        planned.holder.release(planned.query(Cheaper), planned.mechanism)


def test_nothing_is_released_after_the_scope_is_closed(planned):
    with planned.scope:
        planned.holder.release(planned.query(), planned.mechanism)
    with pytest.raises(PlanViolation, match="after the fit had been settled"):
        planned.holder.release(planned.query(Tripwire), planned.mechanism)
    assert [record.forfeited for record in planned.scope.records] == [False, True]


def test_a_planned_release_that_fails_stays_charged(planned):
    with pytest.raises(Evaluated), planned.scope:
        planned.holder.release(planned.query(Tripwire), planned.mechanism)
    assert len(planned.scope.records) == 2
    assert planned.ledger.spent().n_fits == 1


def test_bad_queries_are_refused_before_the_charge(planned):
    with pytest.raises(InvalidInput, match="needs a Query"):
        planned.holder.release(lambda data: data.target, planned.mechanism)
    with pytest.raises(InvalidInput, match="weights must have shape"):
        planned.holder.release(Tripwire(Logistic(), np.zeros(99)), planned.mechanism)
    with pytest.raises(InvalidInput, match="weights must be finite"):
        planned.holder.release(Tripwire(Logistic(), np.full_like(planned.weights, np.nan)), planned.mechanism)
    with pytest.raises(InvalidInput, match="outside a design"):
        planned.holder.release(
            GradientBlock(Logistic(), planned.weights, None, (99,)), planned.mechanism, group="gradient"
        )
    assert not planned.scope.records


def test_queries_of_one_family_share_their_numbers_and_others_do_not(planned):
    d = len(planned.weights)
    boxed = BoxedWeights(np.zeros(d), 8.0)

    class Halved(GradientBlock):
        def zero_out_sensitivity(self, facts):
            return 0.5 * super().zero_out_sensitivity(facts)

    def blocks(cls):
        return [
            cls(loss, weights, clip, columns)
            for loss in (Logistic(), SmoothedHinge(0.5), SmoothedHinge(2.0))
            for weights in (boxed, boxed.with_weight(0, 3.0), planned.weights)
            for clip in (None, 0.1, 0.2)
            for columns in ((0,), (1,), (0, 1))
        ]

    seen = {}
    for query in [*blocks(GradientBlock), *blocks(Halved), GradientCoordinate(Logistic(), boxed, None, (0,))]:
        released, bound, event = planned.holder._public_numbers(query, planned.mechanism, None)
        assert released.sensitivity == query.sensitivity(planned.holder.facts, planned.holder.neighbours)
        assert released.size == query.size(planned.holder.facts)
        assert released.query == query.name
        assert bound == query.bound(planned.holder.facts)
        assert event == planned.mechanism.event(query.replacement_ratio)
        if query.family is not None:
            assert seen.setdefault(query.family, released) is released
    assert len(seen) == 3 * 3 * 2
    assert all(query.family is None for query in blocks(Halved))


def test_a_shared_value_is_refused_also_in_a_query_of_a_known_family(planned):
    query = GradientBlock(Logistic(), BoxedWeights(np.zeros(len(planned.weights)), 8.0), None, (0,))
    planned.holder._public_numbers(query, planned.mechanism, "gradient")
    object.__setattr__(query, "note", Shared(np.zeros(3), TrustedDomain("a", ("b",)), "c"))
    with pytest.raises(PlanViolation, match="a shared value is neither"):
        planned.holder.release(query, planned.mechanism, group="gradient")
    assert not planned.scope.records


def test_a_holder_cannot_be_pickled_or_copied(planned):
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            attempt(planned.holder)


def test_reprs_show_no_data(planned):
    target = planned.data.target
    for text in (repr(planned.holder), str(planned.holder), repr(planned.data), repr(planned.data.design)):
        assert "array" not in text
        assert repr(target[:3])[6:12] not in text


# ------------------------------------------------------------------------------------------ values that are shared
@pytest.fixture
def shared(planned):
    return planned.holder.share(PartialPredictions(planned.weights), DOMAIN)


def test_sharing_is_logged_and_stays_inside(planned, shared):
    assert planned.holder.shared == [("partial predictions", "clinics")]
    assert shared.reveal_inside(TrustedDomain("clinics", ("north", "south"))).shape == (planned.data.facts.n,)
    for stranger in (TrustedDomain("press", ("a",)), TrustedDomain("clinics", ("north", "south", "press"))):
        with pytest.raises(PlanViolation, match="requested in"):
            shared.reveal_inside(stranger)


@pytest.mark.parametrize(
    "attempt",
    [
        np.asarray,
        np.array,
        float,
        int,
        list,
        len,
        bytes,
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda s: s + 1,
        lambda s: s[0],
        lambda s: np.add(s, 1.0),
        lambda s: np.sum(s),
        lambda s: s @ np.ones(60),
        lambda s: memoryview(s),
        vars,
    ],
)
def test_a_shared_value_cannot_be_converted(shared, attempt):
    with pytest.raises((TypeError, ValueError)):
        attempt(shared)


def test_its_repr_shows_only_the_domain(shared):
    assert repr(shared) == "Shared(query='partial predictions', domain='clinics')"
    assert f"{shared}" == repr(shared)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: s,
        lambda s: (1, s),
        lambda s: [[s]],
        lambda s: {"x": s},
        lambda s: {s: 1},
        lambda s: frozenset([s]),
        lambda s: np.array([None, s], dtype=object),
    ],
)
@pytest.mark.parametrize("kind", [Holds, HoldsAsAttribute])
def test_a_query_cannot_carry_a_shared_value(planned, shared, wrap, kind):
    holding = np.empty(2, object)
    holding[1] = shared
    value = holding if wrap(None).__class__ is np.ndarray else wrap(shared)
    for way in (lambda q: planned.holder.release(q, planned.mechanism), lambda q: planned.holder.share(q, DOMAIN)):
        with pytest.raises(PlanViolation, match="a shared value is neither"):
            way(kind(value))
    assert not planned.scope.records


def test_a_shared_value_or_a_person_cannot_be_released(planned, shared):
    with pytest.raises(InvalidInput, match="needs a Query, not Shared"):
        planned.holder.release(shared, planned.mechanism)
    with pytest.raises(InvalidInput):
        planned.holder.release(PartialPredictions(planned.weights), planned.mechanism)
    with pytest.raises(InvalidInput, match="partial predictions have no release"):
        PartialPredictions(planned.weights).sensitivity(planned.data.facts, Neighbours.ZERO_OUT)
    with pytest.raises(InvalidInput, match="partial predictions have no release"):
        PartialPredictions(planned.weights).bound(planned.data.facts)
    with pytest.raises(TypeError):
        planned.mechanism.apply(shared, 1.0, 1.0, RandomSource(0))
    assert not planned.scope.records


def test_moments_are_not_in_this_plan(planned):
    with pytest.raises(PlanViolation):
        planned.holder.release(FirstMoment(), planned.mechanism)
    assert isinstance(planned.holder.share(FirstMoment(), DOMAIN), Shared)


def test_seeded_noise_is_refused_if_the_ledger_is_binding(tmp_path):
    plan = calibrate(Plan((PlannedRelease(FirstMoment.name, "gaussian", 1),)), Budget(1.0, 1e-6))
    data = problem()
    capped = Ledger(dataset="people")
    capped.set_cap(Budget(5.0, 1e-5))
    for ledger in (capped, Ledger(tmp_path / "books.db", dataset="people")):
        scope = Scope(plan, ledger, Neighbours.REPLACE_ONE, "a seeded fit")
        with pytest.raises(PlanViolation, match="seeded"):
            DataHolder(data, scope, RandomSource(insecure_seed=1), Neighbours.REPLACE_ONE)


def test_holder_and_scope_must_agree_on_neighbours():
    plan = calibrate(Plan((PlannedRelease(FirstMoment.name, "gaussian", 1),)), Budget(1.0, 1e-6))
    scope = Scope(plan, Ledger(), Neighbours.REPLACE_ONE, "a fit")
    with pytest.raises(PlanViolation, match="same neighbours"):
        DataHolder(problem(), scope, RandomSource(), Neighbours.ZERO_OUT)


def test_nothing_is_shared_without_a_declared_domain():
    plan = calibrate(Plan((PlannedRelease(FirstMoment.name, "gaussian", 1),)), Budget(1.0, 1e-6))
    scope = Scope(plan, Ledger(), Neighbours.ZERO_OUT, "a fit")
    holder = DataHolder(problem(), scope, RandomSource(), Neighbours.ZERO_OUT)
    with pytest.raises(PlanViolation, match="no such trusted domain"):
        holder.share(FirstMoment(), DOMAIN)


def test_no_attribute_of_a_holder_gives_an_exact_value(planned):
    """Whatever a holder has, by any name, is neither the data nor a way to evaluate a query without a charge."""
    exact = planned.query().evaluate(planned.data)
    for name in dir(planned.holder):
        value = getattr(planned.holder, name)
        assert value is not planned.data, name
        if not callable(value) or name.startswith("__"):
            continue
        for arguments in ((planned.query(),), (planned.query(), planned.mechanism), (planned.query(), DOMAIN)):
            charged, shared = len(planned.scope.records), len(planned.holder.shared)
            try:
                given = value(*arguments)
            except (TypeError, AttributeError, PlanViolation, InvalidInput, ValueError):
                continue
            if isinstance(given, Shared):
                assert len(planned.holder.shared) == shared + 1, name
                assert given.domain == DOMAIN
            elif isinstance(given, np.ndarray):
                assert len(planned.scope.records) == charged + 1, name
                assert not np.array_equal(given, exact), name


def test_an_observer_sees_every_release_and_cannot_skip_a_charge(planned):
    class Watcher(Observer):
        def __init__(self):
            self.seen = []

        def charged(self, query, event, units=1):
            self.seen.append(("charged", query, event))

        def evaluated(self, query, value, facts):
            self.seen.append(("evaluated", query.name, facts.n))
            return value

        def apply(self, mechanism, value, sensitivity, bound, source):
            self.seen.append(("apply", type(mechanism).__name__, sensitivity))
            return super().apply(mechanism, value, sensitivity, bound, source)

    watcher = Watcher()
    with observing(watcher):
        planned.holder.release(planned.query(), planned.mechanism)
        with pytest.raises(InvalidInput, match="already observed"), observing(Watcher()):
            pass
    planned.holder.release(planned.query(), planned.mechanism)  # not seen any more
    (line, _) = planned.holder.released
    assert watcher.seen == [
        ("charged", "gradient", planned.mechanism.event(2.0)),
        ("evaluated", "gradient", planned.data.facts.n),
        ("apply", "GaussianNoise", line.sensitivity),
    ]
    assert len(planned.scope.records) == 2
