"""A party's session: which request is answered, which is answered again from disk, and which is refused.

A run is a sequence of steps: 0 join (public facts), 1 check (would the ledger admit the whole plan?), 2 start (it is
reserved), 3 and on the method's rounds, and a last one, finish. A party answers step s only after step s - 1, in the
state it had then, and stores state and reply together before the reply leaves. A repeated request is answered from the
stored reply: a second noisy answer would spend twice. The number of the newest record is also kept beside the ledger,
so that a folder restored from an older copy is refused; and masks of a secure sum depend on a nonce that is new
whenever a run is taken up from the disk.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dperm.errors import DpermError, ProtocolError, StateLost
from dperm.privacy.ledger.scope import InnerScope
from dperm.privacy.randomness import RandomSource
from dperm.solvers.vertical.protocol import Message, PartyProgram
from dperm.vertical.identity.keys import Identity
from dperm.vertical.session import reservations as budget
from dperm.vertical.session.row_checks import refuse_changed_rows
from dperm.vertical.session.run_folder import Record, RunFolder
from dperm.vertical.session.spec import PartyHandler, PreparedRun, RunSpec
from dperm.vertical.transport.envelope import (
    FIRST,
    NONCE_BYTES,
    RENEWAL,
    REPLY,
    REQUEST,
    Envelope,
    next_digest,
    refusal,
)
from dperm.vertical.transport.wire import DEFAULT_LIMIT, checksum, decode, encode
from dperm.vertical.views.secure_sum import Masker, MaskKey, key_arrays, keys_of

__all__ = ["CHECK", "JOIN", "START", "PartySession"]

JOIN, CHECK, START = range(3)
#: what went wrong, for the party's own log: (run, step, sentence)
Log = Callable[[str, int, str], None]


class PartySession:
    """Answers the requests of any number of runs, one at a time in each.

    Parameters
    ----------
    identity : Identity
        Who answers.
    root : path
        Folder in which every run has its own.
    handler : PartyHandler
        The party's data, policy and ledger.
    limit : int
        Most bytes of a request.
    log : callable, optional
        Is told (run, step, what happened).
    """

    def __init__(
        self,
        identity: Identity,
        root: str | os.PathLike[str],
        handler: PartyHandler,
        limit: int = DEFAULT_LIMIT,
        log: Log | None = None,
    ) -> None:
        self.name = identity.name
        self._identity = identity
        self._root = Path(root)
        self._handler = handler
        self._limit = limit
        self._log = log or (lambda run, step, what: None)
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()
        #: errors by run, for whoever decides how the process ends
        self.refused: dict[str, DpermError] = {}
        self.finished: set[str] = set()

    def handle(self, data: bytes | memoryview) -> bytes:
        """Answer the bytes of a request with those of a reply or a refusal."""
        return self.answer(Envelope.decode(data, self._limit)).encode()

    def answer(self, asked: Envelope) -> Envelope:
        """Answer one request with a reply or a refusal."""
        try:
            if asked.kind != REQUEST or asked.party != self.name:
                raise ProtocolError(f"a message for {asked.party} reached {self.name}; it was not answered.")
            with self._lock:
                if asked.run not in self._runs:
                    self._runs[asked.run] = _Run(self._identity, self._root, self._handler, asked.run)
                run = self._runs[asked.run]
            answer = run.answer(asked, self._limit)
        except DpermError as error:
            self.refused[asked.run] = error
            self._log(asked.run, asked.step, f"refused: {error}")
            return refusal(asked, error)
        except Exception as error:
            # the sentence may speak of data, so it stays in this party's log
            self.refused[asked.run] = DpermError(f"an unexpected {type(error).__name__} at step {asked.step}: {error}")
            self._log(asked.run, asked.step, f"failed: {type(error).__name__}: {error}")
            return refusal(asked, self.refused[asked.run])
        self.refused.pop(asked.run, None)
        if run.finished:
            self.finished.add(asked.run)
        self._log(asked.run, asked.step, "answered")
        return answer

    def close(self) -> None:
        """Let go of all folders and reservations."""
        for run in self._runs.values():
            run.close()


class _Run:
    """One run of one party."""

    def __init__(self, identity: Identity, root: Path, handler: PartyHandler, name: str) -> None:
        self.folder = RunFolder(root, name, budget.marks_of(getattr(handler, "ledger", None)))
        self._identity, self._handler, self._name = identity, handler, name
        #: new whenever the run is taken up from the disk: within one life a step has one reply, so one mask, one value
        self._nonce = RandomSource().words(NONCE_BYTES // 8).tobytes()
        self._lock = threading.Lock()
        self._loaded = False
        self._step = -1
        self._attempt = 0
        self._before = self._after = FIRST
        self._request = FIRST
        self._reply = Message("nothing")
        self._encoded = encode(self._reply)
        self._spec: RunSpec | None = None
        self._rows: str | None = None
        self._ticket = ""
        self._program: PartyProgram | None = None
        self._scope: InnerScope | None = None
        self._key: MaskKey | None = None
        self._peers: dict[str, bytes] = {}
        self._masker: Masker | None = None
        self.finished = False

    # ------------------------------------------------------------------------------------------ what is answered
    def answer(self, asked: Envelope, limit: int) -> Envelope:
        with self._lock:
            self._load(asked)
            request = asked.content
            if asked.step == self._step:
                return self._again(asked, request)
            if asked.step != self._step + 1:
                when = "was answered long ago" if asked.step < self._step else f"is not next after step {self._step}"
                raise ProtocolError(f"step {asked.step} of run {self._name!r} {when}: the request was not answered.")
            if asked.state != self._after:
                raise ProtocolError(
                    f"the request for step {asked.step} of run {self._name!r} belongs to another state than this "
                    "party's: a folder was restored from a copy, or the run was started twice; it was not answered."
                )
            if self.finished:
                raise ProtocolError(f"run {self._name!r} is finished: nothing more is answered.")
            if not self._knows_nonce(asked):
                return asked.answer(RENEWAL, b"", nonce=self._nonce)
            message = asked.message(limit)
            reply = self._next(message, asked.step)
            after = next_digest(self._after, asked.step, request, reply)
            self._before, self._after, self._request = self._after, after, request
            self._step, self._attempt, self._reply = asked.step, asked.attempt, reply
            self._encoded = encode(reply)
            try:
                with _meanwhile(self._save):
                    answer = self._sent(asked)  # masked while the disk is busy; it leaves when both are done
            except BaseException:
                self._forget()  # the disk has the state before; what was drawn and not stored never leaves
                raise
            return answer

    def _again(self, asked: Envelope, request: bytes) -> Envelope:
        """Answer from the stored reply."""
        if request != self._request or asked.state != self._before:
            raise ProtocolError(
                f"step {asked.step} of run {self._name!r} was asked a second time with another content: "
                "it was not answered."
            )
        if asked.attempt < self._attempt:
            raise ProtocolError(f"an older request for step {asked.step} of run {self._name!r} was replayed.")
        if not self._knows_nonce(asked):
            return asked.answer(RENEWAL, b"", nonce=self._nonce)
        self._attempt = asked.attempt
        return self._sent(asked)

    def _nonces(self, asked: Envelope) -> dict[str, bytes]:
        """Nonces of all parties as a request has them."""
        assert self._spec is not None
        names, given = self._spec.parties, asked.nonces
        if len(given) != NONCE_BYTES * len(names):
            raise ProtocolError(f"a request of run {self._name!r} came without the nonces of a secure sum.")
        return {name: given[NONCE_BYTES * i : NONCE_BYTES * (i + 1)] for i, name in enumerate(names)}

    def _knows_nonce(self, asked: Envelope) -> bool:
        """Whether a request whose answer may be masked has this party's own newest nonce."""
        if self._masker is None or asked.step <= START or self.finished:
            return True
        return self._nonces(asked)[self._identity.name] == self._nonce

    def _sent(self, asked: Envelope) -> Envelope:
        payload, masks = self._encoded, self._masker is not None and not self.finished
        if masks and self._reply.summed:
            assert self._masker is not None
            payload = encode(self._masker.mask(self._reply, asked.step, asked.attempt, self._nonces(asked)))
        return asked.answer(REPLY, payload, checksum(payload), self._nonce if masks else b"")

    def _next(self, message: Message, step: int) -> Message:
        if step == JOIN and message.kind == "join":
            return self._join(message)
        if step == CHECK and message.kind == "check":
            return self._check(message)
        if step == START and message.kind == "start":
            return self._start()
        if step <= START or self._program is None or message.kind in ("join", "check", "start"):
            raise ProtocolError(f"step {step} of run {self._name!r} cannot be {message.kind!r}.")
        over = step - START > self._program.n_rounds
        if over != (message.kind == "finish"):
            when = "after the last round" if over else "before the last round"
            raise ProtocolError(f"step {step} of run {self._name!r} cannot be {message.kind!r}: it came {when}.")
        try:
            return self._finish(message) if over else self._program.answer(message)
        except BaseException:
            self._forget()  # a half-made step is dropped: the next request starts again from the disk
            raise

    def _join(self, message: Message) -> Message:
        spec = RunSpec.from_array(message.arrays["spec"]) if "spec" in message.arrays else None
        if spec is None or spec.run != self._name or self._identity.name not in spec.parties or spec.facts:
            raise ProtocolError("the description of the run is not for this party.")
        facts = dict(self._handler.join(spec))
        self._spec, self._key = spec, MaskKey()
        return Message("joined", key_arrays(self._key.signed(self._name, self._identity)), facts)

    def _check(self, message: Message) -> Message:
        """Agree to the whole run before anybody is charged for it."""
        assert self._spec is not None
        spec = RunSpec.from_array(message.arrays["spec"]) if "spec" in message.arrays else None
        if spec is None or spec.without_facts() != self._spec.without_facts():
            raise ProtocolError("the run that starts is not the run this party joined.")
        if set(spec.facts) != set(spec.parties) or dict(spec.facts[self._identity.name]) != dict(self._reply.facts):
            raise ProtocolError("the run that starts has other facts of this party than it declared.")
        keys = keys_of(message.arrays, spec.parties) if spec.secure_sum else []
        for key in keys:
            key.check(spec.run, self._identity.trust)
        self._peers = {key.party: key.public for key in keys}
        prepared = self._handler.prepare(spec)
        budget.check(prepared)
        self._spec, self._rows, self._ticket = spec, prepared.rows, budget.new_ticket()
        return Message("checked")

    def _start(self) -> Message:
        assert self._spec is not None
        self._scope = budget.reserve(self._prepared(self._spec), self._name, self._ticket)
        self._open_program(None)
        return Message("started")

    def _prepared(self, spec: RunSpec) -> PreparedRun:
        """Return what the run costs, if this party's table is still the one it agreed with."""
        prepared = self._handler.prepare(spec)
        refuse_changed_rows(self._name, self._rows, prepared.rows)
        return prepared

    def _finish(self, message: Message) -> Message:
        assert self._spec is not None
        assert self._program is not None
        self._handler.finish(self._spec, self._program, message)
        if self._scope is not None:
            self._scope.settle()
        self.finished = True
        return Message("finished")

    # ------------------------------------------------------------------------------------------ what is kept
    def _load(self, asked: Envelope) -> None:
        if self._loaded:
            return
        if not self.folder.exists and asked.step != JOIN:
            raise StateLost(
                f"this party has no record of run {self._name!r}, which is at step {asked.step}: restore its "
                "folder, or start a run under another name; nothing was answered."
            )
        record = self.folder.open().load()
        if record is None:
            ledger = getattr(self._handler, "ledger", None)
            if ledger is not None:
                budget.refuse_forgotten(ledger, self._name)
            self._loaded = True
            return
        self._restore(record)
        self._loaded = True

    def _restore(self, record: Record) -> None:
        facts, blobs = record.facts, record.blobs
        self._step, self._attempt = int(facts["step"] or 0), int(facts["attempt"] or 0)
        self._before, self._after, self._request = blobs["before"], blobs["after"], blobs["request"]
        self._encoded = blobs["reply"]
        self._reply = decode(self._encoded)
        self._spec = RunSpec.from_array(np.frombuffer(blobs["spec"], np.uint8))
        self.finished = bool(facts["finished"])
        if self.finished:
            return
        self._key = MaskKey(blobs["mask key"])
        self._peers = {name: bytes.fromhex(key) for name, key in json.loads(blobs["peers"]).items()}
        self._rows, self._ticket = blobs["rows"].decode() or None, blobs["ticket"].decode()
        if self._step < START:
            self._mask()
            return
        prepared, used = self._prepared(self._spec), json.loads(blobs["used"])
        self._scope = budget.resume(prepared, self._name, self._ticket, used)
        self._open_program(decode(blobs["state"], 1 << 33))

    def _open_program(self, state: Message | None) -> None:
        assert self._spec is not None
        self._program = self._handler.program(self._spec, self._scope)
        if state is not None:
            self._program.restore(state)
        self._mask()

    def _mask(self) -> None:
        if self._spec is not None and self._spec.secure_sum and self._peers and self._key is not None:
            self._masker = Masker(self._name, self._identity.name, self._key, self._peers)

    def _save(self) -> None:
        assert self._spec is not None
        kept = {
            "before": self._before,
            "after": self._after,
            "request": self._request,
            "reply": self._encoded,
            "spec": self._spec.to_array().tobytes(),
        }
        if not self.finished:  # afterwards no secret and no number about a person stays behind
            assert self._key is not None
            state = Message("nothing") if self._program is None else self._program.state()
            kept |= {
                "state": encode(state),
                "mask key": self._key.private,
                "peers": json.dumps({name: key.hex() for name, key in self._peers.items()}).encode(),
                "used": json.dumps({} if self._scope is None else self._scope.used).encode(),
                "rows": (self._rows or "").encode(),
                "ticket": self._ticket.encode(),
            }
        facts = {"step": self._step, "attempt": self._attempt, "finished": self.finished}
        self.folder.save(Record(facts, kept), last=self.finished)

    def close(self) -> None:
        """Let go of the folder and the reservation, which another process may then go on with."""
        if self._scope is not None:
            self._scope.let_go()
        self.folder.close()

    def _forget(self) -> None:
        """Drop everything in memory, so that the next request goes on from the disk."""
        self.close()
        fresh = _Run(self._identity, self.folder.path.parent, self._handler, self._name)
        kept = self._lock
        self.__dict__.update(fresh.__dict__)
        self._lock = kept


@contextmanager
def _meanwhile(job: Callable[[], None]) -> Iterator[None]:
    """Do a job in a thread while the body runs; leaving waits for it and raises what it raised."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            job()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="store")
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failed:
        raise failed[0]
