"""The objective: mean loss plus penalty, over a constraint set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from dperm.errors import InvalidInput, Unsupported
from dperm.objective.constraints import Constraint
from dperm.objective.loss_base import Loss
from dperm.objective.penalties import L2, NoPenalty, Penalty
from dperm.objective.weight_checks import Step, step_length, weights
from dperm.types import BoolArray, FloatArray
from dperm.validation import indices


@dataclass(frozen=True)
class Objective:
    r"""What a solver minimises.

    .. math:: F(w) = \frac1n \sum_{i=1}^n \ell(x_i^\top w, y_i) + \text{strength} \cdot \text{penalty}(w_P)
       \qquad \text{subject to } w_P \in \text{constraint}

    where :math:`P` are the rows of ``w`` that are not listed in ``unpenalised``.  Penalty and constraint see
    :math:`w_P` only, in its order: groups of ``GroupL2`` and bounds per row count the rows that are left.

    A gradient method steps along ``gradient + penalty_gradient``; a proximal method steps along ``gradient``
    and then applies ``prox``.  Doing both would count the penalty twice.

    Parameters
    ----------
    loss : Loss
    penalty : Penalty
    constraint : Constraint, optional
    unpenalised : tuple of int
        Rows of ``w`` that neither penalty nor constraint touches, such as that of an intercept (a column of
        ones).

    Examples
    --------
    >>> from dperm.objective import L1, Squared
    >>> objective = Objective(Squared(), L1(0.5), unpenalised=(1,))
    >>> objective.value([[1.0, 1.0], [3.0, 1.0]], [2.0, 4.0], [1.0, 1.0])
    0.5
    >>> objective.prox([2.0, 2.0], 1.0)
    array([1.5, 2. ])
    """

    loss: Loss
    penalty: Penalty = field(default_factory=NoPenalty)
    constraint: Constraint | None = None
    unpenalised: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Loss):
            raise InvalidInput(f"loss must be a Loss, got {type(self.loss).__name__}.")
        if not isinstance(self.penalty, Penalty):
            raise InvalidInput(f"penalty must be a Penalty, got {type(self.penalty).__name__}.")
        if self.constraint is not None and not isinstance(self.constraint, Constraint):
            raise InvalidInput(f"constraint must be a Constraint or None, got {type(self.constraint).__name__}.")
        object.__setattr__(self, "unpenalised", indices("unpenalised", self.unpenalised))

    def value(self, X: Any, y: ArrayLike, w: ArrayLike) -> float:
        """Return mean loss plus penalty.

        The value is **not private**: it is for tests and reference computations on plain arrays.  The
        constraint is not part of it; use ``constraint.contains``.

        Parameters
        ----------
        X : dense array or scipy sparse matrix of shape (n, d)
        y : array of shape (n,)
        w : array of shape (d,), or (d, K) for a loss with K outputs
        """
        matrix, array = self._design(X, w)
        mask = self._penalised(array)
        penalty = self.penalty.value(array[mask]) if mask.any() else 0.0
        return float(np.mean(self.loss.value(matrix @ array, y))) + penalty

    def gradient(self, X: Any, y: ArrayLike, w: ArrayLike) -> FloatArray:
        r"""Return the gradient of the mean loss **without** the penalty.

        It is :math:`\frac1n X^\top \text{slope}(X w, y)`.  Like ``value`` it is not private, and it takes the same
        arguments.
        """
        matrix, array = self._design(X, w)
        result: FloatArray = np.asarray(matrix.T @ self.loss.slope(matrix @ array, y)) / matrix.shape[0]
        return result

    def penalty_gradient(self, w: ArrayLike) -> FloatArray:
        """Return the gradient of a smooth penalty, 0 for unpenalised rows; others raise ``Unsupported``."""
        return self._on_penalised(weights(w), self.penalty.gradient, start=0.0)

    def prox(self, w: ArrayLike, step: Step) -> FloatArray:
        r"""Return the proximal point of penalty and constraint.

        .. math:: \arg\min_u \tfrac12 \|u - w\|^2 + \text{step} \cdot \text{strength} \cdot \text{penalty}(u_P)
           \quad \text{subject to } u_P \in \text{constraint}

        With both a penalty and a constraint this is "prox, then project" where that is exact: for no penalty
        or ``L2`` (a prox that only rescales) with any constraint, and for a separable penalty with a
        separable constraint.  Other pairs raise ``Unsupported``.

        Parameters
        ----------
        w : array of shape (d,) or (d, K)
        step : float, or array of the shape of ``w`` if penalty and constraint are separable
        """
        array = weights(w)
        constraint = self.constraint
        separable = self.penalty.separable and (constraint is None or constraint.separable)
        if not (constraint is None or separable or isinstance(self.penalty, NoPenalty | L2)):
            raise Unsupported(
                f"the penalty {self.penalty.name!r} with the constraint {constraint.name!r} has no exact"
                " prox: use only one of the two."
            )
        length = step_length(step, array, per_weight=separable)

        def inner(part: FloatArray) -> FloatArray:
            own = length[self._penalised(array)] if isinstance(length, np.ndarray) else length
            moved = self.penalty.prox(part, own)
            return moved if constraint is None else constraint.project(moved)

        return self._on_penalised(array, inner)

    def _design(self, X: Any, w: ArrayLike) -> tuple[Any, FloatArray]:
        """Check that the shapes of data and weights fit the loss; the values of the data are not checked."""
        matrix = X if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
        array = weights(w)
        if matrix.ndim != 2 or matrix.shape[0] == 0:
            raise InvalidInput(f"X must have shape (n, d) with n of 1 or more, got shape {matrix.shape}.")
        outputs = self.loss.n_outputs
        expected = (matrix.shape[1],) if outputs == 1 else (matrix.shape[1], outputs)
        if array.shape != expected:
            raise InvalidInput(f"w must have shape {expected}, got shape {array.shape}.")
        return matrix, array

    def _penalised(self, w: FloatArray) -> BoolArray:
        """Mask of the rows that penalty and constraint apply to."""
        if self.unpenalised and max(self.unpenalised) >= len(w):
            raise InvalidInput(f"unpenalised names weight {max(self.unpenalised)} and w has only {len(w)}.")
        mask = np.ones(len(w), dtype=np.bool_)
        mask[list(self.unpenalised)] = False
        return mask

    def _on_penalised(
        self, w: FloatArray, function: Callable[[FloatArray], FloatArray], start: float | None = None
    ) -> FloatArray:
        """Apply ``function`` to the penalised rows; the others keep ``w``, or get ``start``."""
        result = w.copy() if start is None else np.full_like(w, start)
        mask = self._penalised(w)
        if mask.any():
            result[mask] = function(w[mask])
        return result
