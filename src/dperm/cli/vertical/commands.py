"""``dperm vertical``: one model over columns that different organisations hold."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dperm.cli.vertical.keys import keys
from dperm.errors import DpermError, DpermWarning, InvalidInput, PeerRefused

__all__ = ["vertical"]

_FILE = click.Path(dir_okay=False, path_type=Path)
_CONFIG = click.argument("config", type=_FILE)
_QUIET = click.option("--quiet", is_flag=True, help="Show no live progress.")
_PAGE = click.option(
    "--page", type=int, default=None, help="Also show progress on http://127.0.0.1:PAGE/ (0: any port)."
)


@click.group()
def vertical() -> None:
    """Train one model over columns that different organisations hold."""
    # gRPC's own warnings would disturb the live display; dperm reports what matters
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    warnings.filterwarnings("always", category=DpermWarning)
    warnings.showwarning = _print_warning


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"dperm: note: {message}", err=True)


vertical.add_command(keys)


@vertical.command()
@click.argument("configs", nargs=-1, required=True, type=_FILE)
@_QUIET
@_PAGE
def coordinator(configs: Sequence[Path], quiet: bool, page: int | None) -> None:
    """Carry out or resume the runs in CONFIGS; the first file sets the address to listen on."""
    from dperm.vertical.participant.config import read_config

    _coordinate([read_config(path) for path in configs], quiet, page)


@vertical.command()
@_CONFIG
@click.option("--predict", "new_people", is_flag=True, help="Align the tables of [predict] instead of [data].")
@click.option("--run", "name", default=None, help="Name of this alignment (default: align-DATE).")
@_QUIET
@_PAGE
def align(config: Path, new_people: bool, name: str | None, quiet: bool, page: int | None) -> None:
    """Find the people that all participants have; every participant stores its own row order.

    The coordinator runs this with its configuration; every party runs `dperm vertical party` with its own.
    """
    from dperm.vertical.participant.config import read_config

    given = read_config(config)
    run = given.need("run")
    chosen = replace(
        run,
        name=name or f"align-{time.strftime('%Y%m%d-%H%M%S')}",
        method="align",
        secure_sum=False,
        options={"table": "predict"} if new_people else {},
        out=None,
    )
    data = given.predict if new_people else given.data
    _coordinate([replace(given, run=chosen, data=data)], quiet, page)


@vertical.command()
@_CONFIG
@click.option("--model", "model_path", required=True, type=_FILE, help="Model file of a training run.")
@click.option("--out", required=True, type=_FILE, help="CSV file to write.")
@click.option("--without", multiple=True, help="Leave out this party: its columns count as the middle of their ranges.")
@click.option("--run", "name", default=None, help="Name of this prediction (default: predict-DATE).")
@_QUIET
def predict(config: Path, model_path: Path, out: Path, without: Sequence[str], name: str | None, quiet: bool) -> None:
    """Predict for the people in the parties' [predict] tables."""
    from dperm.vertical.methods.prediction import read_model
    from dperm.vertical.participant.config import read_config

    given, model = read_config(config), read_model(model_path)
    parties = tuple(party for party in model["parties"] if party not in without)
    unknown = sorted(set(without) - set(model["parties"]))
    if unknown or not parties:
        raise InvalidInput(
            f"{unknown[0]} is not a party of this model: check --without."
            if unknown
            else "--without leaves out every party: keep at least one."
        )
    run = replace(
        given.need("run"),
        name=name or f"predict-{time.strftime('%Y%m%d-%H%M%S')}",
        method="predict",
        parties=parties,
        secure_sum=given.run.secure_sum and len(parties) > 1 if given.run else False,
        options={"model": model["run"]},
        out=out,
    )
    _coordinate([replace(given, run=run)], quiet, None, model)


