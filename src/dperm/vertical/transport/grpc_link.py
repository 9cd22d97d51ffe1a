"""A party's end of the gRPC transport: it connects outwards, so it opens no port, and reconnects after a failure."""

from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dperm
from dperm.errors import DpermError, MissingDependency, PeerRefused, ProtocolError, RunError
from dperm.vertical.identity.keys import Identity
from dperm.vertical.transport.envelope import Envelope
from dperm.vertical.transport.frames import (
    BYE,
    CHUNK,
    HELLO,
    PROTOCOLS,
    Assembly,
    chunks,
    control_frame,
    read_control_frame,
)
from dperm.vertical.transport.grpc_hub import CHANNEL_OPTIONS, SERVICE
from dperm.vertical.transport.wire import DEFAULT_LIMIT

try:
    import grpc  # type: ignore[import-untyped]  # the library has no types
except ImportError:  # pragma: no cover
    raise MissingDependency("runs between organisations need grpcio: pip install 'dperm[vertical]'.") from None

__all__ = ["GrpcLink"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
#: how long a party with nothing left to answer still tries to reconnect
_LAST_SECONDS = 10.0


class GrpcLink:
    """Connects a party to its coordinator and answers requests until the last run has ended.

    Parameters
    ----------
    address : str
        Host and port of the coordinator; its certificate must name the host.
    load : callable
        Returns the party's identity; called for every connection, so a renewed certificate is used at the next one.
    answer : callable
        Answers an envelope.
    ended : callable
        Called with (run, why) when the coordinator reports the end of a run; ``why`` is empty after success. The link
        is closed if it returns True and the coordinator has no other active run of this party.
    done : callable
        Whether everything is answered. If the link breaks then, the coordinator may still ask for the last answer
        again, so the party tries to reconnect for some seconds; failing to do so is not an error.
    patience : float
        Seconds without a connection after which the link gives up.
    """

    def __init__(
        self,
        address: str,
        load: Callable[[], Identity],
        answer: Callable[[Envelope], Envelope],
        ended: Callable[[str, str], bool],
        done: Callable[[], bool] = lambda: False,
        patience: float = 600.0,
        limit: int = DEFAULT_LIMIT,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._address, self._load, self._reply, self._ended = address, load, answer, ended
        self._done, self._patience, self._limit = done, patience, limit
        self._log = log or (lambda what: None)
        self._jitter = random.Random()
        self._stop = threading.Event()

    def stop(self) -> None:
        """Close the link soon."""
        self._stop.set()

    def run(self) -> None:
        """Answer requests until the end of a run closes the link.

        Raises
        ------
        PeerRefused
            The coordinator does not accept this party.
        RunError
            The coordinator was unreachable for too long, or the server did not prove to be the coordinator.
        """
        last_contact, pause, last_logged = time.monotonic(), _FIRST_PAUSE, ""
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                if self._session():
                    return
                why = f"the coordinator at {self._address} closed the link; waiting for it"
            except grpc.RpcError as error:
                why = self._reason(error)
            except ProtocolError as error:
                why = f"not connected: {error}"
            if self._stop.is_set():  # the link was closed here: that it broke says nothing
                return
            if self._welcomed:
                last_contact, pause = time.monotonic(), (pause if time.monotonic() - begun < 1.0 else _FIRST_PAUSE)
            if self._welcomed or why != last_logged:  # repeated attempts are logged once
                self._log(why)
            last_logged = why
            if self._done() and time.monotonic() - last_contact > _LAST_SECONDS:
                return
            if time.monotonic() - last_contact > self._patience:
                raise RunError(f"the coordinator at {self._address} was unreachable for {self._patience:g} seconds.")
            self._stop.wait(pause * self._jitter.uniform(0.5, 1.5))
            pause = min(2.0 * pause, _LONGEST_PAUSE)

    def _reason(self, error: Any) -> str:
        """Return why a link broke, or raise if trying again cannot help."""
        details = error.details() or error.code().name
        if error.code() in (
            grpc.StatusCode.PERMISSION_DENIED,
            grpc.StatusCode.UNAUTHENTICATED,
            grpc.StatusCode.FAILED_PRECONDITION,
        ):
            raise PeerRefused(f"the coordinator refused the connection: {details}")
        if "CERTIFICATE_VERIFY_FAILED" in details or "Peer name" in details or "Hostname" in details:
            raise RunError(
                f"the server at {self._address} did not prove to be the coordinator: its certificate is not from this "
                "party's authority (ca.crt) or names another host."
            )
        waiting = f"waiting for the coordinator at {self._address}"
        if error.code() == grpc.StatusCode.UNAVAILABLE and self._welcomed:
            return f"the link was lost; {waiting}"
        if error.code() == grpc.StatusCode.UNAVAILABLE and "Connection refused" in details:  # nobody listens there yet
            return waiting
        return f"{waiting}; not connected: {str(details)[:200]}"

    def _session(self) -> bool:
        """Serve one connection; return True if the link should stay closed."""
        self._welcomed = False
        identity = self._load()
        key, certificate, authority = identity.pem()
        credentials = grpc.ssl_channel_credentials(authority, key, certificate)
        out: queue.Queue[tuple[int, Envelope] | bytes | None] = queue.Queue(64)
        out.put(control_frame(HELLO, versions=list(PROTOCOLS), software=dperm.__version__, party=identity.name))
        workers = ThreadPoolExecutor(4, thread_name_prefix="answer")
        with grpc.secure_channel(self._address, credentials, options=CHANNEL_OPTIONS) as channel:
            call = channel.stream_stream(f"/{SERVICE}/Join")(_frames(out))
            watcher = threading.Thread(target=self._watch, args=(call,), daemon=True)
            watcher.start()
            try:
                return self._receive(call, out, workers)
            finally:
                out.put(None)
                with contextlib.suppress(Exception):
                    call.cancel()
                # an answer in progress is completed and stored; the coordinator will request it again
                workers.shutdown(wait=True)

    def _watch(self, call: Any) -> None:
        while not self._stop.wait(0.2):
            if not call.is_active():
                return
        call.cancel()

    def _receive(self, call: Any, out: Any, workers: ThreadPoolExecutor) -> bool:
        assembly, numbers = Assembly(self._limit), iter(range(1, 1 << 32))
        for frame in call:
            if not self._welcomed:
                self._welcomed = True
                self._log("connected")
                continue
            if frame and frame[0] == BYE:
                facts = read_control_frame(frame)
                leave = self._ended(str(facts.get("run", "")), str(facts.get("why", "")))
                if leave and not facts.get("more"):
                    return True
            elif frame and frame[0] == CHUNK:
                envelope = assembly.add(frame)
                if envelope is not None:
                    workers.submit(self._answer, envelope, out, numbers)
        return False

    def _answer(self, request: Envelope, out: Any, numbers: Iterator[int]) -> None:
        try:
            reply = self._reply(request)
        except DpermError as error:
            self._log(f"a message was dropped: {error}")
            return
        out.put((next(numbers), reply))


def _frames(out: Any) -> Iterator[bytes]:
    while True:
        item = out.get()
        if item is None:
            return
        if isinstance(item, bytes):
            yield item
        else:
            yield from chunks(*item)
