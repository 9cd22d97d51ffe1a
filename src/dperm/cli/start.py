"""Where the process of a command begins: Ctrl-C is answered with a sentence from the first moment on."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import Any

__all__ = ["main"]

_INTERRUPTED = "dperm: interrupted; nothing was written.\n"


def main() -> None:
    """Import the command line, which takes a moment, and run it."""
    # a shell lets what it starts in the background ignore Ctrl-C, and so it stays
    listens = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if listens:
        signal.signal(signal.SIGINT, _stop_at_once)
    from dperm.cli.main import main as run

    if listens:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code: Any = 0
    try:
        run()
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:  # pressed again while the answer to the first was being made
        _say(_INTERRUPTED.replace("; nothing was written", ""))
        code = 1
    if code == 1:
        # Python remembers a KeyboardInterrupt that passed through exec(), as in the making of a dataclass, and ends the
        # process by the signal even if it was caught. Registered last, this would run first: so the others run here.
        atexit._run_exitfuncs()
        _flush()
        os._exit(code)
    sys.exit(code)


def _stop_at_once(*_: Any) -> None:
    """End while nothing but imports has happened: an exception could be swallowed by a module that is half loaded."""
    _say(_INTERRUPTED)
    os._exit(1)


def _say(text: str) -> None:
    os.write(2, text.encode())


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed, or nobody reads it
            continue