def _coordinate(configs: Sequence[Any], quiet: bool, page: int | None, model: Mapping[str, Any] | None = None) -> None:
    from dperm.cli.vertical.progress import ProgressPage, TerminalProgress
    from dperm.vertical.identity.keys import Identity
    from dperm.vertical.methods.registry import coordinator_handler, spec_from_config
    from dperm.vertical.session.coordinator import CoordinatorSession
    from dperm.vertical.transport.activity_log import ActivityLog
    from dperm.vertical.transport.grpc_hub import GrpcHub

    first = configs[0]
    identity = Identity.load(first.keys, first.name, tuple(first.pins.items()), first.revoked)
    log = ActivityLog(first.audit or first.state / "audit.jsonl")
    sessions = []
    for config in configs:
        spec, handler = spec_from_config(config), coordinator_handler(config, identity, model)
        session = CoordinatorSession(spec, config.state / "runs", handler, config.patience, config.limit, log=log.write)
        sessions.append((config, spec, session))
    names = [spec.run for _, spec, _ in sessions]
    if len(set(names)) < len(names):
        raise InvalidInput("two of the configurations name the same run: give every run a name of its own.")
    roster = {party for _, spec, _ in sessions for party in spec.parties}
    listen = first.need("listen")
    hub = GrpcHub(
        listen,
        lambda: Identity.load(first.keys, first.name),
        roster,
        first.revoked,
        first.limit,
        log,
        notify=lambda what: click.echo(f"dperm: note: {what}", err=True),
    )
    # all runs are registered before the first one can end, so that a party with another run stays connected
    transports = [hub.transport(spec.run, spec.parties) for _, spec, _ in sessions]
    statuses = [session.status for *_, session in sessions]
    server = None if page is None else ProgressPage(lambda: statuses, hub.metrics.text, page)
    click.echo(f"listening on port {hub.port} for {', '.join(sorted(roster))}", err=True)
    if server is not None:
        click.echo(f"progress: {server.url}", err=True)
    view = None if quiet else TerminalProgress(lambda: statuses)
    try:
        if view is not None:
            view.__enter__()
        results = _run_all(
            [lambda s=s, t=t: s.run(t) for (*_, s), t in zip(sessions, transports, strict=True)]  # type: ignore[misc]
        )
    finally:
        if view is not None:
            view.__exit__(None, None, None)
        time.sleep(0.2)  # lets the last messages to the parties leave before the server stops
        hub.close()
        if server is not None:
            server.close()
        log.close()
    for (config, spec, _), result in zip(sessions, results, strict=True):
        _print_result(config, spec, result)


