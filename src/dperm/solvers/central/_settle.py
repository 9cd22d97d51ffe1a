"""What is left of a descent whose noise is known: post-processing of released values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dperm.data.facts import Facts
from dperm.objective import Logistic, Loss
from dperm.solvers.central._columns import column_pulls
from dperm.solvers.central._metric import Metric
from dperm.solvers.central._recipes import Recipe
from dperm.solvers.central._start import Best

__all__ = ["forgetting", "settled"]

FloatArray = NDArray[np.float64]

#: how far clipped residuals take the mean prediction from the mean of a target, in mean deviations, as one would guess
_SKEWED = 0.2
#: by how much of what columns add to the mean prediction the roughly known mean row may be wrong
_ROUGHLY = 0.5


def forgetting(loss: Loss, best: Best, curvature: float, clip: float, blindness: float) -> float:
    """Second derivative of the loss as clipped slopes show it: by it noise in one step is undone in later ones.

    A slope at its clip does not answer to the weights at all. ``clip`` is in typical slopes, ``curvature`` the second
    derivative without a clip. For a regression, residuals are taken as normal: those below the clip answer. Where
    labels are two, the derivative of the mean clipped slope at the best constant is taken.

    >>> from dperm.objective import Squared
    >>> [round(forgetting(Squared(), Best(0.0, 1.0), 1.0, clip, 0.0), 2) for clip in (0.8, 1.25, 9.0)]
    [0.48, 0.68, 1.0]
    >>> [round(forgetting(Logistic(), Best(0.0, 0.5), 0.15, 0.5, blindness), 4) for blindness in (0.0, 0.5, 1.0)]
    [0.0008, 0.0623, 0.075]
    """
    if loss.task == "regression":
        return curvature * math.erf(clip / math.sqrt(math.pi))
    usual = curvature * min(1.0, clip)
    if type(loss) is not Logistic:
        return usual
    start = 0.0 if best.constant is None else float(best.constant)
    share, limit, apart = _chance(start), clip * best.slope, 0.2

    def mean_slope(score: float) -> float:
        chance = _chance(score)
        shown = [
            slope * min(1.0, limit / (blindness * max(chance, 1.0 - chance) + (1.0 - blindness) * slope))
            for slope in (chance, 1.0 - chance)
        ]
        return (1.0 - share) * shown[0] - share * shown[1]

    answered = (mean_slope(start + apart) - mean_slope(start - apart)) / (2.0 * apart)
    return min(usual, max(answered, 0.01 * usual))


def _chance(score: float) -> float:
    return 1.0 / (1.0 + math.exp(-score))


def settled(
    v: FloatArray,
    metric: Metric,
    noise: FloatArray | None,
    learnt: float,
    recipe: Recipe,
    facts: Facts,
    known: Best | None,
    asks_for_mean: bool,
) -> tuple[FloatArray, float]:
    """Move of the weights that is left of a result without what only noise or the clip put there, and noise's verdict.

    Columns whose weights noise (its variance is known in each direction) alone explains go first, the constant never.
    What is left is shrunk as a whole, by what the columns show: a constant that drifts, as clipped slopes of unequal
    classes or of a skewed target make it, is no signal and must not speak for them, nor its noise against them. A
    descent that had time for the share ``learnt`` only is shrunk by that much less: it did part of it already. At last
    the constant is set by what is ``known`` of a regression's target; without it the constant is shrunk with all.
    Returned next to the move is the share that noise leaves of a descent with time for all.
    """
    matrix, outputs = metric.rows.matrix, v.reshape(len(v), -1)
    parts: FloatArray = np.zeros(outputs.shape)
    left: FloatArray = outputs
    kept = 1.0
    if noise is not None:
        left = np.zeros(outputs.shape)
        deviation = np.sqrt(noise)
        scaled = matrix[: facts.n_features] * deviation
        held = np.eye(len(v))
        if facts.d > facts.n_features:  # with the constant of least energy, which leaves the mean prediction alone
            constant = np.linalg.inv(matrix)[:, -1]
            pull = metric.seen * constant
            held -= np.outer(constant, pull / max(float(constant @ pull), 1e-12 * float(constant @ constant)))
        for k in range(outputs.shape[1]):
            pulls = column_pulls(matrix[: facts.n_features] @ outputs[:, k], scaled @ scaled.T)
            stays = np.linalg.inv(np.eye(len(v)) + scaled.T @ (pulls[:, None] * scaled))
            parts[:, k] = metric.seen * np.square(held @ (deviation[:, None] * stays)).sum(axis=1)
            left[:, k] = deviation * (stays @ (outputs[:, k] / deviation))
        kept = recipe.kept(parts, float(metric.seen @ np.square(held @ left).sum(axis=1)))
    moved = matrix @ left
    out = min(1.0, kept / learnt) * moved
    if known is not None:
        middle = metric.middle * facts.intercept_height
        spread = 0.0 if noise is None else float(np.square(middle @ matrix) @ noise)
        by_columns = float(middle[:-1] @ out[:-1, 0])
        shift = _mean_shift(float(middle @ moved[:, 0]), spread, by_columns, known, asks_for_mean)
        out[-1] = (shift - by_columns) / facts.intercept_height
    return out.reshape(v.shape), kept


def _mean_shift(found: float, variance: float, by_columns: float, known: Best, asks_for_mean: bool) -> float:
    """Return how far the mean prediction moves from the released mean, given how far a descent took it.

    The true mean lies about as far from the released one as that one's noise, and the mean row, in which long rows
    count less, is known roughly; the descent has the noise of this variance, and goes astray by a share of the
    deviation where the target is skewed. Each counts by its precision, and the first bound what the others may do.
    A loss that does not ask for the mean is right to go there: what would be astray is then what is to be found.
    """
    rough = _ROUGHLY * abs(by_columns)
    likely = known.noise**2 + rough**2
    skewed = (_SKEWED * known.slope) ** 2
    if not asks_for_mean:
        return found * (likely + skewed) / (likely + skewed + variance)
    room = known.noise + rough
    return min(max(likely / (likely + variance + skewed) * found, -room), room)
