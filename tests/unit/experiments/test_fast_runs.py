"""Every registered experiment runs with its fast settings, on data that it makes, in little time."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ET
from dataclasses import asdict

import pytest

from dperm.experiments.datasets import DataFolder
from dperm.experiments.registry import EXPERIMENTS
from dperm.experiments.result import Measured
from dperm.experiments.running import run
from dperm.privacy.accounting import pld
from dperm.privacy.accounting.calibration import clear_cache

#: what all fast runs may take together, in seconds of the processor, because other programs may use the machine
_MOST_SECONDS = 180.0
_spent: dict[str, float] = {}


@pytest.fixture
def asked_for_dp_accounting(monkeypatch):
    """Collect the times that dp-accounting is imported to account for a plan."""
    times, module = [], pld.distribution_library

    def noted():
        times.append(True)
        return module()

    clear_cache()
    monkeypatch.setattr(pld, "distribution_library", noted)
    return times


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_fast_run_writes_a_result(name, tmp_path, asked_for_dp_accounting):
    one, began = EXPERIMENTS[name], time.process_time()
    result, written = run(one, tmp_path, DataFolder(None), fast=True, force=False, show=lambda *_: None)
    _spent[name] = time.process_time() - began
    assert sum(_spent.values()) < _MOST_SECONDS
    assert ("dp-accounting" in one.needs) == bool(asked_for_dp_accounting)

    stored = json.loads((tmp_path / f"{name}.json").read_text())
    assert stored["fast"] is True
    assert stored["settings"] == json.loads(json.dumps(asdict(one.fast)))
    assert all(baseline["data"].startswith("made") for baseline in stored["baselines"])
    for baseline in result.baselines:  # no model without noise is worse than weights of 0
        assert baseline.non_private <= baseline.null
    names = [row.what for row in result.rows]
    assert len(set(names)) == len(names) == len(stored["rows"])
    page = (tmp_path / f"{name}.md").read_text()
    assert all(f"| {row.what} |".replace("|", "") in page.replace("|", "") for row in result.rows)
    assert any(value is not None for row in result.rows for value in (row.certified, row.printed, row.without_noise))
    for row in result.rows:
        for value in (row.certified, row.printed, row.without_noise):
            if isinstance(value, Measured):
                slack = 1e-12 * abs(value.mean)  # a mean of equal numbers may round
                assert value.low - slack <= value.mean <= value.high + slack

    assert sorted(path.suffix for path in written) == [".json", ".md", *([".svg"] if result.panels else [])]
    if result.panels:
        drawn = "".join(ET.parse(tmp_path / f"{name}.svg").getroot().itertext())
        assert all(panel.title in drawn for panel in result.panels)
