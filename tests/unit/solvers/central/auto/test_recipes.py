"""Constants of the automatic rule: the noise fraction and the shrinkage factor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dperm.data.design.facts import Facts
from dperm.objective import Huber, Logistic, Multinomial, SmoothedHinge, Squared
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.solvers.central.auto.recipes import noise_fraction, recipe_for

LOSSES = [Logistic(), Multinomial(4), SmoothedHinge(0.5), Squared(residual_clip=1.0), Huber(0.5)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_noise_fraction_falls_with_more_data_and_more_budget(loss):
    def at(n, mu, neighbours=Neighbours.ZERO_OUT):
        return noise_fraction(loss, Facts(n, 10, 11, 1.0, 11**0.5, 1.0), mu, neighbours)

    for line in ([at(n, 0.1) for n in (10, 100, 1000, 10**6)], [at(1000, mu) for mu in (0.001, 0.1, 1.0, 10.0)]):
        assert all(1.0 >= a > b >= 0.0 for a, b in itertools.pairwise(line))
    assert at(1000, 0.1, Neighbours.REPLACE_ONE) > at(1000, 0.1)
    assert at(1, 1e-4) > 0.99
    assert at(10**9, 1.0) < 0.01


def test_the_shrinkage_factor_counts_only_energy_above_the_noise():
    recipe = recipe_for(Logistic())
    parts = np.full(10, 0.1)
    assert recipe.shrinkage_factor(parts, 0.5) == recipe.min_shrinkage
    assert recipe.shrinkage_factor(parts, 0.0) == recipe.min_shrinkage
    assert recipe.shrinkage_factor(0.0 * parts, 0.0) == recipe.min_shrinkage
    assert recipe.shrinkage_factor(0.0 * parts, 1.0) == 1.0
    assert recipe.min_shrinkage < recipe.shrinkage_factor(parts, 3.0) < 1.0
    assert recipe.shrinkage_factor(np.repeat(parts, 3), 5.0) < recipe.shrinkage_factor(parts, 5.0)
    assert recipe_for(Huber(1.0)).shrinkage_factor(parts, 0.5) == 0.0
