"""ADMM sharing and block descent over parties: every party shares partial scores and gets back one number per person.

In a round the coordinator, who holds the label, turns the sum of all partial scores into one residual per person. A
party releases the sum of its rows times these residuals with noise, moves its weights along it and replies with its new
partial scores. Scores and residuals stay inside the trusted domain; weights are released (model view). Proof:
``score_sharing.proof.md``.
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
from dperm.queries.sharing import DUAL, SCORES, PartialPredictions, SharedSlopes, WeightedRows
from dperm.solvers.option_checks import require_fraction, require_positive
from dperm.solvers.vertical.protocol import Message
from dperm.solvers.vertical.residual_exchange import WEIGHTS, ResidualExchangeCoordinator, ResidualExchangeParty
from dperm.solvers.vertical.task import VerticalTask, check_round_count
from dperm.types import FloatArray, IntArray

__all__ = ["AdmmSharing", "BlocksOverParties", "SharingTask", "release_group"]


def release_group(party: str) -> str:
    """Name of a party's releases in plans, ledgers and reports."""
    return f"{WeightedRows.name} of {party}"


@dataclass(frozen=True)
class SharingTask(VerticalTask):
    """Common part of the methods that share partial scores.

    Parameters
    ----------
    n_rounds : int
        Public, fixed number of rounds.
    limit : float
        Residuals are clipped to this; part of every sensitivity.
    step : float
        Public factor of the step lengths, which follow from public bounds.
    averaging : float
        Fraction of the rounds, the last ones, over which weights are averaged; 0 takes the last weights.
    box : float
        Public bound on a weight; weights are projected to it.
    """

    n_rounds: int = 40
    limit: float = 1.0
    step: float = 1.0
    averaging: float = 0.0
    box: float = 64.0

    public_arrays: ClassVar[frozenset[str]] = frozenset({WEIGHTS})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_round_count(self, "n_rounds")
        require_positive(self, "limit", "step", "box")
        require_fraction(self, "averaging")

    def active_parties(self, round_: int) -> tuple[str, ...]:
        """Return the parties that release in a round; public."""
        return tuple(self.parties)

    def release_count(self, party: str) -> int:
        """Return the number of rounds in which a party releases."""
        return self.n_rounds

    def plan(self) -> Plan:
        made = ((name, self.release_count(name)) for name in self.parties)
        # shares in proportion to the counts give all parties the same noise multiplier
        return Plan(
            tuple(PlannedRelease(release_group(name), "gaussian", k, share=float(k)) for name, k in made if k > 0)
        )

    def curvature(self, party: str) -> float:
        """Public upper bound on the curvature along a party's weights, per unit of step."""
        raise NotImplementedError

    def updated_weights(self, party: str, weights: FloatArray, gradient: FloatArray) -> FloatArray:
        """Return the weights after a step along a released gradient sum; public arithmetic."""
        length = self.step / self.curvature(party)
        free = np.zeros(len(weights), bool)
        free[list(self.unpenalised(party))] = True
        moved = weights - length * gradient
        shrunk = self.penalty.prox(moved, length * self.n) / (1.0 + length * self.n * self.penalty.l2)
        return np.clip(np.where(free, moved, shrunk), -self.box, self.box)

    def dual_penalty(self) -> float | None:
        """rho of the dual step, or None for methods without one."""
        return None

    def coordinator(self, target: FloatArray, charges: Charges, source: RandomSource) -> SharingCoordinator:
        return SharingCoordinator(self, self.check_target(target), charges, source)

    def party(self, name: str, design: DesignMatrix, charges: Charges, source: RandomSource) -> SharingParty:
        self.check_party(name, design)
        return SharingParty(self, name, design, charges, source)


