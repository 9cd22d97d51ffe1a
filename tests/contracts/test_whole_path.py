"""The whole matrix of paths: quick cases at every level of the stand-in values, the others at three."""

from __future__ import annotations

from zlib import crc32

import pytest

from dperm.testing.whole_path import LEVELS
from dperm.testing.whole_path.cases import QUICK, whole_path_cases

CASES = whole_path_cases()


def levels_of(name):
    """All levels for a quick case; for another one its own two and, to bound the time, one that its name chooses."""
    others = [level for level in LEVELS if level not in CASES[name].levels]
    return LEVELS if name in QUICK else (*CASES[name].levels, others[crc32(name.encode()) % len(others)])


def test_every_level_is_used_by_many_cases():
    for level in LEVELS:
        assert sum(level in levels_of(name) for name in CASES) >= len(CASES) // 10


@pytest.mark.parametrize("name", CASES)
def test_path_shows_nothing_but_releases(name):
    case = CASES[name]
    if case.refused():
        pytest.skip("dperm refuses it before anything happens")
    case.check(levels=levels_of(name), seeds=(1,))
