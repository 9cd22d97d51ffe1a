"""Every proof is about the present code, and the check notices when the code changes."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from dperm.objective import LOSSES
from dperm.privacy.mechanisms.standard import MECHANISMS
from dperm.queries import QUERIES
from dperm.solvers import SOLVERS, Automatic
from dperm.solvers.vertical import TASKS

ROOT = Path(__file__).resolve().parents[2]


def _load_tool():
    spec = importlib.util.spec_from_file_location("proofs_tool", ROOT / "tools" / "proofs.py")
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


proofs = _load_tool()

CODE = '''
"""A module."""

FACTOR, LIMIT = 3.0, 9.0

class Base:
    norm = "l2"

class Noise(Base):
    """Adds noise."""

    scale = 2.0

    def add(self, value):
        """Return the value with noise."""
        return value + _spread(self.scale)


def _spread(scale):
    try:
        return FACTOR * scale
    except OverflowError:
        return LIMIT


def other():
    return 1
'''


@pytest.mark.parametrize("proof", proofs.all_proofs(), ids=lambda proof: proof.name)
def test_proof_is_about_the_present_code(proof):
    found = proofs.problems(proof)
    advice = f"Read it against the code, mend it if needed, then `make proofs PROOF={proof.relative_to(ROOT)}`."
    assert not found, "\n".join([*found, advice])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "noise.py").write_text(CODE)
    proof = tmp_path / "noise.proof.md"
    proof.write_text("# Noise\n\nIt adds.\n\n## Covered code\n\n- `noise.py::Noise.add`\n- `noise.py::Noise`\n")
    return tmp_path, proof


def test_unconfirmed_code_is_reported_and_confirming_ends_it(folder):
    source, proof = folder
    assert len(proofs.problems(proof, source)) == 2
    assert proofs.confirm(proof, source)
    assert proofs.problems(proof, source) == []
    assert not proofs.confirm(proof, source)


@pytest.mark.parametrize(
    ("old", "new", "noticed"),
    [
        ("value + _spread", "value + 0.5 * _spread", True),
        ("    scale = 2.0", "    scale = 1.0", True),
        ("FACTOR * scale", "scale", True),
        ("FACTOR, LIMIT = 3.0, 9.0", "FACTOR, LIMIT = 1.0, 9.0", True),
        ('norm = "l2"', 'norm = "l1"', True),
        ("return LIMIT", "return 0.0", True),
        ("return value", "# a comment\n        return value", False),
        ('"""Return the value with noise."""', '"""In other words."""', False),
        ("return 1", "return 2", False),
    ],
    ids=[
        "an expression",
        "a constant of the class",
        "a helper",
        "a constant of the module",
        "a base class",
        "a handler of errors",
        "a comment",
        "a docstring",
        "code that is not used",
    ],
)
def test_a_change_of_covered_code_is_noticed_and_nothing_else(folder, old, new, noticed):
    source, proof = folder
    proofs.confirm(proof, source)
    (source / "noise.py").write_text(CODE.replace(old, new))
    assert bool(proofs.problems(proof, source)) == noticed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# Noise\n", "needs one section"),
        ("# Noise\n\n## Covered code\n", "is empty"),
        ("# Noise\n\n## Covered code\n\n- noise.py\n", "is not of the form"),
        ("# Noise\n\n## Covered code\n\n- `noise.js`\n", "does not exist"),
        ("# Noise\n\n## Covered code\n\n- `noise.py::missing`\n", "has no missing"),
        ("# Noise\n\n## Covered code\n\n- `gone.py::Noise`\n", "does not exist"),
    ],
)
def test_a_wrong_section_is_reported(folder, text, message):
    source, proof = folder
    proof.write_text(text)
    (found,) = proofs.problems(proof, source)
    assert message in found


def test_a_whole_file_can_be_covered(folder):
    source, proof = folder
    (source / "client.js").write_text("const scale = 2;\n")
    proof.write_text("# Noise\n\n## Covered code\n\n- `client.js`\n")
    proofs.confirm(proof, source)
    assert proofs.problems(proof, source) == []
    (source / "client.js").write_text("const scale = 1;\n")
    assert proofs.problems(proof, source)


def test_a_digest_does_not_depend_on_the_version_of_python(folder):
    """Newer versions add fields to the syntax tree; the value was computed with Python 3.11, 3.12 and 3.13."""
    source, _ = folder
    assert proofs.digest(proofs.Covered("noise.py", "Noise", None), source) == "e83e83d43db3"


def _mentions_proof(module: str) -> bool:
    path = ROOT / "src" / Path(*module.split(".")).with_suffix(".py")
    if path.with_suffix(".proof.md").exists():
        return True
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    named = re.findall(r"[\w/]+\.proof\.md", docstring)
    return any((folder / name).exists() for name in named for folder in (path.parent, ROOT / "src" / "dperm"))


@pytest.mark.parametrize("kind", [*SOLVERS.values(), Automatic, *TASKS.values()], ids=lambda kind: kind.name)
def test_every_solver_has_a_proof_or_names_the_one_that_covers_it(kind):
    assert _mentions_proof(kind.__module__)


REGISTERED = [*QUERIES.values(), *SOLVERS.values(), *TASKS.values(), *MECHANISMS.values(), *LOSSES.values()]


@pytest.mark.parametrize("kind", REGISTERED, ids=lambda kind: kind.__name__)
def test_every_registered_class_is_covered_by_a_proof(kind):
    path = str(Path(*kind.__module__.split(".")[1:]).with_suffix(".py"))
    names = {kind.__name__, *(base.__name__ for base in kind.__mro__)}
    entries = [entry for proof in proofs.all_proofs() for entry in proofs.covered(proof) if entry.file == path]
    assert any(entry.name.partition(".")[0] in names for entry in entries)
