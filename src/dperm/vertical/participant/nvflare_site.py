"""The coordinator and the parties as NVIDIA FLARE classes, for consortia that already run FLARE.

The protocol is the same as over gRPC. The submitted job names two classes of the installed dperm and ships no code.
Each site reads its own configuration, ``dperm.toml`` in its ``local`` folder (or ``SITE.toml`` in the folder that
``DPERM_NVFLARE`` names); a job cannot choose another.

FLARE refuses classes that a site has not listed: every site's operator adds its one class of :data:`ALLOWED_CLASSES` to
``class_allow_list`` in the site's own ``resources.json``, and no more. A FLARE server has wide control over its
clients. Use FLARE only if all parties trust the operator of the FLARE server, and disable custom code
(bring-your-own-code) in every site's authorization policy.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from dperm.errors import DpermError, InvalidInput, MissingDependency
from dperm.vertical.identity.keys import Identity
from dperm.vertical.methods.registry import coordinator_handler, spec_from_config
from dperm.vertical.participant.config import Config, read_config
from dperm.vertical.participant.policy import PartyPolicy
from dperm.vertical.session.coordinator import CoordinatorSession
from dperm.vertical.session.party import PartySession
from dperm.vertical.transport.activity_log import ActivityLog
from dperm.vertical.transport.nvflare_transport import ENVELOPE, TOPIC, NvflareTransport

try:  # the library has no types
    from nvflare.apis.event_type import EventType  # type: ignore[import-untyped]
    from nvflare.apis.executor import Executor  # type: ignore[import-untyped]
    from nvflare.apis.fl_constant import ReturnCode  # type: ignore[import-untyped]
    from nvflare.apis.impl.controller import Controller  # type: ignore[import-untyped]
    from nvflare.apis.shareable import make_reply  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover
    raise MissingDependency("this transport needs NVIDIA FLARE: pip install 'dperm[nvflare]'.") from None

__all__ = ["ALLOWED_CLASSES", "DpermController", "DpermExecutor", "write_job"]

#: for ``class_allow_list`` in each site's own ``resources.json``: the first class on the server, the second at a party
ALLOWED_CLASSES = (f"{__name__}.DpermController", f"{__name__}.DpermExecutor")


def _site_config(fl_ctx: Any) -> Config:
    """Read this site's own configuration; the job cannot choose its location."""
    folder = os.environ.get("DPERM_NVFLARE")
    if folder is not None:
        return read_config(Path(folder) / f"{fl_ctx.get_identity_name()}.toml")
    return read_config(Path(fl_ctx.get_engine().get_workspace().get_site_config_dir()) / "dperm.toml")


class DpermController(Controller):  # type: ignore[misc]  # the base class has no types
    """The coordinator as a FLARE workflow."""

    def start_controller(self, fl_ctx: Any) -> None:
        """Do nothing before the flow."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        try:
            config = _site_config(fl_ctx)
            identity = Identity.load(config.keys, config.name, tuple(config.pins.items()), config.revoked)
            spec, log = spec_from_config(config), ActivityLog(config.audit or config.state / "audit.jsonl")
            handler = coordinator_handler(config, identity)
            session = CoordinatorSession(spec, config.state / "runs", handler, config.patience, config.limit, log.write)
            transport = NvflareTransport(fl_ctx.get_engine(), fl_ctx, spec.parties, abort_signal)
            result = session.run(transport)
            if config.run is not None and config.run.out is not None and "history" in result:
                config.run.out.write_text(json.dumps(result))
        except DpermError as error:
            self.system_panic(str(error), fl_ctx)

    def stop_controller(self, fl_ctx: Any) -> None:
        """Do nothing: the session has closed everything."""

    def process_result_of_unknown_task(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: no tasks are assigned."""


class DpermExecutor(Executor):  # type: ignore[misc]  # the base class has no types
    """A party as a FLARE executor."""

    def __init__(self) -> None:
        super().__init__()
        self._session: PartySession | None = None

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type == EventType.START_RUN:
            try:
                config = _site_config(fl_ctx)
                if config.name != fl_ctx.get_identity_name():
                    raise InvalidInput(
                        f"the configuration belongs to {config.name}, not to this FLARE site: correct `name`."
                    )
                identity = Identity.load(config.keys, config.name, tuple(config.pins.items()), config.revoked)
                policy = PartyPolicy(config, identity)
                policy.open()
            except DpermError as error:
                self.system_panic(str(error), fl_ctx)
                return
            log = ActivityLog(config.audit or config.state / "audit.jsonl")
            self._session = PartySession(
                identity,
                config.state / "runs",
                policy,
                config.limit,
                lambda run, step, what: log.write("answer", {"run": run, "step": step, "what": what}),
            )
            fl_ctx.get_engine().register_aux_message_handler(topic=TOPIC, message_handle_func=self._answer)
        elif event_type == EventType.END_RUN and self._session is not None:
            self._session.close()

    def _answer(self, topic: str, request: Any, fl_ctx: Any) -> Any:
        if self._session is None or not isinstance(request.get(ENVELOPE), bytes):
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        try:
            answer = self._session.handle(request[ENVELOPE])
        except DpermError:
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        reply = make_reply(ReturnCode.OK)
        reply[ENVELOPE] = answer
        return reply

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        return make_reply(ReturnCode.TASK_UNKNOWN)


def write_job(folder: Path, name: str = "dperm-vertical") -> Path:
    """Write the FLARE job: the names of two installed classes, no code and no settings."""
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
