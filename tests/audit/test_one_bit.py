"""The epsilon of a one-bit report: exact on its lattice, and from its bits alone."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dperm.errors import Unsupported
from dperm.privacy.local.one_bit import LATTICE, OneBit, printed_bit_epsilon, printed_bit_refusal
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import Moments, Task
from dperm.testing import ContractViolation
from dperm.testing.local import check_one_bit

EPSILONS = np.unique(np.concatenate([np.geomspace(1e-3, 16.0, 400), [0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 15.9]]))
WORST = np.array([-1.0, 1.0, -5.0, 5.0, np.nan, np.inf, -np.inf, 0.0, -1e308, 1e308, np.nextafter(1.0, 2.0), 5e-324])


def within(thresholds, epsilon):
    """Both bits, all pairs, against exp(epsilon) to 60 digits."""
    ks = [int(k) for k in thresholds]
    with mpmath.workdps(60):
        allowed = mpmath.exp(mpmath.mpf(epsilon))
        ones = Fraction(max(ks), min(ks)) if min(ks) > 0 else None
        zeros = Fraction(LATTICE - min(ks), LATTICE - max(ks)) if max(ks) < LATTICE else None
        return all(r is not None and mpmath.mpf(r.numerator) / r.denominator <= allowed for r in (ones, zeros))


def test_no_ratio_exceeds_exp_epsilon():
    for epsilon in EPSILONS:
        bit = OneBit(float(epsilon))
        thresholds = bit.thresholds(WORST)
        assert within(thresholds, epsilon)
        assert {int(thresholds.min()), int(thresholds.max())} == {bit.floor, LATTICE - bit.floor}


def test_the_floor_is_the_smallest_one():
    for epsilon in EPSILONS:
        floor = OneBit(float(epsilon)).floor
        assert not within([floor - 1, LATTICE - floor + 1], epsilon)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_bits_satisfy_epsilon_and_use_all_of_it(epsilon):
    source = RandomSource(1)
    check_one_bit(lambda v: OneBit(epsilon).report(v, source), (-1.0, 1.0, 0.0, 7.0, np.nan), epsilon)


class TestPlantedBugs:
    @staticmethod
    def audit(epsilon, report, inputs=(-1.0, 1.0), match="claimed"):
        with pytest.raises(ContractViolation, match=match):
            check_one_bit(report, inputs, epsilon)

    def test_a_floor_for_twice_epsilon(self):
        source = RandomSource(2)
        self.audit(1.0, lambda v: OneBit(2.0).report(v, source))

    def test_a_missing_clip(self):
        source = RandomSource(3)
        bit = OneBit(1.0)

        def unclipped(values):
            k = bit.floor + np.floor((values + 1.0) / 2.0 * bit.steps)
            return source.words(values.size) >> np.uint64(32) < np.clip(k, 0, LATTICE)

        self.audit(1.0, unclipped, (-1.0, 1.4))

    def test_too_much_noise(self):
        source = RandomSource(4)
        self.audit(1.0, lambda v: OneBit(0.9).report(v, source), match="noisier")

    def test_a_floor_rounded_down(self):
        assert not within([OneBit(1.0).floor - 1, LATTICE - OneBit(1.0).floor], 1.0)

    @pytest.mark.parametrize("epsilon", [0.25, 0.5, 0.69])
    def test_the_printed_bit(self, epsilon):
        """Only the bit 0 gives it away, and only where the public y is large."""
        rng = np.random.default_rng(0)

        def printed(values, y=1.5):
            return rng.random(values.size) < 0.5 * np.exp(epsilon * (np.abs(y) - np.abs(y - values)))

        self.audit(epsilon, printed, (0.0, 1.0), match="bit 0")
        exact = math.log(0.5 / (1.0 - 0.5 * math.exp(epsilon)))
        assert printed_bit_epsilon(epsilon) == pytest.approx(exact)


def test_the_refusal_states_the_true_epsilon():
    assert printed_bit_epsilon(0.5) == pytest.approx(1.046, abs=5e-4)
    assert printed_bit_epsilon(0.69) == pytest.approx(5.07, abs=5e-3)
    with pytest.raises(Unsupported, match=r"epsilon 1\.046"):
        raise printed_bit_refusal(0.5)
    with pytest.raises(Unsupported, match="no finite epsilon"):
        raise printed_bit_refusal(1.0)


class TestWholeReports:
    """From a record to the wire: the same audit on a task, and on one whose epsilon is not the one it states."""

    records = np.array([[1.0, 0.0], [-1.0, 0.0], [1e300, 1.0], [np.nan, 0.0]])

    def report(self, task, source):
        def send(which):
            index = np.zeros(which.size, int)
            return task.reports(self.records[which.astype(int)], source, index).bit

        return send

    def test_a_task_satisfies_its_epsilon(self):
        task = Task("t", 1.0, Moments(((1, 0), (1, 1)), (1.0, 1.0), 2))
        check_one_bit(self.report(task, RandomSource(9)), (0, 1, 2, 3), 1.0)

    def test_a_task_with_another_bit_is_caught(self):
        task = Task("t", 1.0, Moments(((1, 0), (1, 1)), (1.0, 1.0), 2))
        task.__dict__["bit"] = OneBit(1.5)
        with pytest.raises(ContractViolation, match="claimed"):
            check_one_bit(self.report(task, RandomSource(10)), (0, 1, 2, 3), 1.0)
