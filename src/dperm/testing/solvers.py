"""Checks of whole solvers: ledger equals plan, non-interference, noise-free limit."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DataHolder
from dperm.errors import PlanViolation, Unsupported
from dperm.objective import L1, L2, Huber, Logistic, Loss, Multinomial, NoPenalty, Objective, Squared
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.calibration import CalibratedPlan, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.boundary import observing
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import Scope
from dperm.privacy.mechanisms.standard import Mechanism
from dperm.privacy.randomness import RandomSource
from dperm.solvers.base import Solution, Solver
from dperm.testing._violation import ContractViolation, demand
from dperm.testing.canary import check_gradient_canary
from dperm.testing.data import Layout, design_data
from dperm.testing.evaluations import counted_evaluations
from dperm.testing.registered import RegisteredOnly

__all__ = [
    "check_ledger_is_plan",
    "check_noise_free_limit",
    "check_non_interference",
    "check_solver",
    "problem",
    "public_state",
]


def problem(seed: int = 0, n: int = 60, n_features: int = 3, intercept: float = 1.0) -> DesignData:
    """A small classification problem."""
    rng = np.random.default_rng(seed)
    layout = Layout(n=n, n_features=n_features, intercept=intercept)
    X = rng.uniform(-1.0, 1.0, (n, n_features))
    margin = X @ np.linspace(2.0, -1.0, n_features) + 0.3
    return design_data(layout, X, rng.random(n) < 1.0 / (1.0 + np.exp(-margin)))


def _objective(data: DesignData, penalty: Any = None) -> Objective:
    return Objective(Logistic(), penalty or L2(0.01), unpenalised=(data.design.n_features,))


def check_solver(solver: Solver, *, canary_runs: int = 1500, tolerance: float = 1e-4) -> None:
    """Run every whole-solver check; ``tolerance`` is that of the limit without noise."""
    check_ledger_is_plan(solver)
    check_non_interference(solver)
    check_noise_free_limit(solver, tolerance)
    check_gradient_canary(solver, _objective(problem(n=8)), problem(n=8), n_runs=canary_runs)


# -------------------------------------------------------------------------------------- ledger equals plan
def check_ledger_is_plan(solver: Solver, budget: Budget | None = None) -> None:
    """Check that after a run the ledger holds exactly what was planned, within the budget.

    Queries and mechanisms must be registered ones: any other code would see private data without a proof.
    """
    budget = budget or Budget(1.0, 1e-6)
    data = problem()
    objective = _objective(data)
    for neighbours in Neighbours:
        calibrated = calibrate(solver.plan(objective, data.facts), budget)
        if neighbours not in solver.supported_neighbours:
            _demand_refusal(solver, objective, data, calibrated, neighbours)
            continue
        ledger = Ledger(neighbours=neighbours)
        source = RandomSource()  # the ledger does not depend on the noise
        scope = Scope(calibrated, ledger, neighbours, "contract check")
        registered = RegisteredOnly()
        try:
            with scope, counted_evaluations() as evaluations, observing(registered):
                holder = DataHolder(data, scope, source, neighbours)
                solver.solve(objective, holder, calibrated)
            registered.finish()
        except PlanViolation as error:
            raise ContractViolation(f"{solver.name!r} left its plan: {error}") from None
        charges = len(scope.records) - sum(record.forfeited for record in scope.records)
        paid = sum(one.units for one in holder.released)
        demand(
            evaluations.count == len(holder.released) and charges == paid,
            f"{solver.name!r} evaluated {evaluations.count} queries, was charged for {charges} "
            f"and released {len(holder.released)} that cost {paid}.",
        )
        forfeited = sum(record.count for record in scope.records if record.forfeited)
        demand(forfeited == 0, f"{solver.name!r} planned {forfeited} releases that it never made.")
        recorded: Counter[Any] = Counter()
        for record in scope.records:
            for leaf, count in composition.leaves(record.event).items():
                recorded[leaf] += count * record.count
        demand(recorded == Counter(composition.leaves(calibrated.event)), f"{solver.name!r}: ledger differs from plan.")
        spent = ledger.spent(delta=budget.delta).epsilon
        demand(spent <= budget.epsilon * (1.0 + 1e-9), f"{solver.name!r} spent {spent:.6g} of {budget.epsilon:g}.")


def _demand_refusal(
    solver: Solver, objective: Objective, data: DesignData, calibrated: CalibratedPlan, neighbours: Neighbours
) -> None:
    """Check that a relation without proof is refused by name, and by the holder before anything is released."""
    message = f"{solver.name!r} runs under {neighbours}, which it says is not proved."
    try:
        solver.check_neighbours(neighbours)
    except Unsupported:
        pass
    else:
        raise ContractViolation(message)
    released: list[Any] = []
    try:
        with Scope(calibrated, Ledger(neighbours=neighbours), neighbours, "contract check") as scope:
            holder = DataHolder(data, scope, RandomSource(), neighbours)
            released = holder.released
            solver.solve(objective, holder, calibrated)
    except Unsupported:
        demand(not released, message)
        return
    raise ContractViolation(message)


# ---------------------------------------------------------------------------------------- non-interference
class _StandIn(RegisteredOnly):
    """Gives every mechanism the value of stand-in data in place of its input; it records all queries.

    The holder keeps and evaluates its own data, so whatever reaches the result by another way than a mechanism shows.
    """

    def __init__(self, stand_in: DesignData) -> None:
        super().__init__()
        self._stand_in = stand_in
        self.queries: list[Any] = []

    def evaluated(self, query: Any, value: Any, facts: Any) -> Any:
        """Record a query."""
        self.queries.append(public_state(query))
        return super().evaluated(query, value, facts)

    def drawn(self, mechanism: Mechanism, value: Any, sensitivity: float, bound: float, source: RandomSource) -> Any:
        """Draw noise for the stand-in's value; ``value`` is not used."""
        return mechanism.draw(self.query.evaluate(self._stand_in), sensitivity, bound, source)


