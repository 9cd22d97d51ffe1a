"""Prediction: each party scores new people with its own part of the model, and the coordinator adds the scores.

The coordinator sees the scores of single people without noise (with a secure sum, only their total). Prediction is for
new people known to all participants, and is outside the guarantee of the training. Every answer is in the party's
activity log.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from dperm.atomic_files import write_atomically
from dperm.errors import InvalidInput
from dperm.privacy.ledger.scope import InnerScope
from dperm.solvers.vertical.protocol import CoordinatorProgram, Fact, Message, PartyProgram
from dperm.types import FloatArray, IntArray
from dperm.vertical.identity.names import require_safe_name
from dperm.vertical.methods.training import MODEL_FORMAT
from dperm.vertical.participant.tables import OwnRows, PartyTable
from dperm.vertical.session.row_checks import ALIGNMENT, refuse_different_rows, refuse_undeclared_rows
from dperm.vertical.session.spec import PreparedRun, RunSpec

__all__ = [
    "PREDICT",
    "CoordinatorPredictionHandler",
    "PredictionHandler",
    "predicted_values",
    "read_model",
    "write_predictions",
]

PREDICT = "predict"
#: scores are sent as whole numbers of steps of 2^-32
_GRID = 2.0**32
#: bound on a partial score: 2^56 steps, so that sums of up to 64 parties at the bound stay below 2^63
_MOST = 2.0**24


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
        """Do nothing: the answer follows from table and model."""


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
    """A party's side: the columns of new people and the party's own part of a model."""

    def __init__(self, name: str, table: Callable[[], PartyTable], models: Path) -> None:
        self._name, self._table, self._models = name, table, models

    def _model(self, spec: RunSpec) -> Mapping[str, Any]:
        run = require_safe_name(str(spec.options.get("model", "")), "`model` of a prediction")
        try:
            model = json.loads((self._models / f"{run}.json").read_text(encoding="utf-8"))
            if model["format"] != MODEL_FORMAT:
                raise ValueError
        except (OSError, ValueError, KeyError):
            raise InvalidInput(f"this party has no part of a model from run {run!r}.") from None
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
            raise InvalidInput("the [predict] table has other columns than the model: declare the same columns.")
        weights = np.array(model["weights"])
        design = table.design(len(weights) > len(table.names))
        # clipped and scaled as in training: a value outside the declared range counts as the end of the range
        return _PredictParty(np.asarray(design.scores(weights), np.float64) * design.shape.spacing)

    def finish(self, spec: RunSpec, program: PartyProgram, message: Message) -> None:
        """Do nothing: a party stores nothing of a prediction."""


class CoordinatorPredictionHandler:
    """The coordinator's side: turns sums of scores into predictions.

    ``keep`` receives the predictions and the name of the alignment that ordered the people ("" if none did).
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
        # the columns of a party that is left out count as the middle of their ranges; its intercept is added
        kept = sum(self._model.get("intercepts", {}).get(party, 0.0) for party in without)
        made = predicted_values(self._model, program.result() + kept)
        made["without"] = without
        self._keep(made, str(next(iter(spec.facts.values())).get(ALIGNMENT) or ""))
        return made


def predicted_values(model: Mapping[str, Any], scores: FloatArray) -> dict[str, Any]:
    """Return the model's predictions for sums of partial scores."""
    target = model["target"]
    if target["kind"] == "classes":
        labels = np.array(target["classes"])[(scores > 0.0).astype(int)]
        made: dict[str, Any] = {"prediction": labels.tolist()}
        if model["loss"] == "logistic":
            made["probability"] = expit(scores).tolist()
        return made
    low, high = target["low"], target["high"]
    return {"prediction": ((low + high) / 2.0 + (high - low) / 2.0 * np.clip(scores, -1.0, 1.0)).tolist()}


def read_model(path: Path) -> dict[str, Any]:
    """Read a model that the coordinator of a training run wrote."""
    try:
        model = json.loads(path.read_text(encoding="utf-8"))
        if model["format"] != MODEL_FORMAT or "parties" not in model:
            raise ValueError
    except OSError as error:
        raise InvalidInput(f"the model {str(path)!r} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"{path} is not a model of a vertical run.") from None
    return dict(model)


def write_predictions(made: Mapping[str, Any], out: Path | None, own: OwnRows | None) -> None:
    """Write predictions with the coordinator's own identifiers, if it has an order of the same alignment.

    Otherwise a line has only its position in the common order, which is not a row of any participant's file.
    """
    if out is None:
        return
    columns = [name for name in ("prediction", "probability") if name in made]
    n = len(made["prediction"])
    if own is None:
        keys: dict[str, Any] = {"common_row": range(n)}
    else:
        name = own.id if own.id not in ("table_row", *columns) else f"id_{own.id}"
        keys = {name: own.identifiers, "table_row": own.rows.tolist()}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, *columns])
    writer.writerows(zip(*keys.values(), *(made[name] for name in columns), strict=True))
    write_atomically(out, text.getvalue(), private=True)  # one line per person
