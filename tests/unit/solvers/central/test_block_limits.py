"""Limits per coordinate in block and coordinate descent: the clip of a block, its noise, and planted bugs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from dperm import Bounds, DPLogisticRegression, Ledger
from dperm.data.holding.holder import DataHolder
from dperm.errors import InvalidInput
from dperm.objective import L2, Logistic, Objective
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.privacy.randomness import RandomSource
from dperm.queries import GradientBlock
from dperm.solvers import BlockDescent, CoordinateDescent
from dperm.solvers.central import blocks
from dperm.solvers.coordinate_sampling import ArbitrarySampling
from dperm.testing import (
    ContractViolation,
    check_gradient_canary,
    check_ledger_is_plan,
    check_noise_free_limit,
    check_non_interference,
    check_query,
)
from dperm.testing.solvers import problem

LIMITS = (0.4, 0.1, 0.02, 0.2)
UNEVEN = ArbitrarySampling(4, (((0, 1), 0.3), ((2,), 0.3), ((1, 2, 3), 0.2), ((3, 0), 0.2)))


def run(solver, neighbours=Neighbours.ZERO_OUT, seed=0, data=None):
    data = data or problem(n=60)
    objective = Objective(Logistic(), L2(0.01), unpenalised=(3,))
    calibrated = calibrate(solver.plan(objective, data.facts), Budget(2.0, 1e-6))
    with Scope(calibrated, Ledger(neighbours=neighbours), neighbours, "test") as scope:
        holder = DataHolder(data, scope, RandomSource(seed), neighbours)
        drawn = []
        release = holder.release
        holder.release = lambda query, mechanism: (drawn.append(query.columns), release(query, mechanism))[1]
        return solver.solve(objective, holder, calibrated).weights, holder.released, drawn


@pytest.mark.parametrize(
    "solver",
    [
        BlockDescent(2, 12, 2, clip=LIMITS),
        BlockDescent(2, 12, 2, UNEVEN, clip=LIMITS),
        BlockDescent(2, 12, 2, "importance", clip=LIMITS),
        CoordinateDescent(6, clip=LIMITS),
    ],
    ids=lambda s: f"{s.name}-{getattr(s, 'sampling', '')}"[:30],
)
@pytest.mark.parametrize(("neighbours", "factor"), [(Neighbours.ZERO_OUT, 1.0), (Neighbours.REPLACE_ONE, 2.0)])
def test_noise_follows_the_limit_of_the_drawn_block(solver, neighbours, factor):
    _, released, drawn = run(solver, neighbours)
    assert len(set(drawn)) > 1
    for one, columns in zip(released, drawn, strict=True):
        limit = np.sqrt(sum(LIMITS[j] ** 2 for j in columns))
        assert one.sensitivity == pytest.approx(factor * limit, rel=1e-12)
        # the same multiplier whatever was drawn: the lattice may add a little noise, never take some away
        assert 1.0 <= one.noise_scale / (one.sensitivity * one.noise_multiplier) < 1.001
    assert len({one.noise_multiplier for one in released}) == 1


@pytest.mark.parametrize("make", [lambda c: BlockDescent(2, 12, 2, clip=c), lambda c: CoordinateDescent(6, clip=c)])
def test_one_number_is_the_same_limit_for_all(make):
    one, each = run(make(0.6))[0], run(make((0.3,) * 4))[0]
    assert one.tolist() == each.tolist()


def test_sequences_of_any_kind_become_tuples():
    assert BlockDescent(clip=np.array(LIMITS)).clip == CoordinateDescent(clip=list(LIMITS)).clip == LIMITS


@pytest.mark.parametrize("solver", [BlockDescent, CoordinateDescent])
@pytest.mark.parametrize(
    ("clip", "says"),
    [((0.1, 0.0), "clip must be"), ((0.1, float("nan")), "clip must be"), ((), "clip must be"), (-1.0, "clip must be")],
)
def test_bad_limits_get_one_sentence(solver, clip, says):
    with pytest.raises(InvalidInput, match=says):
        solver(clip=clip)


def test_a_wrong_number_of_limits_is_refused_before_anything_is_reserved(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", dataset="people")
    before = len(ledger.entries())
    rng = np.random.default_rng(0)
    for solver in (BlockDescent(clip=(0.1, 0.2)), CoordinateDescent(clip=(0.1, 0.2))):
        model = DPLogisticRegression(bounds=Bounds(features=(-1, 1)), solver=solver, ledger=ledger)
        with pytest.raises(InvalidInput, match="one for each column"):
            model.fit(rng.uniform(-1, 1, (40, 3)), rng.integers(0, 2, 40))
    assert len(ledger.entries()) == before


def test_limits_that_fit_the_columns_leave_less_noise_in_small_ones():
    _, released, drawn = run(CoordinateDescent(6, clip=LIMITS))
    noise = {columns[0]: one.noise_scale for one, columns in zip(released, drawn, strict=True)}
    assert noise[2] == pytest.approx(0.05 * noise[0], rel=1e-3)


@pytest.mark.parametrize("solver", [BlockDescent(2, 6, 2, UNEVEN, clip=LIMITS), CoordinateDescent(2, clip=LIMITS)])
def test_contracts_hold(solver):
    check_ledger_is_plan(solver)
    check_non_interference(solver)
    data = problem(n=8)
    check_gradient_canary(solver, Objective(Logistic(), L2(0.01), unpenalised=(3,)), data)


def test_large_limits_clip_nothing():
    large = (1e9, 1e8, 1e9, 1e9)
    check_noise_free_limit(BlockDescent(1, 400, 2, clip=large, step=0.5, averaging=False))
    check_noise_free_limit(CoordinateDescent(60, clip=large))


# ---------------------------------------------------------------------------------------------------- planted bugs
@dataclass(frozen=True, eq=False)
class StatesTheSmallestLimit(GradientBlock):
    """Clips a block at C_U, and states the smallest C_j as what one person can change."""

    smallest: float = 0.02
    name: ClassVar[str] = GradientBlock.name

    def zero_out_sensitivity(self, facts):
        return min(self.smallest, super().zero_out_sensitivity(facts))


def test_a_block_that_states_too_small_a_limit_is_caught():
    def make(rng, facts):
        columns = tuple(range(facts.d))
        return [StatesTheSmallestLimit(Logistic(), s * np.ones(facts.d), 0.4, columns, 0.1) for s in (0.0, 50.0)]

    with pytest.raises(ContractViolation, match="times its declared"):
        check_query(make, n_random=1)


class SameNoiseForAll(GaussianNoise):
    """Charges the planned multiplier and adds the noise of the smallest limit, whatever block was drawn."""

    def apply(self, value, sensitivity, bound, source):
        return super().apply(value, min(LIMITS), bound, source)


def test_noise_that_ignores_the_drawn_block_is_caught(monkeypatch):
    data, objective = problem(n=8), Objective(Logistic(), L2(0.01), unpenalised=(3,))
    solver = BlockDescent(2, 6, 2, UNEVEN, clip=LIMITS)
    monkeypatch.setattr(blocks, "GaussianNoise", SameNoiseForAll)
    with pytest.raises(ContractViolation, match="not in MECHANISMS"):
        check_ledger_is_plan(solver)
    with pytest.raises(ContractViolation):
        check_gradient_canary(solver, objective, data)
