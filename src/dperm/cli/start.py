"""Where the process of a command begins: Ctrl-C and `kill` are answered with a sentence from the first moment on."""

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
    # a shell lets what it starts in the background ignore Ctrl-C, and so it stays
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    listens = [number for number, handler in usual.items() if signal.getsignal(number) is handler]
    for number in listens:
        signal.signal(number, _stop_at_once)
    from dperm.cli.main import main as run

    for number in listens:  # a service sets its own later
        signal.signal(number, signal.default_int_handler)
    code: Any = 0
    try:
        run()
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:  # pressed again while the answer to the first was being made
        _say(_STOPPED)
        code = 1
    if code == 1:
        # Python remembers a KeyboardInterrupt that passed through exec(), as in the making of a dataclass, and ends the
        # process by the signal even if it was caught. Registered last, this would run first: so the others run here.
        atexit._run_exitfuncs()
        _flush()
        os._exit(code)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Let what nobody reads go nowhere: else the next file opened, such as a ledger, would take the stream's number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _stop_at_once(*_: Any) -> None:
    """End while nothing but imports has happened: an exception could be swallowed by a module that is half loaded."""
    _say(_NOTHING_WRITTEN)
    os._exit(1)


def _say(text: str) -> None:
    os.write(2, text.encode())


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed, or nobody reads it
            continue
