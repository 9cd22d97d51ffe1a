"""The epsilon of a few-level report: exact on its lattice, from its answers alone, and close to the best possible."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from dperm.privacy.local.few_levels import LEVELS_EPSILON_RANGE, FewLevels, LevelTable
from dperm.privacy.local.one_bit import LATTICE, OneBit
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import Moments, Task
from dperm.testing import ContractViolation
from dperm.testing.local import check_answers

EPSILONS = np.unique(np.concatenate([np.geomspace(1.0, 16.0, 40), [1.5, 2.0, 3.0, 5.0, 8.0, 15.9]])).tolist()
WORST = (-1.0, 1.0, -5.0, np.nan, np.inf, 0.0, 1e308, 5e-324, 0.123, -0.9999999)


def within(laws, epsilon):
    """All answers, all pairs, against exp(epsilon) to 60 digits."""
    with mpmath.workdps(60):
        allowed = mpmath.exp(mpmath.mpf(epsilon))
        for column in zip(*laws, strict=True):
            ratio = Fraction(max(column), min(column))
            if mpmath.mpf(ratio.numerator) / ratio.denominator > allowed:
                return False
    return True


@pytest.mark.parametrize("n_levels", [3, 8, 16])
def test_no_ratio_exceeds_exp_epsilon(n_levels):
    for epsilon in EPSILONS if n_levels == 3 else EPSILONS[::4]:
        report = FewLevels(epsilon, n_levels)
        assert all(sum(row) == LATTICE for row in report.table.rows)
        assert within(report.table.rows, epsilon)
        assert within([report.law(value) for value in WORST], epsilon)
        assert epsilon - 1e-4 < report.epsilon_realised <= epsilon + 1e-12  # and the budget is used


def test_a_few_points_more_are_caught():
    rows = FewLevels(2.0, 5).table.rows
    first, last = list(rows[0]), list(rows[-1])
    for row, step in ((first, 1), (last, -1)):
        row[::step] = [row[::step][0] + 10, *row[::step][1:-1], row[::step][-1] - 10]
    moved = (tuple(first), *rows[1:-1], tuple(last))
    assert not LevelTable(moved).satisfies(2.0)
    assert not within(moved, 2.0)
    assert LevelTable(rows).satisfies(2.0)
    assert within(rows, 2.0)


@pytest.mark.parametrize(("epsilon", "n_levels"), [(1.0, 16), (2.0, 3), (3.0, 6)])
def test_the_answers_satisfy_epsilon_and_use_all_of_it(epsilon, n_levels):
    source, report = RandomSource(1), FewLevels(epsilon, n_levels)
    values = (-1.0, 1.0, 0.0, 7.0, np.nan)
    check_answers(lambda v: report.report(v, source), values, epsilon, n_answers=n_levels, slack=0.1)


class TestPlantedBugs:
    @staticmethod
    def audit(report, n_levels, epsilon, match="claimed"):
        with pytest.raises(ContractViolation, match=match):
            check_answers(report, (-1.0, 1.0, 0.0), epsilon, n_answers=n_levels)

    def test_a_table_for_twice_epsilon(self):
        source = RandomSource(2)
        self.audit(lambda v: FewLevels(4.0, 5).report(v, source), 5, 2.0)

    def test_a_value_rounded_to_the_levels_without_noise(self):
        self.audit(lambda v: np.rint((v + 1.0) * 2.0).astype(int), 5, 8.0)

    def test_noise_in_the_rounding_alone(self):
        rng = np.random.default_rng(0)
        self.audit(lambda v: np.floor((np.clip(v, -1, 1) + 1.0) * 1.999 + rng.random(v.size)).astype(int), 5, 2.0)

    def test_too_much_noise(self):
        source = RandomSource(3)
        self.audit(lambda v: FewLevels(1.5, 5).report(v, source), 5, 3.0, match="noisier")


def least_worst_variance(epsilon, n_values=17, n_answers=81, widest=1.6):
    """A bound that no unbiased report on a fine grid of answers can beat: the best channel by linear programming."""
    ratio = math.exp(epsilon)
    values = np.linspace(0.0, 1.0, n_values // 2 + 1)
    widest = min(widest, 1.3) if epsilon > 2.5 else widest * (ratio + 1) / (ratio - 1)
    answers = np.linspace(-widest, widest, n_answers)
    k, m = len(values), n_answers
    half = (m + 1) // 2
    n_unknown = k * m + half + 1
    channel = sparse.identity(k * m, format="csr")
    # a least probability for every answer, the same for opposite ones
    least = sparse.csr_matrix((np.ones(m), (np.arange(m), np.minimum(np.arange(m), m - 1 - np.arange(m)))), (m, half))
    floors = sparse.vstack([least] * k)
    nothing = sparse.csr_matrix((k * m, 1))
    squares = sparse.kron(sparse.identity(k), answers[None, :] ** 2)
    limits = sparse.vstack(
        [
            sparse.hstack([-channel, floors, nothing]),
            sparse.hstack([channel, -ratio * floors, nothing]),
            sparse.hstack([squares, sparse.csr_matrix((k, half)), -np.ones((k, 1))]),
        ]
    )
    sums = sparse.vstack([sparse.kron(sparse.identity(k), np.ones((1, m))), sparse.kron(sparse.identity(k), answers)])
    found = linprog(
        np.append(np.zeros(n_unknown - 1), 1.0),
        A_ub=limits,
        b_ub=np.concatenate([np.zeros(2 * k * m), values**2]),
        A_eq=sparse.hstack([sums, sparse.csr_matrix((2 * k, half + 1))]),
        b_eq=np.concatenate([np.ones(k), values]),
        method="highs",
    )
    return found.fun


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 3.0])
def test_no_report_is_much_better(epsilon):
    assert FewLevels(epsilon).gain ** 2 < 1.055 * least_worst_variance(epsilon)


def test_less_noise_than_one_bit_at_every_epsilon():
    low, high = LEVELS_EPSILON_RANGE
    gains = [(OneBit(e).gain / FewLevels(e).gain) ** 2 for e in (low, 2.0, 3.0, 5.0, 8.0, high)]
    assert gains == sorted(gains)
    assert np.all(np.array(gains) > [1.12, 1.85, 3.8, 16.0, 100.0, 220.0])


class TestWholeReports:
    records = np.array([[1.0, 0.0], [-1.0, 0.0], [1e300, 1.0], [np.nan, 0.0]])

    def send(self, task, source):
        return lambda which: task.reports(self.records[which.astype(int)], source, np.zeros(which.size, int)).bit

    def test_a_task_satisfies_its_epsilon(self):
        task = Task("t", 2.0, Moments(((1, 0), (1, 1)), (1.0, 1.0), 2), n_levels=6)
        check_answers(self.send(task, RandomSource(9)), (0, 1, 2, 3), 2.0, n_answers=6)

    def test_a_task_with_another_table_is_caught(self):
        task = Task("t", 2.0, Moments(((1, 0), (1, 1)), (1.0, 1.0), 2), n_levels=6)
        task.__dict__["bit"] = FewLevels(3.0, 6)
        with pytest.raises(ContractViolation, match="claimed"):
            check_answers(self.send(task, RandomSource(10)), (0, 1, 2, 3), 2.0, n_answers=6)
