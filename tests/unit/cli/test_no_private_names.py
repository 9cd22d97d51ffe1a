"""The command line uses the public interface of the library only."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import dperm.cli

FOLDER = Path(dperm.cli.__file__).parent
#: functions of the standard library whose names begin with an underscore
STANDARD = {("os", "_exit"), ("atexit", "_run_exitfuncs")}


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def private_names(source: str) -> list[str]:
    """Private names of other modules and objects that a module uses; its own, and ``self._x``, are left out."""
    tree = ast.parse(source)
    own = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            parts = [part for one in node.names for part in one.name.split(".")]
            parts += (getattr(node, "module", None) or "").split(".")
            found += [part for part in parts if is_private(part)]
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner not in ("self", "cls") and (owner, node.attr) not in STANDARD:
                found.append(node.attr)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr", "hasattr"):
            names = [one.value for one in node.args[1:2] if isinstance(one, ast.Constant)]
            found += [name for name in names if isinstance(name, str) and is_private(name)]
    return found


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_private_name_of_another_module_is_used(path):
    assert private_names(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("model._saved()", ["_saved"]),
        ("from dperm.estimators import _base", ["_base"]),
        ("import dperm._base", ["_base"]),
        ("from dperm._base import fit", ["_base"]),
        ("getattr(model, '_saved')", ["_saved"]),
        ("class A:\n    def _x(self): return self._x", []),
        ("import os\nos._exit(1)\nmodel.__class__", []),
    ],
)
def test_the_check_sees_private_names(source, names):
    assert private_names(source) == names


def test_the_exceptions_are_of_the_standard_library():
    assert {module for module, _ in STANDARD} <= set(sys.stdlib_module_names)
