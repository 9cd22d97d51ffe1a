"""A few levels per person: the table, decoding, words and bad input; and tasks that use them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from dperm.errors import InvalidBudget, InvalidInput, Unsupported
from dperm.privacy.accounting import composition
from dperm.privacy.local.few_levels import FewLevels, LevelTable
from dperm.privacy.local.one_bit import LATTICE, OneBit
from dperm.privacy.local.public_noise_bit import PublicNoiseBit
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import Moments, Parity, Reports, Task


class Fixed:
    """A source that returns the words it is given."""

    def __init__(self, *parts):
        self.parts = [np.asarray(part, np.uint32) for part in parts]

    def words(self, n):
        return self.parts.pop(0)[: 2 * n].view(np.uint64)


@pytest.mark.parametrize("report", [FewLevels(1.0), FewLevels(2.5, 5), FewLevels(16.0, 16)], ids=repr)
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 1.0), (-0.5, 3.0)])
def test_decoding_is_unbiased_with_the_stated_variance(report, low, high):
    """Exactly: the expectation over the lattice, not a simulation."""
    decoded = report.decode(np.arange(report.n_levels), low, high)
    for value in np.linspace(low, high, 23):
        unit = 2.0 * (value - low) / (high - low) - 1.0
        chance = np.array([count / LATTICE**2 for count in report.law(unit)])
        assert chance.sum() == pytest.approx(1.0)
        assert chance @ decoded == pytest.approx(value, abs=2e-8 * (high - low))
        variance = chance @ (decoded - value) ** 2
        assert variance == pytest.approx(float(report.variance(value, low, high)), rel=1e-6, abs=1e-12)
        assert variance <= (report.gain * (high - low) / 2.0) ** 2 * (1.0 + 1e-9)


def test_the_usual_range_is_from_minus_one_to_one():
    report, levels = FewLevels(1.0), np.arange(FewLevels(1.0).n_levels)
    np.testing.assert_array_equal(report.decode(levels), report.decode(levels, -1.0, 1.0))
    assert report.variance(0.3) == report.variance(0.3, -1.0, 1.0)


def test_the_worst_variance_is_reached():
    report = FewLevels(2.0, 7)
    assert float(report.variance(np.linspace(-1, 1, 100_001)).max()) == pytest.approx(report.gain**2, rel=1e-6)


def test_every_word_goes_to_its_level():
    report = FewLevels(2.0, 4)
    row = report.table.rows[0]
    ends = np.cumsum(row)
    words = [0, ends[0] - 1, ends[0], ends[1] - 1, ends[1], ends[2] - 1, ends[2], LATTICE - 1]
    never_up = np.zeros(8)
    assert report.report(np.full(8, -1.0), Fixed(never_up, words)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_value_is_rounded_to_the_knots_around_it():
    report = FewLevels(3.0, 6)
    knots = report.table.knots
    knot, up = report.knots_of([-1.0, 1.0, (knots[2] + 3.0 * knots[3]) / 4.0, np.nan, -9.0])
    assert knot.tolist() == [0, knots.size - 2, 2, 0, 0]
    assert up[[0, 1, 3, 4]].tolist() == [0, LATTICE, 0, 0]
    assert int(up[2]) == pytest.approx(0.75 * LATTICE, rel=1e-9)


def test_the_table_is_symmetric_and_its_levels_are_evenly_spaced():
    table = FewLevels(2.0, 9).table
    assert table.rows == tuple(row[::-1] for row in table.rows[::-1])
    assert np.ptp(np.diff(table.levels)) < 1e-12
    assert table.knots[[0, -1]].tolist() == [-1.0, 1.0]


def test_the_same_table_every_time():
    """Whole numbers of a given epsilon must not change: they name a task."""
    assert FewLevels(2.0, 3).table.rows[0] == FewLevels(2, 3).table.rows[0]
    assert sum(FewLevels(2.0, 3).table.least) == 1304969212


def test_the_cost_of_a_report():
    report = FewLevels(2.0)
    assert composition.epsilon(report.event, 1e-12).epsilon <= 2.0
    assert report.epsilon_realised == pytest.approx(2.0, abs=1e-6)


def test_bad_input():
    for epsilon in (0.99, 16.1, np.nan, True, "2"):
        with pytest.raises(InvalidBudget, match="few-level report"):
            FewLevels(epsilon)
    for n_levels in (2, 17, 4.0, True):
        with pytest.raises(InvalidInput, match="n_levels"):
            FewLevels(2.0, n_levels)
    with pytest.raises(InvalidInput, match="one value per person"):
        FewLevels(2.0).report(np.zeros((2, 2)), RandomSource(1))
    with pytest.raises(InvalidInput, match="low below high"):
        FewLevels(2.0).decode([1], 1.0, 1.0)
    half = LATTICE // 2
    for rows in (((half, half),), ((half, half), (half, half, 0)), ((1, 1), (1, 1)), ((half, half), (half, half))):
        with pytest.raises(InvalidInput, match="table of levels"):
            LevelTable(rows)
    with pytest.raises(InvalidInput, match="opposite"):
        LevelTable(((half, half), (half - 5, half + 5)))


class TestTasks:
    sketch = Moments(((1, 0), (0, 1), (2, 0), (1, 1)), (3.0, 3.0, 1.0, 1.0), 2)

    def people(self, n, seed=0):
        return np.random.default_rng(seed).uniform(-1.0, 1.0, (n, 2))

    @pytest.mark.parametrize("n_levels", [3, 16])
    def test_means_are_unbiased_with_their_variance(self, n_levels):
        task, records = Task("t", 2.0, self.sketch, n_levels=n_levels), self.people(200_000)
        means, variance = task.means(task.collect(records, RandomSource(1)))
        truth = [self.sketch.values(records, np.full(len(records), j)).mean() for j in range(4)]
        chi = float(((means - truth) ** 2 / variance).sum())
        assert stats.chi2.sf(chi, 4) > 1e-4

    def test_less_noise_than_bits(self):
        records = self.people(50_000)
        noise = [
            task.means(task.collect(records, RandomSource(2)))[1]
            for task in (Task("t", 5.0, self.sketch, n_levels=k) for k in (2, 16))
        ]
        # the spread between people is part of the variance, and no report can lower it
        assert np.all(noise[1] < 0.5 * noise[0])

    def test_scaled_sums(self):
        sketch = Parity(4, (1.0, 2.0))
        task = Task("t", 3.0, sketch, n_levels=5)
        records = (self.people(100_000).repeat(2, axis=1) > 0.2).astype(float)
        means, variance = task.scaled_sums(task.collect(records, RandomSource(3)))
        truth = np.array([sketch.values(records, np.full(len(records), j)).mean() for j in range(sketch.size)])
        assert np.all(np.abs(means - truth) < 5.0 * np.sqrt(variance))

    def test_counts_merge_and_name_their_task(self):
        task = Task("t", 2.0, self.sketch, n_levels=4)
        reports = task.reports(self.people(1000), RandomSource(4))
        parts = [task.count(Reports(reports.index[s], reports.bit[s])) for s in (slice(0, 300), slice(300, 1000))]
        merged = task.no_counts() + parts[0] + parts[1]
        assert merged.by_answer.shape == (4, 4)
        assert np.array_equal(merged.by_answer, task.count(reports).by_answer)
        assert merged.n_people == 1000
        with pytest.raises(InvalidInput, match="another task"):
            Task("t", 2.0, self.sketch).means(merged)
        with pytest.raises(InvalidInput, match="levels"):
            task.count(Reports(reports.index, np.full(1000, 4, np.uint8)))

    def test_the_schema_survives_json_and_a_damaged_one_is_refused(self):
        task = Task("t", 2.0, self.sketch, n_levels=4)
        schema = json.loads(json.dumps(task.schema()))
        assert Task.from_schema(schema).digest == task.digest
        schema["levels"]["rows"][0][0] += 1
        with pytest.raises(InvalidInput, match="lattice"):
            Task.from_schema(schema)
        for broken in ({}, {"rows": []}, {"rows": [[]]}):
            with pytest.raises(InvalidInput):
                Task.from_schema({**schema, "levels": broken})


def test_a_table_that_does_not_satisfy_its_epsilon_is_refused(monkeypatch):
    """Also where Python leaves out assertions."""
    monkeypatch.setattr(LevelTable, "satisfies", lambda self, epsilon: False)
    with pytest.raises(Unsupported, match="does not satisfy"):
        _ = FewLevels(2.123, 5).table


@pytest.mark.parametrize(
    "send",
    [
        lambda v: OneBit(1.0).report(v, RandomSource(0), 0.0, 1e10),
        lambda v: FewLevels(2.0, 4).report(v, RandomSource(0), 0.0, 1e10),
        lambda v: PublicNoiseBit(1.0).report(v, np.zeros(1), RandomSource(0)),
    ],
)
@pytest.mark.parametrize("value", [5e-324, 1e-310, 0.3, 1e308, math.inf, math.nan])
def test_no_value_raises_where_others_do_not(send, value):
    """An application that turns numpy's warnings into errors must not learn of a value by one."""
    with np.errstate(all="raise"):
        assert send(np.array([value])).size == 1


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.5, 0.8])
def test_the_least_likely_value_stays_two_words_inside_its_bound(noise):
    bit = PublicNoiseBit(1.0)
    # |noise - value| is largest at the farther end: the exponent there is noise - max(noise, 1 - noise)
    farther = 1.0 if noise < 0.5 else 0.0
    least = LATTICE * bit.constant * math.exp(bit.inner * (noise - max(noise, 1.0 - noise)))
    assert bit.thresholds([farther], [noise]).tolist() == [math.floor(least) + 2]
