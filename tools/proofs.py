"""Are the proofs still about this code? Every ``.proof.md`` lists the code that it covers, each with a digest.

A proof ends with a section like this:

    ## Covered code

    - `privacy/local/one_bit.py::OneBit` `5f0c3a9d41be`

When the code behind a digest changes, the test suite fails until somebody has read the proof again. Then
``make proofs`` (this program with ``--confirm``) writes the new digests. Confirm only what you have read:
``python tools/proofs.py --confirm src/dperm/privacy/local/one_bit.proof.md`` confirms one file.

A digest is taken from the syntax tree without docstrings: comments, layout and wording do not change it.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "dperm"
HEADING = "## Covered code"
_ENTRY = re.compile(r"^- `(?P<file>[\w/]+\.py)::(?P<name>[\w.]+)`(?: `(?P<digest>[0-9a-f]+)`)?$")
_DIGITS = 12  # 48 bits: two versions of one function collide by chance once in 10^14


@dataclass(frozen=True)
class Covered:
    """One function or class that a proof relies on, as its section lists it."""

    file: str
    name: str
    digest: str | None


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
    """Return the digest of the code that an entry names, as it is now."""
    path = source / entry.file
    if not path.is_file():
        raise ProofError(f"{entry.file} does not exist.")
    node: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
    for part in entry.name.split("."):
        node = _member(node, part, entry)
    return hashlib.sha256(ast.dump(_without_docstrings(node)).encode()).hexdigest()[:_DIGITS]


def _member(node: ast.AST, name: str, entry: Covered) -> ast.AST:
    """Return what ``name`` is bound to in a module or class: all definitions, as an overload has several."""
    found: list[ast.stmt] = []
    for one in _statements(node):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound = {one.name}
        elif isinstance(one, ast.Assign):
            bound = {target.id for target in one.targets if isinstance(target, ast.Name)}
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            bound = {one.target.id}
        else:
            continue
        if name in bound:
            found.append(one)
    if not found:
        raise ProofError(f"{entry.file} has no {entry.name}.")
    return found[0] if len(found) == 1 else ast.Module(body=found, type_ignores=[])


def _statements(node: ast.AST) -> Iterable[ast.stmt]:
    for one in getattr(node, "body", []):
        yield one
        if isinstance(one, ast.If | ast.Try):  # a definition that depends on a version or a platform
            yield from _statements(one)


def _without_docstrings(node: ast.AST) -> ast.AST:
    for one in ast.walk(node):
        if (
            isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(one) is not None
        ):
            one.body = one.body[1:] or [ast.Pass()]
    return node


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
            found.append(f"{proof.name}: {entry.file}::{entry.name} has never been confirmed.")
        elif entry.digest != now:
            found.append(f"{proof.name}: {entry.file}::{entry.name} has changed since the proof was read.")
    return found


def confirm(proof: Path, source: Path = SOURCE) -> bool:
    """Write the present digests into a proof; return whether any was new."""
    text = proof.read_text(encoding="utf-8")
    head, heading, _ = text.partition(f"\n{HEADING}\n")
    lines = [f"- `{entry.file}::{entry.name}` `{digest(entry, source)}`" for entry in covered(proof)]
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
