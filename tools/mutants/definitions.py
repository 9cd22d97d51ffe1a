"""The functions and classes of a file, by the lines that they span."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    name: str  # with the classes around it, such as "DataHolder.release"
    first: int
    last: int


def definitions(text: str) -> list[Definition]:
    """Return all definitions, those inside others after them."""
    return _within(ast.parse(text), "")


def innermost(known: list[Definition], line: int) -> Definition | None:
    """Return the smallest definition that contains a line; None at the level of the module."""
    around = [one for one in known if one.first <= line <= one.last]
    return around[-1] if around else None


def _within(node: ast.AST, prefix: str) -> list[Definition]:
    found = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = prefix + child.name
            found.append(Definition(name, child.lineno, child.end_lineno or child.lineno))
            found += _within(child, f"{name}.")
        else:
            found += _within(child, prefix)
    return found
