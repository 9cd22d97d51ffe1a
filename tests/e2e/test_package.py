"""What is published: an sdist and a wheel that hold what users need, and work in an environment with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import dperm

ROOT = Path(__file__).resolve().parents[2]

FIT = """
import numpy as np
from dperm import Bounds, DPLogisticRegression, load
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (400, 3))
y = (X[:, 0] > 0).astype(int)
model = DPLogisticRegression(epsilon=2.0, bounds=Bounds(features=(-1, 1), classes=[0, 1])).fit(X, y)
assert model.privacy_report_.guarantee.epsilon <= 2.0
model.save("model.json")
assert (load("model.json").predict(X) == model.predict(X)).all()
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel made from the sdist, as an index would get them."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, cwd=ROOT)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def test_the_version_is_the_newest_of_the_changes() -> None:
    lines = (ROOT / "CHANGES.md").read_text().splitlines()
    versions = [line.split()[1] for line in lines if line.startswith("## ") and line.split()[1][0].isdigit()]
    assert versions[0] == dperm.__version__


def test_the_wheel_holds_all_that_the_package_needs_and_no_tests(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    assert f"-{dperm.__version__}" in sdist.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        described = archive.read(metadata).decode()
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "dperm").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= names
    assert "dperm/py.typed" in names
    assert not any(name.startswith(("tests/", "benchmarks/", "docs/")) for name in names)
    assert "Typing :: Typed" in described
    assert (ROOT / "README.md").read_text().splitlines()[0] in described


def test_the_sdist_holds_tests_and_documentation(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("README.md", "CHANGES.md", "LICENSE", "Makefile", "docs/start.md", "tests/conftest.py"):
        assert name in names


def test_the_wheel_works_in_a_clean_environment(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Needs the package index: without one it is skipped, but not where tests count (``CI``)."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(built[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip("the package's dependencies cannot be installed here")
    assert done.returncode == 0, done.stderr
    home = {"DPERM_HOME": str(tmp_path / "home")}
    assert dperm.__version__ in run(environment / "bin" / "dperm", "--version", cwd=tmp_path, **home)
    run(python, "-W", "error::DeprecationWarning", "-c", FIT, cwd=tmp_path, **home)
    run(environment / "bin" / "dperm", "demo", cwd=tmp_path, **home)