def public_state(thing: Any) -> Any:
    """Return everything a query holds, in a form that can be compared bit for bit."""
    if isinstance(thing, np.ndarray):
        return (thing.shape, thing.dtype.str, thing.tobytes())
    if is_dataclass(thing) and not isinstance(thing, type):
        return (type(thing).__name__, *(public_state(getattr(thing, f.name)) for f in fields(thing)))
    return repr(thing)


#: the releases of a solver and their use differ between losses
_LOSSES: tuple[Loss, ...] = (Logistic(), Squared(residual_clip=1.0), Huber(0.3), Multinomial(3))


def check_non_interference(solver: Solver) -> None:
    """Take every release from stand-in data: queries, noise scales and result must not depend on the solver's own data.

    The stand-in data have a skewed target or a rare class, and there is a run with much noise and one with little.
    Releases of zero would not test how a solver treats skew, rare classes and small noise.
    """
    supported = 0
    for loss in _LOSSES:
        objective = Objective(loss, L2(0.01), unpenalised=(3,))
        stand_in = _skewed_problem(loss, 13, 0.3)
        for epsilon in (1.0, 30.0):
            try:
                calibrated = calibrate(solver.plan(objective, stand_in.facts), Budget(epsilon, 1e-6))
            except Unsupported:
                continue  # refused before anything happens, with its reason
            supported += 1
            runs = [
                _run_on_stand_in(solver, objective, _skewed_problem(loss, seed, power), stand_in, calibrated)
                for seed, power in ((11, 0.0), (12, 0.6))
            ]
            on = f"({loss.name}, epsilon {epsilon:g})"
            demand(runs[0][0] == runs[1][0], f"{solver.name!r} used different queries on different data {on}.")
            demand(runs[0][1] == runs[1][1], f"{solver.name!r} used different noise on different data {on}.")
            message = f"{solver.name!r}'s result depends on the data in other ways than through its releases {on}."
            demand(runs[0][2:] == runs[1][2:], message)
    demand(supported > 0, f"{solver.name!r} refuses every loss of the check, so nothing was checked.")


