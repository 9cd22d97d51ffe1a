"""Every registered experiment runs with its fast settings, on data that it makes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from dperm.experiments.datasets import DataFolder
from dperm.experiments.registry import EXPERIMENTS
from dperm.experiments.running import run


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_fast_run_writes_a_result(name, tmp_path):
    _, written = run(EXPERIMENTS[name], tmp_path, DataFolder(None), fast=True, force=False, show=lambda *_: None)
    stored = json.loads((tmp_path / f"{name}.json").read_text())
    assert stored["fast"] is True
    assert stored["rows"]
    assert all(one["data"].startswith("made") for one in stored["baselines"])
    for path in written:
        if path.suffix == ".svg":
            ET.fromstring(path.read_text())
