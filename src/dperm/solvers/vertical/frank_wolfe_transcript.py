"""Distributed private Frank-Wolfe with every message public (transcript view), for the squared loss.

First the label holder releases a noisy sketch of the target, once. In every step each party releases its choice among
its own signed columns and a noisy score of the choice. The column of the best party moves; when a column moves for the
first time, its noisy sketch is released, and later steps use it again at no cost. Everyone computes residuals from the
sketches. Proof: ``frank_wolfe.proof.md``; sketches after Lou & Cheung (AAAI 2018), with noise calibrated to the change
of one person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.holder import Charges
from dperm.errors import InvalidInput, Unsupported
from dperm.kernels.sketch import spread_back
from dperm.objective import Squared
from dperm.privacy.accounting.calibration import Plan, PlannedRelease
from dperm.privacy.mechanisms.standard import GaussianNoise, Mechanism, NoisyMax
from dperm.privacy.randomness import RandomSource
from dperm.queries.sharing import RESIDUAL, LocalAtomScores, WeightedRows
from dperm.queries.transcript import SketchedColumn, SketchedTarget
from dperm.solvers.option_checks import require_share, require_whole
from dperm.solvers.vertical.frank_wolfe import DistributedFrankWolfe, FrankWolfeParty, choice_group
from dperm.solvers.vertical.frank_wolfe_path import FrankWolfeCoordinatorBase
from dperm.solvers.vertical.protocol import Message
from dperm.solvers.vertical.task import check_message
from dperm.types import FloatArray, IntArray

__all__ = ["SketchedFrankWolfe"]


def _score_group(party: str) -> str:
    return f"atom score of {party}"


@dataclass(frozen=True)
class SketchedFrankWolfe(DistributedFrankWolfe):
    """Distributed DP Frank-Wolfe in the transcript view.

    **Guarantee.** Released to everyone who sees any message: one sketch of the target, at most min(n_steps, d) sketches
    of columns, and per step and party one choice and one noisy score. It also covers the participants.

    Parameters
    ----------
    n_sketch : int
        Rows of the sketch.
    sketch_seed : str
        Public seed of its signs.
    sketch_share, choice_share : float
        Shares of the budget for all sketches and for the choices; the rest is for the noisy scores.
    """

    view: str = "transcript"
    n_sketch: int = 256
    sketch_seed: str = "dperm sketch"
    sketch_share: float = 0.5
    choice_share: float = 0.25

    name: ClassVar[str] = "sketched-frank-wolfe"
    common_draws: ClassVar[bool] = False  # each party adds its own Gaussian noise to sketches and scores
    #: releases that may stay unused: columns that were never chosen have no sketch
    may_forfeit: ClassVar[tuple[str, ...]] = (SketchedColumn.name,)
    views: ClassVar[tuple[str, ...]] = ("transcript",)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(self, "n_sketch")
        require_share(self, "sketch_share", "choice_share")
        if self.sketch_share + self.choice_share >= 1.0:
            raise InvalidInput("sketch_share and choice_share must sum to less than 1, to leave budget for the scores.")
        if not isinstance(self.objective.loss, Squared):
            raise Unsupported(
                "task 'sketched-frank-wolfe' takes the squared loss only: sketches give linear residuals."
            )
        if self.product:
            raise Unsupported("task 'sketched-frank-wolfe' takes one atom per step: leave product out.")

    @property
    def n_released(self) -> int:
        """Largest number of columns that may become active before the last step."""
        return max(1, min(self.n_steps - 1, self.d))

    def plan(self) -> Plan:
        n, each = self.n_steps, 1.0 / len(self.parties)
        rest = 1.0 - self.sketch_share - self.choice_share
        # the target's sketch counts as one more column
        unit = self.sketch_share / (self.n_released + 1)
        releases = [
            PlannedRelease(SketchedTarget.name, "gaussian", 1, unit),
            PlannedRelease(SketchedColumn.name, "gaussian", self.n_released, unit * self.n_released),
        ]
        for name in self.parties:
            releases.append(PlannedRelease(choice_group(name), "selection", n, self.choice_share * each))
            releases.append(PlannedRelease(_score_group(name), "gaussian", n, rest * each))
        return Plan(tuple(releases))

    def mechanism(self, group: str) -> Mechanism:
        """Return the mechanism of a group of releases."""
        kind = NoisyMax if self.calibrated.release(group).kind == "selection" else GaussianNoise
        return kind(self.calibrated.noise_multiplier(group))

    def charge(self, group: str, charges: Charges) -> None:
        """Charge another participant's release, which is about the same people."""
        charges.charge(group, self.mechanism(group).event(2.0))

    def residual(
        self, weights: Mapping[int, float], columns: Mapping[int, FloatArray], target: FloatArray
    ) -> FloatArray:
        """Return the residuals of all people computed from the sketches, clipped; public."""
        total = -target
        for column, weight in weights.items():
            total = total + weight * columns[column]
        raw = spread_back(self.sketch_seed, self.n, total) - 0.5 * (self.target_low + self.target_high)
        return np.clip(raw, -self.limit, self.limit)

    def coordinator(self, target: FloatArray, charges: Charges, source: RandomSource) -> SketchedCoordinator:  # type: ignore[override]
        return SketchedCoordinator(self, self.check_target(target), charges, source)

    def party(self, name: str, design: DesignMatrix, charges: Charges, source: RandomSource) -> SketchedParty:
        self.check_party(name, design)
        return SketchedParty(self, name, design, charges, source)


