"""Published constants, step counts and message sizes of distributed Frank-Wolfe, and the message sizes of dperm's runs.

The functions named ``printed_...`` give the formulas as published by Lou & Cheung (AAAI 2018), for comparison. The
published constants are up to universal factors, and the published noise carries no guarantee. The other functions
count the bytes that dperm's vertical tasks send.
"""

from __future__ import annotations

import math

from dperm.types import FloatArray
from dperm.validation import positive

__all__ = [
    "dense_uplink_bytes",
    "one_shot_uplink_bytes",
    "printed_bytes",
    "printed_feature_deviation",
    "printed_gradient_constant",
    "printed_gradient_inexactness",
    "printed_index_scale",
    "printed_oracle_constant",
    "printed_oracle_inexactness",
    "printed_steps",
    "printed_update",
    "printed_utility",
    "sketch_rows",
    "uplink_bytes",
]


_NUMBER = 8  # bytes of a double


def _check(**values: float) -> None:
    for name, value in values.items():
        positive(name, value)


def printed_gradient_constant(
    *,
    n_parties: int,
    nonzeros: float,
    distortion: float,
    singular_value: float,
    probability: float,
    epsilon: float,
    delta: float,
) -> float:
    """C_g of Table 2: ((K iota nnz + K^1.5 sqrt(nnz) sigma(J)^2) / p_min) sqrt(log(1/delta) + epsilon)."""
    _check(n_parties=n_parties, nonzeros=nonzeros, distortion=distortion, probability=probability, epsilon=epsilon)
    inner = n_parties * distortion * nonzeros + n_parties**1.5 * math.sqrt(nonzeros) * singular_value**2
    return float(inner / probability * math.sqrt(math.log(1.0 / delta) + epsilon))


def printed_oracle_constant(*, gradient_bound: float, radius: float, delta: float) -> float:
    """C_l of Table 2: 2 G eta sqrt(32 log(2 / delta))."""
    _check(gradient_bound=gradient_bound, radius=radius, delta=delta)
    return 2.0 * gradient_bound * radius * math.sqrt(32.0 * math.log(2.0 / delta))


def printed_steps(*, curvature: float, n: int, epsilon: float, gradient_constant: float, oracle_constant: float) -> int:
    """Number of steps of Theorem 3: (C_f n epsilon / (C_g + C_l))^(2/3), at least 1.

    >>> printed_steps(curvature=1.0, n=1_000_000, epsilon=1.0, gradient_constant=500.0, oracle_constant=500.0)
    100
    """
    _check(curvature=curvature, n=n, epsilon=epsilon)
    best = (curvature * n * epsilon / (gradient_constant + oracle_constant)) ** (2.0 / 3.0)
    return max(1, round(float(best)))


def printed_gradient_inexactness(
    *,
    gradient_constant: float,
    n_steps: int,
    n: int,
    epsilon: float,
    curvature: float,
    reach: float,
    probability: float,
) -> float:
    """rho_g of Table 2 times D + |T|, called reach, up to a constant: C_g reach sqrt(T) / (n epsilon C_f gamma_T).

    ``reach`` is 2 eta + K tau. The table's power of C_f is not legible; Assumption 1 makes it the first.
    """
    _check(n_steps=n_steps, n=n, epsilon=epsilon, curvature=curvature, reach=reach, probability=probability)
    gamma = 2.0 / (probability * n_steps + 2.0)
    return gradient_constant * reach * math.sqrt(n_steps) / (n * epsilon * curvature * gamma)


def printed_oracle_inexactness(
    *,
    oracle_constant: float,
    n_steps: int,
    n: int,
    epsilon: float,
    curvature: float,
    n_drawn: int,
    probability: float,
    gradient_bound: float,
    radius: float,
) -> float:
    """rho_l of Table 2 up to a constant: C_l sqrt(T) log(2 G eta K tau T) / (K tau n epsilon C_f gamma_T).

    ``n_drawn`` is K tau; a logarithm below 1 counts as 1.
    """
    _check(n_steps=n_steps, n=n, epsilon=epsilon, curvature=curvature, n_drawn=n_drawn, probability=probability)
    gamma = 2.0 / (probability * n_steps + 2.0)
    log = max(1.0, math.log(2.0 * gradient_bound * radius * n_drawn * n_steps))
    return oracle_constant * math.sqrt(n_steps) * log / (n_drawn * n * epsilon * curvature * gamma)


