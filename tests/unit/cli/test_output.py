"""Output of commands in a terminal, in a pipe, as JSON, and with ``--quiet``."""

from __future__ import annotations

import io
import sys

import pytest

from dperm.cli.output import Output


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def streams(monkeypatch):
    """Replace standard output and standard error by two streams."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    def place(made):
        out, err = made(), made()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        return out, err

    return place


def advance(output):
    with output.progress("fitting") as bar:
        bar(1, 2)


def test_a_terminal_shows_a_bar_and_bold_headings(streams):
    out, err = streams(Terminal)
    advance(Output())
    assert "fitting" in err.getvalue()
    assert "50%" in err.getvalue()
    with Output().progress("fitting") as bar:
        bar.named("reading rows")(1, 4)
    assert "reading rows" in err.getvalue()
    Output().table(("column", "effect"), [("age", "[bold]+1[/bold]")])
    assert "\x1b[1m" in out.getvalue()
    assert "[bold]+1[/bold]" in out.getvalue()  # names are not read as markup


def test_a_pipe_gets_plain_lines_and_no_bar(streams):
    out, err = streams(io.StringIO)
    advance(Output())
    Output().table(("column", "effect"), [("age " * 60, "+1")])
    assert err.getvalue() == ""
    assert "\x1b" not in out.getvalue()
    assert len(out.getvalue().splitlines()) == 2


@pytest.mark.parametrize("made", [Terminal, io.StringIO])
def test_quiet_prints_nothing_and_json_shows_no_bar(streams, made):
    out, err = streams(made)
    for output in (Output(quiet=True), Output(as_json=True)):
        advance(output)
    Output(quiet=True).note("note: something")
    Output(quiet=True).result({}, lambda output: output.text("a result"))
    assert (out.getvalue(), err.getvalue()) == ("", "")
    Output().note("note: something")
    assert err.getvalue() == "note: something\n"
