"""Connection test: participants try keys, links and restarts with invented numbers before they use real tables.

Every party generates whole numbers from a public seed and its name. The rounds are those of a least-squares fit over
them, so a lost or repeated step changes the result. Nothing is released and no ledger is charged.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from dperm.errors import InvalidInput
from dperm.privacy.ledger.scope import InnerScope
from dperm.solvers.vertical.protocol import CoordinatorProgram, Fact, Message, PartyProgram
from dperm.types import FloatArray, IntArray
from dperm.validation import whole
from dperm.vertical.session.row_checks import refuse_different_rows
from dperm.vertical.session.spec import PreparedRun, RunSpec

__all__ = [
    "CONNECTION_TEST",
    "ConnectionTestCoordinator",
    "ConnectionTestHandler",
    "ConnectionTestParty",
    "connection_test_options",
]

CONNECTION_TEST = "connection-test"
_GRID = 2.0**20
_COLUMNS = 4


def _numbers(seed: int, name: str, shape: tuple[int, ...]) -> FloatArray:
    key = int.from_bytes(hashlib.sha256(f"{seed}|{name}".encode()).digest()[:8], "little")
    return np.random.default_rng(key).integers(-8, 9, shape).astype(np.float64)


class ConnectionTestParty:
    """A party's program: four invented columns and their weights."""

    calibrated: Any = None

    def __init__(self, n: int, seed: int, name: str, n_rounds: int, pause: float = 0.0) -> None:
        self.n_rounds = n_rounds
        self._columns = _numbers(seed, name, (n, _COLUMNS))
        self._weights = np.zeros(_COLUMNS)
        self._pause = pause

    def answer(self, request: Message) -> Message:
        residual = request.arrays["residual"]
        self._weights = self._weights + self._columns.T @ residual / (64.0 * len(residual))
        if self._pause:
            time.sleep(self._pause)
        scores = np.rint(self._columns @ self._weights * _GRID).astype(np.int64)
        return Message("scores", {"scores": scores}, summed=frozenset({"scores"}))

    def state(self) -> Message:
        return Message("state", {"weights": self._weights})

    def restore(self, state: Message) -> None:
        self._weights = np.array(state.arrays["weights"])


class ConnectionTestCoordinator:
    """The coordinator's program: an invented target and the residual."""

    calibrated: Any = None

    def __init__(self, n: int, seed: int, parties: tuple[str, ...], n_rounds: int) -> None:
        self.n_rounds = n_rounds
        self.round = 0
        self._parties = parties
        self._target = _numbers(seed, "target of everybody", (n,))
        self._scores = np.zeros(n)
        self._history: list[float] = []

    def requests(self) -> Mapping[str, Message]:
        return dict.fromkeys(self._parties, Message("residual", {"residual": self._target - self._scores}))

    def absorb(self, replies: Mapping[str, Message], totals: Mapping[str, IntArray]) -> None:
        self._scores = totals["scores"] / _GRID
        self.round += 1
        self._history.append(float(np.mean((self._target - self._scores) ** 2)))

    def state(self) -> Message:
        arrays = {"scores": self._scores, "history": np.array(self._history)}
        return Message("state", arrays, {"round": self.round})

    def restore(self, state: Message) -> None:
        self._scores, self.round = np.array(state.arrays["scores"]), int(state.facts["round"] or 0)
        self._history = state.arrays["history"].tolist()

    def result(self) -> dict[str, Any]:
        """Return the error of each round and a digest of the last scores; a lost or repeated round changes it."""
        return {"digest": hashlib.sha256(self._scores.tobytes()).hexdigest(), "history": self._history}


class ConnectionTestHandler:
    """Handler of a connection test, for a party or (without a name) the coordinator; a party declares its rows."""

    def __init__(self, name: str = "", rows: int | None = None, pause: float = 0.0) -> None:
        self._name, self._rows, self._pause = name, rows, pause

    def join(self, spec: RunSpec) -> Mapping[str, Fact]:
        rows = connection_test_options(spec)["rows"] if self._rows is None else self._rows
        return {"n": rows, "d": _COLUMNS}

    def check(self, spec: RunSpec) -> None:
        refuse_different_rows(spec)

    def prepare(self, spec: RunSpec) -> PreparedRun:
        return PreparedRun()

    def program(self, spec: RunSpec, scope: InnerScope | None) -> Any:
        options, n = connection_test_options(spec), int(next(iter(spec.facts.values()))["n"] or 0)
        if self._name:
            return ConnectionTestParty(n, options["seed"], self._name, options["rounds"], self._pause)
        return ConnectionTestCoordinator(n, options["seed"], spec.parties, options["rounds"])

    def finish_messages(self, spec: RunSpec, program: CoordinatorProgram) -> Mapping[str, Message]:
        return dict.fromkeys(spec.parties, Message("finish"))

    def finish(self, spec: RunSpec, program: PartyProgram | CoordinatorProgram, message: Message | None = None) -> Any:
        return program.result() if isinstance(program, ConnectionTestCoordinator) else None


def connection_test_options(spec: RunSpec) -> dict[str, int]:
    """Return the options of a connection test, or refuse a wrong one."""
    defaults = {"rows": 1000, "rounds": 10, "seed": 0}
    unknown = sorted(set(spec.options) - set(defaults))
    if unknown:
        raise InvalidInput(f"a connection test has no option {unknown[0]!r}: its options are {', '.join(defaults)}.")
    options = {**defaults, **spec.options}
    limits = (("rows", 1, 1 << 24), ("rounds", 1, 100_000), ("seed", 0, 1 << 62))
    return {name: whole(f"{name} of a connection test", options[name], least, most) for name, least, most in limits}
