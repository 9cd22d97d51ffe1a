"""Shorten the browser module for the service: one source, served as a plain script and as an ES module."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["module", "script", "shortened"]

# A string, or a regular expression with its flags. A regular expression follows a character after which a value begins,
# and no word follows it: without the blank between them, the word would be read as a flag.
_KEPT = re.compile(
    r"""("[^"]*"|(?:(?<=[(,=:\[!&|?;{>])|(?<=[(,=:\[!&|?;{>][ ]))"""
    r"""/(?![/*])(?:\\.|\[(?:\\.|[^]\\\n])*\]|[^/[\\\n])+/[a-z]*(?!\s*\w))"""
)
# Any other slash must be a division, which follows a value on the same line.
_UNCLEAR = re.compile(
    r"(?<![\w)\]])(?<![\w)\]] )/"
    r"|\b(?:await|case|delete|do|else|in|instanceof|new|of|return|throw|typeof|void|yield) ?/"
)
_SHORTER = (
    (re.compile(r"\s*([{}()\[\];,:?<>=*/&|!])\s*"), r"\1"),
    # only between two operands, so that no two signs become adjacent
    (re.compile(r"(?<=[\w)\]]) ?([+-]=?) ?(?=[\w(\[])"), r"\1"),
    (re.compile(r"\((\w+)\)=>"), r"\1=>"),
    (re.compile(r"[;,]}"), "}"),
    # a string needs no blank beside it
    (re.compile(r"^ *(\+?) +| +(\+?) *$"), r"\1\2"),
    # shorter words for the same
    (re.compile(r"\bconst\b"), "let"),
    (re.compile(r"\btrue\b"), "!0"),
    (re.compile(r"(?<![\w.])0(?=\.\d)"), ""),
    # names that are private to the module
    *(
        (re.compile(rf"(?<![.\w]){name}\b"), short)
        for name, short in zip(
            (
                "clamp",
                "number",
                "kinds",
                "fail",
                "random",
                "draw",
                "make",
                "check",
                "list",
                "all",
                "text",
                "why",
                "lo",
                "hi",
                "end",
                "hex",
                "names",
                "total",
            ),
            "CNKFRDMQPATYLHEXIS",
            strict=True,
        )
    ),
)


def shortened(source: str) -> str:
    """Return a script without comments, unnecessary blanks and long private names.

    Strings and regular expressions stay as they are. A slash that may be either a division or a regular expression is
    refused, because blanks and names matter only in a regular expression. After a closing parenthesis it is a
    division.
    """
    code = "\n".join(line for line in source.splitlines() if not line.strip().startswith("//"))
    parts = _KEPT.split(code)  # strings and regular expressions are at the odd places
    if unclear := next(filter(None, map(_UNCLEAR.search, parts[::2])), None):
        near = unclear.string[max(unclear.end() - 20, 0) : unclear.end() + 20]
        raise ValueError(f"a division or a regular expression? {near!r}: put a regular expression into parentheses.")
    for pattern, short in _SHORTER:
        parts[::2] = [pattern.sub(short, part) for part in parts[::2]]
    return "".join(parts).strip() + "\n"


@cache
def script() -> str:
    """Return the module for ``<script src>``: it defines ``dperm``."""
    return shortened(files("dperm.collect.sdk").joinpath("js/dperm.js").read_text(encoding="utf-8"))


@cache
def module() -> str:
    """Return the same code for ``import dperm from``."""
    return script().replace("var dperm=", "export default", 1)
