"""Every vertical task keeps its plan in every ledger, reveals only its releases, and is correct without noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from planted import private_data

from dperm.objective import L2, Logistic, Objective, Squared
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.standard import GaussianNoise, LaplaceNoise
from dperm.queries.sharing import LocalAtomScores, WeightedRows
from dperm.solvers.vertical import (
    TASKS,
    AdmmSharing,
    Message,
    PrintedFrankWolfe,
    TranscriptSharing,
    frank_wolfe_printed,
)
from dperm.solvers.vertical.admm_transcript import TranscriptCoordinator
from dperm.solvers.vertical.frank_wolfe_printed import PrintedParty
from dperm.solvers.vertical.score_sharing import SharingCoordinator, SharingParty
from dperm.testing import ContractViolation, check_query, registered
from dperm.testing.vertical import (
    VERTICAL_EXAMPLES,
    check_vertical,
    check_vertical_canary,
    check_vertical_ledgers,
    check_vertical_noise_free,
    check_vertical_non_interference,
    check_vertical_sensitivity,
)

NO_OPTIMUM = {"sketched-frank-wolfe", "printed-frank-wolfe"}  # a sketch has an error of its own


def test_every_task_has_an_example():
    assert set(VERTICAL_EXAMPLES) == set(TASKS)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_task_keeps_every_contract(name):
    check_vertical(VERTICAL_EXAMPLES[name], optimum=name not in NO_OPTIMUM)


@dataclass(frozen=True)
class Small(AdmmSharing):
    """A short run with another program on one side."""

    n_rounds: int = 3
    name: ClassVar[str] = "small"
    party_program: ClassVar[type] = SharingParty
    coordinator_program: ClassVar[type] = SharingCoordinator

    def party(self, name, design, charges, source):
        return self.party_program(self, name, design, charges, source)

    def coordinator(self, target, charges, source):
        return self.coordinator_program(self, target, charges, source)


def small(party=SharingParty, coordinator=SharingCoordinator, **settings):
    """Tasks whose programs have a bug."""

    class Planted(Small):
        party_program = party
        coordinator_program = coordinator

    return lambda parties, budget: Planted(Objective(Logistic(), L2(0.05)), parties, budget, **settings)


class HalvesItsNoise(SharingParty):
    def __init__(self, task, *args):
        super().__init__(task, *args)
        self.calibrated = replace(task.calibrated, scale=task.calibrated.scale / 2)


class ReleasesTwice(SharingParty):
    def answer(self, request):
        reply = super().answer(request)
        self._round -= 1
        super().answer(request)
        return reply


class ForgetsTheOthers(SharingParty):
    def __init__(self, task, name, *args):
        super().__init__(task, name, *args)
        honest = self._charges

        class Own:
            def charge(self, query, event):
                if query.endswith(name):
                    honest.charge(query, event)

        self._charges = Own()


class PaysForNothing(SharingCoordinator):
    def __init__(self, task, target, charges, source):
        super().__init__(task, target, charges, source)
        self._charges = type("Free", (), {"charge": staticmethod(lambda query, event: None)})()


@pytest.mark.parametrize(
    "bug",
    [{"party": HalvesItsNoise}, {"party": ReleasesTwice}, {"party": ForgetsTheOthers}, {"coordinator": PaysForNothing}],
)
def test_wrong_charges_are_caught(bug):
    check_vertical_ledgers(small())
    with pytest.raises(ContractViolation, match=r"left its plan|never recorded"):
        check_vertical_ledgers(small(**bug))


class SendsATrueCoefficient(SharingParty):
    def answer(self, request):
        reply = super().answer(request)
        true = WeightedRows(1.0).evaluate(private_data(self.holder))
        return replace(reply, arrays={**reply.arrays, "weights": true})


class SendsOnlyWhatIsNotZero(SharingCoordinator):
    """A message whose length depends on the data."""

    def requests(self):
        out = super().requests()
        kept = {name: m.arrays["residual"][m.arrays["residual"] > 0] for name, m in out.items()}
        return {name: Message(m.kind, {**m.arrays, "kept": kept[name]}, m.facts) for name, m in out.items()}


class TakesExtraArrays(SharingParty):
    def answer(self, request):
        return super().answer(Message(request.kind, {"residual": request.arrays["residual"]}, request.facts))


class TellsAFact(SharingParty):
    def answer(self, request):
        return replace(super().answer(request), facts={"rows": int(private_data(self.holder).design.norms().sum())})


@pytest.mark.parametrize(
    "bug",
    [
        {"party": SendsATrueCoefficient},
        {"coordinator": SendsOnlyWhatIsNotZero, "party": TakesExtraArrays},
        {"party": TellsAFact},
    ],
)
def test_interference_is_caught(bug):
    check_vertical_non_interference(small())
    with pytest.raises(ContractViolation, match=r"depends? on the data"):
        check_vertical_non_interference(small(**bug))


class SendsTrueColumn(PrintedParty):
    def answer(self, request):
        reply = super().answer(request)
        _, rows = next(private_data(self.holder).design.row_chunks())
        sketch = self.task.projection @ rows[:, self._place % self._facts.d]
        return replace(reply, arrays={**reply.arrays, "sketch": sketch})


@dataclass(frozen=True)
class UnderstatedScores(LocalAtomScores):
    """States a fifth of its sensitivity."""

    def sensitivity(self, facts, neighbours):
        return super().sensitivity(facts, neighbours) / 5.0


def test_what_printed_frank_wolfe_certifies_is_checked(monkeypatch):
    """It has no guarantee, but its certified epsilon covers what parties send."""

    @dataclass(frozen=True)
    class Planted(PrintedFrankWolfe):
        def party(self, name, design, charges, source):
            return SendsTrueColumn(self, name, design, charges, source)

    def make(cls):
        return lambda parties, budget: cls(
            Objective(Squared(residual_clip=4.0)), parties, budget, n_steps=3, radius=1.0, n_sketch=64
        )

    check_vertical_non_interference(make(PrintedFrankWolfe))
    with pytest.raises(ContractViolation, match=r"depends? on the data"):
        check_vertical_non_interference(make(Planted))
    assert check_vertical_sensitivity(make(PrintedFrankWolfe)) > 0.5
    monkeypatch.setattr(frank_wolfe_printed, "LocalAtomScores", UnderstatedScores)
    with pytest.raises(ContractViolation, match="times its declared sensitivity"):
        check_vertical_sensitivity(make(PrintedFrankWolfe))


class SendsTrueSlopes(TranscriptCoordinator):
    """In the transcript view even one un-noised label is too much."""

    def requests(self):
        out = super().requests()
        self._residual[0] = private_data(self.holder).target[0]
        return {name: Message(m.kind, {"residual": self._residual.copy()}, m.facts) for name, m in out.items()}


def test_interference_is_caught_in_the_transcript_view():
    @dataclass(frozen=True)
    class Planted(TranscriptSharing):
        def coordinator(self, target, charges, source):
            return SendsTrueSlopes(self, target, charges, source)

    def make(cls):
        return lambda parties, budget: cls(Objective(Logistic()), parties, budget, n_rounds=2)

    check_vertical_non_interference(make(TranscriptSharing))
    with pytest.raises(ContractViolation, match=r"depends? on the data"):
        check_vertical_non_interference(make(Planted))


class TurnsAllResiduals(SharingCoordinator):
    """Ties everyone's residual to everyone's record: one person then moves all summands."""

    def requests(self):
        super().requests()
        odd = private_data(self.holder).target.sum() % 2
        message = Message("residual", {"residual": (2.0 * odd - 1.0) * self._residual}, {"round": self.round})
        return dict.fromkeys(self.task.parties, message)


class FollowsOnePerson(SharingParty):
    """Partial scores of everyone that depend on one person's row."""

    def answer(self, request):
        reply = super().answer(request)
        _, rows = next(private_data(self.holder).design.row_chunks())
        scores = int(np.sign(rows[17, 0])) * reply.arrays["scores"]
        return replace(reply, arrays={**reply.arrays, "scores": scores})


