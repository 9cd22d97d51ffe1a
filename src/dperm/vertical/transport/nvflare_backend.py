"""NVIDIA FLARE as the transport, for consortia that run it already; the protocol is the same.

The job that is submitted names two classes of the installed dperm and nothing else: no code is shipped. Each site reads
its own configuration, ``dperm.toml`` in its ``local`` folder (or ``SITE.toml`` in the folder that ``DPERM_NVFLARE``
names), which a job cannot choose. Requests are pushed as auxiliary messages; one that is lost is sent again, which is
harmless because a party answers a repeated request from its disk.

FLARE refuses classes that a site has not listed: every site's operator adds its one class of :data:`ALLOWED_CLASSES` to
``class_allow_list`` in the site's own ``resources.json``, and nothing wider. FLARE's clients obey their server in many
things. Use it only where all parties trust the operator of the FLARE server, and switch off custom code
(bring-your-own-code) in every site's authorization policy.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dperm.errors import DpermError, InvalidInput, MissingDependency
from dperm.vertical.identity.keys import Identity
from dperm.vertical.participant.config import Config, read_config
from dperm.vertical.participant.policy import PartyPolicy, coordinator_handler, spec_of
from dperm.vertical.session.activity_log import AuditLog
from dperm.vertical.session.coordinator import CoordinatorSession
from dperm.vertical.session.party import PartySession
from dperm.vertical.transport.base import Arrived, Event
from dperm.vertical.transport.envelope import Envelope

try:
    from nvflare.apis.event_type import EventType
    from nvflare.apis.executor import Executor
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.impl.controller import Controller
    from nvflare.apis.shareable import Shareable, make_reply
except ImportError:  # pragma: no cover
    raise MissingDependency("this transport needs NVIDIA FLARE: pip install 'dperm[nvflare]'.") from None

__all__ = ["ALLOWED_CLASSES", "DpermController", "DpermExecutor", "NvflareTransport", "write_job"]

#: what sites add to ``class_allow_list`` in their own ``resources.json``: the server the first, a party the second
ALLOWED_CLASSES = (f"{__name__}.DpermController", f"{__name__}.DpermExecutor")

_TOPIC = "dperm.vertical"
_DATA = "envelope"
_RETRY_SECONDS = 1.0


def _site_config(fl_ctx: Any) -> Config:
    """Read this site's own configuration, from a place that the job cannot choose."""
    folder = os.environ.get("DPERM_NVFLARE")
    if folder is not None:
        return read_config(Path(folder) / f"{fl_ctx.get_identity_name()}.toml")
    return read_config(Path(fl_ctx.get_engine().get_workspace().get_site_config_dir()) / "dperm.toml")


class NvflareTransport:
    """Pushes requests from the server's job process; every request waits for its reply in a thread."""

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
        """Send until an answer comes: the first message to a site that is still starting can be lost."""
        while not (self._closed.is_set() or self._abort.triggered):
            request = Shareable()
            request[_DATA] = data
            replies = self._engine.send_aux_request(
                [party], _TOPIC, request, timeout=self._timeout, fl_ctx=self._fl_ctx, optional=True
            )
            reply = (replies or {}).get(party)
            if reply is not None and reply.get_return_code(ReturnCode.OK) == ReturnCode.OK and _DATA in reply:
                self._events.put(Arrived(party, Envelope.decode(bytes(reply[_DATA]))))
                return
            self._closed.wait(_RETRY_SECONDS)

    def collect(self, timeout: float) -> Event | None:
        if self._abort.triggered:
            raise DpermError("the FLARE job was aborted; submit it again to go on from the last step.")
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self, farewell: str = "") -> None:
        self._closed.set()
        self._workers.shutdown(wait=False, cancel_futures=True)


class DpermController(Controller):
    """The coordinator as a FLARE workflow."""

    def start_controller(self, fl_ctx: Any) -> None:
        """Nothing to do before the flow."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        try:
            config = _site_config(fl_ctx)
            identity = Identity.load(config.keys, config.name, tuple(config.pins.items()), config.revoked)
            spec, audit = spec_of(config), AuditLog(config.audit or config.state / "audit.jsonl")
            handler = coordinator_handler(config, identity)
            session = CoordinatorSession(
                spec, config.state / "runs", handler, config.patience, config.limit, audit.write
            )
            transport = NvflareTransport(fl_ctx.get_engine(), fl_ctx, spec.parties, abort_signal)
            result = session.run(transport)
            if config.run is not None and config.run.out is not None and "history" in result:
                config.run.out.write_text(json.dumps(result))
        except DpermError as error:
            self.system_panic(str(error), fl_ctx)

    def stop_controller(self, fl_ctx: Any) -> None:
        """Nothing is left open."""

    def process_result_of_unknown_task(self, *args: Any, **kwargs: Any) -> None:
        """No tasks are assigned, so none has a result."""


class DpermExecutor(Executor):
    """A party as a FLARE executor."""

    def __init__(self) -> None:
        super().__init__()
        self._session: PartySession | None = None

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type == EventType.START_RUN:
            try:
                config = _site_config(fl_ctx)
                if config.name != fl_ctx.get_identity_name():
                    raise InvalidInput(f"the configuration is of {config.name}, not of this FLARE site.")
                identity = Identity.load(config.keys, config.name, tuple(config.pins.items()), config.revoked)
                policy = PartyPolicy(config, identity)
                policy.open()
            except DpermError as error:
                self.system_panic(str(error), fl_ctx)
                return
            audit = AuditLog(config.audit or config.state / "audit.jsonl")
            self._session = PartySession(
                identity,
                config.state / "runs",
                policy,
                config.limit,
                lambda run, step, what: audit.write("answer", {"run": run, "step": step, "what": what}),
            )
            fl_ctx.get_engine().register_aux_message_handler(topic=_TOPIC, message_handle_func=self._answer)
        elif event_type == EventType.END_RUN and self._session is not None:
            self._session.close()

    def _answer(self, topic: str, request: Any, fl_ctx: Any) -> Any:
        if self._session is None or not isinstance(request.get(_DATA), bytes):
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        try:
            answer = self._session.handle(request[_DATA])
        except DpermError:
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        reply = make_reply(ReturnCode.OK)
        reply[_DATA] = answer
        return reply

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        return make_reply(ReturnCode.TASK_UNKNOWN)


def write_job(folder: Path, name: str = "dperm-vertical") -> Path:
    """Write the FLARE job: the names of two installed classes, without code and without settings."""
    controller, executor = ALLOWED_CLASSES
    server = {
        "format_version": 2,
        "workflows": [{"id": "dperm", "path": controller, "args": {}}],
        "components": [],
    }
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["dperm"], "executor": {"path": executor, "args": {}}}],
        "components": [],
    }
    config = folder / "app" / "config"
    config.mkdir(parents=True, exist_ok=True)
    meta = {"name": name, "resource_spec": {}, "min_clients": 1, "deploy_map": {"app": ["@ALL"]}}
    (folder / "meta.json").write_text(json.dumps(meta, indent=1))
    (config / "config_fed_server.json").write_text(json.dumps(server, indent=1))
    (config / "config_fed_client.json").write_text(json.dumps(client, indent=1))
    return folder