class SketchedParty(FrankWolfeParty):
    """Program of a party in the transcript view."""

    task: SketchedFrankWolfe

    def _choose(self, request: Message) -> Message:
        task = self.task
        check_message(request, "choose", residual=("float64", (task.n,)))
        if self._round == 0:  # the label holder has released its sketch for the first residuals
            task.charge(SketchedTarget.name, self._charges)
        self._received.put(RESIDUAL, request.arrays["residual"])
        score = np.zeros(1)
        for name in task.parties:
            choice, value = choice_group(name), _score_group(name)
            if name == self.name:
                columns = self._columns() or tuple(range(self._facts.d))
                won = self._holder.release(LocalAtomScores(task.limit, columns), task.mechanism(choice), choice)
                self._place = self._signed(int(won), columns)
                query = WeightedRows(task.limit, (self._place % self._facts.d,))
                gradient = self._holder.release(query, task.mechanism(value), value)
                score = np.asarray(-gradient if self._place < self._facts.d else gradient)
            else:
                task.charge(choice, self._charges)
                task.charge(value, self._charges)
        return Message("scored", {"place": np.array([self._place]), "score": score})

    def _send(self, request: Message, column: int) -> Message:
        task, group = self.task, SketchedColumn.name
        if column < 0:
            if request.facts.get("elsewhere"):
                task.charge(group, self._charges)
            return Message("sketch")
        query = SketchedColumn(column, task.n_sketch, task.sketch_seed)
        return Message("sketch", {"sketch": self._holder.release(query, task.mechanism(group))})


class SketchedCoordinator(FrankWolfeCoordinatorBase):
    """Program of the coordinator, who holds the label; everything else it has is public."""

    task: SketchedFrankWolfe

    def __init__(self, task: SketchedFrankWolfe, target: FloatArray, charges: Charges, source: RandomSource) -> None:
        super().__init__(task, target, charges, source)
        self._target: FloatArray | None = None

    def requests(self) -> Mapping[str, Message]:
        """Return the requests for choices, or for the sketch that is missing."""
        task = self.task
        if self.round % 2 == 1:
            return self._outcome(elsewhere=bool(self._missing))
        if self._target is None:
            query = SketchedTarget(task.n_sketch, task.sketch_seed)
            self._target = self._holder.release(query, task.mechanism(SketchedTarget.name))
        residual = task.residual(self.path.weights(), self._vectors, self._target)
        return dict.fromkeys(task.parties, Message("choose", {"residual": residual}, {"round": self.round}))

    def absorb(self, replies: Mapping[str, Message], totals: Mapping[str, IntArray]) -> None:
        """Process the choices and take the step, or process the requested sketch."""
        task = self.task
        if set(replies) != set(task.parties) or totals:
            raise InvalidInput("the replies do not belong to this round.")
        if self.round % 2 == 1:
            self._take_vectors(replies, "sketch", task.n_sketch)
            for _ in self._missing:
                task.charge(SketchedColumn.name, self._charges)
        else:
            for name, reply in replies.items():
                check_message(reply, "scored", place=("int64", (1,)), score=("float64", (1,)))
                task.charge(choice_group(name), self._charges)
                task.charge(_score_group(name), self._charges)
            best = max(replies, key=lambda name: float(replies[name].arrays["score"][0]))
            self._move({best: int(replies[best].arrays["place"][0])})
        self.round += 1

    def _more_state(self) -> dict[str, Any]:
        return {"target": np.zeros(0) if self._target is None else self._target.copy()}

    def restore(self, state: Message) -> None:
        """Continue from a state; a release that was made is never made again."""
        super().restore(state)
        self._target = state.arrays["target"].copy() if state.arrays["target"].size else None
