"""Fixtures for the central solvers."""

from __future__ import annotations

import pytest

from dperm.privacy.accounting import calibration, pld


@pytest.fixture
def coarse(monkeypatch):
    """Fewer points in loss distributions: still upper bounds, much faster."""
    monkeypatch.setattr(pld, "LOSS_INTERVAL", 5e-3)
    calibration.clear_cache()
    yield
    calibration.clear_cache()
