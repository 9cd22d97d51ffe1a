"""Repeats a recorded run on neighbouring data and compares every query's value with the recorded one.

Every release returns what it returned in the recorded run. As queries depend on the data through earlier releases only,
the same queries are asked, with the same public numbers, and each value may differ by the declared sensitivity at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.mechanisms.selection import TwoLevelRace
from dperm.privacy.recording import PublicRelease, RecordedRelease, Recorder, snapshot
from dperm.testing._violation import ContractViolation, demand
from dperm.testing.distance import change_over_sensitivity
from dperm.testing.solvers import public_state

__all__ = ["Replayer"]


class Replayer(Recorder):
    """Gives back the outputs of a recorded run, in order; collects how far each value moved.

    Attributes
    ----------
    changes : list of float
        For every release, the change of its value in units of what its sensitivity allows; above 1 is a violation.
    """

    def __init__(self, recorded: Recorder, person: int, neighbours: Neighbours) -> None:
        super().__init__()
        self._recorded, self._person, self._neighbours = recorded, person, neighbours
        self.changes: list[float] = []
        self._people_changed = 0

    def apply(self, mechanism: Any, value: Any, sensitivity: float, bound: float, source: Any) -> Any:
        if len(self.changes) >= len(self._recorded.releases):
            raise ContractViolation("on neighbouring data the run makes more releases.")
        before = self._recorded.releases[len(self.changes)]
        race = isinstance(value, TwoLevelRace)
        now = self.entry(mechanism, value.scores() if race else value, sensitivity, bound, None)
        _demand_same(before, now)
        # rounding of scores that are recovered from the weights of a race
        slack = 2.0**-44 * before.bound if race else 0.0
        self.changes.append(change_over_sensitivity(before, now, self._person, self._neighbours, slack))
        # the same draws as in the recorded run, so that public draws from the same source stay the same
        mechanism.draw(value if race else before.value, sensitivity, bound, source)
        return snapshot(before.output)

    def report(self, kind: Any, values: Any, draw: Callable[[Any], Any]) -> Any:
        if len(self.reports) >= len(self._recorded.reports):
            raise ContractViolation("on neighbouring data more people report.")
        before = self._recorded.reports[len(self.reports)]
        self.reports.append(before)
        demand(kind == before.kind, "on neighbouring data another local report is used.")
        one, two = (np.asarray(part) for part in (before.values, values))
        demand(one.shape == two.shape, "on neighbouring data another number of people report.")
        self._people_changed += int((one != two).reshape(len(one), -1).any(axis=1).sum())
        demand(self._people_changed <= 1, "one person's record changes what other people report, or is reported twice.")
        draw(before.values)
        return snapshot(before.output)

    def finish(self) -> None:
        """Demand that the whole recorded run was repeated."""
        demand(
            len(self.changes) == len(self._recorded.releases) and len(self.reports) == len(self._recorded.reports),
            "on neighbouring data the run makes fewer releases.",
        )


def _demand_same(before: RecordedRelease, now: RecordedRelease) -> None:
    """Demand that the public numbers of a release, and its query, do not depend on the data."""
    for one in fields(PublicRelease):
        demand(
            getattr(before, one.name) == getattr(now, one.name),
            f"on neighbouring data the release of {before.query!r} has another {one.name}.",
        )
    demand(
        before.asked is None or public_state(before.asked) == public_state(now.asked),
        f"on neighbouring data another query is asked for {before.query!r}.",
    )
