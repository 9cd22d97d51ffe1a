"""Files, folders and names in ``docs/architecture.md`` and ``CONTRIBUTING.md`` exist, and the drawing is complete."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "dperm"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = (ARCHITECTURE, CONTRIBUTING)

#: folders that a command makes; they are not in the repository
BUILT = {"site/", ".mutants/"}
MOST_WORDS = 40

_FENCE = re.compile(r"^```.*?^```\s*$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"[\w./-]+(?:\.py|\.js|\.md|/)")
_STOP = re.compile(r"([\w./-]+\.py)::([\w.]+)")


def code_spans(text):
    """Everything between backticks, without blocks of code."""
    return re.findall(r"`([^`\n]+)`", _FENCE.sub("", text))


@cache
def defined_names(path):
    """Names that a file defines: functions, classes, constants, and members of classes as ``Class.member``."""
    names = set()

    def visit(body, prefix):
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign):
                names.update(prefix + target.id for target in node.targets if isinstance(target, ast.Name))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(prefix + node.target.id)

    visit(ast.parse(path.read_text("utf-8")).body, "")
    return names


def missing(text):
    """Files, folders and ``file.py::name`` in a text that do not exist."""
    for span in code_spans(text):
        if stop := _STOP.fullmatch(span):
            path = PACKAGE / stop[1]
            if not path.is_file() or stop[2] not in defined_names(path):
                yield span
        elif _PATH.fullmatch(span) and "/" in span and span not in BUILT:
            places = [base / span for base in (PACKAGE, ROOT)]
            if not any(place.is_dir() if span.endswith("/") else place.is_file() for place in places):
                yield span


def hint(span):
    """Where a missing name or file may have moved to."""
    file, _, name = span.partition("::")
    same_name = [path for path in sorted(PACKAGE.rglob("*.py")) if name and name in defined_names(path)]
    same_file = sorted(PACKAGE.rglob(Path(file).name))
    places = ", ".join(path.relative_to(PACKAGE).as_posix() for path in same_name or same_file)
    return f"{span} (see {places})" if places else span


def drawing():
    """Paths in the drawing of the folders, from top to bottom; indentation stands for the folder above."""
    block = re.search(r"^```text\n(.*?)^```", ARCHITECTURE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[1]
    paths, above = [], []
    for line in block.splitlines():
        indent, name = re.match(r"( *)(\S+)", line).groups()
        above = [*above[: len(indent) // 2], name]
        paths.append("".join(above))
    return paths


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_name_on_a_page_exists(page):
    assert [hint(span) for span in missing(page.read_text("utf-8"))] == []


def test_the_check_finds_what_does_not_exist():
    wrong = ["solvers/nowhere.py", "nowhere/at/all/", "solvers/base.py::Nothing", "solvers/base.py::Solver.nothing"]
    right = ["solvers/base.py", "solvers/central/", "solvers/base.py::Solver.plan", "tests/contracts/test_queries.py"]
    assert list(missing(" ".join(f"`{span}`" for span in (*wrong, *right)))) == wrong
    assert hint("solvers/moved.py::resolve_solver") == "solvers/moved.py::resolve_solver (see solvers/__init__.py)"


def test_every_folder_is_drawn():
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py")} - {"."}
    assert {f"{folder}/" for folder in folders} - set(drawing()) == set()


def test_every_line_of_the_drawing_exists():
    assert [path for path in drawing() if not (PACKAGE / path).exists()] == []


def test_the_drawing_has_the_order_of_the_import_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [one["layers"] for one in contracts if one.get("containers") == ["dperm"]]
    levels = {name.strip(" ()"): level for level, line in enumerate(layers) for name in line.split("|")}
    first = [path for path in drawing() if path.count("/") == (1 if path.endswith("/") else 0)]
    drawn = [levels[path.removesuffix("/").removesuffix(".py")] for path in first]
    assert drawn == sorted(drawn)
    block = ARCHITECTURE.read_text("utf-8")
    for path, level, before in zip(first[1:], drawn[1:], drawn, strict=False):
        assert (re.search(rf"^{re.escape(path)} += ", block, re.MULTILINE) is not None) == (level == before), path


def test_the_glossary_is_short_and_in_order():
    text = CONTRIBUTING.read_text("utf-8")
    section = re.search(r"^## Glossary\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]
    words = re.findall(r"^- \*\*(.+?)\*\*", section, re.MULTILINE)
    assert 25 <= len(words) <= MOST_WORDS
    assert words == sorted(words, key=str.lower)
    assert all(line.startswith("- **") for line in section.splitlines() if line.startswith("-"))
