"""The algorithms of the paper on logistic losses with weights in [-2, 2]^p, mapped to its cube [0, 1]^p."""

from __future__ import annotations

from typing import Any

import numpy as np

from dperm.experiments.local.people import BOUND
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local.bernstein import BernsteinPolynomial
from dperm.solvers.local.bernstein_mechanisms import BernsteinMechanism, OneBitBernsteinMechanism
from dperm.types import FloatArray

__all__ = [
    "ALGORITHMS",
    "ALGORITHM_2",
    "REPAIR_A",
    "REPAIR_B",
    "largest_loss",
    "mechanism_named",
    "published_weights",
    "scaled_lipschitz",
    "scaled_loss",
    "weights_at",
]

ALGORITHM_2, REPAIR_A, REPAIR_B = "Algorithm 2", "Algorithm 3, repair A", "Algorithm 3, repair B"
ALGORITHMS = (ALGORITHM_2, REPAIR_A, REPAIR_B)
ORDERS = (1, 2, 3)  # of the iterated Bernstein operator


def weights_at(point: FloatArray) -> FloatArray:
    """Return the weights of a point of the cube."""
    return 2.0 * BOUND * point - BOUND


def scaled_loss(points: FloatArray, records: Any) -> FloatArray:
    """Logistic loss divided by its largest value, at points of the cube."""
    margins = np.einsum("ij,ij->i", weights_at(points), records)
    return np.asarray(np.logaddexp(0.0, -margins) / largest_loss(records.shape[1]))


def largest_loss(p: int) -> float:
    """Largest logistic loss of rows in the unit ball and weights in the box."""
    return float(np.log1p(np.exp(BOUND * np.sqrt(p))))


def scaled_lipschitz(p: int) -> float:
    """Lipschitz constant of the scaled loss on the cube, for rows in the unit ball; at most 1 from p = 5 on."""
    return 2.0 * BOUND / largest_loss(p)


def mechanism_named(name: str, p: int, k: int, epsilon: float = 1.0, order: int = 2) -> BernsteinMechanism:
    """Return a published algorithm with a grid of k + 1 values per weight."""
    if name == ALGORITHM_2:
        return BernsteinMechanism(epsilon, p, k, order)
    return OneBitBernsteinMechanism(epsilon, p, k, order, "constant" if name == REPAIR_A else "inner")


def published_weights(name: str, k: int, records: FloatArray, epsilon: float = 1.0) -> dict[int, FloatArray]:
    """Weights of a published algorithm, one result per order of the Bernstein operator."""
    p = records.shape[1]
    values = mechanism_named(name, p, k, epsilon).values(scaled_loss, records, RandomSource()).reshape((k + 1,) * p)
    # every point is refined; the tolerance bounds the error of the search
    return {h: weights_at(BernsteinPolynomial.of_values(values, h).minimise(1e-3).point) for h in ORDERS}
