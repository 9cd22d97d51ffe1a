"""Judges the collected measurements: verdict, largest epsilon found, and power, one result per group of releases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dperm.audit.bounds import claim_violation
from dperm.audit.releases.measurements import NoiseScale
from dperm.audit.releases.moves import STEP, GroupSamples
from dperm.audit.result import Verdict
from dperm.privacy.accounting import composition, curves
from dperm.privacy.accounting.events import (
    Composed,
    Event,
    Gaussian,
    Laplace,
    ObjectivePerturbation,
    PoissonGaussian,
    RandomizedResponse,
    Selection,
)
from dperm.testing.noise_tests import lag_p_value, nearness_p_value
from dperm.types import FloatArray

__all__ = ["ReleaseResult", "judge", "n_tests", "reused_noise"]

#: where the epsilon of events without a pure guarantee is stated
DELTA = 1e-5
#: fewer results on one side show nothing at usual confidence
_FEWEST_SAMPLES = 20


@dataclass(frozen=True)
class ReleaseResult:
    """What was found about one group of releases.

    Attributes
    ----------
    subject, release : str
        What ran, and the name of the release in its plan.
    claim : str
        The charged event in words.
    verdict : Verdict
    sentence : str
        What was found.
    releases, values : int
        Number of releases, and of noise values in them.
    delta : float
        Where both epsilons are stated; 0 for a pure claim.
    claimed, found : float
        Epsilon of one release as charged, and the largest that the measurements prove.
    noise_factor : float
        Power: noise of this factor times the charged one is found with probability .95.
    seconds : float
        Of an attack that has runs of its own.
    """

    subject: str
    release: str
    claim: str
    verdict: Verdict
    sentence: str
    releases: int
    values: int
    delta: float
    claimed: float
    found: float
    noise_factor: float
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "subject": self.subject,
            "release": self.release,
            "claim": self.claim,
            "verdict": str(self.verdict),
            "sentence": self.sentence,
            "releases": self.releases,
            "values": self.values,
            "delta": self.delta,
            "epsilon_claimed": self.claimed,
            "epsilon_found": self.found,
            "noise_factor_found_with_probability_0.95": self.noise_factor,
        }


def n_tests(groups: Iterable[GroupSamples]) -> int:
    """Return how many tests share the probability of a false alarm."""
    return 1 + sum(len(group.measured) + 3 * _n_noise(group) + 1 for group in groups)


def reused_noise(sequence: Sequence[tuple[str, FloatArray]], share: float) -> str | None:
    """Return what shows that different groups of releases share noise; None if nothing does.

    Parameters
    ----------
    sequence : sequence of (str, array)
        The Gaussian noise of all releases in their order, with the name of the group; in units of the charged scale.
    """
    names = list(dict.fromkeys(name for name, _ in sequence))
    if len(names) < 2:
        return None  # the group has this test of its own
    parts = [noise for _, noise in sequence]
    p = min(1.0, 2.0 * min(lag_p_value(parts), nearness_p_value(parts, step=STEP)))
    return f"releases of {' and '.join(names)} do not have independent noise (p = {p:.1e})" if p <= share else None


def _n_noise(group: GroupSamples) -> int:
    return sum(isinstance(one, NoiseScale) for one in group.measured.values())


def judge(subject: str, group: GroupSamples, share: float) -> ReleaseResult:
    """Judge one group; each of its tests gives a false alarm with probability ``share`` at most."""
    problems = list(_violations(group, share))
    verdict = Verdict.VIOLATION if problems else Verdict.NOTHING
    if not group.measured:
        verdict, problems = Verdict.NOT_RUN, ["nothing could be measured"]
    else:
        excess = [] if problems else list(_excesses(group, share))
        verdict = Verdict.WEAKNESS if excess else verdict
        problems += excess
    main = [one for one in group.measured.values() if one.has_factor]
    factor = min((one.largest_factor(share) for one in main), default=math.inf)
    # the weakest of several kinds of noise decides what is certain to be found
    power = min((one.detectable(share) for one in main), default=0.0)
    delta = 0.0 if is_pure(group.event) else DELTA
    claimed = curves.pure(group.event) if delta == 0.0 else composition.epsilon(group.event, delta).epsilon
    found = 0.0 if math.isinf(factor) else _lower_epsilon(_scaled(group.event, factor), delta)
    return ReleaseResult(
        subject, group.name, describe(group.event), verdict,
        "; ".join(problems) or "the noise is as charged",
        group.count, sum(one.size for one in group.measured.values()), delta,
        float(claimed), found, power,
    )  # fmt: skip


def _violations(group: GroupSamples, share: float) -> Iterable[str]:
    for what, one in group.measured.items():
        p = one.p_value()
        if p <= share:
            factor = one.largest_factor(share)
            size = f", at most {factor:.2f} times" if math.isfinite(factor) else ""
            yield f"{what}: {one.finding}{size} (p = {p:.1e})"
        if isinstance(one, NoiseScale):
            p = one.repeats_p_value()
            if p <= share:
                yield f"{what}: releases do not have independent noise (p = {p:.1e})"
            p, where = one.missing_p_value()
            if p <= share:
                yield f"{what}: {where} there is less noise than charged (p = {p:.1e})"
            p = one.shape_p_value()
            if p <= share and not _too_large(one, share):
                yield f"{what}: it does not have the charged law (p = {p:.1e})"
    samples = group.samples
    if group.moved_event is None or min(len(samples.present), len(samples.absent)) < _FEWEST_SAMPLES:
        return
    if len(set(samples.present) | set(samples.absent)) < 2:
        return
    claim = partial(composition.delta, group.moved_event)
    found = claim_violation(samples.present, samples.absent, claim, confidence=1.0 - share)
    if found is not None:
        yield f"moved values are told apart better than charged: {found.detail.rstrip('.')}"


def _excesses(group: GroupSamples, share: float) -> Iterable[str]:
    for what, one in group.measured.items():
        if isinstance(one, NoiseScale) and _too_large(one, share):
            yield f"{what}: there is more of it than charged: privacy holds, accuracy is wasted"


def _too_large(one: NoiseScale, share: float) -> bool:
    return one.p_value() >= 1.0 - share


def describe(event: Event) -> str:
    """Return a charged event in a few words."""
    if isinstance(event, Composed):
        return describe(event.events[0])
    if isinstance(event, RandomizedResponse):
        return f"randomized response, epsilon {event.epsilon:.3g}"
    multiplier = f"multiplier {getattr(event, 'noise_multiplier', math.nan):.3g}"
    if isinstance(event, PoissonGaussian):
        return f"Gaussian noise on a sample, {multiplier}, rate {event.rate:.3g}"
    names: dict[type[Event], str] = {
        Gaussian: "Gaussian noise",
        Laplace: "Laplace noise",
        Selection: "selection",
        ObjectivePerturbation: "perturbed objective",
    }
    return f"{names.get(type(event), type(event).__name__)}, {multiplier}"


def is_pure(event: Event) -> bool:
    """Whether the claim of an event is stated at delta 0."""
    return isinstance(event, Selection | Laplace | RandomizedResponse)


def _scaled(event: Event, factor: float) -> Event:
    """Return the event of noise ``factor`` times as large."""
    if isinstance(event, Composed):
        return Composed(tuple(_scaled(part, factor) for part in event.events))
    if isinstance(event, RandomizedResponse):
        return replace(event, epsilon=event.epsilon / factor)
    return replace(event, noise_multiplier=event.noise_multiplier * factor)  # type: ignore[call-arg,attr-defined]


def _lower_epsilon(event: Event, delta: float) -> float:
    return float(curves.pure(event) if delta == 0.0 else composition.lower_epsilon(event, delta))
