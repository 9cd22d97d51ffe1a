"""Gaussian widths against drawn vectors, and the bound of the projected method."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dperm.errors import InvalidInput
from dperm.solvers.theory import random_projection as theory

SUPREMA = {
    "l2 ball": lambda g: np.linalg.norm(g, axis=1),
    "l1 ball": lambda g: np.abs(g).max(axis=1),
    "simplex": lambda g: g.max(axis=1),
    "cube": lambda g: np.abs(g).sum(axis=1),
}


@pytest.mark.parametrize("p", [1, 2, 30, 1000])
@pytest.mark.parametrize("name", theory.WIDTHS)
def test_widths_are_means_of_suprema(name, p):
    g = np.random.default_rng(p).normal(size=(200_000 // p + 2_000, p))
    found = SUPREMA[name](g)
    assert theory.WIDTHS[name](p) == pytest.approx(found.mean(), abs=5.0 * found.std() / math.sqrt(len(found)))


@pytest.mark.parametrize(("p", "k"), [(20, 1), (20, 5), (400, 20), (400, 400)])
def test_the_width_of_sparse_vectors(p, k):
    g = np.random.default_rng(k).normal(size=(4_000, p)) ** 2
    found = np.sqrt(np.sort(g, axis=1)[:, -k:].sum(axis=1)).mean()
    assert theory.sparse_ball_width(p, k) == pytest.approx(found, rel=0.03)
    with pytest.raises(InvalidInput, match="between 1 and p"):
        theory.sparse_ball_width(p, p + 1)


@pytest.mark.parametrize("p", [2, 50, 10_000])
def test_widths_stay_below_the_bound_by_vertices(p):
    assert theory.l1_ball_width(p) <= theory.vertices_width_bound(2 * p)
    assert theory.simplex_width(p) <= theory.vertices_width_bound(p)
    assert theory.simplex_width(p) <= theory.l1_ball_width(p) <= theory.l2_ball_width(p) <= theory.linf_ball_width(p)


def test_lemma_4_holds_with_a_constant_of_eight():
    """The largest distortion over random points, by a Gaussian matrix whose rows the lemma counts."""
    rng, p, n_points = np.random.default_rng(0), 300, 200
    points = rng.normal(size=(n_points, p))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    width = theory.vertices_width_bound(n_points)
    for gamma in (0.3, 0.6):
        m = math.ceil(theory.projection_rows(width, gamma, 0.05, constant=8.0))
        matrices = rng.normal(size=(20, m, p)) / math.sqrt(m)
        lengths = (np.einsum("rmp,np->rmn", matrices, points) ** 2).sum(axis=1)
        worst = np.abs(lengths - 1.0).max(axis=1)
        assert (worst <= gamma).mean() >= 0.95
        assert theory.distortion(m, width, 0.05, constant=8.0) == pytest.approx(gamma, rel=0.01)


def test_theorem_7_by_its_two_formulas():
    n, epsilon, failure, psi = 10**6, 0.25, 0.05, 1.3
    width = theory.l1_ball_width(5_000)
    base = width + math.sqrt(math.log(n))
    gamma = psi * math.sqrt(base) * math.log(1 / failure) * math.log(n / failure) ** 0.25 / (math.sqrt(n) * epsilon)
    m = theory.projected_rows(n, width, epsilon, failure, psi)
    assert m == pytest.approx(psi**4 * base**2 * math.log(n / failure) / gamma**2)
    by_hand = psi**2 * base * math.sqrt(math.log(n / failure)) * n * epsilon**2 / math.log(1 / failure) ** 2
    assert m == pytest.approx(by_hand)
    assert theory.projected_error(n, width, epsilon, failure, psi) == pytest.approx(gamma ** (1 / (1 + m)))
    assert theory.projected_error(n, width, epsilon, failure, psi, m=3) == pytest.approx(gamma**0.25)


@pytest.mark.parametrize("n", [10**4, 10**6, 10**9])
def test_theorem_7_and_corollary_3_say_nothing(n):
    """The number of rows grows with n, so the bound is near the largest loss for every number of people."""
    assert theory.projected_error(n, theory.l1_ball_width(10**6), 0.25) > 0.97
    assert theory.corollary3_error(n, 10**6, 0.25) > 0.97


def test_bad_numbers():
    with pytest.raises(InvalidInput, match="whole number"):
        theory.l2_ball_width(0)
    with pytest.raises(InvalidInput, match="failure"):
        theory.projected_error(100, 1.0, 1.0, failure=2.0)
    assert theory.simplex_width(1) == 0.0
