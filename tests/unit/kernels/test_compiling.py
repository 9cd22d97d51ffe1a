"""Machine code on disk is used only while no kernel has changed, also those that are called."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dperm

LARGEST_SLOPE = """
import numpy as np
from dperm.kernels.tiles import logistic_sums
tiles, out = np.ones((1, 1, 1), np.float32), np.zeros(1)
one, zero = np.ones(1), np.zeros(1)
logistic_sums(tiles, zero, 0.0, 1.0, zero, one, 0.125, 0.0, 2.0**20, out)
print(abs(out[0]) / 2.0**20)
"""


def test_a_change_of_a_called_kernel_is_not_ignored(tmp_path):
    """The file of the caller keeps its time and size, as after an update of another file."""
    shutil.copytree(Path(dperm.__file__).parent, tmp_path / "dperm", ignore=shutil.ignore_patterns("*.nb?"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": ""}

    def slope():
        command = [sys.executable, "-c", LARGEST_SLOPE]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        return float(done.stdout)

    assert slope() == 0.125
    assert any((tmp_path / "dperm" / "kernels" / "__pycache__").glob("tiles.logistic_sums*.nbc"))
    called = tmp_path / "dperm" / "kernels" / "grid_steps.py"
    right = called.read_text()
    called.write_text(right.replace("largest = min(limit, 1.0)", "largest = 1.0"))
    assert slope() == 0.5
    called.write_text(right)
    assert slope() == 0.125
