"""The cost of objective perturbation: its event, and its privacy profile in closed form.

Tight profile: Redberg, Koskela & Wang 2023 (arXiv 2401.00583). Proof: ``curves.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from scipy import special

from dperm.privacy.accounting import gdp
from dperm.privacy.accounting.events import Composed, Event, Gaussian, ObjectivePerturbation

__all__ = ["OUTPUT_RATIO", "applies", "perturbation_event", "upper_delta", "upper_epsilon"]

Leaves = Mapping[Event, int]

#: noise multiplier of the output noise divided by that of b: the output noise costs 1/64 of b's mu squared
OUTPUT_RATIO = 8.0

_MOST_USES = 64  # the bound doubles with every use


def perturbation_event(noise_multiplier: float, curvature_ratio: float, replacement_ratio: float = 2.0) -> Event:
    """Return the cost of one release: the exact minimiser, and the noise on the computed point near it."""
    return Composed(
        (
            ObjectivePerturbation(noise_multiplier, curvature_ratio),
            Gaussian(OUTPUT_RATIO * noise_multiplier, replacement_ratio),
        )
    )


def applies(leaves: Leaves) -> bool:
    """Whether the closed form covers these leaves: perturbed objectives, next to Gaussians only."""
    uses = sum(count for leaf, count in leaves.items() if isinstance(leaf, ObjectivePerturbation))
    return 0 < uses <= _MOST_USES and all(isinstance(leaf, Gaussian | ObjectivePerturbation) for leaf in leaves)


def _total(leaves: Leaves) -> tuple[float, float, int]:
    """Return the sum of ln(1 + curvature ratio), mu of all noise together, and the number of perturbed objectives."""
    found = [(leaf, count) for leaf, count in leaves.items() if isinstance(leaf, ObjectivePerturbation)]
    offset = math.fsum(count * math.log1p(leaf.curvature_ratio) for leaf, count in found)
    squares = math.fsum(
        count / leaf.noise_multiplier**2
        for leaf, count in leaves.items()
        if isinstance(leaf, Gaussian | ObjectivePerturbation)
    )
    return offset * (1.0 + 1e-15), math.sqrt(squares) * (1.0 + 1e-15), sum(count for _, count in found)


def upper_delta(leaves: Leaves, epsilon: float) -> float:
    """Upper bound on delta of the composed leaves at ``epsilon``, exact for one perturbed objective alone.

    Each use has loss at most offset + mu |Z| + mu^2/2. The part where all k normal numbers are positive is 1/2^k of the
    whole, and there the sum of losses is that of one Gaussian: delta <= 2^k delta_Gauss(epsilon - offset).
    """
    offset, mu, uses = _total(leaves)
    left = epsilon - offset - 4e-16 * (abs(epsilon) + offset)
    bound = 2.0**uses * gdp.delta_of(mu, left)
    if uses == 1 and len(leaves) == 1 and left < mu * mu / 2.0:
        # every Z contributes: 1 - 2 exp(left) Phi(-mu)
        bound = min(bound, 1.0 - 2.0 * math.exp(left + float(special.log_ndtr(-mu))) * (1.0 - 1e-13))
    return min(1.0, bound)


def upper_epsilon(leaves: Leaves, delta: float) -> float:
    """Upper bound on epsilon of the composed leaves at ``delta``."""
    offset, mu, uses = _total(leaves)
    return (offset + gdp.epsilon_of(mu, delta / 2.0**uses)) * (1.0 + 1e-15)
