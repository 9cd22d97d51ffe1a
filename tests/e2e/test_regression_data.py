"""Regression on real data; skipped unless the folder named by DPERM_DATA has them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

import dperm
from dperm import Bounds, DPLinearRegression

# public ranges: incomes, ages of houses, rooms, bedrooms, people in a block and in a home, latitude and longitude
LOW, HIGH = [0, 1, 1, 0.5, 3, 1, 32, -125], [15, 52, 12, 2.5, 5000, 6, 42, -114]


@pytest.fixture(scope="module")
def houses():
    folder = os.environ.get("DPERM_DATA")
    path = Path(folder) / "california.npz" if folder else None
    if path is None or not path.exists():
        pytest.skip("DPERM_DATA does not name a folder with california.npz")
    with np.load(path) as stored:
        X, y = stored["X"].astype(float), stored["y"].astype(float)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def test_house_prices_are_predicted_about_as_well_as_without_privacy(houses, tmp_path):
    X, y = houses
    train, test = slice(16_000), slice(16_000, None)
    bounds = Bounds(features=(LOW, HIGH), target=(0, 5.1))
    model = DPLinearRegression(epsilon=1.0, bounds=bounds, insecure_seed=0).fit(X[train], y[train])
    # a fair comparison also clips columns and predictions: clipping predictions alone gains about 0.01
    trusted = LinearRegression().fit(np.clip(X[train], LOW, HIGH), y[train])
    plain = r2_score(y[test], np.clip(trusted.predict(np.clip(X[test], LOW, HIGH)), 0, 5.1))
    assert plain - 0.02 < model.score(X[test], y[test]) < plain + 0.01
    assert np.array_equal(dperm.load(model.save(tmp_path / "m.json")).predict(X), model.predict(X))


def test_a_smaller_epsilon_gives_a_worse_model(houses):
    X, y = houses
    bounds = Bounds(features=(LOW, HIGH), target=(0, 5.1))
    scores = [
        np.mean([DPLinearRegression(epsilon=e, bounds=bounds, insecure_seed=k).fit(X, y).score(X, y) for k in range(3)])
        for e in (1.0, 0.01)
    ]
    assert scores[0] > scores[1] + 0.1
