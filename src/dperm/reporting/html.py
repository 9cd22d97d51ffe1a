"""The frame of every HTML page: one file without scripts, which loads nothing."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from html import escape

from dperm.reporting.figures import FIGURE_STYLE
from dperm.reporting.style import PAGE_STYLE

__all__ = ["html_page", "html_text"]

#: Unicode categories of characters that do not show, or change the direction of the text around them
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def html_page(title: str, sections: Iterable[str], *, subtitle: str = "", footer: str = "") -> str:
    """Return a page.

    Parameters
    ----------
    title, subtitle, footer : str
        Plain text.
    sections : iterable of str
        HTML; empty ones are left out.
    """
    below = f'<p class="sub">{html_text(subtitle)}</p>' if subtitle else ""
    end = f"<footer>{html_text(footer)}</footer>\n" if footer else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{html_text(title)}</title><style>{PAGE_STYLE}{FIGURE_STYLE}</style></head>\n<body><main>\n"
        f"<header><h1>{html_text(title)}</h1>{below}</header>\n"
        + "\n".join(part for part in sections if part)
        + f"\n{end}</main></body></html>\n"
    )


def html_text(text: str) -> str:
    """Escape a text for HTML; characters that do not show, or turn the rest around, are spelt out."""
    shown = (
        one if unicodedata.category(one) not in _INVISIBLE else one.encode("unicode_escape").decode() for one in text
    )
    return escape("".join(shown))