def _skewed_problem(loss: Loss, seed: int, power: float, n: int = 60) -> DesignData:
    """Return a small problem for a loss; the larger the power, the more targets lie at the low end."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    low = np.clip(rng.random(n) + 0.2 * X[:, 0], 0.0, 1.0) ** (1.0 + 10.0 * power)
    target = low if loss.task == "regression" else np.floor(low * max(2, loss.n_outputs) * (1.0 - 1e-9))
    target[0] = max(1.0, loss.n_outputs - 1.0)  # the range is public and must be the same for all
    return design_data(Layout(n=n, n_features=3, intercept=1.0), X, target)


def _run_on_stand_in(
    solver: Solver, objective: Objective, data: DesignData, stand_in: DesignData, calibrated: CalibratedPlan
) -> tuple[Any, ...]:
    neighbours = solver.supported_neighbours[0]
    seeded = "the same noise twice, for comparison"
    scope = Scope(calibrated, Ledger(neighbours=neighbours), neighbours, "contract check", unbounded=seeded)
    # a copy: results kept by queries must not pass from one run to the next
    observer = _StandIn(replace(stand_in))
    holder = DataHolder(data, scope, RandomSource(insecure_seed=5), neighbours)
    with scope, observing(observer):
        solution = solver.solve(objective, holder, calibrated)
    observer.finish()
    return observer.queries, holder.released, public_state(solution.weights), solution.n_steps, solution.notes


# ----------------------------------------------------------------------------------------- noise-free limit
def check_noise_free_limit(solver: Solver, tolerance: float = 1e-4) -> None:
    """Check that with almost no noise the solver reaches the optimum of a trusted solver on the same scaled data."""
    data = problem(3, n=200)
    supported = 0
    for penalty in (L2(0.05), L1(0.02), NoPenalty()):
        objective = _objective(data, penalty)
        try:
            solver.plan(objective, data.facts)
        except Unsupported:
            continue  # refused before anything happens, with its reason
        supported += 1
        solution = _almost_noise_free(solver, objective, data)
        X = np.concatenate([block * data.design.spacing for _, block in data.design.row_chunks()])
        best = trusted_optimum(objective, X, data.target)
        reached = objective.value(X, data.target, solution.weights)
        demand(
            reached - best <= tolerance * max(1.0, abs(best)),
            f"{solver.name!r} without noise reaches {reached:.6g} with penalty {penalty.name!r}; {best:.6g} is best.",
        )
    demand(supported > 0, f"{solver.name!r} refuses every penalty of the check, so nothing was checked.")


def _almost_noise_free(solver: Solver, objective: Objective, data: DesignData) -> Solution:
    calibrated: CalibratedPlan = calibrate(solver.plan(objective, data.facts), Budget(1e9, 1e-6))
    scope = Scope(calibrated, Ledger(neighbours=Neighbours.ZERO_OUT), Neighbours.ZERO_OUT, "contract check")
    with scope:
        holder = DataHolder(data, scope, RandomSource(), Neighbours.ZERO_OUT)
        return solver.solve(objective, holder, calibrated)


def trusted_optimum(objective: Objective, X: Any, y: Any) -> float:
    """Return the optimum by scipy, with w = a - b and a, b >= 0, which makes an L1 penalty linear."""
    d = X.shape[1]

    def value_and_gradient(ab: Any) -> tuple[float, Any]:
        w = ab[:d] - ab[d:]
        smooth = objective.gradient(X, y, w)
        if objective.penalty.smooth:
            smooth = smooth + objective.penalty_gradient(w)
            return objective.value(X, y, w), np.concatenate([smooth, -smooth])
        linear = np.full(d, objective.penalty.strength)
        linear[list(objective.unpenalised)] = 0.0
        plain = Objective(objective.loss)
        return plain.value(X, y, w) + linear @ (ab[:d] + ab[d:]), np.concatenate([smooth + linear, linear - smooth])

    found = minimize(
        value_and_gradient,
        np.full(2 * d, 0.1),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * (2 * d),
        options={"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-10},
    )
    return float(objective.value(X, y, found.x[:d] - found.x[d:]))
