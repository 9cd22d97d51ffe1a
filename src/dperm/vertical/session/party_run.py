"""One run of a party: which requests are answered, answered again from disk, or refused.

A run is a sequence of steps: 0 join (declare public facts), 1 check (would the ledger admit the whole plan?), 2 start
(reserve the plan), 3 onwards the rounds of the method, and finally finish. A party answers step s only after step
s - 1, in the state it had then, and stores state and reply together before it sends the reply. A repeated request is
answered from the stored reply: a second noisy answer would spend the budget twice. A record counter is also kept beside
the ledger, so that a folder restored from an older copy is refused. The masks of a secure sum depend on a nonce that is
drawn whenever a run is loaded from disk.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dperm.errors import ProtocolError, StateLost
from dperm.privacy.ledger.scope import InnerScope
from dperm.privacy.randomness import RandomSource
from dperm.solvers.vertical.protocol import Message, PartyProgram
from dperm.vertical.identity.keys import Identity
from dperm.vertical.session import reservations
from dperm.vertical.session.row_checks import refuse_changed_rows
from dperm.vertical.session.run_folder import Record, RunFolder
from dperm.vertical.session.spec import CHECK, JOIN, START, PartyHandler, PreparedRun, RunSpec
from dperm.vertical.transport.envelope import (
    FIRST,
    NONCE_BYTES,
    RENEWAL,
    REPLY,
    Envelope,
    next_digest,
)
from dperm.vertical.transport.wire import checksum, decode, encode
from dperm.vertical.views.secure_sum import Masker, MaskKey, mask_key_arrays, read_mask_keys

__all__ = ["PartyRun"]


class PartyRun:
    """One run of one party: answers its requests one at a time, and resumes from its folder."""

    def __init__(self, identity: Identity, root: Path, handler: PartyHandler, name: str) -> None:
        self.folder = RunFolder(root, name, reservations.counter_folder(getattr(handler, "ledger", None)))
        self._identity, self._handler, self._name = identity, handler, name
        #: drawn whenever the run is loaded from disk: until the next load a step has one reply, so one value per mask
        self._nonce = RandomSource().words(NONCE_BYTES // 8).tobytes()
        self._lock = threading.Lock()
        self._loaded = False
        self._step = -1
        self._attempt = 0
        self._before = self._after = FIRST
        self._content = FIRST
        self._reply = Message("nothing")
        self._encoded = encode(self._reply)
        self._spec: RunSpec | None = None
        self._rows: str | None = None
        self._reservation_id = ""
        self._program: PartyProgram | None = None
        self._scope: InnerScope | None = None
        self._key: MaskKey | None = None
        self._peers: dict[str, bytes] = {}
        self._masker: Masker | None = None
        self.finished = False

    # ------------------------------------------------------------------------------------------ answering
    def answer(self, request: Envelope, limit: int) -> Envelope:
        """Answer a request of at most ``limit`` bytes, or raise."""
        with self._lock:
            self._load(request)
            content = request.content
            if request.step == self._step:
                return self._repeat_reply(request, content)
            if request.step != self._step + 1:
                when = "was answered long ago" if request.step < self._step else f"is not next after step {self._step}"
                raise ProtocolError(f"step {request.step} of run {self._name!r} {when}: the request was not answered.")
            if request.state != self._after:
                raise ProtocolError(
                    f"the request for step {request.step} of run {self._name!r} does not match this party's state: "
                    "a folder was restored from a copy, or the run was started twice; it was not answered."
                )
            if self.finished:
                raise ProtocolError(f"run {self._name!r} is finished: nothing more is answered.")
            if not self._has_own_nonce(request):
                return request.answer(RENEWAL, b"", nonce=self._nonce)
            message = request.message(limit)
            reply = self._answer_step(message, request.step)
            after = next_digest(self._after, request.step, content, reply)
            self._before, self._after, self._content = self._after, after, content
            self._step, self._attempt, self._reply = request.step, request.attempt, reply
            self._encoded = encode(reply)
            try:
                with _in_background(self._save):
                    answer = self._reply_envelope(request)  # masked while the disk writes; sent when both are done
            except BaseException:
                self._reset()  # the disk has the previous state; noise that was not stored is never sent
                raise
            return answer

    def _repeat_reply(self, request: Envelope, content: bytes) -> Envelope:
        """Answer a repeated request from the stored reply."""
        if content != self._content or request.state != self._before:
            raise ProtocolError(
                f"step {request.step} of run {self._name!r} was requested a second time with different content: "
                "it was not answered."
            )
        if request.attempt < self._attempt:
            raise ProtocolError(f"an older request for step {request.step} of run {self._name!r} was replayed.")
        if not self._has_own_nonce(request):
            return request.answer(RENEWAL, b"", nonce=self._nonce)
        self._attempt = request.attempt
        return self._reply_envelope(request)

    def _nonces(self, request: Envelope) -> dict[str, bytes]:
        """Return the nonces of all parties from a request."""
        assert self._spec is not None
        names, given = self._spec.parties, request.nonces
        if len(given) != NONCE_BYTES * len(names):
            raise ProtocolError(f"a request of run {self._name!r} lacks the nonces of the secure sum.")
        return {name: given[NONCE_BYTES * i : NONCE_BYTES * (i + 1)] for i, name in enumerate(names)}

    def _has_own_nonce(self, request: Envelope) -> bool:
        """Whether a request whose answer may be masked carries this party's current nonce."""
        if self._masker is None or request.step <= START or self.finished:
            return True
        return self._nonces(request)[self._identity.name] == self._nonce

    def _reply_envelope(self, request: Envelope) -> Envelope:
        payload, masks = self._encoded, self._masker is not None and not self.finished
        if masks and self._reply.summed:
            assert self._masker is not None
            payload = encode(self._masker.mask(self._reply, request.step, request.attempt, self._nonces(request)))
        return request.answer(REPLY, payload, checksum(payload), self._nonce if masks else b"")

    def _answer_step(self, message: Message, step: int) -> Message:
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
            self._reset()  # an incomplete step is dropped: the next request loads the run from disk
            raise

    def _join(self, message: Message) -> Message:
        spec = RunSpec.from_array(message.arrays["spec"]) if "spec" in message.arrays else None
        if spec is None or spec.run != self._name or self._identity.name not in spec.parties or spec.facts:
            raise ProtocolError("the description of the run is not for this party.")
        facts = dict(self._handler.join(spec))
        self._spec, self._key = spec, MaskKey()
        return Message("joined", mask_key_arrays(self._key.signed(self._name, self._identity)), facts)

    def _check(self, message: Message) -> Message:
        """Agree to the whole run before any participant is charged for it."""
        assert self._spec is not None
        spec = RunSpec.from_array(message.arrays["spec"]) if "spec" in message.arrays else None
        if spec is None or spec.without_facts() != self._spec.without_facts():
            raise ProtocolError("the run to be checked is not the run this party joined.")
        if set(spec.facts) != set(spec.parties) or dict(spec.facts[self._identity.name]) != dict(self._reply.facts):
            raise ProtocolError("the run to be checked has other facts of this party than it declared.")
        keys = read_mask_keys(message.arrays, spec.parties) if spec.secure_sum else []
        for key in keys:
            key.check(spec.run, self._identity.trust)
        self._peers = {key.party: key.public for key in keys}
        prepared = self._handler.prepare(spec)
        reservations.check_reservation(prepared)
        self._spec, self._rows, self._reservation_id = spec, prepared.rows, reservations.new_reservation_id()
        return Message("checked")

    def _start(self) -> Message:
        assert self._spec is not None
        self._scope = reservations.reserve(self._prepared(self._spec), self._name, self._reservation_id)
        self._open_program(None)
        return Message("started")

    def _prepared(self, spec: RunSpec) -> PreparedRun:
        """Return what the run costs; refuse a table that changed since this party agreed."""
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

    # ------------------------------------------------------------------------------------------ storing and loading
    def _load(self, request: Envelope) -> None:
        if self._loaded:
            return
        if not self.folder.exists and request.step != JOIN:
            raise StateLost(
                f"this party has no record of run {self._name!r}, which is at step {request.step}: restore its "
                "folder, or start a run under another name; nothing was answered."
            )
        record = self.folder.open().load()
        if record is None:
            ledger = getattr(self._handler, "ledger", None)
            if ledger is not None:
                reservations.refuse_run_without_folder(ledger, self._name)
            self._loaded = True
            return
        self._restore(record)
        self._loaded = True

    def _restore(self, record: Record) -> None:
        facts, blobs = record.facts, record.blobs
        self._step, self._attempt = int(facts["step"] or 0), int(facts["attempt"] or 0)
        self._before, self._after, self._content = blobs["before"], blobs["after"], blobs["request"]
        self._encoded = blobs["reply"]
        self._reply = decode(self._encoded)
        self._spec = RunSpec.from_array(np.frombuffer(blobs["spec"], np.uint8))
        self.finished = bool(facts["finished"])
        if self.finished:
            return
        self._key = MaskKey(blobs["mask key"])
        self._peers = {name: bytes.fromhex(key) for name, key in json.loads(blobs["peers"]).items()}
        self._rows, self._reservation_id = blobs["rows"].decode() or None, blobs["reservation id"].decode()
        if self._step < START:
            self._open_masker()
            return
        prepared, used = self._prepared(self._spec), json.loads(blobs["used"])
        self._scope = reservations.resume(prepared, self._name, self._reservation_id, used)
        self._open_program(decode(blobs["state"], 1 << 33))

    def _open_program(self, state: Message | None) -> None:
        assert self._spec is not None
        self._program = self._handler.program(self._spec, self._scope)
        if state is not None:
            self._program.restore(state)
        self._open_masker()

    def _open_masker(self) -> None:
        if self._spec is not None and self._spec.secure_sum and self._peers and self._key is not None:
            self._masker = Masker(self._name, self._identity.name, self._key, self._peers)

    def _save(self) -> None:
        assert self._spec is not None
        kept = {
            "before": self._before,
            "after": self._after,
            "request": self._content,
            "reply": self._encoded,
            "spec": self._spec.to_array().tobytes(),
        }
        if not self.finished:  # a finished run keeps no secret and no number about a person
            assert self._key is not None
            state = Message("nothing") if self._program is None else self._program.state()
            kept |= {
                "state": encode(state),
                "mask key": self._key.private,
                "peers": json.dumps({name: key.hex() for name, key in self._peers.items()}).encode(),
                "used": json.dumps({} if self._scope is None else self._scope.used).encode(),
                "rows": (self._rows or "").encode(),
                "reservation id": self._reservation_id.encode(),
            }
        facts = {"step": self._step, "attempt": self._attempt, "finished": self.finished}
        self.folder.save(Record(facts, kept), last=self.finished)

    def close(self) -> None:
        """Release the folder and the reservation, so that another process can continue the run.

        An answer that is being computed is finished first: it changes the folder.
        """
        with self._lock:
            self._release()

    def _release(self) -> None:
        if self._scope is not None:
            self._scope.suspend()
        self.folder.close()

    def _reset(self) -> None:
        """Drop everything in memory, so that the next request loads the run from disk."""
        self._release()
        fresh = PartyRun(self._identity, self.folder.path.parent, self._handler, self._name)
        kept = self._lock
        self.__dict__.update(fresh.__dict__)
        self._lock = kept


@contextmanager
def _in_background(job: Callable[[], None]) -> Iterator[None]:
    """Run a job in a thread while the body runs; the exit waits for it and raises its error."""
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
