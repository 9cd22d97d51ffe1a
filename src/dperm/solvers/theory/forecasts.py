"""Forecasts of the excess loss of a plan, from public numbers and before any data are touched.

A forecast bounds the expected excess loss over the best model of this kind. It follows the argument of a published
theorem step by step, with the noise of the calibrated plan instead of orders of magnitude. What only the data determine
(how far the optimum is from 0, how sparse it is, how curved the loss is) is an explicit assumption with a public
default, and every assumption is listed. Derivations: ``forecasts.proof.md``; rates without constants:
:mod:`dperm.solvers.theory.rates`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dperm.data.design.facts import Facts
from dperm.objective import Objective
from dperm.objective.penalties import SeparablePenalty
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.queries import FullGradient
from dperm.queries.gradients import GradientBlock, GradientCoordinate
from dperm.queries.greedy import GreedyScores
from dperm.solvers.base import Forecast
from dperm.types import FloatArray
from dperm.validation import non_negative, positive

__all__ = ["blocks", "frank_wolfe", "gradient", "greedy", "null_excess", "usual_distance"]


_SMOOTH = "the mean squares of the scaled columns are at most those implied by the public smoothness"
_NEAR = "no iterate is farther from the optimum than the starting point"
_UNCLIPPED = "so that clipping changes nothing"
_BOUND = "Upper bound on the expected excess loss"


def usual_distance(objective: Objective, facts: Facts) -> float:
    """Public default for the l1 norm of the optimum.

    It is 4 / spread for classification, and half the target's range / spread for regression.
    """
    reach = 4.0 if objective.loss.task == "classification" else 0.5 * (facts.target_high - facts.target_low)
    return reach / facts.spread


def null_excess(objective: Objective, facts: Facts, distance: float, curvature: float = math.inf) -> float:
    """Upper bound on the excess loss of the null model (all weights 0), for an optimum of l1 norm ``distance``.

    It is the smallest of three bounds: the largest loss at zero; the slope bound times the value bound times the
    distance; and, for a smooth objective, half the largest curvature of a coordinate times the squared distance.
    """
    n_outputs = objective.loss.n_outputs
    zero = np.zeros(2 if n_outputs == 1 else (2, n_outputs))
    start = float(objective.loss.value(zero, [facts.target_low, facts.target_high]).max())
    way = objective.loss.slope_bound * facts.value_bound * distance
    return min(start, way, 0.5 * curvature * distance**2)


def _distance(objective: Objective, facts: Facts, given: float | None) -> tuple[float, str]:
    distance = usual_distance(objective, facts) if given is None else positive("distance", given)
    return distance, f"the scaled weights of the optimum have an l1 norm of at most {distance:.4g} (distance)"


def _person_bounds(objective: Objective, facts: Facts, limits: FloatArray | float) -> FloatArray:
    """Bound on one person's gradient, coordinate by coordinate."""
    natural = np.full(facts.d, objective.loss.slope_bound * facts.value_bound)
    if facts.d > facts.n_features:
        natural[-1] = objective.loss.slope_bound * facts.intercept_height
    bounds: FloatArray = np.minimum(natural, limits)
    return bounds


def _l2(objective: Objective, facts: Facts) -> FloatArray:
    out = np.full(facts.d, SeparablePenalty.of(objective.penalty).l2)
    out[list(objective.unpenalised)] = 0.0
    return out


