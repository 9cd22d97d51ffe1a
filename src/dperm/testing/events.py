"""Check that an event's curves are consistent with each other."""

from __future__ import annotations

import json
import math
from itertools import pairwise

from dperm.errors import Unsupported
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.events import ZERO_OUT_ONLY, Event, Repeat, event_from_dict, event_to_dict, restate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.testing._violation import demand

__all__ = ["check_event"]


def check_event(event: Event) -> None:
    """Check that an event's costs are monotone, add up and survive a round trip through JSON."""
    orders = (1.01, 1.5, 2.0, 5.0, 20.0, 100.0)
    values = [composition.renyi(event, order) for order in orders]
    demand(all(v >= 0.0 for v in values), "a Renyi divergence is negative.")
    demand(
        all(b >= a * (1.0 - 1e-9) for a, b in pairwise(values)),
        "the Renyi divergence falls with its order.",
    )
    for order, value in zip(orders, values, strict=True):
        tripled = composition.renyi(Repeat(event, 3), order)
        demand(math.isclose(tripled, 3.0 * value, rel_tol=1e-9), "three uses do not cost three times one use.")
    bounds = [composition.epsilon(event, delta) for delta in (1e-3, 1e-6, 1e-9)]
    demand(
        all(b.epsilon >= a.epsilon * (1.0 - 1e-9) for a, b in pairwise(bounds)),
        "epsilon falls when delta falls.",
    )
    demand(all(b.lower <= b.epsilon for b in bounds), "a lower bound on epsilon exceeds the upper bound.")
    more = composition.epsilon(Repeat(event, 2), 1e-6).epsilon
    demand(more >= bounds[1].epsilon, "two uses cost less than one.")
    demand(event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event, "the event is lost in JSON.")
    try:
        swapped = restate(event, Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE)
    except Unsupported:
        demand(
            any(isinstance(leaf, ZERO_OUT_ONLY) for leaf in composition.leaves(event)),
            "restating the event for replace-one was refused.",
        )
        return
    demand(composition.renyi(swapped, 4.0) >= composition.renyi(event, 4.0), "replace-one costs less than zero-out.")
