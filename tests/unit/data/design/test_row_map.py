"""Maps of rows are exact, images stay within their stated error, and designs of another size are refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from dperm.data.design.matrix import DesignMatrix
from dperm.data.design.row_map import RowMap
from dperm.errors import InvalidInput
from dperm.kernels.exact import Grids
from dperm.testing.data import Layout, layouts

LAYOUTS = layouts()


def example_design(layout, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(layout.centre, layout.clip, (layout.n, layout.n_features))
    X[0] = 1e6  # a row at the bounds, and one in the centre
    X[-1] = layout.centre
    if layout.sparse:
        X[rng.random(X.shape) < 0.5] = 0.0
        X = sp.csc_array(X)
    return DesignMatrix.from_array(X, layout.scaling(), layout.intercept)


def map_for(grids, k=None, seed=1, size=1.0):
    rng = np.random.default_rng(seed)
    return RowMap(size * rng.normal(size=(grids.d, k or grids.d)) * 10.0 ** rng.uniform(-3, 1, k or grids.d), grids)


def whole_rows(design):
    return [[int(x) for x in row] for _, block in design.row_chunks() for row in block]


def whole_map(rows):
    return [[int(Fraction(x) / Fraction(rows.spacing)) for x in line] for line in rows.matrix]


@pytest.mark.parametrize("layout", LAYOUTS, ids=range(len(LAYOUTS)))
@pytest.mark.parametrize("k", [None, 1, 7])
def test_mapped_rows_are_the_same_as_with_whole_numbers(layout, k):
    design = example_design(layout)
    rows = map_for(design.grids, k)
    mapped = np.concatenate([block for _, block in rows.rows(design)])
    B = whole_map(rows)
    for x, z in zip(whole_rows(design), mapped, strict=True):
        assert [int(v) for v in z] == [sum(a * b[j] for a, b in zip(x, B, strict=True)) for j in range(rows.shape[1])]


@pytest.mark.parametrize("layout", LAYOUTS, ids=range(len(LAYOUTS)))
def test_maps_with_many_zeros(layout):
    """Diagonal maps and those that only look so, which may take a shorter way to the same numbers."""
    design = example_design(layout)
    d = design.d
    stretched = np.diag(np.random.default_rng(0).normal(size=d))
    moved = stretched.copy()
    moved[0, -1], moved[-1, -1] = 1.5, 0.0
    for matrix in (np.eye(d), stretched, moved, np.roll(stretched, 1, axis=1), np.zeros((d, d)), np.eye(d + 1)[:d]):
        rows = RowMap(matrix, design.grids)
        for (_, block), (_, mapped) in zip(design.row_chunks(), rows.rows(design), strict=True):
            assert np.array_equal(mapped * rows.spacing, block @ rows.matrix)
        np.testing.assert_allclose(rows.norms(design), mapped_lengths(design, rows), rtol=1e-12)


def mapped_lengths(design, rows):
    blocks = [block @ rows.matrix * design.spacing for _, block in design.row_chunks()]
    return np.linalg.norm(np.concatenate(blocks), axis=1)


def test_full_grids_are_exact_too():
    """All entries at their largest: the sum of d products has the most bits that fit."""
    for grids in (Grids(10, 1), Grids(10, 1000), Grids(10**9, 64)):
        rows = RowMap(np.full((grids.d, 2), 1.0 - 2.0**-50), grids)
        block = np.full((1, grids.d), math.ldexp(1.0, grids.value_bits) - 1.0)
        exact = grids.d * int(block[0, 0]) * int(Fraction(float(rows.matrix[0, 0])) / Fraction(rows.spacing))
        assert exact <= 2**53
        assert [int(z) for z in (block @ (rows.matrix / rows.spacing))[0]] == [exact, exact]


def test_the_map_is_kept_as_rounded():
    given = np.random.default_rng(0).normal(size=(5, 3))
    rows = RowMap(given, Grids(100, 5))
    assert np.abs(rows.matrix - given).max() <= rows.spacing / 2.0
    assert rows.shape == (5, 3)
    given[:] = 0.0  # a caller's later changes must not reach it
    assert rows.matrix.any()
    with pytest.raises(ValueError, match="read-only"):
        rows.matrix[0, 0] = 1.0


# --------------------------------------------------------------------------------------------- norms
@pytest.mark.parametrize("layout", LAYOUTS, ids=range(len(LAYOUTS)))
@pytest.mark.parametrize("size", [2.0**-280, 1.0, 2.0**280])
def test_norms_are_tight_upper_bounds(layout, size):
    design = example_design(layout)
    rows = map_for(design.grids, 9, size=size)
    unit = (Fraction(design.spacing) * Fraction(rows.spacing)) ** 2
    B = whole_map(rows)
    for x, norm in zip(whole_rows(design), rows.norms(design), strict=True):
        square = sum(sum(a * b[j] for a, b in zip(x, B, strict=True)) ** 2 for j in range(9)) * unit
        assert square <= Fraction(float(norm)) ** 2 <= square * (1 + Fraction(1, 10**13))


def test_norms_do_not_depend_on_the_position_of_a_row():
    rng = np.random.default_rng(0)
    layout = Layout(n=5000, n_features=5)  # more than one chunk
    X = rng.normal(size=(5000, 5))
    order = rng.permutation(5000)
    design, moved = (DesignMatrix.from_array(rows, layout.scaling(), 1.0) for rows in (X, X[order]))
    rows = map_for(design.grids, 5)
    norms = rows.norms(design)
    assert (rows.norms(moved) == norms[order]).all()
    assert all(rows.norms(design.take(np.array([i])))[0] == norms[i] for i in (0, 1, 17, 4999))


# --------------------------------------------------------------------------------------------- images
def exact_image(rows, steps):
    return [
        sum(Fraction(float(b)) * int(s) for b, s in zip(rows.matrix[:, j], steps, strict=True))
        for j in range(rows.shape[1])
    ]


@pytest.mark.parametrize("grids", [Grids(1, 1), Grids(50, 6), Grids(10**6, 30), Grids(2**45, 3)], ids=str)
@pytest.mark.parametrize("size", [2.0**-280, 1.0, 2.0**280])
def test_images_stay_within_their_rounding_error(grids, size):
    rng = np.random.default_rng(0)
    rows = map_for(grids, 4, size=size)
    errs = []
    for top in (0, 3, 2**20, 2**40, 2**52 - 1):
        for _ in range(5):
            steps = rng.integers(-top, top + 1, grids.d).astype(float)
            exact = exact_image(rows, steps)
            # in units of the map's size, so that no square underflows
            differences = [Fraction(float(a)) - b for a, b in zip(rows.image(steps), exact, strict=True)]
            error = math.hypot(*(float(x / Fraction(size)) for x in differences))
            norm = math.hypot(*(float(b / Fraction(size)) for b in exact))
            assert error <= rows.rounding_error(norm * size) / size
            errs.append(error)
    assert min(errs) == 0.0


def test_images_that_cancel():
    """Large sums whose image is next to nothing: the error is relative to the image, not to the sums."""
    grids = Grids(50, 2)
    rows = RowMap(np.array([[1.0, 1.0 - 2.0**-20], [-1.0, -1.0 + 2.0**-19]]), grids)
    for top in (2.0**51, 2.0**52 - 1.0):
        steps = np.array([top, top - 1.0])
        exact = exact_image(rows, steps)
        error = math.hypot(*(float(Fraction(float(a)) - b) for a, b in zip(rows.image(steps), exact, strict=True)))
        assert error <= rows.rounding_error(math.hypot(*map(float, exact)))


def test_outputs_are_mapped_one_by_one():
    rng = np.random.default_rng(0)
    rows = map_for(Grids(50, 6), 4)
    steps = rng.integers(-(2**50), 2**50, (6, 3)).astype(float)
    image = rows.image(steps)
    assert image.shape == (4, 3)
    assert all((image[:, k] == rows.image(steps[:, k])).all() for k in range(3))


# --------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    "matrix",
    [np.zeros(4), np.zeros((3, 4)), np.zeros((4, 0)), np.full((4, 4), np.nan), np.full((4, 4), np.inf), np.zeros(())],
    ids=["vector", "rows", "empty", "nan", "inf", "scalar"],
)
def test_bad_matrices(matrix):
    with pytest.raises(InvalidInput, match="finite matrix with 4 rows"):
        RowMap(matrix, Grids(10, 4))


@pytest.mark.parametrize("size", [1e300, 1e100, 1e-100, 1e-300, 5e-324])
def test_extreme_maps_are_refused(size):
    with pytest.raises(InvalidInput, match="largest entry of a map"):
        RowMap(size * np.eye(4), Grids(10, 4))


def test_small_entries_beside_large_ones_and_a_zero_map_are_fine():
    grids = Grids(10, 4)
    rows = RowMap(np.diag([1.0, 1e-300, 5e-324, 0.0]), grids)
    assert np.diag(rows.matrix).tolist() == [1.0, 0.0, 0.0, 0.0]
    nothing = RowMap(np.zeros((4, 2)), grids)
    assert not nothing.image(np.full(4, 2.0**50)).any()
    assert nothing.rounding_error(0.0) == 0.0


def test_a_map_for_another_size_is_refused():
    """On the grids of more rows a map keeps more bits, and products with this design would round."""
    design = example_design(LAYOUTS[0])
    for grids in (Grids(10**12, design.d), Grids(design.n + 1, design.d), Grids(design.n, design.d + 1)):
        with pytest.raises(InvalidInput, match="the map is for"):
            map_for(grids).norms(design)
        with pytest.raises(InvalidInput, match=f"the design has {design.n} of {design.d}"):
            map_for(grids).check(design.grids)
    map_for(design.grids).check(design.grids)
