"""The coordinator's session: it asks every party once per step, resumes after a crash, and never mixes attempts."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dperm.errors import DpermError, PeerRefused, ProtocolError, RunError
from dperm.privacy.ledger.scope import InnerScope
from dperm.solvers.vertical.protocol import CoordinatorProgram, Fact, Message
from dperm.vertical.session import reservations
from dperm.vertical.session.row_checks import refuse_changed_rows
from dperm.vertical.session.run_folder import Record, RunFolder
from dperm.vertical.session.spec import CHECK, JOIN, START, CoordinatorHandler, PreparedRun, RunSpec
from dperm.vertical.session.status import PartyStatus, RunStatus
from dperm.vertical.transport.base import Arrived, Connected, Lost, Transport
from dperm.vertical.transport.envelope import (
    FIRST,
    NONCE_BYTES,
    REFUSAL,
    RENEWAL,
    REQUEST,
    Envelope,
    next_digest,
    refusal_error,
)
from dperm.vertical.transport.wire import DEFAULT_LIMIT, checksum, decode, encode
from dperm.vertical.views.secure_sum import sum_replies

__all__ = ["CoordinatorSession"]


class CoordinatorSession:
    """Carries out one run, resuming from the state in its folder.

    Parameters
    ----------
    spec : RunSpec
        The run, as all participants will see it.
    root : path
        Folder that contains one folder per run.
    handler : CoordinatorHandler
        The label holder's data, and what becomes of the result.
    patience : float
        Seconds without an answer from a party after which the run stops; it can be resumed later.
    log : callable, optional
        Called with (event, facts) for the activity log.
    changed : callable, optional
        Called with the status whenever it changes, for a progress display.
    """

    def __init__(
        self,
        spec: RunSpec,
        root: str | os.PathLike[str],
        handler: CoordinatorHandler,
        patience: float = 600.0,
        limit: int = DEFAULT_LIMIT,
        log: Callable[[str, Mapping[str, Any]], None] | None = None,
        changed: Callable[[RunStatus], None] | None = None,
    ) -> None:
        self._spec = spec
        self._handler = handler
        self._patience = patience
        self._limit = limit
        self._log = log or (lambda event, facts: None)
        self._changed = changed or (lambda status: None)
        self.folder = RunFolder(root, spec.run, reservations.counter_folder(getattr(handler, "ledger", None)))
        self.status = RunStatus(spec.run, spec.method, parties={name: PartyStatus() for name in spec.parties})
        self._step, self._attempt = 0, 0
        self._states = dict.fromkeys(spec.parties, FIRST)
        self._nonces = dict.fromkeys(spec.parties, bytes(NONCE_BYTES))
        self._keys: dict[str, np.ndarray] = {}
        self._program: CoordinatorProgram | None = None
        self._scope: InnerScope | None = None
        self._rows: str | None = None
        self._reservation_id = ""
        self._finished = False

    # ------------------------------------------------------------------------------------------ the run
    def run(self, transport: Transport) -> Any:
        """Carry out the run and return its result.

        Raises
        ------
        PeerRefused, BudgetRefused
            A party refused; the message contains its sentence.
        RunError
            A party did not answer in time; the run can be resumed.
        """
        reason = "the coordinator was interrupted; it can be started again."
        try:
            self._open()
            while not self._finished:
                self._one_step(transport)
            assert self._program is not None
            result = self._handler.finish(self._spec, self._program)
            reason = ""
            self._report("finished")
            return result
        except BaseException as error:
            if isinstance(error, DpermError):
                reason = str(error)
            self._report("stopped" if isinstance(error, DpermError) else "interrupted")
            self._log("stopped", {"run": self._spec.run, "step": self._step, "why": type(error).__name__})
            raise
        finally:
            with contextlib.suppress(Exception):
                transport.close(reason)
            if self._scope is not None:
                self._scope.suspend()
            self.folder.close()

    def _one_step(self, transport: Transport) -> None:
        begun = time.monotonic()
        before = self._used
        requests = self._requests()
        if self._used != before:  # the label holder's releases are stored before they are sent, and never drawn again
            self._save()
        envelopes = self._envelopes(requests)
        replies = self._ask(transport, envelopes)
        for party, reply in replies.items():
            self._states[party] = next_digest(self._states[party], self._step, envelopes[party].content, reply)
        self._absorb(replies)
        self._log("step", {"run": self._spec.run, "step": self._step, "attempt": self._attempt})
        self._step, self._attempt = self._step + 1, 0
        self._save()
        self.status.seconds_per_round.append(time.monotonic() - begun)
        self._report("running")

    def _envelopes(self, requests: Mapping[str, Message]) -> dict[str, Envelope]:
        encoded: dict[int, tuple[bytes, bytes]] = {}
        made = {}
        for party in self._spec.parties:
            message = requests[party]
            if id(message) not in encoded:  # the same message to all parties is encoded once
                payload = encode(message)
                encoded[id(message)] = (payload, checksum(payload))
            where = (self._spec.run, party, self._step, self._attempt, self._states[party])
            made[party] = Envelope(REQUEST, *where, *encoded[id(message)], self._nonces_for_request())
        return made

    def _nonces_for_request(self) -> bytes:
        secure = self._spec.secure_sum and self._step > START
        return b"".join(self._nonces[party] for party in self._spec.parties) if secure else b""

    @property
    def _used(self) -> dict[str, int]:
        return {} if self._scope is None else self._scope.used

    def _requests(self) -> Mapping[str, Message]:
        parties = self._spec.parties
        if self._step == JOIN:
            return dict.fromkeys(parties, Message("join", {"spec": self._spec.to_array()}))
        if self._step == CHECK:
            return dict.fromkeys(parties, Message("check", {"spec": self._spec.to_array(), **self._keys}))
        if self._step == START:
            return dict.fromkeys(parties, Message("start"))
        assert self._program is not None
        if self._program.round >= self._program.n_rounds:
            return self._handler.finish_messages(self._spec, self._program)
        requests = self._program.requests()
        if set(requests) != set(parties):
            raise RunError("the method did not address a request to every party: the run cannot continue.")
        return requests

    def _absorb(self, replies: Mapping[str, Message]) -> None:
        if self._step == JOIN:
            self._joined(replies)
        elif self._step == CHECK:
            pass
        elif self._step == START:  # all parties have agreed and reserved: now the label holder does
            self._begin()
        elif self._program is not None and self._program.round >= self._program.n_rounds:
            if self._scope is not None:
                self._scope.settle()
            self._finished = True
        else:
            assert self._program is not None
            totals = sum_replies(replies.values())
            plain = {
                party: Message(
                    reply.kind,
                    {name: array for name, array in reply.arrays.items() if name not in reply.summed},
                    reply.facts,
                )
                for party, reply in replies.items()
            }
            self._program.absorb(plain, totals)

    def _joined(self, replies: Mapping[str, Message]) -> None:
        facts: dict[str, Mapping[str, Fact]] = {party: replies[party].facts for party in self._spec.parties}
        spec = self._spec.with_facts(facts)
        self._handler.check(spec)
        prepared = self._handler.prepare(spec)
        reservations.check_reservation(prepared)
        self._spec, self._rows, self._reservation_id = spec, prepared.rows, reservations.new_reservation_id()
        if spec.secure_sum:
            self._keys = {
                f"{party} {what}": replies[party].arrays[what]
                for party in spec.parties
                for what in ("mask key", "signature", "certificate")
            }

    def _prepared(self) -> PreparedRun:
        """Return what the run costs; refuse if the label holder's table changed since it agreed."""
        prepared = self._handler.prepare(self._spec)
        refuse_changed_rows(self._spec.run, self._rows, prepared.rows)
        return prepared

    def _begin(self, record: Record | None = None) -> None:
        """Make the reservation, or find that of a resumed run, and open the program."""
        prepared = self._prepared()
        if prepared.calibrated is not None:
            self.status.epsilon = prepared.calibrated.budget.epsilon
            self.status.delta = prepared.calibrated.budget.delta
        if record is None:
            self._scope = reservations.reserve(prepared, self._spec.run, self._reservation_id)
        else:
            used = json.loads(record.blobs["used"])
            self._scope = reservations.resume(prepared, self._spec.run, self._reservation_id, used)
        self._program = self._handler.program(self._spec, self._scope)
        if record is not None:
            self._program.restore(decode(record.blobs["program"], 1 << 33))
        self.status.n_rounds = self._program.n_rounds

    # ------------------------------------------------------------------------------------------ asking
    def _ask(self, transport: Transport, envelopes: dict[str, Envelope]) -> dict[str, Message]:
        """Ask all parties and wait until all have answered this attempt; ask parties that reconnect again."""
        replies: dict[str, Message] = {}
        patience = {party: time.monotonic() + self._patience for party in envelopes}
        for party in envelopes:
            self._send(transport, envelopes[party])
        while len(replies) < len(envelopes):
            event = transport.collect(0.5)
            if event is None:
                self._give_up(replies, patience)
                self._report(self.status.state)
                continue
            status = self.status.parties.get(event.party)
            if status is None:
                continue
            match event:
                case Connected():
                    status.reconnects += 1
                    self._log("connected", {"run": self._spec.run, "party": event.party})
                    if event.party not in replies:
                        self._send(transport, envelopes[event.party])
                case Lost():
                    status.connected = False
                    self._log("lost", {"run": self._spec.run, "party": event.party, "why": event.why})
                case Arrived():
                    status.bytes_received += len(event.envelope)
                    reply = self._read(event)
                    if reply is not None and event.envelope.kind == RENEWAL:
                        self._ask_again(transport, envelopes)
                        replies = {}
                    elif reply is not None and event.party not in replies:
                        replies[event.party] = reply
                        status.waiting_since = None
            self._report("running" if self._step > START else "starting")
        return {party: replies[party] for party in envelopes}

    def _ask_again(self, transport: Transport, envelopes: dict[str, Envelope]) -> None:
        """Ask all parties again, because a party was restarted and its masks have a new nonce."""
        self._attempt += 1
        self._save()
        for party, envelope in envelopes.items():
            envelopes[party] = replace(envelope, attempt=self._attempt, nonces=self._nonces_for_request())
            self._send(transport, envelopes[party])

    def _send(self, transport: Transport, envelope: Envelope) -> None:
        status = self.status.parties[envelope.party]
        if status.waiting_since is None:
            status.waiting_since = time.time()
        status.connected = transport.send(envelope.party, envelope)
        if status.connected:
            status.bytes_sent += len(envelope)

    def _read(self, arrived: Arrived) -> Message | None:
        """Return a reply or renewal to the current request; None if it belongs to an earlier one."""
        envelope = arrived.envelope
        if envelope.run != self._spec.run or envelope.party != arrived.party:
            raise ProtocolError(f"{arrived.party} sent a message from another party or run: the run was stopped.")
        if (envelope.step, envelope.attempt) != (self._step, self._attempt):
            self._log("stale", {"run": self._spec.run, "party": arrived.party, "step": envelope.step})
            return None
        if envelope.kind == REFUSAL:
            raise refusal_error(envelope)
        if envelope.kind == REQUEST or envelope.state != self._states[arrived.party]:
            raise ProtocolError(
                f"{arrived.party} answered from a state that does not match the run: the run was stopped."
            )
        if len(envelope.nonces) == NONCE_BYTES:
            self._nonces[arrived.party] = envelope.nonces
        return Message("renewal") if envelope.kind == RENEWAL else envelope.message(self._limit)

    def _give_up(self, replies: Mapping[str, Message], patience: Mapping[str, float]) -> None:
        late = sorted(party for party, until in patience.items() if party not in replies and time.monotonic() > until)
        if late:
            raise RunError(
                f"{', '.join(late)} did not answer for {self._patience:g} seconds: start the coordinator again to "
                "resume from this step, or abandon the run; the reserved budget stays reserved."
            )

    # ------------------------------------------------------------------------------------------ storing and loading
    def _open(self) -> None:
        record = self.folder.open().load()
        if record is None:
            ledger = getattr(self._handler, "ledger", None)
            if ledger is not None:
                reservations.refuse_run_without_folder(ledger, self._spec.run)
            self._save()
            return
        stored = RunSpec.from_array(np.frombuffer(record.blobs["spec"], np.uint8))
        if stored.without_facts() != self._spec.without_facts():
            raise PeerRefused(
                f"run {self._spec.run!r} was started with other options: restore them, or give the run another name."
            )
        self._spec = stored
        self._step = int(record.facts["step"] or 0)
        self._attempt = int(record.facts["attempt"] or 0)
        self._finished = bool(record.facts["finished"])
        self._states = {party: record.blobs[f"state of {party}"] for party in self._spec.parties}
        keys = decode(record.blobs["keys"])
        self._keys = dict(keys.arrays)
        self._nonces = {party: record.blobs[f"nonce of {party}"] for party in self._spec.parties}
        self._rows = record.blobs["rows"].decode() or None
        self._reservation_id = record.blobs["reservation id"].decode()
        if self._step > START:
            self._begin(record)
        elif self._step > JOIN:
            self._prepared()  # checks the table before any party is asked to start and is charged
        if not self._finished:
            # replies to requests from before the restart belong to an older attempt and are dropped
            self._attempt += 1
            self._save()
        self._log("resumed", {"run": self._spec.run, "step": self._step, "attempt": self._attempt})

    def _save(self) -> None:
        state = Message("nothing") if self._program is None else self._program.state()
        self.folder.save(
            Record(
                {"step": self._step, "attempt": self._attempt, "finished": self._finished},
                {
                    "spec": self._spec.to_array().tobytes(),
                    "keys": encode(Message("keys", self._keys)),
                    "program": encode(state),
                    "used": json.dumps(self._used).encode(),
                    "reservation id": self._reservation_id.encode(),
                    # a finished run returns its result even if the table changed since
                    "rows": b"" if self._finished else (self._rows or "").encode(),
                    **{f"state of {party}": state for party, state in self._states.items()},
                    **{f"nonce of {party}": nonce for party, nonce in self._nonces.items()},
                },
            ),
            last=self._finished,
        )

    def _report(self, state: str) -> None:
        self.status.state = state
        self.status.step, self.status.attempt = self._step, self._attempt
        self._changed(self.status)