@pytest.mark.parametrize("bug", [{"coordinator": TurnsAllResiduals}, {"party": FollowsOnePerson}])
def test_people_tied_to_each_other_are_caught(bug):
    check_vertical_sensitivity(small())
    with pytest.raises(ContractViolation, match="times its declared sensitivity"):
        check_vertical_sensitivity(small(**bug))


@dataclass(frozen=True, eq=False)
class StatesALength(WeightedRows):
    """A sum for Laplace noise whose sensitivity is stated as a length: too small by up to sqrt(columns)."""

    norm: ClassVar[str] = "l1"


class AddsLaplaceNoise(SharingParty):
    def __init__(self, *args):
        super().__init__(*args)
        honest = self.holder.release

        def release(query, mechanism, group=None):
            other = StatesALength(query.limit, query.columns)
            return honest(other, LaplaceNoise(mechanism.noise_multiplier), group)

        self.holder.release = release


def test_a_length_stated_for_laplace_noise_is_caught(monkeypatch):
    monkeypatch.setitem(registered.OTHER_QUERIES, StatesALength, "planted")
    monkeypatch.setattr(Scope, "charge", lambda self, *charge: None)  # the plan has Gaussian noise
    with pytest.raises(ContractViolation, match="times its declared sensitivity"):
        check_vertical_sensitivity(small(AddsLaplaceNoise, limit=0.3))  # below the slopes, so that it is reached


