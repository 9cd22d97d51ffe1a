"""Entry point of the ``dperm`` command: Ctrl-C and `kill` end with a sentence from the first moment on."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import Any

__all__ = ["main"]

_STOPPED = "dperm: interrupted.\n"
_NOTHING_WRITTEN = "dperm: interrupted; nothing was written.\n"


def main() -> None:
    """Import the command line, which takes a moment, and run it."""
    _open_closed_streams()
    # a shell makes background processes ignore Ctrl-C; that is left as it is
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    handled = [number for number, handler in defaults.items() if signal.getsignal(number) is handler]
    for number in handled:
        signal.signal(number, _stop_at_once)
    from dperm.cli.main import main as run

    for number in handled:  # a service installs its own handlers later
        signal.signal(number, signal.default_int_handler)
    code: Any = 0
    try:
        run()
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:  # pressed again while the first one was being handled
        _print_error(_STOPPED)
        code = _code_of_ctrl_c()
    if code in (1, _code_of_ctrl_c()):
        # Python remembers a KeyboardInterrupt that passed through exec(), for example while a dataclass is made, and
        # ends the process by the signal even if it was caught. os._exit avoids that; so exit functions must run here.
        atexit._run_exitfuncs()
        _flush()
        os._exit(code)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open closed streams on the null device: otherwise the next file, such as a ledger, would take their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _stop_at_once(*_: Any) -> None:
    """End during imports, when nothing else has happened: a half-loaded module could swallow an exception."""
    _print_error(_NOTHING_WRITTEN)
    os._exit(_code_of_ctrl_c())


def _code_of_ctrl_c() -> int:
    """Return the exit code; for an audit 1 means that a claim does not hold, so it has the code of a shell."""
    return 130 if sys.argv[1:2] == ["audit"] else 1


def _print_error(text: str) -> None:
    os.write(2, text.encode())


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed, or nobody reads it
            continue
