"""Every party can compute its own part of the model without relying on the coordinator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dperm.errors import PlanViolation
from dperm.privacy import Budget
from dperm.solvers.vertical import TASKS
from dperm.testing.vertical import VERTICAL_EXAMPLES, facts_of, run_vertical, vertical_problem

CHANGES = {
    "admm-sharing": ({}, {"averaging": 0.5}),
    "blocks-over-parties": ({"averaging": 0.4},),
    "transcript-admm-sharing": ({"averaging": 0.4},),
    "distributed-frank-wolfe": ({}, {"product": True}, {"n_sampled": 1}, {"product": True, "n_sampled": 1}),
    "sketched-frank-wolfe": ({}, {"n_sampled": 1}),
    "printed-frank-wolfe": ({}, {"n_sampled": 1}),
}
CASES = [(name, change) for name in sorted(TASKS) for change in CHANGES.get(name, ({},))]


@pytest.mark.parametrize(("name", "change"), CASES, ids=lambda case: str(case).replace(" ", ""))
def test_own_weights_are_the_coordinators_bit_by_bit(name, change):
    designs, target = vertical_problem()
    task = VERTICAL_EXAMPLES[name](facts_of(designs), Budget(1.0, 1e-6))
    length = {"n_steps": 5} if hasattr(task, "n_steps") else {"n_rounds": 5}
    task, parties = replace(task, **length, **change), {}

    def keep(program):
        if hasattr(program, "own_weights"):
            parties[program.name] = program

    result = run_vertical(task, designs, target, prepare=keep).result
    assert set(parties) == set(designs)
    for party, program in parties.items():
        np.testing.assert_array_equal(program.own_weights(), result.weights[party])
        fresh = task.party(party, designs[party], program._charges, program._source)
        with pytest.raises(PlanViolation, match="not over"):
            fresh.own_weights()
        fresh.restore(program.state())
        np.testing.assert_array_equal(fresh.own_weights(), result.weights[party])
