"""The cost of a perturbed objective: curve, profile, composition, and exact densities against both."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from dperm import Ledger
from dperm.errors import InvalidInput, Unsupported
from dperm.objective import Huber, Logistic, SmoothedHinge
from dperm.privacy.accounting import composition, curves, gdp
from dperm.privacy.accounting import objective_perturbation as perturbation
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.events import (
    Composed,
    Gaussian,
    ObjectivePerturbation,
    Repeat,
    Selection,
    event_from_dict,
    event_to_dict,
    restate,
)
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.objective_perturbation import PerturbedObjective
from dperm.privacy.mechanisms.standard import MECHANISMS
from dperm.privacy.randomness import RandomSource
from dperm.testing import ContractViolation, check_event, check_mechanism
from dperm.testing.density import check_minimiser_density

CASES = [(m, ratio) for m in (0.3, 1.0, 5.0, 40.0) for ratio in (0.0, 0.1, 2.0)]


def losses(m, ratio):
    """The dominating loss as a function of a standard normal number."""
    return lambda z: math.log1p(ratio) + np.abs(z) / m + 0.5 / m**2


def expectation(function, kinks=()):
    points = sorted({-12.0, 0.0, 12.0, *(k for k in kinks if -12.0 < k < 12.0)})
    return sum(
        integrate.quad(lambda z: function(z) * stats.norm.pdf(z), a, b, epsabs=1e-14)[0] for a, b in pairwise(points)
    )


def test_both_parts_of_a_release_are_charged():
    """The exact minimiser, and the noise that hides which point near it is released."""
    leaves = composition.leaves(perturbation.perturbation_event(2.0, 0.5))
    assert leaves == {ObjectivePerturbation(2.0, 0.5): 1, Gaussian(16.0, 2.0): 1}
    mechanism = PerturbedObjective(2.0, curvature_ratio=0.5, strength=1.0, precision=1e-9)
    assert composition.leaves(mechanism.event(2.0)) == leaves


@pytest.mark.parametrize("precision", [1e-9, 1e-3])
@pytest.mark.parametrize("m", [0.5, 2.0, 40.0])
def test_the_output_noise_covers_any_two_points_that_may_stand_for_one_minimiser(m, precision):
    """Both lie within (tolerance + half a lattice step of b per coordinate) / strength of it."""
    sensitivity, bound, size, strength = 0.7, 100.0, 50, 0.3
    mechanism = PerturbedObjective(m, curvature_ratio=0.5, strength=strength, precision=precision)
    spacing, scale = mechanism.linear_noise(sensitivity)
    assert spacing * scale >= m * sensitivity
    apart = 2.0 * (mechanism.tolerance(bound, size) + 0.5 * spacing * math.sqrt(size)) / strength
    lattice = mechanism.output_lattice(sensitivity, bound, size)
    assert lattice.noise_scale >= 8.0 * m * apart
    assert lattice.noise_scale <= 8.0 * m * apart * 1.01
    # where arithmetic is exact, the rounding of b is all there is
    coarse = PerturbedObjective(m, curvature_ratio=0.5, strength=strength, precision=1e-300)
    assert coarse.output_lattice(sensitivity, 1e-30, size).noise_scale >= 8.0 * m * spacing * math.sqrt(size) / strength


@pytest.mark.parametrize(("m", "ratio"), CASES)
@pytest.mark.parametrize("order", [1.01, 1.5, 2.0, 3.0])
def test_the_renyi_curve_is_that_of_the_dominating_loss(m, ratio, order):
    loss = losses(m, ratio)
    if order / m > 6.0:
        pytest.skip("the quadrature does not reach far enough")
    wanted = math.log(expectation(lambda z: math.exp((order - 1.0) * loss(z)))) / (order - 1.0)
    claimed = curves.renyi(ObjectivePerturbation(m, ratio), order)
    assert wanted * (1.0 - 1e-9) <= claimed <= wanted * (1.0 + 1e-6) + 1e-9


@pytest.mark.parametrize(("m", "ratio"), CASES)
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3, 1.0, 2.5])
def test_the_profile_is_that_of_the_dominating_loss(m, ratio, epsilon):
    loss = losses(m, ratio)
    kink = m * (epsilon - math.log1p(ratio)) - 0.5 / m
    wanted = expectation(lambda z: max(0.0, 1.0 - math.exp(min(epsilon - loss(z), 0.0))), (kink, -kink))
    claimed = perturbation.upper_delta({ObjectivePerturbation(m, ratio): 1}, epsilon)
    assert wanted * (1.0 - 1e-7) - 1e-13 <= claimed <= wanted * (1.0 + 1e-6) + 1e-12
    assert composition.delta(ObjectivePerturbation(m, ratio), epsilon) <= claimed


@pytest.mark.parametrize(("m", "ratio"), CASES)
def test_the_profile_is_the_published_one(m, ratio):
    """Redberg, Koskela & Wang 2023: two branches in epsilon - ln(1 + ratio) - mu^2/2."""
    for epsilon in (0.1, 0.7, 2.0):
        tilted = epsilon - math.log1p(ratio)
        hat, mu = tilted - 0.5 / m**2, 1.0 / m
        if hat >= 0.0:
            published = 2.0 * gdp.delta_of(mu, tilted)
        else:
            published = 1.0 - math.exp(hat) + math.exp(hat) * 2.0 * gdp.delta_of(mu, mu * mu / 2.0)
        assert perturbation.upper_delta({ObjectivePerturbation(m, ratio): 1}, epsilon) == pytest.approx(
            published, rel=1e-9, abs=1e-15
        )


@pytest.mark.parametrize("others", [0.2, 1.0])
def test_next_to_gaussians_the_closed_form_is_an_upper_bound(others):
    m, ratio = 1.5, 0.2
    loss = losses(m, ratio)
    leaves = {ObjectivePerturbation(m, ratio): 1, Gaussian(1.0 / others): 1}
    for epsilon in (0.5, 1.0, 3.0):
        wanted = expectation(lambda z, e=epsilon: gdp.delta_of(others, e - loss(z)))
        claimed = perturbation.upper_delta(leaves, epsilon)
        assert wanted <= claimed
        if others < 0.5:
            assert claimed <= 1.05 * wanted  # tight where the perturbation is the main noise


def test_two_uses_are_bounded_by_their_convolution():
    m, ratio, grid = 2.0, 0.1, np.linspace(-9.0, 9.0, 1201)
    weights = stats.norm.pdf(grid) * (grid[1] - grid[0])
    total = losses(m, ratio)(grid)[:, None] + losses(m, ratio)(grid)[None, :]
    for epsilon in (0.5, 1.5, 3.0):
        wanted = float(weights @ np.maximum(0.0, -np.expm1(np.minimum(epsilon - total, 0.0))) @ weights)
        claimed = perturbation.upper_delta({ObjectivePerturbation(m, ratio): 2}, epsilon)
        assert wanted <= claimed * (1.0 + 1e-4)


@pytest.mark.parametrize(("m", "ratio"), CASES)
def test_the_event_is_consistent(m, ratio):
    event = ObjectivePerturbation(m, ratio)
    check_event(event)
    check_event(perturbation.perturbation_event(m, ratio))
    for delta in (1e-3, 1e-6, 1e-12):
        epsilon = perturbation.upper_epsilon({event: 1}, delta)
        assert perturbation.upper_delta({event: 1}, epsilon) <= delta * (1.0 + 1e-9)
        bound = composition.epsilon(event, delta)
        assert bound.lower <= bound.epsilon <= epsilon
    assert composition.zcdp(event) is None  # its divergence does not vanish with the order
    assert composition.mu(event) is None


def test_next_to_other_events_the_renyi_curves_add():
    event = Composed((ObjectivePerturbation(5.0, 0.1), Repeat(Selection(30.0), 4)))
    assert not perturbation.applies(composition.leaves(event))
    assert math.isfinite(composition.epsilon(event, 1e-6).epsilon)


def test_it_is_recorded_and_refused_under_replace_one():
    event = perturbation.perturbation_event(2.0, 0.5)
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event
    with pytest.raises(Unsupported, match="zero-out"):
        restate(event, Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE)
    for neighbours in ("replace-one", "zero-out"):
        with pytest.raises(Unsupported, match="zero-out only"):
            Ledger().reserve(event, neighbours=neighbours)  # a ledger kept under replace-one


@pytest.mark.parametrize("wrong", [(0.0, 0.1), (1.0, -0.1), (1.0, math.inf), (math.nan, 0.1), (1.0, math.nan)])
def test_bad_numbers(wrong):
    with pytest.raises(InvalidInput):
        ObjectivePerturbation(*wrong)


def test_a_plan_finds_its_noise_or_says_that_none_is_enough():
    plan = Plan((PlannedRelease("w", "objective", 1, curvature_ratio=0.3),))
    made = calibrate(plan, Budget(1.0, 1e-6))
    found = composition.upper_epsilon(made.event, 1e-6)[0]
    assert 1.0 - 1e-4 < found <= 1.0
    assert plan.scaled(0.5).releases[0].curvature_ratio == 0.3
    with pytest.raises(Unsupported, match="leaves nothing for the noise"):
        calibrate(plan, Budget(0.2, 1e-6))  # ln(1.3) is more than that
    for wrong in ({"kind": "objective"}, {"kind": "gaussian", "curvature_ratio": 0.1}):
        with pytest.raises(InvalidInput, match="curvature_ratio belongs"):
            PlannedRelease("w", count=1, **wrong)


# ----------------------------------------------------------------------------------- exact densities in one dimension
WORLDS = [([1.0], [1.0]), ([1.0], [0.0]), ([1.0, -1.0, 0.5], [1.0, 1.0, 0.0])]
LOSSES = [Logistic(), Huber(0.5), Huber(5.0), SmoothedHinge(0.5), SmoothedHinge(0.05)]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("strength", [0.3, 3.0])
@pytest.mark.parametrize("m", [0.5, 3.0])
def test_exact_densities_satisfy_the_claim(loss, strength, m):
    event = ObjectivePerturbation(m, loss.curvature_bound / strength)
    for rows, targets in WORLDS:
        check_minimiser_density(event, loss, rows, targets, strength, m * loss.slope_bound)


def test_the_worst_worlds_come_close_to_the_claim():
    ratios = [
        check_minimiser_density(ObjectivePerturbation(0.5, 1.0 / s), Huber(0.5), *WORLDS[0], s, 0.25)
        for s in (0.3, 1.0, 10.0)
    ]
    assert max(ratios) > 0.7


@pytest.mark.parametrize("m", [0.5, 3.0])
def test_halved_noise_is_caught(m):
    loss, strength = Huber(0.5), 10.0
    event = ObjectivePerturbation(m, loss.curvature_bound / strength)
    with pytest.raises(ContractViolation, match=r"the true (delta|divergence) is"):
        check_minimiser_density(event, loss, *WORLDS[0], strength, m * loss.slope_bound / 2.0)


@pytest.mark.parametrize("loss", [Huber(5.0), SmoothedHinge(0.05), Logistic()], ids=repr)
def test_a_forgotten_determinant_is_caught(loss):
    m, strength = 3.0, 0.05
    honest = ObjectivePerturbation(m, loss.curvature_bound / strength)
    check_minimiser_density(honest, loss, *WORLDS[0], strength, m * loss.slope_bound)
    with pytest.raises(ContractViolation, match=r"the true (delta|divergence) is"):
        check_minimiser_density(ObjectivePerturbation(m, 0.0), loss, *WORLDS[0], strength, m * loss.slope_bound)


# ------------------------------------------------------------------------------------------------------ the mechanism
class HalvesTheLinearNoise(PerturbedObjective):
    def linear_noise(self, sensitivity):
        spacing, scale = super().linear_noise(sensitivity)
        return spacing / 2.0, scale


def test_the_mechanism_is_registered_and_its_noise_is_checked():
    assert MECHANISMS["objective"] is PerturbedObjective
    with pytest.raises(ContractViolation, match="does not fit its law"):
        check_mechanism(HalvesTheLinearNoise(2.0, curvature_ratio=0.1, strength=1.0, precision=1e-9))


def test_the_mechanism_refuses_unknown_values():
    mechanism = PerturbedObjective(2.0, curvature_ratio=0.1, strength=1.0, precision=1e-9)
    with pytest.raises(InvalidInput, match="returns an objective"):
        mechanism.apply(np.zeros(3), 1.0, 1.0, RandomSource(0))
    for wrong in ({"strength": 0.0}, {"precision": -1.0}, {"curvature_ratio": -1.0}):
        with pytest.raises(InvalidInput):
            PerturbedObjective(2.0, **({"curvature_ratio": 0.1, "strength": 1.0, "precision": 1e-9} | wrong))
