"""Classification on real data; skipped unless the folder named by DPERM_DATA has them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dperm import Bounds, DPLogisticRegression


@pytest.fixture(scope="module")
def a9a():
    folder = os.environ.get("DPERM_DATA")
    path = Path(folder) / "a9a.npz" if folder else None
    if path is None or not path.exists():
        pytest.skip("DPERM_DATA does not name a folder with a9a.npz")
    with np.load(path) as stored:
        y, n_train = stored["y"], int(stored["n_train"])
    return sp.load_npz(path).astype(float), y, n_train


def test_sparse_census_data_are_predicted_better_than_by_a_constant(a9a):
    X, y, n_train = a9a
    bounds = Bounds(centre=0.0, scale=1.0, clip=1.0, row_norm=14**0.5)
    model = DPLogisticRegression(epsilon=1.0, bounds=bounds, neighbours="zero-out", insecure_seed=1)
    model.fit(X[:n_train], y[:n_train])
    accuracy = model.score(X[n_train:], y[n_train:])
    null = max(np.mean(y[n_train:] == label) for label in np.unique(y))
    assert accuracy > null + 0.04
    assert model.privacy_report_.planned.epsilon <= 1.0


def test_sparse_and_dense_input_give_the_same_bits(a9a):
    X, y, _ = a9a
    X, y = X[:3000], y[:3000]
    for bounds in (Bounds(features=(0, 1)), Bounds(centre=0.0, scale=1.0, clip=1.0, row_norm=3.0)):
        fits = [
            DPLogisticRegression(bounds=bounds, insecure_seed=7).fit(data, y).coef_
            for data in (X.tocsr(), X.tocsc(), X.toarray())
        ]
        assert (fits[0] == fits[1]).all()
        assert (fits[0] == fits[2]).all()
