"""Common base of the methods that exchange residuals for scores: rounds, saved state and results of both programs.

In each round the coordinator sends one residual per person, and every party moves its own weights and replies with
partial scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.holder import Charges, DataHolder
from dperm.data.holding.party import LabelData, PartyData, ReceivedValues
from dperm.errors import InvalidInput, PlanViolation
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.randomness import RandomSource
from dperm.queries.sharing import RESIDUAL
from dperm.solvers.vertical.protocol import Message
from dperm.solvers.vertical.task import VerticalResult, check_message
from dperm.types import FloatArray, IntArray

__all__ = ["WEIGHTS", "ResidualExchangeCoordinator", "ResidualExchangeParty"]


WEIGHTS = "weights"


def _n_averaged(averaging: float, n_rounds: int) -> int:
    return max(1, round(averaging * n_rounds))


class ResidualExchangeParty:
    """Program of a party that receives residuals and moves its own weights.

    ``task`` has ``n``, ``n_rounds``, ``parties``, ``neighbours``, ``calibrated`` and ``shared_domain``; without a
    trusted domain values can only be released, not shared. ``averaging`` is the fraction of the rounds, the last ones,
    over which weights are averaged.
    """

    def __init__(
        self,
        task: Any,
        name: str,
        design: DesignMatrix,
        charges: Charges,
        source: RandomSource,
        averaging: float = 0.0,
    ) -> None:
        self.task, self.name = task, name
        self.n_rounds = task.n_rounds
        self._n_averaged = _n_averaged(averaging, task.n_rounds)
        self.calibrated: CalibratedPlan = task.calibrated
        self._received, self._charges, self._source = ReceivedValues(), charges, source
        self._holder = DataHolder(
            PartyData(design, self._received), charges, source, task.neighbours, task.shared_domain
        )
        self._round = 0
        self._weights = np.zeros(task.parties[name].d)
        self._sum = np.zeros(task.parties[name].d)

    @property
    def holder(self) -> DataHolder:
        """The holder of the party's data."""
        return self._holder

    def _receive(self, request: Message) -> None:
        check_message(request, "residual", residual=("float64", (self.task.n,)))
        if self._round >= self.task.n_rounds:
            raise PlanViolation("a request came after the last round.")
        self._received.put(RESIDUAL, request.arrays["residual"])

    def _inside(self, query: Any) -> FloatArray:
        """Evaluate a query whose answer stays inside the trusted domain."""
        return self._holder.share(query, self.task.domain).reveal_inside(self.task.domain)

    def _end_round(self) -> None:
        """Finish the round and update the sum of weights, in the same order as the coordinator does."""
        self._round += 1
        if self._round > self.n_rounds - self._n_averaged:
            self._sum += self._weights

    def own_weights(self) -> FloatArray:
        """Return this party's part of the model, computed from its own replies."""
        if self._round < self.n_rounds:
            raise PlanViolation("the run is not over.")
        return self._sum / self._n_averaged

    def state(self) -> Message:
        """Return the weights, their sum and the round."""
        return Message("state", {WEIGHTS: self._weights.copy(), "sum": self._sum.copy()}, {"round": self._round})

    def restore(self, state: Message) -> None:
        """Continue from a state."""
        shape = self._weights.shape
        check_message(state, "state", weights=("float64", shape), sum=("float64", shape))
        self._weights, self._round = state.arrays[WEIGHTS].copy(), int(state.facts["round"] or 0)
        self._sum = state.arrays["sum"].copy()


