"""One private selection among candidates that several parties hold.

Each party selects among its own candidates and sends its winner, the finalist, to one referee inside the trusted
domain. The winner among the finalists has exactly the law of one selection among all candidates. Only this winner is
released, at the cost of one selection. A finalist carries its score and its random draw without protection, so it must
not leave the trusted domain. Proof: ``joint_selection.proof.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dperm.errors import InvalidInput
from dperm.privacy.mechanisms.selection import TwoLevelRace, decide_race, race_scale
from dperm.privacy.mechanisms.standard import NoisyMax
from dperm.privacy.randomness import RandomSource

__all__ = ["N_WORDS", "Finalist", "JointSelection", "joint_winner"]

#: number of 64-bit words of its random draw that a finalist carries
N_WORDS = 8
_BITS = 64 * N_WORDS


@dataclass(frozen=True, repr=False)
class Finalist:
    """The winner of one party's selection: its place among that party's candidates, its score and its draw's digits.

    Not protected: for the referee inside the trusted domain only.
    """

    place: int
    score: float
    digits: NDArray[np.uint64]

    def __repr__(self) -> str:
        return "Finalist(...)"


@dataclass(frozen=True)
class JointSelection(NoisyMax):
    """A party's part of a selection among the candidates of all parties.

    Parameters
    ----------
    places : array of int, optional
        Positions of this party's candidates among all ``n_places`` candidates. Used with a seed only, so that the draws
        equal those of one selection among all.
    """

    places: tuple[int, ...] | None = None
    n_places: int = 0

    kind: ClassVar[str] = "selection"

    def draw(self, value: Any, sensitivity: float, bound: float, source: RandomSource) -> Any:
        if isinstance(value, TwoLevelRace):
            raise InvalidInput("a joint selection takes scores, not a TwoLevelRace.")
        scores = np.clip(np.asarray(value, np.float64).ravel(), -bound, bound)
        draws = source if self.stream is None else source.stream(self.stream)
        if source.secure or self.places is None:
            words = draws.words(scores.size)
        else:
            words = draws.words(self.n_places)[list(self.places)]
        scale = race_scale(sensitivity, self.noise_multiplier)
        winner, digits, bits = decide_race(scores, words, scale, source)
        while bits < _BITS:
            digits, bits = (digits << 64) | source.word(), bits + 64
        return Finalist(winner, float(scores[winner]), _to_words(digits >> (bits - _BITS)))


def joint_winner(finalists: Sequence[Finalist], scale: float, source: RandomSource) -> int:
    """Return the index of the finalist that wins among all candidates; ``scale`` is that of the parties' selections."""
    if not finalists:
        raise InvalidInput("a joint selection needs at least one finalist.")
    scores = np.array([finalist.score for finalist in finalists])
    words = np.array([finalist.digits[0] for finalist in finalists], np.uint64)
    known = [_from_words(finalist.digits) for finalist in finalists]
    return decide_race(scores, words, scale, source, (known, _BITS))[0]


def _to_words(digits: int) -> NDArray[np.uint64]:
    return np.frombuffer(digits.to_bytes(8 * N_WORDS, "big"), ">u8").astype(np.uint64)


def _from_words(words: NDArray[np.uint64]) -> int:
    if words.shape != (N_WORDS,) or words.dtype != np.uint64:
        raise InvalidInput("a finalist's draw does not have the expected form.")
    return int.from_bytes(words.astype(">u8").tobytes(), "big")
