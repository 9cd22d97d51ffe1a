"""How many weights of a fit are not zero, and a note where a penalty should have removed most of them but did not."""

from __future__ import annotations

import numpy as np

from dperm.estimators.central.request import PreparedFit
from dperm.objective import L1, ElasticNet
from dperm.objective.penalties import SeparablePenalty
from dperm.types import FloatArray

__all__ = ["dense_notes", "nonzero_weights"]

#: these choose few columns, or remove weights below their noise; the others add noise to every weight
_KEEP_FEW = ("frank-wolfe", "greedy", "peel", "pursuit", "wide")
#: with fewer weights all of them may matter
_MANY = 50
#: share of weights that are not zero from which a result is not sparse at all
_DENSE = 0.9


def nonzero_weights(weights: FloatArray) -> tuple[int, int]:
    """Return how many weights of columns are not zero, and how many there are."""
    return int(np.count_nonzero(weights)), int(np.size(weights))


def dense_notes(prepared: PreparedFit, weights: FloatArray) -> tuple[str, ...]:
    """Say where an l1 penalty left nearly every weight because the method adds noise to all of them."""
    objective, (nonzero, total) = prepared.request.objective, nonzero_weights(weights)
    penalty = objective.penalty
    sparse = isinstance(penalty, L1 | ElasticNet) and SeparablePenalty.of(penalty).l1 > 0.0
    if not sparse or prepared.solver.name in _KEEP_FEW or total < _MANY or nonzero < _DENSE * total:
        return ()
    which = "solver='pursuit' or solver='wide'"
    if objective.loss.n_outputs > 1:
        which += ", which take two classes or multi_class='ovr'"
    name = penalty.name.replace("_", "-")
    return (
        f"{nonzero:,} of {total:,} weights are not zero although the penalty is {name}: this method adds noise to all "
        "of them, and the penalty removes only what is smaller than its strength. For few weights use a larger "
        f"strength, or {which}",
    )
