"""The mathematics of a problem: losses, penalties, constraints and the objective made of them.

Nothing here holds data or adds noise, and nothing above :mod:`dperm.kernels` is imported. A new loss goes into
``losses.py``, a new penalty into ``penalties.py`` and a new constraint into ``constraints.py``; a line in the registry
below enrols it in the test suites that run over all of them.
"""

from __future__ import annotations

from dperm.objective.constraints import Box, Constraint, L1Ball, Simplex
from dperm.objective.loss_base import Loss
from dperm.objective.losses import Huber, Logistic, Multinomial, SmoothedHinge, Squared
from dperm.objective.objective import Objective
from dperm.objective.penalties import L1, L2, BoxPenalty, ElasticNet, GroupL2, NoPenalty, Penalty

__all__ = [
    "CONSTRAINTS",
    "L1",
    "L2",
    "LOSSES",
    "PENALTIES",
    "Box",
    "BoxPenalty",
    "Constraint",
    "ElasticNet",
    "GroupL2",
    "Huber",
    "L1Ball",
    "Logistic",
    "Loss",
    "Multinomial",
    "NoPenalty",
    "Objective",
    "Penalty",
    "Simplex",
    "SmoothedHinge",
    "Squared",
]

LOSSES: dict[str, type[Loss]] = {
    Logistic.name: Logistic,
    Multinomial.name: Multinomial,
    Squared.name: Squared,
    Huber.name: Huber,
    SmoothedHinge.name: SmoothedHinge,
}

PENALTIES: dict[str, type[Penalty]] = {
    NoPenalty.name: NoPenalty,
    L1.name: L1,
    L2.name: L2,
    ElasticNet.name: ElasticNet,
    BoxPenalty.name: BoxPenalty,
    GroupL2.name: GroupL2,
}

CONSTRAINTS: dict[str, type[Constraint]] = {
    L1Ball.name: L1Ball,
    Simplex.name: Simplex,
    Box.name: Box,
}