class Skimped(GaussianNoise):
    """Charges for the full noise, adds a third of it: no plan and no ledger can see that."""

    def apply(self, value, sensitivity, bound, source):
        return GaussianNoise(self.noise_multiplier / 3).apply(value, sensitivity, bound, source)


class SkimpsOnNoise(SharingParty):
    def __init__(self, *args):
        super().__init__(*args)
        honest = self._holder.release
        self._holder.release = lambda query, mechanism, group=None, units=1: honest(
            query, Skimped(mechanism.noise_multiplier), group, units
        )


@pytest.mark.parametrize("name", ["admm-sharing", "blocks-over-parties", "distributed-frank-wolfe"])
def test_canary(name):
    check_vertical_canary(VERTICAL_EXAMPLES[name])


def test_the_canary_catches_skimped_noise():
    check_vertical_ledgers(small(party=SkimpsOnNoise))
    with pytest.raises(ContractViolation, match="leaks more than it claims"):
        check_vertical_canary(small(party=SkimpsOnNoise))


class StepsTheWrongWay(SharingParty):
    def answer(self, request):
        return super().answer(Message("residual", {"residual": -request.arrays["residual"]}, request.facts))


def test_wrong_arithmetic_is_caught():
    with pytest.raises(ContractViolation, match="and the optimum is"):
        check_vertical_noise_free(small(party=StepsTheWrongWay))


class ForgetsToClip(WeightedRows):
    def evaluate(self, data):
        return WeightedRows(100.0, self.columns).evaluate(data)


class CountsOnePersonOnce(WeightedRows):
    replacement_ratio = 1.0


@pytest.mark.parametrize("bug", [ForgetsToClip, CountsOnePersonOnce])
def test_planted_bugs_in_a_query_are_caught(bug):
    with pytest.raises(ContractViolation, match=r"times its declared|public bound"):
        check_query(lambda rng, facts: [bug(0.5)], n_random=1)


def test_results_say_what_they_are():
    from dperm.privacy.accounting.budget import Budget
    from dperm.testing.vertical import facts_of, run_vertical, vertical_problem

    designs, target = vertical_problem()
    for name, make in VERTICAL_EXAMPLES.items():
        task = make(facts_of(designs), Budget(1.0, 1e-6))
        report = task.report()
        assert (report.guarantee is None) == (name in {"exact-admm-sharing", "printed-frank-wolfe", "sgd-over-parties"})
        if report.guarantee is not None:
            assert report.guarantee.view == task.view
            assert any("reconstruct" in text for text in report.not_covered) == (task.view == "model")
    result = run_vertical(make(facts_of(designs), Budget(1.0, 1e-6)), designs, target).result
    assert result.report.reason == "the method runs without noise."
    assert result.held
    assert all(np.isfinite(value).all() for value in result.weights.values())
