"""Where no change is made, by rule: text for people and declarations. Nothing private is computed there.

- the text of errors and warnings: whatever stands inside ``raise`` or ``warnings.warn(...)``. Whether an error is
  raised is decided outside, and is changed;
- f-strings, wherever they stand;
- functions that only describe an object: ``__repr__``, ``__str__``, ``_repr_html_``, ``__sklearn_tags__``, ...;
- type annotations, overloads, and what stands under ``if TYPE_CHECKING``;
- arguments of decorators, such as ``@dataclass(frozen=True)``, and the ``*`` between parameters;
- ``strict=`` of ``zip``, a guard against mistakes in the code, and ``repr=`` of fields;
- functions that numba compiles: the compiled code is cached, and a change would need a compilation for each test run;
- ``UNREACHED``: files that show progress.
"""

from __future__ import annotations

import ast

DESCRIBING = {"__repr__", "__str__", "_repr_html_", "__sklearn_tags__", "_more_tags", "__dir__"}
GUARDS = {"strict", "repr"}
COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "overload"}
UNREACHED = ("estimators/progress.py",)


class Places:
    """The parts of a file in which no change is made."""

    def __init__(self, file: str, text: str) -> None:
        self._whole = file in UNREACHED
        self._lines = text.splitlines()
        self._spans = [self._span(part) for node in ast.walk(ast.parse(text)) for part in _excluded(node)]

    def excluded(self, line: int, column: int) -> bool:
        """Whether a position is in such a part. Lines count from 1 and columns from 0, in characters."""
        between = self._lines[line - 1][column:].startswith("*,")
        return self._whole or between or any(start <= (line, column) < end for start, end in self._spans)

    def _span(self, node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
        start = node.lineno, self._characters(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = node.end_lineno, self._characters(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return start, end

    def _characters(self, line: int, column: int) -> int:
        # ast counts columns in bytes
        return len(self._lines[line - 1].encode()[:column].decode())


def _excluded(node: ast.AST) -> list[ast.AST]:
    """Return the parts of one node that are left alone."""
    if isinstance(node, ast.Raise | ast.JoinedStr):
        return [node]
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
        return [node]
    if isinstance(node, ast.keyword):
        return [node] if node.arg in GUARDS else []
    if isinstance(node, ast.AnnAssign):
        return [node.annotation]
    if isinstance(node, ast.arg):
        return [node.annotation] if node.annotation is not None else []
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return [node]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        called = {ast.unparse(one).partition("(")[0].rpartition(".")[2] for one in node.decorator_list}
        if node.name in DESCRIBING or called & COMPILERS:
            return [node, *node.decorator_list]
        return [*node.decorator_list, *([node.returns] if node.returns is not None else [])]
    if isinstance(node, ast.ClassDef):
        return list(node.decorator_list)
    return []
