"""``dperm ledger``: what was spent on which data set, by which fit, and what is left."""

from __future__ import annotations

import json
import math
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from dperm.cli.options import FILE, ledger_option, open_ledger
from dperm.cli.output import Output, with_output
from dperm.cli.writing import check_outputs, ledger_file
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


_HEADER = ("time", "who", "what for", "epsilon", "delta", "releases", "state")


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
        output.table(("data set", "uses", "epsilon", "delta", "cap", "used", "room for"), rows, right=(1, 2, 3))
        output.text("Epsilon is that of everything together, restated at the delta beside it.")

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
        output.table(_HEADER, rows, right=(3, 4, 5))
        output.text(
            "Each line has the budget that it was made for (~: its own figure at that delta, as none was recorded). "
            f"They do not add up: the total is composed anew and stated at delta {spent.delta:.2g}."
        )
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
    from dperm.privacy.accounting.budget import Budget

    budget = Budget(epsilon, delta)
    unknown = _unknown(address, name)
    if not yes and sys.stdin is not None and sys.stdin.isatty():
        question = f"A cap never changes. Limit {name!r} to epsilon {epsilon:g} at {delta:g}?"
        click.confirm(f"{unknown[:1].upper()}{unknown[1:]} {question}".lstrip(), abort=True, err=True)
    elif unknown and not yes:
        raise InvalidInput(f"{unknown} A cap never changes: check the name, and use --yes to set it all the same.")
    elif unknown:
        output.note(f"note: {unknown}")
    book = open_ledger(address, name, create=True)  # a cap is best set before the first fit
    book.set_cap(budget, mode)
    spent = book.spent()
    told = f"Data set {name!r} may spend epsilon {epsilon:g} at delta {delta:g} in all; {spent.used:.0%} is used."
    output.result(spent.to_dict(), lambda o: o.text(told))


@ledger.command("export")
@click.option("--out", type=FILE, help="File to write; standard output by default.")
@click.option("--force", is_flag=True, help="Write over an existing file.")
@ledger_option()
@with_output
def export_command(out: Path | None, force: bool, address: str | None, output: Output) -> None:
    """Write the whole ledger as JSON, without fingerprints of data."""
    from dperm.atomic_files import write_atomically

    if out is not None:
        check_outputs([out], address=address, force=force)
    text = json.dumps(open_ledger(address).export(), indent=2, allow_nan=False) + "\n"
    if out is None:
        click.echo(text, nl=False)
        return
    written = str(write_atomically(out, text))
    output.result({"written": written}, lambda o: o.note(f"Written: {written}"))


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
    if unknown := _not_in(book, name):
        raise InvalidInput(unknown)
    return book


def _unknown(address: str | None, name: str) -> str:
    """Say that a data set is not in a ledger, which need not be there yet; empty if it is."""
    where = ledger_file(address)
    if where is not None and not where.exists():
        return f"there is no ledger at {where} yet, and no data set {name!r}."
    return _not_in(open_ledger(address, name), name)


def _not_in(book: Any, name: str) -> str:
    names = book.datasets()
    if name in names:
        return ""
    known = ", ".join(shlex.quote(one) for one in names[:8]) or "none"
    return f"the ledger {book.address} knows no data set {name!r}; it knows {known}."


def _epsilon(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "unbounded"


def _cap(spent: Any) -> tuple[str, str, str]:
    if spent.cap is None:
        return "none", "", ""
    return f"{spent.cap.budget.epsilon:g}", f"{spent.used:.0%}", f"epsilon {spent.fits_epsilon:.3g}"


def _fits(entries: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """One line per reservation: when, who, what for, with which budget, how many releases, how it ended."""
    made: dict[str, int] = {}
    settled = set()
    for entry in entries:
        if entry["kind"] == "release":
            made[entry["reservation"]] = made.get(entry["reservation"], 0) + int(entry["count"])
        elif entry["kind"] == "settle":
            settled.add(entry["reservation"])
    rows: list[tuple[str, ...]] = []
    for entry in entries:
        time = str(entry["time"]).partition(".")[0].replace("T", " ")
        if entry["kind"] == "cap":
            budget = (f"{entry['epsilon']:g}", f"{entry['delta']:.2g}")
            rows.append((time, "", "cap on all together", *budget, "", "set"))
        elif entry["kind"] == "reserve":
            state = "done" if entry["id"] in settled else "reserved"
            releases = str(made.get(entry["id"], ""))
            rows.append((time, entry.get("by", ""), entry["purpose"], *_requested(entry), releases, state))
    return rows


def _requested(entry: dict[str, Any]) -> tuple[str, str]:
    """Return epsilon and delta that a reservation was made for, else its own figure at the usual delta."""
    if (asked := entry.get("requested")) is not None and not entry["unbounded"]:
        return f"{asked['epsilon']:g}", f"{asked['delta']:.2g}"
    if entry["unbounded"]:
        return "unbounded", ""
    from dperm.privacy.accounting.composition import upper_epsilon
    from dperm.privacy.accounting.events import event_from_dict

    delta = 1e-6
    return f"~{_epsilon(upper_epsilon(event_from_dict(entry['event']), delta)[0])}", f"{delta:.2g}"
