"""Sharing methods: exact steps, certified steps, states, refusals."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.optimize import brentq

from dperm.data.design.facts import Facts
from dperm.data.holding.party import PartyData, ReceivedValues
from dperm.errors import InvalidInput, PlanViolation, Unsupported
from dperm.objective import L1, L2, ElasticNet, Huber, L1Ball, Logistic, NoPenalty, Objective, SmoothedHinge, Squared
from dperm.objective.penalties import BoxPenalty
from dperm.objective.proximal import proximal_slopes
from dperm.privacy import Budget, Ledger, RandomSource, Scope
from dperm.privacy.accounting import composition
from dperm.queries.sharing import RESIDUAL, BlockMinimiser, PartialPredictions
from dperm.solvers.vertical import TASKS, AdmmSharing, BlocksOverParties, ExactSharing, Message, TranscriptSharing
from dperm.solvers.vertical.in_process import run_in_process
from dperm.solvers.vertical.sigmoid_loss import SigmoidLoss
from dperm.solvers.vertical.task import MOST_ROUNDS
from dperm.testing.solvers import trusted_optimum
from dperm.testing.vertical import VERTICAL_EXAMPLES, facts_of, run_vertical, vertical_problem

BUDGET = Budget(1.0, 1e-6)
LOSSES = [Logistic(), Squared(), Squared(residual_clip=0.5), Huber(0.7), SmoothedHinge(0.4), SigmoidLoss()]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("rho", [0.1, 0.5, 20.0])
def test_proximal_slopes_solve_the_proximal_problem(loss, rho):
    rng = np.random.default_rng(0)
    v, y = 10.0 * rng.normal(size=300), rng.integers(0, 2, 300).astype(float)
    found = proximal_slopes(loss, v, y, rho)
    for point, label, slope in list(zip(v, y, found, strict=True))[:40]:

        def excess(z, point=point, label=label):
            return float(loss.slope([z], [label])[0]) + rho * (z - point)

        reach = 30.0 / rho + abs(point)
        z = brentq(excess, point - reach, point + reach, xtol=1e-13)
        assert slope == pytest.approx(rho * (point - z), abs=1e-9)


def test_proximal_slopes_are_scalar_functions():
    rng = np.random.default_rng(1)
    v, y = 30.0 * rng.normal(size=501), rng.integers(0, 2, 501).astype(float)
    whole = proximal_slopes(Logistic(), v, y, 0.02)
    for cut in (slice(1, None), slice(0, 500, 3), slice(77, 78)):
        assert np.array_equal(proximal_slopes(Logistic(), v[cut], y[cut], 0.02), whole[cut])
    with pytest.raises(InvalidInput, match="rho must be above 0"):
        proximal_slopes(Logistic(), v, y, 0.0)


def pooled(task, designs):
    X = np.column_stack([np.concatenate([b * d.spacing for _, b in d.row_chunks()]) for d in designs.values()])
    free, start = [], 0
    for name, facts in task.parties.items():
        free += [start + j for j in task.unpenalised(name)]
        start += facts.d
    return X, Objective(task.objective.loss, task.objective.penalty, unpenalised=tuple(free))


@pytest.mark.parametrize(
    ("loss", "penalty"),
    [
        (Logistic(), L2(0.05)),
        (Logistic(), L1(0.03)),
        (Squared(), ElasticNet(0.05, 0.5)),
        (Squared(), NoPenalty()),
        (SmoothedHinge(0.5), L2(0.05)),
    ],
    ids=lambda part: part.name,
)
def test_exact_sharing_reaches_the_pooled_optimum(loss, penalty):
    designs, target = vertical_problem(4, n=120, sizes={"a": (2, 0.0), "b": (3, 0.0), "c": (2, 1.0)})
    task = ExactSharing(Objective(loss, penalty), facts_of(designs), BUDGET, n_rounds=60, rho=0.5)
    result = run_vertical(task, designs, target).result
    X, objective = pooled(task, designs)
    weights = np.concatenate(list(result.weights.values()))
    assert objective.value(X, target, weights) <= trusted_optimum(objective, X, target) + 2e-4
    assert result.report.guarantee is None
    assert result.held


def test_the_lyapunov_quantity_falls_to_zero():
    designs, target = vertical_problem(5, n=150)
    task = ExactSharing(Objective(Logistic(), L2(0.1)), facts_of(designs), BUDGET, n_rounds=150, rho=0.5)
    values = run_vertical(task, designs, target).result.diagnostics["lyapunov"]
    assert len(values) == 150
    assert values[-1] < 1e-6 * values[0]
    # O(1/T): the best so far times the number of rounds stays bounded
    running = np.minimum.accumulate(values) * np.arange(1, 151)
    assert running[-1] < running[0]


def test_a_loss_that_is_not_convex_reaches_a_stationary_point():
    designs, target = vertical_problem(6, n=200)
    task = ExactSharing(Objective(SigmoidLoss(), L2(0.01)), facts_of(designs), BUDGET, n_rounds=200, rho=0.5)
    result = run_vertical(task, designs, target).result
    X, objective = pooled(task, designs)
    weights = np.concatenate(list(result.weights.values()))
    penalised = np.array([0.0 if j in objective.unpenalised else 1.0 for j in range(len(weights))])
    gradient = objective.gradient(X, target, weights) + 0.01 * penalised * weights
    assert np.abs(gradient).max() < 1e-4
    assert objective.value(X, target, weights) < objective.value(X, target, np.zeros_like(weights)) - 0.05


def test_the_printed_step_is_damping_zero():
    designs, _ = vertical_problem(7)
    received = ReceivedValues()
    data = PartyData(designs["north"], received)
    rng = np.random.default_rng(0)
    X = np.concatenate([b * designs["north"].spacing for _, b in designs["north"].row_chunks()])
    old, others, z, dual = rng.normal(size=3), *rng.normal(size=(3, 60))
    rho = 0.3
    received.put(RESIDUAL, dual + rho * (X @ old + others - z))
    penalty = ExactSharing(Objective(Logistic(), L2(0.1)), facts_of(designs), BUDGET).penalty
    found = BlockMinimiser(old, rho, penalty).evaluate(data)

    def printed(u):  # equation (6) of the paper
        return dual @ X @ u + rho / 2 * np.sum((others + X @ u - z) ** 2) + 60 * 0.05 * u @ u

    for _ in range(50):
        assert printed(found) <= printed(found + 1e-3 * rng.normal(size=3))


def test_the_printed_calibration_carries_no_guarantee():
    designs, target = vertical_problem(8)
    task = ExactSharing(
        Objective(Logistic(), L2(0.05)), facts_of(designs), Budget(1.0, 1e-5), n_rounds=5, calibration="paper"
    )
    report = run_vertical(task, designs, target).result.report
    assert report.guarantee is None
    assert "singular" in report.reason
    assert task.printed_deviation("north") > 0.0
    assert report.epsilon == np.inf


def test_mu_of_the_certified_plan():
    designs, _ = vertical_problem()
    facts = facts_of(designs)
    task = AdmmSharing(Objective(Logistic()), facts, BUDGET, n_rounds=7)
    multiplier = task.calibrated.noise_multiplier("weighted rows of north")
    assert composition.mu(task.calibrated.event) == pytest.approx(np.sqrt(7 * 2) / multiplier)
    blocks = BlocksOverParties(Objective(Logistic()), facts, BUDGET, n_rounds=7)
    one, two = (blocks.calibrated.noise_multiplier(f"weighted rows of {name}") for name in facts)
    assert one == pytest.approx(two)
    assert one == pytest.approx(multiplier / np.sqrt(2))


def test_partial_scores_are_whole_and_their_total_is_exact():
    designs, target = vertical_problem(9)
    task = AdmmSharing(Objective(Logistic()), facts_of(designs), BUDGET, n_rounds=4)
    run = run_vertical(task, designs, target)
    last = run.messages.replies[-1]
    spacing = task.score_spacing(task.box)
    for name, reply in last.items():
        scores = reply.arrays["scores"]
        assert scores.dtype == np.int64
        assert reply.summed == {"scores"}
        true = PartialPredictions(reply.arrays["weights"]).evaluate(PartyData(designs[name]))
        assert np.abs(scores * spacing - true).max() <= spacing
    assert max(np.abs(reply.arrays["scores"]).max() for reply in last.values()) < 2**52


def test_the_first_residual_is_not_zero():
    designs, target = vertical_problem()
    task = AdmmSharing(Objective(Logistic()), facts_of(designs), BUDGET, n_rounds=1)
    first = run_vertical(task, designs, target).messages.requests[0]["north"].arrays["residual"]
    assert np.abs(first).min() > 0.1


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_run_goes_on_from_stored_states(name):
    designs, target = vertical_problem(10)
    task = VERTICAL_EXAMPLES[name](facts_of(designs), BUDGET)
    task = replace(task, **({"n_steps": 5} if hasattr(task, "n_steps") else {"n_rounds": 5}))
    whole = run_vertical(task, designs, target, seed=3).result

    def start():
        scopes = [Scope(task.calibrated, Ledger(), task.neighbours, "x", unbounded="seeded") for _ in range(3)]
        sources = [task.source(name, 3) for name in ("coordinator", *designs)]
        return scopes, sources

    scopes, sources = start()

    def programs():
        parties = zip(designs.items(), scopes[1:], sources[1:], strict=True)
        return task.coordinator(target, scopes[0], sources[0]), {
            party: task.party(party, design, scope, source) for (party, design), scope, source in parties
        }

    coordinator, parties = programs()
    while coordinator.round < coordinator.n_rounds:
        coordinator.requests()  # may release
        states = coordinator.state(), {party: program.state() for party, program in parties.items()}
        coordinator, parties = programs()  # everyone is restarted in every round
        coordinator.restore(states[0])
        for party, program in parties.items():
            program.restore(states[1][party])
        left, coordinator.n_rounds = coordinator.n_rounds, coordinator.round + 1
        if coordinator.n_rounds < left:
            coordinator.result = lambda: None
        run_in_process(coordinator, parties)
        coordinator.n_rounds = left
    again = coordinator.result()
    for party in designs:
        assert np.array_equal(again.weights[party], whole.weights[party])


def test_what_does_not_fit_is_refused_before_anything_is_charged():
    designs, target = vertical_problem()
    facts = facts_of(designs)
    plain = Objective(Logistic())
    with pytest.raises(InvalidInput, match="at least one party"):
        AdmmSharing(plain, {}, BUDGET)
    with pytest.raises(InvalidInput, match="align them first"):
        AdmmSharing(plain, {**facts, "other": replace(facts["north"], n=7)}, BUDGET)
    with pytest.raises(Unsupported, match="encrypted view is not implemented yet"):
        AdmmSharing(plain, facts, BUDGET, view="encrypted")
    with pytest.raises(InvalidInput, match="view must be"):
        AdmmSharing(plain, facts, BUDGET, view="secret")
    with pytest.raises(Unsupported, match="no transcript view"):
        AdmmSharing(plain, facts, BUDGET, view="transcript")
    with pytest.raises(Unsupported, match="replace-one"):
        TranscriptSharing(plain, facts, BUDGET, neighbours="zero-out")
    with pytest.raises(Unsupported, match="no constraint"):
        AdmmSharing(Objective(Logistic(), constraint=L1Ball(1.0)), facts, BUDGET)
    with pytest.raises(Unsupported, match="none, l1, l2"):
        AdmmSharing(Objective(Logistic(), BoxPenalty(low=-1.0, high=1.0)), facts, BUDGET)
    with pytest.raises(InvalidInput, match="every party has a turn"):
        BlocksOverParties(plain, facts, BUDGET, n_rounds=1)
    task = AdmmSharing(plain, facts, BUDGET, n_rounds=1)
    scope = Scope(task.calibrated, Ledger(), task.neighbours, "x")
    with pytest.raises(InvalidInput, match="not a party"):
        task.party("west", designs["north"], scope, RandomSource())
    with pytest.raises(InvalidInput, match="public facts"):
        task.party("south", designs["north"], scope, RandomSource())
    with pytest.raises(InvalidInput, match="one number for each"):
        task.coordinator(target[:-1], scope, RandomSource())
    party = task.party("north", designs["north"], scope, RandomSource())
    for bad in (
        Message("hello"),
        Message("residual", {"residual": np.zeros(3)}),
        Message("residual", {"residual": np.zeros(60, np.int64)}),
        Message("residual", {"residual": np.zeros(60), "more": np.zeros(1)}),
    ):
        with pytest.raises(InvalidInput, match=r"expected a message|protocol prescribes"):
            party.answer(bad)
    assert not scope.records
    party.answer(Message("residual", {"residual": np.full(60, np.nan)}))  # numbers are clipped, never refused
    with pytest.raises(PlanViolation, match="after the last round"):
        party.answer(Message("residual", {"residual": np.zeros(60)}))
    scope.settle()


@pytest.mark.parametrize("n_rounds", [3, 7, 8, 9])
@pytest.mark.parametrize("cls", [AdmmSharing, BlocksOverParties])
def test_releases_are_counted_without_going_through_the_rounds(cls, n_rounds):
    facts = Facts(n=50, n_features=2, d=2, value_bound=1.0, row_bound=1.0)
    task = cls(Objective(Logistic()), dict.fromkeys(("a", "b", "c"), facts), Budget(1.0, 1e-6), n_rounds=n_rounds)
    for name in task.parties:
        assert task.release_count(name) == sum(name in task.active_parties(t) for t in range(n_rounds))
    long = replace(task, n_rounds=MOST_ROUNDS)
    assert sum(r.count for r in long.plan().releases) == MOST_ROUNDS * (3 if cls is AdmmSharing else 1)
    with pytest.raises(InvalidInput, match="at most 1000000"):
        replace(task, n_rounds=MOST_ROUNDS + 1)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_report_lists_every_option_of_the_method(name):
    """They are public and shape the result: whoever reads the report must not have to guess them."""
    designs, _ = vertical_problem()
    task = VERTICAL_EXAMPLES[name](facts_of(designs), BUDGET)
    public = json.loads(task.report().to_json())["public"]
    common = {"objective", "parties", "budget", "neighbours", "target_low", "target_high"}
    assert {f.name for f in fields(task)} - common <= set(public)
    if name == "admm-sharing":
        given = {"step": 3.0, "averaging": 0.0, "box": 64.0, "rho": 0.25, "limit": 3.0, "n_rounds": 100}
        assert {key: public[key] for key in given} == given
