"""Data known by more than one fingerprint, and the share of a cap that is used."""

from __future__ import annotations

import numpy as np
import pytest

from dperm import Budget, Ledger
from dperm.privacy.events import Gaussian


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("DPERM_HOME", str(tmp_path / "home"))
    return Ledger(tmp_path / "ledger.db", dataset="people")


def test_a_remembered_fingerprint_is_recognised_and_costs_nothing(ledger):
    file, table = (ledger.fingerprint([np.arange(k)]) for k in (3, 4))
    assert ledger.known_as(file) is None
    ledger.remember(file)
    ledger.for_dataset("others").remember(file)  # the first name stays
    assert ledger.known_as(file) == "people"
    assert ledger.known_as(table) is None
    assert ledger.spent().n_fits == 0
    assert file not in str(ledger.export())
    assert ledger.verify() == ledger.head


def test_shares_of_a_cap_add_up(ledger):
    assert ledger.spent().used is None
    ledger.set_cap(Budget(2.0, 1e-6))
    assert ledger.spent().used == 0.0
    ledger.reserve(Gaussian(20.0), "replace-one")
    once = ledger.spent().used
    ledger.reserve(Gaussian(20.0), "replace-one")
    assert ledger.spent().used == pytest.approx(2.0 * once)
    assert ledger.spent().to_dict()["used"] == ledger.spent().used
    closed = ledger.for_dataset("closed")
    closed.set_cap(Budget(1.0, 1e-6))
    closed.reserve(Gaussian(1.0 / Budget(1.0, 1e-6).mu), "replace-one")
    assert closed.spent().used == 1.0
