"""Exact output probabilities against the claimed event, in one dimension."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from dperm.privacy import composition, curves
from dperm.privacy.events import Event
from dperm.privacy.lattice import Lattice
from dperm.privacy.mechanisms import Mechanism
from dperm.testing._violation import demand

__all__ = ["check_choice", "check_density"]

_EPSILONS = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def check_choice(event: Event, p: Any, q: Any) -> None:
    """Check that two exact distributions over the same few outcomes satisfy the claimed event, in both directions."""
    p, q = np.asarray(p, float), np.asarray(q, float)
    for one, two in ((p, q), (q, p)):
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
    law = {"gaussian": stats.norm, "laplace": stats.laplace}[mechanism.kind]
    lattice = lattice or Lattice.design(sensitivity, mechanism.noise_multiplier, 1, bound, mechanism.kind)
    apart = int(np.floor(sensitivity / lattice.spacing)) + 1
    reach = int(40 * lattice.scale) + apart
    # group lattice points: merging outcomes is post-processing, so a violation that remains is a real one
    width = max(1, reach // 20_000)
    edges = np.arange(-reach, reach + 1, width)
    p = _cells(law, edges / lattice.scale)
    q = _cells(law, (edges - apart) / lattice.scale)
    event = mechanism.event(2.0)
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
    """Probabilities between edges, from whichever tail is smaller so that small ones keep their digits."""
    below, above = law.cdf(edges), law.sf(edges)
    return np.where(edges[:-1] < 0.0, np.diff(below), -np.diff(above))
