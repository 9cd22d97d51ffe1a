"""Whole-run checks of vertical tasks: every ledger equals the plan, messages reveal nothing, correct without noise.

Non-interference: with every release replaced by data-free noise, two unrelated data sets must give the same result, the
same public arrays and facts, and messages of the same lengths. In the transcript view every byte must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix
from dperm.data.holding.holder import DataHolder
from dperm.errors import PlanViolation
from dperm.objective import L1, L2, ElasticNet, Logistic, Objective, Squared
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.boundary import Observer, observing
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.standard import Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.privacy.recording import Recorder, snapshot
from dperm.solvers.vertical import (
    AdmmSharing,
    BlocksOverParties,
    DistributedFrankWolfe,
    ExactSharing,
    Message,
    MessageLog,
    PrintedFrankWolfe,
    SgdOverParties,
    SketchedFrankWolfe,
    TranscriptSharing,
    VerticalResult,
    VerticalTask,
    run_in_process,
)
from dperm.solvers.vertical.views import VIEWS
from dperm.testing._violation import ContractViolation, demand
from dperm.testing.canary import CanaryValues, NoCharges, excess_delta, gaussian_evidence
from dperm.testing.data import Layout
from dperm.testing.distance import change_over_sensitivity
from dperm.testing.evaluations import counted_evaluations
from dperm.testing.whole_path.blind import BlindMechanisms
from dperm.types import FloatArray

__all__ = [
    "VERTICAL_EXAMPLES",
    "VerticalRun",
    "check_vertical",
    "check_vertical_canary",
    "check_vertical_ledgers",
    "check_vertical_noise_free",
    "check_vertical_non_interference",
    "check_vertical_sensitivity",
    "only_noise",
    "run_vertical",
    "short_task",
    "vertical_problem",
]

Designs = Mapping[str, DesignMatrix]
Make = Callable[[Mapping[str, Facts], Budget], VerticalTask]

_SIZES = {"north": (3, 0.0), "south": (2, 1.0)}


def vertical_problem(
    seed: int = 0, n: int = 60, sizes: Mapping[str, tuple[int, float]] | None = None
) -> tuple[dict[str, DesignMatrix], FloatArray]:
    """Return a small classification problem; ``sizes`` gives each party's number of columns and intercept height."""
    rng = np.random.default_rng(seed)
    designs, margin = {}, np.full(n, 0.3)
    for name, (width, intercept) in (sizes or _SIZES).items():
        X = rng.uniform(-1.0, 1.0, (n, width))
        margin += X @ np.linspace(2.0, -1.0, width)
        designs[name] = DesignMatrix.from_array(X, Layout(n=n, n_features=width).scaling(), intercept)
    return designs, (rng.random(n) < 1.0 / (1.0 + np.exp(-margin))).astype(float)


def facts_of(designs: Designs) -> dict[str, Facts]:
    """Return the public facts of every party's columns."""
    return {name: Facts.of_design(design.shape) for name, design in designs.items()}


def short_task(task: VerticalTask, most: int = 6) -> VerticalTask:
    """Return the task with few rounds: ledger entries and messages are alike in every round."""
    for name in ("n_steps", "n_rounds"):
        if any(f.name == name for f in fields(task)):
            return replace(task, **{name: min(most, getattr(task, name))})
    return task


@dataclass(frozen=True)
class VerticalRun:
    """A finished run with all its messages and scopes."""

    result: VerticalResult
    messages: MessageLog
    scopes: Mapping[str, Scope]


def run_vertical(
    task: VerticalTask,
    designs: Designs,
    target: FloatArray,
    *,
    seed: int | None = None,
    prepare: Callable[[Any], None] | None = None,
    observer: Observer | None = None,
) -> VerticalRun:
    """Run a task in this process, every participant with its own ledger.

    ``prepare`` is called with each program; ``observer`` sees the mechanism boundary of all participants.
    """
    unbounded = task.no_guarantee if seed is None else "the same noise twice, for comparison"
    names = ("coordinator", *designs)
    scopes = {
        name: Scope(task.calibrated, Ledger(neighbours=task.neighbours), task.neighbours, "check", unbounded=unbounded)
        for name in names
    }
    coordinator = task.coordinator(target, scopes["coordinator"], task.source("coordinator", seed))
    parties = {
        name: task.party(name, design, scopes[name], task.source(name, seed)) for name, design in designs.items()
    }
    for program in (coordinator, *parties.values()):
        if prepare is not None:
            prepare(program)
    messages = MessageLog(keep=True)
    with observing(observer) if observer is not None else nullcontext():
        result = run_in_process(coordinator, parties, messages)
    for scope in scopes.values():
        scope.settle()
    return VerticalRun(result, messages, scopes)


