"""A participant's policy: which handler serves which method, and what a party agrees to."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from dperm.atomic_files import write_atomically
from dperm.errors import BudgetRefused, DpermWarning, InvalidInput, PeerRefused
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import InnerScope
from dperm.solvers.vertical import TASKS
from dperm.solvers.vertical.protocol import Fact, Message, PartyProgram
from dperm.vertical.identity.alignment import ALIGN, AlignmentHandler, People, clean_identifiers
from dperm.vertical.identity.keys import Identity
from dperm.vertical.methods.connection_test import CONNECTION_TEST, ConnectionTestHandler
from dperm.vertical.methods.option_checks import refuse_wrong_options
from dperm.vertical.methods.prediction import PREDICT, CoordinatorPredictionHandler, PredictionHandler
from dperm.vertical.methods.training import MODEL_FORMAT, LabelHandler, TrainingHandler
from dperm.vertical.participant.config import Config, LedgerSettings, RunSettings, Source
from dperm.vertical.participant.tables import (
    LabelTable,
    OrderUnusable,
    OwnRows,
    PartyTable,
    order_path,
    own_rows,
    read_identifiers,
    table_digest,
    write_order,
)
from dperm.vertical.session.row_checks import warn_of_runs_under_way
from dperm.vertical.session.spec import CoordinatorHandler, PartyHandler, PreparedRun, RunSpec

__all__ = ["PartyPolicy", "coordinator_handler", "open_party_ledger", "read_model", "spec_of"]


def open_party_ledger(books: LedgerSettings | None, where: str) -> Ledger:
    """Open a participant's ledger and set its cap the first time."""
    if books is None:
        raise InvalidInput(f"{where} has no part [ledger]: a training run is charged to the participant's own ledger.")
    ledger = Ledger(books.file, dataset=books.dataset)
    if books.epsilon is not None:
        wanted = Budget(books.epsilon, books.delta)
        if ledger.cap is None:
            ledger.set_cap(wanted)
        elif ledger.cap.budget != wanted:
            raise InvalidInput(f"the cap in {where} differs from the ledger's, which never changes: correct [ledger].")
    return ledger


def _table(config: Config, spec: RunSpec) -> Source:
    source = config.predict if spec.options.get("table") == "predict" else config.data
    if source is None:
        raise InvalidInput(f"{config.path.name} names no table for this: add a part [data] or [predict].")
    return source


def _align_handler(config: Config, identity: Identity, spec: RunSpec, party: bool) -> AlignmentHandler:
    source = _table(config, spec) if party or config.data is not None else None
    raw = None if source is None else read_identifiers(source)
    people = None if raw is None else People(clean_identifiers(raw), table_digest(raw))

    def keep(order: Any, table: str) -> None:
        assert source is not None
        write_order(order_path(config, source), order, spec.run, table)

    return AlignmentHandler(identity, people, keep, party)


