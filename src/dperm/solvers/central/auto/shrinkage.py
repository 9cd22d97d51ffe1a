"""Shrinkage of the descent's result: the null test, a penalty on irrelevant columns, and one common factor.

The distribution of the result under the null hypothesis "no column is informative" is known, because the noise is known
and the descent is linear in it. Everything here is post-processing of released values and public numbers.
"""

from __future__ import annotations

import numpy as np

from dperm.data.design.facts import Facts
from dperm.solvers.central.auto.column_selection import column_penalties, inverse_with
from dperm.solvers.central.auto.constants import TINY
from dperm.solvers.central.auto.mean_prediction import mean_shift
from dperm.solvers.central.auto.metric import Metric
from dperm.solvers.central.auto.null_test import NullDistribution, null_p_value
from dperm.solvers.central.auto.starting_point import BestConstant
from dperm.types import FloatArray

__all__ = ["NO_INFORMATIVE_COLUMN", "shrinkage", "shrinkage_factor"]

#: utility note of a fit whose null test found no informative column
NO_INFORMATIVE_COLUMN = "No column could be distinguished from noise: predictions are constant, or nearly so"


def shrinkage(
    result: FloatArray,
    metric: Metric,
    null: NullDistribution | None,
    facts: Facts,
    best: BestConstant | None,
    loss_targets_mean: bool,
    least: float,
    level: float,
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

    The returned factor, at least ``least``, leaves out early stopping. Without ``null`` nothing is shrunk.
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
            balance /= max(float(intercept @ balance), TINY * float(intercept @ intercept))
        centred = np.eye(len(result)) - np.outer(intercept, balance)
        energy_root = np.sqrt(np.maximum(metric.row_moments, 0.0))[:, None] * centred
        p_value = null_p_value(outputs, null.test_variances, null.output_weights, energy_root, columns)
        nothing = p_value > level and p_value == 1.0 and best is None  # then the factor is 0: do not work for it
        for k in range(0 if nothing else outputs.shape[1]):
            deviation = np.sqrt(null.variances[:, k])
            scaled = columns * deviation
            strengths = column_penalties(columns @ outputs[:, k], scaled @ scaled.T)
            penalised = np.sqrt(strengths)[:, None] * scaled
            ridge = inverse_with(penalised.T @ penalised, 1.0)
            noise = deviation[:, None] * ridge
            noise -= np.outer(intercept, balance @ noise)
            noise_energies[:, k] = metric.row_moments * np.einsum("ij,ij->i", noise, noise)
            kept[:, k] = deviation * (ridge @ (outputs[:, k] / deviation))
        energy = float(metric.row_moments @ np.square(centred @ kept) @ null.output_weights)
        factor = shrinkage_factor(float((noise_energies @ null.output_weights).sum()), energy, least)
        if p_value > level:
            factor = min(factor, least * (1.0 - p_value))
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


def shrinkage_factor(noise_energy: float, energy: float, least: float) -> float:
    """Factor that shrinks a result of this energy, given the expected energy of its noise.

    Only energy above the expected noise energy counts as signal (James & Stein 1961). A result without energy, as when
    the second moments are all noise, gets the smallest factor.
    """
    return max(least, 1.0 - noise_energy / energy) if energy > 0.0 else least


def _has_weights(columns: FloatArray, result: FloatArray) -> bool:
    """Whether any column has a weight beyond rounding; a penalty that removed them all is no evidence of noise."""
    return bool(np.any(np.abs(columns @ result) > TINY * (np.abs(columns) @ np.abs(result))))
