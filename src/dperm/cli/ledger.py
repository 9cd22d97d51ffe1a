"""``dperm ledger``: show what was spent on each data set, by which fit, and what is left; set caps; verify."""

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
        opened = open_ledger(context.params.get("address"))
        return [name for name in opened.datasets() if name.startswith(incomplete)]
    except Exception:
        return []  # the command itself reports what is wrong


_NAME = click.argument("name", shell_complete=_names)


_HEADER = ("time", "who", "what for", "epsilon", "delta", "releases", "state", "given as")


@click.group()
def ledger() -> None:
    """See what was spent on which data set, and limit it."""


@ledger.command("list")
@ledger_option()
@with_output
def list_command(address: str | None, output: Output) -> None:
    """List the data sets with what is spent and left."""
    opened = open_ledger(address)
    found = [opened.for_dataset(name).spent() for name in opened.datasets()]

    def show(output: Output) -> None:
        if not found:
            output.text(f"Nothing was spent yet in {opened.address}.")
            return
        rows = [(one.dataset, str(one.n_fits), _epsilon(one.epsilon), f"{one.delta:.2g}", *_cap(one)) for one in found]
        output.table(("data set", "uses", "epsilon", "delta", "cap", "used", "room for"), rows, right=(1, 2, 3))
        output.text("Epsilon is that of all uses together, at the delta in the next column.")

    data = {"ledger": opened.address, "neighbours": str(opened.neighbours), "head": opened.head}
    output.result({**data, "datasets": [one.to_dict() for one in found]}, show)


@ledger.command("show")
@_NAME
@ledger_option()
@with_output
def show_command(name: str, address: str | None, output: Output) -> None:
    """Show who spent what on data set NAME."""
    from dperm.cli.summary import budget_sentence

    opened = _open_known(address, name)
    spent, entries = opened.spent(), opened.entries(name)
    rows = _table_rows(entries)

    def show(output: Output) -> None:
        output.text(_sentence(budget_sentence(spent, address=address)))
        if spent.reserved_unsettled:
            output.text(
                f"{spent.reserved_unsettled} of them reserved but not settled (running or crashed): they count too."
            )
        renamed = any(row[-1] for row in rows)
        shown = len(_HEADER) if renamed else len(_HEADER) - 1
        output.table(_HEADER[:shown], [row[:shown] for row in rows], right=(3, 4, 5))
        if renamed:
            output.text(f"Given as: another name by which data were given that are known as {name!r}; for you alone.")
        unrecorded = any(row[3].startswith("~") for row in rows)
        about = " (~: none was recorded, so its own cost at that delta)" if unrecorded else ""
        output.text(
            f"Each line shows the budget that the use asked for{about}. "
            f"These do not add up: the total is composed from all releases and stated at delta {spent.delta:.2g}."
        )
        output.text(f"Head of the hash chain: {opened.head}")

    output.result({"spent": spent.to_dict(), "entries": entries, "head": opened.head}, show)


@ledger.command("receipt")
@click.argument("model", type=FILE)
@ledger_option()
@with_output
def receipt_command(model: Path, address: str | None, output: Output) -> None:
    """Show what the fit of MODEL (a saved model or a report) was charged to: for the owner of the data only."""
    from dperm.cli.report import read_report
    from dperm.cli.summary import budget_sentence

    opened, public = open_ledger(address), read_report(model)[0].ledger
    receipt = opened.receipt(public)
    renamed = public["dataset"] if public["dataset"] != receipt.dataset else None

    def show(output: Output) -> None:
        output.text("For the owner only, not to be published.")
        output.text(_sentence(budget_sentence(receipt.spent, renamed, address)))
        output.text(f"Head of the hash chain after this fit: {receipt.head}")

    output.result({"given_as": public["dataset"], "spent": receipt.spent.to_dict(), "head": receipt.head}, show)


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
    """Set a permanent limit on what may be spent on data set NAME."""
    from dperm.privacy.accounting.budget import Budget

    budget = Budget(epsilon, delta)
    unknown = _unknown_name(address, name)
    if not yes and sys.stdin is not None and sys.stdin.isatty():
        question = f"A cap cannot be changed later. Limit {name!r} to epsilon {epsilon:g} at {delta:g}?"
        click.confirm(f"{unknown[:1].upper()}{unknown[1:]} {question}".lstrip(), abort=True, err=True)
    elif unknown and not yes:
        raise InvalidInput(
            f"{unknown} A cap cannot be changed later: repeat the command with --yes to set it for {name!r}."
        )
    elif unknown:
        output.note(f"note: {unknown}")
    opened = open_ledger(address, name, create=True)  # a cap is best set before the first fit
    opened.set_cap(budget, mode)
    spent = opened.spent()
    text = f"Data set {name!r} may spend epsilon {epsilon:g} at delta {delta:g} in all; {spent.used:.0%} is used."
    output.result(spent.to_dict(), lambda o: o.text(text))


