"""The ``dperm`` command: the list of commands, and one sentence and an exit code for every error."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

import dperm
from dperm.cli.audit import audit
from dperm.cli.collect.commands import collect
from dperm.cli.completion import completion
from dperm.cli.demo import demo
from dperm.cli.experiment.commands import experiment
from dperm.cli.fit import fit
from dperm.cli.ledger import ledger
from dperm.cli.options import OrderedGroup
from dperm.cli.plan import plan
from dperm.cli.predict import predict
from dperm.cli.report import report
from dperm.cli.schema import schema
from dperm.cli.vertical.commands import vertical
from dperm.errors import DpermError

__all__ = ["cli", "main"]


@click.group(cls=OrderedGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(dperm.__version__, prog_name="dperm")
def cli() -> None:
    """Train sparse and linear models with a differential-privacy guarantee.

    New here: `dperm demo` runs in a few seconds and needs no data.
    """


#: commands in the order in which a person needs them, with the line that `dperm --help` shows
_COMMANDS = (
    (demo, "Fit a private model on an included medical table."),
    (schema, "Draft what is public about a table: bounds and categories."),
    (plan, "Show what a privacy budget buys, without any data."),
    (fit, "Fit a private model to a table."),
    (predict, "Predict with a fitted model."),
    (report, "Show or write the privacy report of a model."),
    (audit, "Attack a claimed guarantee, of dperm or of any function."),
    (ledger, "See what was spent on which data set, and limit it."),
    (vertical, "Train over columns that several organisations hold."),
    (collect, "Collect one random bit per person, and estimate a model."),
    (experiment, "Measure the papers' tables and figures, ours next to theirs."),
    (completion, "Print the completion script of a shell."),
)
for _command, _line in _COMMANDS:
    _command.short_help = _line
    cli.add_command(_command)


def main() -> None:
    """Run the command line; one clear sentence and the right exit code for every expected error."""
    try:
        code: Any = cli.main(prog_name="dperm", standalone_mode=False)
    except click.exceptions.Abort as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):  # the answer to a question was no, or nobody answered
            _exit("not confirmed: nothing was written; use --yes in scripts.", 1)
        _exit(_interrupted(), 1)
    except KeyboardInterrupt:
        _exit(_interrupted(), 1)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "dperm"
        _exit(f"{error.format_message().rstrip('.')}: see `{command} --help`.", 2)
    except DpermError as error:
        _exit(str(error), error.exit_code)
    except BrokenPipeError:  # the reader of the output closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    except MemoryError:
        _exit("this machine has too little memory for this table: nothing was written.", 1)
    except OSError as error:
        # an error without a file name is about standard output: all other files are named
        what = f"{error.filename!r}: nothing was written there" if error.filename else "the output is not complete"
        _exit(f"{error.strerror or error}: {what}.", 1)
    except Exception as error:
        if os.environ.get("DPERM_DEBUG"):
            raise
        _exit(
            f"unexpected {type(error).__name__}: please report it. DPERM_DEBUG=1 shows where it happened, and that may "
            "show values of your data.",
            1,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _interrupted() -> str:
    """Return what Ctrl-C leaves behind; `fit` reports it itself, because it knows what it reserved."""
    group, command = (*sys.argv[1:3], "", "")[:2]
    if group == collect.name and command == "serve":  # a running service ends without an error
        return "interrupted before the collector started; no report was accepted."
    if group == collect.name:
        return "interrupted; what was written before remains."
    if group == experiment.name and command == "run":
        again = "the same command without --force" if "--force" in sys.argv else "the same command"
        return f"interrupted; finished pieces are kept, and {again} goes on from there."
    if group != vertical.name:
        return "interrupted; nothing was written."
    shown = " and ".join(f"`{shlex.join(['dperm', 'ledger', 'list', '--ledger', one])}`" for one in _ledgers_of_run())
    shows = f": see {shown}" if shown else ""
    return f"interrupted; nothing was written, and budget that was reserved before stays spent{shows}."


def _ledgers_of_run() -> list[str]:
    """Return the ledgers named in the configurations of a vertical command; none if a configuration cannot be read."""
    from dperm.privacy.ledger.storage import storage_at
    from dperm.vertical.participant.config import read_config

    found = []
    for argument in sys.argv[3:]:
        with contextlib.suppress(DpermError, OSError):
            config = read_config(Path(argument)) if argument.endswith(".toml") else None
            if config is not None and config.ledger is not None:
                found.append(storage_at(config.ledger.file).label)  # without a password
    return found


def _exit(sentence: str, code: int) -> NoReturn:
    click.echo(f"dperm: {sentence}", err=True)
    sys.exit(code)
