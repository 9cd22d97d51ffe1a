"""Regression weights as the posterior mean given all released gradients: public numbers only.

In mapped coordinates the mean of a released gradient at v is k A (v - v*), with the share k of residuals that are not
clipped, the second moments A of the mapped rows (a diagonal matrix) and the true weights v*. Its noise is known. So
each gradient is an observation of v* in every direction, and gradients at different points agree on v* up to noise.
Weights are normal a priori; how large they are is fitted by the likelihood of what was released (empirical Bayes). The
posterior mean is where the next gradient is taken, and after the last gradient it is the result. It balances bias and
noise in each direction by itself, so no step length, stopping time or shrinkage factor has to be chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dperm.data.design.facts import Facts
from dperm.solvers.central.auto.clipped_response import ClippedResponse
from dperm.solvers.central.auto.column_selection import select_columns
from dperm.solvers.central.auto.constants import RULE, SMALLEST, TINY
from dperm.solvers.central.auto.mean_prediction import mean_shift
from dperm.solvers.central.auto.metric import Metric
from dperm.solvers.central.auto.null_test import null_p_value
from dperm.solvers.central.auto.starting_point import BestConstant
from dperm.types import FloatArray

__all__ = ["Posterior", "shrunken_posterior"]


@dataclass
class Posterior:
    """What released gradients say about the weights in mapped coordinates.

    Attributes
    ----------
    moments : array of shape (d,)
        Second moments of the mapped rows.
    priors : array of shape (k, d)
        Prior variances of the weights: a row for each part of the variance that columns may explain, and each shape.
    variance, curvature, sampling : float
        Variance of the target, share of residuals that are not clipped, and sampling variation of a gradient.
    mean : array of shape (d,)
        Posterior mean.
    observed, noise_variance, sampling_variance : array of shape (d,)
        Mean of the observations, and its variance from noise and from sampling.
    kept : array of shape (d,)
        Factor by which the prior shrinks an observation.
    """

    moments: FloatArray
    priors: FloatArray
    variance: float
    curvature: float
    sampling: float
    mean: FloatArray
    observed: FloatArray = field(init=False)
    noise_variance: FloatArray = field(init=False)
    sampling_variance: FloatArray = field(init=False)
    kept: FloatArray = field(init=False)
    _points: list[FloatArray] = field(default_factory=list)
    _gradients: list[FloatArray] = field(default_factory=list)
    _noises: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, metric: Metric, response: ClippedResponse, variance: float, n: int, sampling_share: float) -> Posterior:
        """Before any gradient; ``variance`` is that of the target around the best constant.

        Columns explain equally much in each direction, or as much as the rows vary in it. They explain the part 1, 1/2,
        1/4, ... of the variance, down to one nth. All of this is equally likely.
        """
        d = len(metric.row_moments)
        # a moment below the standard deviation of its noise, floor / sqrt(2 d), is not known to be below the others
        known = 1.0 / math.sqrt(2.0 * d)
        least = max(min(known, float(np.median(metric.row_moments))), math.sqrt(TINY))
        moments = np.maximum(metric.row_moments, least)
        energies = moments / np.maximum(np.square(metric.row_map.matrix).sum(axis=0), SMALLEST)
        explained = 2.0 ** -np.arange(math.ceil(math.log2(n)) + 1.0)
        shapes = np.stack([np.full(d, 1.0 / d), energies / energies.sum()]) / moments
        priors = (variance * explained[:, None, None] * shapes).reshape(-1, d)
        curvature = max(float(response.curvature[0]), math.sqrt(TINY))
        sampling = sampling_share * float(response.square[0]) / n
        return cls(moments, priors, variance, curvature, sampling, np.zeros(d))

    @property
    def residual(self) -> float:
        """Size of residuals at the posterior mean, in those of the best constant."""
        return math.sqrt(max(1.0 - float(self.moments @ self.mean**2) / self.variance, RULE.least_kept))

    def observe(self, point: FloatArray, gradient: FloatArray, noise: float) -> None:
        """Add a gradient at a point, with noise of this standard deviation."""
        self._points.append(point)
        self._gradients.append(gradient)
        self._noises.append(max(noise, TINY * math.sqrt(self.variance)))
        for _ in range(2):  # errors of the model grow with the distance from the posterior mean, which the second uses
            self._update()

    def _update(self) -> None:
        points, gradients = np.array(self._points), np.array(self._gradients)
        slope = self.curvature * self.moments
        # moments and curvature are not exact: their error is taken to be as large as a random direction's part
        distances = (np.square(points - self.mean) @ self.moments)[:, None]
        errors = self.curvature**2 * distances * self.moments / len(self.mean)
        variances = np.square(self._noises)[:, None] + errors
        values = slope * points - gradients  # normal around slope times the true weights
        self.noise_variance = 1.0 / (slope**2 / variances).sum(axis=0)
        self.observed = (slope * values / variances).sum(axis=0) * self.noise_variance
        self.sampling_variance = self.sampling * self.residual**2 / (self.curvature**2 * self.moments)
        total = self.noise_variance + self.sampling_variance + self.priors
        log_likelihood = -0.5 * (np.log(total) + self.observed**2 / total).sum(axis=1)
        weights = np.exp(log_likelihood - log_likelihood.max())
        self.kept = (weights / weights.sum()) @ (self.priors / total)
        self.mean = self.kept * self.observed


def shrunken_posterior(
    posterior: Posterior,
    metric: Metric,
    penalised: Callable[[FloatArray], FloatArray],
    facts: Facts,
    best: BestConstant | None,
    targets_mean: bool,
) -> tuple[FloatArray, float]:
    """Return the change of the weights after the last gradient, and the share of the observed weights that is kept.

    The null test comes first: if uninformative columns would often be observed as large as these, no weight is kept.
    Then columns are selected, the penalty is applied, and the mean prediction is set from the released mean and the
    descent.
    """
    matrix, observed = metric.row_map.matrix, posterior.observed
    columns = matrix[: facts.n_features]
    variances = posterior.noise_variance + posterior.sampling_variance
    energy_root = np.sqrt(metric.row_moments)[:, None] * _holding_mean(matrix, metric.row_moments, facts)
    p_value = null_p_value(observed[:, None], variances[:, None], np.ones(1), energy_root, columns)
    kept, share = np.zeros(len(observed)), 0.0
    if p_value <= RULE.null_level:
        prior = variances * posterior.kept / np.maximum(1.0 - posterior.kept, TINY)
        kept = select_columns(observed, variances, np.maximum(prior, TINY * variances), columns)
        kept = (1.0 - p_value / RULE.null_level) * kept  # the closer the test, the less is kept
        energies = posterior.moments * observed
        share = min(max(float(energies @ kept / (energies @ observed)), 0.0), 1.0)
    out = matrix @ penalised(kept)
    if best is not None:
        mean_row = metric.mean_row * facts.intercept_height
        by_columns = float(mean_row[:-1] @ out[:-1])
        descent, variance = float(mean_row @ (matrix @ observed)), float(np.square(mean_row @ matrix) @ variances)
        out[-1] = (mean_shift(descent, variance, by_columns, best, targets_mean) - by_columns) / facts.intercept_height
    return out, share


def _holding_mean(matrix: FloatArray, moments: FloatArray, facts: Facts) -> FloatArray:
    """Projection that moves the intercept such that the mean prediction stays; the identity without an intercept."""
    centred = np.eye(len(matrix))
    if facts.d > facts.n_features:
        intercept = np.linalg.inv(matrix)[:, -1]
        weighted = moments * intercept
        centred -= np.outer(intercept, weighted / max(float(intercept @ weighted), TINY * float(intercept @ intercept)))
    return centred
