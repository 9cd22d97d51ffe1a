"""Forged descriptions and ``dperm collect send``: no value decides whether a report leaves, nor how it looks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dperm.cli.main import cli
from dperm.collect import Collection
from dperm.collect.sdk import python as sdk
from dperm.errors import InvalidInput

#: forged records of a description; the honest classes are left and stayed
RECORDS: list[Any] = [
    {},
    *({"classes": classes} for classes in (["gone", "stayed"], ["left"], [], "left", "", 5, {}, {"left": 1}, None)),
    *({"classes": classes} for classes in ([["left"], {}], [None, 1], [True, False], ["left", "stayed", "more"])),
    *({"target": target} for target in ([0, 1], "x", None, [], 5)),
    {"classes": None, "target": [0, 1]},
    {"constant": "x", "clip": None},
]
COLUMNS: list[Any] = ["ab", 5, None, ["seconds"], ["seconds", "seconds"], [["seconds"], "mood"], [0, {}], ["s", "mood"]]
#: what people write; the last of both are the ones that nobody can read
VALUES = ["3.5", "", "true", "nan", "1e999", "high"]
TARGETS = ["left", "stayed", "", "1", "true", "nobody"]


@pytest.fixture
def send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Result, list[str]]]:
    """Send one person's report; returns the result and what left for the collector."""
    left: list[str] = []
    number = itertools.count()
    monkeypatch.setattr(sdk.Device, "send", lambda self, task, report: left.append(report) is None)

    def run(document: dict[str, Any], *options: str) -> tuple[Result, list[str]]:
        monkeypatch.setattr(sdk, "load", lambda url, digest: {**document, "hash": "h" * 64, "url": url})
        left.clear()
        memo = str(tmp_path / f"{next(number)}.json")
        arguments = ["collect", "send", "http://127.0.0.1:9/v1/x", "--memo", memo, *options]
        return CliRunner().invoke(cli, arguments, standalone_mode=False), list(left)

    return run


def _outcomes(send: Callable[..., Any], document: dict[str, Any], with_target: bool) -> set[Any]:
    """Everything that may differ between persons: how the command ends and what leaves."""
    people = [("3.5", target) for target in TARGETS] + [(value, "left") for value in VALUES]
    out = set()
    for value, target in people:
        options = ["--value", f"seconds={value}", "--value", "mood=0", *(["--target", target] if with_target else [])]
        done, left = send(document, *options)
        assert done.exception is None or isinstance(done.exception, InvalidInput), repr(done.exception)
        out.add((done.exit_code, str(done.exception), *map(len, left)))
    return out


@pytest.mark.parametrize("with_target", [True, False])
def test_whether_a_report_leaves_does_not_depend_on_values(
    send: Callable[..., Any], logistic: Collection, with_target: bool
) -> None:
    honest = logistic.document()
    forged = [{**honest, "record": {**honest["record"], **change}} for change in RECORDS]
    forged += [{**honest, "record": record} for record in ("x", None, [], 5)]
    forged += [{**honest, "columns": columns} for columns in COLUMNS]
    n_sent = 0
    for document in forged:
        outcomes = _outcomes(send, document, with_target)
        assert len(outcomes) == 1, (document["record"], document["columns"], outcomes)
        n_sent += len(outcomes.pop()) == 3
    assert n_sent > (10 if with_target else 3)  # not all are refused


def test_the_person_is_told_what_was_not_understood(send: Callable[..., Any], logistic: Collection) -> None:
    known = ["--value", "seconds=3", "--value", "mood=0"]
    for options, note in (
        ([*known, "--target", "Left"], "there is no class 'Left': the classes are left, stayed."),
        (["--value", "seconds=3s", *known[2:], "--target", "left"], "value of 'seconds' must be a number, not '3s'."),
        ([*known, "--target", "left"], ""),
        ([*known, "--target", ""], ""),
    ):
        done, left = send(logistic.document(), *options)
        assert (done.exit_code, len(left)) == (0, 1)
        assert note in done.stderr
        assert bool(note) == ("counts as unknown" in done.stderr)
        assert "note" not in done.stdout


def test_what_is_not_understood_counts_as_unknown(
    send: Callable[..., Any], monkeypatch: Any, logistic: Collection
) -> None:
    given: list[Any] = []

    def report(self: Any, task: Any, x: Any, y: Any, token: str) -> str:
        given.append((x, y))
        return '{"j": 0, "b": 0}'

    monkeypatch.setattr(sdk.Device, "report", report)
    for value, target in (("high", "nobody"), ("", ""), ("2", "left")):
        send(logistic.document(), "--value", f"seconds={value}", "--value", "mood=0", "--target", target)
    assert given[0] == given[1] == ({"seconds": None, "mood": 0.0}, None)
    assert given[2] == ({"seconds": 2.0, "mood": 0.0}, "left")
