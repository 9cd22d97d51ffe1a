"""A person's device: stores its finished reports, so that a retry sends the same bits, and limits their epsilon."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .report import RefusedTask, answer, check, check_names, record

__all__ = ["LENGTH", "Device", "load", "parse_task"]

#: length of every report in bytes, padded with blanks: the length reveals nothing
LENGTH = 224

_TIMEOUT_SECONDS = 30.0


def _parse_int(digits: str) -> int | float:
    """Read whole numbers as JavaScript does: long ones are floating-point numbers."""
    return int(digits) if len(digits) < 16 else float(digits)


def parse_task(text: str, hash: str | None = None, url: str = "") -> dict[str, Any]:
    """Return the task in a description's text; with ``hash``, refuses a text with another hash."""
    found = hashlib.sha256(text.encode()).hexdigest()
    if hash is not None and hash != found:
        raise RefusedTask("the task has changed: its hash is not the one that this application expects.")
    try:
        task = json.loads(text, parse_int=_parse_int)
        check(task)
    except (ValueError, TypeError) as error:
        raise RefusedTask(str(error) if isinstance(error, RefusedTask) else "this is not a task.") from None
    return {**task, "hash": found, "url": url}


def load(url: str, hash: str | None = None) -> dict[str, Any]:
    """Fetch a task, such as ``https://collect.example/v1/speed``."""
    with urllib.request.urlopen(url + "/schema", timeout=_TIMEOUT_SECONDS) as response:
        return parse_task(response.read().decode(), hash, url)


class Device:
    """One person's reports in one file.

    Parameters
    ----------
    path : path
        File that stores finished reports. If it is lost, a person may be asked twice.
    cap : float
        Bound on the sum of epsilon over all tasks that this device ever answers.
    """

    def __init__(self, path: str | os.PathLike[str], cap: float = 4.0) -> None:
        self.path, self.cap = Path(path), cap

    def report(self, task: Mapping[str, Any], x: Any, y: Any = None, token: str = "") -> str:
        """Return the finished report. It is made once and stored; later calls return it, whatever values they pass."""
        check(task)
        check_names(task, x)
        name, epsilon = task["hash"], task["task"]["epsilon"]
        with self._locked():
            stored = self._stored()
            if name not in stored:
                if not sum(one[0] for one in stored.values()) + epsilon <= self.cap:
                    raise RefusedTask(f"no report: it would exceed this device's epsilon cap of {self.cap:g}.")
                # the collector would refuse the report, and the device never makes another
                if not re.fullmatch("[0-9a-f]{64}" if task.get("tokens") else "", token):
                    raise RefusedTask(
                        "no report: this collection needs a one-time token of 64 lower-case hexadecimal digits."
                        if task.get("tokens")
                        else "no report: this collection takes no tokens, leave the token out."
                    )
                j, b = answer(task, record(task, x, y))
                made = {"task": name, "id": token[:32] or secrets.token_hex(16), "j": j, "b": b}
                if token:
                    made["token"] = token[32:]
                stored[name] = [epsilon, json.dumps(made, separators=(",", ":")).ljust(LENGTH)]
                self._store(stored)
        return str(stored[name][1])

    def send(self, task: Mapping[str, Any], report: str) -> bool:
        """Send a report; True if the service has it, now or from an earlier call."""
        headers = {"Content-Type": "text/plain;charset=UTF-8", "User-Agent": "dperm"}
        request = urllib.request.Request(task["url"] + "/reports", report.encode(), headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
                return bool(200 <= response.status < 300)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    def _stored(self) -> dict[str, Any]:
        """The finished reports; only an object of reports counts, and a file that is not there."""
        try:
            text = self.path.read_text(encoding="ascii")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            text = ""
        with suppress(ValueError, RecursionError):
            stored = json.loads(text)
            if isinstance(stored, dict) and all(map(_finished, stored.values())):
                return stored
        # it may hold reports that were sent: a new one would cost epsilon again
        raise RefusedTask(
            f"no report: {str(self.path)!r} is damaged; restore it, because it may hold reports that were sent."
        )

    def _store(self, stored: Mapping[str, Any]) -> None:
        """Replace the whole file; it is on disk before the report is returned."""
        handle, draft = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                json.dump(stored, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.path)
            # a file system that forgets would let the next call draw again
            if self._stored() != stored:
                raise RefusedTask(f"no report: {str(self.path)!r} does not keep what is written to it.")
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process at a time make a report."""
        with self.path.with_name(self.path.name + ".lock").open("w") as lock:
            try:
                import fcntl
            except ImportError:  # this platform has no file locks
                yield
                return
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _finished(one: Any) -> bool:
    """Whether a stored value is a report with the epsilon that it cost."""
    if not isinstance(one, list) or len(one) != 2 or type(one[0]) not in (int, float):
        return False
    return 0.0 < one[0] < math.inf and isinstance(one[1], str) and len(one[1]) == LENGTH
