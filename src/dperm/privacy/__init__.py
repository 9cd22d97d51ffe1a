"""The privacy core, usable alone: events, composition, calibration, noise, selection and the ledger.

>>> from dperm.privacy import Budget, Plan, PlannedRelease, calibrate
>>> plan = calibrate(Plan((PlannedRelease("counts", "gaussian", 10),)), Budget(1.0, 1e-6))
>>> round(plan.noise_multiplier("counts"), 1)
13.4
"""

from dperm.privacy.budget import Budget, default_delta
from dperm.privacy.calibration import CalibratedPlan, Plan, PlannedRelease, calibrate
from dperm.privacy.composition import EpsilonBound, leaves
from dperm.privacy.events import (
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
from dperm.privacy.guarantee import Accounting, Guarantee
from dperm.privacy.ledger import Cap, Ledger, ReleaseRecord, Reservation, Spent
from dperm.privacy.mechanisms import GaussianNoise, LaplaceNoise, Mechanism, NoisyMax
from dperm.privacy.neighbours import Neighbours
from dperm.privacy.randomness import RandomSource
from dperm.privacy.report import PrivacyReport
from dperm.privacy.scope import Scope
from dperm.privacy.selection import TwoLevelRace

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
    "PrivacyReport",
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
