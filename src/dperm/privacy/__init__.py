"""The privacy core, usable alone: accounting, mechanisms, local reports, the ledger and the random source.

It imports no other part of dperm apart from kernels, shared helpers and errors. ``accounting`` and ``randomness`` are
the basis; ``mechanisms``, ``local`` and ``ledger`` use them and not one another. Each of them says where a new thing of
its kind goes.

>>> from dperm.privacy import Budget, Plan, PlannedRelease, calibrate
>>> plan = calibrate(Plan((PlannedRelease("counts", "gaussian", 10),)), Budget(1.0, 1e-6))
>>> round(plan.noise_multiplier("counts"), 1)
13.4
"""

from dperm.privacy.accounting.budget import Budget, default_delta
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, PlannedRelease, calibrate
from dperm.privacy.accounting.composition import EpsilonBound, leaves
from dperm.privacy.accounting.events import (
    ZCDP,
    ApproximateDP,
    Composed,
    Event,
    Gaussian,
    Laplace,
    ObjectivePerturbation,
    OneOf,
    PoissonGaussian,
    RandomizedResponse,
    Repeat,
    RepeatAndSelect,
    Selection,
    Unbounded,
)
from dperm.privacy.accounting.guarantee import Accounting, Guarantee
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Cap, Ledger, ReleaseRecord, Reservation, Spent
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.selection import TwoLevelRace
from dperm.privacy.mechanisms.standard import GaussianNoise, LaplaceNoise, Mechanism, NoisyMax
from dperm.privacy.randomness import RandomSource

__all__ = [
    "ZCDP",
    "Accounting",
    "ApproximateDP",
    "Budget",
    "CalibratedPlan",
    "Cap",
    "Composed",
    "EpsilonBound",
    "Event",
    "Gaussian",
    "GaussianNoise",
    "Guarantee",
    "Laplace",
    "LaplaceNoise",
    "Ledger",
    "Mechanism",
    "Neighbours",
    "NoisyMax",
    "ObjectivePerturbation",
    "OneOf",
    "Plan",
    "PlannedRelease",
    "PoissonGaussian",
    "RandomSource",
    "RandomizedResponse",
    "ReleaseRecord",
    "Repeat",
    "RepeatAndSelect",
    "Reservation",
    "Scope",
    "Selection",
    "Spent",
    "TwoLevelRace",
    "Unbounded",
    "calibrate",
    "default_delta",
    "leaves",
]
