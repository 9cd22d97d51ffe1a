"""The view decides what a program can share: where every message is covered, nothing can be shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from dperm.errors import PlanViolation
from dperm.objective import Logistic, Objective
from dperm.privacy import Budget, Ledger, RandomSource, Scope
from dperm.queries.sharing import PartialPredictions
from dperm.solvers.vertical import AdmmSharing, Message
from dperm.solvers.vertical.views import VIEWS
from dperm.testing.vertical import VERTICAL_EXAMPLES, facts_of, vertical_problem

BUDGET = Budget(1.0, 1e-6)


def _programs(task, designs, y):
    def scope():
        return Scope(task.calibrated, Ledger(), task.neighbours, "x", unbounded=task.no_guarantee)

    parties = [task.party(name, design, scope(), RandomSource()) for name, design in designs.items()]
    return task.coordinator(y, scope(), RandomSource()), parties


@pytest.mark.parametrize("name", sorted(VERTICAL_EXAMPLES))
def test_who_may_be_handed_a_value_without_noise(name):
    designs, y = vertical_problem()
    task = VERTICAL_EXAMPLES[name](facts_of(designs), BUDGET)
    coordinator, parties = _programs(task, designs, y)
    covered = VIEWS[task.view].covers_participants
    assert covered == ("transcript" in name or "sketched" in name)
    for program in parties:
        query = PartialPredictions(np.zeros(task.parties[program.name].d))
        if not covered:
            assert program.holder.share(query, task.domain).reveal_inside(task.domain).shape == (task.n,)
            continue
        for one in (program, coordinator):
            with pytest.raises(PlanViolation, match="may not share"):
                one.holder.share(query, task.domain)


@dataclass(frozen=True)
class _Mistaken(AdmmSharing):
    """Says that its messages are covered, and shares scores and slopes."""

    views: ClassVar[tuple[str, ...]] = ("model", "transcript")


def test_a_method_that_shares_does_not_run_in_a_view_that_covers_its_messages():
    designs, y = vertical_problem()
    task = _Mistaken(Objective(Logistic()), facts_of(designs), BUDGET, n_rounds=2, view="transcript")
    coordinator, parties = _programs(task, designs, y)
    with pytest.raises(PlanViolation, match="may not share"):
        coordinator.requests()
    for party in parties:
        with pytest.raises(PlanViolation, match="may not share"):
            party.answer(Message("residual", {"residual": np.zeros(task.n)}))
