"""The automatic rule at the accuracy it promises: on census data, and on sparse least squares."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dperm import Bounds, DPLasso, DPLogisticRegression


@pytest.fixture(scope="module")
def a9a():
    folder = os.environ.get("DPERM_DATA")
    path = Path(folder) / "a9a.npz" if folder else None
    if path is None or not path.exists():
        pytest.skip("DPERM_DATA does not name a folder with a9a.npz")
    with np.load(path) as stored:
        y, n_train = stored["y"], int(stored["n_train"])
    return sp.load_npz(path).astype(float), y, n_train


def test_census_data(a9a):
    X, y, n_train = a9a
    bounds = Bounds(centre=0.0, scale=1.0, clip=1.0, row_norm=14**0.5)
    model = DPLogisticRegression(epsilon=1.0, bounds=bounds, neighbours="zero-out", insecure_seed=0)
    model.fit(X[:n_train], y[:n_train])
    assert model.score(X[n_train:], y[n_train:]) >= 0.846
    assert model.privacy_report_.planned.epsilon <= 1.0


def test_sparse_least_squares():
    """As many columns as rows, ten of which matter."""
    rng = np.random.default_rng(0)
    X, fresh = rng.normal(size=(2, 1000, 1000))
    weights = np.zeros(1000)
    weights[rng.choice(1000, 10, replace=False)] = rng.choice([-1.0, 1.0], 10)
    y, truth = (rows @ weights + rng.normal(size=1000) for rows in (X, fresh))
    bounds = Bounds(centre=0.0, scale=1.0, clip=3.0, target=(-10.0, 10.0))
    options = {"epsilon": 4.0, "bounds": bounds, "solver": "auto", "neighbours": "zero-out"}
    scores = [DPLasso(**options, insecure_seed=seed).fit(X, y).score(fresh, truth) for seed in range(3)]
    assert np.mean(scores) >= 0.8
