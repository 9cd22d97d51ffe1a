"""Algorithm 4 of Wang, Gaboardi and Xu (2018) for generalised linear losses: as printed, and with a guarantee.

People project their features to m columns; the loss f(<v, Phi y>, z) is estimated at every point v of a net of the
projected constraint set; the best v is lifted back. The paper runs "a modified version" of an algorithm of Smith,
Thakurta and Upadhyay (2017) in the small space and describes it in a supplement that its text does not contain; here it
is the exhaustive search of their Claim 4, the row of Table 1 that needs nothing but a Lipschitz loss. Proof:
``projected_net.proof.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np

from dperm.errors import InvalidData, InvalidInput
from dperm.privacy.local.one_bit import OneBit
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local.projected import Projection, least_l1
from dperm.solvers.local.task import Counts, Task
from dperm.solvers.local.theta_grid import MARGIN_LOSSES, ThetaGrid
from dperm.types import FloatArray
from dperm.validation import whole

__all__ = ["PrintedProjection", "ProjectedNet"]

_MOST_NODES = 100_000  # bounds the size of a task
_LEAST_RADIUS, _LARGEST_RADIUS = 1e-6, 1e6  # outside these losses at the net lose precision or overflow
_SLACK = 1e-9  # rows that were divided by their length are longer than 1 by rounding errors only


@dataclass(frozen=True)
class _NetOfProjection(Projection):
    """The net: ``n_levels`` values of every projected weight, evenly over the range that the l1 ball can have."""

    loss: str = "logistic"
    n_levels: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        OneBit(self.epsilon)  # refuses an epsilon outside the range of the local model
        whole("n_levels", self.n_levels, 2)
        if not _LEAST_RADIUS <= self.l1_radius <= _LARGEST_RADIUS:
            raise InvalidInput(
                f"l1_radius must lie in [{_LEAST_RADIUS:g}, {_LARGEST_RADIUS:g}], not {self.l1_radius!r}."
            )
        if self.loss not in MARGIN_LOSSES:
            raise InvalidInput(f"loss must be one of {', '.join(MARGIN_LOSSES)}, not {self.loss!r}.")
        if len(self.signs) * math.log(self.n_levels) > math.log(_MOST_NODES):
            raise InvalidInput(
                f"a net of {self.n_levels}^{len(self.signs)} points is too large: take fewer rows of signs or levels."
            )

    @cached_property
    def nodes(self) -> FloatArray:
        """All points of the net but 0, where every person has the same loss."""
        m = len(self.signs)
        # entries of the matrix are 1/sqrt(m), so this is how large a projected weight can be
        levels = np.linspace(-1.0, 1.0, self.n_levels)
        points = np.array(list(product(levels.tolist(), repeat=m)))
        points = points[np.abs(points).max(axis=1) > 1e-12]  # the middle level is 0 up to rounding
        return np.asarray(points * self.l1_radius / math.sqrt(m))

    def _value(self, margin: FloatArray) -> FloatArray:
        return MARGIN_LOSSES[self.loss](margin)

    def lifted(self, means: FloatArray) -> FloatArray:
        """Return weights whose projection is the point with the least mean loss; 0 competes with its public loss."""
        best = int(np.argmin(means))
        if means[best] >= float(self._value(np.zeros(1))[0]):
            return np.zeros(self.matrix.shape[1])
        return least_l1(self.matrix, self.nodes[best], self.l1_radius)


@dataclass(frozen=True)
class ProjectedNet(_NetOfProjection):
    """Experimental: Algorithm 4 with a report that keeps its epsilon; one bit per person.

    Guarantee
    ---------
    That of its :class:`~dperm.solvers.local.Task`: one index and one bit per person, epsilon-DP. The person scales the
    projected features down to the unit ball, and the bit clips the loss to its range there.

    Parameters
    ----------
    epsilon, signs, l1_radius :
        As for :class:`~dperm.solvers.local.projected.Projection`.
    loss : {"logistic", "smoothed-hinge"}
        A convex loss of the margin, 1-Lipschitz.
    n_levels : int
        Points of the net along every projected column.
    """

    @cached_property
    def task(self) -> Task:
        """The task that people answer, after the projection."""
        sketch = ThetaGrid(tuple(tuple(node) for node in self.nodes.tolist()), self.loss)
        return Task("projected net", self.epsilon, sketch, inputs=self.inputs)

    def records(self, features: Any, labels: Any) -> FloatArray:
        """Return the records that people compute: the label, -1 or 1, times the projected features."""
        projected, y = self._projected(features, labels)
        return projected * y[:, None]

    def estimate(self, counts: Counts) -> FloatArray:
        """Return the weights, computed from counts alone."""
        return self.lifted(self.task.means(counts)[0])


@dataclass(frozen=True)
class PrintedProjection(_NetOfProjection):
    """Algorithm 4 as printed, for comparison only: the noise is set as if projected rows were no longer than rows.

    A person with |y| <= 1 adds Laplace noise to f(<v, Phi y>, z) at one net point v, of the scale that margins up to
    |v| need. Phi y can be longer: margins reach |Phi' v|. :attr:`certified_epsilon` is what the noise gives.

    Parameters
    ----------
    epsilon, signs, l1_radius, loss, n_levels :
        As for :class:`ProjectedNet`; ``epsilon`` is the printed one.
    """

    #: there is none
    guarantee: ClassVar[None] = None
    reason: ClassVar[str] = (
        "the printed algorithm does not bound the length of a projected row, so its noise is too small for some pairs "
        "of people"
    )

    @cached_property
    def _ranges(self) -> FloatArray:
        """Range of the loss at every point, as the paper takes it."""
        lengths = np.linalg.norm(self.nodes, axis=1)
        return self._value(-lengths) - self._value(lengths)

    @property
    def certified_epsilon(self) -> float:
        """Largest privacy loss of a report over pairs of people with rows in the unit ball, for this matrix.

        The largest margin of a row in the unit ball at v is |Phi' v|, and both labels have it. Floating-point noise is
        not covered.
        """
        reach = np.linalg.norm(self.nodes @ self.matrix, axis=1)
        return float(self.epsilon * ((self._value(-reach) - self._value(reach)) / self._ranges).max())

    @staticmethod
    def _require_covered(features: Any, labels: FloatArray) -> None:
        """Refuse people whom :attr:`certified_epsilon` does not cover."""
        with np.errstate(all="ignore"):
            inside = np.linalg.norm(np.asarray(features, np.float64), axis=1) <= 1.0 + _SLACK  # false for NaN
        if not (inside.all() and (np.abs(labels) == 1.0).all()):
            raise InvalidData("rows must be numbers within the unit ball and labels -1 or 1: scale or clip them first.")

    def fit(self, features: Any, labels: Any, source: RandomSource) -> FloatArray:
        """Simulate the people and return the weights."""
        projected, y = self._projected(features, labels)
        self._require_covered(features, y)
        n, n_nodes = len(y), len(self.nodes)
        words = source.words(2 * n)
        asked = ((words[:n] >> np.uint64(32)) * np.uint64(n_nodes) >> np.uint64(32)).astype(np.int64)
        margins = np.einsum("ij,ij->i", projected, self.nodes[asked]) * y
        uniform = ((words[n:] >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        noise = np.where(words[n:] & np.uint64(1), 1.0, -1.0) * -np.log(uniform) * self._ranges[asked] / self.epsilon
        totals = np.bincount(asked, weights=self._value(margins) + noise, minlength=n_nodes)
        people = np.bincount(asked, minlength=n_nodes)
        means = np.where(people > 0, totals / np.maximum(people, 1), np.inf)
        return self.lifted(means)