class PartyPolicy:
    """A party's policy, tables and ledger, as its configuration has them."""

    def __init__(self, config: Config, identity: Identity) -> None:
        self._config, self._identity = config, identity
        self._handlers: dict[tuple[str, str], PartyHandler] = {}

    @cached_property
    def ledger(self) -> Ledger | None:
        """The party's own ledger, if it has one."""
        return None if self._config.ledger is None else open_party_ledger(self._config.ledger, self._config.path.name)

    def open(self) -> None:
        """Open ledger and table, so that whatever is wrong with them is said before anybody is called."""
        _ = self.ledger
        trains = set(self._config.allow.methods) - {CONNECTION_TEST, ALIGN, PREDICT}
        source = self._config.data
        if trains and source is not None:
            try:
                _ = self._training_table
            except OrderUnusable as error:
                if ALIGN not in self._config.allow.methods:
                    raise
                # alignment is what mends it, and comes before training; a party that never aligned knows
                if order_path(self._config, source).exists():
                    warnings.warn(f"no run is trained until then: {error}", DpermWarning, stacklevel=2)
        if trains and self._config.ledger is None:
            open_party_ledger(None, self._config.path.name)
        if trains:
            self._need_cap()

    @cached_property
    def _training_table(self) -> PartyTable:
        if self._config.data is None:
            raise InvalidInput(f"{self._config.path.name} names no table: add a part [data].")
        return PartyTable.read(self._config, self._config.data)

    def _handler(self, spec: RunSpec) -> PartyHandler:
        key = (spec.run, spec.method)
        if key not in self._handlers:
            self._handlers[key] = self._new_handler(spec)
        return self._handlers[key]

    def _new_handler(self, spec: RunSpec) -> PartyHandler:
        config, models = self._config, self._config.state / "models"
        if spec.method == CONNECTION_TEST:
            return ConnectionTestHandler(config.name, config.rows, config.pause)
        if spec.method == ALIGN:
            return _align_handler(config, self._identity, spec, party=True)
        if spec.method == PREDICT:
            source = _table(config, replace(spec, options={**spec.options, "table": "predict"}))
            return PredictionHandler(config.name, lambda: PartyTable.read(config, source), models)
        if self.ledger is None:
            open_party_ledger(None, config.path.name)
        assert self.ledger is not None
        return TrainingHandler(config.name, self._training_table, self.ledger, models)

    def join(self, spec: RunSpec) -> Mapping[str, Fact]:
        self._agree(spec)
        return self._handler(spec).join(spec)

    def _agree(self, spec: RunSpec) -> None:
        """Refuse a run that the configuration does not allow; what it costs is compared in :meth:`prepare`."""
        allow, me, options = self._config.allow, self._config.name, spec.options
        if spec.method not in allow.methods:
            raise PeerRefused(f"{me} does not allow method {spec.method!r}.")
        self._agree_with(spec)
        if allow.secure_sum and not spec.secure_sum and spec.method not in (ALIGN,):
            raise PeerRefused(f"{me} takes part only with a secure sum.")
        if spec.method in (CONNECTION_TEST, ALIGN, PREDICT):
            return
        epsilon, delta = options.get("epsilon"), options.get("delta", allow.delta)
        if not _is_number(epsilon) or not 0.0 < epsilon <= allow.epsilon:
            raise BudgetRefused(f"{me} allows at most epsilon={allow.epsilon:g} per run, and not {epsilon!r}.")
        if not _is_number(delta) or not 0.0 < delta <= allow.delta:
            raise BudgetRefused(f"{me} allows at most delta={allow.delta:g} per run, and not {delta!r}.")
        if options.get("neighbours", "replace-one") not in allow.neighbours:
            raise PeerRefused(f"{me} does not allow neighbours {options.get('neighbours')!r}.")
        if options.get("view", "model") not in allow.views:
            raise PeerRefused(f"{me} does not allow the view {options.get('view', 'model')!r}.")
        if options.get("insecure_seed") is not None and not allow.insecure:
            raise PeerRefused(f"{me} does not allow reproducible noise.")
        self._need_cap()

    def _agree_with(self, spec: RunSpec) -> None:
        """Refuse participants that the configuration does not know: an unknown one could stand for the coordinator."""
        allow, me = self._config.allow, self._config.name
        pins = {**self._config.pins, **dict(self._identity.trust.pins)}
        others = [name for name in spec.parties if name != me]
        if spec.method == ALIGN and (holder := spec.options.get("label_holder")) is not None:
            if not isinstance(holder, str) or holder in spec.parties:
                raise PeerRefused("the label holder of an alignment must not be one of its parties.")
            others.append(holder)
        for other in others:
            if allow.parties and other not in allow.parties:
                raise PeerRefused(f"{me} does not take part together with {other!r}: it is not in its [allow] parties.")
            if pins and other not in pins:
                raise PeerRefused(f"{me} has pinned the keys of others and none of {other!r}: it does not take part.")

    def _need_cap(self) -> None:
        """Refuse to train without a cap: a limit per run is none on how many runs are asked for."""
        if not self._config.allow.insecure and (self.ledger is None or self.ledger.cap is None):
            raise PeerRefused(
                f"{self._config.name} trains only under a cap: set `epsilon` and `delta` of [ledger] in "
                f"{self._config.path.name}."
            )

    def prepare(self, spec: RunSpec) -> PreparedRun:
        prepared, allow = self._handler(spec).prepare(spec), self._config.allow
        if prepared.calibrated is not None:  # what the run really is, with the defaults of its method filled in
            spent = prepared.calibrated.budget
            if spent.epsilon > allow.epsilon or spent.delta > allow.delta:
                raise BudgetRefused(
                    f"{self._config.name} allows at most epsilon={allow.epsilon:g} and delta={allow.delta:g} per run, "
                    f"and not epsilon={spent.epsilon:g} and delta={spent.delta:g}: give the run a smaller `delta`."
                )
        return prepared

    def program(self, spec: RunSpec, scope: InnerScope | None) -> PartyProgram:
        return self._handler(spec).program(spec, scope)

    def finish(self, spec: RunSpec, program: PartyProgram, said: Message) -> None:
        self._handler(spec).finish(spec, program, said)
        if spec.method == ALIGN:
            self.__dict__.pop("_training_table", None)  # it is read again in its new order
            self._handlers.clear()


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def spec_of(config: Config) -> RunSpec:
    """Return the description of the run in a coordinator's configuration."""
    run: RunSettings = config.need("run")
    options = dict(run.options)
    if run.method == ALIGN and config.data is not None and config.data.id is not None:
        options["label_holder"] = config.name
    elif run.method not in (CONNECTION_TEST, ALIGN, PREDICT):
        if run.method not in TASKS:
            known = ", ".join(sorted([*TASKS, CONNECTION_TEST, ALIGN, PREDICT]))
            raise InvalidInput(f"there is no method {run.method!r}: known are {known}.")
        options["target"] = _public_target(config)
    return RunSpec(run.name, run.method, run.parties, options, run.secure_sum)


