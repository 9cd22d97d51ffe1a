"""``dperm schema``: draft a schema of a table, and confirm it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from dperm.cli.options import FILE, target_option
from dperm.cli.output import Output, with_output
from dperm.cli.writing import check_outputs
from dperm.errors import DpermError, InvalidInput

__all__ = ["schema"]


@click.command()
@click.argument("file", type=FILE)
@target_option(help="Column to predict.")
@click.option("--out", type=FILE, default=Path("schema.toml"), show_default=True, help="File to write.")
@click.option("--force", is_flag=True, help="Write over an existing file.")
@click.option("--confirm", is_flag=True, help="FILE is a schema: declare its unconfirmed lines public, unchanged.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_output
def schema(file: Path, target: str | None, out: Path, force: bool, confirm: bool, yes: bool, output: Output) -> None:
    """Draft a schema of the table FILE: its columns, their kinds, bounds and categories.

    Names and types are used if they are sufficient. Entries that are read from values are listed as unconfirmed, and no
    fit uses them before you have replaced them by publicly known values, or confirmed them. If many values lie outside
    the usual bounds of a name, a note says so and the draft does not change.
    """
    if confirm:
        _confirm(file, yes, output)
    elif target is None:
        raise InvalidInput("--target is missing: name the column to predict.")
    else:
        _draft(file, target, out, force, output)


def _draft(file: Path, target: str, out: Path, force: bool, output: Output) -> None:
    from dperm.atomic_files import write_atomically
    from dperm.data.schema.draft import draft_schema
    from dperm.data.schema.schema_file import schema_to_dict, schema_to_toml
    from dperm.data.tables.files import open_table

    table = open_table(file)
    table.require([target])  # before --out is checked: a wrong column is the more important mistake
    check_outputs([out], inputs=(file,), force=force)
    draft = draft_schema(table, target)
    write_atomically(out, schema_to_toml(draft.schema, file.name, str(out), draft.notes))

    def show(output: Output) -> None:
        rows = []
        for part in draft.schema.parts:
            role = "target, " if part is draft.schema.target else ""
            read = ", ".join(part.unconfirmed) or "nothing"
            rows.append((part.name, role + part.kind, read, draft.notes.get(part.name, "")))
        output.table(("column", "kind", "read from values", ""), rows)
        output.text(f"\nWritten: {out}")
        if draft.schema.unconfirmed:
            output.text(
                "Entries that were read from values are not public yet: replace them by publicly known values and "
                f"delete the lines `unconfirmed`, or run `dperm schema --confirm {shlex.quote(str(out))}`."
            )

    for advice in draft.unusual.values():
        output.note(f"note: {advice}")
    written = {
        "written": str(out),
        "unconfirmed": draft.schema.unconfirmed,
        "ignored": draft.ignored,
        "unusual": list(draft.unusual),
    }
    output.result({**written, "schema": schema_to_dict(draft.schema)}, show)


def _agreed(question: str) -> bool:
    """Ask; where nobody can answer, the command was used in the wrong way."""
    if sys.stdin is not None:
        try:
            return click.confirm(question, err=True)
        except click.Abort:
            if sys.stdin.isatty():
                raise
    raise InvalidInput(
        "nobody answered, and nothing was written: repeat the command with --yes if all of it is public."
    )


def _confirm(file: Path, yes: bool, output: Output) -> None:
    from dperm.atomic_files import write_atomically
    from dperm.data.schema.schema import Schema
    from dperm.data.schema.schema_file import confirmed_text

    read = Schema.read(file)
    waiting = [part for part in read.parts if part.unconfirmed]
    if waiting and not yes:
        click.echo("These entries were read from the data and will be declared public, unchanged:", err=True)
        for part in waiting:
            click.echo(f"  {part.name}: {', '.join(part.unconfirmed)}", err=True)
        if not _agreed("Is all of this publicly known without these data?"):
            raise DpermError("nothing was confirmed, and nothing was written.")
    if waiting:
        write_atomically(file, confirmed_text(file.read_text(encoding="utf-8")))
    names = [part.name for part in waiting]
    output.result(
        {"written": str(file) if waiting else None, "confirmed": names},
        lambda o: o.text(f"Confirmed: {', '.join(names)}." if names else "Nothing was unconfirmed."),
    )
