"""Which handler serves which method, for a party and for the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dperm.errors import InvalidInput
from dperm.privacy.ledger import Ledger
from dperm.solvers.vertical import TASKS
from dperm.types import IntArray
from dperm.vertical.identity.keys import Identity
from dperm.vertical.methods.alignment import ALIGN, AlignmentHandler, IdentifierColumn, clean_identifiers
from dperm.vertical.methods.connection_test import CONNECTION_TEST, ConnectionTestHandler, connection_test_options
from dperm.vertical.methods.prediction import (
    PREDICT,
    CoordinatorPredictionHandler,
    PredictionHandler,
    write_predictions,
)
from dperm.vertical.methods.training import LabelHandler, TrainingHandler, refuse_wrong_options
from dperm.vertical.participant.config import Config, RunSettings, TableSource
from dperm.vertical.participant.ledger import open_own_ledger
from dperm.vertical.participant.tables import (
    LabelTable,
    PartyTable,
    order_path,
    own_rows,
    read_identifiers,
    table_digest,
    write_order,
)
from dperm.vertical.session.row_checks import warn_about_unfinished_runs
from dperm.vertical.session.spec import CoordinatorHandler, PartyHandler, RunSpec

__all__ = [
    "COORDINATOR_HANDLERS",
    "PARTY_HANDLERS",
    "HandlerInputs",
    "coordinator_handler",
    "party_handler",
    "spec_from_config",
    "trains",
]


@dataclass(frozen=True)
class HandlerInputs:
    """What a party's handlers work with; ledger and training table are opened only when a method needs them."""

    config: Config
    identity: Identity
    ledger: Callable[[], Ledger]
    training_table: Callable[[], PartyTable]


def _connection_test(data: HandlerInputs, spec: RunSpec) -> PartyHandler:
    return ConnectionTestHandler(data.config.name, data.config.rows, data.config.pause)


def _align(data: HandlerInputs, spec: RunSpec) -> PartyHandler:
    return _alignment_handler(data.config, data.identity, spec, party=True)


def _predict(data: HandlerInputs, spec: RunSpec) -> PartyHandler:
    source = _table_source(data.config, replace(spec, options={**spec.options, "table": "predict"}))
    return PredictionHandler(data.config.name, lambda: PartyTable.read(data.config, source), _models_folder(data))


def _train(data: HandlerInputs, spec: RunSpec) -> PartyHandler:
    ledger = data.ledger()  # without one, no table is read
    return TrainingHandler(data.config.name, data.training_table(), ledger, _models_folder(data))


#: methods that train no model; all others are tasks of ``dperm.solvers.vertical``
PARTY_HANDLERS: dict[str, Callable[[HandlerInputs, RunSpec], PartyHandler]] = {
    CONNECTION_TEST: _connection_test,
    ALIGN: _align,
    PREDICT: _predict,
}


def trains(method: str) -> bool:
    """Whether a method trains a model, and so is charged to ledgers."""
    return method not in PARTY_HANDLERS


def party_handler(data: HandlerInputs, spec: RunSpec) -> PartyHandler:
    """Return a party's handler for a run."""
    return PARTY_HANDLERS.get(spec.method, _train)(data, spec)


def _models_folder(data: HandlerInputs) -> Path:
    return data.config.state / "models"


def _table_source(config: Config, spec: RunSpec) -> TableSource:
    source = config.predict if spec.options.get("table") == "predict" else config.data
    if source is None:
        raise InvalidInput(f"{config.path.name} names no table for this run: add a section [data] or [predict].")
    return source


def _alignment_handler(config: Config, identity: Identity, spec: RunSpec, party: bool) -> AlignmentHandler:
    source = _table_source(config, spec) if party or config.data is not None else None
    values = None if source is None else read_identifiers(source)
    column = None if values is None else IdentifierColumn(clean_identifiers(values), table_digest(values))

    def keep(order: IntArray, table: str) -> None:
        assert source is not None
        write_order(order_path(config, source), order, spec.run, table)

    return AlignmentHandler(identity, column, keep, party)


# ------------------------------------------------------------------------------------------ the coordinator
Model = Mapping[str, Any]


def _coordinate_connection_test(config: Config, identity: Identity, model: Model | None) -> CoordinatorHandler:
    connection_test_options(spec_from_config(config))
    return ConnectionTestHandler()


def _coordinate_alignment(config: Config, identity: Identity, model: Model | None) -> CoordinatorHandler:
    spec = spec_from_config(config)
    if spec.options.get("table") != "predict":  # no training run uses the order of new people
        warn_about_unfinished_runs(config.state / "runs")
    return _alignment_handler(config, identity, spec, party=False)


def _coordinate_prediction(config: Config, identity: Identity, model: Model | None) -> CoordinatorHandler:
    if model is None:
        raise InvalidInput("a prediction needs the model file of a training run: give it with --model.")
    out = config.need("run").out
    return CoordinatorPredictionHandler(
        model, lambda made, alignment: write_predictions(made, out, own_rows(config, alignment))
    )


def _coordinate_training(config: Config, identity: Identity, model: Model | None) -> CoordinatorHandler:
    refuse_wrong_options(spec_from_config(config))
    table = LabelTable.read(config, config.need("data"))
    return LabelHandler(config.name, table, open_own_ledger(config), config.need("run").out)


COORDINATOR_HANDLERS: dict[str, Callable[[Config, Identity, Model | None], CoordinatorHandler]] = {
    CONNECTION_TEST: _coordinate_connection_test,
    ALIGN: _coordinate_alignment,
    PREDICT: _coordinate_prediction,
}


def coordinator_handler(config: Config, identity: Identity, model: Model | None = None) -> CoordinatorHandler:
    """Return the coordinator's handler for the run in its configuration; wrong options are refused here."""
    return COORDINATOR_HANDLERS.get(config.need("run").method, _coordinate_training)(config, identity, model)


def spec_from_config(config: Config) -> RunSpec:
    """Return the description of the run in a coordinator's configuration."""
    run: RunSettings = config.need("run")
    options = dict(run.options)
    if run.method == ALIGN and config.data is not None and config.data.id is not None:
        options["label_holder"] = config.name
    elif trains(run.method):
        if run.method not in TASKS:
            known = ", ".join(sorted([*TASKS, *COORDINATOR_HANDLERS]))
            raise InvalidInput(f"there is no method {run.method!r}: choose one of {known}.")
        options["target"] = _public_target(config)
    return RunSpec(run.name, run.method, run.parties, options, run.secure_sum)


def _public_target(config: Config) -> dict[str, Any]:
    target = config.need("target")
    return {name: target[name] for name in ("kind", "classes", "low", "high") if name in target}
