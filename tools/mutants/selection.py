"""The tests that a mutant is given, in order: those that run its line, nearest and fastest first, for some seconds.

A line of a module or class body runs at import, in no test. It is given the tests of the lines of its file that use
the names it defines. If there are none, or if no test runs a line, it is given the tests of its function, else of its
file.
"""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath

from .coverage_map import CoverageMap
from .definitions import definitions, innermost
from .sampling import Mutant

#: processor seconds of tests that each mutant is given; one that outlives them counts as a survivor
SECONDS = 12.0
_CONTRACTS = "tests/contracts/"


def selected(mutant: Mutant, known: CoverageMap, seconds: float = SECONDS) -> dict[str, float]:
    """Return the tests to run, each with its seconds; empty if no test runs anything of the file."""
    numbers = _reaching(mutant, known)
    by_speed = sorted(numbers, key=lambda number: (known.seconds[number], known.tests[number]))
    own_file = f"test_{PurePosixPath(mutant.file).stem}"
    own = [number for number in by_speed if PurePosixPath(known.tests[number].partition("::")[0]).stem == own_file]
    contracts = [number for number in by_speed if known.tests[number].startswith(_CONTRACTS)]
    # a third each for the tests of the module, for all by speed, and for the contract suites, which are slow; what one
    # of them leaves goes to all
    chosen: dict[int, float] = {}
    for group, limit in ((own, seconds / 3), (by_speed, seconds / 3), (contracts, seconds / 3), (by_speed, seconds)):
        _take(chosen, group, known, limit, seconds)
    return {known.tests[number]: cost for number, cost in chosen.items()}


def _take(chosen: dict[int, float], group: list[int], known: CoverageMap, limit: float, total: float) -> None:
    used = 0.0
    for number in group:
        cost = known.seconds[number]
        if number in chosen:
            continue
        if chosen and (used + cost > limit or sum(chosen.values()) + cost > total):
            break
        chosen[number] = cost
        used += cost


def _reaching(mutant: Mutant, known: CoverageMap) -> set[int]:
    text = known.sources[mutant.file]
    statement = _statement(ast.parse(text), mutant.line)
    found = known.of(mutant.file, _own_lines(statement) if statement is not None else [mutant.line])
    if found:
        return found
    around = innermost(definitions(text), mutant.line)
    if statement is not None and (names := _defined(statement)):
        using = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
        found = known.of(mutant.file, [n for n, line in enumerate(text.splitlines(), 1) if using.search(line)])
    if not found and around is not None:
        found = known.of(mutant.file, range(around.first, around.last + 1))
    return found or known.of(mutant.file, known.lines.get(mutant.file, {}))


def _statement(tree: ast.AST, line: int) -> ast.stmt | None:
    """Return the smallest statement that contains a line."""
    around = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return min(around, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)


def _own_lines(statement: ast.stmt) -> range:
    """Return the lines of a statement without the statements inside it."""
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else statement.end_lineno or statement.lineno
    return range(statement.lineno, max(last, statement.lineno) + 1)


def _defined(statement: ast.stmt) -> set[str]:
    """Return the names that a statement defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
