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
from dperm.solvers.central.auto.column_selection import select_columns
from dperm.solvers.central.auto.metric import Metric
from dperm.solvers.central.auto.shrinkage import NULL_LEVEL, mean_shift, null_p_value
from dperm.solvers.central.auto.starting_point import BestConstant, ClippedResponse
from dperm.types import FloatArray

__all__ = ["Posterior", "shrunken_posterior"]

#: prior values of the part of the target's variance that columns explain, all equally likely
_EXPLAINED = 2.0 ** -np.arange(13.0)
#: factors by which a second moment below its noise may exceed its estimate
_STRETCHES = (1.0, 2.0, 4.0)
#: smallest share of the target's variance that is left as residuals: limits how far the clip can follow them
_LEAST_RESIDUAL = 0.05
#: smallest second moment (of a largest possible 1) or share of unclipped residuals, and smallest noise in deviations of
#: the target: finite numbers only
_LEAST_MOMENT, _LEAST_NOISE = 1e-3, 1e-12


@dataclass(frozen=True)
class _MomentGuess:
    """One guess of the second moments, with the prior variances it implies."""

    moments: FloatArray
    prior: FloatArray  # a row for each part explained and each shape of the prior

    @classmethod
    def of(cls, moments: FloatArray, unmapped: FloatArray, variance: float) -> _MomentGuess:
        """Columns explain equally much in each direction, or as much as the rows vary in it (equal weights)."""
        d, energies = len(moments), moments * unmapped
        shapes = np.stack([np.full(d, 1.0 / d), energies / energies.sum()]) / moments
        return cls(moments, (variance * _EXPLAINED[:, None, None] * shapes).reshape(-1, d))


@dataclass
class Posterior:
    """What released gradients say about the weights in mapped coordinates.

    Attributes
    ----------
    variance, curvature, sampling : float
        Variance of the target, share of residuals that are not clipped, and sampling variation of a gradient.
    mean : array of shape (d,)
        Posterior mean.
    observed, noise_variance, sampling_variance : array of shape (d,)
        Mean of the observations, and its variance from noise and from sampling.
    kept : array of shape (d,)
        Factor by which the prior shrinks an observation.
    moments : array of shape (d,)
        Posterior mean of the second moments.
    """

    models: list[_MomentGuess]
    variance: float
    curvature: float
    sampling: float
    mean: FloatArray
    moments: FloatArray
    observed: FloatArray = field(init=False)
    noise_variance: FloatArray = field(init=False)
    sampling_variance: FloatArray = field(init=False)
    kept: FloatArray = field(init=False)
    _points: list[FloatArray] = field(default_factory=list)
    _gradients: list[FloatArray] = field(default_factory=list)
    _noises: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, metric: Metric, response: ClippedResponse, variance: float, n: int, sampling_share: float) -> Posterior:
        """Before any gradient; ``variance`` is that of the target around the best constant."""
        d = len(metric.row_moments)
        # a moment below the standard deviation of its noise, floor / sqrt(2 d), is not known to be below the others
        known = 1.0 / math.sqrt(2.0 * d)
        least = max(min(known, float(np.median(metric.row_moments))), _LEAST_MOMENT)
        moments = np.maximum(metric.row_moments, least)
        unmapped = 1.0 / np.maximum(np.square(metric.row_map.matrix).sum(axis=0), 1e-300)
        curvature = max(float(response.curvature[0]), _LEAST_MOMENT)
        models = []
        for factor in _STRETCHES:
            stretched = np.maximum(moments, np.minimum(factor * moments, known))
            models.append(_MomentGuess.of(stretched, unmapped, variance))
        sampling = sampling_share * float(response.square[0]) / n
        return cls(models, variance, curvature, sampling, np.zeros(d), moments)

    @property
    def residual(self) -> float:
        """Size of residuals at the posterior mean, in those of the best constant."""
        return math.sqrt(max(1.0 - float(self.moments @ self.mean**2) / self.variance, _LEAST_RESIDUAL))

    def observe(self, point: FloatArray, gradient: FloatArray, noise: float) -> None:
        """Add a gradient at a point, with noise of this standard deviation."""
        self._points.append(point)
        self._gradients.append(gradient)
        self._noises.append(max(noise, _LEAST_NOISE * math.sqrt(self.variance)))
        for _ in range(2):  # errors of the model grow with the distance from the posterior mean, which the second uses
            self._update()

    def _update(self) -> None:
        points, gradients = np.array(self._points), np.array(self._gradients)
        noise, d = np.square(self._noises)[:, None], len(self.mean)
        scores, parts = [], []
        for model in self.models:
            a, slope = model.moments, self.curvature * model.moments
            # moments and curvature are not exact: their error is taken to be as large as a random direction's part
            distances = (np.square(points - self.mean) @ a)[:, None]
            variances = noise + self.curvature**2 * distances * a / d
            values = slope * points - gradients  # normal around slope times the true weights
            precision = (slope**2 / variances).sum(axis=0)
            observed = (slope * values / variances).sum(axis=0) / precision
            sampling = self.sampling * self.residual**2 / (self.curvature**2 * a)
            total = 1.0 / precision + sampling + model.prior
            misfit = float((np.log(variances) + values**2 / variances).sum() - precision @ observed**2)
            scores.append(-0.5 * ((np.log(precision * total) + observed**2 / total).sum(axis=1) + misfit))
            parts.append((model.prior / total, observed, 1.0 / precision, sampling, a))
        top = max(float(score.max()) for score in scores)
        weights = [np.exp(score - top) for score in scores]
        whole = sum(float(weight.sum()) for weight in weights)
        sums: list[FloatArray] = [np.zeros(d) for _ in range(6)]
        for weight, (kept, observed, *others) in zip(weights, parts, strict=True):
            share, kept_share = weight.sum() / whole, weight @ kept / whole
            terms = (kept_share * observed, kept_share, share * observed, *(share * other for other in others))
            sums = [total + term for total, term in zip(sums, terms, strict=True)]
        self.mean, self.kept, self.observed, self.noise_variance, self.sampling_variance, self.moments = sums


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
    if p_value <= NULL_LEVEL:
        prior = variances * posterior.kept / np.maximum(1.0 - posterior.kept, 1e-12)
        kept = select_columns(observed, variances, np.maximum(prior, 1e-12 * variances), columns)
        kept = (1.0 - p_value / NULL_LEVEL) * kept  # the closer the test, the less is kept
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
        centred -= np.outer(
            intercept, weighted / max(float(intercept @ weighted), 1e-12 * float(intercept @ intercept))
        )
    return centred