def check_vertical(make: Make, *, optimum: bool = True) -> None:
    """Run every check of a vertical task."""
    check_vertical_ledgers(make)
    check_vertical_non_interference(make)
    check_vertical_sensitivity(make)
    if optimum:
        check_vertical_noise_free(make)


# ---------------------------------------------------------------------------------------- ledgers equal plan
def check_vertical_ledgers(make: Make, budget: Budget | None = None, may_forfeit: tuple[str, ...] = ()) -> None:
    """Check that every participant's ledger holds the whole run's plan, and that it is within the budget."""
    designs, target = vertical_problem()
    task = short_task(make(facts_of(designs), budget or Budget(1.0, 1e-6)))
    may_forfeit = may_forfeit or getattr(task, "may_forfeit", ())
    try:
        holders: list[DataHolder] = []
        with counted_evaluations() as evaluations:
            run = run_vertical(task, designs, target, prepare=lambda program: holders.append(program.holder))
    except PlanViolation as error:
        raise ContractViolation(f"{task.name!r} left its plan: {error}") from None
    paid = sum(len(holder.released) + len(holder.shared) for holder in holders)
    demand(
        evaluations.count == paid,
        f"{task.name!r} evaluated {evaluations.count} queries and released or shared {paid} values.",
    )
    for name, scope in run.scopes.items():
        lost = {record.query for record in scope.records if record.forfeited} - set(may_forfeit)
        demand(not lost, f"{task.name!r}: {name} never recorded releases of {', '.join(sorted(lost))}.")
        recorded: Counter[Any] = Counter()
        for record in scope.records:
            for leaf, count in composition.leaves(record.event).items():
                recorded[leaf] += count * record.count
        planned = Counter(composition.leaves(task.calibrated.event))
        if scope.unbounded is not None:
            recorded = Counter({event: count for event, count in recorded.items() if event in planned})
        demand(recorded == planned, f"{task.name!r}: the ledger of {name} differs from the plan.")
    guarantee = run.result.report.guarantee
    demand(
        (guarantee is None) == (task.no_guarantee is not None), f"{task.name!r} reports the wrong kind of guarantee."
    )
    if guarantee is not None:
        spent = run.scopes["coordinator"].ledger.spent(delta=task.budget.delta).epsilon
        demand(spent <= task.budget.epsilon * (1.0 + 1e-9), f"{task.name!r} spent {spent:.6g}.")
        demand(guarantee.view == task.view, f"{task.name!r} reports another view than it has.")


# ---------------------------------------------------------------------------------------- non-interference
def only_noise() -> BlindMechanisms:
    """Return an observer that makes every release noise around zero; values shared inside the domain stay true."""
    return BlindMechanisms("zero", fields_are_public=False)


def claims_something(task: VerticalTask) -> bool:
    """Whether the task states a guarantee, or at least a certified epsilon for what leaves the domain."""
    return task.no_guarantee is None or task.certifies_transcript


def check_vertical_non_interference(make: Make) -> None:
    """Check that, with data-free noise as releases, neither what leaves the domain nor any length depends on data."""
    seen = []
    for seed in (11, 12):
        designs, target = vertical_problem(seed)
        task = short_task(make(facts_of(designs), Budget(1.0, 1e-6)))
        if not claims_something(task):
            return
        run = run_vertical(task, designs, target, seed=5, observer=only_noise())
        messages = [m for batch in zip(run.messages.requests, run.messages.replies, strict=True) for m in batch]
        lengths = [{name: message_form(one) for name, one in batch.items()} for batch in messages]
        public = [{name: public_part(one, task) for name, one in batch.items()} for batch in messages]
        weights = {name: value.tobytes() for name, value in run.result.weights.items()}
        seen.append((lengths, public, weights))
    name = task.name
    demand(seen[0][0] == seen[1][0], f"{name!r}: shapes or lengths of messages depend on the data.")
    demand(seen[0][1] == seen[1][1], f"{name!r}: what leaves the domain depends on the data.")
    demand(seen[0][2] == seen[1][2], f"{name!r}: its result depends on the data other than through its releases.")


