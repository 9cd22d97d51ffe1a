"""Data of a solver's queries: refusals at construction, and reading in parts."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.holding.design_data import DesignData
from dperm.errors import InvalidData
from dperm.queries import FirstMoment

DESIGN = DesignMatrix.from_array(np.eye(3), Scaling(np.zeros(3), np.ones(3), 1.0), 1.0)


def test_a_target_that_is_missing_is_refused_before_any_query():
    with pytest.raises(InvalidData, match=r"^the target contains NaN: remove those rows\.$"):
        DesignData(DESIGN, np.array([0.0, np.nan, 1.0]))
    assert DesignData(DESIGN, np.array([0.0, np.inf, 1.0])).facts.n == 3  # clipped like any other


def test_data_in_memory_are_one_part():
    data = DesignData(DESIGN, np.array([0.0, 1.0, 1.0]))
    (part,) = data.parts(FirstMoment())
    assert np.array_equal(part, FirstMoment().evaluate(data))
    assert data.only_block is data


def test_without_a_declared_range_the_target_lies_between_zero_and_one():
    facts = DesignData(DESIGN, np.array([0.0, 1.0, 1.0])).facts
    assert (facts.target_low, facts.target_high) == (0.0, 1.0)
    facts = DesignData(DESIGN, np.array([0.0, 1.0, 1.0]), -2.0, 3.0).facts
    assert (facts.target_low, facts.target_high) == (-2.0, 3.0)
