"""A party's policy: which runs it agrees to, within the limits of its configuration.

:class:`PartyPolicy` is the handler that a party's session calls. It refuses what the configuration does not allow and
passes everything else to the handler of the method.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property

from dperm.errors import BudgetRefused, DpermWarning, InvalidInput, PeerRefused
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import InnerScope
from dperm.solvers.vertical.protocol import Fact, Message, PartyProgram
from dperm.validation import is_number
from dperm.vertical.identity.keys import Identity
from dperm.vertical.methods.alignment import ALIGN
from dperm.vertical.methods.registry import HandlerInputs, party_handler, trains
from dperm.vertical.participant.config import Config
from dperm.vertical.participant.ledger import open_own_ledger
from dperm.vertical.participant.tables import PartyTable, UnusableOrder, order_path
from dperm.vertical.session.spec import PartyHandler, PreparedRun, RunSpec

__all__ = ["PartyPolicy"]


class PartyPolicy:
    """Decides which runs a party takes part in; opens its tables and its ledger.

    Parameters
    ----------
    config : Config
        The party's configuration, with its limits under ``[allow]``.
    identity : Identity
        The party's keys and trusted certificates.
    """

    def __init__(self, config: Config, identity: Identity) -> None:
        self._config, self._identity = config, identity
        self._handlers: dict[tuple[str, str], PartyHandler] = {}

    @cached_property
    def ledger(self) -> Ledger | None:
        """The party's own ledger, if it has one."""
        return None if self._config.ledger is None else open_own_ledger(self._config)

    def open(self) -> None:
        """Open ledger and table, so that problems with them are reported before the party connects."""
        _ = self.ledger
        if not any(trains(method) for method in self._config.allow.methods):
            return
        source = self._config.data
        if source is not None:
            try:
                _ = self.training_table
            except UnusableOrder as error:
                if ALIGN not in self._config.allow.methods:
                    raise
                # alignment comes before training and fixes this; a party that never aligned expects it
                if order_path(self._config, source).exists():
                    warnings.warn(
                        f"training is refused until the table is aligned: {error}", DpermWarning, stacklevel=2
                    )
        self._require_ledger()
        self._require_cap()

    def _require_ledger(self) -> Ledger:
        return open_own_ledger(self._config) if self.ledger is None else self.ledger

    @cached_property
    def training_table(self) -> PartyTable:
        """The party's table of ``[data]``, in the common order."""
        if self._config.data is None:
            raise InvalidInput(f"{self._config.path.name} names no table: add a section [data].")
        return PartyTable.read(self._config, self._config.data)

    def _handler(self, spec: RunSpec) -> PartyHandler:
        key = (spec.run, spec.method)
        if key not in self._handlers:
            data = HandlerInputs(self._config, self._identity, self._require_ledger, lambda: self.training_table)
            self._handlers[key] = party_handler(data, spec)
        return self._handlers[key]

    def join(self, spec: RunSpec) -> Mapping[str, Fact]:
        self._agree(spec)
        return self._handler(spec).join(spec)

    def _agree(self, spec: RunSpec) -> None:
        """Refuse a run that the configuration does not allow; :meth:`prepare` compares its actual cost."""
        allow, me, options = self._config.allow, self._config.name, spec.options
        if spec.method not in allow.methods:
            raise PeerRefused(f"{me} does not allow method {spec.method!r}.")
        self._agree_with(spec)
        if allow.secure_sum and not spec.secure_sum and spec.method != ALIGN:
            raise PeerRefused(f"{me} takes part only in runs with a secure sum.")
        if not trains(spec.method):
            return
        epsilon, delta = options.get("epsilon"), options.get("delta", allow.delta)
        if not is_number(epsilon) or not 0.0 < epsilon <= allow.epsilon:
            raise BudgetRefused(f"{me} allows at most epsilon={allow.epsilon:g} per run, not {epsilon!r}.")
        if not is_number(delta) or not 0.0 < delta <= allow.delta:
            raise BudgetRefused(f"{me} allows at most delta={allow.delta:g} per run, not {delta!r}.")
        if options.get("neighbours", "replace-one") not in allow.neighbours:
            raise PeerRefused(f"{me} does not allow neighbours {options.get('neighbours')!r}.")
        if options.get("view", "model") not in allow.views:
            raise PeerRefused(f"{me} does not allow the view {options.get('view', 'model')!r}.")
        if options.get("insecure_seed") is not None and not allow.insecure:
            raise PeerRefused(f"{me} does not allow reproducible noise.")
        self._require_cap()

    def _agree_with(self, spec: RunSpec) -> None:
        """Refuse participants that the configuration does not list: one could act for the coordinator."""
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
                raise PeerRefused(f"{me} accepts only participants with pinned keys, and has no pin for {other!r}.")

    def _require_cap(self) -> None:
        """Refuse to train without a cap: a limit per run does not limit the number of runs."""
        if not self._config.allow.insecure and (self.ledger is None or self.ledger.cap is None):
            raise PeerRefused(
                f"{self._config.name} trains only with a cap: set `epsilon` and `delta` under [ledger] in "
                f"{self._config.path.name}."
            )

    def prepare(self, spec: RunSpec) -> PreparedRun:
        prepared, allow = self._handler(spec).prepare(spec), self._config.allow
        if prepared.calibrated is not None:  # the actual cost, with the defaults of the method filled in
            spent = prepared.calibrated.budget
            if spent.epsilon > allow.epsilon or spent.delta > allow.delta:
                raise BudgetRefused(
                    f"{self._config.name} allows at most epsilon={allow.epsilon:g} and delta={allow.delta:g} per run, "
                    f"not epsilon={spent.epsilon:g} and delta={spent.delta:g}: give the run a smaller `delta`."
                )
        return prepared

    def program(self, spec: RunSpec, scope: InnerScope | None) -> PartyProgram:
        return self._handler(spec).program(spec, scope)

    def finish(self, spec: RunSpec, program: PartyProgram, message: Message) -> None:
        self._handler(spec).finish(spec, program, message)
        if spec.method == ALIGN:
            self.__dict__.pop("training_table", None)  # so that it is read again in its new order
            self._handlers.clear()
