"""The browser module as it is served: one source, as a plain script and as an ES module, without its comments."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["module", "script"]

_TEXT = re.compile(r'("[^"]*")')
_SHORTER = (
    (re.compile(r"\s*([{}()\[\];,:?<>=*/&|!])\s*"), r"\1"),
    # only between two operands, so that no two signs meet
    (re.compile(r"(?<=[\w)\]]) ?([+-]=?) ?(?=[\w(\[])"), r"\1"),
    (re.compile(r"\((\w+)\)=>"), r"\1=>"),
    (re.compile(r"[;,]}"), "}"),
    # a text needs no blank beside it
    (re.compile(r"^ *(\+?) +| +(\+?) *$"), r"\1\2"),
    # names that the module keeps to itself
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
                "is",
                "all",
                "text",
                "why",
                "lo",
                "hi",
                "end",
                "hex",
            ),
            "CNKFRDMQPATYLHEX",
            strict=True,
        )
    ),
)


@cache
def script() -> str:
    """Return the module for ``<script src>``: it defines ``dperm``."""
    source = files("dperm.collect.sdk").joinpath("js/dperm.js").read_text(encoding="utf-8")
    code = "\n".join(line for line in source.splitlines() if not line.strip().startswith("//"))
    # texts are left as they are: they stand at the odd places
    parts = _TEXT.split(code)
    for pattern, short in _SHORTER:
        parts[::2] = [pattern.sub(short, part) for part in parts[::2]]
    return "".join(parts).strip() + "\n"


@cache
def module() -> str:
    """Return the same code for ``import dperm from``."""
    return script().rstrip() + "export default dperm;\n"
