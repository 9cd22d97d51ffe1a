"""``dperm ledger``: what was spent on which data set, by which fit, and what is left."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import click

from dperm.cli.options import FILE, ledger_option, open_ledger
from dperm.cli.output import Output, with_output
from dperm.errors import InvalidInput

__all__ = ["ledger"]


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of data sets."""
    try:
        book = open_ledger(context.params.get("address"))
        return [name for name in book.datasets() if name.startswith(incomplete)]
    except Exception:
        return []  # whatever is wrong is said when the command runs


_NAME = click.argument("name", shell_complete=_names)


@click.group()
def ledger() -> None:
    """See what was spent on which data set, and limit it."""


@ledger.command("list")
@ledger_option()
@with_output
def list_command(address: str | None, output: Output) -> None:
    """List the data sets with what is spent and left."""
    book = open_ledger(address)
    found = [book.for_dataset(name).spent() for name in book.datasets()]

    def show(output: Output) -> None:
        if not found:
            output.text(f"Nothing was spent yet in {book.address}.")
            return
        rows = [(one.dataset, str(one.n_fits), _epsilon(one.epsilon), f"{one.delta:.2g}", *_cap(one)) for one in found]
        output.table(("data set", "fits", "epsilon", "delta", "cap", "used", "room for"), rows, right=(1, 2, 3))

    data = {"ledger": book.address, "neighbours": str(book.neighbours), "head": book.head}
    output.result({**data, "datasets": [one.to_dict() for one in found]}, show)


@ledger.command("show")
@_NAME
@ledger_option()
@with_output
def show_command(name: str, address: str | None, output: Output) -> None:
    """Show who spent what on data set NAME."""
    from dperm.cli.summary import budget_sentence

    book = _known(address, name)
    spent, entries = book.spent(), book.entries(name)
    rows = _fits(entries)

    def show(output: Output) -> None:
        output.text(budget_sentence(spent)[:1].upper() + budget_sentence(spent)[1:] + ".")
        if spent.reserved_unsettled:
            output.text(
                f"{spent.reserved_unsettled} of them reserved and not settled (running or crashed): all counts."
            )
        output.table(("time", "what for", "releases", "charge", "state"), rows, right=(2, 3))
        output.text(f"Head of the hash chain: {book.head}")

    output.result({"spent": spent.to_dict(), "entries": entries, "head": book.head}, show)


@ledger.command("cap")
@_NAME
@click.option("--epsilon", type=float, required=True, help="The most that all fits together may spend.")
@click.option("--delta", type=float, default=1e-6, show_default=True)
@click.option("--mode", type=click.Choice(["mixed", "gaussian-only"]), default="mixed", show_default=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@ledger_option()
@with_output
def cap_command(
    name: str, epsilon: float, delta: float, mode: str, yes: bool, address: str | None, output: Output
) -> None:
    """Limit for good what may be spent on data set NAME."""
    from dperm.privacy.budget import Budget

    budget = Budget(epsilon, delta)
    book = open_ledger(address, name, create=True)  # a cap is best set before the first fit
    if not yes and click.get_text_stream("stdin").isatty():
        click.confirm(f"A cap never changes. Limit {name!r} to epsilon {epsilon:g} at {delta:g}?", abort=True, err=True)
    book.set_cap(budget, mode)
    spent = book.spent()
    told = f"Data set {name!r} may spend epsilon {epsilon:g} at delta {delta:g} in all; {spent.used:.0%} is used."
    output.result(spent.to_dict(), lambda o: o.text(told))


@ledger.command("export")
@click.option("--out", type=FILE, help="File to write; standard output by default.")
@ledger_option()
@with_output
def export_command(out: Path | None, address: str | None, output: Output) -> None:
    """Write the whole ledger as JSON, without fingerprints of data."""
    from dperm.privacy.report import write_whole

    text = json.dumps(open_ledger(address).export(), indent=2, allow_nan=False) + "\n"
    if out is None:
        click.echo(text, nl=False)
    else:
        output.note(f"Written: {write_whole(out, text)}")


@ledger.command("verify")
@click.option("--head", help="A head that a report printed: it must still be in the chain.")
@ledger_option()
@with_output
def verify_command(head: str | None, address: str | None, output: Output) -> None:
    """Check the ledger's hash chain, and that a head printed earlier is still in it."""
    book = open_ledger(address)
    found = book.verify(head)
    told = "The chain holds" + (" and contains that head." if head else ".") + f" Its head is {found}."
    output.result({"ledger": book.address, "head": found, "holds": True}, lambda o: o.text(told))


def _known(address: str | None, name: str) -> Any:
    book = open_ledger(address, name)
    names = book.datasets()
    if name not in names:
        known = ", ".join(shlex.quote(one) for one in names[:8]) or "none"
        raise InvalidInput(f"the ledger {book.address} knows no data set {name!r}; it knows {known}.")
    return book


def _epsilon(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "unbounded"


def _cap(spent: Any) -> tuple[str, str, str]:
    if spent.cap is None:
        return "none", "", ""
    return f"{spent.cap.budget.epsilon:g}", f"{spent.used:.0%}", f"epsilon {spent.fits_epsilon:.3g}"


def _fits(entries: list[dict[str, Any]]) -> list[tuple[str, str, str, str, str]]:
    """One line per reservation: when, what for, how many releases, what the cap was charged, how it ended."""
    made: dict[str, int] = {}
    settled = set()
    for entry in entries:
        if entry["kind"] == "release":
            made[entry["reservation"]] = made.get(entry["reservation"], 0) + int(entry["count"])
        elif entry["kind"] == "settle":
            settled.add(entry["reservation"])
    rows = []
    for entry in entries:
        time = str(entry["time"]).partition(".")[0].replace("T", " ")
        if entry["kind"] == "cap":
            rows.append((time, f"cap of epsilon {entry['epsilon']:g} at delta {entry['delta']:g}", "", "", "set"))
        elif entry["kind"] == "reserve":
            charge = "" if entry["charge"] is None else f"{entry['charge']:.3g}"
            state = "done" if entry["id"] in settled else "reserved"
            rows.append((time, entry["purpose"], str(made.get(entry["id"], "")), charge, state))
    return rows
