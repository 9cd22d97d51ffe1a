"""The coordinator's end of the gRPC transport: each party connects over mutual TLS and keeps one stream open.

A party is identified by its certificate alone. One hub serves any number of runs.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cryptography import x509

import dperm
from dperm.errors import DpermError, InvalidInput, MissingDependency, ProtocolError
from dperm.vertical.identity.keys import Identity, certificate_name
from dperm.vertical.identity.revocation import RevocationList
from dperm.vertical.transport.activity_log import ActivityLog, TrafficMetrics
from dperm.vertical.transport.base import Arrived, Connected, Event, Lost
from dperm.vertical.transport.envelope import Envelope
from dperm.vertical.transport.frames import (
    BYE,
    CHUNK,
    PROTOCOLS,
    WELCOME,
    Assembly,
    chunks,
    control_frame,
    read_control_frame,
)
from dperm.vertical.transport.wire import DEFAULT_LIMIT

try:
    import grpc  # type: ignore[import-untyped]  # the library has no types
except ImportError:  # pragma: no cover
    raise MissingDependency("runs between organisations need grpcio: pip install 'dperm[vertical]'.") from None

__all__ = ["CHANNEL_OPTIONS", "SERVICE", "GrpcHub", "HubTransport"]

SERVICE = "dperm.vertical.v1.Coordinator"
_HEALTH = "grpc.health.v1.Health"
_SERVING = b"\x08\x01"  # HealthCheckResponse{status: SERVING} of the standard health protocol
_GREETING_SECONDS = 5.0
_FRAME_LIMIT = 4 << 20

CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", _FRAME_LIMIT),
    ("grpc.max_receive_message_length", _FRAME_LIMIT),
    # keepalive notices a broken link within seconds, also while a party computes
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 4000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 4000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.max_ping_strikes", 0),
    # one stream carries messages of many megabytes
    ("grpc.http2.lookahead_bytes", 4 << 20),
    ("grpc.http2.max_frame_size", 1 << 20),
)


class _Stream:
    """One party's open stream."""

    def __init__(self, party: str, serial: int, context: Any) -> None:
        self.party, self.serial, self.context = party, serial, context
        self.out: queue.Queue[tuple[int, Envelope] | bytes | None] = queue.Queue(64)
        self.sent = 0
        self.until = time.monotonic() + _GREETING_SECONDS

    def put(self, item: tuple[int, Envelope] | bytes | None) -> bool:
        try:
            self.out.put(item, timeout=30)
        except queue.Full:
            return False
        return True


