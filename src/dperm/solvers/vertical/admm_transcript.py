"""ADMM sharing with every message public (transcript view).

The method of :class:`~dperm.solvers.vertical.score_sharing.AdmmSharing`, with noise on every message: a party also
releases its partial scores, clipped and with noise for every person, and the label holder releases its proximal slopes.
That needs as many people as the local model: use it where no participant may see another's values and there are very
many people. Proof: ``admm_transcript.proof.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.holder import Charges
from dperm.errors import InvalidInput
from dperm.privacy.accounting.calibration import Plan, PlannedRelease
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.queries.sharing import WeightedRows
from dperm.queries.transcript import ClippedPredictions, ProximalSlopes
from dperm.solvers.option_checks import require_positive, require_share
from dperm.solvers.vertical.protocol import Message
from dperm.solvers.vertical.residual_exchange import WEIGHTS, ResidualExchangeCoordinator, ResidualExchangeParty
from dperm.solvers.vertical.score_sharing import AdmmSharing, release_group
from dperm.types import FloatArray, IntArray

__all__ = ["TranscriptSharing"]


def _scores_group(party: str) -> str:
    return f"{ClippedPredictions.name} of {party}"


@dataclass(frozen=True)
class TranscriptSharing(AdmmSharing):
    """Linearised ADMM sharing in the transcript view.

    **Guarantee.** Released to everyone who sees any message: per round and party one gradient sum and one vector of
    partial scores, and per round one vector of proximal slopes, all with Gaussian noise: mu^2 = T [sum_m (2 c_m /
    sigma_v)^2 + sum_m (2 R_m limit / sigma_h)^2 + (2 slope_bound / sigma_t)^2], exactly. It also covers participants.

    Parameters
    ----------
    score_clip : float
        Bound on a party's part of a prediction.
    score_share, slope_share : float
        Shares of the budget for the partial scores of all parties and for the label holder's slopes.
    """

    view: str = "transcript"
    rho: float = 0.1  # shorter steps than in the model view: scores carry noise
    score_clip: float = 2.0
    score_share: float = 0.4
    slope_share: float = 0.4

    name: ClassVar[str] = "transcript-admm-sharing"
    views: ClassVar[tuple[str, ...]] = ("transcript",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "score_clip")
        require_share(self, "score_share", "slope_share")
        if self.score_share + self.slope_share >= 1.0:
            raise InvalidInput("score_share and slope_share must sum to less than 1, to leave budget for gradients.")

    def plan(self) -> Plan:
        each = 1.0 / len(self.parties)
        rest = 1.0 - self.score_share - self.slope_share
        releases = [PlannedRelease(ProximalSlopes.name, "gaussian", self.n_rounds, self.slope_share)]
        for name in self.parties:
            releases.append(PlannedRelease(release_group(name), "gaussian", self.n_rounds, rest * each))
            releases.append(PlannedRelease(_scores_group(name), "gaussian", self.n_rounds, self.score_share * each))
        return Plan(tuple(releases))

    def mechanism(self, group: str) -> GaussianNoise:
        """Return the mechanism of a group of releases."""
        return GaussianNoise(self.calibrated.noise_multiplier(group))

    def charge(self, group: str, charges: Charges) -> None:
        """Charge another participant's release, which is about the same people."""
        charges.charge(group, self.mechanism(group).event(2.0))

    def coordinator(self, target: FloatArray, charges: Charges, source: RandomSource) -> TranscriptCoordinator:  # type: ignore[override]
        return TranscriptCoordinator(self, self.check_target(target), charges, source)

    def party(self, name: str, design: DesignMatrix, charges: Charges, source: RandomSource) -> TranscriptParty:  # type: ignore[override]
        self.check_party(name, design)
        return TranscriptParty(self, name, design, charges, source)


class TranscriptParty(ResidualExchangeParty):
    """Program of a party in the transcript view."""

    def __init__(
        self, task: TranscriptSharing, name: str, design: DesignMatrix, charges: Charges, source: RandomSource
    ) -> None:
        super().__init__(task, name, design, charges, source, task.averaging)

    def answer(self, request: Message) -> Message:
        """Release a gradient sum, move the weights, and release partial scores."""
        task = self.task
        self._receive(request)
        task.charge(ProximalSlopes.name, self._charges)  # made by the label holder for this request
        scores = np.zeros(task.n)
        for name in task.parties:
            rows, parts = release_group(name), _scores_group(name)
            if name == self.name:
                gradient = self._holder.release(WeightedRows(task.limit), task.mechanism(rows), rows)
                self._weights = task.updated_weights(name, self._weights, gradient)
                query = ClippedPredictions(self._weights, task.score_clip)
                scores = self._holder.release(query, task.mechanism(parts), parts)
            else:
                task.charge(rows, self._charges)
                task.charge(parts, self._charges)
        self._end_round()
        return Message("scores", {"scores": scores, WEIGHTS: self._weights.copy()})


class TranscriptCoordinator(ResidualExchangeCoordinator):
    """Program of the coordinator, who holds the label; everything else it has is public."""

    def __init__(self, task: TranscriptSharing, target: FloatArray, charges: Charges, source: RandomSource) -> None:
        super().__init__(task, target, charges, source, task.averaging)

    def _next_residual(self) -> FloatArray:
        task = self.task
        query = ProximalSlopes(task.objective.loss, self._scores + self._dual / task.rho, task.rho)
        slopes = self._holder.release(query, task.mechanism(ProximalSlopes.name))
        slopes = np.clip(slopes, -task.objective.loss.slope_bound, task.objective.loss.slope_bound)
        residual: FloatArray = np.clip(2.0 * slopes - self._dual, -task.limit, task.limit)
        self._dual = slopes
        return residual

    def absorb(self, replies: Mapping[str, Message], totals: Mapping[str, IntArray]) -> None:
        """Process the parties' weights and noisy partial scores."""
        task, clip = self.task, self.task.score_clip
        self._take(replies, scores=("float64", (task.n,)))
        self._scores = sum((np.clip(r.arrays["scores"], -clip, clip) for r in replies.values()), np.zeros(task.n))
        for name in replies:
            task.charge(release_group(name), self._charges)
            task.charge(_scores_group(name), self._charges)
