"""A device: keeps its finished reports, so that a retry sends the same bits, and a cap on their epsilon."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dperm.collect.sdk.python.report import RefusedTask, answer, check, record

__all__ = ["LENGTH", "Device", "load", "opened"]

#: length of every report in bytes, filled up with blanks: it tells nothing
LENGTH = 224

_SECONDS = 30.0


def _whole(digits: str) -> int | float:
    """Read whole numbers as JavaScript does: long ones are floating-point numbers."""
    return int(digits) if len(digits) < 16 else float(digits)


def opened(text: str, hash: str | None = None, url: str = "") -> dict[str, Any]:
    """Return a task from the text that the service serves; refuses another one than ``hash`` names."""
    found = hashlib.sha256(text.encode()).hexdigest()
    if hash is not None and hash != found:
        raise RefusedTask("the task has changed: its hash is not the one that this application was built for.")
    try:
        task = json.loads(text, parse_int=_whole)
        check(task)
    except (ValueError, TypeError) as error:
        raise RefusedTask(str(error) if isinstance(error, RefusedTask) else "this is not a task.") from None
    return {**task, "hash": found, "url": url}


def load(url: str, hash: str | None = None) -> dict[str, Any]:
    """Fetch a task, such as ``https://collect.example/v1/speed``."""
    with urllib.request.urlopen(url + "/schema", timeout=_SECONDS) as response:
        return opened(response.read().decode(), hash, url)


class Device:
    """One person's reports in one file.

    Parameters
    ----------
    path : path
        File that keeps finished reports. Without it, or if it is lost, a person could be asked twice.
    cap : float
        Bound on the sum of epsilon over all tasks that this device ever answers.
    """

    def __init__(self, path: str | os.PathLike[str], cap: float = 4.0) -> None:
        self.path, self.cap = Path(path), cap

    def report(self, task: Mapping[str, Any], x: Any, y: Any = None, token: str = "") -> str:
        """Return the finished report: made once and kept, the same whatever a later call is given."""
        check(task)
        name, epsilon = task["hash"], task["task"]["epsilon"]
        with self._alone():
            kept = self._kept()
            if name not in kept:
                if not sum(one[0] for one in kept.values()) + epsilon <= self.cap:
                    raise RefusedTask(f"no report: it would pass this device's cap of epsilon {self.cap:g}.")
                # the collector would refuse the report, and there is never another
                if not re.fullmatch("[0-9a-f]{64}" if task.get("tokens") else "", token):
                    raise RefusedTask(
                        "no report: this collection needs a one-time token of 64 hexadecimal digits in small letters."
                        if task.get("tokens")
                        else "no report: this collection takes no tokens, leave it out."
                    )
                j, b = answer(task, record(task, x, y))
                made = {"task": name, "id": token[:32] or secrets.token_hex(16), "j": j, "b": b}
                if token:
                    made["token"] = token[32:]
                kept[name] = [epsilon, json.dumps(made, separators=(",", ":")).ljust(LENGTH)]
                self._keep(kept)
        return str(kept[name][1])

    def send(self, task: Mapping[str, Any], report: str) -> bool:
        """Send a report; True if the service has it, also if it had it before."""
        headers = {"Content-Type": "text/plain;charset=UTF-8", "User-Agent": "dperm"}
        request = urllib.request.Request(task["url"] + "/reports", report.encode(), headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as response:
                return bool(200 <= response.status < 300)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    def _kept(self) -> dict[str, Any]:
        try:
            kept = json.loads(self.path.read_text(encoding="ascii")) if self.path.exists() else {}
            if all(isinstance(one[0], int | float) and isinstance(one[1], str) for one in kept.values()):
                return dict(kept)
        except (ValueError, TypeError, AttributeError, LookupError):
            pass
        # it may hold reports that were sent: a new one could cost a second time
        raise RefusedTask(f"no report: {str(self.path)!r} is damaged, restore it; reports that it kept are unknown.")

    def _keep(self, kept: Mapping[str, Any]) -> None:
        """Replace the file whole, on disk before the report is handed out."""
        handle, draft = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                json.dump(kept, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self.path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one process at a time make a report."""
        with self.path.with_name(self.path.name + ".lock").open("w") as lock:
            try:
                import fcntl
            except ImportError:  # a platform without file locks
                yield
                return
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