def _public_target(config: Config) -> dict[str, Any]:
    target = config.need("target")
    return {name: target[name] for name in ("kind", "classes", "low", "high") if name in target}


def coordinator_handler(
    config: Config, identity: Identity, model: Mapping[str, Any] | None = None
) -> CoordinatorHandler:
    """Return the coordinator's handler for the run in its configuration; wrong options are refused here."""
    run: RunSettings = config.need("run")
    if run.method not in (ALIGN, PREDICT):
        refuse_wrong_options(spec_of(config))
    if run.method == CONNECTION_TEST:
        return ConnectionTestHandler()
    if run.method == ALIGN:
        if run.options.get("table") != "predict":  # the order of new people is no training run's
            warn_of_runs_under_way(config.state / "runs")
        return _align_handler(config, identity, spec_of(config), party=False)
    if run.method == PREDICT:
        if model is None:
            raise InvalidInput("a prediction needs the model that a training run wrote.")
        return CoordinatorPredictionHandler(
            model, lambda made, alignment: _write_predictions(made, run.out, own_rows(config, alignment))
        )
    table = LabelTable.read(config, config.need("data"))
    return LabelHandler(config.name, table, open_party_ledger(config.ledger, config.path.name), run.out)


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


def _write_predictions(made: Mapping[str, Any], out: Path | None, people: OwnRows | None) -> None:
    """Write predictions with the coordinator's own identifiers, where it has an order of the same alignment.

    Otherwise a row is known only by its place in the common order, which is no row of anybody's file.
    """
    if out is None:
        return
    columns = [name for name in ("prediction", "probability") if name in made]
    n = len(made["prediction"])
    if people is None:
        who: dict[str, Any] = {"common_row": range(n)}
    else:
        name = people.id if people.id not in ("table_row", *columns) else f"id_{people.id}"
        who = {name: people.identifiers, "table_row": people.rows.tolist()}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*who, *columns])
    writer.writerows(zip(*who.values(), *(made[name] for name in columns), strict=True))
    write_atomically(out, text.getvalue())
