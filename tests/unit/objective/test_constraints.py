"""Constraints: projections by optimality condition and quadratic program, atoms by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dperm.errors import InvalidInput
from dperm.objective import CONSTRAINTS, Box, Constraint, L1Ball, Simplex

ALL = [
    L1Ball(1.0),
    L1Ball(4.0),
    Simplex(),
    Simplex(2.5),
    Box(-0.5, 0.75),
    Box((-1.0, 0.0, 0.25), (1.0, 2.0, 0.25)),
]


def atoms(constraint: Constraint, d: int) -> np.ndarray:
    """All vertices, written down independently of ``best_atom``."""
    if isinstance(constraint, L1Ball):
        return constraint.radius * np.vstack([np.eye(d), -np.eye(d)])
    if isinstance(constraint, Simplex):
        return constraint.radius * np.eye(d)
    assert isinstance(constraint, Box)
    low, high = np.broadcast_to(constraint.low, d), np.broadcast_to(constraint.high, d)
    return np.array(sorted(set(itertools.product(*zip(low, high, strict=True)))))


def test_registry_names_every_class() -> None:
    assert set(CONSTRAINTS) == {"l1_ball", "simplex", "box"}
    assert all(cls.name == name for name, cls in CONSTRAINTS.items())


@pytest.mark.parametrize("constraint", ALL, ids=repr)
@pytest.mark.parametrize("shape", [(3,), (3, 4)])
def test_projection_is_nearest(constraint: Constraint, shape: tuple[int, ...]) -> None:
    """u is the projection of w if and only if it is in the set and no point s of it has <w - u, s - u> > 0."""
    rng = np.random.default_rng(0)
    for scale in (0.01, 0.5, 3.0, 100.0):
        for _ in range(20):
            w = rng.normal(size=shape) * scale
            u = constraint.project(w)
            assert constraint.contains(u)
            worst = constraint.best_atom(u - w)
            assert np.vdot(w - u, worst - u) <= 1e-12 * max(1.0, scale**2)
            np.testing.assert_allclose(constraint.project(u), u, atol=1e-14)


@pytest.mark.parametrize("constraint", ALL, ids=repr)
def test_projection_against_a_quadratic_program(constraint: Constraint) -> None:
    """The nearest convex combination of the atoms, by a general solver."""
    rng = np.random.default_rng(1)
    vertices = atoms(constraint, 3)
    m = len(vertices)
    for _ in range(5):
        w = rng.normal(size=3) * 2
        found = minimize(
            lambda t, w=w: 0.5 * np.square(t @ vertices - w).sum(),
            np.full(m, 1 / m),
            jac=lambda t, w=w: vertices @ (t @ vertices - w),
            bounds=[(0, 1)] * m,
            constraints={"type": "eq", "fun": lambda t: t.sum() - 1, "jac": lambda t: np.ones(m)},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(constraint.project(w), found.x @ vertices, atol=1e-5)


def test_projections_of_large_and_tied_weights() -> None:
    np.testing.assert_array_equal(Simplex(1.0).project([1e20, -1e20, 3.0]), [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(L1Ball(1.0).project([1e308, -1e308]), [0.5, -0.5])
    np.testing.assert_array_equal(Simplex(1.0).project([1e308, -1e308]), [1.0, 0.0])
    np.testing.assert_allclose(Simplex(1.0).project(np.full(4, 7.0)), 0.25)
    np.testing.assert_array_equal(Simplex(3.0).project([-8.0]), [3.0])


def test_a_point_inside_stays_and_is_copied() -> None:
    w = np.array([0.25, -0.5])
    for constraint in (L1Ball(1.0), Box(-1.0, 1.0)):
        u = constraint.project(w)
        np.testing.assert_array_equal(u, w)
        assert u is not w


@pytest.mark.parametrize("constraint", ALL, ids=repr)
def test_best_atom_by_enumeration(constraint: Constraint) -> None:
    rng = np.random.default_rng(2)
    vertices = atoms(constraint, 3)
    gradients = [*rng.normal(size=(50, 3)), np.zeros(3), np.array([1.0, 1.0, -1.0]), np.array([0.0, 0.0, -1.0])]
    for g in gradients:
        atom = constraint.best_atom(g)
        assert (vertices == atom).all(axis=1).any()
        assert atom @ g == pytest.approx((vertices @ g).min(), abs=1e-12)


@pytest.mark.parametrize("constraint", [L1Ball(2.0), Simplex(2.0), Box(-1.0, 2.0)], ids=repr)
def test_best_atom_of_a_matrix_is_that_of_its_entries(constraint: Constraint) -> None:
    g = np.random.default_rng(3).normal(size=(3, 2))
    np.testing.assert_array_equal(constraint.best_atom(g), constraint.best_atom(g.ravel()).reshape(3, 2))


@pytest.mark.parametrize("constraint", ALL, ids=repr)
def test_atoms_count_and_diameter(constraint: Constraint) -> None:
    vertices = atoms(constraint, 3)
    assert constraint.atoms_count(3) == len(vertices)
    distances = np.linalg.norm(vertices[:, None] - vertices[None], axis=2)
    assert constraint.diameter(3) == pytest.approx(distances.max())


def test_atoms_count_and_diameter_in_other_dimensions() -> None:
    assert Simplex().diameter(1) == 0.0
    assert L1Ball(1.0).diameter(1) == 2.0
    assert Box(0.0, 1.0).atoms_count(100) == 2**100
    assert Box((0.0, 1.0), (1.0, 1.0)).atoms_count(6) == 8
    assert Box((0.0, 1.0), (1.0, 1.0)).diameter(6) == pytest.approx(math.sqrt(3))
    with pytest.raises(InvalidInput, match="multiple"):
        Box((0.0, 1.0), (1.0, 1.0)).diameter(3)
    for bad in (0, -1, 1.5):
        with pytest.raises(InvalidInput, match="d must be"):
            L1Ball(1.0).atoms_count(bad)


def test_contains_uses_its_tolerance() -> None:
    assert not L1Ball(1.0).contains([1.0, 0.01])
    assert L1Ball(1.0).contains([1.0, 0.01], tol=0.02)
    assert not Simplex(1.0).contains([1.5, -0.5])
    assert not Simplex(1.0).contains([0.2, 0.2])
    assert Simplex(1.0).contains([1.01, -0.01], tol=0.02)
    assert not Box(0.0, 1.0).contains([0.5, 1.01])
    assert Box(0.0, 1.0).contains([0.5, 1.01], tol=0.02)
    with pytest.raises(InvalidInput, match="tol"):
        Box(0.0, 1.0).contains([0.5], tol=-1.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, "1", None])
def test_bad_radius_is_refused(bad: object) -> None:
    for make in (L1Ball, Simplex):
        with pytest.raises(InvalidInput, match=r"^radius [^\n]+\.$"):
            make(bad)


def test_bad_boxes_and_weights_are_refused() -> None:
    with pytest.raises(InvalidInput, match="above high"):
        Box(1.0, 0.0)
    with pytest.raises(InvalidInput, match="finite"):
        Box(0.0, math.inf)
    with pytest.raises(InvalidInput, match="2 weights"):
        Box((0.0, 0.0), 1.0).project([1.0, 2.0, 3.0])
    for constraint in ALL:
        with pytest.raises(InvalidInput, match="w must be finite"):
            constraint.project([math.nan, 0.0, 0.0])
        with pytest.raises(InvalidInput, match="g must be finite"):
            constraint.best_atom([math.inf, 0.0, 0.0])
