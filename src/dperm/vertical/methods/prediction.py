"""Prediction: the parties' partial scores of new people are summed; each party uses its own part of the model only.

Scores of single people are shown to the coordinator without noise (only their total, with a secure sum): prediction
is about new people who are known to all, and is outside the training's guarantee. Every answer is in the party's audit
log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from dperm.errors import InvalidInput
from dperm.privacy.ledger.scope import InnerScope
from dperm.solvers.vertical.protocol import CoordinatorProgram, Fact, Message, PartyProgram
from dperm.types import FloatArray, IntArray
from dperm.vertical.methods.training import MODEL_FORMAT
from dperm.vertical.participant.tables import PartyTable
from dperm.vertical.session.row_checks import ALIGNMENT, refuse_different_rows, refuse_undeclared_rows
from dperm.vertical.session.spec import PreparedRun, RunSpec
from dperm.vertical.transport.envelope import checked_name

__all__ = ["PREDICT", "CoordinatorPredictionHandler", "PredictionHandler", "predictions"]

PREDICT = "predict"
_GRID = 2.0**32
_MOST = 2.0**28  # of a partial score; sums of 64 parties stay far below 2^63 steps


class _PredictParty:
    calibrated: Any = None
    n_rounds = 1

    def __init__(self, scores: FloatArray) -> None:
        self._steps = np.rint(np.clip(scores, -_MOST, _MOST) * _GRID).astype(np.int64)

    def answer(self, request: Message) -> Message:
        return Message("scores", {"scores": self._steps}, summed=frozenset({"scores"}))

    def state(self) -> Message:
        return Message("state")

    def restore(self, state: Message) -> None:
        """Nothing is kept: the answer follows from table and model."""


class _PredictCoordinator:
    calibrated: Any = None
    n_rounds = 1

    def __init__(self, parties: tuple[str, ...]) -> None:
        self.round = 0
        self._parties = parties
        self._scores = np.zeros(0)

    def requests(self) -> Mapping[str, Message]:
        return dict.fromkeys(self._parties, Message("score"))

    def absorb(self, replies: Mapping[str, Message], totals: Mapping[str, IntArray]) -> None:
        self._scores = totals["scores"] / _GRID
        self.round += 1

    def state(self) -> Message:
        return Message("state", {"scores": self._scores}, {"round": self.round})

    def restore(self, state: Message) -> None:
        self._scores, self.round = state.arrays["scores"].copy(), int(state.facts["round"] or 0)

    def result(self) -> FloatArray:
        return self._scores


class PredictionHandler:
    """A party's side: new people's columns and the party's own part of a model."""

    def __init__(self, name: str, table: Callable[[], PartyTable], models: Path) -> None:
        self._name, self._table, self._models = name, table, models

    def _model(self, spec: RunSpec) -> Mapping[str, Any]:
        run = checked_name(str(spec.options.get("model", "")), "`model` of a prediction")
        try:
            model = json.loads((self._models / f"{run}.json").read_text(encoding="utf-8"))
            if model["format"] != MODEL_FORMAT:
                raise ValueError
        except (OSError, ValueError, KeyError):
            raise InvalidInput(f"this party keeps no part of a model of run {run!r}.") from None
        return dict(model)

    def join(self, spec: RunSpec) -> Mapping[str, Fact]:
        self._model(spec)
        table = self._table()
        return {"n": len(table.X), ALIGNMENT: table.alignment}

    def prepare(self, spec: RunSpec) -> PreparedRun:
        return PreparedRun()

    def program(self, spec: RunSpec, scope: InnerScope | None) -> PartyProgram:
        model, table = self._model(spec), self._table()
        refuse_undeclared_rows(spec, self._name, len(table.X), table.alignment)
        if list(table.names) != model["columns"]:
            raise InvalidInput("the new people's table has other columns than the model: declare the same ones.")
        weights = np.array(model["weights"])
        design = table.design(len(weights) > len(table.names))
        # clipped and scaled as in training, so that a value outside the declared range counts as its end
        return _PredictParty(np.asarray(design.scores(weights), np.float64) * design.shape.spacing)

    def finish(self, spec: RunSpec, program: PartyProgram, said: Message) -> None:
        """Nothing more to keep."""


class CoordinatorPredictionHandler:
    """The coordinator's side: sums become probabilities or numbers.

    ``keep`` is given them and the name of the alignment that ordered the people, "" for tables taken as they stand.
    """

    def __init__(self, model: Mapping[str, Any], keep: Callable[[dict[str, Any], str], Any]) -> None:
        self._model, self._keep = model, keep

    def check(self, spec: RunSpec) -> None:
        refuse_different_rows(spec)

    def prepare(self, spec: RunSpec) -> PreparedRun:
        return PreparedRun()

    def program(self, spec: RunSpec, scope: InnerScope | None) -> CoordinatorProgram:
        return _PredictCoordinator(spec.parties)

    def finish_messages(self, spec: RunSpec, program: CoordinatorProgram) -> Mapping[str, Message]:
        return dict.fromkeys(spec.parties, Message("finish"))

    def finish(self, spec: RunSpec, program: CoordinatorProgram) -> Any:
        without = sorted(set(self._model["parties"]) - set(spec.parties))
        # a party that is left out counts with its columns in the middle of their ranges, and with its intercept
        kept = sum(self._model.get("intercepts", {}).get(party, 0.0) for party in without)
        made = predictions(self._model, program.result() + kept)
        made["without"] = without
        self._keep(made, str(next(iter(spec.facts.values())).get(ALIGNMENT) or ""))
        return made


def predictions(model: Mapping[str, Any], scores: FloatArray) -> dict[str, Any]:
    """Turn sums of partial scores into what the model predicts."""
    target = model["target"]
    if target["kind"] == "classes":
        labels = np.array(target["classes"])[(scores > 0.0).astype(int)]
        made: dict[str, Any] = {"prediction": labels.tolist()}
        if model["loss"] == "logistic":
            made["probability"] = expit(scores).tolist()
        return made
    low, high = target["low"], target["high"]
    return {"prediction": ((low + high) / 2.0 + (high - low) / 2.0 * np.clip(scores, -1.0, 1.0)).tolist()}
