"""Declared sensitivity against real neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dperm.data.facts import Facts
from dperm.data.query import Query
from dperm.objective import Multinomial
from dperm.privacy.neighbours import Neighbours
from dperm.testing._violation import demand
from dperm.testing.data import design_pairs, layouts, table_pairs

__all__ = ["check_query"]

_NORMS: dict[str, Callable[[Any], float]] = {
    "l1": lambda v: float(np.abs(v).sum()),
    "l2": lambda v: float(np.sqrt(np.sum(np.square(v)))),
    "linf": lambda v: float(np.abs(v).max()),
}


def check_query(
    make: Callable[[Any, Facts], list[Query]],
    *,
    raw: bool = False,
    n_random: int = 3,
    seed: int = 0,
    tight: float = 0.6,
) -> float:
    """Check queries made by ``make(rng, facts)`` on random and worst-case neighbours under both relations.

    Also checks the public bound, the size, and that some pair comes within ``tight`` of the declared sensitivity: a
    check whose pairs are all harmless could not fail.

    Parameters
    ----------
    make : callable
        Returns query instances for public facts.
    raw : bool
        Whether the queries run on raw tables instead of designs.

    Returns
    -------
    float
        Largest observed change divided by the declared sensitivity.
    """
    rng = np.random.default_rng(seed)
    closest: dict[Neighbours, float] = {}
    for neighbours in Neighbours:
        ratios = [0.0]
        sources: list[Any] = [False, True] if raw else layouts()
        for source in sources:
            for n_classes in (2, 3):
                if raw:
                    pairs = table_pairs(rng, neighbours, source, n_random)
                else:
                    pairs = design_pairs(rng, source, neighbours, n_classes, n_random)
                for one, two in pairs:
                    for query in make(rng, one.facts):
                        fits_three = isinstance(getattr(query, "loss", None), Multinomial)
                        if fits_three == (n_classes == 3) or raw:
                            ratios.append(_ratio(query, one, two, neighbours))
        closest[neighbours] = max(ratios)
    for neighbours, ratio in closest.items():
        demand(
            ratio >= tight,
            f"the worst pair found reaches only {ratio:.3f} of the declared {neighbours} sensitivity: either it is "
            "needlessly large or the pairs are too tame to catch a mistake.",
        )
    return max(closest.values())


def _ratio(query: Query, one: Any, two: Any, neighbours: Neighbours) -> float:
    facts = one.facts
    a, b = query.evaluate(one), query.evaluate(two)
    declared = query.sensitivity(facts, neighbours)
    for value in (a, b):
        demand(
            value.size == query.size(facts), f"{query.name!r} has {value.size} coordinates, {query.size(facts)} stated."
        )
        demand(
            bool(np.isfinite(value).all()) and float(np.abs(value).max()) <= query.bound(facts),
            f"{query.name!r} exceeds its public bound.",
        )
    change = _NORMS[query.norm](a - b)
    demand(
        change <= declared * (1.0 + 1e-12),
        f"{query.name!r} changed by {change / declared:.6g} times its declared {neighbours} sensitivity.",
    )
    return change / declared