def message_form(message: Message) -> Any:
    arrays = {name: (value.dtype.str, value.shape) for name, value in message.arrays.items()}
    return message.kind, arrays, sorted(message.facts), sorted(message.summed)


def public_part(message: Message, task: VerticalTask) -> Any:
    everything = VIEWS[task.view].covers_participants
    arrays = {
        name: value.tobytes() for name, value in message.arrays.items() if everything or name in task.public_arrays
    }
    return message.kind, arrays, dict(message.facts)


# ----------------------------------------------------------------------------------------- one person's influence
class _BlindRecorder(Recorder):
    """Records every release with its true value, and draws its noise around zero."""

    def __init__(self) -> None:
        super().__init__()
        self._blind = only_noise()

    def apply(self, mechanism: Mechanism, value: Any, sensitivity: float, bound: float, source: RandomSource) -> Any:
        """Record the value and release noise."""
        output = self._blind.apply(mechanism, value, sensitivity, bound, source)
        self.releases.append(self.entry(mechanism, snapshot(value), sensitivity, bound, output))
        return output


def check_vertical_sensitivity(make: Make) -> float:
    """Check that replacing one person's record changes no release of the run by more than its declared sensitivity.

    All public values are the same in both runs, so this checks that a person's residuals, scores and duals never
    affect another person's. Returns the largest change in units of the declared sensitivity.
    """
    largest = 0.0
    # a row that turns round with its label has the same gradient at zero weights, so one person keeps the label
    for person, corner, labels in ((17, 1.0, (0.0, 0.0)), (3, -1.0, (0.0, 1.0))):
        recorded = []
        for moved in (False, True):
            designs, target = vertical_problem(21)
            rows = {name: np.concatenate([b * d.spacing for _, b in d.row_chunks()]) for name, d in designs.items()}
            for name, (width, intercept) in _SIZES.items():
                table = rows[name][:, :width]
                table[person] = -corner if moved else corner
                designs[name] = DesignMatrix.from_array(table, Layout(n=60, n_features=width).scaling(), intercept)
            target[person] = labels[moved]
            task = short_task(make(facts_of(designs), Budget(1.0, 1e-6)))
            if not claims_something(task):
                return 0.0
            recorder = _BlindRecorder()
            run_vertical(task, designs, target, seed=5, observer=recorder)
            recorded.append(recorder.releases)
        demand(len(recorded[0]) == len(recorded[1]), f"{task.name!r} releases more or less on neighbouring data.")
        for one, two in zip(*recorded, strict=True):
            ratio = change_over_sensitivity(one, two, person, task.neighbours)
            demand(
                ratio <= 1.0 + 1e-12,
                f"{task.name!r}: one person moved {one.query!r} by {ratio:.4g} times its declared sensitivity.",
            )
            largest = max(largest, ratio)
    demand(largest > 0.05, f"{task.name!r}: the neighbouring data sets are too similar to reveal a mistake.")
    return largest


# ------------------------------------------------------------------------------------------------ the canary
class _CanaryStatistic:
    """Sums up the evidence in everything that the programs release.

    A party's part of a joint selection stays inside the trusted domain and does not count.
    """

    def __init__(self) -> None:
        self.statistic = 0.0

    def __call__(self, program: Any) -> None:
        holder: DataHolder = program.holder
        release = holder.release

        def listen(query: Any, mechanism: Any, group: str | None = None, units: int = 1) -> Any:
            out = release(query, mechanism, group, units)
            if mechanism.kind == "gaussian":
                self.statistic += gaussian_evidence(query, mechanism, out, holder.facts)
            return out

        holder.release = listen  # type: ignore[method-assign]


