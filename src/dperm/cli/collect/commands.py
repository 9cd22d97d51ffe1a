"""``dperm collect``: collect one random bit per person from devices, and estimate a model with error bars."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dperm.cli.collect.fetch import collection_at, fetch_json, read_json
from dperm.cli.collect.init import init
from dperm.cli.collect.send import send
from dperm.cli.options import OrderedGroup
from dperm.cli.output import Output, counted, with_output
from dperm.collect.service.sources import BURST, PER_MINUTE, SourceLimit
from dperm.errors import InvalidInput, MissingDependency, RunError

if TYPE_CHECKING:
    from dperm.collect import Collection
    from dperm.collect.store.store import Store

__all__ = ["collect"]

_DATABASE = click.option(
    "--database",
    default="collect.db",
    show_default=True,
    metavar="FILE|URL",
    help="The database: a file (SQLite) or postgresql://...",
)
_FILE = click.Path(dir_okay=False, path_type=Path)
#: simulated people at a time: their reports fit into one request
_BATCH = 5000
_VERSION = click.IntRange(1, (1 << 31) - 1)
_WINDOW = click.IntRange(-(1 << 53), 1 << 53)


@click.group(cls=OrderedGroup)
def collect() -> None:
    """Collect one random bit per person from devices, and estimate a model from the counts.

    Nobody needs to be trusted, the collector included: every report is private by itself.
    """


collect.add_command(init)


@collect.command(short_help="Try a collection out with simulated people.")
@click.argument("task", type=_FILE)
@click.option(
    "--people", type=click.IntRange(1), default=100_000, show_default=True, help="Number of simulated people."
)
@click.option("--url", help="Send to the collector at this address, such as http://127.0.0.1:8000, not to --database.")
@click.option("--batch-secret", type=_FILE, help="With --url: file with the secret of `serve --batch-secret`.")
@_DATABASE
@click.option(
    "--seed", default=0, show_default=True, help="Seed of the simulated people; their random bits are not seeded."
)
@with_output
def simulate(
    task: Path, people: int, url: str | None, batch_secret: Path | None, database: str, seed: int, output: Output
) -> None:
    """Try out the collection in the file TASK with reports of simulated people.

    Use a database of its own: simulated reports cannot be removed from the counts.
    """
    import time

    import numpy as np

    from dperm.collect import Collection
    from dperm.collect import simulate as simulation
    from dperm.collect.store.store import open_store
    from dperm.privacy import RandomSource

    one, rng = Collection.read(task), np.random.default_rng(seed)
    if one.tokens:
        raise InvalidInput("a collection with one-time tokens cannot be simulated: try it out without --tokens first.")
    address = None if url is None else collection_at(url, one.name)
    if (address is None) != (batch_secret is None):
        raise InvalidInput("give --url and --batch-secret together: the collector takes batches with its secret only.")
    made = simulation.report_batches(one, people, _BATCH, rng, RandomSource())
    if address is None:
        with open_store(database, create=True) as store:
            store.register(one)
            for reports in made:
                store.add([simulation.store_entry(one, reports)], time.time())
    else:
        from dperm.collect.service.tokens import read_secret

        assert batch_secret is not None
        with closing(simulation.Sender(address, read_secret(batch_secret))) as sender:
            for reports in made:
                status, answer = sender.send(simulation.packed_body(one, reports))
                if status != 201:
                    said = answer[:200].decode(errors="replace")
                    raise RunError(f"the collector answered {status}: {said}")
    noun = "person" if people == 1 else "people"
    output.result({"people": people}, lambda to: to.text(f"{people} simulated {noun} reported to {one.name}"))


@collect.command(short_help="Run the service that accepts reports.")
@click.argument("tasks", nargs=-1, type=_FILE)
@_DATABASE
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", default=8000, show_default=True, help="Port to listen at; 0 takes any free port.")
@click.option("--token-key", type=_FILE, help="File with the token key, which `dperm collect tokens` makes.")
@click.option(
    "--counts-secret",
    type=_FILE,
    help="File with a secret that gives access to the counters, for merging; made if it is missing.",
)
@click.option(
    "--batch-secret",
    type=_FILE,
    help="File with a secret that is needed to send many reports in one request; made if it is missing.",
)
@click.option(
    "--source-rate",
    type=click.FloatRange(0),
    default=PER_MINUTE,
    show_default=True,
    help="Reports per minute from one address; 0 sets no limit, for a shuffler in front.",
)
@click.option(
    "--source-burst", type=click.IntRange(1), default=BURST, show_default=True, help="Reports at once from one address."
)
@click.option(
    "--forwarded-for",
    is_flag=True,
    help="A proxy of yours is in front and adds the sender's address to X-Forwarded-For: limit by that address.",
)
@click.option(
    "--most-connections",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Largest number of open connections; more are refused.",
)
@click.option(
    "--idle-seconds",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Seconds after which a silent connection is closed.",
)
def serve(
    tasks: Sequence[Path],
    database: str,
    host: str,
    port: int,
    token_key: Path | None,
    counts_secret: Path | None,
    batch_secret: Path | None,
    source_rate: float,
    source_burst: int,
    forwarded_for: bool,
    most_connections: int,
    idle_seconds: int,
) -> None:
    """Accept reports for the collections in the files TASKS, and for those already in the database."""
    try:
        from dperm.collect.service.server import serve as run
        from dperm.collect.service.service import Service
    except ImportError as error:
        raise MissingDependency(
            f"the collector needs {error.name}, which is not installed: pip install 'dperm[collect]'."
        ) from None
    from dperm.collect import Collection
    from dperm.collect.service.tokens import read_key, read_secret
    from dperm.collect.store.store import open_store

    read = [Collection.read(path) for path in tasks]
    key = None if token_key is None else read_key(token_key)
    secrets = [None if file is None else read_secret(file, create=True) for file in (counts_secret, batch_secret)]
    sources = SourceLimit(source_rate, source_burst, forwarded=forwarded_for)
    store = open_store(database, create=True)
    for one in read:
        store.register(one)
    if not store.collections:
        store.close()
        raise InvalidInput(
            "there is no collection to serve: write a description with `dperm collect init` and give its file."
        )
    if key is None and any(one.tokens for one in store.collections.values()):
        store.close()
        raise InvalidInput("a collection here needs one-time tokens: give the token key with --token-key.")

    def started(port: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"collecting at http://{shown}:{port}/ into {store.database.address}")
        for one in store.collections.values():
            click.echo(f"  {one.name} version {one.version}, epsilon {one.task.epsilon:g}, hash {one.digest}")
        where = "the address in X-Forwarded-For" if forwarded_for else "one address"
        limit = f"{source_rate:g} a minute, {source_burst} at once, from {where}" if source_rate else "not limited"
        click.echo(f"  reports: {limit}")

    limits = {"most_connections": most_connections, "idle_seconds": idle_seconds}
    service = Service(store, key, counts_secret=secrets[0], batch_secret=secrets[1], sources=sources)
    run(service, host, port, started=started, **limits)


collect.add_command(send)


@collect.command(short_help="Estimate from the counts.")
@click.argument("name")
@_DATABASE
@click.option(
    "--url", help="Read the published estimate of the collector at this address, such as http://127.0.0.1:8000."
)
@click.option("--version", type=_VERSION, help="Version of the collection; the newest unless given.")
@click.option("--window", type=_WINDOW, help="Estimate from one counting window only.")
@click.option(
    "--query", multiple=True, metavar="NAME=0|1", help="For marginals: the share of people with these values."
)
@click.option(
    "--trimmed", is_flag=True, help="Leave out what some questions have beyond their share, because it was made up."
)
@with_output
def estimate(
    name: str,
    database: str,
    url: str | None,
    version: int | None,
    window: int | None,
    query: Sequence[str],
    trimmed: bool,
    output: Output,
) -> None:
    """Estimate from the counts of the collection NAME.

    An estimate is marked as suspicious if some questions were answered more often than devices draw them. --json holds
    the test, the estimate and the trimmed one.

    With --database, the estimate uses the counters as they are now, and is for the operator only. With --url, it is
    what the service publishes, in steps. Do not publish the first one: compared with the second, it may show a single
    report.
    """
    from dperm.cli.collect.show import show_estimate

    if url is not None:
        if query:
            raise InvalidInput("--query needs the counts: leave out --url and give the --database.")
        data = fetch_json(collection_at(url, name) + "/estimate", {"version": version, "window": window})
    else:
        from dperm.collect.draws import trimmed_counts
        from dperm.collect.service.results import estimate_document
        from dperm.collect.store.store import open_store

        with open_store(database) as store:
            one = _find_collection(store, name, version)
            counts = store.counts(one, window)
            data = estimate_document(one, counts)
            if query:
                kept = trimmed_counts(one.task, counts) if trimmed else counts
                data["query"] = _queried_share(one, kept, query)
    output.result(data, lambda to: show_estimate(to, data, trimmed))


def _queried_share(one: Collection, counts: Any, query: Sequence[str]) -> dict[str, Any]:
    from dperm.collect.estimate import MarginalsModel

    if not isinstance(one.estimate_model, MarginalsModel):
        raise InvalidInput(f"--query is for marginals; {one.name} is a {one.estimate_model.kind} collection.")
    pairs = [text.partition("=") for text in query]
    if any(value not in ("0", "1") for _, _, value in pairs):
        raise InvalidInput("write --query NAME=0 or --query NAME=1.")
    return one.estimate_model.query(counts, {name: int(value) for name, _, value in pairs})


@collect.command(short_help="Make one-time tokens.")
@click.argument("task", type=_FILE)
@click.option("--token-key", type=_FILE, required=True, help="File with the token key; made if it is missing.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Number of tokens.")
def tokens(task: Path, token_key: Path, count: int) -> None:
    """Make one-time tokens for the collection in the file TASK, one per line."""
    from dperm.collect import Collection
    from dperm.collect.service.tokens import mint, read_key

    one = Collection.read(task)
    if not one.tokens:
        raise InvalidInput(f"{one.name} takes reports without tokens: describe it with `dperm collect init --tokens`.")
    key = read_key(token_key, create=True)
    for _ in range(count):
        click.echo(mint(key, one.digest))


@collect.command(short_help="Write the counters to a file, for merging.")
@click.argument("name")
@click.argument("out", type=_FILE)
@_DATABASE
@click.option("--version", type=_VERSION, help="Version of the collection; the newest unless given.")
def counts(name: str, out: Path, database: str, version: int | None) -> None:
    """Write the counters of the collection NAME to the file OUT, for another collector to merge."""
    from dperm.collect.store.store import open_store

    with open_store(database) as store:
        one = _find_collection(store, name, version)
        out.write_text(json.dumps(store.counters.export(one)), encoding="ascii")
        n = store.counts(one).n_people
    click.echo(f"wrote {out}: {counted(n, 'report')}")


@collect.command(short_help="Merge the counters of other collectors.")
@click.argument("sources", nargs=-1, required=True, metavar="FILE|URL...")
@_DATABASE
@click.option("--counts-secret", type=_FILE, help="File with the secret of the collectors at the addresses.")
def merge(sources: Sequence[str], database: str, counts_secret: Path | None) -> None:
    """Merge other collectors' counters, from files of `dperm collect counts` or from addresses .../v1/NAME/counts.

    Merging the same counters again changes nothing.
    """
    from dperm.collect.service.tokens import read_secret
    from dperm.collect.store.store import open_store

    known = None if counts_secret is None else read_secret(counts_secret)
    with open_store(database) as store:
        for source in sources:
            exported = fetch_json(source, {}, known) if "://" in source else read_json(Path(source))
            click.echo(f"{source}: {counted(store.counters.merge(exported), 'new report')}")


@collect.command(short_help="Copy the database while the collector runs.")
@click.argument("out", type=_FILE)
@_DATABASE
def backup(out: Path, database: str) -> None:
    """Copy the SQLite database to the file OUT, also while the collector runs."""
    from dperm.collect.store.store import open_store

    with open_store(database) as store:
        store.backup(out)
    click.echo(f"wrote {out}")


@collect.command(short_help="Mark a database as a restored copy.")
@_DATABASE
def restored(database: str) -> None:
    """Mark a database as a restored copy, which counts and publishes independently of the original.

    Run this once on a copy that was made by other means than `dperm collect backup`, before it takes reports.
    """
    from dperm.collect.store.store import open_store

    with open_store(database) as store:
        store.mark_as_copy()
        click.echo(f"{store.database.address} counts under the name {store.counters.collector} from now on")


def _find_collection(store: Store, name: str, version: int | None) -> Collection:
    one = store.find(name, version)
    if one is None:
        names = ", ".join(sorted({known.name for known in store.collections.values()})) or "none"
        raise InvalidInput(f"there is no such collection in {store.database.address}: it has {names}.")
    return one
