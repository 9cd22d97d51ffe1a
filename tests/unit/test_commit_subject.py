"""The check of commit subjects passes good ones and refuses each kind of bad one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "commit_subject.py"


@pytest.mark.parametrize(
    ("message", "accepted"),
    [
        ("Name the column at fault\n\nIt was not named.\n", True),
        ("# a comment of git\nName the column at fault\n", True),
        ("x" * 72, True),
        ("x" * 73, False),
        ("Name the column.", False),
        ("Name the column\nwithout an empty line", False),
        ("\n", False),
    ],
)
def test_subjects(tmp_path, message, accepted):
    file = tmp_path / "message"
    file.write_text(message)
    done = subprocess.run([sys.executable, str(TOOL), str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == accepted
    assert accepted or done.stderr.startswith("commit message: ")