class GrpcHub:
    """A gRPC server to which parties connect.

    Parameters
    ----------
    address : str
        Host and port to listen on; port 0 selects a free port, see :attr:`port`.
    load : callable
        Returns the coordinator's identity; called for every connection, so a renewed certificate is used at once.
    roster : collection of str
        Names of the parties that may connect.
    revoked : path, optional
        The authority's revocation list. It is read again whenever it changes, and open streams of revoked parties are
        closed. It must exist at the start; if it is lost or damaged later, the list read last stays in force.
    log : ActivityLog, optional
        Where connections and refusals are logged.
    notify : callable, optional
        Receives sentences for the operator.
    """

    def __init__(
        self,
        address: str,
        load: Callable[[], Identity],
        roster: Collection[str],
        revoked: Path | None = None,
        limit: int = DEFAULT_LIMIT,
        log: ActivityLog | None = None,
        metrics: TrafficMetrics | None = None,
        notify: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._load, self._roster, self._limit = load, frozenset(roster), limit
        self._log, self.metrics = log or ActivityLog(), metrics or TrafficMetrics()
        self._notify = notify
        self._lock, self._end_lock = threading.Lock(), threading.Lock()
        self._streams: dict[str, _Stream] = {}
        #: streams that have not sent their greeting yet, at most one per party
        self._not_greeted: dict[str, _Stream] = {}
        self._transports: dict[str, HubTransport] = {}
        #: runs that have ended, for parties that were not connected at the time
        self._ended_runs: dict[str, tuple[frozenset[str], str]] = {}
        self._closed = threading.Event()
        self._revoked = (
            None if revoked is None else RevocationList(revoked, load().trust.authority, self._on_revocation_error)
        )
        # a party uses at most two threads: its stream, and a new stream that replaces it
        threads = ThreadPoolExecutor(2 * len(self._roster) + 8, thread_name_prefix="link")
        self._server = grpc.server(threads, options=CHANNEL_OPTIONS)
        join = grpc.stream_stream_rpc_method_handler(self._join)
        health = grpc.unary_unary_rpc_method_handler(lambda request, context: _SERVING)
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, {"Join": join}),
                grpc.method_handlers_generic_handler(_HEALTH, {"Check": health}),
            )
        )
        self._pem: tuple[bytes, bytes, bytes] | None = None
        credentials = grpc.dynamic_ssl_server_credentials(
            self._certificates(), self._certificates, require_client_authentication=True
        )
        try:
            self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            self.port = 0
        if self.port == 0:
            raise InvalidInput(
                f"cannot listen on {address}: the port is in use, or the address does not belong to this machine."
            )
        self._server.start()
        threading.Thread(target=self._housekeeping, daemon=True, name="revocation").start()

    def _certificates(self) -> Any:
        """Return the certificate for new connections, or None if it has not changed.

        A returned certificate replaces the server's TLS context even during handshakes, and the gRPC library
        occasionally crashes when that happens. So one is returned only when it has changed.
        """
        pem = self._load().pem()
        if pem == self._pem:
            return None
        self._pem = key, certificate, authority = pem
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=authority)

    # ------------------------------------------------------------------------------------------ parties
    def _join(self, frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        stream = self._admit(context)
        with self._lock:
            waiting = self._not_greeted.get(stream.party)
            self._not_greeted[stream.party] = stream
        if waiting is not None:  # a party has at most one stream that has not greeted
            waiting.context.cancel()
        try:
            hello = read_control_frame(next(iter(frames), b""))
            common = [version for version in PROTOCOLS if version in hello.get("versions", [])]
        except (DpermError, TypeError):
            common = []
        finally:
            with self._lock:
                if self._not_greeted.get(stream.party) is stream:
                    del self._not_greeted[stream.party]
        if not common:
            versions = ", ".join(map(str, PROTOCOLS))
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the coordinator (dperm {dperm.__version__}) speaks protocol {versions}: install the same dperm.",
            )
        with self._lock:
            before = self._streams.get(stream.party)
            self._streams[stream.party] = stream
        if before is not None:  # the newest link replaces the older one, which is often broken but not yet detected
            before.put(None)
            before.context.cancel()
        self._log.write("connected", {"party": stream.party, "serial": f"{stream.serial:x}"})
        self.metrics.add("connections", stream.party)
        threading.Thread(target=self._read, args=(stream, frames), daemon=True, name="read").start()
        yield control_frame(WELCOME, version=common[0], software=dperm.__version__)
        with self._lock:
            missed = [(run, why) for run, (parties, why) in self._ended_runs.items() if stream.party in parties]
            left = self._active_runs(stream.party)
        for i, (run, why) in enumerate(missed, 1):
            yield control_frame(BYE, run=run, why=why, more=left + len(missed) - i)
        self._announce(stream.party, Connected(stream.party))
        while True:
            item = stream.out.get()
            if item is None:
                return
            if isinstance(item, bytes):
                yield item
                continue
            yield from chunks(*item)
            self.metrics.add("bytes_sent", stream.party, len(item[1]))

    def _admit(self, context: Any) -> _Stream:
        """Read a party's name from its certificate; refuse parties that may not connect."""
        auth = context.auth_context()
        pem = (auth.get("x509_pem_cert") or [b""])[0]
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            party, serial = certificate_name(certificate), certificate.serial_number
        except ValueError:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "a certificate of this run's authority is needed.")
        why = None
        if serial in self._revoked_serials():
            why = f"the certificate of {party} was revoked: request a new one from the coordinator."
        elif party not in self._roster:
            why = f"{party} is not on the coordinator's roster: ask the coordinator to add it."
        if why is not None:
            self._log.write("refused", {"party": party, "serial": f"{serial:x}", "why": why})
            self.metrics.add("refusals", party)
            context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        return _Stream(party, serial, context)

    def _revoked_serials(self) -> frozenset[int]:
        return frozenset() if self._revoked is None else self._revoked.serials()

    def _on_revocation_error(self, sentence: str) -> None:
        self._log.write("revocation list", {"why": sentence})
        self._notify(sentence)

    def _read(self, stream: _Stream, frames: Iterator[bytes]) -> None:
        assembly, why = Assembly(self._limit), "the link broke"
        try:
            for frame in frames:
                if not frame or frame[0] != CHUNK:
                    continue
                envelope = assembly.add(frame)
                if envelope is not None:
                    self.metrics.add("bytes_received", stream.party, len(envelope))
                    self._deliver(stream, envelope)
        except ProtocolError as error:
            why = str(error)
            stream.context.cancel()
        except Exception as error:
            why = f"the link broke ({type(error).__name__})"
        finally:
            stream.put(None)
            with self._lock:
                current = self._streams.get(stream.party) is stream
                if current:
                    del self._streams[stream.party]
            if current:
                self._log.write("lost", {"party": stream.party, "why": why})
                self._announce(stream.party, Lost(stream.party, why))

    def _deliver(self, stream: _Stream, envelope: Envelope) -> None:
        with self._lock:
            transport = self._transports.get(envelope.run)
        if transport is not None and stream.party in transport.parties:
            transport.events.put(Arrived(stream.party, envelope))

    def _announce(self, party: str, event: Event) -> None:
        with self._lock:
            listening = [one for one in self._transports.values() if party in one.parties]
        for transport in listening:
            transport.events.put(event)

    def _housekeeping(self) -> None:
        while not self._closed.wait(0.5):
            bad, now = self._revoked_serials(), time.monotonic()
            with self._lock:
                cut = [stream for stream in self._streams.values() if stream.serial in bad]
                mute = [stream for stream in self._not_greeted.values() if stream.until < now]
            for stream in cut:
                self._log.write("cut", {"party": stream.party, "why": "revoked"})
                stream.context.cancel()
            for stream in mute:
                self._log.write("cut", {"party": stream.party, "why": "no greeting"})
                stream.context.cancel()

    # ------------------------------------------------------------------------------------------ runs
    def transport(self, run: str, parties: Collection[str]) -> HubTransport:
        """Return the transport of one run."""
        missing = sorted(set(parties) - self._roster)
        if missing:
            raise InvalidInput(f"{missing[0]} is a party of run {run!r} but not on the roster.")
        with self._lock:
            if run in self._transports:
                raise InvalidInput(f"run {run!r} is already in progress.")
            self._ended_runs.pop(run, None)
            transport = self._transports[run] = HubTransport(self, run, frozenset(parties))
        return transport

    def send(self, party: str, envelope: Envelope) -> bool:
        """Send an envelope on a party's stream."""
        with self._lock:
            stream = self._streams.get(party)
            if stream is None:
                return False
            stream.sent += 1
            number = stream.sent
        return stream.put((number, envelope))

    def connected(self) -> frozenset[str]:
        """Parties with an open stream."""
        with self._lock:
            return frozenset(self._streams)

    def end_run(self, run: str, reason: str) -> None:
        """Inform a run's parties that it has ended, why, and how many of their other runs are still active."""
        why = reason[:1000]
        with self._end_lock:  # keeps the messages in the order in which the remaining runs were counted
            with self._lock:
                transport = self._transports.pop(run, None)
                if transport is None:
                    return
                self._ended_runs[run] = (transport.parties, why)
                streams = [stream for stream in self._streams.values() if stream.party in transport.parties]
                left = {stream.party: self._active_runs(stream.party) for stream in streams}
            for stream in streams:
                stream.put(control_frame(BYE, run=run, why=why, more=left[stream.party]))

    def _active_runs(self, party: str) -> int:
        return sum(party in transport.parties for transport in self._transports.values())

    def close(self, grace: float = 1.0) -> None:
        """Stop listening."""
        self._closed.set()
        with self._lock:
            streams = list(self._streams.values())
        for stream in streams:
            stream.put(None)
        self._server.stop(grace).wait()


class HubTransport:
    """One run's use of a hub."""

    def __init__(self, hub: GrpcHub, run: str, parties: frozenset[str]) -> None:
        self.parties = parties
        self.events: queue.Queue[Event] = queue.Queue()
        self._hub, self._run = hub, run

    def connected(self) -> frozenset[str]:
        return self._hub.connected() & self.parties

    def send(self, party: str, envelope: Envelope) -> bool:
        return self._hub.send(party, envelope)

    def collect(self, timeout: float) -> Event | None:
        try:
            return self.events.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self, reason: str = "") -> None:
        self._hub.end_run(self._run, reason)
