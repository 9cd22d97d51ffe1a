"""Every registered report of the local model keeps its contract; every planted bug breaks it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from dperm.privacy.categories import RandomizedCategory
from dperm.privacy.few_levels import FewLevels
from dperm.privacy.local_reports import LOCAL_REPORTS
from dperm.privacy.one_bit import LATTICE, OneBit, uniform32
from dperm.testing import LOCAL_EXAMPLES, ContractViolation, check_local_report

EXAMPLES = [report for group in LOCAL_EXAMPLES.values() for report in group]


def test_every_report_has_an_example():
    assert set(LOCAL_EXAMPLES) == set(LOCAL_REPORTS)


@pytest.mark.parametrize("report", EXAMPLES, ids=repr)
def test_contract(report):
    check_local_report(report)


@pytest.mark.slow
@pytest.mark.parametrize("report", EXAMPLES, ids=repr)
def test_contract_with_fresh_entropy(report):
    check_local_report(report, n_samples=1_000_000, seed=None)


def public(report):
    return {field.name: getattr(report, field.name) for field in fields(report)}


def halved(cls):
    """The same report with the noise of twice its epsilon, in the law or in the answers alone."""

    class LessNoise(cls):
        def law(self, value):
            return cls.law(replace(self.plain, epsilon=2.0 * self.epsilon), value)

        @property
        def plain(self):
            return cls(**public(self))

    class LessNoiseThanItsLaw(LessNoise):
        law = cls.law

        def report(self, values, source, *ends):
            return replace(self.plain, epsilon=2.0 * self.epsilon).report(values, source, *ends)

    return LessNoise, LessNoiseThanItsLaw


@pytest.mark.parametrize("report", [OneBit(1.0), FewLevels(2.0, 4), RandomizedCategory(1.0, 4)], ids=repr)
def test_halved_noise_is_caught(report):
    law, answers = (cls(**public(report)) for cls in halved(type(report)))
    with pytest.raises(ContractViolation, match="times as likely"):
        check_local_report(law)
    with pytest.raises(ContractViolation, match="do not fit"):
        check_local_report(answers)


@dataclass(frozen=True)
class OneWordForTwo(OneBit):
    """Two neighbours share a word: right law for each, not for both."""

    def report(self, values, source, low=-1.0, high=1.0):
        words = np.repeat(uniform32((len(values) + 1) // 2, source), 2)[: len(values)]
        return words < self.thresholds(values, low, high)


@dataclass(frozen=True)
class DecodesTooWide(OneBit):
    def decode(self, bits, low=-1.0, high=1.0):
        return 1.01 * super().decode(bits, low, high)


@dataclass(frozen=True)
class OnePointTooFew(OneBit):
    """A floor rounded down instead of up: one point of 2^32."""

    @property
    def floor(self):
        return OneBit(self.epsilon).floor - 1


@dataclass(frozen=True)
class NoClip(FewLevels):
    """A value beyond the range is extrapolated."""

    def law(self, value):
        if not np.isfinite(value) or abs(value) <= 1.0:
            return super().law(value)
        last, before = self.table.rows[-1], self.table.rows[-2]
        return tuple((2 * a - b) * LATTICE for a, b in zip(last, before, strict=True))


@dataclass(frozen=True)
class NeverTheLastLevel(FewLevels):
    def report(self, values, source, low=-1.0, high=1.0):
        return np.minimum(super().report(values, source, low, high), self.n_levels - 2)


@pytest.mark.parametrize(
    ("report", "match"),
    [
        (OneWordForTwo(1.0), "independent"),
        (DecodesTooWide(1.0), "biased"),
        (OnePointTooFew(1.0), "times as likely"),
        (NoClip(2.0, 4), "times as likely"),
        (NeverTheLastLevel(2.0, 4), "do not fit"),
    ],
    ids=repr,
)
def test_planted_bugs_are_caught(report, match):
    with pytest.raises(ContractViolation, match=match):
        check_local_report(report)
