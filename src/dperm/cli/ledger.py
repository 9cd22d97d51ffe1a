"""``dperm ledger``: what was spent on which data set."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.table import Table

__all__ = ["ledger"]

_WHERE = click.option("--ledger", "address", default=None, help="File or postgresql:// address; yours by default.")


@click.group()
def ledger() -> None:
    """See what was spent on which data set."""


def _open(address: str | None, dataset: str = "default") -> object:
    from dperm import Ledger

    return Ledger(address or Ledger.default_path(), dataset=dataset, create=address is None)


@ledger.command("list")
@_WHERE
def list_command(address: str | None) -> None:
    """List the data sets with what is spent and left."""
    book = _open(address)
    table = Table("data set", "fits", "spent epsilon", "cap", box=None)
    for name in book.datasets():  # type: ignore[attr-defined]
        spent = book.for_dataset(name).spent()  # type: ignore[attr-defined]
        cap = "none" if spent.cap is None else f"{spent.cap.budget.epsilon:g} at delta {spent.cap.budget.delta:g}"
        table.add_row(name, str(spent.n_fits), f"{spent.epsilon:.4g}", cap)
    Console().print(table)


@ledger.command("show")
@click.argument("name")
@_WHERE
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def show_command(name: str, address: str | None, as_json: bool) -> None:
    """Show who spent what on data set NAME."""
    book = _open(address, name)
    entries = book.entries(name)  # type: ignore[attr-defined]
    if as_json:
        click.echo(json.dumps(entries, indent=2, default=str))
        return
    spent = book.spent()  # type: ignore[attr-defined]
    console = Console()
    console.print(f"[bold]{name}[/bold]: {spent.n_fits} fits, epsilon {spent.epsilon:.4g} at delta {spent.delta:g}")
    table = Table("time", "kind", "what for", box=None)
    for entry in entries:
        table.add_row(str(entry.get("time", "")), str(entry.get("kind", "")), str(entry.get("purpose", "")))
    console.print(table)
    console.print(f"head of the hash chain: {book.head}", soft_wrap=True)  # type: ignore[attr-defined]
