"""How far a query's value moves between neighbours, in units of its declared sensitivity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dperm.data.design.facts import Facts
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.sampled_noise import Summands
from dperm.privacy.recording import RecordedRelease
from dperm.queries.perturbed import PeopleObjective
from dperm.testing._violation import demand
from dperm.types import FloatArray

__all__ = ["NORMS", "change_over_sensitivity", "gradient_change"]

NORMS: dict[str, Callable[[Any], float]] = {
    "l1": lambda v: float(np.abs(v).sum()),
    "l2": lambda v: float(np.sqrt(np.sum(np.square(v)))),
    "linf": lambda v: float(np.abs(v).max()),
    "coordinatewise": lambda v: float(np.abs(v).max()),
}


def change_over_sensitivity(
    before: RecordedRelease, now: RecordedRelease, person: int, neighbours: Neighbours, slack: float = 0.0
) -> float:
    """Return the change of a release's value over what its sensitivity allows, after one person was replaced.

    Under zero-out the sensitivity bounds the step to a table without the person. A replacement is two such steps, so
    it may change the value by the query's ``replacement_ratio`` times as much; of sums over a sample the person's own
    summand is compared, which is the step itself. ``slack`` is taken off the change: rounding of recovered scores.
    """
    one, two = before.value, now.value
    if isinstance(one, Summands):
        return _summand(before, one, two, person)
    steps = 1.0
    if neighbours is Neighbours.ZERO_OUT:
        steps = float(getattr(before.asked, "replacement_ratio", 2.0))
    allowed = before.sensitivity * steps
    if isinstance(one, PeopleObjective):
        return _objective(before, one, two) / allowed
    one, two = np.asarray(one, np.float64), np.asarray(two, np.float64)
    demand(one.shape == two.shape, f"the value of {before.query!r} has another shape on neighbouring data.")
    for value in (one, two):
        inside = bool(np.isfinite(value).all()) and float(np.abs(value).max(initial=0.0)) <= before.bound + slack
        demand(inside, f"the value of {before.query!r} exceeds its public bound.")
    return max(NORMS[before.norm](one - two) - slack, 0.0) / allowed


def _summand(before: RecordedRelease, one: Summands, two: Any, person: int) -> float:
    """Return the longer of the person's two summands over the sensitivity; nobody else's may change."""
    demand(one.n_people == two.n_people, f"{before.query!r} has another number of people on neighbouring data.")
    own = np.arange(one.n_people) == person
    same = np.array_equal(one.total(~own), two.total(~own))
    demand(same, f"replacing one person changes the part of other people in {before.query!r}.")
    return max(NORMS[before.norm](value.total(own)) for value in (one, two)) / before.sensitivity


def _objective(before: RecordedRelease, one: PeopleObjective, two: Any) -> float:
    """Return the largest change of the gradient at a few points."""
    rng = np.random.default_rng(0)
    points = [np.zeros(one.size), np.asarray(before.output, np.float64)]
    points += [scale * rng.normal(size=one.size) for scale in (1.0, 1e3)]
    largest = 0.0
    for weights in points:
        largest = max(largest, gradient_change(before.asked, before.facts, one, two, weights))
    return largest


def gradient_change(query: Any, facts: Facts, one: PeopleObjective, two: PeopleObjective, weights: FloatArray) -> float:
    """Return how far two objectives' gradients are apart at ``weights``, less the rounding of computed gradients."""
    rounding: float = 2.0 * query.rounding(facts, float(np.linalg.norm(weights)), 0.0)
    return NORMS[query.norm](one.gradient(weights) - two.gradient(weights)) - rounding
