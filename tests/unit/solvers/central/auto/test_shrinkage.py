"""Shrinkage of a descent's result: its null distribution, the null test, and what remains of the weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.special import chdtrc

from dperm.data.design.facts import Facts
from dperm.solvers.central.auto import shrinkage as shrinkage_module
from dperm.solvers.central.auto.clipped_response import ClippedResponse
from dperm.solvers.central.auto.column_selection import column_penalties, inverse_with
from dperm.solvers.central.auto.constants import RULE
from dperm.solvers.central.auto.descent import Descent
from dperm.solvers.central.auto.mean_prediction import mean_shift
from dperm.solvers.central.auto.metric import Metric
from dperm.solvers.central.auto.null_test import NullDistribution, null_p_value
from dperm.solvers.central.auto.shrinkage import shrinkage, shrinkage_factor
from dperm.solvers.central.auto.starting_point import BestConstant


def shrunk(result, metric, null, facts, least=RULE.least_kept, level=RULE.null_level):
    return shrinkage(result, metric, null, facts, None, False, least, level)


# ------------------------------------------------------------------------------------------- null distribution
@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("n_averaged", [1, 7, 20])
@pytest.mark.parametrize("penalty_curvature", [0.0, 3.0])
def test_gains_of_a_descent_agree_with_a_simulation(momentum, n_averaged, penalty_curvature):
    rng = np.random.default_rng(0)
    curvature = np.array([0.0, 0.1, 0.5, 1.0])
    steps = 0.9 / (1.0 + 0.2 * np.arange(20))
    x = previous = total = np.zeros((20_000, 4))
    for t, step in enumerate(steps):
        gradient = curvature * x + rng.normal(size=x.shape)
        previous, x = x, (x + momentum * (x - previous) - step * gradient) / (1.0 + step * penalty_curvature)
        if t >= 20 - n_averaged:
            total = total + x / n_averaged
    simulated = (total**2).mean(axis=0)
    # a variance of 20000 normal draws has a standard error of one percent
    noise_gain, slope_gain = Descent(steps, momentum, n_averaged, penalty_curvature).gains(curvature)
    np.testing.assert_allclose(noise_gain, simulated, rtol=0.05)
    x = previous = total = np.zeros(4)
    for t, step in enumerate(steps):
        previous, x = (
            x,
            (x + momentum * (x - previous) - step * (curvature * x - 1.0)) / (1.0 + step * penalty_curvature),
        )
        if t >= 20 - n_averaged:
            total = total + x / n_averaged
    np.testing.assert_allclose(slope_gain, total, rtol=1e-12)


def test_gains_of_one_step():
    noise_gain, slope_gain = Descent(np.array([0.5]), 0.0, 1, 0.0).gains(np.array([0.3, 2.0]))
    np.testing.assert_allclose(noise_gain, 0.25)
    np.testing.assert_allclose(slope_gain, 0.5)


def test_the_null_distribution_follows_from_the_descent():
    """Sampling variation is the same in all steps, so its total move is squared; noise adds up in squares."""
    facts = Facts(1000, 3, 3)
    metric = Metric.of(np.eye(3), np.ones(3), 1e-6, math.sqrt(3.0), facts.grids)
    descent = Descent(np.full(2, 0.5), 0.0, 1, np.zeros(3))
    for fraction in (0.0, 0.5**4, 1.0):
        response = ClippedResponse(np.array([0.4, 0.2]), np.array([0.6, 0.3]), np.array([2.0, 1.0]))
        null = NullDistribution.of(response, metric, descent, 0.1, 50, fraction)
        # two steps of 0.5: the second corrects the share 0.5 h of the noise of the first
        left, slower = 1.0 - 0.5 * response.cautious, 1.0 - 0.5 * response.curvature
        # after removing the mean over two classes, half of each variance is left
        by_noise = np.mean(0.25 * (1.0 + left**2) * 0.01) / 2.0
        by_sampling = (0.5 * (1.0 + slower)) ** 2 * response.square / 50
        expected = by_noise + fraction**0.25 * by_sampling
        np.testing.assert_allclose(null.variances, np.tile(expected, (3, 1)), rtol=1e-5)
        np.testing.assert_allclose(null.test_variances, np.tile(by_noise + by_sampling, (3, 1)), rtol=1e-5)
        np.testing.assert_allclose(null.output_weights, [1.0, 0.5])
        assert null.learnt == pytest.approx(np.mean(1.0 - left**2), rel=1e-5)


def test_the_null_distribution_of_several_classes_excludes_their_common_part():
    """The result is centred over the classes too; compare with a simulation."""
    facts, rng = Facts(1000, 2, 2), np.random.default_rng(0)
    metric = Metric.of(np.eye(2), np.ones(2), 1e-6, math.sqrt(2.0), facts.grids)
    curvature = np.array([0.05, 0.15, 0.2, 0.1])
    descent = Descent(np.full(30, 0.5), 0.0, 1, np.zeros(2))
    null = NullDistribution.of(ClippedResponse(curvature, curvature, np.zeros(4)), metric, descent, 0.1, 50, 1.0)
    v = np.zeros((20_000, 4))
    for step in descent.steps:
        v -= step * (curvature * v + 0.1 * rng.normal(size=v.shape))
    centred = v - v.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(null.test_variances, np.tile(centred.var(axis=0), (2, 1)), rtol=0.04)


def test_sampling_variation_counts_less_when_columns_exceed_half_the_rows():
    metric = Metric.of(np.eye(30), np.ones(30), 1e-6, math.sqrt(30.0), Facts(1000, 30, 30).grids)
    descent = Descent(np.full(2, 0.5), 0.0, 1, np.zeros(30))
    response = ClippedResponse(np.ones(1), np.ones(1), np.ones(1))
    for rows, share in ((1000, 1.0), (60, 1.0), (40, 0.5), (30, 0.2), (10, 0.2)):
        null = NullDistribution.of(response, metric, descent, 0.0, rows, 0.2**4)
        np.testing.assert_allclose(null.test_variances, null.variances * (share / 0.2), rtol=1e-9)


# ------------------------------------------------------------------------------------------------- null test
def random_problem(rng, d, outputs):
    """Return a random energy root, map to columns, variances and output weights."""
    return (
        rng.normal(size=(d, d)) * rng.exponential(size=d)[:, None],
        rng.normal(size=(max(1, d - 1), d)),
        rng.exponential(size=(d, outputs)) + 0.01,
        np.append(rng.random(outputs - 1), 1.0),
    )


@pytest.mark.parametrize(("d", "outputs"), [(1, 1), (3, 1), (12, 1), (60, 1), (12, 4)])
def test_false_positive_rate_under_the_null_hypothesis(d, outputs):
    rng = np.random.default_rng([d, outputs])
    p_values = []
    for _ in range(800):
        energy, columns, variances, weights = random_problem(rng, d, outputs)
        v = np.sqrt(variances) * rng.normal(size=(d, outputs))
        p_values.append(null_p_value(v, variances, weights, energy, columns))
    for level in (0.5, 0.1, 0.02):
        slack = 3.0 * math.sqrt(level * (1.0 - level) / 800)
        # only the moments of the energy are matched, not its tail: allow a quarter more
        assert np.mean(np.array(p_values) < level) <= 1.25 * level + slack
    # a far too conservative p-value would seldom be below one half
    assert np.mean(np.array(p_values) < 0.5) >= 0.12


@pytest.mark.parametrize("scale", [1e-90, 1.0, 1e90])
def test_the_p_value_does_not_depend_on_units(scale):
    energy, columns, variances, weights = random_problem(np.random.default_rng(0), 8, 2)
    v = 1.5 * np.sqrt(variances)
    one, other = (null_p_value(unit * v, unit**2 * variances, weights, energy, columns) for unit in (1.0, scale))
    assert one == pytest.approx(other, rel=1e-9)
    assert 0.0 < one < 1.0


def test_many_weak_columns_and_a_single_strong_one_are_both_detected():
    unit, flat = np.eye(100), np.ones((100, 1))
    many, single = 1.6 * flat, 5.5 * unit[:, :1]
    rest = np.random.default_rng(0).normal(size=(100, 1))
    for v in (many, single + (unit[:, :1] == 0.0) * rest):
        assert null_p_value(v, flat, np.ones(1), unit, unit) < 0.01
    # each statistic alone would miss the other case
    assert np.square(many).max() < 10.0
    assert np.square(single + rest).sum() < 140.0


def test_a_direction_shared_by_many_columns_is_detected():
    """One direction among many, to which every column contributes a little."""
    unit, flat = np.eye(128), np.ones((128, 1))
    columns = hadamard(128) / math.sqrt(128.0)
    v = np.where(unit[:, :1] > 0.0, 5.5, np.random.default_rng(0).normal(size=(128, 1)))
    assert null_p_value(v, flat, np.ones(1), unit, columns) < 0.01
    # the other two statistics would miss it
    assert chdtrc(1.0, np.square(columns @ v).max()) * 128 > 0.1
    assert chdtrc(128.0, np.square(v).sum()) > 0.05


def test_outputs_count_by_their_weight():
    """Energy in an output that hardly affects the loss does not lower the p-value."""
    unit, flat = np.eye(100), np.ones((100, 2))
    result = np.column_stack([np.ones(100), np.full(100, 1.6)])
    important, unimportant = (null_p_value(result, flat, np.array([1.0, weight]), unit, unit) for weight in (1.0, 1e-6))
    assert important < 0.01 < 0.5 < unimportant


def test_columns_without_variance_are_ignored():
    columns = np.vstack([np.eye(3), np.zeros(3)])
    flat = np.ones((3, 1))
    assert 0.0 < null_p_value(flat, flat, np.ones(1), np.eye(3), columns) <= 1.0
    assert null_p_value(flat, flat, np.ones(1), np.zeros((3, 3)), columns) == 1.0


# ------------------------------------------------------------------------------------------------- shrinkage
@pytest.mark.parametrize("least", [0.0, 0.1])
def test_results_explained_by_sampling_variation_are_removed(least):
    """With little noise sampling variation is kept, as without privacy, but only if the null test rejects."""
    facts = Facts(1000, 3, 3)
    metric = Metric.of(np.eye(3), np.ones(3), 1e-6, math.sqrt(3.0), facts.grids)
    v = np.array([1.0, -1.0, 1.0])
    for variance, low, high in ((0.01, 0.8, 1.0), (1.0, 0.0, least)):
        null = NullDistribution(np.full((3, 1), 0.01), np.full((3, 1), variance), np.ones(1), 1.0)
        moved, kept = shrunk(v, metric, null, facts, least)
        assert low <= kept <= high
        np.testing.assert_allclose(moved, kept * (metric.row_map.matrix @ v), rtol=0.05, atol=1e-12)


def test_neither_an_intercept_drift_nor_a_common_part_of_classes_is_evidence_for_columns():
    facts = Facts(1000, 2, 3, intercept_height=1.0)
    metric = Metric.of(np.eye(3), np.ones(3), 1e-6, math.sqrt(3.0), facts.grids)
    drifts = np.where(np.abs(metric.row_map.matrix[-1]) > 0.5, 30.0, 0.3)
    for v, outputs in ((drifts, 1), (np.full((3, 4), 30.0), 4)):
        null = NullDistribution(np.ones((3, outputs)), np.ones((3, outputs)), np.ones(outputs), 1.0)
        _, kept = shrunk(v, metric, null, facts)
        assert kept < 0.01


def test_noise_of_the_intercept_is_not_evidence_against_columns():
    facts = Facts(1000, 2, 3, intercept_height=1.0)
    metric = Metric.of(np.eye(3), np.ones(3), 1e-6, math.sqrt(3.0), facts.grids)
    basis, v = metric.row_map.matrix, np.zeros(3)
    along = np.abs(basis[-1]) > 0.5  # the direction of the intercept
    v[~along] = 10.0
    for intercept_noise in (1.0, 1e4):
        variances = np.where(along, intercept_noise, 1.0)[:, None]
        null = NullDistribution(variances, variances, np.ones(1), 1.0)
        _, kept = shrunk(v, metric, null, facts, 0.0)
        assert kept == pytest.approx(1.0 - 2.0 / 200.0, abs=0.002)


@pytest.mark.parametrize("learnt", [1.0, 0.8, 0.3])
@pytest.mark.parametrize("size", [1.8, 3.0, 10.0])
def test_early_stopping_reduces_the_shrinkage(learnt, size):
    facts = Facts(1000, 3, 3)
    metric = Metric.of(np.eye(3), np.ones(3), 1e-6, math.sqrt(3.0), facts.grids)
    v = np.array([size, -size, size])

    def moved(share):
        null = NullDistribution(np.ones((3, 1)), np.ones((3, 1)), np.ones(1), share)
        return shrunk(v, metric, null, facts, 0.0)

    (full, kept), (out, same) = moved(1.0), moved(learnt)
    assert kept == same
    assert 0.0 < kept < 1.0
    np.testing.assert_allclose(out, full * min(1.0 / kept, learnt**-kept), rtol=1e-9)


def test_the_shrinkage_factor_counts_only_energy_above_the_noise():
    for least in (0.0, 0.1):
        assert shrinkage_factor(1.0, 0.5, least) == least
        assert shrinkage_factor(1.0, 0.0, least) == least
        assert shrinkage_factor(0.0, 0.0, least) == least
        assert shrinkage_factor(0.0, 1.0, least) == 1.0
        assert shrinkage_factor(1.0, 4.0, least) == 0.75


@pytest.mark.parametrize("descent_shift", [-9.0, -0.1, 0.1, 9.0])
def test_the_mean_shift_follows_the_documented_formula(descent_shift):
    best, variance, by_columns = BestConstant(0.0, 2.0, noise=0.3), 0.05, -0.4
    prior, bias = 0.3**2 + 0.2**2, (RULE.clipping_bias * 2.0) ** 2
    weight = prior / (prior + variance + bias)
    most = (1.0 + weight) * 0.3 + 0.2
    expected = math.copysign(min(weight * abs(descent_shift), most), descent_shift)
    assert mean_shift(descent_shift, variance, by_columns, best, True) == pytest.approx(expected)
    share = (prior + bias) / (prior + bias + variance)
    assert mean_shift(descent_shift, variance, by_columns, best, False) == pytest.approx(share * descent_shift)


def test_penalties_of_columns_keep_the_relevant_ones():
    noise = np.eye(40)
    few = np.append(np.full(4, 8.0), np.tile([1.0, -1.0], 18))
    strengths = column_penalties(few, noise)
    assert strengths[:4].max() < 0.01
    assert strengths[4:].min() > 10.0
    assert column_penalties(np.full(40, 8.0), noise).max() < 0.01
    # far above the noise nothing is penalised
    assert not column_penalties(np.full(40, 1e7), noise).any()


def test_the_inverse_of_a_covariance_matrix():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(7, 7))
    covariance = root @ root.T
    np.testing.assert_allclose(inverse_with(covariance, 0.5), np.linalg.inv(covariance + 0.5 * np.eye(7)), rtol=1e-9)
    # not a covariance any more, as after rounding
    np.testing.assert_allclose(inverse_with(np.diag([1.0, -2.0]), 0.0), np.diag([1.0, -0.5]))


def test_where_nothing_speaks_for_the_columns_no_matrix_is_inverted(monkeypatch):
    facts = Facts(1000, 3, 3)
    metric = Metric.of(np.eye(3), np.ones(3), 1e-6, math.sqrt(3.0), facts.grids)
    null = NullDistribution(np.ones((3, 1)), np.ones((3, 1)), np.ones(1), 1.0)
    v = np.full(3, 0.5)
    monkeypatch.setattr(shrinkage_module, "column_penalties", None)
    moved, kept = shrunk(v, metric, null, facts)
    assert kept == 0.0
    assert not moved.any()
    with pytest.raises(TypeError):  # a level of 1 keeps a share of every result
        shrunk(v, metric, null, facts, level=1.0)
