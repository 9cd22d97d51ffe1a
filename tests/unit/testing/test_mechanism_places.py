"""Every place that must know a mechanism knows all registered ones; CONTRIBUTING.md lists the same places."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from dperm.audit.releases import judging, moves
from dperm.errors import Unsupported
from dperm.privacy.accounting import curves
from dperm.privacy.accounting.composition import leaves
from dperm.privacy.accounting.events import ApproximateDP
from dperm.privacy.mechanisms.printed import LaplaceInsideMax
from dperm.privacy.mechanisms.sampled_noise import Summands
from dperm.privacy.mechanisms.standard import MECHANISMS
from dperm.privacy.randomness import RandomSource
from dperm.privacy.recording import Recorder
from dperm.testing.examples import MECHANISM_EXAMPLES
from dperm.testing.mechanisms import LinearObjective
from dperm.testing.replay import noise
from dperm.testing.replay.totals import independent_total
from dperm.testing.whole_path.blind import BlindMechanisms

EXAMPLES = {kind: MECHANISM_EXAMPLES[kind][0] for kind in MECHANISMS}
#: bound on values of the examples: public, far above their sensitivity of 1
BOUND = 100.0


def value_for(mechanism, height=1.0):
    """A value of the form that the mechanism takes: three numbers, or what stands for them."""
    if mechanism.kind == "poisson-gaussian":
        return Summands.of_rows(np.full((4, 3), height))
    if mechanism.kind == "objective":
        return LinearObjective(np.full(3, height), mechanism.strength, mechanism.curvature_ratio)
    return np.array([height, 0.0, -height])


def entry_of(mechanism):
    recorder = Recorder()
    recorder.charged("something", mechanism.event(2.0))
    return recorder.entry(mechanism, value_for(mechanism), 1.0, BOUND, np.zeros(3))


@pytest.mark.parametrize("kind", MECHANISMS)
def test_the_audit_of_releases_moves_measures_and_names_it(kind):
    mechanism = EXAMPLES[kind]
    event, value = mechanism.event(2.0), value_for(mechanism)
    query = SimpleNamespace(bound=lambda facts: BOUND, size=lambda facts: 3)
    move = moves.move_for(query, value, None, event, 1.0, np.random.default_rng(1))
    group = moves.GroupSamples(kind, event)
    move.measure(mechanism.draw(move.given, 1.0, BOUND, RandomSource()), mechanism, group)
    assert group.measured
    shown = judging.describe(event)
    assert not shown.startswith(f"{type(event).__name__},")
    assert "nan" not in shown
    assert judging.is_pure(event) == math.isfinite(curves.pure(event))


@pytest.mark.parametrize("kind", MECHANISMS)
def test_blind_mechanisms_have_a_stand_in_that_ignores_the_value(kind):
    mechanism = EXAMPLES[kind]
    released = [
        BlindMechanisms("strong").apply(mechanism, value_for(mechanism, height), 1.0, BOUND, RandomSource(3))
        for height in (1.0, -1.0)
    ]
    np.testing.assert_array_equal(*released)


@pytest.mark.parametrize("kind", MECHANISMS)
def test_a_replay_knows_its_event_and_its_cost(kind):
    entry = entry_of(EXAMPLES[kind])
    assert noise._EVENTS[kind] in {type(leaf).__name__ for leaf in leaves(entry.event)}
    noise.check_events([entry])
    assert independent_total([entry.public()], 1e-5).upper > 0.0


def test_an_unknown_mechanism_is_noticed_at_each_place():
    unknown = LaplaceInsideMax(1.0)
    event = unknown.event(2.0)
    assert isinstance(event, ApproximateDP)
    query = SimpleNamespace(bound=lambda facts: BOUND, size=lambda facts: 3)
    assert moves.move_for(query, np.zeros(3), None, event, 1.0, np.random.default_rng(1)) is None
    assert judging.describe(event).startswith("ApproximateDP,")
    assert unknown.kind not in noise._EVENTS
    with pytest.raises(Unsupported, match="no independent calculation"):
        independent_total([entry_of(unknown).public()], 1e-5)
