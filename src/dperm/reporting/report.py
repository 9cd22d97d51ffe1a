"""PrivacyReport: everything a fit reports about its privacy, as data and in words."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dperm.atomic_files import write_atomically
from dperm.errors import InvalidInput
from dperm.privacy.accounting.guarantee import Accounting, Guarantee
from dperm.reporting.labels import describe_release

__all__ = ["PrivacyReport", "ReleaseLine", "noisy_score"]

FORMAT = "dperm privacy report 1"

#: names of penalties that are meant to make weights zero
_REMOVES_WEIGHTS = ("l1", "elastic_net")

NOT_COVERED = (
    "the running time, the memory use and the errors raised for unusable data (shown to the data's owner only)",
    "predictions for people of the training data that are published together with their true records",
    "anything computed from the same data outside dperm, such as a scaler, a feature selection or a test score",
    "people who are in several data sets that the ledger keeps under different names",
    "what the ledger tells the data's owner after comparing the table with earlier ones (which account was charged, "
    "its balance, a likeness to another table, a refusal by a cap), and what the owner does or omits because of it",
    "an attacker who breaks AES-256 or reads this machine's memory",
)


@dataclass(frozen=True)
class ReleaseLine:
    """One kind of release: what, how often, with how much noise, to whom."""

    query: str
    kind: str
    count: int
    forfeited: int
    noise_multiplier: float
    sensitivity: float | None
    noise_scale: float | None
    size: int | None
    audience: str = "everyone who sees the model or any of its steps"


@dataclass(frozen=True)
class PrivacyReport:
    """What a fit released and what that means.

    Attributes
    ----------
    guarantee : Guarantee or None
        The guarantee, or None with ``reason``.
    planned : Accounting
        The accounting of the plan; always present, never a guarantee by itself.
    releases : tuple of ReleaseLine
        Every kind of release with its noise.
    public : dict
        What was assumed public.
    arithmetic, randomness : str
        How sums and noise were computed.
    ledger : dict
        The name by which the caller gave the data, and the random id of the reservation. What the ledger recognised and
        what is spent in all is for the owner only: ``Ledger.receipt`` returns it.
    score : dict or None
        A score that was paid for and released in addition to the model. ``guarantee`` is that of the model alone;
        ``epsilon_together`` is the epsilon of both, at the guarantee's delta.
    """

    planned: Accounting
    guarantee: Guarantee | None = None
    reason: str | None = None
    releases: tuple[ReleaseLine, ...] = ()
    public: dict[str, Any] = field(default_factory=dict)
    arithmetic: str = ""
    randomness: str = ""
    ledger: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    not_covered: tuple[str, ...] = NOT_COVERED
    score: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.guarantee is None) == (self.reason is None):
            raise InvalidInput("a report has either a guarantee or the reason why there is none.")

    def __repr__(self) -> str:
        """Return one line; ``summary`` says more, and ``to_dict`` everything."""
        claim = "no guarantee" if self.guarantee is None else f"epsilon {self.guarantee.epsilon:.4g}"
        facts = [f"{self.public[name]:,} {name}" for name in ("records", "features") if name in self.public]
        releases = f"{sum(line.count for line in self.releases):,} releases"
        return f"PrivacyReport({', '.join([claim, f'delta {self.planned.delta:.2g}', *facts, releases])})"

    @property
    def epsilon(self) -> float:
        """Epsilon of the guarantee; infinite without one."""
        return math.inf if self.guarantee is None else self.guarantee.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "format": FORMAT,
            "version": self.version,
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "reason": self.reason,
            "planned": self.planned.to_dict(),
            "releases": [asdict(line) for line in self.releases],
            "public": self.public,
            "arithmetic": self.arithmetic,
            "randomness": self.randomness,
            "ledger": self.ledger,
            "not_covered": list(self.not_covered),
            **({} if self.score is None else {"score": self.score}),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PrivacyReport:
        """Inverse of :meth:`to_dict`."""
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise InvalidInput("this is not a privacy report of a version that dperm can read.")
        try:
            return cls._parse(data)
        except (KeyError, TypeError, AttributeError):
            raise InvalidInput("this privacy report is damaged: a part is missing or not of its kind.") from None

    @classmethod
    def _parse(cls, data: dict[str, Any]) -> PrivacyReport:
        return cls(
            planned=Accounting.from_dict(data["planned"]),
            guarantee=None if data["guarantee"] is None else Guarantee.from_dict(data["guarantee"]),
            reason=data["reason"],
            releases=tuple(ReleaseLine(**line) for line in data["releases"]),
            public=data["public"],
            arithmetic=data["arithmetic"],
            randomness=data["randomness"],
            ledger=data["ledger"],
            version=data["version"],
            not_covered=tuple(data["not_covered"]),
            score=data.get("score"),
        )

    def to_json(self) -> str:
        """Return the report as strict JSON."""
        return json.dumps(_plain(self.to_dict()), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> PrivacyReport:
        """Read a report written by :meth:`to_json`."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError:
            raise InvalidInput("this is not a privacy report: it is not JSON.") from None
        return cls.from_dict(_restore(data) if isinstance(data, dict) else data)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as JSON, completely or not at all."""
        return write_atomically(path, self.to_json() + "\n")

    def score_sentence(self) -> str:
        """Return the paid score and its cost in words."""
        score = self.score or {}
        text = noisy_score(score["kind"], score["value"], score["low"], score["high"], score["n"])
        return (
            f"{text}; it cost epsilon {score['epsilon']:.4g} at delta {score['delta']:.2g}, and model and score "
            f"together have epsilon {score['epsilon_together']:.4g} at the model's delta"
        )

    def nonzero_weights(self) -> str | None:
        """Return how many weights are not zero in words; None where no penalty should have removed any."""
        public = self.public
        if public.get("penalty") not in _REMOVES_WEIGHTS or "nonzero_weights" not in public:
            return None
        return f"{public['nonzero_weights']:,} of {public['weights']:,}"

    def summary(self) -> str:
        """Return a few lines: what is guaranteed, what is protected and what is not covered, what was released."""
        lines = [f"No guarantee: {self.reason}"]
        if self.guarantee is not None:
            lines = [self.guarantee.sentence(), f"Protected: {self.guarantee.unit}."]
        lines += _bullets("Not covered:", self.not_covered)
        lines += ["Released:"] if self.releases else []
        for line in self.releases:
            forfeited = (f"{line.forfeited} of them planned but unused",) if line.forfeited else ()
            lines.append(f"- {describe_release(line.count, line.query, line.kind, line.noise_multiplier, *forfeited)}")
        if self.score is not None:
            lines.append(f"In addition to the model: {self.score_sentence()}.")
        nonzero = self.nonzero_weights()
        lines += [] if nonzero is None else [f"Weights that are not zero: {nonzero}."]
        lines += [f"Warning: {text}." for text in self.public.get("warnings", ())]
        if self.guarantee is not None:
            lines += _bullets("Assumed:", self.guarantee.assumptions)
        return "\n".join(lines)


def _bullets(title: str, items: tuple[str, ...]) -> list[str]:
    return [title, *(f"- {text}." for text in items)] if items else []


def noisy_score(kind: str, value: float, low: float, high: float, n: int) -> str:
    """Return a score in words, with the range that its noise allows; an error clipped to 0 has no lower end."""

    def shown(value: float) -> str:
        return f"{value:.1%}" if kind == "accuracy" else f"{value:.4g}"

    on = f"on {n:,} held-out people"
    if kind != "accuracy" and value == 0.0:
        return f"{kind} of at most {shown(high)} {on}, given its noise"
    return f"{kind} {shown(value)} {on}, between {shown(low)} and {shown(high)} given its noise"


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold; an infinity, which it cannot, becomes the string "infinity"."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "infinity" if value > 0.0 else str(value)
    return value if isinstance(value, str | int | float | None) else repr(value)


#: numbers of a report that may be infinite
_MAY_BE_INFINITE = frozenset({"epsilon", "looseness", "rho", "mu"})


def _restore(value: Any, key: str = "") -> Any:
    """Undo :func:`_plain` for numbers only: a data set may be called "infinity"."""
    if isinstance(value, dict):
        return {name: _restore(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_restore(inner) for inner in value]
    return math.inf if key in _MAY_BE_INFINITE and value == "infinity" else value
