r"""Distributed private Frank-Wolfe on the l1 ball, in the model view.

Minimises the mean loss over :math:`\|x\|_1 \le` radius; several parties hold the columns. A step takes two exchanges.
*Choose*: the coordinator sends one slope per person, every party runs a Gumbel race over its own signed columns, and
the overall winner moves, x <- (1 - gamma) x + gamma radius s. *Send*: a column that moves for the first time is shared
with the coordinator, once (after Lou & Cheung, AAAI 2018, whose published noise does not give its guarantee). Proof:
``frank_wolfe.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dperm.data.design.matrix import DesignMatrix
from dperm.data.design.weights import SparseWeights
from dperm.data.holding.holder import Charges, DataHolder
from dperm.data.holding.party import PartyData, ReceivedValues
from dperm.errors import InvalidInput, PlanViolation, Unsupported
from dperm.kernels.exact import Grids
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease
from dperm.privacy.mechanisms.joint_selection import N_WORDS, Finalist, JointSelection, joint_winner
from dperm.privacy.mechanisms.selection import race_scale
from dperm.privacy.mechanisms.standard import NoisyMax
from dperm.privacy.randomness import RandomSource
from dperm.queries.sharing import RESIDUAL, SCORES, ColumnValues, LocalAtomScores, SharedSlopes
from dperm.solvers.coordinate_sampling import NiceSampling
from dperm.solvers.option_checks import require_positive, require_whole
from dperm.solvers.vertical.frank_wolfe_path import FrankWolfeCoordinatorBase, FrankWolfePath
from dperm.solvers.vertical.protocol import Message
from dperm.solvers.vertical.task import VerticalTask, check_message, check_round_count
from dperm.types import FloatArray, IntArray

__all__ = ["DistributedFrankWolfe", "FrankWolfeParty", "choice_group"]


#: name of the joint choices in plans, ledgers and reports
JOINT = "joint atom choice"
CHOICE = {"choice": ("int64", (1,))}
FINALIST = {"place": ("int64", (1,)), "score": ("float64", (1,)), "digits": ("uint64", (N_WORDS,))}


def choice_group(party: str) -> str:
    """Name of a party's own choices in plans, ledgers and reports."""
    return f"atom choice of {party}"


