"""Fixtures for the central solvers."""

from __future__ import annotations

import pytest

from dperm.privacy.accounting import calibration, pld


def _clear_caches():
    for module in (calibration, pld):
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()


@pytest.fixture
def coarse(monkeypatch):
    """Fewer points in loss distributions: still upper bounds, much faster."""
    monkeypatch.setattr(pld, "_INTERVAL", 5e-3)
    _clear_caches()
    yield
    _clear_caches()
