"""The mean row length: a release, combined with a public guess."""

from __future__ import annotations

import math

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import DataHolder
from dperm.privacy.accounting.calibration import CalibratedPlan
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries.whitened import RowLengths
from dperm.solvers.central.auto.constants import RULE, TINY

__all__ = ["combined", "longest_guess", "released_row_length"]


def longest_guess(facts: Facts) -> float:
    """Length of a row whose columns all vary as their public spread says, at most the declared longest row."""
    return min(facts.spread * math.sqrt(facts.n_features), facts.block_bound(facts.n_features))


def combined(released: float, noise: float, longest: float) -> float:
    """Return the posterior mean of a length (or square) whose prior says that it is not far below ``longest``."""
    prior, variance = RULE.prior_length * longest, (RULE.prior_length_error * longest) ** 2
    return (released * variance + prior * noise**2) / (variance + noise**2)


def released_row_length(holder: DataHolder, calibrated: CalibratedPlan) -> float:
    """Release the mean length of the columns' part of a row; with few rows the guess counts more than the release."""
    facts = holder.facts
    longest = facts.block_bound(facts.n_features)
    mechanism = GaussianNoise(calibrated.noise_multiplier(RowLengths.name))
    released = float(holder.release(RowLengths(longest), mechanism)[0]) / facts.n + 0.5 * longest
    noise = 0.5 * longest * mechanism.noise_multiplier * holder.neighbours.records_apart / facts.n
    # a length below its noise is not known to be shorter, and no step may be infinite
    return min(max(combined(released, noise, longest_guess(facts)), noise, math.sqrt(TINY) * longest), longest)
