"""An append-only log of connections, requests, answers and refusals, and traffic counters; neither contains data."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["ActivityLog", "TrafficMetrics"]


class ActivityLog:
    """Writes one JSON object per line; without a path it writes nothing."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._lock = threading.Lock()
        self._handle = None
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._handle = open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a")  # noqa: SIM115

    def write(self, event: str, facts: Mapping[str, Any]) -> None:
        """Write one line."""
        if self._handle is None:
            return
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts}
        with self._lock:
            self._handle.write(json.dumps(line, default=str) + "\n")
            self._handle.flush()

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None


class TrafficMetrics:
    """Counters by name and party, in the text format of Prometheus."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, party: str, amount: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name, party] += amount

    def text(self) -> str:
        """Return all counters."""
        with self._lock:
            rows = sorted(self._counts.items())
        return "".join(f'dperm_vertical_{name}_total{{party="{party}"}} {count}\n' for (name, party), count in rows)
