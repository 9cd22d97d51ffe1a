"""All mutants of a folder, and the sample that is run: the same for the same code, whatever the machine.

A mutant is known by its content: its file, the function it is in, its line and the change. The sample is ordered by
a hash of the seed and of that content, so a change of the code replaces the mutants of the changed lines and no others.
One position of the code gives at most one mutant: the sample is over positions, not over ways to change them.
"""

from __future__ import annotations

import hashlib
import textwrap
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from .definitions import definitions, innermost
from .operators import OPERATORS, operator
from .places import Places

SEED = 20261118
#: how many mutants of each folder below src/dperm: every folder enough for a share of its own, the core of privacy most
SHARES = {
    "privacy": 110,
    "queries": 60,
    "data/holding": 40,
    "estimators": 40,
    "solvers/central": 60,
}


#: operators that look at one type of syntax only: the others need not be shown to them
_ONLY = {"ReplaceBinaryOperator": "operator", "ReplaceComparisonOperator": "comparison"}


@dataclass(frozen=True)
class Position:
    """A place of a file and a way to change it, as Cosmic Ray finds it; made into a mutant when it is drawn."""

    file: str
    where: str  # the function or class it is in; empty at the level of the module
    operator: str
    occurrence: int
    start: tuple[int, int]
    end: tuple[int, int]
    key: str  # by content


@dataclass(frozen=True)
class Mutant:
    """One change of one file below ``src/dperm``."""

    position: Position
    before: str  # the changed lines
    after: str
    text: str = field(repr=False)  # the whole file with the change

    @property
    def key(self) -> str:
        """Name of the mutant: the same as long as its function has this line."""
        return self.position.key[:12]

    @property
    def file(self) -> str:
        return self.position.file

    @property
    def line(self) -> int:
        return self.position.start[0]

    @property
    def where(self) -> str:
        return self.position.where

    @property
    def folder(self) -> str:
        return next(folder for folder in SHARES if self.file.startswith(f"{folder}/"))

    @property
    def diff(self) -> str:
        before, after = (textwrap.dedent(text).splitlines() for text in (self.before, self.after))
        return "\n".join([*(f"- {line}" for line in before), *(f"+ {line}" for line in after)])


def sample(source: Path, shares: dict[str, int] = SHARES, seed: int = SEED) -> list[Mutant]:
    """Return the mutants to run, in the order in which they are run: folders mixed, so a part of a run is fair too."""
    chosen = []
    for folder, number in shares.items():
        found, taken = list[Mutant](), set[tuple[str, tuple[int, int]]]()
        for position in sorted(positions(source, folder), key=lambda one: _hash(str(seed), one.key)):
            if len(found) == number:
                break
            if (position.file, position.start) not in taken:
                mutant = mutate(position, (source / position.file).read_text("utf-8"))
                if mutant is not None:
                    taken.add((position.file, position.start))
                    found.append(mutant)
        chosen += found
    return sorted(chosen, key=lambda one: _hash(str(seed), one.key))


def positions(source: Path, folder: str) -> list[Position]:
    """Return every position of the files of a folder below ``source``."""
    files = sorted((source / folder).rglob("*.py"))
    return [one for file in files for one in positions_of(file.relative_to(source).as_posix(), file.read_text("utf-8"))]


def positions_of(file: str, text: str) -> list[Position]:
    """Return every position of one file."""
    places, known, lines = Places(file, text), definitions(text), text.splitlines()
    by_type: dict[str, list[Any]] = {"": [*ast_nodes(get_ast(text))]}
    for kind in _ONLY.values():
        by_type[kind] = [node for node in by_type[""] if node.type == kind]
    found, seen = list[Position](), Counter[tuple[str, ...]]()
    for name in OPERATORS:
        tool = operator(name)
        nodes = by_type[_ONLY.get(name.rpartition("/")[2].partition("_")[0], "")]
        spans = (span for node in nodes for span in tool.mutation_positions(node))
        for occurrence, (start, end) in enumerate(spans):
            if places.excluded(*start):
                continue
            around = innermost(known, start[0])
            where = around.name if around else ""
            content = (file, where, name, lines[start[0] - 1].strip())
            key = _hash(*content, str(seen[content]))
            seen[content] += 1
            found.append(Position(file, where, name, occurrence, start, end, key))
    return found


def mutate(position: Position, text: str) -> Mutant | None:
    """Make the change in the file's text; None where it gives no other program."""
    changed = mutate_code(text, operator(position.operator), position.occurrence)
    if changed is None or changed == text or not _compiles(changed):
        return None
    return Mutant(position, *_difference(text.splitlines(), changed.splitlines()), changed)


def _difference(before: list[str], after: list[str]) -> tuple[str, str]:
    """Return the lines that differ: one block, since a mutant has one change."""
    first = next(number for number, (one, other) in enumerate(zip(before, after, strict=False)) if one != other)
    last = next(
        number
        for number, (one, other) in enumerate(zip(reversed(before), reversed(after), strict=False))
        if one != other
    )
    return "\n".join(before[first : len(before) - last]), "\n".join(after[first : len(after) - last])


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
