"""Are the proofs still about this code? Every ``.proof.md`` lists the code that it covers, each with a digest.

A proof ends with a section like this:

    ## Covered code

    - `privacy/local/one_bit.py::OneBit` `5f0c3a9d41be`

When the code behind a digest changes, the test suite fails until somebody has read the proof again. Then
``make proofs`` (this program with ``--confirm``) writes the new digests. Confirm only what you have read:
``python tools/proofs.py --confirm src/dperm/privacy/local/one_bit.proof.md`` confirms one file.

A digest is taken from the syntax tree without docstrings: comments, layout and wording do not change it. It includes
whatever the named code uses of its own file: constants, helper functions and base classes. It is the same in every
version of Python.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src" / "dperm"
HEADING = "## Covered code"
_ENTRY = re.compile(r"^- `(?P<file>[\w/]+\.\w+)(?:::(?P<name>[\w.]+))?`(?: `(?P<digest>[0-9a-f]+)`)?$")
_DIGITS = 12  # 48 bits: two versions of one function collide by chance once in 10^14


@dataclass(frozen=True)
class Covered:
    """Code that a proof relies on, as its section lists it: a function, class or constant, or a whole file."""

    file: str
    name: str | None
    digest: str | None

    @property
    def title(self) -> str:
        return self.file if self.name is None else f"{self.file}::{self.name}"


class ProofError(Exception):
    """A proof's section is missing or names code that does not exist."""


def covered(proof: Path) -> list[Covered]:
    """Return the entries of a proof's section."""
    text = proof.read_text(encoding="utf-8")
    if text.count(f"\n{HEADING}\n") != 1:
        raise ProofError(f"{proof.name}: needs one section {HEADING!r} that lists the code it covers.")
    found = []
    for line in text.partition(f"\n{HEADING}\n")[2].strip().splitlines():
        entry = _ENTRY.match(line)
        if entry is None:
            raise ProofError(f"{proof.name}: {line!r} is not of the form - `file.py::name` `digest`.")
        found.append(Covered(entry["file"], entry["name"], entry["digest"]))
    if not found:
        raise ProofError(f"{proof.name}: the section {HEADING!r} is empty.")
    return found


def digest(entry: Covered, source: Path = SOURCE) -> str:
    """Return the digest of the code that an entry names, as it is now.

    It covers the named code and whatever that code uses of the same file, however indirectly: constants, helper
    functions, base classes. An entry without a name covers a whole file, of any language.
    """
    path = source / entry.file
    if not path.is_file():
        raise ProofError(f"{entry.file} does not exist.")
    if entry.name is None:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGITS]
    module = _Module.of(path.read_text(encoding="utf-8"))
    parts = entry.name.split(".")
    found = module.bound.get(parts[0], [])
    for part in parts[1:]:
        found = [one for node in found for one in _bindings(node).get(part, [])]
    if not found:
        raise ProofError(f"{entry.file} has no {entry.name}.")
    used = module.used_by(found)
    text = "\n".join([*(_dump(node) for node in found), *(_dump(node) for name in used for node in module.bound[name])])
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True)
class _Module:
    """What the names of a file are bound to."""

    bound: dict[str, list[ast.AST]]

    @staticmethod
    @cache
    def of(text: str) -> _Module:
        return _Module(_bindings(_without_docstrings(ast.parse(text))))

    def used_by(self, nodes: Iterable[ast.AST]) -> list[str]:
        """Return the names of this file that some code uses, directly or through others; sorted."""
        known, waiting = set[str](), list(nodes)
        while waiting:
            for one in ast.walk(waiting.pop()):
                if isinstance(one, ast.Name) and one.id in self.bound and one.id not in known:
                    known.add(one.id)
                    waiting += self.bound[one.id]
        return sorted(known)


def _bindings(node: ast.AST) -> dict[str, list[ast.AST]]:
    """Return what each name of a module or class is bound to; an overload or a branch gives it several."""
    bound: dict[str, list[ast.AST]] = {}
    for one in _statements(node):
        names: list[str] = []
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [one.name]
        elif isinstance(one, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        for name in names:
            bound.setdefault(name, []).append(one)
    return bound


def _statements(node: ast.AST) -> Iterable[ast.stmt]:
    """All statements of a module or class, also those that depend on a version or a platform."""
    for field in ("body", "orelse", "handlers", "finalbody"):
        for one in getattr(node, field, []):
            if isinstance(one, ast.stmt):
                yield one
            if isinstance(one, ast.If | ast.Try | ast.With | ast.ExceptHandler):
                yield from _statements(one)


def _without_docstrings(node: ast.AST) -> ast.AST:
    for one in ast.walk(node):
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if ast.get_docstring(one) is not None:
            one.body = one.body[1:] or [ast.Pass()]
    return node


def _dump(node: Any) -> str:
    """A syntax tree as text that is the same in every version of Python: fields that are empty are left out."""
    if isinstance(node, ast.AST):
        filled = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
        return f"{type(node).__name__}({', '.join(f'{name}={_dump(value)}' for name, value in filled)})"
    if isinstance(node, list):
        return f"[{', '.join(_dump(one) for one in node)}]"
    return repr(node)


def problems(proof: Path, source: Path = SOURCE) -> list[str]:
    """Return what is wrong with a proof's section: nothing if the code is as it was when the proof was read."""
    try:
        entries = covered(proof)
    except ProofError as error:
        return [str(error)]
    found = []
    for entry in entries:
        try:
            now = digest(entry, source)
        except ProofError as error:
            found.append(f"{proof.name}: {error}")
            continue
        if entry.digest is None:
            found.append(f"{proof.name}: {entry.title} has never been confirmed.")
        elif entry.digest != now:
            found.append(f"{proof.name}: {entry.title} has changed since the proof was read.")
    return found


def confirm(proof: Path, source: Path = SOURCE) -> bool:
    """Write the present digests into a proof; return whether any was new."""
    text = proof.read_text(encoding="utf-8")
    head, heading, _ = text.partition(f"\n{HEADING}\n")
    lines = [f"- `{entry.title}` `{digest(entry, source)}`" for entry in covered(proof)]
    renewed = f"{head}{heading}\n" + "\n".join(lines) + "\n"
    if renewed != text:
        proof.write_text(renewed, encoding="utf-8")
    return renewed != text


def all_proofs(source: Path = SOURCE) -> list[Path]:
    """Return every proof of the package."""
    return sorted(source.rglob("*.proof.md"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check that proofs are about the present code.")
    parser.add_argument("proofs", nargs="*", type=Path, help="proof files; all by default")
    parser.add_argument("--confirm", action="store_true", help="write present digests, after reading the proofs")
    options = parser.parse_args(arguments)
    chosen: list[Path] = options.proofs or all_proofs()
    if options.confirm:
        try:
            renewed = [proof.name for proof in chosen if confirm(proof)]
        except (ProofError, OSError) as error:
            print(f"proofs: {error}", file=sys.stderr)
            return 2
        print(f"confirmed: {', '.join(renewed)}" if renewed else "nothing has changed.")
        return 0
    found = [line for proof in chosen for line in problems(proof)]
    print("\n".join(found) if found else f"{len(chosen)} proofs are about the present code.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
