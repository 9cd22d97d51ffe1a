"""From two samples of released vectors to a verdict: what three attacks have in common."""

from __future__ import annotations

from dataclasses import dataclass

from dperm.audit.attacks.base import AttackContext
from dperm.audit.bounds import (
    LowerBound,
    claim_violation,
    clopper_pearson_bound,
    gaussian_dp_bound,
    noise_factor_found,
)
from dperm.audit.claim import Claim
from dperm.audit.pilot import Family
from dperm.audit.result import CONSTANT, AttackResult, Verdict
from dperm.audit.statistics import separation
from dperm.privacy.accounting import gdp
from dperm.types import FloatArray

__all__ = ["Judgement", "judge", "run_family"]


@dataclass(frozen=True)
class Judgement:
    """What one statistic proved on fresh runs."""

    statistic: str
    bounds: tuple[LowerBound, ...]
    #: what contradicts the claim, in words; empty if nothing does
    violation: str

    @property
    def epsilon(self) -> float:
        """Largest epsilon proved."""
        return max(one.epsilon for one in self.bounds)

    @property
    def best(self) -> LowerBound:
        """The bound that proves it."""
        return max(self.bounds, key=lambda one: one.epsilon)


def judge(name: str, first: FloatArray, second: FloatArray, claim: Claim, confidence: float) -> Judgement:
    """Compare two samples of one statistic with the claim; all tests together have the stated confidence."""
    epsilon, delta = claim.tested
    mu = claim.tested_mu
    if min(first.min(), second.min()) == max(first.max(), second.max()):
        return Judgement(name, (LowerBound(0.0, delta, confidence, "constant", "the statistic never changes"),), "")
    each = 1.0 - (1.0 - confidence) / _tests(claim)
    bounds = [clopper_pearson_bound(first, second, delta=delta, confidence=each)]
    said = [bounds[0].detail] if bounds[0].epsilon > epsilon else []
    if mu is not None:
        # a claim of Gaussian differential privacy is about mu; compare epsilons at the same delta
        bounds.append(gaussian_dp_bound(first, second, delta=delta, confidence=each))
        if bounds[1].epsilon > gdp.epsilon_of(mu, delta):
            said.append(bounds[1].detail)
    contradiction = claim_violation(first, second, claim.delta_at, confidence=each)
    if contradiction is not None:
        said.append(contradiction.detail)
    return Judgement(name, tuple(bounds), said[0] if said else "")


def run_family(context: AttackContext, attack: str, family: Family, n_statistics: int) -> AttackResult:
    """Choose a pair and statistics of a family in the pilot, and test them on fresh runs."""
    choice = context.pilot.choose(family, n_statistics)
    first, second = context.pilot.fresh(choice.pair, context.n_runs)
    each = 1.0 - (1.0 - context.confidence) / max(len(choice.statistics), 1)
    values = [(one.name, one.of(first), one.of(second)) for one in choice.statistics]
    found = [judge(name, one, two, context.claim, each) for name, one, two in values]
    worst = max(found, key=lambda one: (bool(one.violation), one.epsilon))
    guilty = bool(worst.violation)
    where = choice.pair.changed
    if guilty:
        outside = " The record lies outside the declared range." if choice.pair.outside else ""
        sentence = f"{worst.violation.rstrip('.')}; {worst.statistic}, when {where}.{outside}"
    else:
        best = f"Best of {len(found)} statistics" if len(found) > 1 else "The statistic"
        sentence = f"{best}: {worst.statistic}, when {where}."
    constant = bool((first == first[0]).all() and (second == first[0]).all())
    if constant:
        sentence = "The result never changes, on two different tables either."
    return AttackResult(
        attack,
        Verdict.VIOLATION if guilty else Verdict.NOTHING,
        sentence,
        epsilon=worst.epsilon,
        method=worst.best.method,
        noise_factor=None if constant else _power(context.claim, values, each),
        detail={
            "pair": where,
            "statistics": [one.statistic for one in found],
            "bounds": [
                {"statistic": one.statistic, "method": bound.method, "epsilon": bound.epsilon, "detail": bound.detail}
                for one in found
                for bound in one.bounds
            ],
            "fresh_runs": [len(first), len(second)],
        }
        | ({CONSTANT: True} if constant else {}),
    )


def _power(claim: Claim, values: list[tuple[str, FloatArray, FloatArray]], confidence: float) -> float:
    """Return the best power of the statistics, at the confidence that the test of the claim has in :func:`judge`."""
    each = 1.0 - (1.0 - confidence) / _tests(claim)
    return max(
        noise_factor_found(separation(first, second), len(first), len(second), claim.delta_at, confidence=each)
        for _, first, second in values
    )


def _tests(claim: Claim) -> int:
    """Number of tests that share the confidence of one statistic."""
    return 2 if claim.tested_mu is None else 3
