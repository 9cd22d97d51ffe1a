"""Shrinkage of the descent's result: a null test, a penalty on irrelevant columns, and one common factor.

The distribution of the result under the null hypothesis "no column is informative" is known, because the noise is known
and the descent is linear in it. Everything here is post-processing of released values and public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.special import chdtrc

from dperm.data.design.facts import Facts
from dperm.solvers.central.auto.metric import Metric
from dperm.solvers.central.auto.recipes import Recipe
from dperm.solvers.central.auto.starting_point import BestConstant, ClippedResponse
from dperm.types import FloatArray

__all__ = [
    "NO_INFORMATIVE_COLUMN",
    "NO_WEIGHTS",
    "NULL_LEVEL",
    "Descent",
    "NullDistribution",
    "column_penalties",
    "mean_shift",
    "null_p_value",
    "shrinkage",
]


#: utility note of a fit whose null test found no informative column
NO_INFORMATIVE_COLUMN = "No column could be distinguished from noise: predictions are constant, or nearly so"

#: shrinkage factor below which a fit says so
NO_WEIGHTS = 0.1

#: prior guess of the bias of the mean prediction from clipped residuals of a skewed target, in mean deviations
_CLIPPING_BIAS = 0.2
#: relative error of the columns' contribution to the mean prediction, because the mean row is known only roughly
_MEAN_ROW_ERROR = 0.5
#: smallest share of the way to the optimum that a descent is assumed to have covered
_MIN_LEARNT = 0.1
#: smallest variance: below it, as under an extremely strong penalty, neither noise nor weights differ from zero
_MIN_VARIANCE = 1e-200
#: level of the null test: with a larger p-value (nearly) nothing is kept of the columns
NULL_LEVEL = 0.1
#: p-value below which a result is so clear that sampling variation counts only by its reduced share
_CLEAR_LEVEL = 1e-4
#: number of columns assumed to be relevant a priori; with few columns this keeps all of them
_PRIOR_RELEVANT = 3.0
_MAX_SWEEPS = 30
#: weights whose squared length exceeds the noise variance by this factor need no selection among columns
_NOISE_FREE = 1e8
#: smallest noise variance in any direction, relative to the mean: below it the inverse would be rounding error
_MIN_RELATIVE_VARIANCE = 1e-12


@dataclass(frozen=True)
class Descent:
    """Step lengths, momentum, number of averaged iterates and the penalty's second derivative in each direction."""

    steps: FloatArray
    momentum: float
    n_averaged: int
    penalty_curvature: FloatArray | float

    def gains(self, curvature: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Effect of gradient errors on the averaged iterate, in directions of these curvatures.

        The first gain is the output variance per unit variance of noise that is drawn anew in each step. The second is
        the output move per unit of a constant slope; times the curvature it is the share of the way to the optimum
        that the descent covered.

        The iterates follow x <- ((1 + momentum - step h) x - momentum (x before) - step noise) / (1 + step q), with
        the penalty's second derivative q. Derivatives of the output are propagated backwards through this recursion.

        >>> Descent(np.ones(2), 0.0, 1, 0.0).gains(np.array([0.0, 0.5, 1.0]))[1] * [0.0, 0.5, 1.0]
        array([0.  , 0.75, 1.  ])
        """
        n_steps, momentum = len(self.steps), self.momentum
        later, latest = np.zeros_like(curvature), np.zeros_like(curvature)
        noise_gain, slope_gain = np.zeros_like(curvature), np.zeros_like(curvature)
        next_step = 0.0
        for t in range(n_steps - 1, -1, -1):
            step = self.steps[t]
            own = 1.0 / self.n_averaged if t >= n_steps - self.n_averaged else 0.0
            now = (own + (1.0 + momentum - next_step * curvature) * later - momentum * latest) / (
                1.0 + step * self.penalty_curvature
            )
            noise_gain += (step * now) ** 2
            slope_gain += step * now
            later, latest, next_step = now, later, float(step)
        return noise_gain, slope_gain


@dataclass(frozen=True)
class NullDistribution:
    """Distribution of the descent's result if no column is informative: normal, mean zero, with these variances.

    Two sources add up: privacy noise, drawn anew in each step, and sampling variation (chance correlations in the
    data), which is the same in all steps.

    Attributes
    ----------
    variances : array of shape (d, outputs)
        Noise plus the part of the sampling variation that counts against a clear result.
    test_variances : array of shape (d, outputs)
        Noise plus all of the sampling variation, for the null test; less of it where columns are more than half as
        many as rows.
    output_weights : array of shape (outputs,)
        Importance of each output for the loss, relative to the most important one.
    learnt : float
        Share of the way to the optimum that the descent covered: early stopping has shrunk the result by this factor.
    """

    variances: FloatArray
    test_variances: FloatArray
    output_weights: FloatArray
    learnt: float

    @classmethod
    def of(
        cls, response: ClippedResponse, metric: Metric, descent: Descent, noise: float, n: int, sampling_share: float
    ) -> NullDistribution:
        """Build it from the noise of a step, the number of rows and the share of sampling variation that counts."""
        noises, samplings, covered = [], [], []
        for cautious, curvature, square in zip(response.cautious, response.curvature, response.square, strict=True):
            noise_gain, way = descent.gains(cautious * metric.row_moments)
            _, slope_gain = descent.gains(curvature * metric.row_moments)
            noises.append(noise_gain * noise**2)
            samplings.append(slope_gain**2 * metric.row_moments * (square / n))
            covered.append(way * (cautious * metric.row_moments + descent.penalty_curvature))
        by_noise, by_sampling = np.stack(noises, axis=1), np.stack(samplings, axis=1)
        # `shrinkage` removes the mean over the classes: the same here; slopes sum to zero over classes already
        if len(noises) > 1:
            mean = by_noise.mean(axis=1, keepdims=True)
            by_noise += (mean - 2.0 * by_noise) / len(noises)
        share = float(metric.row_moments @ np.mean(covered, axis=0)) / max(float(metric.row_moments.sum()), 1e-9)
        learnt = min(max(share, _MIN_LEARNT), 1.0) ** response.trust
        output_weights = response.curvature / response.curvature.max()
        # with as many columns as rows sampling variation explains every target, and the test would never reject
        tested = max(sampling_share, min(2.0 - 2.0 * len(metric.row_moments) / n, 1.0))
        variances, test_variances = (
            np.maximum(by_noise + part * by_sampling, _MIN_VARIANCE) for part in (sampling_share, tested)
        )
        return cls(variances, test_variances, output_weights, learnt)

    def variances_at(self, p_value: float) -> FloatArray:
        """Variances used for shrinkage: the larger the p-value, the more of the sampling variation counts."""
        unclear = math.log(max(p_value, _CLEAR_LEVEL) / _CLEAR_LEVEL) / math.log(NULL_LEVEL / _CLEAR_LEVEL)
        out: FloatArray = self.variances + min(unclear, 1.0) * (self.test_variances - self.variances)
        return out


def null_p_value(
    result: FloatArray, variances: FloatArray, output_weights: FloatArray, energy_root: FloatArray, columns: FloatArray
) -> float:
    """P-value of the null hypothesis that no column is informative: 1 where nothing speaks against it.

    Three test statistics are used, and three times the smallest of their p-values is returned (Bonferroni):

    - the energy of all columns, which detects many weak columns; its null distribution is approximated by a multiple
      of a chi-square with the same mean and variance (Satterthwaite 1946);
    - the largest standardised weight of a single column (Bonferroni over columns);
    - the largest standardised energy in a single direction (Bonferroni over directions), which detects what many
      columns say jointly: with about as many columns as rows, sampling variation has as much energy as any signal.

    Parameters
    ----------
    result, variances : array of shape (d, outputs)
        Result of a descent in mapped coordinates, and the variances of its null distribution.
    output_weights : array of shape (outputs,)
        Importance of each output.
    energy_root : array of shape (k, d)
        Root of the energy: the energy of a result v is the squared length of ``energy_root @ v``, whose entries belong
        to the directions.
    columns : array of shape (p, d)
        Map from a result to the weights of columns.

    >>> flat, unit = np.ones((40, 1)), np.eye(40)
    >>> null_p_value(flat, flat, np.ones(1), unit, unit)
    1.0
    >>> null_p_value(2.0 * flat, flat, np.ones(1), unit, unit) < 1e-9  # many weak columns
    True
    >>> null_p_value(6.0 * np.eye(40)[:, :1], flat, np.ones(1), unit, unit) < 1e-5  # one strong column
    True
    """
    unit = float(variances.mean())  # normalise: the square of a tiny variance would underflow
    energy = expected = square = max_weight = max_direction = 0.0
    squares_of_root, squares_of_form = np.square(energy_root), np.square(energy_root.T @ energy_root)
    squares_of_columns = np.square(columns)
    for v, variance, weight in zip(result.T / math.sqrt(unit), variances.T / unit, output_weights, strict=True):
        parts, null_means = weight * np.square(energy_root @ v), weight * (squares_of_root @ variance)
        energy += float(parts.sum())
        expected += float(null_means.sum())
        ratios = parts[null_means > 0.0] / null_means[null_means > 0.0]
        max_direction = max(max_direction, float(ratios.max(initial=0.0)))
        square += weight**2 * float(variance @ squares_of_form @ variance)  # of all covariances of directions
        weight_variances = squares_of_columns @ variance
        used = weight_variances > 0.0  # a column that the metric leaves out has neither weight nor noise
        ratios = np.square(columns @ v)[used] / weight_variances[used]
        max_weight = max(max_weight, float(ratios.max(initial=0.0)))
    if square <= 0.0:
        return 1.0
    p_energy = float(chdtrc(expected**2 / square, energy * expected / square))
    p_column = float(chdtrc(1.0, max_weight)) * len(columns) * len(output_weights)
    p_direction = float(chdtrc(1.0, max_direction)) * len(energy_root) * len(output_weights)
    return min(1.0, 3.0 * min(p_energy, p_column, p_direction))


def _inverse(covariance: FloatArray, added: float) -> FloatArray:
    """Return the inverse of a covariance matrix, with ``added`` on its diagonal."""
    matrix = covariance + added * np.eye(len(covariance))
    out: FloatArray
    factor, failed = dpotrf(matrix.T, lower=1)  # half the work of a general inverse; LAPACK reads columns first
    if failed:  # rounding has made a variance negative
        out = np.asarray(np.linalg.inv(matrix), np.float64)
        return out
    lower = dpotri(factor, lower=1, overwrite_c=1)[0]  # the other triangle is zero
    out = lower + lower.T
    np.fill_diagonal(out, lower.diagonal())
    return out


def column_penalties(weights: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return the strength of a ridge penalty for each column that removes weights explained by noise alone.

    Model: weights are normal around true weights with this covariance. A true weight is zero, or with probability
    ``share`` normal with one variance for all columns (spike and slab). Share and variance are fitted by variational
    inference, one coordinate at a time (Carbonetto & Stephens 2012); if all weights matter, all are kept. For a column
    that is relevant with probability c, the strength is its own precision times (1 - c) / c: alone it would keep the
    share c of its weight, and columns with correlated noise move along.

    >>> noise = np.eye(40)
    >>> strengths = column_penalties(np.append(np.full(4, 8.0), np.tile([1.0, -1.0], 18)), noise)
    >>> bool(strengths[:4].max() < 0.01), bool(strengths[4:].min() > 10.0)
    (True, True)
    >>> bool(column_penalties(np.full(40, 8.0), noise).max() < 0.01)
    True
    """
    from dperm.kernels.relevance import relevance_sweep  # compiled code: imported only when needed

    d = len(weights)
    noise, square = float(np.trace(covariance)), float(weights @ weights)
    if d == 0 or square == 0.0 or not noise * _NOISE_FREE > square:
        return np.zeros(d)
    unit = math.sqrt(noise / d)
    weights, precision = weights / unit, _inverse(covariance / unit**2, _MIN_RELATIVE_VARIANCE)
    own = np.diag(precision).copy()
    share, variance = 0.5, max(square / (noise / d) / d - 1.0, 0.1 * square / noise, 1e-9)
    relevance = np.full(d, share)
    means = share * weights
    residual = precision @ (weights - means)
    for _ in range(_MAX_SWEEPS):
        spread = 1.0 / (own + 1.0 / variance)
        prior_odds = math.log(share / (1.0 - share)) + 0.5 * np.log(spread / variance)
        slab = np.zeros(d)
        largest_change = relevance_sweep(precision, residual, means, slab, relevance, spread, prior_odds)
        total = float(relevance.sum())
        share = min(max((total + _PRIOR_RELEVANT) / (d + _PRIOR_RELEVANT), 1e-3), 1.0 - 1e-3)
        variance = max(float(relevance @ (slab * slab + spread)) / max(total, 1e-9), 1e-9)
        if largest_change < 1e-4 * math.sqrt(variance):
            break
    strengths: FloatArray = own * (1.0 - relevance) / relevance / unit**2
    return strengths


def shrinkage(
    result: FloatArray,
    metric: Metric,
    null: NullDistribution | None,
    recipe: Recipe,
    facts: Facts,
    best: BestConstant | None,
    loss_targets_mean: bool,
    level: float = NULL_LEVEL,
) -> tuple[FloatArray, float]:
    """Return the change of the weights that remains of a descent's result, and the shrinkage factor.

    1. The null test. If uninformative columns would produce a result this large too often (with a p-value above
       ``level``), (nearly) nothing is kept.
    2. Columns whose weights noise alone explains are penalised; the intercept is not.
    3. The rest is multiplied by one factor, computed from the energy of the columns with the mean prediction held
       fixed. A drift of the intercept, caused by clipped slopes of unequal classes or of a skewed target, is not
       evidence for the columns, nor is the intercept's noise evidence against them. The factor is larger where early
       stopping has already shrunk the result.
    4. With ``best``, the constant of a regression, the mean prediction is set from the released mean and the descent
       (:func:`mean_shift`). Without it the intercept is shrunk with all other weights, and stays at its start where a
       penalty removed every column.

    The returned factor leaves out early stopping. Without ``null`` nothing is shrunk.
    """
    matrix, outputs = metric.row_map.matrix, result.reshape(len(result), -1)
    columns = matrix[: facts.n_features]
    if outputs.shape[1] > 1:
        # a change common to all classes affects no prediction, so the descent never corrects its noise: remove it
        outputs = outputs - outputs.mean(axis=1, keepdims=True)
    noise_energies: FloatArray = np.zeros(outputs.shape)
    kept: FloatArray = outputs
    factor = 1.0
    if null is not None and _has_weights(columns, result):
        kept = np.zeros(outputs.shape)
        # the projection I - intercept balance' removes the intercept component and holds the mean prediction fixed
        intercept, balance = np.zeros(len(result)), np.zeros(len(result))
        if facts.d > facts.n_features:
            intercept = np.linalg.solve(matrix, np.eye(len(result))[-1])
            balance = metric.row_moments * intercept
            balance /= max(float(intercept @ balance), 1e-12 * float(intercept @ intercept))
        centred = np.eye(len(result)) - np.outer(intercept, balance)
        energy_root = np.sqrt(np.maximum(metric.row_moments, 0.0))[:, None] * centred
        p_value = null_p_value(outputs, null.test_variances, null.output_weights, energy_root, columns)
        variances = null.variances_at(p_value)
        nothing = p_value > level and p_value == 1.0 and best is None  # then the factor is 0: do not work for it
        for k in range(0 if nothing else outputs.shape[1]):
            deviation = np.sqrt(variances[:, k])
            scaled = columns * deviation
            strengths = column_penalties(columns @ outputs[:, k], scaled @ scaled.T)
            penalised = np.sqrt(strengths)[:, None] * scaled
            ridge = _inverse(penalised.T @ penalised, 1.0)
            noise = deviation[:, None] * ridge
            noise -= np.outer(intercept, balance @ noise)
            noise_energies[:, k] = metric.row_moments * np.einsum("ij,ij->i", noise, noise)
            kept[:, k] = deviation * (ridge @ (outputs[:, k] / deviation))
        energy = float(metric.row_moments @ np.square(centred @ kept) @ null.output_weights)
        factor = recipe.shrinkage_factor(noise_energies * null.output_weights, energy)
        if p_value > level:
            factor = min(factor, recipe.min_shrinkage * (1.0 - p_value))
    elif null is not None and best is None:
        kept = np.zeros(outputs.shape)  # without columns the best constant is where the descent started
    move = matrix @ kept
    # undo the shrinkage of early stopping, less so where little is kept: then it is uncertain that anything was learnt
    out = (1.0 if null is None else min(1.0, factor / null.learnt**factor)) * move
    if best is not None:
        mean_row = metric.mean_row * facts.intercept_height
        variance = 0.0 if null is None else float(np.square(mean_row @ matrix) @ null.variances[:, 0])
        by_columns = float(mean_row[:-1] @ out[:-1, 0])
        shift = mean_shift(float(mean_row @ move[:, 0]), variance, by_columns, best, loss_targets_mean)
        out[-1] = (shift - by_columns) / facts.intercept_height
    return out.reshape(result.shape), factor


def _has_weights(columns: FloatArray, result: FloatArray) -> bool:
    """Whether any column has a weight beyond rounding; a penalty that removed them all is no evidence of noise."""
    return bool(np.any(np.abs(columns @ result) > 1e-12 * (np.abs(columns) @ np.abs(result))))


def mean_shift(
    descent_shift: float, variance: float, by_columns: float, best: BestConstant, loss_targets_mean: bool
) -> float:
    """Return the shift of the mean prediction from the released mean, given the shift of the descent.

    The prior variance of the true shift is that of the released mean's noise plus the error of the columns'
    contribution, since the mean row is known only roughly (long rows count less in it). The descent's shift has the
    noise ``variance`` and, for a skewed target, a clipping bias that is a share of the mean deviation. It is weighted
    by its precision, and the prior limits how far it can move the mean. A loss that does not target the mean (Huber)
    should follow the clipped residuals: for it the bias counts as signal and there is no limit.
    """
    row_error = _MEAN_ROW_ERROR * abs(by_columns)
    prior = best.noise**2 + row_error**2
    bias = (_CLIPPING_BIAS * best.slope) ** 2
    if not loss_targets_mean:
        return descent_shift * (prior + bias) / (prior + bias + variance)
    weight = prior / (prior + variance + bias)
    limit = best.noise * (1.0 + weight) + row_error
    return min(max(weight * descent_shift, -limit), limit)
