"""The ``dperm`` command: one file per command group, errors in one place."""

from __future__ import annotations

import sys

import click

import dperm
from dperm.cli.demo import demo
from dperm.cli.ledger import ledger
from dperm.errors import DpermError

__all__ = ["cli", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(dperm.__version__, prog_name="dperm")
def cli() -> None:
    """Train sparse and linear models with a differential-privacy guarantee that is true."""


cli.add_command(demo)
cli.add_command(ledger)


def main() -> None:
    """Run the command line; one clear sentence and the right exit code for every expected error."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("dperm: interrupted; budget that was reserved before stays spent.", err=True)
        sys.exit(1)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except DpermError as error:
        click.echo(f"dperm: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        click.echo(f"dperm: {error.strerror or error}{where}: nothing was written there.", err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
