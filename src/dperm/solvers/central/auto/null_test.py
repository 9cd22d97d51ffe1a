"""The noise model and the null test: could uninformative columns have given a result this large?

The noise of a descent is known and its result is linear in it. Everything here is post-processing of releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from dperm.solvers.central.auto.clipped_response import ClippedResponse
from dperm.solvers.central.auto.constants import RULE, SMALLEST, TINY
from dperm.solvers.central.auto.descent import Descent
from dperm.solvers.central.auto.metric import Metric
from dperm.types import FloatArray

__all__ = ["NullDistribution", "null_p_value", "sampling_shares"]


def sampling_shares(noise_fraction: float, d: int, n: int) -> tuple[float, float]:
    """Return the share of the sampling variation that counts against a clear result, and that of the null test.

    The less noise there is, the more a fit should resemble one without privacy, which does not shrink for sampling
    variation. With as many columns as rows sampling variation explains every target, and the test would never reject.
    """
    clear = math.sqrt(math.sqrt(noise_fraction))
    return clear, max(clear, min(2.0 - 2.0 * d / n, 1.0))


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
        cls, response: ClippedResponse, metric: Metric, descent: Descent, noise: float, n: int, noise_fraction: float
    ) -> NullDistribution:
        """Build it from the noise of a step, the number of rows and the noise fraction."""
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
        share = float(metric.row_moments @ np.mean(covered, axis=0)) / max(float(metric.row_moments.sum()), TINY)
        learnt = min(max(share, RULE.least_kept), 1.0)
        output_weights = response.curvature / response.curvature.max()
        variances, test_variances = (
            np.maximum(by_noise + part * by_sampling, SMALLEST)
            for part in sampling_shares(noise_fraction, len(metric.row_moments), n)
        )
        return cls(variances, test_variances, output_weights, learnt)


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
    p_values = (
        float(chdtrc(expected**2 / square, energy * expected / square)),
        float(chdtrc(1.0, max_weight)) * len(columns) * len(output_weights),
        float(chdtrc(1.0, max_direction)) * len(energy_root) * len(output_weights),
    )
    return min(1.0, len(p_values) * min(p_values))
