"""Kernels of reports: against numpy, for one person and for many, for bits and for numbers."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.kernels.reports import monomials, parities


def test_monomials_by_numpy():
    rng = np.random.default_rng(0)
    records = rng.uniform(-2, 2, (500, 4))
    factors = np.array([[0, 4], [1, 1], [0, 3], [2, 4]])
    reach, index = np.array([1.0, 0.5, 1.0, 1.0]), rng.integers(0, 4, 500)
    inside = records.copy()
    inside[:, :3] /= np.maximum(np.linalg.norm(records[:, :3], axis=1, keepdims=True), 1.0)
    inside = np.column_stack([np.clip(inside, -reach, reach), np.ones(500)])
    expected = np.prod(inside[np.arange(500)[:, None], factors[index]], axis=1)
    assert monomials(records, 3, reach, factors, index) == pytest.approx(expected)


def test_huge_and_tiny_entries():
    factors, index = np.array([[0]]), np.zeros(2, np.int64)
    records = np.array([[1e300, 1e300], [-1e-310, 0.0]])
    assert monomials(records, 2, np.ones(2), factors, index).tolist() == pytest.approx([0.5**0.5, -1e-310])


def test_parities_of_bits_and_numbers():
    rng = np.random.default_rng(1)
    bits = rng.random((300, 40)) < 0.5
    masks = rng.integers(0, 1 << 40, 20)
    index = rng.integers(0, 20, 300)
    chosen = (masks[index][:, None] >> np.arange(40)) & 1
    expected = 1.0 - 2.0 * ((bits * chosen).sum(axis=1) % 2)
    assert np.array_equal(parities(bits.view(np.uint8), masks, index), expected)
    assert np.array_equal(parities(np.where(bits, 0.9, 0.1), masks, index), expected)