class ResidualExchangeCoordinator:
    """Program of a coordinator, who holds the label, sends residuals and receives weights and scores.

    ``averaging`` is the fraction of the rounds, the last ones, over which weights are averaged.
    """

    def __init__(
        self,
        task: Any,
        target: FloatArray,
        charges: Charges,
        source: RandomSource,
        averaging: float = 0.0,
    ) -> None:
        self.task = task
        self.calibrated: CalibratedPlan = task.calibrated
        self.n_rounds, self.round = task.n_rounds, 0
        self._n_averaged = _n_averaged(averaging, task.n_rounds)
        self._secure, self._charges, self._received = source.secure, charges, ReceivedValues()
        data = LabelData(target, task.n, task.target_low, task.target_high, self._received)
        self._holder = DataHolder(data, charges, source, task.neighbours, task.shared_domain)
        self._scores, self._dual = np.zeros(task.n), np.zeros(task.n)
        self._residual: FloatArray | None = None
        self._weights = {name: np.zeros(facts.d) for name, facts in task.parties.items()}
        self._sums = {name: np.zeros(facts.d) for name, facts in task.parties.items()}

    @property
    def holder(self) -> DataHolder:
        """The holder of the labels."""
        return self._holder

    def _next_residual(self) -> FloatArray:
        """Compute the residuals of this round."""
        raise NotImplementedError

    def requests(self) -> Mapping[str, Message]:
        """Return the request with this round's residuals for every party."""
        if self._residual is None:
            self._residual = self._next_residual()
        message = Message("residual", {"residual": self._residual.copy()}, {"round": self.round})
        return dict.fromkeys(self.task.parties, message)

    def _take(self, replies: Mapping[str, Message], **arrays: tuple[str, tuple[int, ...]]) -> None:
        """Check the replies of one round, store their weights and finish the round; ``arrays`` are further arrays."""
        if self._residual is None or set(replies) != set(self.task.parties):
            raise InvalidInput("the replies do not belong to this round.")
        for name, reply in replies.items():
            check_message(reply, "scores", weights=("float64", self._weights[name].shape), **arrays)
        self._residual = None
        self.round += 1
        for name, reply in replies.items():
            self._weights[name] = np.array(reply.arrays[WEIGHTS])
            if self.round > self.task.n_rounds - self._n_averaged:
                self._sums[name] += self._weights[name]

    def _total(self, totals: Mapping[str, IntArray]) -> FloatArray:
        """Compute predictions from the total of all parties' partial scores."""
        if set(totals) != {"scores"} or totals["scores"].shape != (self.task.n,):
            raise InvalidInput("the total of partial scores must have one number for each person.")
        spacing: float = self.task.score_spacing(self.task.box)
        return totals["scores"].astype(np.float64) * spacing

    def _more_state(self) -> dict[str, Any]:
        return {}

    def state(self) -> Message:
        """Return everything but the labels, including computed residuals, so that none is computed twice.

        After the last round the state has nothing about single people.
        """
        none = np.zeros(0)
        people = [none, none] if self.round >= self.n_rounds else [self._scores.copy(), self._dual.copy()]
        residual = none if self._residual is None else self._residual.copy()
        arrays: dict[str, Any] = {"scores": people[0], "dual": people[1], "residual": residual}
        for name in self.task.parties:
            arrays[f"weights of {name}"] = self._weights[name].copy()
            arrays[f"sum of {name}"] = self._sums[name].copy()
        return Message("state", arrays | self._more_state(), {"round": self.round})

    def restore(self, state: Message) -> None:
        """Continue from a state."""
        if state.kind != "state" or set(state.arrays) != set(self.state().arrays):
            raise InvalidInput("this state belongs to another task.")
        self._scores, self._dual = state.arrays["scores"].copy(), state.arrays["dual"].copy()
        self._residual = state.arrays["residual"].copy() if state.arrays["residual"].size else None
        for name in self.task.parties:
            self._weights[name] = state.arrays[f"weights of {name}"].copy()
            self._sums[name] = state.arrays[f"sum of {name}"].copy()
        self.round = int(state.facts["round"] or 0)

    def result(self) -> VerticalResult:
        """Return the weights and the report."""
        if self.round < self.n_rounds:
            raise PlanViolation("the run is not over.")
        weights = {name: total / self._n_averaged for name, total in self._sums.items()}
        return VerticalResult(weights, self.round, self.task.report(secure=self._secure))
