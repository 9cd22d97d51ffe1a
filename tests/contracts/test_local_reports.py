"""Every registered report of the local model keeps its contract; every planted bug breaks it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from dperm.privacy.accounting.events import ApproximateDP, RandomizedResponse
from dperm.privacy.local import few_levels, one_bit
from dperm.privacy.local.categories import LocalHashing, RandomizedCategory, UnaryEncoding
from dperm.privacy.local.few_levels import FewLevels
from dperm.privacy.local.one_bit import LATTICE, OneBit, uniform32
from dperm.privacy.local.public_noise_bit import PublicNoiseBit
from dperm.privacy.local.registry import LOCAL_REPORTS
from dperm.testing import LOCAL_EXAMPLES, ContractViolation, check_local_report

EXAMPLES = [report for group in LOCAL_EXAMPLES.values() for report in group]


def test_every_report_has_an_example():
    assert set(LOCAL_EXAMPLES) == set(LOCAL_REPORTS)


@pytest.fixture
def small_parts(monkeypatch):
    """Work is cut into parts of the length at which the contract looks for answers that repeat."""
    for module in (one_bit, few_levels):
        monkeypatch.setattr(module, "_CHUNK", 64)


@pytest.mark.parametrize("report", EXAMPLES, ids=repr)
def test_contract(report):
    check_local_report(report)


@pytest.mark.parametrize("report", [OneBit(1.0), FewLevels(2.0, 4)], ids=repr)
@pytest.mark.usefixtures("small_parts")
def test_contract_across_parts(report):
    check_local_report(report, n_samples=20_000)


@pytest.mark.parametrize(
    ("report", "event"),
    [
        (OneBit(1.5), RandomizedResponse(1.5, 2)),
        (FewLevels(1.5, 5), ApproximateDP(1.5)),
        (RandomizedCategory(1.5, 7), RandomizedResponse(1.5, 7)),
        (UnaryEncoding(1.5, 7), ApproximateDP(1.5)),
        (LocalHashing(1.5, 70), RandomizedResponse(1.5, 5)),  # round(e^1.5) + 1 buckets
        (PublicNoiseBit(1.5), ApproximateDP(1.5)),
    ],
    ids=repr,
)
def test_the_event_is_that_of_one_report(report, event):
    assert report.event == event


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
class SameWordsInTwoParts(OneBit):
    """Two parts of 64 people share their words: right law for each, not for both."""

    def report(self, values, source, low=-1.0, high=1.0):
        parts = uniform32(len(values) // 2 + 64, source)[: len(values) // 128 * 64 + 64].reshape(-1, 64)
        words = np.repeat(parts, 2, axis=0).ravel()[: len(values)]
        return words < self.thresholds(values, low, high)


@dataclass(frozen=True)
class HalfPrice(FewLevels):
    """Charged half of what it costs."""

    @property
    def event(self):
        return ApproximateDP(self.epsilon / 2)


@dataclass(frozen=True)
class HalfPriceBit(OneBit):
    @property
    def event(self):
        return RandomizedResponse(self.epsilon / 2)


@dataclass(frozen=True)
class MoreAnswersThanThereAre(RandomizedCategory):
    """Many answers hide a person better: the event of 30 for a report with 3."""

    @property
    def event(self):
        return RandomizedResponse(self.epsilon, 30)


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
        (SameWordsInTwoParts(1.0), "independent"),
        (HalfPrice(2.0, 4), "event claims"),
        (HalfPriceBit(1.0), "event claims"),
        (MoreAnswersThanThereAre(1.0, 3), "event claims"),
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
