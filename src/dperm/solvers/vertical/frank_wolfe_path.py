"""The weights of Frank-Wolfe as a function of its choices, and the common base of its coordinators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dperm.data.holding.holder import Charges, DataHolder
from dperm.data.holding.party import LabelData, ReceivedValues
from dperm.errors import InvalidInput, PlanViolation
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.randomness import RandomSource
from dperm.solvers.vertical.protocol import Fact, Message
from dperm.solvers.vertical.task import VerticalResult, check_message
from dperm.types import FloatArray

__all__ = ["FrankWolfeCoordinatorBase", "FrankWolfePath"]


@dataclass
class FrankWolfePath:
    """The weights that follow from the choices so far; public.

    Without sampling gamma = 2 / (t + 2) and after T steps x = 2 radius / (T (T + 1)) sum_t (t + 1) s_t; ``kept`` is the
    sum, in whole numbers. With sampling ``kept`` holds the weights themselves.
    """

    radius: float
    probability: float = 1.0
    step: int = 0
    kept: dict[int, float] = field(default_factory=dict)

    def move(self, atoms: Mapping[int, int]) -> None:
        """Take one step toward signed columns (column: +1 or -1), one for each block that moves."""
        if self.probability == 1.0:
            for column, sign in atoms.items():
                self.kept[column] = self.kept.get(column, 0.0) + sign * (self.step + 1)
        else:
            gamma = 2.0 / (self.probability * self.step + 2.0)
            self.kept = {column: (1.0 - gamma) * value for column, value in self.kept.items()}
            for column, sign in atoms.items():
                self.kept[column] = self.kept.get(column, 0.0) + gamma * self.radius * sign
        self.step += 1

    def weights(self) -> dict[int, float]:
        """Return the nonzero weights by column."""
        if self.probability < 1.0:
            return {column: value for column, value in self.kept.items() if value}
        total = self.step * (self.step + 1) // 2
        return {column: self.radius * (count / total) for column, count in self.kept.items() if count}


class FrankWolfeCoordinatorBase:
    """Common part of the coordinators of Frank-Wolfe: the path, a vector for every active column, state and result."""

    def __init__(self, task: Any, target: FloatArray, charges: Charges, source: RandomSource) -> None:
        self.task = task
        self.calibrated: CalibratedPlan = task.calibrated
        self.n_rounds, self.round = task.n_rounds, 0
        self._charges, self._source, self._received = charges, source, ReceivedValues()
        data = LabelData(target, task.n, task.target_low, task.target_high, self._received)
        self._holder = DataHolder(data, charges, source, task.neighbours, task.shared_domain)
        self.path: FrankWolfePath = task.path()
        self._vectors: dict[int, FloatArray] = {}
        self._missing: list[int] = []  # active columns whose vector has not arrived yet
        self._moved: tuple[str, ...] = ()  # parties whose choice moved in the latest step

    @property
    def holder(self) -> DataHolder:
        """The holder of the labels."""
        return self._holder

    def _move(self, places: Mapping[str, int]) -> None:
        """Take a step toward the parties' signed columns, and note which vectors are missing for the next one."""
        atoms = {}
        for name, place in places.items():
            d = self.task.parties[name].d
            if not 0 <= place < 2 * d:
                raise InvalidInput(f"party {name!r} chose a column that it does not hold.")
            atoms[self.task.offsets[name] + place % d] = 1 if place < d else -1
        self.path.move(atoms)
        self._moved = tuple(places)
        over = self.path.step == self.task.n_steps  # nothing is needed after the last step
        self._missing = [] if over else [column for column in atoms if column not in self._vectors]

    def _wanted(self) -> dict[str, int]:
        """For each party its column that is missing, or -1."""
        return dict.fromkeys(self.task.parties, -1) | dict(map(self.task.owner, self._missing))

    def _outcome(self, **more: Fact) -> dict[str, Message]:
        """Requests that say whether the party's choice moved and ask for the column that is missing."""
        return {
            name: Message("send", {}, {"column": column, "moved": name in self._moved, **more})
            for name, column in self._wanted().items()
        }

    def _take_vectors(self, replies: Mapping[str, Message], kind: str, length: int) -> None:
        for name, own in self._wanted().items():
            check_message(replies[name], kind, **({kind: ("float64", (length,))} if own >= 0 else {}))
            if own >= 0:
                self._vectors[self.task.offsets[name] + own] = np.array(replies[name].arrays[kind])

    def _more_state(self) -> dict[str, Any]:
        return {}

    def state(self) -> Message:
        """Return everything but the labels; after the last round without the parties' columns."""
        arrays: dict[str, Any] = {
            "kept columns": np.array(list(self.path.kept), np.int64),
            "kept": np.array(list(self.path.kept.values()), np.float64),
            "missing": np.array(self._missing, np.int64),
            "moved": np.array([name in self._moved for name in self.task.parties], np.int64),
        }
        if self.round < self.n_rounds:  # after the last round nothing about single people is kept
            arrays |= {f"vector {j}": values.copy() for j, values in self._vectors.items()}
        return Message("state", arrays | self._more_state(), {"round": self.round, "step": self.path.step})

    def restore(self, state: Message) -> None:
        """Continue from a state."""
        own = {"kept columns", "kept", "missing", "moved", *self._more_state()}
        if state.kind != "state" or not own <= set(state.arrays):
            raise InvalidInput("this state belongs to another task.")
        self.round, self.path.step = int(state.facts["round"] or 0), int(state.facts["step"] or 0)
        pairs = zip(state.arrays["kept columns"].tolist(), state.arrays["kept"].tolist(), strict=True)
        self.path.kept = dict(pairs)
        self._missing = state.arrays["missing"].tolist()
        moved = zip(self.task.parties, state.arrays["moved"].tolist(), strict=True)
        self._moved = tuple(name for name, did in moved if did)
        vectors = (name for name in state.arrays if name.startswith("vector "))
        self._vectors = {int(name.split()[1]): state.arrays[name].copy() for name in vectors}

    def result(self) -> VerticalResult:
        """Return the released weights and the report."""
        if self.round < self.n_rounds:
            raise PlanViolation("the run is not over.")
        weights = {name: np.zeros(facts.d) for name, facts in self.task.parties.items()}
        for column, value in self.path.weights().items():
            name, own = self.task.owner(column)
            weights[name][own] = value
        return VerticalResult(weights, self.round, self.task.report(secure=self._source.secure))
