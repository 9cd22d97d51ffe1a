"""``dperm collect send`` to a running collector: one report, the same again, and clear errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from dperm.cli.main import cli
from dperm.collect import Collection
from dperm.collect.store.store import open_store
from dperm.errors import InvalidInput, RunError

KNOWN = ["--value", "seconds=3.5", "--value", "mobile=1"]


def _collect(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["collect", *arguments], catch_exceptions=False, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def test_a_report_is_sent_once(
    start: Callable[..., Any], speed: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    collector = start()
    url = f"{collector.url}/v1/speed"

    def reported() -> int:
        with open_store(tmp_path / "collect.db") as store:
            return store.counts(store.find("speed")).n_people

    for arguments, sentence in (
        ([*KNOWN], "--target is missing"),
        (["--value", "seconds=3", "--target", "left"], "--value mobile=... is missing"),
        (["--value", "second=3", "--target", "left"], "a column of seconds, mobile"),
        ([*KNOWN, "--target", "left", "--hash", "00"], "has changed"),
        ([*KNOWN, "--target", "left", "--cap", "0.5"], "epsilon cap of 0.5"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            _collect("send", url, *arguments)
    assert reported() == 0
    assert not (tmp_path / "dperm-reports.json").exists()

    sent = json.loads(_collect("send", url, *KNOWN, "--target", "stayed", "--json"))
    assert (sent["task"], reported()) == (speed.digest, 1)
    unknown = ["--value", "seconds=", "--value", "mobile=", "--target", ""]
    assert json.loads(_collect("send", url, *unknown, "--json")) == sent  # never drawn again
    assert reported() == 1
    assert "sent: statistic" in _collect("send", url, *unknown, "--memo", "other.json")
    assert reported() == 2
    # what is not understood is told to the person, and nobody else
    for k, unclear in enumerate(
        ([*KNOWN, "--target", "Stayed"], ["--value", "seconds=x", *KNOWN[2:], "--target", "left"])
    ):
        assert "counts as unknown" in _collect("send", url, *unclear, "--memo", f"unclear{k}.json")
        assert reported() == 3 + k

    (tmp_path / "broken.json").write_text("garbage")
    with pytest.raises(InvalidInput, match=r"broken\.json' is damaged"):
        _collect("send", url, *KNOWN, "--target", "left", "--memo", "broken.json")
    assert collector.stop() == 0
    with pytest.raises(RunError, match="cannot be reached"):
        _collect("send", url, *KNOWN, "--target", "left")


def test_a_port_that_is_taken(start: Callable[..., Any], speed: Collection, tmp_path: Path) -> None:
    port = str(urlsplit(start().url).port)
    with pytest.raises(RunError, match=f"cannot listen at 127.0.0.1, port {port}"):
        _collect("serve", str(tmp_path / "speed.json"), "--port", port, "--database", str(tmp_path / "other.db"))


def test_counters_are_merged_over_the_network_with_their_secret(
    start: Callable[..., Any], speed: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    collector = start("--counts-secret", str(tmp_path / "secret"))
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    to = ["simulate", "speed.json", "--people", "500", "--url", f"{collector.url}/v1/speed"]
    with pytest.raises(InvalidInput, match="give --url and --batch-secret together"):
        _collect(*to)
    with pytest.raises(RunError, match=r"answered 403: .*need the operator's secret"):
        _collect(*to, "--batch-secret", "secret")  # that of the counters is another one
    _collect(*to, "--batch-secret", "batch-secret")
    with open_store(tmp_path / "other.db", create=True) as other:
        other.register(speed)
    merge = ["merge", f"{collector.url}/v1/speed/counts", "--database", "other.db"]
    with pytest.raises(RunError, match=r"answered 403 .* need --counts-secret"):
        _collect(*merge)
    (tmp_path / "wrong").write_text("0" * 64)
    with pytest.raises(RunError, match="403"):
        _collect(*merge, "--counts-secret", "wrong")
    (tmp_path / "short").write_text("x")
    with pytest.raises(InvalidInput, match="32 letters and digits"):
        _collect(*merge, "--counts-secret", "short")
    assert "500 new reports" in _collect(*merge, "--counts-secret", "secret")
