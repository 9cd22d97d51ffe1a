"""``import dperm`` is fast and shows the public names and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import dperm

HEAVY = ("sklearn", "scipy", "scipy.optimize", "pandas", "dp_accounting", "psycopg", "matplotlib", "numpy")

ON_IMPORT = f"""
import json, sys, time
start = time.perf_counter()
import dperm
seconds = time.perf_counter() - start
names = dir(dperm)
print(json.dumps([seconds, [name for name in {HEAVY} if name in sys.modules], names]))
"""


def run(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_is_fast_and_loads_no_heavy_module():
    seconds, loaded, _ = run(ON_IMPORT)
    assert loaded == []
    assert seconds < 1.0


def test_dir_lists_the_public_names():
    assert run(ON_IMPORT)[2] == sorted(dperm.__all__)
    assert dir(dperm) == sorted(dperm.__all__)
    assert len(set(dperm.__all__)) == len(dperm.__all__)


@pytest.mark.parametrize("name", dperm.__all__)
def test_every_public_name_can_be_imported(name):
    namespace = {}
    exec(f"from dperm import {name}", namespace)
    assert namespace[name] is getattr(dperm, name)
    if isinstance(namespace[name], type):
        assert namespace[name].__doc__
        assert namespace[name].__name__ == name


def test_important_names_are_public():
    needed = {"Bounds", "Budget", "DPLogisticRegression", "Guarantee", "Ledger", "PrivacyReport", "__version__"}
    assert needed <= set(dperm.__all__)
    assert sys.modules["dperm"].__version__[0].isdigit()


def test_star_import_gives_all_public_names():
    namespace = {}
    exec("from dperm import *", namespace)
    assert set(dperm.__all__) <= set(namespace)


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="module 'dperm' has no attribute 'DPNothing'"):
        _ = dperm.DPNothing
    with pytest.raises(ImportError, match="DPNothing"):
        exec("from dperm import DPNothing")


@pytest.mark.parametrize("name", ["Ledger", "Bounds", "DPLogisticRegression"])
def test_a_name_does_not_load_optional_extras(name):
    code = f"import json, sys, dperm; dperm.{name}; print(json.dumps([m for m in {HEAVY[4:7]} if m in sys.modules]))"
    assert run(code) == []
