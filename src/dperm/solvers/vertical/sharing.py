"""Methods in which every party shares its partial scores and gets back one number per person, in the model view.

A round: the coordinator, who holds the label, turns the sum of all partial scores into one residual per person; a party
releases the sum of its rows times these residuals with noise, moves its weights along it and answers with its new
partial scores. Scores and residuals stay inside the trusted domain; weights are released. Proof: ``sharing.proof.md``.
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
from dperm.solvers._checks import fraction, positive
from dperm.solvers.vertical.programs import Message
from dperm.solvers.vertical.task import VerticalTask, few_enough
from dperm.solvers.vertical.weights import WEIGHTS, WeightsCoordinator, WeightsParty
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
        Residuals are clipped to it; part of every sensitivity.
    step : float
        Public factor of the step lengths, which follow from public bounds.
    averaging : float
        The result is the mean of this last part of the released weights; 0 takes the last ones.
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
        few_enough(self, "n_rounds")
        positive(self, "limit", "step", "box")
        fraction(self, "averaging")

    def movers(self, round_: int) -> tuple[str, ...]:
        """Parties that release in a round; public."""
        return tuple(self.parties)

    def releases_of(self, party: str) -> int:
        """How many rounds a party releases in."""
        return self.n_rounds

    def plan(self) -> Plan:
        made = ((name, self.releases_of(name)) for name in self.parties)
        # a share in proportion to the count: one noise multiplier for all
        return Plan(
            tuple(PlannedRelease(release_group(name), "gaussian", k, share=float(k)) for name, k in made if k > 0)
        )

    def curvature(self, party: str) -> float:
        """Public upper bound of the curvature along a party's weights, per unit of step."""
        raise NotImplementedError

    def moved(self, party: str, weights: FloatArray, gradient: FloatArray) -> FloatArray:
        """Return the weights after a step along a released gradient sum: public arithmetic."""
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

    with the x-step linearised, so that a party's data enter by one gradient sum: with s the sum of partial scores and
    u the dual, the coordinator takes u' = slope of the loss at the proximal point of s + u / rho, and the residual is
    rho (s - z) + u' = 2 u' - u, clipped to ``limit``. Party m moves x_m <- prox(x_m - h_m / L_m), h_m the noisy sum of
    its rows times residuals, L_m = rho M n R_m^2 / step. The first dual step comes before the first release.

    **Guarantee.** Released to whoever sees the model or any step: one noisy gradient sum per party and round. With M
    parties and T rounds mu^2 = T sum_m (sensitivity_m / sigma_m)^2, exactly. It does not cover the participants, who
    see partial scores and residuals: see the report.

    Parameters
    ----------
    rho : float
        Public penalty of the constraint; it matters, and cannot be chosen on the data without paying. Steps are as long
        as rho is small: with few rounds 0.02 is far better than 0.1 on the data sets in ``docs/vertical.md``.
    """

    rho: float = 0.02

    name: ClassVar[str] = "admm-sharing"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "rho")

    def curvature(self, party: str) -> float:
        return self.rho * len(self.parties) * self.n * self.parties[party].row_bound ** 2

    def dual_penalty(self) -> float | None:
        return self.rho


@dataclass(frozen=True)
class BlocksOverParties(SharingTask):
    """Block gradient descent with one block per party, in turn (DP-SkGD with the parties as blocks).

    **Guarantee.** Released: one noisy gradient sum per round, of the party whose turn it is. mu^2 = T (sensitivity /
    sigma)^2, exactly; turns are public and give no amplification.
    """

    name: ClassVar[str] = "blocks-over-parties"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_rounds < len(self.parties):
            raise InvalidInput("n_rounds must give every party a turn.")

    def movers(self, round_: int) -> tuple[str, ...]:
        names = tuple(self.parties)
        return (names[round_ % len(names)],)

    def releases_of(self, party: str) -> int:
        return len(range(tuple(self.parties).index(party), self.n_rounds, len(self.parties)))

    def curvature(self, party: str) -> float:
        return self.objective.loss.curvature_bound * self.n * self.parties[party].row_bound ** 2


class SharingParty(WeightsParty):
    """A party's program."""

    def __init__(
        self, task: SharingTask, name: str, design: DesignMatrix, charges: Charges, source: RandomSource
    ) -> None:
        super().__init__(task, name, design, charges, source, task.averaging)

    def answer(self, request: Message) -> Message:
        """Release, move, and answer with weights and partial scores."""
        task = self.task
        self._receive(request)
        for name in task.movers(self._round):
            group = release_group(name)
            mechanism = GaussianNoise(self.calibrated.noise_multiplier(group))
            if name == self.name:
                gradient = self._holder.release(WeightedRows(task.limit), mechanism, group)
                self._weights = task.moved(name, self._weights, gradient)
            else:  # another party's release of this round, which tells about the same people
                self._charges.charge(group, mechanism.event(WeightedRows.replacement_ratio))
        self._end_round()
        shared = self._inside(PartialPredictions(self._weights))
        steps = np.rint(shared / task.score_spacing(task.box)).astype(np.int64)
        return Message("scores", {"scores": steps, WEIGHTS: self._weights.copy()}, {}, frozenset({"scores"}))


class SharingCoordinator(WeightsCoordinator):
    """The coordinator's program; it holds the label."""

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
        """Take weights and the total of partial scores."""
        scores = self._total(totals)
        movers = self.task.movers(self.round)
        self._take(replies)
        self._scores = scores
        for name in movers:
            group = release_group(name)
            event = GaussianNoise(self.calibrated.noise_multiplier(group)).event(WeightedRows.replacement_ratio)
            self._charges.charge(group, event)