@ledger.command("export")
@click.option("--out", type=FILE, help="File to write; standard output by default.")
@click.option("--force", is_flag=True, help="Write over an existing file.")
@ledger_option()
@with_output
def export_command(out: Path | None, force: bool, address: str | None, output: Output) -> None:
    """Write the whole ledger as JSON, for people whom you trust with it.

    It has no fingerprints of data, and not the names by which known data were given.
    """
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
@click.option("--head", help="A head that was printed earlier: it must still be in the chain.")
@ledger_option()
@with_output
def verify_command(head: str | None, address: str | None, output: Output) -> None:
    """Check the ledger's hash chain, and that a head printed earlier is still in it."""
    opened = open_ledger(address)
    found = opened.verify(head)
    text = "The chain is intact" + (" and contains that head." if head else ".") + f" Its head is {found}."
    output.result({"ledger": opened.address, "head": found, "holds": True}, lambda o: o.text(text))


def _open_known(address: str | None, name: str) -> Any:
    """Open a ledger that knows the data set ``name``."""
    opened = open_ledger(address, name)
    if unknown := _not_in(opened, name):
        raise InvalidInput(unknown)
    return opened


def _unknown_name(address: str | None, name: str) -> str:
    """Return a sentence if a data set is not in the ledger, which need not exist yet; otherwise an empty text."""
    where = ledger_file(address)
    if where is not None and not where.exists():
        return f"there is no ledger at {where} yet."
    names = open_ledger(address, name).datasets()
    if name in names:
        return ""
    return f"the ledger has no data set {name!r} yet" + (f" (it has {_listed(names)})." if names else ".")


def _not_in(opened: Any, name: str) -> str:
    names = opened.datasets()
    if name in names:
        return ""
    return f"the ledger {opened.address} has no data set {name!r}; it has {_listed(names) or 'none'}."


def _listed(names: list[str]) -> str:
    return ", ".join(shlex.quote(one) for one in names[:8])


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _epsilon(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "unbounded"


def _cap(spent: Any) -> tuple[str, str, str]:
    if spent.cap is None:
        return "none", "", ""
    return f"{spent.cap.budget.epsilon:g}", f"{spent.used:.0%}", f"epsilon {spent.fits_epsilon:.3g}"


def _table_rows(entries: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return one row per reservation: when, who, what for, which budget, how many releases, how it ended, given as."""
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
            rows.append((time, "", "cap on all uses together", *budget, "", "set", ""))
        elif entry["kind"] == "reserve":
            state = "done" if entry["id"] in settled else "reserved"
            releases = str(made.get(entry["id"], ""))
            about = (time, entry.get("by", ""), entry["purpose"], *_requested(entry), releases, state)
            rows.append((*about, entry.get("given_as", "")))
    return rows


def _requested(entry: dict[str, Any]) -> tuple[str, str]:
    """Return epsilon and delta that a reservation asked for, else its own cost at the usual delta."""
    if (asked := entry.get("requested")) is not None and not entry["unbounded"]:
        return f"{asked['epsilon']:g}", f"{asked['delta']:.2g}"
    if entry["unbounded"]:
        return "unbounded", ""
    from dperm.privacy.accounting.composition import upper_epsilon
    from dperm.privacy.accounting.events import event_from_dict

    delta = 1e-6
    return f"~{_epsilon(upper_epsilon(event_from_dict(entry['event']), delta)[0])}", f"{delta:.2g}"
