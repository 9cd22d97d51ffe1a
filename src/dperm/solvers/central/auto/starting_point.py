"""Where the automatic rule starts: the best constant and the typical size of a slope there, both paid for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder, Query
from dperm.objective import Logistic, Loss
from dperm.privacy.accounting.calibration import CalibratedPlan, PlannedRelease
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.statistics import TargetMoment
from dperm.queries.targets import ClassCounts, TargetDeviation
from dperm.solvers.central.auto.recipes import recipe_for
from dperm.types import FloatArray

__all__ = ["BestConstant", "StartingPoint", "best_constant"]


#: how far a target's mean lies from the middle of its range, in half ranges: as if it could lie anywhere in it
_OFFSET = 0.58
#: how far a class's share lies from that of equal classes, as one would guess
_IMBALANCE = 0.15
#: how much is left of an imbalance that is below its noise: it still says which class is more likely the larger one
_FAINT = 0.1
#: smallest share of a class, in noises of a share
_LEAST = 1.0
#: most of the targets that are taken to lie on one side of the mean
_CROWD = 0.98
#: noise of a share, and of a mean in ranges, from which a plan says that the best constant itself is unsure
_UNSURE, _UNSURE_MEAN = 0.04, 0.025
#: noise of a released mean, in mean deviations, from which a fit says that predictions may miss it
_DOUBTFUL = 0.5
#: share of a class, in noises of a share, below which a fit says that it is hardly known
_RARE = 4.0
#: noise of a mean, in ranges, up to which its being next to the end of the range says something
_SURE = 0.02


@dataclass(frozen=True)
class BestConstant:
    """The best constant and what is known there.

    Attributes
    ----------
    constant : float, array or None
        None without an intercept.
    slope : float
        Typical size of a slope there.
    skew : float
        That slope over the mean one: above 1 where few targets must lie far from all others.
    curvature : float
        Second derivative of the loss there, as far as it depends on the released shares; infinite where it does not.
    noise : float
        Standard deviation of the noise of the released mean.
    unsure : float
        That of the released size of a slope, in such sizes.
    notes : tuple of str
        What the released values give to worry about.
    """

    constant: Any
    slope: float
    skew: float = 1.0
    curvature: float = math.inf
    noise: float = 0.0
    unsure: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StartingPoint:
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
            part, least = noise / (facts.target_high - facts.target_low), _UNSURE_MEAN
            known = f"the mean of the target is known to about {min(part, 0.5):.0%} of its range"
        else:
            part, least = noise, _UNSURE
            known = f"a class's share is known to about {min(part, 0.5):.0%} of the records"
        if part < least:
            return ()
        return (f"noise rules: {known}, so that the model will be shrunk towards predicting nothing and may miss it",)

    def release(self, loss: Loss, holder: DataHolder, calibrated: CalibratedPlan) -> BestConstant:
        """Release them."""
        facts = holder.facts
        best = BestConstant(None, recipe_for(loss).slope or 1.0)
        if facts.d > facts.n_features:
            release = self._mean if loss.task == "regression" else self._shares
            best = release(loss, holder, calibrated, best)
        if loss.task == "regression":
            return self._deviation(holder, calibrated, best)
        return replace(best, slope=best.slope * math.sqrt(2.0)) if loss.n_outputs > 1 else best

    @staticmethod
    def _shares(loss: Loss, holder: DataHolder, calibrated: CalibratedPlan, best: BestConstant) -> BestConstant:
        """Shares of the classes; of two, the second's is released."""
        facts, several = holder.facts, loss.n_outputs > 1
        query: Query = ClassCounts(loss.n_outputs) if several else TargetMoment()
        mechanism = GaussianNoise(calibrated.noise_multiplier(query.name))
        noise = mechanism.noise_multiplier * query.sensitivity(facts, holder.neighbours) / facts.n
        equal = 1.0 / loss.n_outputs if several else 0.5
        released = holder.release(query, mechanism) / facts.n + (0.0 if several else 0.5)
        # a class may look empty by noise alone: a share below its noise is not known, and to miss it costs most
        least = min(max(3.0 / facts.n, _LEAST * noise), 0.5 * equal)
        # the best constant of the hinge leaps to the larger side, however little larger that is
        faint = _FAINT if several or isinstance(loss, Logistic) else 0.0
        shares = np.maximum(_pulled(released, equal, noise, _IMBALANCE, faint), least)
        if several:
            logs = np.log(shares)
            shares /= shares.sum()
            curvature = float(np.mean(shares * (1.0 - shares)))
            return replace(best, constant=logs - logs.mean(), curvature=curvature, notes=_rare(shares, noise))
        share = min(float(shares[0]), 1.0 - least)
        curvature = share * (1.0 - share) if isinstance(loss, Logistic) else math.inf
        notes = _rare(np.array([share, 1.0 - share]), noise)
        return replace(best, constant=best_constant(loss, share), curvature=curvature, notes=notes)

    @staticmethod
    def _mean(loss: Loss, holder: DataHolder, calibrated: CalibratedPlan, best: BestConstant) -> BestConstant:
        """Mean of a regression's target; a note says where the target may lie outside its range."""
        facts, query = holder.facts, TargetMoment()
        mechanism = GaussianNoise(calibrated.noise_multiplier(TargetMoment.name))
        noise = mechanism.noise_multiplier * query.sensitivity(facts, holder.neighbours) / facts.n
        middle = 0.5 * (facts.target_low + facts.target_high)
        half = 0.5 * (facts.target_high - facts.target_low)
        mean = float(holder.release(query, mechanism)[0]) / facts.n + middle
        notes = []
        if noise < 2.0 * half * _SURE and abs(mean - middle) > half - 2.5 * noise:
            end = "upper" if mean > middle else "lower"
            notes.append(
                f"the mean of the target lies at the {end} end of its declared range: most of the target may lie "
                "outside, and no prediction goes there"
            )
        pulled = float(_pulled(mean, middle, noise, _OFFSET * half))
        constant = min(max(pulled, facts.target_low), facts.target_high)
        return replace(best, constant=constant, noise=noise, notes=tuple(notes))

    @staticmethod
    def _deviation(holder: DataHolder, calibrated: CalibratedPlan, best: BestConstant) -> BestConstant:
        facts = holder.facts
        query = TargetDeviation(0.0 if best.constant is None else float(best.constant))
        mechanism = GaussianNoise(calibrated.noise_multiplier(TargetDeviation.name))
        largest = query.largest(facts)
        noise = mechanism.noise_multiplier * query.sensitivity(facts, holder.neighbours) / facts.n
        mean = float(holder.release(query, mechanism)[0]) / facts.n + 0.5 * largest
        mean = min(max(mean, 0.01 * largest), largest)
        if best.constant is None:
            return replace(best, slope=mean, unsure=noise / mean)
        # Half of the mean deviation lies on either side of the mean. Targets on one side lie within the room there, so
        # they are at least this share of all, noise granted; the others then lie further away the fewer they can be.
        room = min(best.constant - facts.target_low, facts.target_high - best.constant) + 3.0 * best.noise
        crowd = min(max(0.5 * (mean - 3.0 * noise) / max(room, 1e-9 * largest), 0.0), _CROWD)
        skew = max(1.0, 0.5 / (1.0 - crowd))
        notes = best.notes
        said = bool(notes) or best.noise >= _UNSURE_MEAN * (facts.target_high - facts.target_low)
        if best.noise > _DOUBTFUL * (mean - noise) and not said:
            notes += (
                f"the noise of the target's mean ({best.noise / (facts.target_high - facts.target_low):.1%} of the "
                "declared range) is not small against the distance of targets from it, and predictions may miss it: "
                "declare a narrower range of the target",
            )
        return replace(best, slope=min(mean * skew, largest), unsure=noise / mean, skew=skew, notes=notes)


def _rare(shares: FloatArray, noise: float) -> tuple[str, ...]:
    """Say so where a class is so rare that its share, or whether it occurs at all, is hardly known."""
    few = int((shares < _RARE * noise).sum())
    if not few or noise >= _UNSURE:  # the plan said so
        return ()
    which = "a class is" if few == 1 else f"{few} classes are"
    return (
        f"{which} so rare that noise hides the share of records in it (about {min(noise, 0.5):.2%} of all are noise): "
        "probabilities of it may be several times too large or too small",
    )


def _pulled(mean: Any, towards: float, noise: float, spread: float, least: float = 0.0) -> Any:
    """Pull a noisy mean (or the shares of several classes) towards what one would guess.

    Twice: as if true ones varied by ``spread`` around the guess, which bounds what a wild draw can do, and by the
    positive-part rule of James & Stein, which leaves the guess only where the noise is exceeded. At least the share
    ``least`` of the second is left: next to nothing, but it has a side.
    """
    away = np.asarray(mean) - towards
    square = float((away * away).sum())
    exceeds = max(least, 1.0 - max(1, away.size - 1) * noise**2 / square) if square > 0.0 else 0.0
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
