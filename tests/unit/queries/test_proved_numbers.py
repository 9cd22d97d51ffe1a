"""Sensitivities and bounds are those of the proofs, margins for rounding included: to a few units in the last place.

A margin is too small to show in any released value, so it is compared with its formula, computed here to 40 digits.
"""

from __future__ import annotations

import math

import pytest
from mpmath import mp

from dperm.data.design.facts import Facts
from dperm.data.design.weights import SparseWeights
from dperm.objective import Huber
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.queries import (
    AtomScores,
    ClassCounts,
    FirstMoment,
    FullGradient,
    GradientBlock,
    MappedGradient,
    PenalisedAtomScores,
    PerturbedMinimum,
    SecondMoment,
    TargetDeviation,
    TargetMoment,
    WeightedRows,
)
from dperm.queries.greedy import ColumnConstants, GreedyGradients, GreedyScores

N, D, VALUE, ROW, HEIGHT = 37, 6, 0.75, 1.5, 0.5
FACTS = Facts(
    n=N, n_features=D - 1, d=D, value_bound=VALUE, row_bound=ROW, intercept_height=HEIGHT, target_low=-2, target_high=3
)
SLOPE = 1.25
LOSS = Huber(SLOPE)
WEIGHTS = SparseWeights(D, {}, 4.0)
#: half of the smallest margin, 2^-50: a formula with one margin more, less or of another size differs by more
CLOSE = 2.0**-51


class Rows:
    """Stands in for a map of rows: its error is large enough to be seen."""

    def rounding_error(self, norm):
        return norm / 64


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(40):
        yield


def up(bits):
    return 1 + mp.mpf(2) ** -bits


def person():
    """Slope times row, of all columns."""
    return SLOPE * mp.mpf(ROW) * up(50)


def value():
    """Slope times one value: the block bound of one column has a margin of its own."""
    return SLOPE * mp.mpf(VALUE) * up(50) * up(50)


