"""Dense rows in tiles: every operation equals the plain one with doubles, for any number of rows and columns."""

import pickle

import numpy as np
import pytest

from dperm.data.design.dense_rows import TILE_ROWS, DenseRows
from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.kernels.exact import Grids
from dperm.kernels.grid_steps import shorten_logistic

# one row, less than a tile, exactly one, one more, several; columns around the four that are read together
SHAPES = [(1, 1), (37, 3), (TILE_ROWS, 4), (TILE_ROWS + 1, 5), (3 * TILE_ROWS - 2, 9), (50, 0), (0, 3)]


def steps(n, p, seed=0):
    """Steps of the largest size that a grid allows."""
    return np.random.default_rng(seed).integers(-(2**18), 2**18 + 1, (n, p)).astype(float)


@pytest.mark.parametrize(("n", "p"), SHAPES)
def test_operations_equal_those_of_doubles(n, p):
    plain, rng = steps(n, p), np.random.default_rng(1)
    rows = DenseRows.of(plain)
    weights, numbers = rng.integers(-(2**20), 2**20, p).astype(float), rng.integers(-(2**15), 2**15, n).astype(float)
    assert rows.shape == plain.shape
    assert np.array_equal(rows.doubles(slice(0, n)), plain)
    assert np.array_equal(rows.scores(weights, 7.0), plain @ weights + 7.0)
    assert np.array_equal(rows.sums(numbers), plain.T @ numbers)
    assert np.array_equal(rows.squares(), (plain * plain).sum(axis=1))
    several = rng.integers(-(2**20), 2**20, (p, 3)).astype(float)
    assert np.array_equal(rows.scores(several, np.arange(3.0)), plain @ several + np.arange(3.0))
    each = rng.integers(-(2**15), 2**15, (n, 3)).astype(float)
    assert np.array_equal(rows.sums(each), plain.T @ each)
    limits, found = np.full(p, 2.0**28), np.empty(p)
    rows.clipped_sums(numbers, limits, found)
    assert np.array_equal(found, np.clip(plain * numbers[:, None], -limits, limits).sum(axis=0))
    for j in range(p):
        assert np.array_equal(rows.column(j), plain[:, j])


def test_some_rows_some_columns_and_some_tiles():
    plain = steps(2 * TILE_ROWS + 100, 6)
    rows = DenseRows.of(plain)
    some = np.array([0, TILE_ROWS - 1, TILE_ROWS, 2 * TILE_ROWS + 99, 5])
    assert np.array_equal(rows.take(some).doubles(slice(0, 5)), plain[some])
    assert len(rows.take(some).tiles[0, 0]) == 5  # no more room than needed: samples are small
    columns = np.array([4, 1])
    assert np.array_equal(rows.some_columns(columns).scores(np.ones(2), 0.0), plain[:, columns].sum(axis=1))
    end = rows.some_tiles(1, 9)
    assert end.shape == (TILE_ROWS + 100, 6)
    assert np.array_equal(end.doubles(slice(3, 1100)), plain[TILE_ROWS + 3 : TILE_ROWS + 1100])
    assert np.shares_memory(end.tiles, rows.tiles)
    assert np.array_equal(rows.doubles(slice(1000, 1100), 2)[:, :6], plain[1000:1100])


def test_kept_columns_are_the_latest():
    plain = steps(30, 5)
    rows = DenseRows.of(plain)
    for j in (0, 1, 2, 0, 4, 0, 3):
        assert np.array_equal(rows.column(j), plain[:, j])
    assert len(rows._full) == 2


def test_every_grid_step_fits_into_single_precision():
    for n in (1, 100, 10**5, 10**9):
        for d in (1, 100, 10**6):
            largest = np.ldexp(1.0, Grids(n, d).value_bits)
            assert largest + 1.0 <= 2.0**24
            assert np.float32(largest - 1.0) == largest - 1.0


@pytest.mark.parametrize("n", [1, 500, 2 * TILE_ROWS + 3])
@pytest.mark.parametrize("intercept", [0.0, 1.0])
@pytest.mark.parametrize("independence", [0.0, 0.5, 1.0])
def test_logistic_sums_equal_scores_slopes_and_sums(n, intercept, independence):
    rng = np.random.default_rng(n)
    design = DesignMatrix.from_array(rng.normal(size=(n, 7)), Scaling(np.zeros(7), np.ones(7), 3.0), intercept)
    weights = rng.integers(-(2**20), 2**20, design.d).astype(float)
    unit, spacing, clip = design.spacing * 2.0**-20, 2.0**-20, 0.8
    target, lengths = rng.integers(0, 2, n).astype(float), rng.uniform(0.1, 5.0, n)
    slopes = design.scores(weights)
    shorten_logistic(slopes, unit, target, lengths, clip, independence, 1.0 / spacing)
    assert (np.abs(slopes * spacing) <= clip / lengths).all()
    numbers = {"clip": clip, "label_independence": independence, "spacing": spacing}
    found = design.logistic_sums(weights, unit, target, lengths, **numbers)
    assert np.array_equal(found, design.sums(slopes))
    assert np.array_equal(found, design.logistic_sums(weights, unit, target.astype(np.int8), lengths, **numbers))


def test_strips_are_views_that_cover_all_rows():
    rng = np.random.default_rng(0)
    n, p = 9 * TILE_ROWS + 5, 300  # more than one strip
    design = DesignMatrix.from_array(rng.normal(size=(n, p)), Scaling(np.zeros(p), np.ones(p), 3.0), 1.0)
    strips = list(design.strips())
    assert len(strips) > 1
    assert [rows.start for rows, _ in strips] == [0, *(rows.stop for rows, _ in strips)][:-1]
    assert strips[-1][0].stop == n
    weights = rng.integers(-(2**20), 2**20, p + 1).astype(float)
    assert np.array_equal(np.concatenate([part.scores(weights) for _, part in strips]), design.scores(weights))
    assert all(np.shares_memory(part._values.tiles, design._values.tiles) for _, part in strips)


def test_rows_keep_their_numbers_when_they_are_sent():
    rows = DenseRows.of(steps(TILE_ROWS + 9, 3))
    sent = pickle.loads(pickle.dumps(rows))
    assert np.array_equal(sent.doubles(slice(0, TILE_ROWS + 9)), rows.doubles(slice(0, TILE_ROWS + 9)))


def test_memory_of_a_design_is_half_of_that_of_doubles():
    n, p = 20 * TILE_ROWS, 50
    design = DesignMatrix.from_array(np.ones((n, p)), Scaling(np.zeros(p), np.ones(p), 3.0))
    assert design._values.tiles.nbytes == 4 * n * p