@dataclass(frozen=True)
class DistributedFrankWolfe(VerticalTask):
    """Distributed DP Frank-Wolfe in the model view.

    **Guarantee.** Released to everyone who sees the model or any step: one atom per step (one per party and step with
    ``product``), each a private selection. It does not cover the participants, who see slopes, finalists and the
    columns that became active.

    Parameters
    ----------
    n_steps : int
        Number of steps, and the largest number of nonzero weights (times the number of parties, with ``product``).
    radius : float
        Public radius of the l1 ball. Intercepts count like any column.
    n_sampled : int, optional
        Number of its columns that each party considers in a step, drawn anew every time ((K, tau)-distributed
        sampling); gamma becomes 2 / (p t + 2), p the smallest probability of a column. With one atom per step this has
        no convergence theorem, because the l1 ball is not a product of sets; with ``product`` it has one (Lou & Cheung
        2018, Theorem 1).
    product : bool
        Every party moves in every step, within its own ball of radius / K; every party's choice is a release.
    """

    n_steps: int = 32
    radius: float = 1.0
    n_sampled: int | None = None
    product: bool = False

    name: ClassVar[str] = "distributed-frank-wolfe"
    common_draws: ClassVar[bool] = True
    public_arrays: ClassVar[frozenset[str]] = frozenset({"choice"})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_round_count(self, "n_steps")
        require_positive(self, "radius")
        if self.n_sampled is not None:
            require_whole(self, "n_sampled")
            if self.n_sampled > min(facts.d for facts in self.parties.values()):
                raise InvalidInput("n_sampled must be at most the smallest party's number of columns.")
        if self.penalty != SeparablePenalty():
            raise Unsupported("Frank-Wolfe over parties works on the l1 ball and takes no penalty: leave it out.")
        if not math.isfinite(self.limit):
            raise InvalidInput(
                f"the {self.objective.loss.name} loss has unbounded slopes: give it a residual_clip; a clip of value "
                "bound times radius plus the largest target changes nothing."
            )

    @property
    def limit(self) -> float:
        """Bound on a person's slope."""
        return self.objective.loss.slope_bound

    @property
    def n_rounds(self) -> int:
        """Number of exchanges, two per step."""
        return 2 * self.n_steps

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Place of each party's first column in the order of all columns."""
        starts = np.concatenate([[0], np.cumsum([facts.d for facts in self.parties.values()])])
        return {name: int(start) for name, start in zip(self.parties, starts, strict=False)}

    def owner(self, column: int) -> tuple[str, int]:
        """Return the party that holds a column, and the column's index there."""
        for name, facts in self.parties.items():
            if column < self.offsets[name] + facts.d:
                return name, column - self.offsets[name]
        raise InvalidInput(f"there is no column {column}.")

    @property
    def d(self) -> int:
        """Number of columns of all parties."""
        return sum(facts.d for facts in self.parties.values())

    @property
    def common_bound(self) -> float:
        """Largest value bound of all parties."""
        return max(facts.value_bound for facts in self.parties.values())

    @property
    def smallest_probability(self) -> float:
        """Smallest probability of a column to be considered in a step."""
        if self.n_sampled is None:
            return 1.0
        return min(self.n_sampled / facts.d for facts in self.parties.values())

    def path(self) -> FrankWolfePath:
        """Return the path before its first step, over all columns or over those of one party."""
        return FrankWolfePath(
            self.radius / len(self.parties) if self.product else self.radius, self.smallest_probability
        )

    def groups(self) -> tuple[str, ...]:
        """Names of the releases of one step."""
        return tuple(map(choice_group, self.parties)) if self.product else (JOINT,)

    def plan(self) -> Plan:
        return Plan(tuple(PlannedRelease(group, "selection", self.n_steps) for group in self.groups()))

    def coordinator(self, target: FloatArray, charges: Charges, source: RandomSource) -> FrankWolfeCoordinator:
        return FrankWolfeCoordinator(self, self.check_target(target), charges, source)

    def party(self, name: str, design: DesignMatrix, charges: Charges, source: RandomSource) -> FrankWolfeParty:
        self.check_party(name, design)
        return FrankWolfeParty(self, name, design, charges, source)


