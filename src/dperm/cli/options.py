"""Options and the command group that several commands share, with shell completion of names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dperm.cli.writing import ledger_file
from dperm.errors import InvalidInput, LedgerUnreadable

__all__ = [
    "FILE",
    "MODELS",
    "NEIGHBOURS",
    "OrderedGroup",
    "estimator_of",
    "ledger_option",
    "open_ledger",
    "target_option",
]

F = TypeVar("F", bound=Callable[..., Any])

#: a path that the command itself opens, so that the command's own message says what is wrong with it
FILE = click.Path(path_type=Path, readable=False)

NEIGHBOURS = click.Choice(["replace-one", "zero-out"])

#: names of models on the command line, and the estimator behind each
MODELS = {
    "logistic": "DPLogisticRegression",
    "svm": "DPLinearSVC",
    "linear": "DPLinearRegression",
    "ridge": "DPRidge",
    "lasso": "DPLasso",
    "elastic-net": "DPElasticNet",
    "huber": "DPHuberRegressor",
}


class OrderedGroup(click.Group):
    """Lists commands in the order in which they were added, which is the order in which a person needs them."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self.commands)


def estimator_of(name: str) -> Any:
    """Return the estimator class behind a name of ``--model``."""
    import dperm

    return getattr(dperm, MODELS[name])


def _columns(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of a file's columns."""
    from dperm.data.tables.files import open_table

    # while an option's value is missing, arguments are not assigned yet
    file = context.params.get("file") or next(iter(context.args), None)
    try:
        return [name for name in open_table(file).names if name.startswith(incomplete)] if file else []
    except Exception:
        return []  # the command itself reports what is wrong


def target_option(**options: Any) -> Callable[[F], F]:
    """Return ``--target``, which completes to the file's columns."""
    return click.option("--target", shell_complete=_columns, **options)


def ledger_option() -> Callable[[F], F]:
    """Return ``--ledger``."""
    return click.option(
        "--ledger",
        "address",
        default=None,
        metavar="PATH|URL",
        help="File or postgresql:// URL; your own by default.",
    )


def open_ledger(address: str | None, dataset: str = "default", *, create: bool = False, **options: Any) -> Any:
    """Open the ledger at an address, or this user's own, which is made if it is missing."""
    from dperm import Ledger

    try:
        where = Ledger.default_path() if address is None else address  # an empty address does not mean this user's own
        return Ledger(where, dataset=dataset, create=create or address is None, **options)
    except LedgerUnreadable as error:
        if address is None or ledger_file(address) is None:
            raise
        raise InvalidInput(str(error)) from None  # a wrong path on the command line is a usage error
