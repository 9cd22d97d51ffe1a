r"""Block-coordinate Frank-Wolfe under arbitrary sampling, without noise.

Minimises a smooth convex f over a product of sets :math:`M_1 \times \dots \times M_m`, one per block of coordinates
(Lou & Cheung, AAAI 2018, Algorithm 1). Step t = 0, 1, ... draws a subset S of the blocks and moves each of them toward
the best corner of its own set,

    x_i <- x_i + gamma (s_i - x_i)  for i in S,   gamma = 2 / (p t + 2),

where p is the smallest probability of a block to be drawn: one rule for every sampling. All blocks always is the
Frank-Wolfe method (Jaggi, ICML 2013), one block at a time that of Lacoste-Julien et al. (ICML 2013).

**Nothing here is private**: it is a plain optimisation routine, for problems of public data and as the reference for
the theory in :mod:`dperm.solvers.theory.curvature`, which bounds the gap of what this routine returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dperm.errors import InvalidInput
from dperm.objective import Constraint
from dperm.privacy.randomness import RandomSource
from dperm.solvers.sampling import Sampling
from dperm.types import FloatArray
from dperm.validation import indices, non_negative, positive

__all__ = [
    "BlockFrankWolfeResult",
    "Inexactness",
    "OracleCall",
    "ProductSet",
    "SmoothFunction",
    "block_frank_wolfe",
    "duality_gap",
    "universal_step",
]


_ROUNDING = 1e-9  # relative slack of the checks of a callback, for its own arithmetic


class SmoothFunction(Protocol):
    """What is minimised: any object with these two methods."""

    def value(self, x: FloatArray) -> float:
        """Return f(x)."""
        ...

    def partial(self, x: FloatArray, coordinates: NDArray[np.intp]) -> FloatArray:
        """Return the gradient of f at x in these coordinates."""
        ...


@dataclass(frozen=True)
class ProductSet:
    """A product of constraint sets, one for each block of a partition of the coordinates.

    Parameters
    ----------
    blocks : sequence of sequences of int
        A partition of 0..d-1; a block may be a single coordinate.
    constraints : sequence of Constraint
        The set of each block.

    Examples
    --------
    >>> from dperm.objective import Box, Simplex
    >>> product = ProductSet.equal(Simplex(), n_blocks=2, size=3)
    >>> product.blocks
    ((0, 1, 2), (3, 4, 5))
    >>> ProductSet.equal(Box(-1.0, 1.0), n_blocks=3).d
    3
    """

    blocks: tuple[tuple[int, ...], ...]
    constraints: tuple[Constraint, ...]

    def __post_init__(self) -> None:
        blocks = tuple(indices("a block", block) for block in self.blocks)
        flat = sorted(j for block in blocks for j in block)
        if not all(blocks) or not flat or flat != list(range(len(flat))):
            raise InvalidInput("blocks must be a partition of 0..d-1 into blocks that are not empty.")
        constraints = tuple(self.constraints)
        if len(constraints) != len(blocks) or not all(isinstance(c, Constraint) for c in constraints):
            raise InvalidInput(f"{len(blocks)} blocks need as many constraints, each a Constraint.")
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "constraints", constraints)

    @classmethod
    def equal(cls, constraint: Constraint, n_blocks: int, size: int = 1) -> ProductSet:
        """``n_blocks`` blocks of ``size`` neighbouring coordinates, all in the same set."""
        _check_count("n_blocks", n_blocks)
        _check_count("size", size)
        blocks = np.arange(n_blocks * size).reshape(n_blocks, size)
        return cls(tuple(tuple(block) for block in blocks.tolist()), (constraint,) * n_blocks)

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return sum(len(block) for block in self.blocks)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def diameters(self) -> FloatArray:
        """L2 diameter of every block's set."""
        return np.array([c.diameter(len(b)) for c, b in zip(self.constraints, self.blocks, strict=True)])

    def coordinates(self, block: int) -> NDArray[np.intp]:
        """Coordinates of a block."""
        return np.asarray(self.blocks[block], np.intp)

    def contains(self, x: ArrayLike, tol: float = 1e-9) -> bool:
        """Whether every block of ``x`` lies in its set, up to ``tol``."""
        point = self.point(x)
        return all(c.contains(point[list(b)], tol) for c, b in zip(self.constraints, self.blocks, strict=True))

    def project(self, x: ArrayLike) -> FloatArray:
        """Return the nearest point of the set in the L2 norm."""
        point = self.point(x)
        for constraint, block in zip(self.constraints, self.blocks, strict=True):
            point[list(block)] = constraint.project(point[list(block)])
        return point

    def corner(self) -> FloatArray:
        """A corner of the set, the best for the direction of all ones."""
        return self.best_atom(np.ones(self.d))

    def best_atom(self, g: ArrayLike) -> FloatArray:
        """Return a corner that minimises the linear function ``g`` over the product."""
        gradient = self.point(g)
        out = np.empty(self.d)
        for constraint, block in zip(self.constraints, self.blocks, strict=True):
            out[list(block)] = constraint.best_atom(gradient[list(block)])
        return out

    def point(self, x: ArrayLike) -> FloatArray:
        """Return ``x`` as a new float array, or say that its shape does not fit."""
        array = np.array(x, np.float64)
        if array.shape != (self.d,):
            raise InvalidInput(f"a point of this product has shape ({self.d},), not {array.shape}.")
        return array


