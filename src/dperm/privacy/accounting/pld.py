"""Privacy loss distributions from the dp-accounting library, imported only when a plan needs them.

Only its distribution objects are used, under their add-or-remove semantics, which for Poisson sampling with public
``n`` is what dperm calls zero-out. Its event accountants are avoided on purpose: in 0.6 one of them drops the count
of a repeated randomized response, and REPLACE_ONE doubles a Gaussian's sensitivity in one accountant but not in the
other. Counts therefore come from our own fold and factors of two stay in our own sensitivities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dperm.errors import MissingDependency
from dperm.privacy.accounting import curves
from dperm.privacy.accounting.events import Event, Gaussian, Laplace, PoissonGaussian

__all__ = [
    "LOSS_INTERVAL",
    "applies",
    "clear_cache",
    "distribution_library",
    "lower_epsilon",
    "upper_delta",
    "upper_epsilon",
]

#: spacing of the grid of losses for an epsilon of about 1; a wider one gives looser bounds in less time
LOSS_INTERVAL = 1e-4
Leaves = Mapping[Event, int]


def applies(leaves: Leaves) -> bool:
    """Whether every leaf has a distribution here: Poisson-sampled or plain Gaussian, or Laplace."""
    return all(isinstance(leaf, Gaussian | PoissonGaussian | Laplace) for leaf in leaves)


def upper_epsilon(leaves: Leaves, delta: float) -> float:
    """Return an upper bound on epsilon of the composed leaves; infinite if ``delta`` is too small for doubles."""
    left = delta - _fourier_error(leaves)
    if left <= 0.0:
        return math.inf
    return float(_composed(leaves, _interval(leaves), pessimistic=True).get_epsilon_for_delta(left))


def upper_delta(leaves: Leaves, epsilon: float) -> float:
    """Upper bound on delta of the composed leaves at ``epsilon``."""
    found = float(_composed(leaves, _interval(leaves), pessimistic=True).get_delta_for_epsilon(epsilon))
    return min(1.0, found + _fourier_error(leaves))


def _fourier_error(leaves: Leaves) -> float:
    """Return how much delta the rounding of the library's Fourier transforms may miss.

    It grows with the number of uses: about 2e-17 each, measured against the closed form of Gaussians; the tests
    repeat the measurement. Without this the "upper bound" at a delta of 1e-12 lies below the truth for 10^4 uses.
    """
    return 1e-15 * (25.0 + sum(leaves.values()))


def lower_epsilon(leaves: Leaves, delta: float) -> float:
    """Lower bound on epsilon of the composed leaves at ``delta``."""
    # rounding losses down costs up to half an interval per use, so the grid shrinks with the number of uses
    interval = min(1.0, max(0.1, 200.0 / sum(leaves.values()))) * _interval(leaves)
    made = _composed(leaves, interval, pessimistic=False)
    return max(0.0, float(made.get_epsilon_for_delta(min(1.0, delta + _fourier_error(leaves)))))


def _interval(leaves: Leaves) -> float:
    """Return the spacing of the grid of losses: proportional to a rough epsilon, so that grids stay equally long.

    Any spacing gives an upper (or lower) bound, a coarser one a looser bound: spreading a loss over two neighbours on
    the grid adds up to a quarter of the squared spacing to its variance, so the spacing stays a fiftieth of one use's
    own standard deviation, about the root of its divergence of order 2. The factor is a power of two, so that nearly
    equal plans share it.
    """
    divergences = {leaf: curves.renyi(leaf, 2.0) for leaf in leaves}
    rough = 8.8 * math.sqrt(math.fsum(count * divergences[leaf] for leaf, count in leaves.items()))
    one = math.sqrt(min(divergences.values())) / (50.0 * LOSS_INTERVAL)
    return LOSS_INTERVAL * 2.0 ** min(math.floor(math.log2(max(min(rough, one), 1.0))), 6)


def distribution_library() -> Any:
    """Import dp-accounting, which is an extra."""
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError:
        raise MissingDependency(
            "Poisson-sampled releases are accounted with dp-accounting, which is not installed: "
            "pip install 'dperm[sgd]'."
        ) from None
    return privacy_loss_distribution


def clear_cache() -> None:
    """Forget all computed distributions, as after a change of :data:`LOSS_INTERVAL`."""
    _composed_items.cache_clear()


def _composed(leaves: Leaves, interval: float, *, pessimistic: bool) -> Any:
    return _composed_items(tuple(leaves.items()), interval, pessimistic)


@lru_cache(maxsize=4)  # the curve of one plan asks for many deltas
def _composed_items(leaves: tuple[tuple[Event, int], ...], interval: float, pessimistic: bool) -> Any:
    library = distribution_library()
    options: dict[str, Any] = {
        "value_discretization_interval": interval,
        "pessimistic_estimate": pessimistic,
        "use_connect_dots": pessimistic,  # connect-the-dots exists as an upper bound only
    }
    total = None
    squares = 0.0
    for leaf, count in leaves:
        one = curves.gdp(leaf)
        if one is not None:
            squares += count * one * one  # Gaussians compose exactly: one distribution for all of them
            continue
        if isinstance(leaf, PoissonGaussian):
            part = library.from_gaussian_mechanism(leaf.noise_multiplier, sampling_prob=leaf.rate, **options)
        else:
            assert isinstance(leaf, Laplace)
            part = library.from_laplace_mechanism(leaf.noise_multiplier, **options)
        part = part.self_compose(count)
        total = part if total is None else total.compose(part)
    if squares > 0.0:
        part = library.from_gaussian_mechanism(1.0 / math.sqrt(squares), **options)
        total = part if total is None else total.compose(part)
    return total