# ------------------------------------------------------------------------------------------------------------- greedy
def greedy(
    objective: Objective,
    facts: Facts,
    calibrated: CalibratedPlan,
    neighbours: Neighbours,
    *,
    n_steps: int,
    step: float,
    smoothness: FloatArray,
    limits: FloatArray | float,
    distance: float | None = None,
    strong_convexity: float | None = None,
    n_large: float | None = None,
    tolerance: float | None = None,
    sparsity: float | None = None,
) -> Forecast | None:
    """Forecast DP-GCD without a penalty or with l2; the published theorems cover no other penalty.

    Parameters
    ----------
    distance : float, optional
        Bound on the l1 norm of the scaled weights of the optimum; by default :func:`usual_distance`.
    strong_convexity : float, optional
        Curvature of the objective relative to the smoothness, in [0, 1]; by default what an l2 penalty on every weight
        guarantees.
    n_large, tolerance : float
        The optimum has at most ``n_large`` weights above ``tolerance`` in magnitude; by default any number, above 0.
    sparsity : float, optional
        Largest number of nonzero weights of an iterate; by default one more after every step.
    """
    penalty = SeparablePenalty.of(objective.penalty)
    if not penalty.smooth or not step < 2.0 or GreedyScores.name not in {r.query for r in calibrated.plan.releases}:
        return None
    small = tolerance or 0.0
    for name, value in (("strong_convexity", strong_convexity), ("n_large", n_large), ("tolerance", tolerance)):
        if value is not None:
            non_negative(name, value)
    if sparsity is not None:
        positive("sparsity", sparsity)
    reach, assumed = _distance(objective, facts, distance)
    l2, apart = _l2(objective, facts), neighbours.records_apart / facts.n
    curvature = smoothness + l2
    person = _person_bounds(objective, facts, limits)
    # scores count the penalty's curvature in every coordinate, updates where it applies
    kappa = float((person / np.sqrt(smoothness + penalty.l2)).max())
    missed = calibrated.noise_multiplier(GreedyScores.name) * apart * kappa * math.log(facts.d)
    noise = calibrated.noise_multiplier(GradientCoordinate.name) * apart * float((person / np.sqrt(curvature)).max())
    largest = float((smoothness + penalty.l2).max())
    start = null_excess(objective, facts, reach, largest)
    relative = min(1.0, float(l2.min()) / largest) if strong_convexity is None else min(1.0, strong_convexity)
    gain, loss = step * (2.0 - step), (step * noise) ** 2 / 2.0

    radius = math.sqrt(largest) * reach
    convex = start
    for _ in range(n_steps):
        # the map from one excess to the next grows only up to this point, where it is held
        held = min(convex, radius**2 / gain + missed * radius)
        convex = held - gain / 2.0 * max(held / radius - missed, 0.0) ** 2 + loss
    excess, theorem = convex, "Theorem 4.4 (convex)"
    assumes = [assumed, _SMOOTH, _NEAR]
    if relative > 0.0:
        few = float(facts.d if n_large is None else min(n_large, facts.d))
        tail = 0.5 * largest * ((facts.d - few) * small) ** 2
        sparse = start
        for t in range(n_steps):
            size = few + (t if sparsity is None else min(t, sparsity))
            strong = relative / min(max(size, 1.0), float(facts.d))
            sparse += loss - gain / 2.0 * max(math.sqrt(2.0 * strong * sparse) - missed, 0.0) ** 2
        if sparse + tail < excess:
            theorem = "Theorem 4.4 (strongly convex)" if n_large is None else "Theorem 4.7 (quasi-sparse)"
            excess = sparse + tail
            assumes = [assumed, _SMOOTH, _strongly_convex(relative)]
            if n_large is not None:
                assumes.append(f"at most {few:g} weights of the optimum exceed {small:g} in magnitude")
            if sparsity is not None:
                assumes.append(f"no iterate has more than {sparsity:g} nonzero weights")
    if np.any(person < _person_bounds(objective, facts, math.inf)):
        assumes.append(f"no person's gradient exceeds the limits, {_UNCLIPPED}")
    basis = (
        f"{_BOUND}, by the descent argument of {theorem} of Mangold, Bellet, Salmon & Tommasi (2023) with the noise of "
        "this plan."
    )
    return Forecast(excess, start, basis, tuple(assumes))


def _strongly_convex(relative: float) -> str:
    return f"the objective is strongly convex, with {relative:.4g} times its smoothness"


# --------------------------------------------------------------------------------------------- blocks and coordinates
def blocks(
    objective: Objective,
    facts: Facts,
    calibrated: CalibratedPlan,
    neighbours: Neighbours,
    *,
    n_rounds: int,
    n_inner: int,
    averaging: bool,
    step: float,
    smoothness: FloatArray,
    limits: FloatArray,
    probabilities: FloatArray,
    subsets: Sequence[Sequence[int]] | None,
    distance: float | None = None,
    strong_convexity: float | None = None,
) -> Forecast | None:
    """Forecast DP-SkGD and DP-CD without a penalty or with l2, for steps of at most 1 / M_j.

    Parameters
    ----------
    subsets : sequence of index sequences, optional
        The blocks; without them every coordinate is assumed to get the noise of all blocks together.
    distance, strong_convexity : float, optional
        As in :func:`greedy`; strong convexity improves the bound only after the first round.
    """
    if not SeparablePenalty.of(objective.penalty).smooth or step > 1.0:
        return None
    if strong_convexity is not None:
        non_negative("strong_convexity", strong_convexity)
    reach, assumed = _distance(objective, facts, distance)
    curvature = smoothness + _l2(objective, facts)
    whole = np.full(facts.d, float(np.linalg.norm(limits)))
    for block in subsets or ():
        whole[list(block)] = float(np.linalg.norm(limits[list(block)]))
    deviation = calibrated.noise_multiplier(GradientBlock.name) * neighbours.records_apart / facts.n * whole
    squares = deviation**2 / curvature
    least = float(probabilities.min())
    noise, drawn = float(squares.sum()), float((probabilities * squares).sum())
    added = step**2 * noise + step**3 * drawn / least  # what one step adds to the weighted squared distance
    largest = float(curvature.max())
    excess = start = null_excess(objective, facts, reach, largest)
    apart = float((curvature / probabilities).max()) * reach**2
    strong = 0.0 if strong_convexity is None else min(1.0, strong_convexity)
    for _ in range(n_rounds):
        if strong > 0.0:
            apart = min(apart, 2.0 * excess / (strong * least))
        mean = (apart / (2.0 * step) + excess / least) / n_inner + added / (2.0 * step)
        apart += 2.0 * step / least * excess + n_inner * added
        # the last iterate is worse than the mean by the noise that the steps in between add
        excess = mean if averaging else mean + 0.25 * (n_inner - 1) * step**2 * drawn
    within = "in every coordinate" if subsets is not None and max(map(len, subsets)) == 1 else "within every block"
    assumes = [
        assumed,
        f"{_SMOOTH}, {within}",
        f"no person's gradient exceeds the clip, {_UNCLIPPED}",
    ]
    if strong > 0.0:
        assumes.append(_strongly_convex(strong))
    basis = (
        f"{_BOUND}, by the potential argument behind the convex rates of Table 1 of Maranjyan, Sadiev & Richtarik "
        "(DP-SkGD) with the noise of this plan."
        + ("" if averaging else " The last iterate is bounded by the mean plus later noise, which is a weaker bound.")
    )
    return Forecast(excess, start, basis, tuple(assumes))


