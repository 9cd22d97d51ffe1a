"""Training: the handlers of a party (columns, ledger) and of the label holder (target, ledger), and the saved model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from dperm.atomic_files import write_atomically
from dperm.data.design.facts import Facts
from dperm.errors import DpermError, InvalidInput, ProtocolError
from dperm.objective import LOSSES, PENALTIES, Objective
from dperm.privacy.accounting.budget import Budget, default_delta
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import InnerScope
from dperm.solvers.vertical import TASKS
from dperm.solvers.vertical.protocol import CoordinatorProgram, Fact, Message, PartyProgram, TrainedParty
from dperm.solvers.vertical.task import VerticalTask
from dperm.types import FloatArray
from dperm.vertical.participant.tables import LabelTable, PartyTable
from dperm.vertical.session.row_checks import ALIGNMENT, refuse_different_rows, refuse_undeclared_rows
from dperm.vertical.session.spec import PreparedRun, RunSpec

__all__ = ["MODEL_FORMAT", "LabelHandler", "TrainingHandler", "build_task", "holds_intercept", "refuse_wrong_options"]

MODEL_FORMAT = "dperm vertical model 1"
#: options of every training run; all others are fields of the task
_RUN_OPTIONS = {
    *("loss", "loss_options", "penalty", "penalty_options", "strength", "epsilon", "delta", "neighbours", "view"),
    *("intercept", "insecure_seed", "target"),
}
#: facts used before any party has declared its own; so wide that no option is refused for the number of columns
_WIDE_TABLE = asdict(Facts(n=1000, n_features=1 << 20, d=1 << 20, value_bound=1.0, row_bound=1.0))
#: fields of a task that follow from the run and are not options
_SET_BY_RUN = {"objective", "parties", "budget", "neighbours", "view", "target_low", "target_high"}


def build_task(spec: RunSpec) -> VerticalTask:
    """Build the task that a run describes; every participant builds the same one.

    Raises
    ------
    InvalidInput
        The method or an option is unknown.
    """
    if spec.method not in TASKS:
        raise InvalidInput(f"there is no method {spec.method!r}: choose one of {', '.join(sorted(TASKS))}.")
    cls, options = TASKS[spec.method], dict(spec.options)
    allowed = {f.name for f in fields(cls) if f.init} - _SET_BY_RUN
    unknown = sorted(set(options) - _RUN_OPTIONS - allowed)
    if unknown:
        known = ", ".join(sorted(_RUN_OPTIONS | allowed))
        raise InvalidInput(f"{spec.method} has no option {unknown[0]!r}: its options are {known}.")
    if not isinstance(options.get("epsilon"), int | float):
        raise InvalidInput("a training run needs `epsilon` in [run.options].")
    try:
        tables = {name: {k: v for k, v in facts.items() if k != ALIGNMENT} for name, facts in spec.facts.items()}
        parties = {name: Facts(**facts) for name, facts in tables.items()}  # type: ignore[arg-type]
    except TypeError:
        raise InvalidInput("the facts that a party declared do not describe a table.") from None
    n = next(iter(parties.values())).n
    budget = Budget(float(options["epsilon"]), float(options.get("delta", default_delta(n))))
    target = dict(options.get("target", {}))
    low, high = (0.0, 1.0) if target.get("kind", "classes") == "classes" else (-1.0, 1.0)
    extra = {name: value for name, value in options.items() if name in allowed}
    return cls(
        _objective(options),
        parties,
        budget,
        neighbours=Neighbours.parse(options.get("neighbours", "replace-one")),
        view=options.get("view", "model"),
        target_low=low,
        target_high=high,
        **extra,
    )


def _objective(options: Mapping[str, Any]) -> Objective:
    loss = _named(LOSSES, "loss", options.get("loss", "logistic"), options.get("loss_options", {}))
    penalty, strength = options.get("penalty", "l2"), options.get("strength", 1e-3)
    given = {} if penalty == "none" else {"strength": strength}
    return Objective(loss, _named(PENALTIES, "penalty", penalty, {**given, **options.get("penalty_options", {})}))


def _named(registry: Mapping[str, Any], what: str, name: Any, options: Mapping[str, Any]) -> Any:
    if name not in registry:
        raise InvalidInput(f"there is no {what} {name!r}: choose one of {', '.join(sorted(registry))}.")
    try:
        return registry[name](**options)
    except TypeError:
        raise InvalidInput(f"the options of {what} {name!r} are not accepted: check their names.") from None


def holds_intercept(spec: RunSpec, party: str) -> bool:
    """Whether a party's design has the constant column: the first party's, unless the options name another or none."""
    holder = spec.options.get("intercept", spec.parties[0])
    if holder is not False and holder not in spec.parties:
        raise InvalidInput("`intercept` must name a party or be false.")
    return bool(holder == party)


def refuse_wrong_options(spec: RunSpec) -> None:
    """Refuse an unknown method, an unknown option, or a value that is wrong for every table.

    The coordinator calls this before it listens; it needs no facts of the parties.

    Raises
    ------
    InvalidInput
        With a sentence that names the option.
    """
    try:
        build_task(spec.with_facts(dict.fromkeys(spec.parties, _WIDE_TABLE)))
        holds_intercept(spec, spec.parties[0])
    except DpermError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(
            f"a value under [run.options] of run {spec.run!r} has the wrong type: a text instead of a number, or the "
            "reverse."
        ) from None


def _unbounded(spec: RunSpec, task: VerticalTask) -> str | None:
    if spec.options.get("insecure_seed") is not None:
        return "insecure_seed makes the noise reproducible"
    return task.no_guarantee


class _TrainingBase:
    """What the handlers of a party and of the label holder share: the costs of a run and the table's fingerprint."""

    def __init__(self, ledger: Ledger, values: FloatArray, alignment: str, *units: FloatArray) -> None:
        self.ledger = ledger
        self._values, self._alignment, self._units = values, alignment, units

    def prepare(self, spec: RunSpec) -> PreparedRun:
        task = build_task(spec)
        fingerprint = self.ledger.fingerprint(self._values.reshape(len(self._values), -1))
        rows = self.ledger.ordered_digest([[self._alignment], self._values, *self._units])
        return PreparedRun(task.calibrated, self.ledger, task.neighbours, fingerprint, _unbounded(spec, task), rows)


