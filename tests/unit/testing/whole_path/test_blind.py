"""Blind mechanisms: every form of input is replaced, nothing of it comes through, and no other noise is let in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from dperm.privacy.boundary import observing
from dperm.privacy.local.categories import LocalHashing, RandomizedCategory, UnaryEncoding
from dperm.privacy.local.few_levels import FewLevels
from dperm.privacy.local.one_bit import OneBit
from dperm.privacy.local.public_noise_bit import PublicNoiseBit
from dperm.privacy.mechanisms.joint_selection import JointSelection
from dperm.privacy.mechanisms.printed import LaplaceInsideMax, LaplaceMax
from dperm.privacy.mechanisms.sampled_noise import Summands
from dperm.privacy.mechanisms.selection import TwoLevelRace
from dperm.privacy.mechanisms.standard import MECHANISMS, GaussianNoise, NoisyMax
from dperm.privacy.randomness import RandomSource
from dperm.testing import MECHANISM_EXAMPLES, ContractViolation
from dperm.testing.mechanisms import LinearObjective
from dperm.testing.whole_path import LEVELS, BlindMechanisms
from dperm.testing.whole_path.forms import leaves_of

#: sensitivity and bound
NUMBERS = (1.0, 64.0)


def inputs(mechanism):
    """Two very different inputs of the same form."""
    one, two = np.full(5, 40.0), np.linspace(-60.0, 3.0, 5)
    if mechanism.kind == "poisson-gaussian":
        return Summands.of_rows(np.outer(np.arange(9.0), one)), Summands.of_rows(np.outer(np.arange(9.0), two))
    if mechanism.kind == "objective":
        return [LinearObjective(slopes, mechanism.strength, mechanism.curvature_ratio) for slopes in (one, two)]
    return one, two


def released(blind, mechanism, value):
    with observing(blind):
        return leaves_of([mechanism.apply(value, *NUMBERS, RandomSource(insecure_seed=3)) for _ in range(3)])


EXTRA = {"joint": JointSelection(1.0), "printed": LaplaceInsideMax(1.0), "printed, all scores": LaplaceMax(1.0)}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", [*MECHANISMS, *EXTRA])
def test_what_a_blind_mechanism_releases_ignores_its_input(kind, level):
    mechanism = EXTRA[kind] if kind in EXTRA else MECHANISM_EXAMPLES[kind][0]
    one, two = inputs(mechanism)
    assert released(BlindMechanisms(level), mechanism, one) == released(BlindMechanisms(level), mechanism, two)


def test_levels_and_seeds_give_other_values():
    found = {
        (level, seed): str(released(BlindMechanisms(level, seed), GaussianNoise(1.0), np.zeros(5)))
        for level in LEVELS
        for seed in (0, 1)
    }
    assert len(set(found.values())) >= 2 * len(LEVELS) - 2  # zero has no seeds, and mixed may draw it


def test_a_race_is_replaced_by_one_of_other_scores():
    races = [TwoLevelRace(scores, 1.0, 0.01, 64.0) for scores in (np.arange(9.0), -np.arange(9.0))]
    chosen = [released(BlindMechanisms("strong"), NoisyMax(0.01), race) for race in races]
    assert chosen[0] == chosen[1]
    assert [race.select(RandomSource(insecure_seed=1)) for race in races] == [8, 0]  # they do differ


@pytest.mark.parametrize("level", LEVELS)
def test_local_reports_ignore_the_values(level):
    source = {"insecure_seed": 4}
    reals, categories = (np.full(40, 0.9), np.linspace(-1, 1, 40)), (np.zeros(40, int), np.full(40, 2))
    for mechanism, values in [(OneBit(16.0), reals), (FewLevels(4.0, 3), reals)]:
        one, two = (report(level, mechanism, value, RandomSource(**source)) for value in values)
        assert one == two
    for kind in (RandomizedCategory, UnaryEncoding, LocalHashing):
        one, two = (report(level, kind(8.0, 3), value, RandomSource(**source)) for value in categories)
        assert one == two
    one, two = (report(level, PublicNoiseBit(4.0), value, np.full(40, 0.3), RandomSource(**source)) for value in reals)
    assert one == two


def report(level, mechanism, *arguments):
    with observing(BlindMechanisms(level)):
        return leaves_of(mechanism.report(*arguments))


def test_a_mechanism_that_no_check_covers_is_refused():
    @dataclass(frozen=True)
    class Exact(GaussianNoise):
        def draw(self, value, sensitivity, bound, source):
            return value

    with pytest.raises(ContractViolation, match="draws noise of its own"):
        released(BlindMechanisms(), Exact(1.0), np.zeros(3))


def test_an_unknown_level_is_refused():
    with pytest.raises(ContractViolation, match="must be one of"):
        BlindMechanisms("loud")
