"""Tasks and sketches: ranges, drawing, counts, schemas and bad input."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dperm.errors import InvalidData, InvalidInput
from dperm.privacy.local import few_levels, one_bit
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import (
    SKETCHES,
    Chebyshev,
    Counts,
    GradientCoordinates,
    Moments,
    Parity,
    Reports,
    Task,
    ThetaGrid,
)
from dperm.solvers.local import task as task_module

ALL = {
    "moments": Moments(
        ((1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (2, 2), (3, 1)), (3.0, 3.0, 1.0, 1.0, 1.0, 0.5, 0.5), 2
    ),
    "theta-grid": ThetaGrid(((1.0, 0.0), (0.0, 1.0), (-2.0, 2.0))),
    "parity": Parity(5, (1.0, 2.0, 0.5)),
    "gradient": GradientCoordinates((0.9, -0.4), (1.0, 0.8)),
    "chebyshev": Chebyshev(tuple(d for d in product(range(3), repeat=2) if any(d))),
}


def people(sketch, n, seed=0):
    return np.random.default_rng(seed).uniform(-1.5, 1.5, (n, sketch.n_columns))


def test_every_kind_is_tried():
    assert set(ALL) == set(SKETCHES)


@pytest.mark.parametrize("kind", ALL)
class TestEverySketch:
    def test_values_lie_in_their_range_and_reach_for_its_ends(self, kind):
        sketch = ALL[kind]
        records = np.concatenate([people(sketch, 3000), 1e200 * people(sketch, 50), np.eye(sketch.n_columns)])
        for j in range(sketch.size):
            values = sketch.values(records, np.full(len(records), j))
            assert values.min() >= sketch.low[j] - 1e-12
            assert values.max() <= sketch.high[j] + 1e-12
            assert np.ptp(values) > 0.7 * (sketch.high[j] - sketch.low[j])

    def test_values_do_not_depend_on_other_people(self, kind):
        """A value computed alone equals the one computed with others."""
        sketch = ALL[kind]
        records, index = people(sketch, 50), np.arange(50) % sketch.size
        alone = [float(sketch.values(records[[i]], index[[i]])[0]) for i in range(50)]
        assert sketch.values(records, index).tolist() == alone

    def test_a_record_that_is_not_finite_counts_as_the_lower_end(self, kind):
        sketch = ALL[kind]
        for bad in (np.nan, np.inf, -np.inf):
            records = np.zeros((sketch.size, sketch.n_columns))
            records[:, -1] = bad
            assert np.isnan(sketch.values(records, np.arange(sketch.size))).all()

    def test_means_are_unbiased(self, kind):
        sketch = ALL[kind]
        task, records = Task("t", 2.0, sketch), people(sketch, 200_000)
        means, variance = task.means(task.collect(records, RandomSource(1)))
        truth = [sketch.values(records, np.full(len(records), j)).mean() for j in range(sketch.size)]
        chi = float(((means - truth) ** 2 / variance).sum())
        assert stats.chi2.sf(chi, sketch.size) > 1e-4
        assert stats.chi2.sf(2.0 * chi, sketch.size) < 0.9999  # not far below its law either

    def test_the_schema_survives_json(self, kind):
        task = Task("t", 1.0, ALL[kind], version=3)
        again = Task.from_schema(json.loads(json.dumps(task.schema())))
        assert again == task
        assert again.digest == task.digest

    def test_drawing_follows_the_shares(self, kind):
        sketch = ALL[kind]
        n = np.bincount(Task("t", 1.0, sketch).draw(100_000, RandomSource(2)), minlength=sketch.size)
        shares = np.repeat(sketch.weights / sketch.sizes, sketch.sizes)
        assert stats.chisquare(n, 100_000 * shares / shares.sum()).pvalue > 1e-6


def test_the_index_does_not_depend_on_the_records():
    task = Task("t", 1.0, ALL["moments"])
    first, second = (task.reports(people(task.sketch, 999, seed), RandomSource(3)) for seed in (0, 1))
    assert np.array_equal(first.index, second.index)
    assert not np.array_equal(first.bit, second.bit)


class Counting(RandomSource):
    """Counts the words that it hands out."""

    drawn = 0

    def words(self, n):
        self.drawn += n
        return super().words(n)


@pytest.mark.parametrize("n_levels", [2, 5])
def test_people_use_separate_random_words(monkeypatch, n_levels):
    """Across parts of the work: two 32-bit words for the statistic, one for a bit, two for a level."""
    for module in (task_module, one_bit, few_levels):
        monkeypatch.setattr(module, "_CHUNK", 64)
    n, sketch = 64 * 300, Moments(((1,),), (1.0,), 1)
    task, source = Task("t", 1.0, sketch, n_levels=n_levels), Counting(8)
    answers = task.reports(np.zeros((n, 1)), source).bit
    assert 2 * source.drawn == n * (3 if n_levels == 2 else 4)
    share = np.bincount(answers, minlength=n_levels) / n
    for lag in (1, 64, 128):
        same = np.mean(answers[lag:] == answers[:-lag])
        assert abs(same - (share**2).sum()) < 6.0 * np.sqrt(0.25 / n)
    source = Counting(9)
    assert task.collect(np.zeros((n, 1)), source).n_people == n
    assert 2 * source.drawn == n * (3 if n_levels == 2 else 4)


def test_an_index_drawn_beforehand():
    task = Task("t", 1.0, ALL["parity"])
    index = task.draw(100, RandomSource(4))
    assert np.array_equal(task.reports(people(task.sketch, 100), RandomSource(5), index).index, index)


def test_counts_merge_by_addition():
    task = Task("t", 1.0, ALL["chebyshev"])
    reports = task.reports(people(task.sketch, 1000), RandomSource(6))
    parts = [task.count(Reports(reports.index[s], reports.bit[s])) for s in (slice(0, 300), slice(300, 1000))]
    whole, merged = task.count(reports), parts[0] + parts[1]
    assert np.array_equal(whole.n, merged.n)
    assert np.array_equal(whole.ones, merged.ones)
    assert merged.n_people == 1000
    with pytest.raises(InvalidInput, match="different tasks"):
        _ = whole + Task("other", 1.0, ALL["chebyshev"]).no_counts()


def test_nobody_answered():
    task = Task("t", 1.0, ALL["moments"])
    means, variance = task.means(task.no_counts())
    assert means == pytest.approx((task.sketch.low + task.sketch.high) / 2)
    assert np.isinf(variance).all()


def test_moments_by_hand():
    sketch = ALL["moments"]
    assert sketch.high[5] == pytest.approx(0.25)
    assert sketch.low[:5] == pytest.approx([-1.0, -1.0, 0.0, -0.5, 0.0])
    values = sketch.values(np.tile([3.0, 4.0], (7, 1)), np.arange(7))
    assert values == pytest.approx([0.6, 0.8, 0.36, 0.48, 0.64, 0.36 * 0.64, 0.6**3 * 0.8])


def test_parities_by_hand():
    sketch = ALL["parity"]
    found = sketch.find([0b10001, 0b00011], 2)
    assert sketch.masks[found].tolist() == [0b10001, 0b00011]
    assert sketch.values(np.array([[1.0, 0, 0, 0, 1.0], [1.0, 0, 0, 0, 1.0]]), found).tolist() == [1.0, -1.0]


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"},
        {"floor": 1},
        {"thresholds": [1]},
        {"sketch": {"kind": "x"}},
        {"sketch": {"kind": "parity"}},
        {"epsilon": 0.5},
        {"epsilon": 20.0},
    ],
)
def test_a_damaged_schema(change):
    with pytest.raises(InvalidInput):
        Task.from_schema({**Task("t", 1.0, ALL["parity"]).schema(), **change})
    schema = Task("t", 1.0, ALL["parity"]).schema()
    del schema["sketch"]
    with pytest.raises(InvalidInput, match="damaged"):
        Task.from_schema(schema)


def test_bad_input():
    task = Task("t", 1.0, ALL["parity"])
    with pytest.raises(InvalidData, match="5 columns"):
        task.reports(np.zeros((3, 4)), RandomSource(7))
    for index in ([99], [-1], [0.5]):
        with pytest.raises(InvalidInput, match="statistic"):
            task.count(Reports(np.array(index), np.array([True])))
    with pytest.raises(InvalidInput, match="one bit"):
        task.count(Reports(np.array([1, 2]), np.array([True])))
    with pytest.raises(InvalidInput, match="another task"):
        task.means(Task("t", 2.0, ALL["parity"]).no_counts())
    with pytest.raises(InvalidInput, match="at most as many ones"):
        Counts("x", np.array([1]), np.array([2]))
    for bad in (
        lambda: Moments(((0, 0),), (1.0,), 2),
        lambda: Moments(((1,),), (1.0, 2.0), 1),
        lambda: Moments(((1,),), (1.0,), 2),
        lambda: ThetaGrid(((0.0,),)),
        lambda: ThetaGrid(((1.0,),), "x"),
        lambda: Parity(63, (1.0,)),
        lambda: Parity(40, (1.0,) * 9),
        lambda: Chebyshev(((0,),)),
        lambda: Chebyshev(((1,),), (1.0, 1.0)),
        lambda: Task("t", 1.0, Parity(4, (1.0, 0.0))),
        lambda: Task("t", 1.0, Parity(4, (1.0, 1e-30))).thresholds,
    ):
        with pytest.raises(InvalidInput):
            bad()


@pytest.mark.parametrize(("epsilon", "n_levels"), [(1.0, 2), (16.0, 2), (3.0, 7)])
def test_a_few_answers_that_agree_are_not_taken_for_certainty(epsilon, n_levels):
    """The variance is estimated with one report added to either end."""
    task = Task("t", epsilon, Moments(((1,),), (1.0,), 1), n_levels=n_levels)
    for n in (1, 5, 40):
        ones = np.array([n]) if n_levels == 2 else np.eye(n_levels - 1, dtype=np.int64)[-1:] * n
        highest = task.bit.decoded[-1]
        spread = (n * highest**2 + 2.0 * task.bit.gain**2) / (n + 2) - (n * highest / (n + 2)) ** 2
        assert task.means(Counts(task.digest, np.array([n]), ones))[1][0] == pytest.approx(spread / n)
        assert spread > 0.0
