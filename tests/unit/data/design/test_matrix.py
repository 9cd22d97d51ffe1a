"""A design gives the same integers and sums, bit for bit, for every storage, split, order and number of threads."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from dperm.data.design.bounds import Bounds
from dperm.data.design.matrix import DesignMatrix, Scaling, Shape
from dperm.data.holding.design_data import DesignData
from dperm.errors import InvalidBounds
from dperm.objective import Logistic, Multinomial
from dperm.queries import FirstMoment, FullGradient, SecondMoment

CENTRED = Scaling(np.array([0.5, -1.0, 0.0, 3.0, 0.2]), np.array([1.0, 2.0, 0.5, 1.5, 0.7]), 0.8)
PLAIN = Scaling(np.zeros(5), np.ones(5), 1.0)
SCALINGS = [PLAIN, CENTRED, Scaling(np.zeros(5), np.full(5, 0.3), 2.0, row_norm=0.9)]


def table(seed=0, n=40, p=5, density=0.4):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.0, 1.5, (n, p))
    X[rng.random(X.shape) > density] = 0.0
    return X


def whole(design):
    return np.concatenate([block for _, block in design.row_chunks()])


def forms(X):
    return {
        "C": np.ascontiguousarray(X),
        "F": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=0)[::2],
        "csr": sp.csr_array(X),
        "csc": sp.csc_array(X),
        "coo": sp.coo_array(X),
        "csr matrix": sp.csr_matrix(X),
    }


# ------------------------------------------------------------------------------------------ one design in all forms
@pytest.mark.parametrize("scaling", SCALINGS, ids=["plain", "centred", "row norm"])
@pytest.mark.parametrize("intercept", [0.0, 1.0, 0.25])
def test_all_forms_give_the_same_integers_and_results(scaling, intercept):
    X = table()
    rng = np.random.default_rng(1)
    designs = {name: DesignMatrix.from_array(form, scaling, intercept) for name, form in forms(X).items()}
    reference = designs["C"]
    d = reference.d
    blocks = whole(reference)
    assert (blocks == np.rint(blocks)).all()
    weights = rng.integers(-1000, 1000, (d, 3)).astype(float)
    slopes = rng.integers(-1000, 1000, (len(X), 3)).astype(float)
    subsets = [None, [0], [d - 1], [d - 1, 0, 2], list(range(d))]
    for name, design in designs.items():
        assert (whole(design) == blocks).all(), name
        for subset in subsets:
            picked = slice(None) if subset is None else subset
            w = weights if subset is None else weights[subset]
            for one in (w, w[:, 0]):
                assert (design.scores(one, subset) == blocks[:, picked] @ one).all(), name
            for one in (slopes, slopes[:, 0]):
                assert (design.sums(one, subset) == blocks[:, picked].T @ one).all(), name
            assert (design.squared_norms(subset) == (blocks[:, picked] ** 2).sum(axis=1)).all(), name


def test_number_types_do_not_matter():
    whole_numbers = np.round(table(2) * 2)
    reference = whole(DesignMatrix.from_array(whole_numbers, CENTRED, 1.0))
    for dtype in (np.float32, np.float16, np.int64, np.int8, np.longdouble):
        assert (whole(DesignMatrix.from_array(whole_numbers.astype(dtype), CENTRED, 1.0)) == reference).all()
        if np.dtype(dtype).itemsize in (1, 4, 8):
            sparse = sp.csr_array(whole_numbers.astype(dtype))
            assert (whole(DesignMatrix.from_array(sparse, CENTRED, 1.0)) == reference).all()


def test_the_callers_array_is_not_changed():
    for form in forms(table()).values():
        stored = form if isinstance(form, np.ndarray) else form.data
        before = stored.copy()
        for scaling in SCALINGS:
            DesignMatrix.from_array(form, scaling, 1.0)
        assert (stored == before).all()


def test_duplicates_in_sparse_input_are_summed_before_clipping():
    data, indices, indptr = [0.4, 0.3, -0.1, 0.9, 0.9], [0, 0, 1, 1, 1], [0, 2, 5]
    twice = sp.csr_array((data, indices, indptr), shape=(2, 2))
    scaling = Scaling(np.zeros(2), np.ones(2), 1.0)
    dense = np.array([[0.7, 0.0], [0.0, 1.7]])
    assert (whole(DesignMatrix.from_array(twice, scaling)) == whole(DesignMatrix.from_array(dense, scaling))).all()


def test_huge_values_are_clipped_without_warning():
    X = np.array([[1e308, -1e308], [1e-320, 0.0], [1.7e308, 5e-324]])
    scaling = Scaling(np.array([-1e308, 1e308]), np.array([1e-3, 1e-3]), 1.0)
    for form in (X, sp.csr_array(X)):
        design = DesignMatrix.from_array(form, scaling, 1.0)
        assert np.abs(whole(design)).max() * design.spacing <= design.value_bound
        assert np.isfinite(whole(design)).all()


def test_constant_columns_become_zero_and_keep_no_coefficient():
    scaling = Scaling(np.array([3.0, 0.0]), np.array([0.0, 2.0]), 1.0)
    X = np.array([[3.0, 1.0], [99.0, -1.0]])
    for form in (X, sp.csc_array(X)):
        assert (whole(DesignMatrix.from_array(form, scaling))[:, 0] == 0.0).all()
    coefficients, intercept = scaling.coefficients_in_user_units(np.array([5.0, 4.0, 1.0]), 1.0)
    assert coefficients.tolist() == [0.0, 2.0]
    assert intercept == 1.0


def test_entries_round_to_nearest_and_stay_within_the_clip():
    scaling = Scaling(np.zeros(1), np.ones(1), 0.9)  # not a power of two
    design = DesignMatrix.from_array(np.linspace(-2, 2, 4001)[:, None], scaling)
    values = whole(design)[:, 0] * design.spacing
    assert np.abs(values).max() == design.value_bound <= 0.9
    assert np.abs(values - np.clip(np.linspace(-2, 2, 4001), -0.9, 0.9)).max() <= design.spacing


def test_without_row():
    X = table()
    for form in (X, sp.csr_array(X)):
        design = DesignMatrix.from_array(form, CENTRED, 1.0)
        for row in (0, 7, 39):
            smaller = design.without_row(row)
            assert (whole(smaller) == np.delete(whole(design), row, axis=0)).all()
            assert smaller.shape == design.shape
            assert (smaller.n, smaller.n_rows) == (40, 39)
            ones = np.ones(40)
            gone = design.sums(ones) - smaller.sums(ones[1:])
            assert (gone == whole(design)[row]).all()  # an empty record contributes nothing, its intercept included


# ------------------------------------------------------------------------------------------ bounds, exactly
def exact_square(steps):
    return sum(int(v) ** 2 for v in steps)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(-50, 50), min_size=3, max_size=3), min_size=1, max_size=6),
    st.floats(0.05, 8.0),
    st.sampled_from([0.0, 1.0]),
    st.booleans(),
)
def test_row_norm_holds_exactly(rows, row_norm, intercept, sparse):
    scaling = Scaling(np.zeros(3), np.array([1.0, 3.0, 10.0]), 2.0, row_norm)
    X = np.array(rows)
    design = DesignMatrix.from_array(sp.csr_array(X) if sparse else X, scaling, intercept)
    spacing = Fraction(design.spacing)
    for row in whole(design):
        features = row[:3]
        assert exact_square(features) * spacing**2 <= Fraction(row_norm) ** 2
        assert exact_square(row) * spacing**2 <= Fraction(design.row_bound) ** 2
        assert max(abs(int(v)) for v in row) * spacing <= Fraction(design.value_bound)
    # shrinking turns no row around and loses at most a step per entry
    free = whole(DesignMatrix.from_array(X, Scaling(scaling.centre, scaling.scale, 2.0), intercept))
    assert (np.sign(whole(design)) * np.sign(free) >= 0).all()


def test_a_row_norm_in_few_digits_holds_exactly_too():
    norm = np.float32(0.7)
    scaling = Bounds(scale=1, clip=2.0, row_norm=norm).scaling(6)
    design = DesignMatrix.from_array(np.random.default_rng(0).normal(size=(500, 6)), scaling)
    largest = max(exact_square(row) for row in whole(design))
    assert largest * Fraction(design.spacing) ** 2 <= Fraction(float(norm)) ** 2


def test_shrinking_uses_the_allowed_norm():
    scaling = Scaling(np.zeros(3), np.ones(3), 1.0, row_norm=0.5)
    design = DesignMatrix.from_array(np.array([[1.0, 1.0, 1.0], [0.1, 0.0, 0.2]]), scaling)
    lengths = np.sqrt((whole(design) ** 2).sum(axis=1)) * design.spacing
    assert 0.5 - 3 * design.spacing <= lengths[0] <= 0.5
    assert lengths[1] == pytest.approx(math.sqrt(0.05), abs=design.spacing * 2)


def test_norms_are_upper_bounds_and_tight():
    design = DesignMatrix.from_array(table(5, n=200), CENTRED, 1.0)
    spacing = Fraction(design.spacing)
    for norm, row in zip(design.norms(), whole(design), strict=True):
        square = exact_square(row) * spacing**2
        assert square <= Fraction(norm) ** 2 <= square * (1 + Fraction(1, 10**12))


def test_sparse_rows_with_moved_zeros_and_a_row_norm_are_refused():
    scaling = Scaling(np.full(5, 0.5), np.ones(5), 1.0, row_norm=0.1)
    with pytest.raises(InvalidBounds, match="zeros stay zero: declare"):
        DesignMatrix.from_array(sp.csr_array(table()), scaling)
    loose = Scaling(np.full(5, 0.5), np.ones(5), 1.0, row_norm=1e3)  # never reached: nothing to shrink
    DesignMatrix.from_array(sp.csr_array(table()), loose)


@pytest.mark.parametrize("clip", [1e-9, 1e9])
def test_a_clip_out_of_proportion_is_refused(clip):
    with pytest.raises(InvalidBounds, match="out of proportion"):
        Shape.of(100, 3, clip, None, 1.0)


# ------------------------------------------------------------------------------------------ sums in any order
N, P = 30_000, 24
LOSSES = [Logistic(), Multinomial(3)]


@pytest.fixture(scope="module")
def big():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, P)) / 3.0
    y = rng.integers(0, 3, N).astype(float)
    return X, y


def data_of(X, y):
    scaling = Scaling(np.linspace(-0.2, 0.3, P), np.linspace(0.4, 1.1, P), 1.0)
    return DesignData(DesignMatrix.from_array(X, scaling, 1.0), y, 0.0, 2.0)


def gradient_of(data, loss, clip=0.7):
    shape = (P + 1,) if loss.n_outputs == 1 else (P + 1, loss.n_outputs)
    weights = np.random.default_rng(9).normal(size=shape)
    return FullGradient(loss, weights, clip).evaluate(data)


def part_of(data, rows):
    """Some of the rows as a part of the same data set: the public numbers stay those of the whole."""
    return DesignData(data.design.take(np.arange(data.n_rows)[rows]), data.target[rows], 0.0, 2.0)


def same(one, two):
    return one.tobytes() == two.tobytes()


def plain_gradient(X, y):
    """What a library would do without grids: float sums."""
    weights = np.random.default_rng(9).normal(size=P)
    return X.T @ Logistic().slope(X @ weights, np.clip(y, 0, 1))


def test_plain_float_sums_differ_on_these_data(big):
    """The planted bug: at this size the tests below would catch sums without grids."""
    X, y = big
    order = np.random.default_rng(0).permutation(N)
    plain = plain_gradient(X, y)
    assert not same(plain, plain_gradient(X[order], y[order]))
    halves = [plain_gradient(X[part], y[part]) for part in (slice(0, 12_345), slice(12_345, None))]
    assert not same(plain, halves[0] + halves[1])
    assert not same(plain, plain_gradient(sp.csr_array(X), y))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_gradient_does_not_depend_on_threads(big, loss):
    values = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            values.append(gradient_of(data_of(*big), loss))
    assert same(*values)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_gradient_does_not_depend_on_the_order_of_rows(big, loss):
    X, y = big
    value = gradient_of(data_of(X, y), loss)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(N)
        assert same(value, gradient_of(data_of(X[order], y[order]), loss))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("cuts", [[1], [12_345], [1, 2, 3, 29_999], list(range(777, N, 777))], ids=len)
def test_gradient_does_not_depend_on_chunks(big, loss, cuts):
    data = data_of(*big)
    ends = [0, *cuts, N]
    parts = [part_of(data, slice(a, b)) for a, b in pairwise(ends)]
    assert same(sum(gradient_of(part, loss) for part in parts), gradient_of(data, loss))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_gradient_does_not_depend_on_the_layout(big, loss):
    X, y = big
    X = X.astype(np.float32)  # numbers that both types hold
    value = gradient_of(data_of(X, y), loss)
    others = [
        np.asfortranarray(X),
        X.astype(float),
        sp.csr_array(X),
        sp.csc_array(X.astype(float)),
        X[:, ::-1][:, ::-1],
    ]
    for other in others:
        assert same(value, gradient_of(data_of(other, y), loss))
    numbers = np.round(X * 3)
    assert same(gradient_of(data_of(numbers, y), loss), gradient_of(data_of(numbers.astype(np.int64), y), loss))


@pytest.mark.parametrize("query", [FirstMoment(0.8), SecondMoment(0.8)], ids=lambda query: query.name)
def test_moments_do_not_depend_on_order_chunks_or_threads(big, query):
    X, y = big
    data = data_of(X, y)
    value = query.evaluate(data)
    order = np.random.default_rng(0).permutation(N)
    with threadpool_limits(1):
        assert same(value, query.evaluate(data_of(X[order], y[order])))
    assert same(value, query.evaluate(data_of(sp.csr_array(X), y)))


def test_one_persons_influence_stops_at_the_persons_own_summand(big):
    """Replacing a row changes the exact sum by exactly the difference of two summands."""
    X, y = big
    swapped = X.copy()
    swapped[17] = 5.0
    one, two = data_of(X, y), data_of(swapped, y)
    change = gradient_of(two, Logistic()) - gradient_of(one, Logistic())
    alone = [gradient_of(part_of(data, slice(17, 18)), Logistic()) for data in (one, two)]
    assert same(change, alone[1] - alone[0])


# ------------------------------------------------------------------------------------------ back to the user's units
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("intercept", [0.0, 1.0])
def test_predictions_in_user_units_equal_scaled_predictions(n_outputs, intercept):
    rng = np.random.default_rng(4)
    scaling = Scaling(np.array([10.0, -3.0, 0.0]), np.array([4.0, 0.5, 1e3]), 1.0)
    X = scaling.centre + scaling.scale * rng.integers(-1024, 1025, (50, 3)) / 1024  # exactly on the grid
    for form in (X, sp.csr_array(X)):
        design = DesignMatrix.from_array(form, scaling, intercept)
        weights = rng.normal(size=design.d if n_outputs == 1 else (design.d, n_outputs))
        coefficients, offset = scaling.coefficients_in_user_units(weights, design.intercept_height)
        scaled = whole(design) * design.spacing @ weights
        np.testing.assert_allclose(form @ coefficients + offset, scaled, rtol=0, atol=1e-11)
        assert coefficients.shape == weights[:3].shape
        assert np.shape(offset) == weights.shape[1:]