@dataclass(frozen=True)
class OracleCall:
    """What a callback is told: step, block, its set, and how inexact its answer may be.

    It is not told which other blocks were drawn: the theory needs answers that do not depend on the draw.
    """

    step: int
    block: int
    constraint: Constraint
    tolerance: float


GradientCallback = Callable[[OracleCall, FloatArray], FloatArray]
AtomCallback = Callable[[OracleCall, FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class Inexactness:
    r"""Inexact gradients and corners, within the limits under which the method still converges.

    With :math:`e = \gamma_t \, C / 2` for the expected curvature C, a block's partial gradient may be off by
    :math:`\rho_g e` in the L2 norm, and its corner, a point of the set, worse than the best one for that gradient by
    :math:`\rho_l e` (Assumption 1). Answers outside these limits are refused.

    Parameters
    ----------
    curvature : float
        The C of the limits; with sampling it is the expected curvature or a bound on it.
    rho_g, rho_l : float
        Inexactness of gradient and corner.
    perturb_gradient : callable, optional
        ``(call, exact partial gradient) -> partial gradient``.
    perturb_atom : callable, optional
        ``(call, partial gradient, best corner) -> point of the set``.
    """

    curvature: float
    rho_g: float = 0.0
    rho_l: float = 0.0
    perturb_gradient: GradientCallback | None = None
    perturb_atom: AtomCallback | None = None

    def __post_init__(self) -> None:
        for what in ("curvature", "rho_g", "rho_l"):
            object.__setattr__(self, what, non_negative(what, getattr(self, what)))

    def rho(self, product: ProductSet, sampling: Sampling) -> float:
        r"""The :math:`\rho` of the convergence bound: :math:`\sum_i p_i (\rho_l + D_i \rho_g)`.

        D_i is the L2 diameter of block i's set. With s the exact corner and s' the one taken, an inexact answer costs
        at most <s - s', error> + rho_l e <= (D_i rho_g + rho_l) e in block i. (The paper prints (D + |S|) rho_g +
        |S| rho_l with D the diameter of the product; blocks with D_i > 1 can exceed that.)
        """
        _check_fit(product, sampling)
        return float(sampling.probabilities @ (self.rho_l + self.rho_g * product.diameters))

    def _gradient(self, call: OracleCall, exact: FloatArray) -> FloatArray:
        if self.perturb_gradient is None:
            return exact
        answer = np.asarray(self.perturb_gradient(call, exact.copy()), np.float64)
        _check_shape(answer, exact, "perturb_gradient")
        slack = _ROUNDING * (call.tolerance + float(np.linalg.norm(exact)))
        if not np.linalg.norm(answer - exact) <= call.tolerance + slack:
            raise InvalidInput(f"perturb_gradient moved block {call.block} by more than its tolerance.")
        return answer

    def _atom(self, call: OracleCall, gradient: FloatArray, best: FloatArray) -> FloatArray:
        if self.perturb_atom is None:
            return best
        answer = np.asarray(self.perturb_atom(call, gradient.copy(), best.copy()), np.float64)
        _check_shape(answer, best, "perturb_atom")
        if not call.constraint.contains(answer):
            raise InvalidInput(f"perturb_atom returned a point outside the set of block {call.block}.")
        slack = _ROUNDING * (call.tolerance + float(np.abs(gradient) @ (np.abs(best) + 1.0)))
        if not gradient @ (answer - best) <= call.tolerance + slack:
            raise InvalidInput(f"perturb_atom made block {call.block} worse than its tolerance allows.")
        return answer


@dataclass(frozen=True)
class BlockFrankWolfeResult:
    """The last point, the values of f at all points from the start on, and the steps' lengths."""

    x: FloatArray
    values: FloatArray
    steps: FloatArray

    def gaps(self, best_value: float) -> FloatArray:
        """f(x_t) - best value, t = 0..T."""
        return self.values - best_value


def universal_step(p_min: float, t: int) -> float:
    """2 / (p_min t + 2), the step of every sampling.

    >>> universal_step(1.0, 0), universal_step(0.5, 4)
    (1.0, 0.5)
    """
    return 2.0 / (p_min * t + 2.0)


def block_frank_wolfe(
    function: SmoothFunction,
    product: ProductSet,
    sampling: Sampling,
    n_steps: int,
    source: RandomSource,
    *,
    start: ArrayLike | None = None,
    p_min: float | None = None,
    inexactness: Inexactness | None = None,
) -> BlockFrankWolfeResult:
    """Minimise a smooth convex function over a product of sets.

    Parameters
    ----------
    function : SmoothFunction
        f and its partial gradients.
    product : ProductSet
        The sets.
    sampling : Sampling
        Which blocks move together, over ``product.n_blocks`` blocks; draws of different steps are independent.
    n_steps : int
        Number of steps.
    source : RandomSource
        Where the draws come from.
    start : array of shape (d,), optional
        A point of the set; a corner by default.
    p_min : float, optional
        A positive lower bound on every block's probability, where the exact ones are not known; by default the
        smallest one.
    inexactness : Inexactness, optional
        Callbacks that spoil gradients and corners.

    Returns
    -------
    BlockFrankWolfeResult

    Examples
    --------
    >>> from dperm.objective import Simplex
    >>> from dperm.solvers.theory.curvature import Quadratic
    >>> from dperm.solvers.sampling import ElementarySampling
    >>> product = ProductSet.equal(Simplex(), n_blocks=1, size=2)
    >>> run = block_frank_wolfe(Quadratic(np.eye(2)), product, ElementarySampling(1), 200, RandomSource())
    >>> bool(abs(run.x - 0.5).max() < 0.01)
    True
    """
    _check_fit(product, sampling)
    _check_count("n_steps", n_steps)
    smallest = sampling.smallest_probability
    p = smallest if p_min is None else positive("p_min", p_min)
    if p > smallest * (1.0 + 1e-12):
        raise InvalidInput(
            f"p_min must be a lower bound on every block's probability, at most {smallest:g}, not {p:g}."
        )
    x = product.corner() if start is None else product.point(start)
    if not product.contains(x):
        raise InvalidInput("start must be a point of the set.")
    values, steps = [float(function.value(x))], []
    coordinates = [product.coordinates(i) for i in range(product.n_blocks)]
    for t in range(n_steps):
        gamma = universal_step(p, t)
        moved = x.copy()
        for i in _drawn(sampling, source):  # all blocks see the same x: the order does not matter
            place = coordinates[i]
            target = _target(function, product, x, (t, i, gamma), place, inexactness)
            moved[place] += gamma * (target - x[place])
        x = moved
        values.append(float(function.value(x)))
        steps.append(gamma)
    return BlockFrankWolfeResult(x, np.array(values), np.array(steps))


def duality_gap(function: SmoothFunction, product: ProductSet, x: ArrayLike) -> float:
    """max over s of <x - s, gradient at x>: an upper bound on f(x) - min f that needs no optimum."""
    point = product.point(x)
    gradient = function.partial(point, np.arange(product.d))
    return float(gradient @ (point - product.best_atom(gradient)))


def _target(
    function: SmoothFunction,
    product: ProductSet,
    x: FloatArray,
    when: tuple[int, int, float],
    place: NDArray[np.intp],
    inexactness: Inexactness | None,
) -> FloatArray:
    """The corner toward which one block moves."""
    t, i, gamma = when
    constraint = product.constraints[i]
    gradient = function.partial(x, place)
    if inexactness is None:
        return constraint.best_atom(gradient)
    limit = 0.5 * gamma * inexactness.curvature
    gradient = inexactness._gradient(OracleCall(t, i, constraint, inexactness.rho_g * limit), gradient)
    call = OracleCall(t, i, constraint, inexactness.rho_l * limit)
    return inexactness._atom(call, gradient, constraint.best_atom(gradient))


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidInput(f"{name} must be a whole number >= 1, not {value!r}.")


def _drawn(sampling: Sampling, source: RandomSource) -> Sequence[int]:
    subset = sampling.draw(source)
    if len(set(subset)) < len(subset) or any(not 0 <= i < sampling.d for i in subset):
        raise InvalidInput(f"a sampling of {sampling.d} blocks drew {subset!r}, which is not a subset of them.")
    return subset


def _check_fit(product: ProductSet, sampling: Sampling) -> None:
    if sampling.d != product.n_blocks:
        raise InvalidInput(f"the sampling is over {sampling.d} blocks and the product has {product.n_blocks}.")
    if not sampling.smallest_probability > 0.0:
        raise InvalidInput("a sampling must be proper: every block needs a positive probability.")


def _check_shape(answer: FloatArray, wanted: FloatArray, who: str) -> None:
    if answer.shape != wanted.shape or not np.isfinite(answer).all():
        raise InvalidInput(f"{who} must return finite numbers of shape {wanted.shape}.")
