"""Counts of classes and the spread of a target: values, exact sums and sensitivities."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dperm.errors import InvalidInput
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.queries import ClassCounts, TargetDeviation
from dperm.testing.data import Layout, design_data


def with_target(target, low=0.0, high=1.0):
    target = np.asarray(target, float)
    data = design_data(Layout(n=len(target), n_features=1), np.zeros((len(target), 1)), np.zeros(len(target)))
    return replace(data, target=target, target_low=low, target_high=high)


def without(data, i):
    return replace(data, design=data.design.without_row(i), target=np.delete(data.target, i))


def test_counts_of_classes():
    data = with_target([0, 2, 2, 1, 2], high=2.0)
    assert ClassCounts(3).evaluate(data).tolist() == [1.0, 1.0, 3.0]
    assert ClassCounts(5).evaluate(data).tolist() == [1.0, 1.0, 3.0, 0.0, 0.0]
    assert ClassCounts(2).evaluate(data).tolist() == [1.0, 1.0]  # the others are in none
    strange = with_target([-1.0, 0.5, 1e300, 1.0, np.inf], high=2.0)
    assert ClassCounts(3).evaluate(strange).tolist() == [0.0, 1.0, 0.0]
    assert ClassCounts(3).size(data.facts) == 3
    assert ClassCounts(3).bound(data.facts) == 5.0


def test_counts_change_by_one_or_by_the_root_of_two():
    query, data = ClassCounts(3), with_target([0, 1, 2, 2], high=2.0)
    whole = query.evaluate(data)
    assert query.sensitivity(data.facts, Neighbours.ZERO_OUT) == 1.0
    replaced = query.sensitivity(data.facts, Neighbours.REPLACE_ONE)
    assert math.sqrt(2.0) <= replaced < math.sqrt(2.0) * (1.0 + 1e-12)
    for i in range(4):
        assert np.linalg.norm(whole - query.evaluate(without(data, i))) == 1.0
        for label in (0.0, 1.0, 2.0, 7.0):
            target = data.target.copy()
            target[i] = label
            assert np.linalg.norm(whole - query.evaluate(replace(data, target=target))) <= replaced


@pytest.mark.parametrize("n_classes", [1, 0, -3, 2.5, 3.0, True, None, "3", math.nan])
def test_bad_numbers_of_classes(n_classes):
    with pytest.raises(InvalidInput, match="n_classes must be a whole number of 2 or more"):
        ClassCounts(n_classes)


# --------------------------------------------------------------------------------------------- deviation
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (3.0, 1e6), (-1e-6, 1e-6)])
@pytest.mark.parametrize("place", [0.0, 0.3, 1.0, 2.5, -4.0])
def test_deviation(low, high, place):
    centre = low + place * (high - low)
    target = np.random.default_rng(0).uniform(low, high, 100)
    data = with_target(target, low, high)
    query = TargetDeviation(centre)
    largest = max(abs(high - centre), abs(low - centre))
    assert query.largest(data.facts) == pytest.approx(largest)
    wanted = (np.abs(target - centre) - largest / 2.0).sum()
    np.testing.assert_allclose(query.evaluate(data), [wanted], rtol=0, atol=1e-10 * largest)
    assert query.zero_out_sensitivity(data.facts) == pytest.approx(largest / 2.0)
    assert query.sensitivity(data.facts, Neighbours.REPLACE_ONE) == pytest.approx(largest)


def test_deviation_of_targets_outside_their_range():
    """Nobody counts more than the public range allows, wherever the target is."""
    query = TargetDeviation(0.25)
    for value in (-1e300, -5.0, 0.25, 1.0, 7.0, 1e300, np.inf):
        data = with_target([value], -1.0, 1.0)
        (one,) = query.evaluate(data)
        assert abs(one) <= query.zero_out_sensitivity(data.facts)
        assert one == pytest.approx(min(abs(value - 0.25), 1.25) - 0.625, abs=1e-12)
        assert query.evaluate(without(data, 0))[0] == 0.0


def test_deviation_is_exact_in_any_order():
    rng = np.random.default_rng(0)
    target = rng.uniform(-1.0, 1.0, 1000)
    data, query = with_target(target, -1.0, 1.0), TargetDeviation(0.1)
    (whole,) = query.evaluate(data)
    for _ in range(3):
        assert query.evaluate(replace(data, target=rng.permutation(target)))[0] == whole
    summands = [whole - query.evaluate(without(data, i))[0] for i in range(5)]
    assert max(map(abs, summands)) <= query.zero_out_sensitivity(data.facts)
    same = [query.evaluate(replace(data, target=np.full(1000, y)))[0] / 1000.0 for y in target[:5]]
    np.testing.assert_allclose(summands, same, rtol=0, atol=1e-11)


@pytest.mark.parametrize("centre", [math.nan, math.inf, -math.inf])
def test_bad_centres(centre):
    with pytest.raises(InvalidInput, match="centre must be a finite number"):
        TargetDeviation(centre)


def test_a_single_precision_centre_is_converted_to_double():
    query = TargetDeviation(np.float32(0.1))
    assert type(query.centre) is float