# ---------------------------------------------------------------------------------------------------------- gradient
def gradient(
    objective: Objective,
    facts: Facts,
    calibrated: CalibratedPlan,
    neighbours: Neighbours,
    *,
    n_steps: int,
    n_averaged: int,
    step: float,
    clip: float,
    momentum: float,
    distance: float | None = None,
) -> Forecast | None:
    """Forecast full-batch noisy gradient descent with any convex penalty; ``distance`` as in :func:`greedy`."""
    reach, assumed = _distance(objective, facts, distance)
    sensitivity = clip * neighbours.records_apart / facts.n
    deviation = calibrated.noise_multiplier(FullGradient.name) * sensitivity
    variance = facts.d * objective.loss.n_outputs * deviation**2
    length = step / (1.0 - momentum)
    before = n_steps - n_averaged
    apart = reach**2 + 2.0 * before * length**2 * variance
    assumes = [
        assumed,
        f"the mean loss has a curvature of at most 1 / step = {1.0 / step:.4g}",
        f"no person's gradient is longer than the clip, {_UNCLIPPED}",
    ]
    if momentum > 0.0:
        assumes.append("momentum acts like a step longer by 1 / (1 - momentum), which no theorem covers")
    basis = (
        f"{'Estimate of the expected excess loss' if momentum > 0.0 else _BOUND}, by the proximal-gradient inequality "
        "behind the convex rate of noisy descent (Bassily, Smith & Thakurta 2014) with the noise of this plan."
    )
    excess = apart / (2.0 * length * n_averaged) + length * variance
    return Forecast(excess, null_excess(objective, facts, reach), basis, tuple(assumes))


# -------------------------------------------------------------------------------------------------------- Frank-Wolfe
def frank_wolfe(
    objective: Objective,
    facts: Facts,
    calibrated: CalibratedPlan,
    neighbours: Neighbours,
    *,
    query: str,
    n_steps: int,
    radius: float,
    smoothness: FloatArray,
) -> Forecast:
    """Forecast private Frank-Wolfe; the ball bounds the distance, so no distance is assumed."""
    penalty = SeparablePenalty.of(objective.penalty)
    candidates = 2 * facts.d + (penalty.l1 > 0.0)
    sensitivity = objective.loss.slope_bound * facts.value_bound * neighbours.records_apart / facts.n
    missed = calibrated.noise_multiplier(query) * sensitivity * math.log(candidates) * radius
    bend = 4.0 * radius**2 * (float(smoothness.max()) + penalty.l2)
    excess = 0.0
    for t in range(n_steps):
        move = 2.0 / (t + 2.0)  # the first step has length 1, so the starting point does not matter
        excess = (1.0 - move) * excess + move * missed + move**2 * bend / 2.0
    basis = (
        f"{_BOUND}, by Theorem 1 of Jaggi (2013) with the error of the private choice (Talwar, Thakurta & Zhang 2015) "
        "and the noise of this plan."
    )
    assumes = (f"the best model is the best one within the l1 ball of radius {radius:.4g}", _SMOOTH)
    null = null_excess(objective, facts, radius, float(smoothness.max()) + penalty.l2)
    return Forecast(excess, null, basis, assumes)