def check_vertical_canary(make: Make, *, n_runs: int = 200, seed: int = 0, confidence: float = 0.9999) -> None:
    """Attack a task through its releases: detect in many short runs whether one person takes part (model view)."""
    designs, target = vertical_problem(n=8)
    task = replace(short_task(make(facts_of(designs), Budget(4.0, 1e-3)), 3), neighbours=Neighbours.ZERO_OUT)
    source, samples = RandomSource(seed), []
    for present in (False, True):
        rows = []
        for _ in range(n_runs):
            canary = _CanaryStatistic()
            coordinator = task.coordinator(target, NoCharges(), source)
            parties = {name: task.party(name, design, NoCharges(), source) for name, design in designs.items()}
            for program in (coordinator, *parties.values()):
                canary(program)
            with observing(CanaryValues(present)):
                weights = run_in_process(coordinator, parties).weights
            rows.append((canary.statistic, float(sum(np.sign(value).sum() for value in weights.values()))))
        samples.append(np.array(rows))
    event = task.calibrated.event
    excess = max(
        excess_delta(one, two, event, 1.0 - (1.0 - confidence) / 2)
        for a, b in zip(samples[1].T, samples[0].T, strict=True)
        for one, two in ((a, b), (b, a), (-a, -b), (-b, -a))
    )
    demand(excess <= 0.0, f"{task.name!r} leaks more than it claims: its delta is exceeded by at least {excess:.3g}.")


# ---------------------------------------------------------------------------------------- noise-free limit
def check_vertical_noise_free(make: Make, tolerance: float = 1e-3) -> None:
    """Check that a task with almost no noise reaches the optimum of a trusted solver on the pooled, scaled columns."""
    designs, target = vertical_problem(3, n=200)
    task = make(facts_of(designs), Budget(1e9, 1e-6))
    run = run_vertical(task, designs, target)
    X = np.column_stack([np.concatenate([block * d.spacing for _, block in d.row_chunks()]) for d in designs.values()])
    from dperm.testing.solvers import trusted_optimum

    free, start = [], 0
    for name, facts in task.parties.items():
        free += [start + j for j in task.unpenalised(name)]
        start += facts.d
    objective = Objective(task.objective.loss, task.objective.penalty, unpenalised=tuple(free))
    weights = np.concatenate([run.result.weights[name] for name in designs])
    reached, best = objective.value(X, target, weights), trusted_optimum(objective, X, target)
    demand(
        reached - best <= tolerance * max(1.0, abs(best)),
        f"{task.name!r} reaches {reached:.6g} without noise, and the optimum is {best:.6g}.",
    )


#: a configuration of every task that converges when there is no noise, from public facts and a budget
VERTICAL_EXAMPLES: dict[str, Make] = {
    AdmmSharing.name: lambda parties, budget: AdmmSharing(
        Objective(Logistic(), L2(0.05)), parties, budget, n_rounds=100, limit=3.0, step=3.0, rho=0.25
    ),
    BlocksOverParties.name: lambda parties, budget: BlocksOverParties(
        Objective(Logistic(), L1(0.02)), parties, budget, n_rounds=200, limit=3.0, step=3.0
    ),
    TranscriptSharing.name: lambda parties, budget: TranscriptSharing(
        Objective(Logistic(), L2(0.05)), parties, budget, n_rounds=100, limit=3.0, step=3.0, rho=0.25, score_clip=20.0
    ),
    DistributedFrankWolfe.name: lambda parties, budget: DistributedFrankWolfe(
        Objective(Logistic()), parties, budget, n_steps=400, radius=8.0
    ),
    SketchedFrankWolfe.name: lambda parties, budget: SketchedFrankWolfe(
        Objective(Squared(residual_clip=4.0)), parties, budget, n_steps=30, radius=2.0, n_sketch=64
    ),
    PrintedFrankWolfe.name: lambda parties, budget: PrintedFrankWolfe(
        Objective(Squared(residual_clip=4.0)), parties, budget, n_steps=30, radius=1.0, n_sketch=64
    ),
    ExactSharing.name: lambda parties, budget: ExactSharing(
        Objective(Logistic(), ElasticNet(0.05, 0.5)), parties, budget, n_rounds=40, rho=0.5
    ),
    SgdOverParties.name: lambda parties, budget: SgdOverParties(
        Objective(Logistic(), L2(0.05)), parties, budget, n_rounds=300, batch=50, step=1.0
    ),
}
