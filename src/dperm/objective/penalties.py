r"""Penalties: terms that are added to the mean loss.

The objective is :math:`\frac1n \sum_i \ell(x_i^\top w, y_i) + \text{strength} \cdot \text{penalty}(w)`.
``value``, ``gradient`` and ``prox`` of the classes below **include** the strength.  They depend on the
weights only, so they are applied after the noise and cost no privacy.

Weights have shape (d,), or (d, K) for K outputs; sums run over all entries unless a class says otherwise.

The equivalents in scikit-learn, with n rows:

=========================================  ===========================================  ==================
scikit-learn                               here                                         strength
=========================================  ===========================================  ==================
``LogisticRegression(C=C)``                ``Logistic`` or ``Multinomial`` + ``L2``     ``1 / (C * n)``
the same with an L1 or elastic-net         ``L1`` or ``ElasticNet``, same ``l1_ratio``  ``1 / (C * n)``
``Ridge(alpha)``                           ``Squared`` + ``L2``                         ``alpha / n``
``Lasso(alpha)``, ``ElasticNet(alpha)``    ``Squared`` + ``L1`` or ``ElasticNet``       ``alpha``
``SGDClassifier``, ``SGDRegressor``        the loss + ``L2``, ``L1``                    ``alpha``
=========================================  ===========================================  ==================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dperm.errors import InvalidInput, Unsupported
from dperm.objective.weight_checks import Bound, Step, bounds, per_row, step_length, weights
from dperm.types import FloatArray
from dperm.validation import finite, indices, non_negative


@dataclass(frozen=True)
class Penalty(ABC):
    """Base class of the penalties.

    Attributes
    ----------
    strength : float
        Weight of the penalty against the mean loss, 0 or more.
    name : str
        Key in the registry.
    smooth : bool
        Whether ``gradient`` exists.
    separable : bool
        Whether the penalty is a sum over single weights; then ``step`` in ``prox`` may be one number per
        weight.
    """

    strength: float

    name: ClassVar[str]
    smooth: ClassVar[bool]
    separable: ClassVar[bool]

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", non_negative("strength", self.strength))

    @property
    def strong_convexity(self) -> float:
        """Largest m for which value(w) - m ||w||^2 / 2 is convex."""
        return 0.0

    @abstractmethod
    def value(self, w: ArrayLike) -> float:
        """Return strength times the penalty at ``w``."""

    def prox(self, w: ArrayLike, step: Step) -> FloatArray:
        r"""Return :math:`\arg\min_u \frac12 \|u - w\|^2 + \text{step} \cdot \text{value}(u)`.

        Parameters
        ----------
        w : array of shape (d,) or (d, K)
        step : float, or array of the shape of ``w`` if the penalty is separable
        """
        array = weights(w)
        return self._prox(array, step_length(step, array, per_weight=self.separable))

    @abstractmethod
    def _prox(self, w: FloatArray, step: Step) -> FloatArray:
        """Compute ``prox`` for checked arguments."""

    def gradient(self, w: ArrayLike) -> FloatArray:
        """Return the gradient of ``value``; only smooth penalties have one."""
        raise Unsupported(f"the penalty {self.name!r} has no gradient: use its prox.")


def _soft_threshold(w: FloatArray, threshold: Step) -> FloatArray:
    return w - np.clip(w, -threshold, threshold)


@dataclass(frozen=True)
class NoPenalty(Penalty):
    """No penalty: the objective is the mean loss."""

    strength: float = field(default=0.0, init=False)

    name: ClassVar[str] = "none"
    smooth: ClassVar[bool] = True
    separable: ClassVar[bool] = True

    def value(self, w: ArrayLike) -> float:
        weights(w)
        return 0.0

    def _prox(self, w: FloatArray, step: Step) -> FloatArray:
        return w.copy()

    def gradient(self, w: ArrayLike) -> FloatArray:
        return np.zeros_like(weights(w))


@dataclass(frozen=True)
class L1(Penalty):
    r"""Lasso penalty, :math:`\text{strength} \cdot \|w\|_1`.

    ``strength`` equals ``alpha`` of scikit-learn's ``Lasso`` and ``1 / (C * n)`` of its
    ``LogisticRegression``.

    Examples
    --------
    >>> L1(1.0).prox([3.0, -0.5], 0.5)
    array([2.5, 0. ])
    """

    name: ClassVar[str] = "l1"
    smooth: ClassVar[bool] = False
    separable: ClassVar[bool] = True

    def value(self, w: ArrayLike) -> float:
        return self.strength * float(np.abs(weights(w)).sum())

    def _prox(self, w: FloatArray, step: Step) -> FloatArray:
        return _soft_threshold(w, step * self.strength)


@dataclass(frozen=True)
class L2(Penalty):
    r"""Ridge penalty with a half, :math:`\text{strength} \cdot \|w\|_2^2 / 2`.

    ``strength`` equals ``1 / (C * n)`` of scikit-learn's ``LogisticRegression`` and ``alpha / n`` of its
    ``Ridge`` (whose objective has neither the half nor the mean).

    Examples
    --------
    >>> L2(2.0).value([1.0, 2.0])
    5.0
    """

    name: ClassVar[str] = "l2"
    smooth: ClassVar[bool] = True
    separable: ClassVar[bool] = True

    @property
    def strong_convexity(self) -> float:
        return self.strength

    def value(self, w: ArrayLike) -> float:
        return 0.5 * self.strength * float(np.square(weights(w)).sum())

    def _prox(self, w: FloatArray, step: Step) -> FloatArray:
        return w / (1.0 + step * self.strength)

    def gradient(self, w: ArrayLike) -> FloatArray:
        return self.strength * weights(w)


@dataclass(frozen=True)
class ElasticNet(Penalty):
    r"""Mixture of lasso and ridge.

    .. math:: \text{strength} \cdot \bigl( \rho \|w\|_1 + (1 - \rho) \|w\|_2^2 / 2 \bigr),
       \qquad \rho = \text{l1\_ratio}

    ``strength`` and ``l1_ratio`` equal ``alpha`` and ``l1_ratio`` of scikit-learn's ``ElasticNet``; for its
    ``LogisticRegression``, ``strength = 1 / (C * n)``.

    Parameters
    ----------
    strength : float
    l1_ratio : float
        Share of the lasso, in [0, 1].
    """

    l1_ratio: float

    name: ClassVar[str] = "elastic_net"
    smooth: ClassVar[bool] = False
    separable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        ratio = finite("l1_ratio", self.l1_ratio)
        if not 0.0 <= ratio <= 1.0:
            raise InvalidInput(f"l1_ratio must lie in [0, 1], got {ratio!r}.")
        object.__setattr__(self, "l1_ratio", ratio)

    @property
    def strong_convexity(self) -> float:
        return self.strength * (1.0 - self.l1_ratio)

    def value(self, w: ArrayLike) -> float:
        array = weights(w)
        lasso = self.l1_ratio * np.abs(array).sum()
        return self.strength * float(lasso + 0.5 * (1.0 - self.l1_ratio) * np.square(array).sum())

    def _prox(self, w: FloatArray, step: Step) -> FloatArray:
        return _soft_threshold(w, step * self.strength * self.l1_ratio) / (1.0 + step * self.strong_convexity)


@dataclass(frozen=True)
class BoxPenalty(Penalty):
    """Indicator of a box: 0 where ``low <= w <= high`` everywhere, infinity elsewhere.

    Its prox is the projection, whatever the step.  For a bounded box as a set (with atoms and a diameter) use
    the constraint ``Box``.

    Parameters
    ----------
    low, high : float, or sequence with one number per row of the weights
        Bounds; ``low`` may be minus infinity and ``high`` infinity, so ``BoxPenalty(0, math.inf)`` keeps the
        weights non-negative.

    Examples
    --------
    >>> BoxPenalty(0.0, 1.0).prox([-2.0, 0.5, 3.0], 1.0)
    array([0. , 0.5, 1. ])
    """

    strength: float = field(default=1.0, init=False)
    low: Bound
    high: Bound

    name: ClassVar[str] = "box"
    smooth: ClassVar[bool] = False
    separable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        low, high = bounds(self.low, self.high)
        if np.any(np.asarray(low) == math.inf) or np.any(np.asarray(high) == -math.inf):
            raise InvalidInput("low must be below infinity and high above minus infinity.")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def value(self, w: ArrayLike) -> float:
        array = weights(w)
        inside = (array >= per_row(self.low, array)) & (array <= per_row(self.high, array))
        return 0.0 if inside.all() else math.inf

    def _prox(self, w: FloatArray, step: Step) -> FloatArray:
        return np.clip(w, per_row(self.low, w), per_row(self.high, w))


@dataclass(frozen=True)
class GroupL2(Penalty):
    r"""Group lasso, :math:`\text{strength} \cdot \sum_g \sqrt{|g|} \, \|w_g\|_2`.

    A group is a set of rows of ``w``; with K outputs :math:`w_g` is the block of these rows with all its
    columns, and :math:`|g|` still counts rows.  Rows in no group are not penalised.

    Parameters
    ----------
    strength : float
    groups : tuple of tuples of int
        Disjoint, non-empty groups of row indices.

    Examples
    --------
    >>> GroupL2(1.0, ((0, 1), (2,))).value([3.0, 4.0, 1.0]) == 5.0 * 2**0.5 + 1.0
    True
    """

    groups: tuple[tuple[int, ...], ...]

    name: ClassVar[str] = "group_l2"
    smooth: ClassVar[bool] = False
    separable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            groups = tuple(tuple(group) for group in self.groups)
        except TypeError:
            raise InvalidInput(f"groups must be a tuple of index tuples, got {self.groups!r}.") from None
        groups = tuple(indices("each group", group) for group in groups)
        if not all(groups):
            raise InvalidInput("a group must not be empty.")
        if len({index for group in groups for index in group}) != sum(map(len, groups)):
            raise InvalidInput("groups must be disjoint, but an index is in two of them.")
        object.__setattr__(self, "groups", groups)

    def _check_rows(self, w: FloatArray) -> None:
        last = max((max(group) for group in self.groups), default=-1)
        if last >= len(w):
            raise InvalidInput(f"a group names weight {last} and w has only {len(w)}.")

    def value(self, w: ArrayLike) -> float:
        array = weights(w)
        self._check_rows(array)
        norms = (math.sqrt(len(group)) * float(np.linalg.norm(array[list(group)])) for group in self.groups)
        return self.strength * math.fsum(norms)

    def _prox(self, w: FloatArray, step: Step) -> FloatArray:
        self._check_rows(w)
        result = w.copy()
        for group in self.groups:
            rows = list(group)
            norm = float(np.linalg.norm(w[rows]))
            threshold = step * self.strength * math.sqrt(len(rows))
            result[rows] = w[rows] * (1.0 - threshold / norm) if norm > threshold else 0.0
        return result


@dataclass(frozen=True)
class SeparablePenalty:
    """A separable penalty as four numbers: l1 |w| + l2 w^2 / 2 for every weight, with low <= w <= high.

    For solvers that move single coordinates.
    """

    l1: float = 0.0
    l2: float = 0.0
    low: float = -math.inf
    high: float = math.inf

    @classmethod
    def of(cls, penalty: Penalty) -> SeparablePenalty:
        """Return the four numbers of a penalty; penalties that couple weights are refused."""
        if isinstance(penalty, NoPenalty):
            return cls()
        if isinstance(penalty, L1):
            return cls(l1=penalty.strength)
        if isinstance(penalty, L2):
            return cls(l2=penalty.strength)
        if isinstance(penalty, ElasticNet):
            return cls(l1=penalty.strength * penalty.l1_ratio, l2=penalty.strength * (1.0 - penalty.l1_ratio))
        if isinstance(penalty, BoxPenalty) and np.ndim(penalty.low) == np.ndim(penalty.high) == 0:
            return cls(low=float(penalty.low), high=float(penalty.high))  # type: ignore[arg-type]
        raise Unsupported(
            f"penalty {penalty.name!r} is not the same for every weight: solvers that move single coordinates accept "
            "none, l1, l2, elastic-net or one box for all weights."
        )

    @property
    def smooth(self) -> bool:
        """Whether the penalty has an l2 part only."""
        return self.l1 == 0.0 and math.isinf(self.low) and math.isinf(self.high)

    def prox_one(self, value: float, step: float) -> float:
        """:meth:`prox` of a single weight, without the cost of an array."""
        shrunk = math.copysign(max(abs(value) - step * self.l1, 0.0), value)
        return min(max(shrunk, self.low), self.high)

    def prox(self, value: FloatArray, step: FloatArray | float) -> FloatArray:
        """Prox of the l1 and box part (l2 is taken as a gradient), with one step per weight."""
        shrunk = np.sign(value) * np.maximum(np.abs(value) - np.multiply(step, self.l1), 0.0)
        clipped: FloatArray = np.clip(shrunk, self.low, self.high)
        return clipped
