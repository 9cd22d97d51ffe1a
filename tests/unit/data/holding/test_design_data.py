"""Data of a solver's queries: refusals at construction, and reading in parts."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.holding.holder import DesignData
from dperm.errors import InvalidData

DESIGN = DesignMatrix.from_array(np.eye(3), Scaling(np.zeros(3), np.ones(3), 1.0), 1.0)


def test_a_target_that_is_missing_is_refused_before_any_query():
    with pytest.raises(InvalidData, match=r"^the target contains NaN: remove those rows\.$"):
        DesignData(DESIGN, np.array([0.0, np.nan, 1.0]))
    assert DesignData(DESIGN, np.array([0.0, np.inf, 1.0])).facts.n == 3  # clipped like any other


def test_data_in_memory_are_one_part():
    data = DesignData(DESIGN, np.array([0.0, 1.0, 1.0]))
    assert [(rows, part is data) for rows, part in data.parts()] == [(slice(0, 3), True)]