@dataclass(frozen=True)
class AdmmSharing(SharingTask):
    r"""Certified linearised ADMM sharing.

    The sharing problem of Hu, Liu, Niu and others (KDD 2019) and of Boyd et al. (2011, section 7.3),

    .. math:: \min \sum_i \ell(z_i, y_i) + n \cdot \text{penalty}(x) \quad \text{subject to } \sum_m D_m x_m = z,

    with a linearised x-step, so that a party's data enter through one gradient sum. With s the sum of partial scores
    and u the dual, the coordinator takes u' = slope of the loss at the proximal point of s + u / rho, and the residual
    is rho (s - z) + u' = 2 u' - u, clipped to ``limit``. Party m moves x_m <- prox(x_m - h_m / L_m), where h_m is the
    noisy sum of its rows times residuals and L_m = rho M n R_m^2 / step. The first dual step comes before the first
    release.

    **Guarantee.** Released to everyone who sees the model or any step: one noisy gradient sum per party and round. With
    M parties and T rounds mu^2 = T sum_m (sensitivity_m / sigma_m)^2, exactly. It does not cover the participants, who
    see partial scores and residuals: see the report.

    Parameters
    ----------
    rho : float
        Public penalty of the constraint. It affects accuracy, and choosing it on the data would cost budget. Smaller
        values give longer steps: with few rounds 0.02 is far better than 0.1 on the data sets in ``docs/vertical.md``.
    """

    rho: float = 0.02

    name: ClassVar[str] = "admm-sharing"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "rho")

    def curvature(self, party: str) -> float:
        return self.rho * len(self.parties) * self.n * self.parties[party].row_bound ** 2

    def dual_penalty(self) -> float | None:
        return self.rho


@dataclass(frozen=True)
class BlocksOverParties(SharingTask):
    """Block gradient descent with one block per party, in turn (DP-SkGD with the parties as blocks).

    **Guarantee.** Released to everyone who sees the model or any step: one noisy gradient sum per round, of the party
    whose turn it is. mu^2 = T (sensitivity / sigma)^2, exactly; turns are public and give no amplification. It does not
    cover the participants.
    """

    name: ClassVar[str] = "blocks-over-parties"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_rounds < len(self.parties):
            raise InvalidInput("n_rounds must be at least the number of parties, so that every party has a turn.")

    def active_parties(self, round_: int) -> tuple[str, ...]:
        names = tuple(self.parties)
        return (names[round_ % len(names)],)

    def release_count(self, party: str) -> int:
        return len(range(tuple(self.parties).index(party), self.n_rounds, len(self.parties)))

    def curvature(self, party: str) -> float:
        return self.objective.loss.curvature_bound * self.n * self.parties[party].row_bound ** 2


class SharingParty(ResidualExchangeParty):
    """Program of a party: it releases a gradient sum, moves its weights and shares partial scores."""

    def __init__(
        self, task: SharingTask, name: str, design: DesignMatrix, charges: Charges, source: RandomSource
    ) -> None:
        super().__init__(task, name, design, charges, source, task.averaging)

    def answer(self, request: Message) -> Message:
        """Release a gradient sum, move the weights, and reply with weights and partial scores."""
        task = self.task
        self._receive(request)
        for name in task.active_parties(self._round):
            group = release_group(name)
            mechanism = GaussianNoise(self.calibrated.noise_multiplier(group))
            if name == self.name:
                gradient = self._holder.release(WeightedRows(task.limit), mechanism, group)
                self._weights = task.updated_weights(name, self._weights, gradient)
            else:  # another party's release of this round, which is about the same people
                self._charges.charge(group, mechanism.event(WeightedRows.replacement_ratio))
        self._end_round()
        shared = self._inside(PartialPredictions(self._weights))
        steps = np.rint(shared / task.score_spacing(task.box)).astype(np.int64)
        return Message("scores", {"scores": steps, WEIGHTS: self._weights.copy()}, {}, frozenset({"scores"}))


class SharingCoordinator(ResidualExchangeCoordinator):
    """Program of the coordinator, who holds the label."""

    def __init__(self, task: SharingTask, target: FloatArray, charges: Charges, source: RandomSource) -> None:
        super().__init__(task, target, charges, source, task.averaging)

    def _next_residual(self) -> FloatArray:
        rho, domain = self.task.dual_penalty(), self.task.domain
        self._received.put(SCORES, self._scores)
        self._received.put(DUAL, self._dual)
        slopes = self._holder.share(SharedSlopes(self.task.objective.loss, rho), domain).reveal_inside(domain)
        raw = slopes if rho is None else 2.0 * slopes - self._dual
        self._dual = slopes
        return np.clip(raw, -self.task.limit, self.task.limit)

    def absorb(self, replies: Mapping[str, Message], totals: Mapping[str, IntArray]) -> None:
        """Process the parties' weights and the total of partial scores."""
        scores = self._total(totals)
        active = self.task.active_parties(self.round)
        self._take(replies)
        self._scores = scores
        for name in active:
            group = release_group(name)
            event = GaussianNoise(self.calibrated.noise_multiplier(group)).event(WeightedRows.replacement_ratio)
            self._charges.charge(group, event)
