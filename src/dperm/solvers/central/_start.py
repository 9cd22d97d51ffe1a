"""Where the automatic rule starts: the best constant and the typical size of a slope there, both paid for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from dperm.data.facts import Facts
from dperm.data.holder import DataHolder
from dperm.data.query import Query
from dperm.objective import Logistic, Loss
from dperm.privacy.calibration import CalibratedPlan, PlannedRelease
from dperm.privacy.mechanisms import GaussianNoise
from dperm.privacy.neighbours import Neighbours
from dperm.queries.statistics import TargetMoment
from dperm.queries.targets import ClassCounts, TargetDeviation
from dperm.solvers.central._recipes import recipe_for

__all__ = ["Start", "best_constant"]

FloatArray = NDArray[np.float64]

#: how far a target's mean lies from the middle of its range, in half ranges, as one would guess
_OFFSET = 0.2
#: how far a class's share lies from that of equal classes, as one would guess
_IMBALANCE = 0.15
#: noise of a share, or of a mean in ranges, from which a plan says that the best constant itself is unsure
_UNSURE = 0.04
#: noise of a mean, in ranges, up to which its being next to the end of the range says something
_SURE = 0.02


@dataclass(frozen=True)
class Start:
    """Releases of the target's mean (with an intercept) and, for regression, of its mean deviation."""

    target_share: float
    deviation_share: float

    def releases(self, loss: Loss, facts: Facts) -> list[PlannedRelease]:
        """List what :meth:`release` will release."""
        out = []
        if facts.d > facts.n_features:
            query = TargetMoment if loss.n_outputs == 1 else ClassCounts
            ratio = query.replacement_ratio
            out.append(PlannedRelease(query.name, "gaussian", 1, self.target_share, replacement_ratio=ratio))
        if loss.task == "regression":
            out.append(PlannedRelease(TargetDeviation.name, "gaussian", 1, self.deviation_share))
        return out

    def doubts(self, loss: Loss, facts: Facts, calibrated: CalibratedPlan, neighbours: Neighbours) -> tuple[str, ...]:
        """Say so where the best constant itself drowns in noise, from public numbers."""
        if facts.d == facts.n_features:
            return ()
        query: Query = TargetMoment() if loss.n_outputs == 1 else ClassCounts(loss.n_outputs)
        noise = calibrated.noise_multiplier(query.name) * query.sensitivity(facts, neighbours) / facts.n
        if loss.task == "regression":
            part = noise / (facts.target_high - facts.target_low)
            known = f"the mean of the target is known to about {min(part, 0.5):.0%} of its range"
        else:
            part = noise
            known = f"a class's share is known to about {min(part, 0.5):.0%} of the records"
        if part < _UNSURE:
            return ()
        return (f"noise rules: {known}, so that the model will be shrunk towards predicting nothing and may miss it",)

    def release(self, loss: Loss, holder: DataHolder, calibrated: CalibratedPlan) -> tuple[Any, float, tuple[str, ...]]:
        """Return the best constant (None without an intercept), the typical size of a slope there, and notes.

        Notes say, from the released mean alone, that a target may lie outside its range.
        """
        facts, constant, notes = holder.facts, None, list[str]()
        if facts.d > facts.n_features and loss.n_outputs > 1:
            constant = self._shares(loss, holder, calibrated)
        elif facts.d > facts.n_features:
            constant = self._mean(loss, holder, calibrated, notes)
        typical = recipe_for(loss).slope
        if typical is None:
            query = TargetDeviation(0.0 if constant is None else float(constant))
            mechanism = GaussianNoise(calibrated.noise_multiplier(TargetDeviation.name))
            largest = query.largest(facts)
            mean = float(holder.release(query, mechanism)[0]) / facts.n + 0.5 * largest
            typical = min(max(mean, 0.01 * largest), largest)
        return constant, typical * math.sqrt(2.0 if loss.n_outputs > 1 else 1.0), tuple(notes)

    @staticmethod
    def _shares(loss: Loss, holder: DataHolder, calibrated: CalibratedPlan) -> FloatArray:
        facts, query = holder.facts, ClassCounts(loss.n_outputs)
        mechanism = GaussianNoise(calibrated.noise_multiplier(ClassCounts.name))
        noise = mechanism.noise_multiplier * query.sensitivity(facts, holder.neighbours) / facts.n
        shares = _pulled(holder.release(query, mechanism) / facts.n, 1.0 / loss.n_outputs, noise, _IMBALANCE)
        logs: FloatArray = np.log(np.clip(shares, 3.0 / facts.n, None))
        return logs - logs.mean()

    @staticmethod
    def _mean(loss: Loss, holder: DataHolder, calibrated: CalibratedPlan, notes: list[str]) -> float:
        facts, query = holder.facts, TargetMoment()
        mechanism = GaussianNoise(calibrated.noise_multiplier(TargetMoment.name))
        noise = mechanism.noise_multiplier * query.sensitivity(facts, holder.neighbours) / facts.n
        middle = 0.5 * (facts.target_low + facts.target_high)
        half = 0.5 * (facts.target_high - facts.target_low)
        mean = float(holder.release(query, mechanism)[0]) / facts.n + middle
        if loss.task == "regression":
            if noise < 2.0 * half * _SURE and abs(mean - middle) > half - 2.0 * noise:
                end = "upper" if mean > middle else "lower"
                notes.append(
                    f"the mean of the target lies at the {end} end of its declared range: most of the target may lie "
                    "outside, and no prediction goes there"
                )
            pulled = float(_pulled(mean, middle, noise, _OFFSET * half))
            return min(max(pulled, facts.target_low), facts.target_high)
        edge = min(0.25, 3.0 / facts.n)
        return best_constant(loss, min(max(float(_pulled(mean, 0.5, noise, _IMBALANCE)), edge), 1.0 - edge))


def _pulled(mean: Any, towards: float, noise: float, spread: float) -> Any:
    """Pull a noisy mean (or the shares of several classes) towards what one would guess.

    Twice: as if true ones varied by ``spread`` around the guess, which bounds what a wild draw can do, and by the
    positive-part rule of James & Stein, which leaves the guess only where the noise is exceeded.
    """
    away = np.asarray(mean) - towards
    square = float((away * away).sum())
    exceeds = max(0.0, 1.0 - max(1, away.size - 1) * noise**2 / square) if square > 0.0 else 0.0
    return towards + away * (exceeds * spread**2 / (spread**2 + noise**2))


def best_constant(loss: Loss, mean: float) -> float:
    """Prediction that minimises the loss where a share ``mean`` of the labels is 1.

    >>> round(best_constant(Logistic(), 0.75), 3)
    1.099
    """
    if isinstance(loss, Logistic):
        return math.log(mean / (1.0 - mean))

    def cost(z: float) -> float:
        values = loss.value(np.array([z, z]), np.array([0.0, 1.0]))
        return float((1.0 - mean) * values[0] + mean * values[1])

    return float(minimize_scalar(cost, bounds=(-10.0, 10.0), method="bounded").x)
