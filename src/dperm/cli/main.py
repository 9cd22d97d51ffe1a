"""The ``dperm`` command: one file per command group, errors in one place."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

import dperm
from dperm.cli.collect.commands import collect
from dperm.cli.completion import completion
from dperm.cli.demo import demo
from dperm.cli.fit import fit
from dperm.cli.ledger import ledger
from dperm.cli.plan import plan
from dperm.cli.predict import predict
from dperm.cli.report import report
from dperm.cli.schema import schema
from dperm.cli.vertical.commands import vertical
from dperm.errors import DpermError

__all__ = ["cli", "main"]


class _InOrder(click.Group):
    """Lists commands in the order in which a person needs them."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(dperm.__version__, prog_name="dperm")
def cli() -> None:
    """Train sparse and linear models with a differential-privacy guarantee that is true."""


for _command in (demo, schema, plan, fit, predict, report, ledger, vertical, collect, completion):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; one clear sentence and the right exit code for every expected error."""
    try:
        code: Any = cli.main(prog_name="dperm", standalone_mode=False)
    except click.exceptions.Abort as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):  # the answer to a question was no, or there was none
            _end("not confirmed: nothing was written; use --yes where nobody can answer.", 1)
        _end(_interrupted(), 1)
    except KeyboardInterrupt:
        _end(_interrupted(), 1)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "dperm"
        _end(f"{error.format_message().rstrip('.')}: see `{command} --help`.", 2)
    except DpermError as error:
        _end(str(error), error.exit_code)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    except MemoryError:
        _end("the memory of this machine is not enough for this table: nothing was written.", 1)
    except OSError as error:
        # without a name it is standard output that could not be written, as other files are named by who writes them
        what = f"{error.filename!r}: nothing was written there" if error.filename else "the output is not complete"
        _end(f"{error.strerror or error}: {what}.", 1)
    except Exception as error:
        if os.environ.get("DPERM_DEBUG"):
            raise
        _end(
            f"unexpected {type(error).__name__}: please report it. DPERM_DEBUG=1 shows where it happened, and that may "
            "show values of your data.",
            1,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _interrupted() -> str:
    """Say what Ctrl-C leaves behind; a fit says it itself, as it knows what it reserved."""
    group, command = (*sys.argv[1:3], "", "")[:2]
    if group == collect.name and command == "serve":  # one that listens ends without an interrupt
        return "interrupted before the collector listened; no report was taken."
    if group == collect.name:
        return "interrupted; what was written before stays."
    spent = ", and budget that was reserved before stays spent: `dperm ledger list` tells"
    return f"interrupted; nothing was written{spent if group == vertical.name else ''}."


def _end(sentence: str, code: int) -> None:
    click.echo(f"dperm: {sentence}", err=True)
    sys.exit(code)
