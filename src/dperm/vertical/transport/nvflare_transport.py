"""NVIDIA FLARE as the transport: requests are sent as auxiliary messages of a FLARE job.

A lost request is sent again. This is harmless, because a party answers a repeated request from its disk. The FLARE
classes that run a coordinator or a party with this transport are in :mod:`dperm.vertical.participant.nvflare_site`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dperm.errors import DpermError, MissingDependency
from dperm.vertical.transport.base import Arrived, Event
from dperm.vertical.transport.envelope import Envelope

try:  # the library has no types
    from nvflare.apis.fl_constant import ReturnCode  # type: ignore[import-untyped]
    from nvflare.apis.shareable import Shareable  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover
    raise MissingDependency("this transport needs NVIDIA FLARE: pip install 'dperm[nvflare]'.") from None

__all__ = ["ENVELOPE", "TOPIC", "NvflareTransport"]

#: topic of the auxiliary messages
TOPIC = "dperm.vertical"
#: key of the envelope's bytes in a message
ENVELOPE = "envelope"
_RETRY_SECONDS = 1.0


class NvflareTransport:
    """Sends requests from the server's job process; a thread waits for the reply to each request."""

    def __init__(self, engine: Any, fl_ctx: Any, parties: Collection[str], abort: Any, timeout: float = 600.0) -> None:
        self._engine, self._fl_ctx, self._parties = engine, fl_ctx, frozenset(parties)
        self._abort, self._timeout = abort, timeout
        self._events: queue.Queue[Event] = queue.Queue()
        self._closed = threading.Event()
        self._workers = ThreadPoolExecutor(max(1, len(parties)), thread_name_prefix="nvflare")

    def connected(self) -> frozenset[str]:
        return self._parties

    def send(self, party: str, envelope: Envelope) -> bool:
        self._workers.submit(self._push, party, envelope.encode())
        return True

    def _push(self, party: str, data: bytes) -> None:
        """Send until an answer arrives: the first message to a site that is still starting can be lost."""
        while not (self._closed.is_set() or self._abort.triggered):
            request = Shareable()
            request[ENVELOPE] = data
            replies = self._engine.send_aux_request(
                [party], TOPIC, request, timeout=self._timeout, fl_ctx=self._fl_ctx, optional=True
            )
            reply = (replies or {}).get(party)
            if reply is not None and reply.get_return_code(ReturnCode.OK) == ReturnCode.OK and ENVELOPE in reply:
                self._events.put(Arrived(party, Envelope.decode(bytes(reply[ENVELOPE]))))
                return
            self._closed.wait(_RETRY_SECONDS)

    def collect(self, timeout: float) -> Event | None:
        if self._abort.triggered:
            raise DpermError("the FLARE job was aborted: submit it again to resume from the last step.")
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self, reason: str = "") -> None:
        self._closed.set()
        self._workers.shutdown(wait=False, cancel_futures=True)
