"""Every number of the automatic rule stands in one place, and the documentation says the same as the code."""

from __future__ import annotations

import ast
import re
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from dperm.solvers.central.auto import constants
from dperm.solvers.central.auto.constants import RULE, table

FOLDER = Path(constants.__file__).parent
DOCS = Path(__file__).resolve().parents[5] / "docs" / "automatic.md"
MOST_CONSTANTS = 40
#: numbers of formulas: nothing, one, two, four, halves and quarters, the variance 1/12 of a uniform number, percent
#: and per mille
OF_FORMULAS = {0.0, 1.0, 2.0, 4.0, 0.5, 0.25, 12.0, 100.0, 1000.0}


def numbers_in(text):
    """Numeric literals of a module, with their lines; doctests and other strings do not count."""
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return [(node.lineno, node.value) for node in found if type(node.value) in (int, float)]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_no_module_has_a_constant_of_its_own(path):
    if path.name != "constants.py":
        assert [(line, value) for line, value in numbers_in(path.read_text()) if value not in OF_FORMULAS] == []


def test_the_check_finds_a_constant_in_a_module():
    assert {value for _, value in numbers_in("def f(x):\n    '''0.3'''\n    return 0.7 * x + 1.0")} == {0.7, 1.0}


def test_there_are_few_constants_and_each_says_where_it_comes_from():
    assert len(fields(RULE)) <= MOST_CONSTANTS
    for one in fields(RULE):
        assert {"unit", "meaning", "source"} <= set(one.metadata), one.name
        assert all(one.metadata[key].strip() for key in ("unit", "meaning", "source")), one.name
    with pytest.raises(FrozenInstanceError):
        RULE.momentum = 0.5


def test_the_documentation_has_the_constants_of_the_code():
    lines = DOCS.read_text().splitlines()
    start = lines.index(table()[0])
    shown = [line for line in lines[start:] if line.startswith("|")]
    assert shown == table()


@pytest.mark.parametrize("one", fields(RULE), ids=lambda one: one.name)
def test_every_constant_is_used(one):
    used = [path.name for path in FOLDER.glob("*.py") if re.search(rf"RULE\.{one.name}\b", path.read_text())]
    assert used, f"nothing uses {one.name}"
