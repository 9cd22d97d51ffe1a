"""Queries compute their documented values: against plain numpy, for every loss; bad arguments are refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dperm.data.holding.table_data import TableData
from dperm.errors import InvalidInput
from dperm.objective import Huber, Logistic, Multinomial, SmoothedHinge, Squared
from dperm.queries import (
    AtomScores,
    Curvature,
    FirstMoment,
    FullGradient,
    GradientBlock,
    GradientCoordinate,
    PartialPredictions,
    QuantileScores,
    SecondMoment,
    SketchedColumn,
    TargetMoment,
    unpack_symmetric,
)
from dperm.testing.data import Layout, design_data

LOSSES = [Logistic(), Squared(residual_clip=0.8), Huber(0.5), SmoothedHinge(0.5), Multinomial(3)]
LAYOUTS = [
    Layout(n=50, n_features=4),
    Layout(n=50, n_features=4, sparse=True, centre=0.3),
    Layout(n=50, n_features=4, row_norm=1.1, intercept=0.5),
    Layout(n=50, n_features=4, intercept=0.0, clip=3.0),
]
# rounding toward zero of a slope loses at most one step of 2^-28 or so per person
CLOSE = {"rtol": 0, "atol": 1e-6}


@pytest.fixture(params=LAYOUTS, ids=["dense", "sparse", "row norm", "no intercept"])
def data(request):
    rng = np.random.default_rng(0)
    layout = request.param
    X = rng.normal(0.0, layout.clip, (layout.n, layout.n_features))
    if layout.sparse:
        X[rng.random(X.shape) < 0.5] = 0.0
    made = design_data(layout, X, rng.integers(0, 3, layout.n))
    return replace(made, target_high=2.0)


def rows_of(data):
    return np.concatenate([block for _, block in data.design.row_chunks()]) * data.design.spacing


def weights_for(loss, data, seed=1):
    d = data.design.d
    return np.random.default_rng(seed).normal(size=d if loss.n_outputs == 1 else (d, loss.n_outputs))


def per_person(data, loss, weights, clip, columns=slice(None)):
    """Gradient of every person, clipped one by one."""
    X = rows_of(data)
    gradients = []
    for x, y in zip(X, data.target, strict=True):
        z = (x @ weights).reshape((1,) if loss.n_outputs == 1 else (1, -1))
        gradient = np.multiply.outer(x[columns], loss.slope(z, np.array([y]))[0])
        length = np.sqrt((gradient**2).sum())
        gradients.append(gradient * (1.0 if clip is None else min(1.0, clip / max(length, 1e-300))))
    return np.array(gradients)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("clip", [None, 0.4, 100.0])
def test_gradients(data, loss, clip):
    weights = weights_for(loss, data)
    value = FullGradient(loss, weights, clip).evaluate(data)
    np.testing.assert_allclose(value, per_person(data, loss, weights, clip).sum(axis=0), **CLOSE)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("clip", [None, 0.3])
def test_blocks_and_coordinates(data, loss, clip):
    weights = weights_for(loss, data)
    for columns in ((2, 0), (data.design.d - 1,), tuple(range(data.design.d))):
        value = GradientBlock(loss, weights, clip, columns).evaluate(data)
        expected = per_person(data, loss, weights, clip, list(columns)).sum(axis=0)
        np.testing.assert_allclose(value, expected, **CLOSE)
        for j in columns:
            single = GradientCoordinate(loss, weights, None, (j,)).evaluate(data)
            np.testing.assert_allclose(single, FullGradient(loss, weights).evaluate(data)[[j]], **CLOSE)


@pytest.mark.parametrize("loss", LOSSES[:4], ids=lambda loss: loss.name)
def test_atom_scores(data, loss):
    weights = weights_for(loss, data)
    gradient = per_person(data, loss, weights, None).sum(axis=0)
    scores = AtomScores(loss, weights).evaluate(data)
    np.testing.assert_allclose(scores, np.concatenate([-gradient, gradient]), **CLOSE)


def shortened(data, clip):
    X = rows_of(data)
    if clip is None:
        return X
    return X * np.minimum(1.0, clip / np.maximum(np.linalg.norm(X, axis=1), 1e-300))[:, None]


@pytest.mark.parametrize("clip", [None, 0.7])
def test_moments(data, clip):
    X = shortened(data, clip)
    np.testing.assert_allclose(FirstMoment(clip).evaluate(data), X.sum(axis=0), atol=1e-5)
    matrix = unpack_symmetric(SecondMoment(clip).evaluate(data), data.design.d)
    np.testing.assert_allclose(matrix, X.T @ X, atol=2e-3)
    assert (matrix == matrix.T).all()
    middle = np.array([(data.target - 1.0).sum()])  # the middle of the codes 0, 1, 2
    np.testing.assert_allclose(TargetMoment().evaluate(data), middle, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES[:4], ids=lambda loss: loss.name)
@pytest.mark.parametrize("clip", [None, 0.7])
def test_curvature_is_the_hessian_of_the_total_loss(data, loss, clip):
    weights = weights_for(loss, data)
    X = shortened(data, clip)
    second = loss.curvature(rows_of(data) @ weights, data.target)
    matrix = unpack_symmetric(Curvature(clip, loss, weights).evaluate(data), data.design.d)
    np.testing.assert_allclose(matrix, X.T @ (second[:, None] * X), atol=2e-3)


def test_packing_keeps_the_frobenius_norm():
    rng = np.random.default_rng(0)
    for d in (1, 2, 5):
        matrix = rng.normal(size=(d, d))
        matrix += matrix.T
        above = np.triu_indices(d, 1)
        packed = np.concatenate([np.diag(matrix), math.sqrt(2.0) * matrix[above]])
        np.testing.assert_allclose(unpack_symmetric(packed, d), matrix, rtol=1e-14)
        assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(matrix))


def test_predictions(data):
    weights = weights_for(LOSSES[0], data)
    np.testing.assert_allclose(PartialPredictions(weights).evaluate(data), rows_of(data) @ weights, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("size", [1e-320, 1e-30, 1e30, 1e290])
def test_extreme_weights_give_finite_values_within_the_bound(data, loss, size):
    query = FullGradient(loss, weights_for(loss, data) * size, 0.5)
    value = query.evaluate(data)
    assert np.isfinite(value).all()
    assert np.abs(value).max() <= query.bound(data.facts)


# ------------------------------------------------------------------------------------------ quantiles
def naive_scores(x, grid, quantile, n, side):
    """Values move to the next grid point above or below; a point misses by the records it would have to pass."""
    out = []
    for k in range(len(grid)):
        if side == "high":
            below, up_to = (x <= grid[k - 1]).sum() if k else 0, (x <= grid[k]).sum()
        else:
            below, up_to = (x < grid[k]).sum() if k else 0, (x < grid[(k + 1) % len(grid)]).sum()
        up_to = n if k + 1 == len(grid) else up_to
        out.append(-max(0.0, below - quantile * n, quantile * n - up_to))
    return out


@pytest.mark.parametrize("side", ["low", "high"])
@pytest.mark.parametrize("quantile", [0.05, 0.5, 0.95])
def test_quantile_scores(side, quantile):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=200), rng.integers(0, 3, 200)])
    grid = np.array([-4.0, -1.0, 0.0, 0.5, 1.0, 2.0, 4.0])
    for column in (0, 1):
        query = QuantileScores(column, quantile, grid, side)
        scores = query.evaluate(TableData(X))
        np.testing.assert_allclose(scores, naive_scores(X[:, column], grid, quantile, 200, side), atol=1e-9)
        assert scores.max() <= 0.0
        assert np.abs(scores).max() <= query.bound(TableData(X).facts)


def test_some_point_always_has_score_zero():
    """Also for data outside the grid, where it is the nearest end."""
    grid = np.linspace(-3.0, 3.0, 13)
    inside = TableData(np.random.default_rng(0).uniform(-3, 3, (101, 1)))
    for side, quantile in (("low", 0.05), ("high", 0.95)):
        assert QuantileScores(0, quantile, grid, side).evaluate(inside).max() == 0.0
        for value, best in ((1e9, 12), (-1e9, 0)):
            scores = QuantileScores(0, quantile, grid, side).evaluate(TableData(np.full((11, 1), value)))
            assert scores.argmax() == best


# ------------------------------------------------------------------------------------------ bad arguments
UNBOUNDED = Squared()
ZERO = np.zeros(5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FullGradient(UNBOUNDED, ZERO), "unbounded slopes"),
        (lambda: AtomScores(UNBOUNDED, ZERO), "unbounded slopes"),
        (lambda: AtomScores(Multinomial(3), ZERO), "one prediction per person"),
        (lambda: FullGradient(Logistic(), ZERO, 0.0), r"clip must be (above 0|a finite number), got"),
        (lambda: FullGradient(Logistic(), ZERO, math.nan), r"clip must be (above 0|a finite number), got"),
        (lambda: FullGradient(Logistic(), ZERO, math.inf), r"clip must be (above 0|a finite number), got"),
        (lambda: GradientBlock(Logistic(), ZERO), "distinct column indices"),
        (lambda: GradientBlock(Logistic(), ZERO, None, (1, 1)), "distinct column indices"),
        (lambda: GradientBlock(Logistic(), ZERO, None, (-1,)), "distinct column indices"),
        (lambda: GradientCoordinate(Logistic(), ZERO, None, (0, 1)), "exactly one column"),
        (lambda: FirstMoment(-1.0), r"clip must be (above 0|a finite number), got"),
        (lambda: SecondMoment(math.inf), r"clip must be (above 0|a finite number), got"),
        (lambda: Curvature(), "needs a loss"),
        (lambda: Curvature(None, Logistic()), "needs a loss"),
        (lambda: Curvature(None, None, ZERO), "needs a loss"),
        (lambda: Curvature(None, Multinomial(3), ZERO), "one prediction"),
        (lambda: QuantileScores(0, 0.0, ZERO), "between 0 and 1"),
        (lambda: QuantileScores(0, math.nan, ZERO), "between 0 and 1"),
        (lambda: QuantileScores(0, 0.5, np.array([1.0])), "increasing points"),
        (lambda: QuantileScores(0, 0.5, np.array([1.0, math.nan])), "increasing points"),
        (lambda: QuantileScores(0, 0.5, np.array([2.0, 1.0])), "increasing points"),
        (lambda: QuantileScores(-1, 0.5, np.array([1.0, 2.0])), "column must be 0 or more"),
        (lambda: QuantileScores(0, 0.5, np.array([1.0, 2.0]), "middle"), "side must be"),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


def test_single_precision_clips_are_converted_to_double():
    clip = np.float32(0.1)
    for query in (FullGradient(Logistic(), ZERO, clip), FirstMoment(clip), SecondMoment(clip)):
        assert type(query.clip) is float
        assert query.clip == float(clip)


def test_arguments_that_do_not_fit_the_data(data):
    facts, d = data.facts, data.design.d
    for query, words in [
        (FullGradient(Logistic(), np.zeros(d + 1)), "weights must have shape"),
        (FullGradient(Multinomial(3), np.zeros(d)), "weights must have shape"),
        (AtomScores(Logistic(), np.zeros((d, 1))), "weights must have shape"),
        (Curvature(None, Logistic(), np.full(d, np.inf)), "weights must be finite"),
        (GradientBlock(Logistic(), np.zeros(d), None, (d,)), "outside a design"),
        (QuantileScores(facts.n_features, 0.5, np.array([0.0, 1.0])), "outside a table"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            query.size(facts)


@pytest.mark.parametrize(("column", "n_rows"), [(-1, 1), (0, 0), (-2, 3)])
def test_a_sketch_needs_a_column_and_a_row(column, n_rows):
    with pytest.raises(InvalidInput, match="sketch"):
        SketchedColumn(column, n_rows, "signs")
    assert SketchedColumn(0, 1, "signs").n_rows == 1
