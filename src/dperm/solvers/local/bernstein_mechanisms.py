"""The algorithms of Wang, Gaboardi and Xu (2018) for smooth losses of few parameters, with exact privacy.

They serve to compare the published methods on equal terms; the moment sketch needs far fewer people. The numbers of
people that the paper's theorems ask for are in :mod:`dperm.solvers.theory.local_rates`. Proof:
``bernstein_mechanisms.proof.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dperm.errors import InvalidInput
from dperm.privacy.local.one_bit import OneBit
from dperm.privacy.local.public_noise_bit import PublicNoiseBit
from dperm.privacy.mechanisms.lattice import Lattice
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local.bernstein import GRID_PARAMETERS, BernsteinPolynomial, Minimum
from dperm.types import FloatArray, IntArray
from dperm.validation import is_whole

__all__ = [
    "BernsteinMechanism",
    "OneBitBernsteinMechanism",
    "average",
    "average_of_coordinates",
]

_MOST_NODES = 65_536  # bounds memory and the time of a fit

#: a loss in [0, 1]: takes one parameter vector and one record per row, returns one number per row
RowLoss = Callable[[FloatArray, Any], FloatArray]


def average(values: ArrayLike, bound: float, epsilon: float, source: RandomSource) -> float:
    """Mean of values in [0, bound], one per person, each with the person's own Laplace noise of scale bound / epsilon.

    Algorithm 1. Every person's noisy value is epsilon-DP (``privacy/mechanisms/lattice.proof.md``, with the person's
    own value as the query) and may be seen by everyone; the mean has variance 2 (bound / epsilon)^2 / n, a little
    more for the lattice.
    """
    checked = np.asarray(values, np.float64)
    if checked.ndim != 1 or checked.size == 0 or not 0.0 < epsilon < math.inf or not 0.0 < bound < math.inf:
        raise InvalidInput("an average needs one value per person, and a positive finite bound and epsilon.")
    inside = np.fmin(np.fmax(checked, 0.0), bound) - bound / 2.0
    lattice = Lattice.design(bound, 1.0 / epsilon, 1, bound / 2.0, "laplace")
    # at least two entries, so that every entry takes the same code path
    noisy = lattice.release(np.append(inside, 0.0), source)[:-1]
    return float(noisy.mean()) + bound / 2.0


def average_of_coordinates(values: ArrayLike, bound: float, epsilon: float, source: RandomSource) -> FloatArray:
    """Mean of vectors in [0, bound]^p; each person reports one bit of one coordinate drawn at random (Lemma 2).

    The index of the coordinate does not depend on the vector; the bit is epsilon-DP
    (``privacy/local/one_bit.proof.md``).
    """
    checked = np.asarray(values, np.float64)
    if checked.ndim != 2 or checked.size == 0:
        raise InvalidInput("an average of coordinates needs one vector per person.")
    n, p = checked.shape
    bit = OneBit(epsilon)
    drawn = _draw_cells(n, p, source)
    reports = bit.report(checked[np.arange(n), drawn], source, 0.0, bound)
    asked = np.maximum(np.bincount(drawn, minlength=p), 1)
    return bit.decode(np.bincount(drawn, weights=reports, minlength=p) / asked, 0.0, bound)


@dataclass(frozen=True)
class BernsteinMechanism:
    """Algorithm 2: every person reports the loss at every node of a grid, with Laplace noise.

    Guarantee
    ---------
    Released, to everyone: (k + 1)^p noisy losses per person, each epsilon / (k + 1)^p-DP, together epsilon-DP for the
    person against any other record. Assumes one report per person.

    Parameters
    ----------
    epsilon : float
        Epsilon of a person's whole report.
    n_parameters : int
        Number p of parameters in [0, 1]; the grid may have at most 65,536 nodes.
    k : int
        Nodes are multiples of 1 / k.
    order : int
        Order h of the iterated Bernstein operator.
    """

    epsilon: float
    n_parameters: int
    k: int
    order: int = 2

    def __post_init__(self) -> None:
        OneBit(self.epsilon)  # refuses an epsilon outside the range of the local model
        whole = all(is_whole(number) for number in (self.n_parameters, self.k, self.order))
        if not whole or min(self.n_parameters, self.k, self.order) < 1:
            raise InvalidInput("a Bernstein mechanism needs n_parameters, k and order of 1 or more, all whole numbers.")
        # logarithms, because the power itself may be too large to compute
        if self.n_parameters * math.log2(self.k + 1) > math.log2(_MOST_NODES):
            raise InvalidInput(
                f"(k + 1)^n_parameters must be at most {_MOST_NODES}: at every node somebody must be asked."
            )

    @property
    def nodes(self) -> FloatArray:
        """The grid, shape ((k + 1)^p, p)."""
        axis = np.arange(self.k + 1) / self.k
        grid = np.meshgrid(*[axis] * self.n_parameters, indexing="ij")
        return np.stack(grid, axis=-1).reshape(-1, self.n_parameters)

    def values(self, loss: RowLoss, records: Any, source: RandomSource) -> FloatArray:
        """Return the estimated mean loss at every node."""
        nodes, n = self.nodes, len(records)
        share = self.epsilon / len(nodes) * (1.0 - 2.0**-40)  # rounding must not make the shares exceed epsilon
        return np.array(
            [average(loss(np.broadcast_to(node, (n, len(node))), records), 1.0, share, source) for node in nodes]
        )

    def fit(self, loss: RowLoss, records: Any, source: RandomSource) -> Minimum:
        """Return the minimiser of the polynomial through the estimated mean losses.

        Up to three parameters it is found by a grid search. For more, the loss must be convex with a Lipschitz constant
        of 1 on the cube. The search then takes a fixed number of steps (Theorems 5 and 6).
        """
        shape = (self.k + 1,) * self.n_parameters
        values = self.values(loss, records, source).reshape(shape)
        polynomial = BernsteinPolynomial.of_values(values, self.order)
        if self.n_parameters <= GRID_PARAMETERS:
            return polynomial.minimise()
        return polynomial.minimise_nearly_convex(self.deviation(len(records)))

    def deviation(self, n: int, failure: float = 0.05) -> float:
        """Bound, about, on what noise adds to the polynomial anywhere, wrong with probability ``failure``.

        A polynomial of order h lies within 2^h - 1 times the largest of its values at the nodes. The error of the
        polynomial without noise is not included.
        """
        n_nodes = (self.k + 1) ** self.n_parameters
        tail = math.sqrt(2.0 * math.log(2.0 * n_nodes / failure))
        return (2.0**self.order - 1.0) * self._node_deviation(n, n_nodes) * tail

    def _node_deviation(self, n: int, n_nodes: int) -> float:
        """Standard deviation of the value at a node."""
        return math.sqrt(2.0 / n) * n_nodes / self.epsilon


@dataclass(frozen=True)
class OneBitBernsteinMechanism(BernsteinMechanism):
    """Algorithm 3, repaired: every person reports one bit about the loss at one node, using public noise.

    Guarantee
    ---------
    Released, to everyone: a node and a number, both independent of the record, and one bit per person, epsilon-DP for
    the person (``privacy/local/public_noise_bit.proof.md``). Assumes one report per person. ``repair="printed"`` is
    refused.
    """

    repair: str = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        PublicNoiseBit(self.epsilon, self.repair)

    def values(self, loss: RowLoss, records: Any, source: RandomSource) -> FloatArray:
        nodes, n, mechanism = self.nodes, len(records), PublicNoiseBit(self.epsilon, self.repair)
        drawn = _draw_cells(n, len(nodes), source)
        y = mechanism.public_noise(n, source)
        decoded = mechanism.decode(mechanism.report(loss(nodes[drawn], records), y, source), y)
        asked = np.maximum(np.bincount(drawn, minlength=len(nodes)), 1)
        return np.bincount(drawn, weights=decoded, minlength=len(nodes)) / asked

    def _node_deviation(self, n: int, n_nodes: int) -> float:
        return math.sqrt(PublicNoiseBit(self.epsilon, self.repair).variance(1.0) * n_nodes / n)


def _draw_cells(n: int, size: int, source: RandomSource) -> IntArray:
    """Draw one of ``size`` cells for every person, independently of their records."""
    cells: IntArray = ((source.words(n) >> np.uint64(32)) * np.uint64(size) >> np.uint64(32)).astype(np.int64)
    return cells
