"""Check of declared sensitivities on real neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.holding.holder import Query
from dperm.errors import Unsupported
from dperm.objective import Multinomial
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.sampled_noise import Summands
from dperm.queries.perturbed import PeopleObjective
from dperm.queries.sharing import PartyQuery
from dperm.queries.transcript import LabelQuery
from dperm.testing._violation import demand
from dperm.testing.data import Layout, as_labels, as_party, design_pairs, layouts, table_pairs
from dperm.testing.distance import NORMS, gradient_change

__all__ = ["check_query"]


def check_query(
    make: Callable[[Any, Facts], list[Query]],
    *,
    raw: bool = False,
    n_random: int = 3,
    seed: int = 0,
    tight: float = 0.6,
    shapes: Sequence[Layout] | None = None,
) -> float:
    """Check queries made by ``make(rng, facts)`` on random and worst-case neighbours under both relations.

    Also checks the public bound, the size, and that some pair reaches ``tight`` times the declared sensitivity: with
    harmless pairs only, the check could not fail.

    Parameters
    ----------
    make : callable
        Returns query instances for public facts.
    raw : bool
        Whether the queries run on raw tables instead of designs.
    shapes : sequence of Layout, optional
        Shapes of the designs; by default one of every kind.

    Returns
    -------
    float
        Largest observed change divided by the declared sensitivity.
    """
    rng = np.random.default_rng(seed)
    closest: dict[Neighbours, float] = {}
    for neighbours in Neighbours:
        ratios = [0.0]
        sources: Sequence[Any] = [False, True] if raw else shapes or layouts()
        for source in sources:
            for n_classes in (2, 3):
                pairs: Iterator[tuple[Any, Any]]
                if raw:
                    pairs = table_pairs(rng, neighbours, source, n_random)
                else:
                    pairs = design_pairs(rng, source, neighbours, n_classes, n_random)
                for one, two in pairs:
                    for query in make(rng, one.facts):
                        fits_three = isinstance(getattr(query, "loss", None), Multinomial)
                        if neighbours not in getattr(query, "proved_for", tuple(Neighbours)):
                            _demand_refusal(query, one.facts, neighbours)
                        elif fits_three == (n_classes == 3) or raw:
                            ratios.append(_ratio(query, one, two, neighbours))
        if len(ratios) > 1:
            closest[neighbours] = max(ratios)
    demand(bool(closest), "no pair was checked under any relation.")
    for neighbours, ratio in closest.items():
        demand(
            ratio >= tight,
            f"the worst pair found reaches only {ratio:.3f} of the declared {neighbours} sensitivity: either it is "
            "needlessly large or the pairs are too tame to catch a mistake.",
        )
    return max(closest.values())


def _ratio(query: Query, one: Any, two: Any, neighbours: Neighbours) -> float:
    facts = one.facts
    if isinstance(query, PartyQuery):
        one, two = as_party(one), as_party(two)
    elif isinstance(query, LabelQuery):
        one, two = as_labels(one), as_labels(two)
    a, b = query.evaluate(one), query.evaluate(two)
    declared = query.sensitivity(facts, neighbours)
    if isinstance(a, PeopleObjective):
        return _objective_ratio(query, facts, a, b, declared)
    if isinstance(a, Summands):
        a, b = (_whole_sum(query, value, declared) for value in (a, b))
    for value in (a, b):
        demand(
            value.size == query.size(facts), f"{query.name!r} has {value.size} coordinates, {query.size(facts)} stated."
        )
        demand(
            bool(np.isfinite(value).all()) and float(np.abs(value).max()) <= query.bound(facts),
            f"{query.name!r} exceeds its public bound.",
        )
    change = NORMS[query.norm](a - b)
    demand(
        change <= declared * (1.0 + 1e-12),
        f"{query.name!r} changed by {change / declared:.6g} times its declared {neighbours} sensitivity.",
    )
    return change / declared


def _demand_refusal(query: Query, facts: Facts, neighbours: Neighbours) -> None:
    try:
        query.sensitivity(facts, neighbours)
    except Unsupported:
        return
    demand(False, f"{query.name!r} states a sensitivity under {neighbours}, which it says is not proved.")


def _whole_sum(query: Query, value: Summands, declared: float) -> Any:
    """Return the sum over everyone; checks some people's own summands and that subsets add up exactly."""
    everyone = np.ones(value.n_people, np.bool_)
    odd = np.arange(value.n_people) % 2 == 1
    whole = value.total(everyone)
    exact = np.array_equal(value.total(odd) + value.total(~odd), whole)
    demand(exact, f"{query.name!r}: the sums over two halves of the people do not add up to the sum over all.")
    for i in range(min(value.n_people, 3)):
        length = NORMS[query.norm](value.total(np.arange(value.n_people) == i))
        demand(
            length <= declared * (1.0 + 1e-12),
            f"{query.name!r}: one person's summand is {length / declared:.6g} times its declared sensitivity.",
        )
    return whole


def _objective_ratio(query: Any, facts: Facts, a: PeopleObjective, b: PeopleObjective, declared: float) -> float:
    """Return the largest change of the gradient between neighbours; checks direction and change of curvature."""
    rng = np.random.default_rng(0)
    largest = 0.0
    for scale in (0.0, 1.0, 1e3):
        weights = scale * rng.normal(size=a.size)
        change = gradient_change(query, facts, a, b, weights)
        demand(
            change <= declared * (1.0 + 1e-12),
            f"{query.name!r}: its gradient changed by {change / declared:.6g} times its declared sensitivity.",
        )
        largest = max(largest, change / declared)
        near = weights + 1e-5 * rng.normal(size=a.size)
        with_person = a.gradient(near) - a.gradient(weights)
        without = b.gradient(near) - b.gradient(weights)
        move = near - weights
        # in any direction the person's curvature is at most the ratio times that of the quadratic
        extra, least = float(move @ (with_person - without)), float(move @ (query.strengths * move))
        demand(
            -1e-6 * least <= extra <= query.curvature_ratio(facts) * least * (1.0 + 1e-6) + 1e-6 * least,
            f"{query.name!r}: one person's curvature is outside its declared ratio.",
        )
    return largest