def _run_all(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run all jobs, each in its own thread; raise the first error after all have ended."""
    if len(jobs) == 1:
        return [jobs[0]()]
    results: list[Any] = [None] * len(jobs)
    errors: list[BaseException] = []

    def one(i: int) -> None:
        try:
            results[i] = jobs[i]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def _print_result(config: Any, spec: Any, result: Any) -> None:
    from dperm.vertical.methods.alignment import ALIGN

    if spec.method == ALIGN:
        click.echo(f"{spec.run}: {result['common']} people in common; every participant has stored its row order")
        return
    if "report" in result:
        click.echo(result["report"].summary())
    if "digest" in result:
        click.echo(f"{spec.run}: finished, digest {result['digest']}")
    if result.get("without"):
        left_out = ", ".join(result["without"])
        click.echo(f"{spec.run}: without {left_out}, whose columns count as the middle of their ranges")
    if config.run.out is not None:
        click.echo(f"{spec.run}: written to {config.run.out}")


@vertical.command()
@_CONFIG
@click.option("--stay", is_flag=True, help="Keep answering after a run has ended.")
def party(config: Path, stay: bool) -> None:
    """Take part in the coordinator's runs, with the table and within the limits of CONFIG."""
    from dperm.vertical.identity.keys import Identity
    from dperm.vertical.participant.config import read_config
    from dperm.vertical.participant.policy import PartyPolicy
    from dperm.vertical.session.party import PartySession
    from dperm.vertical.transport.activity_log import ActivityLog
    from dperm.vertical.transport.grpc_link import GrpcLink

    given = read_config(config)
    pins = tuple(given.pins.items())
    identity = Identity.load(given.keys, given.name, pins, given.revoked)
    policy = PartyPolicy(given, identity)
    policy.open()
    log = ActivityLog(given.audit or given.state / "audit.jsonl")

    active: set[str] = set()

    def on_answer(run: str, step: int, what: str) -> None:
        log.write("answer", {"run": run, "step": step, "what": what})
        if what == "answered":
            active.add(run)
        else:
            click.echo(f"{given.name}: run {run}, step {step}: {what}", err=True)

    session = PartySession(identity, given.state / "runs", policy, given.limit, on_answer)
    failed: list[DpermError] = []

    def ended(run: str, why: str) -> bool:
        active.discard(run)
        if why:
            click.echo(f"{given.name}: run {run} was stopped: {why}", err=True)
            failed.append(session.refused.get(run) or PeerRefused(f"run {run!r} was stopped: {why}"))
        else:
            click.echo(f"{given.name}: run {run} is finished", err=True)
        return not stay

    link = GrpcLink(
        given.need("coordinator"),
        lambda: Identity.load(given.keys, given.name, pins),
        session.answer,
        ended,
        lambda: bool(session.finished) and active <= session.finished and not stay,
        given.patience,
        given.limit,
        log=lambda what: click.echo(f"{given.name}: {what}", err=True),
    )
    try:
        link.run()
    finally:
        session.close()
        log.close()
    if failed:
        raise failed[-1]


@vertical.command()
@click.argument("configs", nargs=-1, required=True, type=_FILE)
@click.option("--charge", is_flag=True, help="Confirm that training is charged to every participant's own ledger.")
def simulate(configs: Sequence[Path], charge: bool) -> None:
    """Carry out a run in this process; CONFIGS are the coordinator's file and then every party's.

    It reads the real tables, so training releases a model like any other run: it needs --charge, spends from every
    participant's ledger, and stores the run in every participant's state folder. A connection test charges nothing.
    """
    from dperm.solvers.vertical import TASKS
    from dperm.vertical.methods.registry import coordinator_handler, spec_from_config
    from dperm.vertical.participant.config import read_config
    from dperm.vertical.participant.policy import PartyPolicy
    from dperm.vertical.session.simulate import simulate_in_folders, temporary_identities

    first, *others = (read_config(path) for path in configs)
    spec = spec_from_config(first)
    given = {config.name: config for config in others}
    missing = sorted(set(spec.parties) - set(given))
    if missing:
        raise InvalidInput(f"the configuration of {missing[0]} is missing: give the files of all parties.")
    charged = [*(given[name] for name in spec.parties), *([first] if spec.method in TASKS else [])]
    files = [os.path.realpath(config.ledger.file) for config in charged if config.ledger]
    if len(set(files)) < len(files):
        raise InvalidInput("two of the participants name the same ledger: each needs one of its own.")
    ledgers = [f"{c.name} ({c.ledger.file})" for c in (first, *(given[name] for name in spec.parties)) if c.ledger]
    if spec.method in TASKS:
        owners = ", ".join(ledgers)
        if not charge:
            raise InvalidInput(
                f"this run trains on the real tables and is charged to the ledgers of {owners}: confirm with "
                '--charge, or use `method = "connection-test"`, which charges nothing.'
            )
        epsilon = spec.options.get("epsilon")
        click.echo(
            f"dperm: note: epsilon {epsilon} will be charged to the ledgers of {owners} when the run starts", err=True
        )
    identities = temporary_identities([first.name, *spec.parties])
    handlers = {name: PartyPolicy(given[name], identities[name]) for name in spec.parties}
    for handler in handlers.values():
        handler.open()
    roots = {name: given[name].state / "runs" for name in spec.parties}
    result = simulate_in_folders(
        spec,
        coordinator_handler(first, identities[first.name]),
        handlers,
        identities,
        first.state / "runs",
        roots,
        log=lambda name, why: click.echo(f"{name}: {why}", err=True),
    )
    _print_result(first, spec, result)
