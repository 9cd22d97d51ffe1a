"""What the pages of both kinds of audits have in common."""

from __future__ import annotations

from collections.abc import Iterable

from dperm.audit.result import Verdict
from dperm.reporting.html import html_text

__all__ = ["list_of", "verdict_box"]

_STYLES = {
    Verdict.VIOLATION: "verdict none",
    Verdict.WEAKNESS: "verdict weak",
    Verdict.TOO_WEAK: "verdict weak",
    Verdict.NOT_RUN: "verdict weak",
    Verdict.NOTHING: "verdict",
}


def verdict_box(verdict: Verdict, sentence: str) -> str:
    """Return the box at the top of a page."""
    name = html_text(str(verdict).capitalize())
    return f'<div class="{_STYLES[verdict]}"><strong>{name}.</strong> {html_text(sentence)}</div>'


def list_of(sentences: Iterable[str]) -> str:
    """Return a list; nothing if there are no sentences."""
    items = "".join(f"<li>{html_text(one)}</li>" for one in sentences)
    return f"<ul>{items}</ul>" if items else ""
