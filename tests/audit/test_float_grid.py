"""The attack on floating-point noise: outputs lie on a grid that depends on the secret.

Adding a double to a double rounds to the grid of the larger one (Mironov 2012, "On significance of the least
significant bits for differential privacy"). For a secret 1 every small output is a multiple of 2^-53; for a secret 0
most are not. The attacker looks only at outputs near zero, where both secrets are about as likely, and learns from a
training half which grid tells most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from dperm.privacy.mechanisms.lattice import Lattice
from dperm.privacy.mechanisms.standard import GaussianNoise, LaplaceNoise
from dperm.privacy.randomness import RandomSource

N = 200_000


def features(outputs: Any) -> Any:
    """For each output: is it on the grid 2^-k, and what is its digit 2^-k, for every k too fine to show in the law."""
    columns = []
    for k in range(10, 70):
        scaled = np.ldexp(outputs, k)
        floor = np.floor(scaled)
        columns.append(scaled == floor)
        columns.append(np.mod(floor, 2.0) == 1.0)
    return np.array(columns)


def advantage(noisy: Callable[[float, int], Any], secrets: tuple[float, float]) -> tuple[float, float]:
    """How much more often the best grid is met under one secret, on fresh outputs, and four standard errors of it."""

    def outputs(secret: float) -> Any:
        drawn = np.asarray(noisy(secret, N))
        return drawn[np.abs(drawn) < 0.25]

    train = [features(outputs(s)).mean(axis=1) for s in secrets]
    best = int(np.argmax(np.abs(train[1] - train[0])))
    sign = float(np.sign(train[1][best] - train[0][best]))
    held_out = [features(outputs(s))[best] for s in secrets]
    error = 4.0 * float(np.sqrt(sum(0.25 / h.size for h in held_out)))
    return sign * float(held_out[1].mean() - held_out[0].mean()), error


SECRETS = [(0.0, 1.0), (0.0, 1.0 / 3.0)]


@pytest.mark.parametrize("secrets", SECRETS)
@pytest.mark.parametrize("kind", ["normal", "laplace", "cryptographic"])
def test_the_attack_succeeds_on_floating_point_noise(kind: str, secrets: tuple[float, float]) -> None:
    rng = np.random.default_rng(1)
    source = RandomSource("float")

    def noisy(secret: float, n: int) -> Any:
        if kind == "cryptographic":  # better random words do not help
            return secret + special.ndtri((source.words(n).astype(np.float64) + 0.5) * 2.0**-64)
        return secret + (rng.standard_normal(n) if kind == "normal" else rng.laplace(size=n))

    found, error = advantage(noisy, secrets)
    assert found > 0.5
    assert found > 10.0 * error


@pytest.mark.parametrize("secrets", SECRETS)
@pytest.mark.parametrize("mechanism", [GaussianNoise, LaplaceNoise])
def test_the_attack_finds_nothing_on_the_lattice(mechanism: type[GaussianNoise], secrets: tuple[float, float]) -> None:
    source = RandomSource(f"lattice {mechanism.kind} {secrets}")
    found, error = advantage(
        lambda secret, n: mechanism(1.0).apply(np.full(n, secret), 1.0, 2.0, source),
        secrets,
    )
    assert abs(found) < error
    assert error < 0.05


@pytest.mark.parametrize("secrets", SECRETS)
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_the_attack_finds_nothing_on_the_coarsest_lattice(kind: str, secrets: tuple[float, float]) -> None:
    design = Lattice.design(1.0, 1.0, 1, 2.0, kind)
    source = RandomSource(f"coarse {kind} {secrets}")
    found, error = advantage(lambda secret, n: design.release(np.full(n, secret), source), secrets)
    assert abs(found) < error


@pytest.mark.parametrize("secrets", SECRETS)
def test_the_attack_sees_a_lattice_that_forgets_to_round(secrets: tuple[float, float]) -> None:
    """Planted: lattice noise added to the query itself, not to its lattice point."""
    design = Lattice.design(1.0, 1.0, 1, 2.0)
    source = RandomSource("planted")
    off = 0.3 * design.spacing
    found, error = advantage(
        lambda secret, n: design.release(np.full(n, secret), source) + (off if secret else 0.0), secrets
    )
    assert found > 10.0 * error