class FrankWolfeParty:
    """Program of a party: it chooses among its own columns and shares those that move."""

    def __init__(
        self, task: DistributedFrankWolfe, name: str, design: DesignMatrix, charges: Charges, source: RandomSource
    ) -> None:
        self.task, self.name = task, name
        self.calibrated: CalibratedPlan = task.calibrated
        self._received, self._charges, self._source = ReceivedValues(), charges, source
        data = PartyData(design, self._received)
        self._holder = DataHolder(data, charges, source, task.neighbours, task.shared_domain)
        self._facts = task.parties[name]
        self.n_rounds = task.n_rounds
        self._round = 0
        self._run: int | None = None
        self._path = task.path()  # over the party's own columns
        self._place = -1  # the party's choice in the latest step

    @property
    def holder(self) -> DataHolder:
        """The holder of the party's data."""
        return self._holder

    def answer(self, request: Message) -> Message:
        """Choose among the party's own columns, or share one."""
        if self._round >= self.task.n_rounds:
            raise PlanViolation("a request came after the last round.")
        if self._round % 2 == 0:
            reply = self._choose(request)
        else:
            column = self._take_step(request)
            reply = self._send(request, column)
        self._round += 1
        return reply

    def _take_step(self, request: Message) -> int:
        """Take the step, and return the requested column: the one just chosen, or -1 for none."""
        check_message(request, "send")
        column, moved = request.facts.get("column"), request.facts.get("moved")
        chosen, sign = self._place % self._facts.d, 1 if self._place < self._facts.d else -1
        if not isinstance(column, int) or not isinstance(moved, bool):
            raise InvalidInput("a request must name the column it asks for and say whether this party's choice moved.")
        if (column >= 0 and not (moved and column == chosen)) or (self.task.product and not moved):
            raise InvalidInput("a request asks for a column that this party has not just chosen.")
        self._path.move({chosen: sign} if moved else {})
        return column

    def own_weights(self) -> FloatArray:
        """Return this party's part of the model, computed from its own choices that moved."""
        if self._round < self.n_rounds:
            raise PlanViolation("the run is not over.")
        weights = np.zeros(self._facts.d)
        for column, value in self._path.weights().items():
            weights[column] = value
        return weights

    def _choose(self, request: Message) -> Message:
        task = self.task
        check_message(request, "choose", residual=("float64", (task.n,)))
        self._received.put(RESIDUAL, request.arrays["residual"])
        columns = self._columns()
        query = LocalAtomScores(task.limit, columns, task.common_bound)
        stream = f"frank-wolfe {self._run_number()} round {self._step_number}"
        if task.product:
            return self._own_choice(query, columns, stream)
        mechanism = JointSelection(self.calibrated.noise_multiplier(JOINT), stream=stream, **self._places(columns))
        finalist: Finalist = self._holder.release(query, mechanism, JOINT)
        self._place = self._signed(finalist.place, columns)
        arrays = {"place": np.array([self._place]), "score": np.array([finalist.score]), "digits": finalist.digits}
        return Message("finalist", arrays)

    def _own_choice(self, query: LocalAtomScores, columns: tuple[int, ...] | None, stream: str) -> Message:
        for name in self.task.parties:
            group = choice_group(name)
            mechanism = NoisyMax(self.calibrated.noise_multiplier(group), stream=f"{stream} {name}")
            if name == self.name:
                self._place = self._signed(int(self._holder.release(query, mechanism, group)), columns)
            else:
                self._charges.charge(group, mechanism.event(query.replacement_ratio))
        return Message("choice", {"choice": np.array([self._place])})

    @property
    def _step_number(self) -> int:
        """Number of the step that this round belongs to; a step has two rounds."""
        return self._round // 2

    def _run_number(self) -> int:
        """Number that labels the draws of this run; with a shared seed all parties get the same one."""
        if self._run is None:
            self._run = self._source.word() >> 1
        return self._run

    def _columns(self) -> tuple[int, ...] | None:
        n_sampled = self.task.n_sampled
        if n_sampled is None:
            return None
        stream = self._source.stream(f"columns of {self.name} in {self._run_number()} round {self._step_number}")
        return NiceSampling(self._facts.d, n_sampled).draw(stream)

    def _signed(self, place: int, columns: tuple[int, ...] | None) -> int:
        """Column and sign as one number: the party's column for +, the column plus d for -."""
        if columns is None:
            return place
        return columns[place % len(columns)] + (self._facts.d if place >= len(columns) else 0)

    def _places(self, columns: tuple[int, ...] | None) -> dict[str, Any]:
        """Positions of this party's candidates among those of all parties."""
        own = np.arange(self._facts.d) if columns is None else np.array(columns)
        own = own + self.task.offsets[self.name]
        return {"places": tuple(np.concatenate([own, own + self.task.d]).tolist()), "n_places": 2 * self.task.d}

    def _send(self, request: Message, column: int) -> Message:
        if column < 0:
            return Message("column")
        domain = self.task.domain
        values = self._holder.share(ColumnValues(column), domain).reveal_inside(domain)
        return Message("column", {"column": values})

    def state(self) -> Message:
        """Return the round, the run number, the latest choice and the path."""
        kept = self._path.kept
        arrays = {
            "kept columns": np.array(list(kept), np.int64),
            "kept": np.array(list(kept.values()), np.float64),
        }
        facts = {"round": self._round, "run": self._run, "place": self._place, "step": self._path.step}
        return Message("state", arrays, facts)

    def restore(self, state: Message) -> None:
        """Continue from a state."""
        columns, kept = state.arrays["kept columns"].tolist(), state.arrays["kept"].tolist()
        run = state.facts["run"]
        self._round, self._run = int(state.facts["round"] or 0), None if run is None else int(run)
        self._place, self._path.step = int(state.facts["place"] or 0), int(state.facts["step"] or 0)
        self._path.kept = dict(zip(columns, kept, strict=True))


