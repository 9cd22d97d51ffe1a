"""Privacy loss distributions computed from privacy profiles and composed by fast Fourier transform.

A release's profile is delta(e) for every real e. :func:`leaf_profile` gives the exact (Gaussian, Laplace, randomized
response) or worst-case (bounded-range selection) profile of a leaf. On a grid of losses the connect-the-dots rule
(Doroshenko et al. 2022, arXiv 2207.04380) turns a profile into a discrete distribution whose profile lies above it, and
products of such distributions dominate adaptive compositions (Zhu, Dong & Wang 2022, arXiv 2106.08567). Every
approximation errs on the safe side; the error of the Fourier transform is added to delta. Proof: ``profiles.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from dperm.privacy.accounting import curves, gdp
from dperm.privacy.accounting.events import Event, Gaussian, Laplace, RandomizedResponse, Selection
from dperm.types import FloatArray

__all__ = ["applies", "leaf_profile", "upper_delta", "upper_epsilon"]

Leaves = Mapping[Event, int]
Profile = Callable[[FloatArray], FloatArray]

_MOST_POINTS = 1 << 17  # of the grid, to keep the transforms fast
_MOST_USES = 20_000  # beyond them the rounding of the transform approaches usual deltas
_MOST_SELECTIONS = 4  # beyond them the Renyi bound is smaller
_NEGLIGIBLE = 1e-18  # probability of Gaussian losses beyond the grid, counted as lost
_LARGEST_LOSS = 300.0  # beyond it nothing is private and exp(loss) overflows


def applies(leaves: Leaves) -> bool:
    """Whether all leaves have a profile here and are few enough for it to be useful.

    For many selections the Renyi bound is smaller: it takes the worst case over the position of the loss interval once
    per order, a profile takes it at every single loss.
    """
    kinds = Gaussian | Laplace | RandomizedResponse | Selection
    n_selections = sum(count for leaf, count in leaves.items() if isinstance(leaf, Selection))
    return (
        all(isinstance(leaf, kinds) for leaf in leaves)
        and n_selections <= _MOST_SELECTIONS
        and sum(leaves.values()) <= _MOST_USES
    )


def leaf_profile(leaf: Event) -> Profile:
    """Return delta(e), for an array of e >= 0, of a leaf whose two directions have the same profile."""
    if isinstance(leaf, Selection):
        span = leaf.loss_range
        return lambda e: np.expm1(np.minimum(e - span, 0.0) / 2.0) ** 2 / -math.expm1(-span)
    if isinstance(leaf, Laplace):
        shift = 1.0 / leaf.noise_multiplier
        return lambda e: -np.expm1(np.minimum(e - shift, 0.0) / 2.0)
    if isinstance(leaf, RandomizedResponse):
        p = math.exp(leaf.epsilon - float(np.logaddexp(leaf.epsilon, math.log(leaf.n_values - 1))))
        return lambda e: p * -np.expm1(np.minimum(e - leaf.epsilon, 0.0))
    assert isinstance(leaf, Gaussian)
    mu = 1.0 / leaf.noise_multiplier
    return lambda e: np.array([gdp.delta_of(mu, float(one)) for one in e])


def upper_epsilon(leaves: Leaves, delta: float) -> float:
    """Upper bound on epsilon of the composed leaves at ``delta``; infinite where the grid is too coarse."""
    composed = _compose(tuple(leaves.items()))
    if composed is None or composed[2] >= delta:
        return math.inf
    losses, weights, lost = composed
    low, high = 0.0, float(losses[-1])
    if _delta_at(losses, weights, lost, 0.0) <= delta:
        return 0.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _delta_at(losses, weights, lost, middle) > delta else (low, middle)
    return high


def upper_delta(leaves: Leaves, epsilon: float) -> float:
    """Upper bound on delta of the composed leaves at ``epsilon``."""
    composed = _compose(tuple(leaves.items()))
    return 1.0 if composed is None else min(1.0, _delta_at(*composed, epsilon))


def _delta_at(losses: FloatArray, weights: FloatArray, lost: float, epsilon: float) -> float:
    start = int(np.searchsorted(losses, epsilon, side="right"))
    return lost + float(np.dot(weights[start:], -np.expm1(epsilon - losses[start:])))


def _reach(leaf: Event) -> float:
    """Return the largest loss; larger ones have no probability, or a negligible one that is counted as lost."""
    if isinstance(leaf, Gaussian):
        return gdp.epsilon_of(1.0 / leaf.noise_multiplier, _NEGLIGIBLE)
    return curves.pure(leaf)


@lru_cache(maxsize=16)
def _compose(leaves: tuple[tuple[Event, int], ...]) -> tuple[FloatArray, FloatArray, float] | None:
    """Return the losses of the composition, their probabilities and the probability that is set aside."""
    parts: list[tuple[Event, int]] = [(leaf, count) for leaf, count in leaves if not isinstance(leaf, Gaussian)]
    squares = math.fsum(c / leaf.noise_multiplier**2 for leaf, c in leaves if isinstance(leaf, Gaussian))
    if squares > 0.0:
        parts.append((Gaussian(1.0 / math.sqrt(squares)), 1))  # Gaussians compose exactly
    reaches = [(_reach(leaf), count) for leaf, count in parts]
    total = math.fsum(reach * count for reach, count in reaches)
    if not total < _LARGEST_LOSS:
        return None
    # one grid for all parts: fine enough for the smallest one, unless the whole grid would become too long
    spacing = max(min(reach for reach, _ in reaches) / 200.0, total / _MOST_POINTS)
    if any(reach < 4.0 * spacing for reach, _ in reaches):
        return None
    steps = [math.ceil(reach / spacing) + 1 for reach, _ in reaches]
    half = sum(n * count for n, (_, count) in zip(steps, reaches, strict=True))
    size = 1 << (2 * half + 1).bit_length()
    spectrum = np.ones(size // 2 + 1, np.complex128)
    kept, error = 1.0, 0.0
    for (leaf, count), n in zip(parts, steps, strict=True):
        weights, lost = _connect_the_dots(leaf_profile(leaf), n, spacing)
        kept *= (1.0 - lost) ** count
        wrapped = np.zeros(size)
        wrapped[np.arange(-n, n + 1) % size] = weights
        spectrum *= np.fft.rfft(wrapped) ** count
        error += count
    composed = np.roll(np.fft.irfft(spectrum, size), half)[: 2 * half + 1].astype(np.float64)
    # rounding of the transforms: relative 1e-15 per factor and stage of the l2 norm, in every one of the points
    slack = 1e-15 * (error + 4.0) * math.log2(size) * float(np.linalg.norm(composed)) * math.sqrt(size)
    losses = np.arange(-half, half + 1, dtype=np.float64) * spacing
    return losses, np.maximum(composed, 0.0), (1.0 - kept) + slack


def _connect_the_dots(profile: Profile, n: int, spacing: float) -> tuple[FloatArray, float]:
    """Return probabilities of the losses -n..n (in steps) that interpolate the given profile, and the lost mass."""
    above = profile(np.arange(n + 2, dtype=np.float64) * spacing)
    k = np.arange(1, n + 2) * spacing
    # the profile of the reversed pair is the same, so delta(-e) = 1 - exp(-e) + exp(-e) delta(e)
    below = -np.expm1(-k) + np.exp(-k) * above[1:]
    dots = np.concatenate([below[::-1], above])
    fall = dots[:-1] - dots[1:]
    weights = np.maximum(fall[:-1] / -math.expm1(-spacing) - fall[1:] / math.expm1(spacing), 0.0)
    lost = float(dots[-2])
    weights[0] += max(0.0, 1.0 - lost - float(weights.sum()))  # what lies below the grid moves up to its lowest point
    return weights, lost