def second_moment():
    square, entry = mp.mpf(ROW) ** 2 * up(50), (mp.mpf(VALUE) * up(50)) ** 2
    bound = N * min(square, entry) * mp.sqrt(2) * up(50)
    return (square + mp.mpf(2) ** -51 * bound * mp.sqrt(D * (D + 1) // 2)) * up(50), bound


def greedy_scores():
    # the largest quotient is the first column's; the intercept's product is bounded by its height
    roots = [mp.sqrt(mp.mpf(s) + mp.mpf("0.5")) for s in (0.5, 1.5, 1.5, 1.5, 1.5, 0.75)]
    worst = value() / roots[0]
    bound = 4 * (worst + mp.mpf("0.25") / min(roots) + max(roots) * 4)
    return worst / N * up(48) + 2 * mp.mpf(2) ** -46 * bound, bound


CASES = {
    "gradient": (FullGradient(LOSS, WEIGHTS), lambda: (person(), N * SLOPE * mp.mpf(VALUE) * up(50))),
    "clipped gradient": (FullGradient(LOSS, WEIGHTS, clip=0.125), lambda: (0.125, N * mp.mpf(0.125) * up(50))),
    "loosely clipped gradient": (
        FullGradient(LOSS, WEIGHTS, clip=9.0),
        lambda: (person(), N * SLOPE * mp.mpf(VALUE) * up(50)),
    ),
    "block": (
        GradientBlock(LOSS, WEIGHTS, columns=(1, 4)),
        lambda: (SLOPE * VALUE * mp.sqrt(2) * up(50) * up(50), N * SLOPE * mp.mpf(VALUE) * up(50)),
    ),
    "mapped gradient": (
        MappedGradient(LOSS, WEIGHTS, Rows(), 0.125),
        lambda: ((0.125 + 2 * mp.mpf(N) * 0.125 / 64) * up(50), (N * 0.125 + mp.mpf(N) * 0.125 / 64) * up(50)),
    ),
    "first moment": (FirstMoment(), lambda: (ROW, N * mp.mpf(VALUE))),
    "clipped first moment": (FirstMoment(0.25), lambda: (0.25, N * mp.mpf(0.25))),
    "second moment": (SecondMoment(), second_moment),
    "target moment": (TargetMoment(), lambda: (mp.mpf(2.5) * up(50), N * mp.mpf(2.5) * up(50))),
    "target deviation": (TargetDeviation(0.0), lambda: (mp.mpf(1.5) * up(50), N * mp.mpf(1.5) * up(50))),
    "class counts": (ClassCounts(3), lambda: (1, N)),
    "weighted rows": (
        WeightedRows(0.3, columns=(0,)),
        lambda: (mp.mpf(0.3) * VALUE * up(50) * up(50), N * mp.mpf(0.3) * VALUE * up(50)),
    ),
    "atom scores": (
        AtomScores(LOSS, WEIGHTS),
        lambda: (SLOPE * mp.mpf(VALUE) * up(50), N * SLOPE * mp.mpf(VALUE) * up(50)),
    ),
    "penalised atom scores": (
        PenalisedAtomScores(LOSS, WEIGHTS, penalty=SeparablePenalty(l1=0.25, l2=0.5)),
        lambda: (
            SLOPE * mp.mpf(VALUE) * up(50) + mp.mpf(2) ** -50 * N * (SLOPE * VALUE + 0.25 + 0.5 * 4) * up(48),
            N * (SLOPE * mp.mpf(VALUE) + 0.25 + 0.5 * 4) * up(48),
        ),
    ),
    "greedy scores": (
        GreedyScores(LOSS, WEIGHTS, ColumnConstants((0.5, 1.5, 1.5, 1.5, 1.5, 0.75)), SeparablePenalty(0.25, 0.5)),
        greedy_scores,
    ),
    "greedy gradients": (
        GreedyGradients(LOSS, WEIGHTS),
        lambda: (value() / N * up(48) + mp.mpf(2) ** -46 * value() * up(48), value() * up(48)),
    ),
    "perturbed minimum": (
        PerturbedMinimum(LOSS, [2.0, 3.0, 3.0, 3.0, 3.0, 0.5], 7.0),
        lambda: (SLOPE * mp.mpf(ROW) * up(48), 7),
    ),
}


def equal(found, wanted):
    return abs(mp.mpf(found) / wanted - 1) < CLOSE


@pytest.mark.parametrize("case", CASES)
def test_sensitivities_and_bounds(case):
    query, formula = CASES[case]
    sensitivity, bound = formula()
    assert equal(query.zero_out_sensitivity(FACTS), sensitivity)
    assert equal(query.bound(FACTS), bound)


def test_a_replaced_record_counts_twice_or_at_a_right_angle():
    right_angle = mp.sqrt(2) * up(50)
    for query, ratio in ((TargetMoment(), 2), (SecondMoment(), right_angle), (ClassCounts(3), right_angle)):
        apart = query.zero_out_sensitivity(FACTS)
        assert equal(query.sensitivity(FACTS, Neighbours.ZERO_OUT), apart)
        assert equal(query.sensitivity(FACTS, Neighbours.REPLACE_ONE), ratio * apart)


@pytest.mark.parametrize("change", [{}, {"n": 40}, {"row_bound": 2.5}, {"intercept_height": 0.25}])
def test_curvature_and_rounding_of_a_perturbed_minimum(change):
    numbers = {"n": N, "row_bound": ROW, "intercept_height": HEIGHT, **change}
    facts = Facts(n_features=D - 1, d=D, value_bound=VALUE, target_low=-2, target_high=3, **numbers)
    n, row, height = numbers["n"], mp.mpf(numbers["row_bound"]), mp.mpf(numbers["intercept_height"])
    query = PerturbedMinimum(LOSS, [2.0, 3.0, 3.0, 3.0, 3.0, 0.5], 7.0)
    features = (row**2 * up(48) - height**2) / 2
    assert equal(query.curvature_ratio(facts), LOSS.curvature_bound * (features + height**2 / mp.mpf(0.5)) * up(48))
    length, linear = mp.mpf(0.3), mp.mpf(11)
    scores = mp.mpf(2) ** -50 * (1 + row * length)
    slopes = mp.mpf(2) ** -49 * SLOPE + LOSS.curvature_bound * scores
    additions = math.ceil(52 / facts.grids.slope_bits) + 4
    total = n * SLOPE * row + 3 * length + linear
    wanted = (n * row * slopes + mp.mpf(2) ** -52 * additions * total) * up(48)
    assert equal(query.rounding(facts, float(length), float(linear)), wanted)


def test_the_check_sees_one_margin_too_few():
    assert not equal(SLOPE * ROW, person())
    assert not equal(SLOPE * ROW * (1.0 + 2.0**-49), person())