class FrankWolfeCoordinator(FrankWolfeCoordinatorBase):
    """Program of the coordinator, who holds the label and the columns that became active."""

    def __init__(self, task: DistributedFrankWolfe, target: FloatArray, charges: Charges, source: RandomSource) -> None:
        super().__init__(task, target, charges, source)
        self._asked: FloatArray | None = None

    def scores(self) -> FloatArray:
        """Exact predictions for all people, from the active columns."""
        task = self.task
        bits = Grids(task.n, task.d).weight_bits
        sparse = SparseWeights(task.d, self.path.weights(), self.path.radius)
        spacing = sparse.spacing(bits)
        out = np.zeros(task.n)
        for column in sorted(sparse.entries):  # whole numbers times powers of two: no rounding
            out += sparse.steps(column, spacing) * self._vectors[column]
        return out * spacing

    def requests(self) -> Mapping[str, Message]:
        """Return the requests for finalists, or for the column that is missing."""
        if self.round % 2 == 1:
            return self._outcome()
        if self._asked is None:
            self._received.put(SCORES, self.scores())
            query = SharedSlopes(self.task.objective.loss)
            slopes = self._holder.share(query, self.task.domain).reveal_inside(self.task.domain)
            self._asked = np.clip(slopes, -self.task.limit, self.task.limit)
        message = Message("choose", {"residual": self._asked.copy()}, {"round": self.round})
        return dict.fromkeys(self.task.parties, message)

    def absorb(self, replies: Mapping[str, Message], totals: Mapping[str, IntArray]) -> None:
        """Process the choices and take the step, or process the requested column."""
        if set(replies) != set(self.task.parties) or totals:
            raise InvalidInput("the replies do not belong to this round.")
        if self.round % 2 == 1:
            self._take_vectors(replies, "column", self.task.n)
        else:
            if self._asked is None:
                raise InvalidInput("replies came before their request.")
            self._move(self._own_choices(replies) if self.task.product else self._winner(replies))
            for group in self.task.groups():
                mechanism = NoisyMax(self.calibrated.noise_multiplier(group))
                self._charges.charge(group, mechanism.event(LocalAtomScores.replacement_ratio))
            self._asked = None
        self.round += 1

    def _winner(self, replies: Mapping[str, Message]) -> dict[str, int]:
        for reply in replies.values():
            check_message(reply, "finalist", **FINALIST)
        finalists = [
            Finalist(int(reply.arrays["place"][0]), float(reply.arrays["score"][0]), reply.arrays["digits"])
            for reply in replies.values()
        ]
        task = self.task
        facts = next(iter(task.parties.values()))
        query = LocalAtomScores(task.limit, None, task.common_bound)
        scale = race_scale(query.sensitivity(facts, task.neighbours), self.calibrated.noise_multiplier(JOINT))
        best = joint_winner(finalists, scale, self._source)
        return {list(replies)[best]: finalists[best].place}

    @staticmethod
    def _own_choices(replies: Mapping[str, Message]) -> dict[str, int]:
        for reply in replies.values():
            check_message(reply, "choice", **CHOICE)
        return {name: int(reply.arrays["choice"][0]) for name, reply in replies.items()}

    def restore(self, state: Message) -> None:
        """Continue from a state."""
        super().restore(state)
        self._asked = None