class TrainingHandler(_TrainingBase):
    """A party's side: its columns, its ledger, and finally the weights of its columns."""

    def __init__(self, name: str, table: PartyTable, ledger: Ledger, models: Path) -> None:
        super().__init__(ledger, table.X, table.alignment, table.scaling.centre, table.scaling.scale)
        self._name, self._table, self._models = name, table, models

    def join(self, spec: RunSpec) -> Mapping[str, Fact]:
        facts = asdict(Facts.of_design(self._table.design(holds_intercept(spec, self._name)).shape))
        return facts | {ALIGNMENT: self._table.alignment}

    def prepare(self, spec: RunSpec) -> PreparedRun:
        refuse_undeclared_rows(spec, self._name, len(self._table.X), self._table.alignment)
        return super().prepare(spec)

    def program(self, spec: RunSpec, scope: InnerScope | None) -> PartyProgram:
        assert scope is not None
        # checked again: an alignment that ended in the meantime may have replaced the table
        refuse_undeclared_rows(spec, self._name, len(self._table.X), self._table.alignment)
        design = self._table.design(holds_intercept(spec, self._name))
        task = build_task(spec)
        return task.party(self._name, design, scope, task.source(self._name, spec.options.get("insecure_seed")))

    def finish(self, spec: RunSpec, program: PartyProgram, message: Message) -> None:
        """Store this party's part of the model: the weights of its own columns, in their own units.

        The party computes them from its own answers; a coordinator that sends other weights is refused.
        """
        weights = cast(TrainedParty, program).own_weights()
        if not np.array_equal(weights, message.arrays.get("weights", weights)):
            raise ProtocolError(
                f"the coordinator of run {spec.run!r} sent weights that do not follow from this party's answers: no "
                "part of the model was stored."
            )
        design = self._table.design(holds_intercept(spec, self._name))
        coefficients, offset = self._table.scaling.coefficients_in_user_units(weights, design.intercept_height)
        model = {
            "format": MODEL_FORMAT,
            "run": spec.run,
            "party": self._name,
            "columns": list(self._table.names),
            "coefficients": coefficients.tolist(),
            "offset": float(offset),
            "weights": weights.tolist(),
        }
        self._models.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self._models / f"{spec.run}.json", json.dumps(model, indent=1) + "\n", private=True)


class LabelHandler(_TrainingBase):
    """The coordinator's side: the label holder's target and ledger, and the model."""

    def __init__(self, name: str, table: LabelTable, ledger: Ledger, out: Path | None) -> None:
        super().__init__(ledger, table.target, table.alignment)
        self._name, self._table, self._out = name, table, out

    def check(self, spec: RunSpec) -> None:
        refuse_different_rows(spec, self._table.alignment)
        n = next(iter(spec.facts.values()))["n"]
        if n != len(self._table.target):
            raise InvalidInput(
                f"the label holder has {len(self._table.target)} rows and the parties have {n}: "
                "align them with `dperm vertical align`."
            )
        build_task(spec)

    def program(self, spec: RunSpec, scope: InnerScope | None) -> CoordinatorProgram:
        assert scope is not None
        task = build_task(spec)
        source = task.source(self._name, spec.options.get("insecure_seed"))
        return task.coordinator(self._table.target, scope, source)

    def finish_messages(self, spec: RunSpec, program: CoordinatorProgram) -> Mapping[str, Message]:
        weights = getattr(program.result(), "weights", {})
        return {
            party: Message("finish", {"weights": np.asarray(weights[party], np.float64)} if party in weights else {})
            for party in spec.parties
        }

    def finish(self, spec: RunSpec, program: CoordinatorProgram) -> Any:
        result = program.result()
        report = replace(result.report, ledger=self.ledger.for_report())
        model = {
            "format": MODEL_FORMAT,
            "run": spec.run,
            "method": spec.method,
            "loss": spec.options.get("loss", "logistic"),
            "target": dict(self._table.public),
            "parties": list(spec.parties),
            "weights": {party: np.asarray(weights).tolist() for party, weights in result.weights.items()},
            "intercepts": {
                party: float(weights[-1]) * float(spec.facts[party]["intercept_height"] or 0.0)
                for party, weights in result.weights.items()
                if len(weights) > int(spec.facts[party]["n_features"] or 0)
            },
            "report": json.loads(report.to_json()),
        }
        if self._out is not None:
            write_atomically(self._out, json.dumps(model, indent=1) + "\n")
        return {"model": model, "report": report, "digest": _digest(model["weights"])}


def _digest(weights: Any) -> str:
    return hashlib.sha256(json.dumps(weights, sort_keys=True).encode()).hexdigest()
