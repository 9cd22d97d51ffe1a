"""Exit codes of ``dperm audit``: 1 only if a claim does not hold, 2 if nothing is known, 130 after Ctrl-C."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dperm.cli.output import Output
from dperm.errors import DpermError

if TYPE_CHECKING:
    from dperm.audit.result import Verdict

__all__ = ["end_of_audit", "never_exit_code_1"]


class _AuditInterrupted(DpermError):
    """The audit was interrupted."""

    exit_code = 130  # as a shell reports Ctrl-C


class _AuditFailed(DpermError):
    """The audit could not be made."""

    exit_code = 2


@contextmanager
def never_exit_code_1() -> Iterator[None]:
    """Keep exit code 1 for claims that do not hold: no error may look like one."""
    try:
        yield
    except KeyboardInterrupt:
        raise _AuditInterrupted("the audit was interrupted: nothing was written.") from None
    except click.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise _AuditInterrupted("the audit was interrupted: nothing was written.") from None
        raise _AuditFailed("the audit was not confirmed: nothing was written.") from None
    except DpermError as error:
        if error.exit_code != 1:
            raise
        raise _AuditFailed(f"the audit could not be made: {error}") from None
    except (click.ClickException, click.exceptions.Exit):
        raise
    except MemoryError:
        raise _AuditFailed("the audit could not be made: this machine has too little memory for it.") from None
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise _AuditFailed(f"the audit could not be made: {error.strerror or error}{where}.") from None
    except Exception as error:
        if os.environ.get("DPERM_DEBUG"):
            raise
        raise _AuditFailed(
            f"the audit could not be made: unexpected {type(error).__name__}; please report it. DPERM_DEBUG=1 shows "
            "where it happened."
        ) from None


def end_of_audit(
    verdict: Verdict, data: Any, show: Callable[[Output], None], output: Output, *, incomplete: bool = False
) -> int:
    """Print the result and return the exit code.

    Parameters
    ----------
    incomplete : bool
        Whether something that was to be audited could not be: without a violation, nothing is then promised.
    """
    from dperm.audit.result import Verdict

    try:
        output.result(data, show)
    except BrokenPipeError:  # the reader closed the output; the code still says what was found
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if verdict is Verdict.VIOLATION:
        return 1
    return 2 if incomplete or verdict is Verdict.NOT_RUN else 0
