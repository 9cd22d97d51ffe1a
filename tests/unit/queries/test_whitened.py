"""Queries in a released metric: documented values, summands within the clip, refusal of arguments that do not fit."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dperm import Ledger
from dperm.data.design.row_map import RowMap
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput
from dperm.kernels.exact import Grids
from dperm.objective import Huber, Logistic, Multinomial, SmoothedHinge, Squared
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.queries import MappedGradient, MappedSecondMoment, RowLengths, SecondMoment, unpack_symmetric
from dperm.testing.data import Layout, design_data, design_pairs

LOSSES = [Logistic(), Squared(residual_clip=0.8), Huber(0.5), SmoothedHinge(0.5), Multinomial(3)]
LAYOUTS = [
    Layout(n=50, n_features=4),
    Layout(n=50, n_features=4, sparse=True, centre=0.3),
    Layout(n=50, n_features=4, row_norm=1.1, intercept=0.5),
    Layout(n=50, n_features=4, intercept=0.0, clip=3.0),
    Layout(n=2, n_features=1, intercept=0.0),
]
NAMES = ["dense", "sparse", "row norm", "no intercept", "tiny"]


@pytest.fixture(params=LAYOUTS, ids=NAMES)
def data(request):
    rng = np.random.default_rng(0)
    layout = request.param
    X = rng.normal(0.0, layout.clip, (layout.n, layout.n_features))
    if layout.sparse:
        X[rng.random(X.shape) < 0.5] = 0.0
    X[-1] = 0.0  # an empty row, of length zero where there is no intercept
    return replace(design_data(layout, X, rng.integers(0, 3, layout.n)), target_high=2.0)


def map_for(data, k=None, seed=1):
    rng = np.random.default_rng(seed)
    d = data.design.d
    turned, _ = np.linalg.qr(rng.normal(size=(d, d)))
    return RowMap((turned * 10.0 ** rng.uniform(-1.0, 1.0, d))[:, :k], data.facts.grids)


def rows_of(data):
    return np.concatenate([block for _, block in data.design.row_chunks()]) * data.design.spacing


def weights_for(loss, data, seed=1, size=1.0):
    d = data.design.d
    return size * np.random.default_rng(seed).normal(size=d if loss.n_outputs == 1 else (d, loss.n_outputs))


def only(data, i):
    """The same public facts with a single contributing record."""
    return replace(data, design=data.design.take(np.array([i])), target=data.target[[i]])


def permuted(data, order):
    return replace(data, design=data.design.take(order), target=data.target[order])


# --------------------------------------------------------------------------------------------- gradients
def blind_slope(loss, z):
    """Largest slope over all labels, from the loss itself."""
    labels = range(loss.n_outputs) if loss.n_outputs > 1 else (0, 1)
    slopes = [loss.slope(z, np.full(len(z), float(label))) for label in labels]
    return np.max([np.linalg.norm(s.reshape(len(z), -1), axis=1) for s in slopes], axis=0)


def naive(data, loss, weights, rows, clip, label_independence):
    X = rows_of(data)
    slopes = loss.slope(X @ weights, data.target).reshape(len(X), -1)
    Z = X @ rows.matrix
    lengths = np.maximum(np.linalg.norm(Z, axis=1), 1e-300)
    sizes = np.linalg.norm(slopes, axis=1)
    wanted = sizes
    if label_independence:
        known = isinstance(loss, Logistic | Multinomial)
        # a target in no class is not among the labels
        blind = blind_slope(loss, X @ weights) if known else np.full(len(X), loss.slope_bound)
        wanted = np.maximum(sizes, label_independence * blind + (1.0 - label_independence) * sizes)
    factor = np.minimum(1.0, clip / np.maximum(lengths * wanted, 1e-290))
    out = Z.T @ (slopes * factor[:, None])
    return out[:, 0] if loss.n_outputs == 1 else out


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize(("clip", "label_independence"), [(1e3, 0.0), (0.2, 1.0), (0.3, 0.4)])
@pytest.mark.parametrize("k", [None, 1])
def test_gradient_is_the_sum_of_shortened_mapped_gradients(data, loss, clip, label_independence, k):
    rows = map_for(data, k)
    weights = weights_for(loss, data)
    query = MappedGradient(loss, weights, rows, clip, label_independence)
    value = query.evaluate(data)
    wanted = naive(data, loss, weights, rows, clip, label_independence)
    grids = data.facts.grids
    # every slope loses at most one step, times the length of its mapped row
    lost = grids.spacing(loss.slope_bound, grids.slope_bits) * math.sqrt(loss.n_outputs)
    atol = lost * rows.norms(data.design).sum() + 1e-6
    np.testing.assert_allclose(value, wanted, rtol=0, atol=atol)
    assert value.size == query.size(data.facts)
    assert np.abs(value).max() <= query.bound(data.facts)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_people_add_up_and_none_exceeds_the_clip(data, loss):
    rows, clip = map_for(data), 0.2
    query = MappedGradient(loss, weights_for(loss, data, size=3.0), rows, clip, 0.7)
    parts = [query.evaluate(only(data, i)) for i in range(data.design.n_rows)]
    lengths = [np.linalg.norm(part) for part in parts]
    sensitivity = query.zero_out_sensitivity(data.facts)
    assert max(lengths) <= sensitivity <= clip * (1.0 + 1e-9)
    # the image of either neighbour is rounded
    assert sensitivity >= clip + 2.0 * rows.rounding_error(data.facts.n * clip)
    assert rows.rounding_error(1.0) > 0.0
    assert max(lengths) > 0.99 * clip or data.design.n_rows == 2
    np.testing.assert_allclose(query.evaluate(data), np.sum(parts, axis=0), rtol=0, atol=sensitivity - clip + 1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_order_of_people_does_not_matter(data, loss):
    rows = map_for(data)
    order = np.random.default_rng(0).permutation(data.design.n_rows)
    for query in (
        MappedGradient(loss, weights_for(loss, data), rows, 0.3, 0.5),
        MappedSecondMoment(0.5, rows),
        RowLengths(0.7, rows),
        RowLengths(0.7),
    ):
        assert np.array_equal(query.evaluate(permuted(data, order)), query.evaluate(data))


class OwnLogistic(Logistic):
    """A subclass, for which the general way is taken."""


@pytest.mark.parametrize("label_independence", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("clip", [1e-3, 0.2, 1e9])
def test_the_compiled_logistic_slopes_give_the_same_bits(data, clip, label_independence):
    rows = map_for(data)
    for target in (data.target, np.linspace(-1.0, 2.0, data.design.n_rows)):
        moved = replace(data, target=target)
        for size in (0.0, 1.0, 1e3, 1e300):
            weights = weights_for(Logistic(), data, size=size)
            values = [
                MappedGradient(loss, weights, rows, clip, label_independence).evaluate(moved)
                for loss in (Logistic(), OwnLogistic())
            ]
            assert np.array_equal(*values)
            assert size == 0.0 or values[0].any()


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=lambda loss: loss.name)
def test_label_independent_shortening_does_not_depend_on_the_label(loss):
    """The same row with every label: its gradient over its slope is the same number."""
    rng = np.random.default_rng(0)
    layout = Layout(n=1, n_features=3)
    factors = {0.0: [], 1.0: []}
    for trial in range(20):
        row = rng.normal(size=(1, 3))
        for label_independence, found in factors.items():
            ratios = []
            for label in range(max(2, loss.n_outputs)):
                data = replace(design_data(layout, row, [label]), target_high=2.0)
                weights = weights_for(loss, data, trial)
                slope = loss.slope(rows_of(data) @ weights, data.target)[0]
                rows = map_for(data, seed=trial)
                value = MappedGradient(loss, weights, rows, 0.05, label_independence).evaluate(data)
                whole = np.outer(rows_of(data)[0] @ rows.matrix, np.atleast_1d(slope)).reshape(value.shape)
                ratios.append(float((value * whole).sum() / (whole * whole).sum()))
            found.append(max(ratios) / min(ratios))
    assert max(factors[1.0]) < 1.0 + 1e-4  # slopes are cut to a grid
    assert max(factors[0.0]) > 1.5  # ordinary clipping does tell the labels apart


def test_many_classes_keep_the_clip_exactly():
    """A norm of many rounded squares is rounded up, so that the shortened row is no longer than the clip."""
    loss, layout = Multinomial(200), Layout(n=1, n_features=2)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        data = replace(design_data(layout, rng.normal(size=(1, 2)), [199]), target_high=199.0)
        rows = map_for(data, seed=seed)
        query = MappedGradient(loss, weights_for(loss, data, seed, 2.0), rows, 0.05, 0.0)
        value = query.evaluate(data)
        square = sum(Fraction(float(v)) ** 2 for v in value.ravel())
        assert Fraction(49, 1000) ** 2 < square <= Fraction(query.zero_out_sensitivity(data.facts)) ** 2


@pytest.mark.parametrize("size", [2.0**-280, 1.0, 2.0**280])
@pytest.mark.parametrize("neighbours", list(Neighbours), ids=str)
def test_extreme_maps_keep_the_sensitivity(size, neighbours):
    rng = np.random.default_rng(0)
    for layout in (LAYOUTS[0], replace(LAYOUTS[0], clip=1e5), replace(LAYOUTS[0], intercept=0.0, n=2, n_features=1)):
        for one, two in design_pairs(rng, layout, neighbours, 2, 1):
            facts = one.facts
            rows = RowMap(size * rng.uniform(-1.0, 1.0, (facts.d, facts.d)), facts.grids)
            for query in (
                MappedGradient(Logistic(), rng.normal(size=facts.d), rows, 0.3, 1.0),
                MappedGradient(Huber(0.5), 1e200 * rng.normal(size=facts.d), rows, 0.3, 0.5),
                MappedSecondMoment(0.5, rows),
                RowLengths(0.7, rows),
            ):
                a, b = query.evaluate(one), query.evaluate(two)
                assert np.isfinite(a).all()
                assert np.abs(a).max() <= query.bound(facts)
                declared = query.sensitivity(facts, neighbours)
                assert np.linalg.norm(a - b) <= declared


@pytest.mark.parametrize("clip", [1e-90, 1e90])
def test_extreme_clips(data, clip):
    rows = map_for(data)
    for query in (
        MappedGradient(Logistic(), weights_for(Logistic(), data), rows, clip, 1.0),
        MappedSecondMoment(clip, rows),
        RowLengths(clip, rows),
        RowLengths(clip),
    ):
        value = query.evaluate(data)
        assert np.isfinite(value).all()
        assert np.abs(value).max() <= query.bound(data.facts)


# --------------------------------------------------------------------------------------- second moments
@pytest.mark.parametrize("clip", [0.4, 0.9, 50.0])
def test_with_the_identity_it_is_the_second_moment(data, clip):
    same = RowMap(np.eye(data.design.d), data.facts.grids)
    ours = MappedSecondMoment(clip, same).evaluate(data)
    grids, bound = data.facts.grids, max(clip, data.facts.value_bound)
    # both lose at most one step of every entry, on their own grids
    lost = 4.0 * data.facts.n * min(bound, data.facts.row_bound) * grids.spacing(bound, grids.gram_bits)
    np.testing.assert_allclose(ours, SecondMoment(clip).evaluate(data), rtol=0, atol=lost + 1e-9)


@pytest.mark.parametrize("clip", [0.4, 50.0])
@pytest.mark.parametrize("k", [None, 1])
def test_mapped_second_moment(data, clip, k):
    rows = map_for(data, k)
    Z = rows_of(data) @ rows.matrix
    Z = Z * np.minimum(1.0, clip / np.maximum(np.linalg.norm(Z, axis=1), 1e-300))[:, None]
    query = MappedSecondMoment(clip, rows)
    matrix = unpack_symmetric(query.evaluate(data), rows.shape[1])
    grids = data.facts.grids
    atol = 4.0 * data.facts.n * np.abs(Z).max() * grids.spacing(clip, grids.gram_bits) + 1e-12
    np.testing.assert_allclose(matrix, Z.T @ Z, rtol=0, atol=atol)
    for i in range(data.design.n_rows):
        assert np.linalg.norm(query.evaluate(only(data, i))) <= query.zero_out_sensitivity(data.facts)
    assert clip**2 <= query.zero_out_sensitivity(data.facts) <= clip**2 * (1.0 + 1e-9)


# ----------------------------------------------------------------------------------------------- lengths
@pytest.mark.parametrize("clip", [0.4, 50.0])
@pytest.mark.parametrize("mapped", [False, True])
def test_row_lengths(data, clip, mapped):
    rows = map_for(data) if mapped else None
    X = rows_of(data)
    lengths = np.linalg.norm(X @ rows.matrix if mapped else X[:, : data.design.n_features], axis=1)
    query = RowLengths(clip, rows)
    wanted = (np.minimum(lengths, clip) - clip / 2.0).sum()
    np.testing.assert_allclose(query.evaluate(data), [wanted], rtol=0, atol=1e-9 * clip)
    assert query.zero_out_sensitivity(data.facts) == pytest.approx(clip / 2.0)
    assert query.sensitivity(data.facts, Neighbours.REPLACE_ONE) == pytest.approx(clip)
    nobody = replace(data, design=data.design.take(np.zeros(0, int)), target=np.zeros(0))
    assert query.evaluate(nobody)[0] == 0.0


# ---------------------------------------------------------------------------------------------- refusals
def same(d=5, n=10):
    return RowMap(np.eye(d), Grids(n, d))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MappedGradient(Squared(), np.zeros(5), same(), 1.0), "unbounded slopes"),
        (lambda: MappedGradient(Logistic(), np.zeros(5), same(), 0.0), "clip must be"),
        (
            lambda: MappedGradient(Logistic(), np.zeros(5), same(), math.nan),
            "clip must be",
        ),
        (
            lambda: MappedGradient(Logistic(), np.zeros(5), same(), math.inf),
            "clip must be",
        ),
        (lambda: MappedGradient(Logistic(), np.zeros(5), same(), 1.0, -0.1), "label_independence must be"),
        (lambda: MappedGradient(Logistic(), np.zeros(5), same(), 1.0, 1.1), "label_independence must be"),
        (lambda: MappedGradient(Logistic(), np.zeros(5), same(), 1.0, math.nan), "label_independence must be"),
        (lambda: MappedSecondMoment(None, same()), "needs rows"),
        (lambda: MappedSecondMoment(1.0), "needs rows"),
        (lambda: MappedSecondMoment(-1.0, same()), "clip must be"),
        (lambda: RowLengths(0.0), "clip must be"),
        (lambda: RowLengths(math.inf), "clip must be"),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


def test_single_precision_clips_are_converted_to_double():
    clip = np.float32(0.1)
    for query in (
        MappedGradient(Logistic(), np.zeros(5), same(), clip, 0.0),
        MappedSecondMoment(clip, same()),
        RowLengths(clip),
    ):
        assert type(query.clip) is float
        assert query.clip == float(clip)


def test_maps_that_do_not_fit_are_refused_before_the_charge():
    """Also a map on the grids of more rows: it has more bits than products with these rows can hold."""
    data = design_data(Layout(n=10, n_features=4), np.zeros((10, 4)), np.zeros(10))
    calibrated = calibrate(Plan((PlannedRelease("any", "gaussian", 1),)), Budget(1.0, 1e-6))
    scope = Scope(calibrated, Ledger(), Neighbours.ZERO_OUT, "test")
    with scope:
        holder = DataHolder(data, scope, RandomSource(), Neighbours.ZERO_OUT)
        for rows in (same(5, 10**12), same(5, 11), same(4), same(6)):
            weights = np.zeros(5)
            for query in (
                MappedGradient(Logistic(), weights, rows, 1.0),
                MappedSecondMoment(1.0, rows),
                RowLengths(1.0, rows),
            ):
                with pytest.raises(InvalidInput, match="the map is for"):
                    holder.release(query, GaussianNoise(1.0), "any")
        with pytest.raises(InvalidInput, match="weights must have shape"):
            holder.release(MappedGradient(Logistic(), np.zeros(4), same(), 1.0), GaussianNoise(1.0), "any")
        assert not holder.released
        holder.release(RowLengths(1.0, same()), GaussianNoise(calibrated.noise_multiplier("any")), "any")


def test_no_warning_about_private_values(data):
    """A warning, or an error where a caller asks for one, would depend on a person's row."""
    rows = map_for(data)
    with np.errstate(all="raise"):
        for loss in LOSSES:
            for size in (0.0, 1.0, 1e200):
                weights = weights_for(loss, data, size=size)
                MappedGradient(loss, weights, rows, 1e-90, 1.0).evaluate(data)
                MappedGradient(loss, weights, rows, 1e90, 0.5).evaluate(data)
        MappedSecondMoment(1e-90, rows).evaluate(data)
        RowLengths(1e-90, rows).evaluate(data)
