"""Noise in tests repeats from run to run. It differs between tests and between keys."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTS = '''
import pytest
from dperm.privacy.randomness import RandomSource

def draw(): return str(RandomSource().word())

@pytest.fixture(scope="module")
def shared(): return draw()

def test_a(shared): print("drew", "a", draw(), draw(), shared)
def test_b(shared): print("drew", "b", draw(), draw(), shared)

@pytest.mark.fresh_noise
def test_c(): print("drew", "c", draw())

def test_d(monkeypatch):
    """Another thread may ask for a key while one is being made."""
    import os
    usual, inner = os.getpid, []
    def getpid():
        if not inner:
            inner.append("")
            inner[0] = draw()
        return usual()
    monkeypatch.setattr(os, "getpid", getpid)
    outer = draw()
    print("drew", "d", outer, inner[0])
'''


def drawn(folder: Path, *choice: str, **environment: str) -> dict[str, list[str]]:
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    command += ["--rootdir", str(folder), "-p", "conftest", str(folder / "test_draws.py"), *choice]
    run = subprocess.run(
        command,
        cwd=folder,
        env={
            **os.environ,
            "DPERM_FRESH_NOISE": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # plugins of other tests take seconds to load
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [line.lstrip(".").split() for line in run.stdout.splitlines() if "drew" in line]
    return {line[1]: line[2:] for line in lines}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("draws")
    (made / "test_draws.py").write_text(TESTS)
    return made


def test_noise_repeats_and_shared_noise_does_not_depend_on_test_order(folder: Path) -> None:
    first, again, alone = drawn(folder), drawn(folder), drawn(folder, "-k", "test_b")
    assert first["a"] == again["a"]
    assert first["b"] == again["b"] == alone["b"]
    assert len({*first["a"], *first["b"]}) == 5
    assert first["c"] != again["c"]
    assert first["d"] == again["d"]
    assert len({*first["d"]}) == 2


def test_an_environment_variable_turns_on_fresh_noise(folder: Path) -> None:
    fresh, again = (drawn(folder, DPERM_FRESH_NOISE="1") for _ in range(2))
    assert not {*fresh["a"], *fresh["b"]} & {*again["a"], *again["b"]}
