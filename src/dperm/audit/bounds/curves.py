"""Curves of privacy claims: how probable an event may be with a record if it has probability u without it.

A curve is a nondecreasing function on [0, 1], one minus the trade-off function of Dong, Roth & Su 2022
(arXiv 1905.02383). A claim is symmetric in the two data sets, so each curve contains the bounds of both directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy import special

from dperm.errors import InvalidInput
from dperm.types import FloatArray

__all__ = ["ClaimedDeltas", "Curve", "Profile", "epsilon_delta_curve", "gaussian_curve"]

Curve: TypeAlias = Callable[[FloatArray], FloatArray]
#: a privacy profile: the claimed delta at each epsilon
ClaimedDeltas: TypeAlias = Callable[[float], float]

#: where a profile is read: from finer than any budget in use to beyond what an audit of feasible size can see. Each
#: epsilon gives a valid bound, so a coarse grid costs power only: 1.25 keeps that below what one run more would bring.
_EPSILONS = (0.0, *np.geomspace(0.01, 30.0, 37))


def epsilon_delta_curve(epsilon: float, delta: float) -> Curve:
    """Return the curve of (epsilon, delta)-privacy.

    >>> epsilon_delta_curve(0.0, 0.1)(np.array([0.2, 0.95])).round(3)
    array([0.3, 1. ])
    """

    def curve(u: FloatArray) -> FloatArray:
        forward = math.exp(min(epsilon, 700.0)) * u + delta
        backward = 1.0 - math.exp(-epsilon) * (1.0 - u - delta)
        clipped: FloatArray = np.clip(np.minimum(forward, backward), 0.0, 1.0)
        return clipped

    return curve


def gaussian_curve(mu: float) -> Curve:
    """Return the curve of mu-GDP.

    >>> gaussian_curve(1.0)(np.array([0.5])).round(4)
    array([0.8413])
    """

    def curve(u: FloatArray) -> FloatArray:
        raised: FloatArray = special.ndtr(special.ndtri(u) + mu)
        return raised

    return curve


class Profile:
    """A claim that is read once at a fixed set of epsilons; calling it evaluates its curve."""

    def __init__(self, claim: ClaimedDeltas) -> None:
        deltas = [float(claim(float(epsilon))) for epsilon in _EPSILONS]
        if not all(delta >= 0.0 for delta in deltas):
            raise InvalidInput("claim must return a delta of 0 or more at every epsilon of 0 or more.")
        self.epsilons: FloatArray = np.array(_EPSILONS)
        self.deltas: FloatArray = np.minimum(deltas, 1.0)
        forward, backward = np.exp(self.epsilons), np.exp(-self.epsilons)
        self._slopes = np.concatenate([forward, backward])
        self._offsets = np.concatenate([self.deltas, 1.0 - backward * (1.0 - self.deltas)])

    def __call__(self, u: FloatArray) -> FloatArray:
        # both directions are straight lines in u
        lines = np.multiply.outer(u, self._slopes) + self._offsets
        clipped: FloatArray = np.clip(lines.min(-1), 0.0, 1.0)
        return clipped

    def worst(self, p: float, u: float) -> tuple[float, float]:
        """Return the epsilon at which probabilities ``p`` and ``u`` exceed the claim most, and the claim there."""
        forward = p - np.exp(self.epsilons) * u
        backward = (1.0 - u) - np.exp(self.epsilons) * (1.0 - p)
        worst = int(np.argmax(np.maximum(forward, backward) - self.deltas))
        return float(self.epsilons[worst]), float(self.deltas[worst])