def printed_utility(
    *,
    gradient_constant: float,
    oracle_constant: float,
    curvature: float,
    n: int,
    epsilon: float,
    n_drawn: int,
    probability: float,
    gradient_bound: float,
    radius: float,
) -> float:
    """Excess risk of Theorem 3, equation (16), up to a constant; ``n_drawn`` is K tau, ``probability`` K tau / d.

    It is Theorem 1 with the inexactness of Table 2 at the printed number of steps, where rho is of the order of the
    logarithm: (C_g + C_l)^(2/3) C_f^(1/3) log(2 G eta K tau n) / (p^2 (n epsilon)^(2/3)).
    """
    _check(curvature=curvature, n=n, epsilon=epsilon, n_drawn=n_drawn, probability=probability)
    log = max(1.0, math.log(2.0 * gradient_bound * radius * n_drawn * n))
    constants = (gradient_constant + oracle_constant) ** (2.0 / 3.0) * curvature ** (1.0 / 3.0)
    return float(constants * log / (probability**2 * (n * epsilon) ** (2.0 / 3.0)))


def printed_index_scale(
    *, n: int, n_steps: int, gradient_bound: float, radius: float, epsilon: float, delta: float
) -> float:
    """Scale of the Laplace noise on a mean gradient as published: 8 G eta sqrt(2 T ln(2/delta)) / (n epsilon).

    It is for the choices. The factor 1/K of both the sensitivity and the budget cancels.
    """
    _check(n=n, n_steps=n_steps, gradient_bound=gradient_bound, radius=radius, epsilon=epsilon, delta=delta)
    root = math.sqrt(2.0 * n_steps * math.log(2.0 / delta))
    return 8.0 * gradient_bound * radius * root / (n * epsilon)


def sketch_rows(n_steps: int, delta: float, distortion: float, factor: float = 4.0) -> int:
    """Number of sketch rows that keeps inner products up to ``distortion`` iota: factor log(n_steps/delta) / iota^2.

    >>> sketch_rows(50, 0.01, 0.5)
    137
    """
    _check(n_steps=n_steps, delta=delta, distortion=distortion, factor=factor)
    return math.ceil(factor * math.log(n_steps / delta) / distortion**2)


def printed_bytes(*, n: int, epsilon: float, n_parties: int, distortion: float) -> float:
    """Uplink of Corollary 1 up to its constant: K (n epsilon)^(2/3) log((n epsilon)^(1/3)) / iota^2 numbers."""
    _check(n=n, epsilon=epsilon, n_parties=n_parties, distortion=distortion)
    size = max(n * epsilon, math.e**3)
    return float(_NUMBER * n_parties * size ** (2.0 / 3.0) * math.log(size ** (1.0 / 3.0)) / distortion**2)


def printed_feature_deviation(
    *, n: int, n_parties: int, n_steps: int, singular_value: float, epsilon: float, delta: float
) -> float:
    """Standard deviation of the noise on a sketched feature as published, with its spurious 1/n."""
    _check(n=n, n_parties=n_parties, n_steps=n_steps, singular_value=singular_value, epsilon=epsilon)
    root = math.sqrt(n_parties * n_steps) * math.sqrt(2.0 * (math.log(1.0 / delta) + epsilon / 2.0))
    return singular_value * root / (n * epsilon / 2.0)


def printed_update(point: FloatArray, atoms: FloatArray, gamma: float) -> FloatArray:
    """The server's step as published: (1 - gamma) x + gamma times the sum of all parties' atoms, one in each row.

    The sum of K atoms of norm eta may have norm K eta, so the point leaves the ball. dperm's ``product`` option gives
    every party a ball of radius eta / K instead.
    """
    moved: FloatArray = (1.0 - gamma) * point + gamma * atoms.sum(axis=0)
    return moved


def uplink_bytes(*, n_steps: int, n_parties: int, n_active: int, length: int, per_choice: int = 3) -> int:
    """Uplink of a run that shares columns on demand: choices of ``per_choice`` numbers, ``n_active`` vectors."""
    return _NUMBER * (n_steps * n_parties * per_choice + n_active * length)


def dense_uplink_bytes(*, n_rounds: int, n_parties: int, n: int) -> int:
    """Uplink of a method in which every party sends one number per person in every round."""
    return _NUMBER * n_rounds * n_parties * n


def one_shot_uplink_bytes(*, n: int, n_rows: int) -> int:
    """Uplink of one random projection of all features, ``n_rows`` numbers per person (Heinze-Deml et al. 2017)."""
    return _NUMBER * n * n_rows
