"""Run the collector's service in one process: limited connections, no logs about devices, an orderly shutdown."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.config import Config

from dperm.collect.service.service import Service
from dperm.errors import RunError

__all__ = ["bounded_protocol", "serve"]

#: connections at once; a device needs one for a few milliseconds
MOST_CONNECTIONS = 1000
#: a connection that sends no complete request header within this time of its start, or of the last answer, is closed
IDLE_SECONDS = 10
#: additional time for a request in progress; then it is given up, because its device does not read the answer
REQUEST_SECONDS = 60

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 54\r\n"
    b"retry-after: 2\r\naccess-control-allow-origin: *\r\nconnection: close\r\n\r\n"
    b'{"error":"too many connections: try again in a while"}'
)


def bounded_protocol(service: Service, most: int, idle: float, in_progress: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a limit on connections and on how long one may stay silent."""
    base = Config(app=service, lifespan="off")
    base.load()
    metrics = service.metrics

    class Bounded(base.http_protocol_class):  # type: ignore[name-defined, misc]
        _deadline: asyncio.TimerHandle | None = None
        _counted = _overdue = False

        def connection_made(self, transport: Any) -> None:
            if metrics.connections >= most:
                metrics.refused_connections += 1
                transport.write(_BUSY)
                transport.close()
                self._refused = True
                return
            self._refused, self._counted = False, True
            metrics.connections += 1
            super().connection_made(transport)
            self._wait(idle)

        def _wait(self, seconds: float) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._late)

        def _late(self) -> None:
            """Close a connection that has not sent a complete header; bodies have a limit of their own."""
            answering = self.cycle is not None and not self.cycle.response_complete
            if answering and not self._overdue:
                self._overdue = True
                self._wait(in_progress)
            else:
                self.transport.abort()

        def on_response_complete(self) -> None:
            self._overdue = False
            self._wait(idle)
            super().on_response_complete()

        def data_received(self, data: bytes) -> None:
            if not self._refused:
                super().data_received(data)

        def eof_received(self) -> None:
            pass

        def connection_lost(self, error: Exception | None) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
            if self._counted:
                self._counted = False
                metrics.connections -= 1
            if not self._refused:
                super().connection_lost(error)

    return Bounded


def serve(
    service: Service,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    started: Callable[[int], None] | None = None,
    most_connections: int = MOST_CONNECTIONS,
    idle_seconds: float = IDLE_SECONDS,
    request_seconds: float = REQUEST_SECONDS,
) -> None:
    """Serve until a signal to stop; then finish requests in progress and commit the waiting reports.

    Parameters
    ----------
    service : Service
        What to serve.
    host, port : str, int
        Where to listen; port 0 takes any free one.
    started : callable, optional
        Called with the port once the service listens.
    most_connections, idle_seconds, request_seconds : int, float, float
        Limits of connections.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        service.store.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise RunError(f"the collector cannot listen at {host}, port {port} ({reason}).") from None
    config = Config(
        app=service,
        http=bounded_protocol(service, most_connections, idle_seconds, request_seconds),
        lifespan="on",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=2048,
        timeout_keep_alive=int(max(1, idle_seconds)),
        timeout_graceful_shutdown=20,
    )
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises the signal again after its shutdown
            signal.signal(number, lambda *_: sys.exit(0))
    with listener:
        if started is not None:
            listener.listen(2048)
            started(listener.getsockname()[1])
        # The objects loaded by now are never freed. Garbage collection would search them again and again, and every
        # report would wait meanwhile: up to a tenth of a second. No collection runs here either: a signal to stop that
        # comes during one may be lost in some object's finalizer.
        frozen_by_the_caller = gc.get_freeze_count() > 0
        gc.freeze()
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            if not frozen_by_the_caller:  # gc.unfreeze thaws everything, also what the caller froze
                gc.unfreeze()
