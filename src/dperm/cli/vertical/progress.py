"""Progress of runs, shown in the terminal and on a local web page; it contains nothing private."""

from __future__ import annotations

import html
import json
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from dperm.vertical.session.status import PartyStatus, RunStatus

__all__ = ["LATE_SECONDS", "ProgressPage", "TerminalProgress", "format_bytes", "status_as_dict"]

#: a party that has not answered for this long is shown as late
LATE_SECONDS = 5.0


def format_bytes(n: int) -> str:
    """Return a number of bytes in readable form.

    >>> format_bytes(2_500_000)
    '2.5 MB'
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} B"


def _seconds_waiting(party: PartyStatus) -> float:
    return 0.0 if party.waiting_since is None else max(0.0, time.time() - party.waiting_since)


def _state_text(party: PartyStatus) -> str:
    if not party.connected:
        return "not connected"
    if _seconds_waiting(party) > LATE_SECONDS:
        return f"late ({_seconds_waiting(party):.0f} s)"
    return "asked" if party.waiting_since is not None else "answered"


def status_as_dict(status: RunStatus) -> dict[str, Any]:
    """Return a status as plain data for JSON."""
    recent = status.seconds_per_round[-10:]
    return {
        "run": status.run,
        "method": status.method,
        "state": status.state,
        "round": status.round,
        "n_rounds": status.n_rounds,
        "attempt": status.attempt,
        "epsilon": status.epsilon,
        "delta": status.delta,
        "seconds_per_round": round(sum(recent) / max(1, len(recent)), 4),
        "parties": {
            name: {
                "state": _state_text(party),
                "bytes_sent": party.bytes_sent,
                "bytes_received": party.bytes_received,
                "reconnects": party.reconnects,
            }
            for name, party in status.parties.items()
        },
    }


def _table(status: RunStatus) -> Table:
    done = f"{min(status.round, status.n_rounds or 0)} of {status.n_rounds}" if status.n_rounds else "not started"
    budget = "" if status.epsilon is None else f", epsilon {status.epsilon:g} at delta {status.delta:g} reserved"
    table = Table(title=f"{status.run} ({status.method}): {status.state}, round {done}{budget}", box=None)
    for column in ("party", "state", "sent", "received", "reconnects"):
        table.add_column(column)
    for name, party in status.parties.items():
        table.add_row(
            name,
            _state_text(party),
            format_bytes(party.bytes_sent),
            format_bytes(party.bytes_received),
            str(max(0, party.reconnects - 1)),
        )
    return table


class TerminalProgress:
    """Shows runs in the terminal while they are in progress."""

    def __init__(self, statuses: Callable[[], Iterable[RunStatus]], console: Console | None = None) -> None:
        self._statuses = statuses
        self._live = Live(console=console or Console(stderr=True), refresh_per_second=4, get_renderable=self._render)

    def _render(self) -> Group:
        return Group(*(_table(status) for status in self._statuses()))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>dperm runs</title>
<meta http-equiv="refresh" content="2"><style>
body{font:16px/1.4 system-ui,sans-serif;margin:2rem;max-width:60rem}table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.25rem .75rem;border-bottom:1px solid #ddd}progress{width:100%}.late{color:#a40000}
</style><body>"""


def _html(statuses: Iterable[RunStatus]) -> str:
    parts = [_PAGE]
    for status in statuses:
        data = status_as_dict(status)
        parts.append(f"<h1>{html.escape(status.run)}</h1><p>{html.escape(status.method)}: {html.escape(status.state)}")
        if status.n_rounds:
            done = min(status.round, status.n_rounds)
            parts.append(f", round {done} of {status.n_rounds}, {data['seconds_per_round']:g} s per round")
        if status.epsilon is not None:
            parts.append(f"; budget reserved for the whole run: epsilon {status.epsilon:g}, delta {status.delta:g}")
        if status.n_rounds:
            parts.append(f'</p><progress max="{status.n_rounds}" value="{done}"></progress>')
        parts.append("<table><tr><th>party<th>state<th>sent<th>received<th>reconnects</tr>")
        for name, party in status.parties.items():
            late = ' class="late"' if _state_text(party).startswith(("late", "not")) else ""
            parts.append(
                f"<tr{late}><td>{html.escape(name)}<td>{html.escape(_state_text(party))}<td>{format_bytes(party.bytes_sent)}"
                f"<td>{format_bytes(party.bytes_received)}<td>{max(0, party.reconnects - 1)}</tr>"
            )
        parts.append("</table>")
    return "".join(parts)


class ProgressPage:
    """A web page on this machine only: ``/`` for people; ``/status.json``, ``/metrics``, ``/health`` for programs."""

    def __init__(
        self, statuses: Callable[[], Iterable[RunStatus]], metrics: Callable[[], str] = lambda: "", port: int = 0
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                pages: dict[str, tuple[str, Callable[[], str]]] = {
                    "/": ("text/html; charset=utf-8", lambda: _html(statuses())),
                    "/status.json": ("application/json", lambda: json.dumps([status_as_dict(s) for s in statuses()])),
                    "/metrics": ("text/plain; version=0.0.4", metrics),
                    "/health": ("text/plain", lambda: "ok\n"),
                }
                if self.path not in pages:
                    self.send_error(404)
                    return
                kind, content = pages[self.path]
                body = content().encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                """Do not log requests: they come from this machine only."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True, name="page").start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
