"""Public rules for targets."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dperm.data.design.target_range import TargetRange
from dperm.data.executors.target_rules import AsGiven, OneAgainstRest, ScaledTarget


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (AsGiven(), [0.0, 1.0, 2.0]),
        (OneAgainstRest(1), [0.0, 1.0, 0.0]),
        (ScaledTarget(TargetRange(0.0, 4.0)), [-1.0, -0.5, 0.0]),
    ],
)
def test_each_target_is_mapped_on_its_own(rule, wanted):
    target = np.array([0.0, 1.0, 2.0])
    assert rule(target).tolist() == wanted
    assert [float(rule(target[k : k + 1])[0]) for k in range(3)] == wanted
    assert pickle.loads(pickle.dumps(rule)) == rule  # a block on another machine recognises the same problem
