r"""Constraints: compact convex sets in which the weights must stay.

Each set offers a projection and the vertex (*atom*) that minimises a linear function, which is all that Frank-Wolfe
needs.  Weights have shape (d,), or (d, K) for K outputs; a constraint then applies to all :math:`d K` entries
together.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dperm.errors import InvalidInput
from dperm.objective.weight_checks import Bound, bounds, per_row, weights
from dperm.types import FloatArray
from dperm.validation import non_negative, positive, whole


def _project_simplex(w: FloatArray, radius: float) -> FloatArray:
    """Project a flat vector onto {u >= 0, sum u = radius}: u = max(w - theta, 0), theta found by sorting."""
    # The projection does not change when w is shifted; with the maximum at 0 the radius is not lost next to
    # large weights.
    with np.errstate(over="ignore"):
        shifted = w - w.max()
        descending = np.sort(shifted)[::-1]
        excess = np.cumsum(descending) - radius
        counts = np.arange(1, len(w) + 1)
        # The first entry is always kept (0 > -radius), so the set of kept entries is not empty.
        kept = np.flatnonzero(descending * counts > excess)[-1]
        result: FloatArray = np.maximum(shifted - excess[kept] / counts[kept], 0.0)
    return result


class Constraint(ABC):
    """Base class of the constraints.

    Attributes
    ----------
    name : str
        Key in the registry.
    separable : bool
        Whether the set is a product of intervals, one per weight.
    """

    name: ClassVar[str]
    separable: ClassVar[bool]

    @abstractmethod
    def project(self, w: ArrayLike) -> FloatArray:
        """Return the point of the set nearest to ``w`` in the L2 norm."""

    @abstractmethod
    def contains(self, w: ArrayLike, tol: float = 1e-9) -> bool:
        """Whether ``w`` satisfies every defining inequality (or equality) up to ``tol``."""

    @abstractmethod
    def best_atom(self, g: ArrayLike) -> FloatArray:
        r"""Return a vertex s that minimises :math:`\langle s, g \rangle` over the set, as a dense array.

        Ties go to the lowest index, so the answer is a function of ``g`` alone.
        """

    @abstractmethod
    def atoms_count(self, d: int) -> int:
        """Return the number of vertices for ``d`` weights (d K of them with K outputs)."""

    @abstractmethod
    def diameter(self, d: int) -> float:
        """Return the largest L2 distance of two points of the set for ``d`` weights."""


@dataclass(frozen=True)
class L1Ball(Constraint):
    r"""The set :math:`\{w : \|w\|_1 \le \text{radius}\}`.

    Its :math:`2d` atoms are :math:`\pm\text{radius}\, e_j`.

    Examples
    --------
    >>> L1Ball(1.0).project([2.0, -1.0])
    array([1., 0.])
    >>> L1Ball(3.0).best_atom([1.0, -2.0])
    array([0., 3.])
    """

    radius: float

    name: ClassVar[str] = "l1_ball"
    separable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", positive("radius", self.radius))

    def project(self, w: ArrayLike) -> FloatArray:
        array = weights(w)
        if self.contains(array, 0.0):
            return array.copy()
        sizes = _project_simplex(np.abs(array).ravel(), self.radius).reshape(array.shape)
        return np.copysign(sizes, array) + 0.0  # turns -0 into 0

    def contains(self, w: ArrayLike, tol: float = 1e-9) -> bool:
        with np.errstate(over="ignore"):
            return bool(np.abs(weights(w)).sum() <= self.radius + non_negative("tol", tol))

    def best_atom(self, g: ArrayLike) -> FloatArray:
        array = weights(g, "g")
        atom = np.zeros_like(array)
        best = np.unravel_index(np.argmax(np.abs(array)), array.shape)
        # A zero gradient must still give a vertex, so its sign is not read from np.sign.
        atom[best] = self.radius if array[best] < 0.0 else -self.radius
        return atom

    def atoms_count(self, d: int) -> int:
        return 2 * whole("d", d)

    def diameter(self, d: int) -> float:
        whole("d", d)
        return 2.0 * self.radius


@dataclass(frozen=True)
class Simplex(Constraint):
    r"""The set :math:`\{w \ge 0 : \sum_j w_j = \text{radius}\}`.

    Its :math:`d` atoms are :math:`\text{radius}\, e_j`.

    Examples
    --------
    >>> Simplex(1.0).project([0.5, 0.75, -3.0])
    array([0.375, 0.625, 0.   ])
    """

    radius: float = 1.0

    name: ClassVar[str] = "simplex"
    separable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", positive("radius", self.radius))

    def project(self, w: ArrayLike) -> FloatArray:
        array = weights(w)
        return _project_simplex(array.ravel(), self.radius).reshape(array.shape)

    def contains(self, w: ArrayLike, tol: float = 1e-9) -> bool:
        array, slack = weights(w), non_negative("tol", tol)
        with np.errstate(over="ignore"):
            return bool(array.min() >= -slack and abs(array.sum() - self.radius) <= slack)

    def best_atom(self, g: ArrayLike) -> FloatArray:
        array = weights(g, "g")
        atom = np.zeros_like(array)
        atom[np.unravel_index(np.argmin(array), array.shape)] = self.radius
        return atom

    def atoms_count(self, d: int) -> int:
        return whole("d", d)

    def diameter(self, d: int) -> float:
        return 0.0 if whole("d", d) == 1 else math.sqrt(2.0) * self.radius


@dataclass(frozen=True)
class Box(Constraint):
    r"""The set :math:`\{w : \text{low}_j \le w_j \le \text{high}_j\}`, whose atoms are its corners.

    Parameters
    ----------
    low, high : float, or sequence with one number per row of the weights
        Finite bounds.

    Examples
    --------
    >>> Box(-1.0, 2.0).best_atom([3.0, -0.5])
    array([-1.,  2.])
    """

    low: Bound
    high: Bound

    name: ClassVar[str] = "box"
    separable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        low, high = bounds(self.low, self.high)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise InvalidInput("low and high must be finite, because a constraint is a bounded set.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def _widths(self, d: int) -> FloatArray:
        """Side lengths for ``d`` weights; bounds per row are repeated for each output."""
        widths = np.atleast_1d(np.asarray(self.high, dtype=np.float64) - np.asarray(self.low, dtype=np.float64))
        repeats, rest = divmod(whole("d", d), len(widths))
        if rest or not repeats:
            raise InvalidInput(f"d must be a multiple of the {len(widths)} bounds, got {d}.")
        return np.repeat(widths, repeats)

    def project(self, w: ArrayLike) -> FloatArray:
        array = weights(w)
        return np.clip(array, per_row(self.low, array), per_row(self.high, array))

    def contains(self, w: ArrayLike, tol: float = 1e-9) -> bool:
        array, slack = weights(w), non_negative("tol", tol)
        above = array >= per_row(self.low, array) - slack
        return bool((above & (array <= per_row(self.high, array) + slack)).all())

    def best_atom(self, g: ArrayLike) -> FloatArray:
        array = weights(g, "g")
        return np.where(array >= 0.0, per_row(self.low, array), per_row(self.high, array))

    def atoms_count(self, d: int) -> int:
        return 1 << int(np.count_nonzero(self._widths(d)))

    def diameter(self, d: int) -> float:
        return math.hypot(*self._widths(d))
