"""What an audit found: per attack, and in all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dperm.audit.claim import RELATIONS, Claim
from dperm.audit.tables import PublicFacts

__all__ = [
    "CONSTANT",
    "NO_POWER",
    "PREPARATION",
    "RELEASES",
    "AttackResult",
    "AuditResult",
    "Verdict",
    "shown_confidence",
    "shown_number",
]

#: name of the attack on single releases, whose power says nothing about results as a whole
RELEASES = "releases"
#: name of the line for what all attacks share
PREPARATION = "preparation"
#: entry in the details of an attack that saw one and the same result in all runs
CONSTANT = "constant"
#: power below this is not worth a number: what must be ten times too small to be seen is no amount of noise
NO_POWER = 0.1
#: an audit that finds no less than a third of the noise missing would not notice most mistakes
_WEAK = 1.0 / 3.0


class Verdict(StrEnum):
    """Outcome of an attack, the worst first."""

    VIOLATION = "violation"
    WEAKNESS = "weakness"
    TOO_WEAK = "too weak to say"
    NOTHING = "nothing found"
    NOT_RUN = "not run"

    @classmethod
    def worst(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Return the worst of several; not run if there are none."""
        return min(verdicts, key=list(cls).index, default=cls.NOT_RUN)


@dataclass(frozen=True)
class AttackResult:
    """Outcome of one attack.

    Attributes
    ----------
    attack : str
        Its name.
    verdict : Verdict
        A violation contradicts the claim; a weakness makes it easy to lose without contradicting it.
    sentence : str
        What was found, or why the attack was not run.
    epsilon : float or None
        Largest epsilon that it can prove, at the claim's delta; None if it proves none.
    method : str
        How that number follows from the runs.
    noise_factor : float or None
        Power: noise smaller than claimed by this factor would have been found with probability .95; 0 if no lack of
        noise would have been, None if the attack is not about the amount of noise.
    runs : int
        Runs of the function that it used.
    seconds : float
    detail : dict
        More for readers of the JSON file.
    advice : str
        For a violation, its usual cause and what to do, in plain words.
    """

    attack: str
    verdict: Verdict
    sentence: str
    epsilon: float | None = None
    method: str = ""
    noise_factor: float | None = None
    runs: int = 0
    seconds: float = 0.0
    detail: dict[str, Any] = field(default_factory=dict)
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; an infinite epsilon is the text "infinite"."""
        return {
            "attack": self.attack,
            "verdict": str(self.verdict),
            "sentence": self.sentence,
            "advice": self.advice,
            "epsilon_found": _plain(self.epsilon),
            "method": self.method,
            "noise_factor_found_with_probability_0.95": self.noise_factor,
            "runs": self.runs,
            "seconds": round(self.seconds, 2),
            "detail": self.detail,
        }


@dataclass(frozen=True)
class AuditResult:
    """Outcome of an audit.

    Attributes
    ----------
    subject : str
        What was audited.
    claim : Claim
    facts : PublicFacts
    confidence : float
        A correct claim is called a violation with probability at most 1 - confidence, over all attacks together.
    attacks : tuple of AttackResult
    seconds : float
        Of the whole audit, the start of its processes included.
    runs : int
        Runs of the function, those of the preparation included.
    preparation : AttackResult or None
        Runs and time of what all attacks share: the start of the processes, and the pilot.
    """

    subject: str
    claim: Claim
    facts: PublicFacts
    confidence: float
    attacks: Sequence[AttackResult]
    seconds: float
    runs: int = 0
    preparation: AttackResult | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all attacks; too weak to say if nothing was found and little could have been."""
        worst = Verdict.worst(one.verdict for one in self.attacks)
        if worst is not Verdict.NOTHING:
            return worst
        powers = [power for power in (self.noise_factor, self.single_noise_factor) if power is not None]
        return worst if max(powers, default=0.0) >= NO_POWER else Verdict.TOO_WEAK

    @property
    def epsilon_found(self) -> float:
        """Largest epsilon that an attack proved; 0 if none did."""
        return max((one.epsilon for one in self.attacks if one.epsilon is not None), default=0.0)

    @property
    def noise_factor(self) -> float | None:
        """Best power of the attacks through results: the factor nearest to 1; None if none of them states it."""
        return self._best_power(one for one in self.attacks if one.attack != RELEASES)

    @property
    def single_noise_factor(self) -> float | None:
        """Power in single releases; None if they were not measured."""
        return self._best_power(one for one in self.attacks if one.attack == RELEASES)

    @staticmethod
    def _best_power(attacks: Iterable[AttackResult]) -> float | None:
        return max((one.noise_factor for one in attacks if one.noise_factor is not None), default=None)

    def _power(self) -> str:
        """Say what the audit would have found, through the results and in single releases."""
        through, single = self.noise_factor, self.single_noise_factor
        if any(one.detail.get(CONSTANT) for one in self.attacks):
            return (
                " The result never changes, whatever the table: there is no noise to measure. Is it the right function?"
            )
        said = ""
        if through is not None and through >= NO_POWER:
            said = f" Noise {1.0 / through:.2g} times too small would have been found with probability .95."
        elif through is not None:
            said = " So few runs find no lack of noise in the results."
        elif single is None:
            said = " The attacks that were run do not measure the amount of noise."
        if single is not None and single >= NO_POWER:
            said += f" In any single release noise {1.0 / single:.2g} times too small would have been found."
        elif single is not None:
            said += " Single releases were measured too few times."
        known = [one for one in (through, single) if one is not None]
        if known and max(known) < _WEAK:
            said += " Give it more --seconds, or fewer --features."
        return said

    def sentence(self) -> str:
        """Return the verdict in words."""
        largest = shown_number(self.epsilon_found)
        found = f"epsilon is {'' if math.isinf(self.epsilon_found) else 'at least '}{largest}"
        claimed = f"{self.claim.epsilon:g} is claimed"
        names = [one.attack for one in self.attacks if one.verdict is Verdict.VIOLATION]
        if self.verdict is Verdict.VIOLATION:
            number = f": {found}, {claimed}" if self.epsilon_found > self.claim.tested[0] else ""
            sure = shown_confidence(self.confidence)
            return f"The claim does not hold{number} (confidence {sure}; found by {', '.join(names)})."
        if self.verdict is Verdict.NOT_RUN:
            return "No attack was run: nothing is known."
        power = self._power()
        if self.verdict is Verdict.TOO_WEAK:
            return f"No attack contradicts the claim, but this audit is too weak to say much.{power}"
        weak = " See the weakness below." if self.verdict is Verdict.WEAKNESS else ""
        return f"No attack contradicts the claim; the largest epsilon proved is {largest}.{power}{weak}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        prepared = self.preparation
        return {
            "format": "dperm audit 1",
            "subject": self.subject,
            "claim": self.claim.to_dict() | {"meaning": RELATIONS[self.claim.neighbours]},
            "public": self.facts.to_dict(),
            "confidence": self.confidence,
            "verdict": str(self.verdict),
            "sentence": self.sentence(),
            "epsilon_found": _plain(self.epsilon_found),
            "noise_factor_found_with_probability_0.95": self.noise_factor,
            "noise_factor_of_single_releases_found_with_probability_0.95": self.single_noise_factor,
            "runs": self.runs,
            "seconds": round(self.seconds, 2),
            "preparation": None if prepared is None else {key: prepared.to_dict()[key] for key in ("runs", "seconds")},
            "attacks": [one.to_dict() for one in self.attacks],
        }


def shown_number(value: float | None) -> str:
    """Return a number for readers; nothing if there is none."""
    if value is None:
        return ""
    return "infinite" if math.isinf(value) else f"{value:.3g}"


def shown_confidence(confidence: float) -> str:
    """Return a confidence for readers, with the digits that it has.

    >>> shown_confidence(0.9999), shown_confidence(0.95), shown_confidence(1.0 - 1e-7)
    ('99.99%', '95%', '99.99999%')
    """
    return f"{100.0 * confidence:.10g}%"


def _plain(epsilon: float | None) -> float | str | None:
    """Return an epsilon for JSON, which knows no infinite numbers."""
    return "infinite" if epsilon is not None and math.isinf(epsilon) else epsilon
