"""The progress display: the local web page and the terminal."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from dperm.cli.vertical.progress import ProgressPage, TerminalProgress, status_as_dict
from dperm.vertical.session.status import PartyStatus, RunStatus
from dperm.vertical.transport.activity_log import TrafficMetrics


def test_the_progress_page_shows_who_is_late_and_nothing_private():
    status = RunStatus("fit-1", "admm-sharing", step=6, n_rounds=10, epsilon=1.0, delta=1e-6, state="running")
    status.parties = {"org-a": PartyStatus(True, 2000, 3_000_000), "org-b": PartyStatus(True, waiting_since=1.0)}
    metrics = TrafficMetrics()
    metrics.add("bytes_sent", "org-a", 5)
    page = ProgressPage(lambda: [status], metrics.text)
    try:
        text = urllib.request.urlopen(page.url).read().decode()
        data = json.loads(urllib.request.urlopen(page.url + "status.json").read())[0]
        counters = urllib.request.urlopen(page.url + "metrics").read().decode()
        assert urllib.request.urlopen(page.url + "health").read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(page.url + "other")
        missing.value.close()
    finally:
        page.close()
    assert "round 3 of 10" in text
    assert "3.0 MB" in text
    assert "late" in text
    assert data["round"] == 3
    assert data["parties"]["org-b"]["state"].startswith("late")
    assert set(data) == set(status_as_dict(status))
    assert counters == 'dperm_vertical_bytes_sent_total{party="org-a"} 5\n'


def test_the_terminal_view():
    from rich.console import Console

    status = RunStatus("fit-1", "align", n_rounds=2, step=3, parties={"org-a": PartyStatus()})
    console = Console(record=True, width=100, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file, TerminalProgress(lambda: [status], console):
        pass
    assert "not connected" in console.export_text()
