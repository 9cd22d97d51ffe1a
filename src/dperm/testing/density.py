"""Checks of exact output probabilities against the claimed event, in one dimension."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from dperm.objective import Loss
from dperm.privacy.accounting import composition, curves
from dperm.privacy.accounting.events import Event, Gaussian
from dperm.privacy.mechanisms.lattice import Lattice
from dperm.privacy.mechanisms.sampled_noise import SampledGaussianNoise
from dperm.privacy.mechanisms.standard import Mechanism
from dperm.testing._violation import demand

__all__ = ["check_choice", "check_density", "check_minimiser_density"]

_EPSILONS = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def check_choice(event: Event, p: Any, q: Any) -> None:
    """Check that two exact distributions over the same few outcomes satisfy the claimed event, in both directions."""
    p, q = np.asarray(p, float), np.asarray(q, float)
    pure = math.fsum(count * curves.pure(leaf) for leaf, count in composition.leaves(event).items())
    aside = composition.set_aside(event)
    for one, two in ((p, q), (q, p)):
        if math.isfinite(pure) and aside == 0.0:  # a pure claim holds for outcomes of any probability
            ratio = float(np.log(one[one > 0.0] / two[one > 0.0]).max())
            demand(
                ratio <= pure * (1.0 + 1e-9) + 1e-12,
                f"an outcome's log probability changes by {ratio:.4g}, the event claims at most {pure:.4g}.",
            )
        for epsilon in _EPSILONS:
            real = float(np.maximum(0.0, one - np.exp(epsilon) * two).sum())
            claimed = composition.delta(event, epsilon)
            demand(
                real <= claimed * (1.0 + 1e-9) + 1e-12,
                f"at epsilon={epsilon:g} the true delta is {real:.3g}, the event claims {claimed:.3g}.",
            )
        for order in (1.5, 2.0, 8.0, 64.0):
            positive = one > 0.0
            log_moment = float(np.logaddexp.reduce(order * np.log(one[positive]) + (1 - order) * np.log(two[positive])))
            real = log_moment / (order - 1.0)
            claimed = composition.renyi(event, order)
            demand(
                real <= claimed * (1.0 + 1e-9) + 1e-12,
                f"at order {order:g} the true divergence is {real:.4g}, the event claims {claimed:.4g}.",
            )


def check_density(mechanism: Mechanism, sensitivity: float, bound: float, lattice: Lattice | None = None) -> None:
    """Check one coordinate of additive noise by its exact probabilities on the lattice.

    Two values ``sensitivity`` apart are rounded in the most unfavourable way, so they are up to one lattice step
    further apart; the probability of every lattice point follows from the continuous law. Nothing is sampled.
    """
    law = stats.laplace if mechanism.kind == "laplace" else stats.norm
    lattice = lattice or Lattice.design(sensitivity, mechanism.noise_multiplier, 1, bound, mechanism.kind)
    apart = int(np.floor(sensitivity / lattice.spacing)) + 1
    reach = int(40 * lattice.scale) + apart
    # group lattice points: merging outcomes is post-processing, so a violation that remains is a real one
    width = max(1, reach // 20_000)
    edges = np.arange(-reach, reach + 1, width)
    p = _cells(law, edges / lattice.scale)
    q = _cells(law, (edges - apart) / lattice.scale)
    event = mechanism.event(2.0)
    if isinstance(mechanism, SampledGaussianNoise):
        q = (1.0 - mechanism.rate) * p + mechanism.rate * q  # the person is in the sample or not
    elif mechanism.kind == "objective":
        event = Gaussian(mechanism.noise_multiplier)  # for linear losses the release is b; see check_minimiser_density
    pure = math.fsum(count * curves.pure(leaf) for leaf, count in composition.leaves(event).items())
    for epsilon in (*_EPSILONS, pure) if math.isfinite(pure) else _EPSILONS:
        for one, two in ((p, q), (q, p)):
            real = float(np.maximum(0.0, one - np.exp(epsilon) * two).sum())
            claimed = composition.delta(event, epsilon)
            demand(
                real <= claimed * (1.0 + 1e-6) + 1e-12,
                f"at epsilon={epsilon:g} the true delta is {real:.6g}, the event claims {claimed:.6g}.",
            )


def _cells(law: Any, edges: Any) -> Any:
    """Return the probabilities between edges, computed from the smaller tail for relative precision."""
    below, above = law.cdf(edges), law.sf(edges)
    return np.where(edges[:-1] < 0.0, np.diff(below), -np.diff(above))


def check_minimiser_density(
    event: Event,
    loss: Loss,
    rows: Any,
    targets: Any,
    strength: float,
    deviation: float,
    *,
    reach: float = 12.0,
    n_points: int = 20_001,
) -> float:
    """Check a perturbed objective in one dimension by its exact output densities, for every person left out.

    The minimiser theta of sum loss(x_i theta, y_i) + strength theta^2/2 + b theta, b normal with the given deviation,
    lies between two points exactly when b lies between minus their gradients: each cell's probability follows from the
    law of b. Nothing is sampled; cells merge outcomes, which is post-processing, so a violation that is found is real.

    Returns
    -------
    float
        Largest true delta divided by the claimed one, where the claim is not negligible.
    """
    rows, targets = np.asarray(rows, float), np.asarray(targets, float)

    def gradient(theta: Any, keep: Any) -> Any:
        total = strength * theta
        for x, y in zip(rows[keep], targets[keep], strict=True):
            total = total + x * loss.slope(x * theta, np.full_like(theta, y))
        return total

    everyone = np.ones(len(rows), np.bool_)
    span = (reach * deviation + loss.slope_bound * np.abs(rows).sum()) / strength
    # finer near zero, where slopes change, but not so fine that differences of probabilities drown in rounding
    theta = np.unique(np.concatenate([np.linspace(-span, span, n_points), np.linspace(-5.0, 5.0, n_points)]))
    p = _cells(stats.norm, gradient(theta, everyone) / deviation)
    worst = 0.0
    for i in range(len(rows)):
        q = _cells(stats.norm, gradient(theta, np.arange(len(rows)) != i) / deviation)
        for epsilon in _EPSILONS:
            claimed = composition.delta(event, epsilon)
            for one, two in ((p, q), (q, p)):
                real = float(np.maximum(0.0, one - np.exp(epsilon) * two).sum())
                demand(
                    real <= claimed * (1.0 + 1e-6) + 1e-11,
                    f"at epsilon={epsilon:g} the true delta is {real:.6g}, the event claims {claimed:.6g}.",
                )
                worst = max(worst, real / claimed if claimed > 1e-9 else 0.0)
        for order in (1.5, 2.0, 8.0):
            for one, two in ((p, q), (q, p)):
                both = (one > 0.0) & (two > 0.0)
                real = float(np.logaddexp.reduce(order * np.log(one[both]) + (1.0 - order) * np.log(two[both])))
                demand(
                    real / (order - 1.0) <= composition.renyi(event, order) * (1.0 + 1e-6) + 1e-9,
                    f"at order {order:g} the true divergence is {real / (order - 1.0):.4g}, the event claims "
                    f"{composition.renyi(event, order):.4g}.",
                )
    return worst
