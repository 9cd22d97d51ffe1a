"""Kernels on compressed rows agree with whole numbers and with dense arrays, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.kernels.grid_steps import compress, shorten_compressed
from dperm.kernels.rows import mapped_squares, second_moments, stretched_squares


def rows(n=37, p=9, density=0.3, seed=0):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((n, p)) < density, rng.integers(-(2**18), 2**18, (n, p)), 0).astype(float)
    dense[3] = 0.0
    return dense, sp.csr_array(dense)


def squares_in_order(images):
    out = np.zeros(len(images))
    for column in images.T:
        out += column * column
    return out


@pytest.mark.parametrize("k", [1, 5, 30])
def test_mapped_squares_add_up_in_the_order_of_columns(k):
    rng = np.random.default_rng(1)
    dense, csr = rows()
    steps, base = rng.integers(-(2**26), 2**26, (9, k)).astype(float), rng.integers(-(2**44), 2**44, k).astype(float)
    images = base + dense @ steps
    found = mapped_squares(csr, steps, base)
    assert np.array_equal(found, squares_in_order(images))
    if k == 30:  # the squares do round: another order gives other bits
        assert not np.array_equal(found, squares_in_order(images[:, ::-1]))
    assert np.array_equal(mapped_squares(csr, np.asfortranarray(steps), base), found)
    for i in (0, 3, 36):  # wherever the row stands
        assert mapped_squares(csr[[i]], steps, base)[0] == found[i]


def test_stretched_squares_skip_zeros_only():
    rng = np.random.default_rng(2)
    dense, csr = rows()
    heights = rng.integers(-(2**26), 2**26, 9).astype(float)
    for constant in (0.0, 12345.0):
        images = np.column_stack([dense * heights, np.full(len(dense), constant)])
        assert np.array_equal(stretched_squares(csr, heights, constant), squares_in_order(images))


@pytest.mark.parametrize("constant", [0.0, 7.0])
def test_second_moments_are_those_of_whole_numbers(constant):
    rng = np.random.default_rng(3)
    dense, csr = rows()
    heights, factors, unit, per_step = rng.random(10 if constant else 9), rng.random(37), 2.0**-18, 2.0**10
    full = np.column_stack([dense * heights[:9], np.full(37, constant)]) if constant else dense * heights
    steps = np.trunc(full * unit * factors[:, None] * per_step)
    wanted = [[sum(int(a) * int(b) for a, b in zip(x, y, strict=True)) for y in steps.T] for x in steps.T]
    found = second_moments(csr, heights, constant, unit, factors, per_step)
    assert found.tolist() == wanted


def test_a_constant_of_height_zero_is_still_a_column():
    """How a design is stored must not show in the shape of what comes out."""
    X = np.zeros((50, 3))
    X[:5, 0] = 1.0
    scaling = Scaling(np.zeros(3), np.ones(3), 1.0)
    stored = DesignMatrix.from_array(X, scaling, 1.0)
    assert stored._sparse
    dense = DesignMatrix(next(stored.row_chunks())[1][:, :3], np.zeros(3), stored.shape)
    for last in (0.0, 5e-324, 1.0):
        case = np.ones(50), stored.spacing, 2.0**-20, np.array([1.0, 1.0, 1.0, last])
        assert np.array_equal(stored.second_moments(*case), dense.second_moments(*case))
        assert stored.second_moments(*case).shape == (4, 4)


def test_compress_stops_if_there_is_no_room():
    dense, csr = rows()
    ends, columns, entries = np.zeros(37, np.int32), np.zeros(csr.nnz + 9, np.int32), np.zeros(csr.nnz + 9)
    assert compress(dense, 0, ends, columns, entries) == csr.nnz
    assert np.array_equal(ends, csr.indptr[1:])
    assert np.array_equal(columns[: csr.nnz], csr.indices)
    assert np.array_equal(entries[: csr.nnz], csr.data)
    assert compress(dense, 0, ends, columns[:40], entries[:40]) == -1
    assert compress(dense, 30, ends, columns, entries) == -1


def test_shortened_rows_are_no_longer_than_allowed_and_others_stay():
    dense, csr = rows()
    longest = 2.0**17
    before = csr.data.copy()
    shorten_compressed(csr.data, csr.indptr, longest)
    for i in range(37):
        part = slice(csr.indptr[i], csr.indptr[i + 1])
        square = sum(int(v) ** 2 for v in dense[i])
        after = sum(int(v) ** 2 for v in csr.data[part])
        if square <= longest**2:
            assert np.array_equal(csr.data[part], before[part])
        else:
            assert (0.9 * longest) ** 2 <= after <= (longest * (1.0 + 2.0**-50)) ** 2
