"""What a fit is asked for, all of it public, and the data-free plan that follows from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dperm.data.design.bounds import Bounds, QuantilePurchase
from dperm.data.design.facts import Facts
from dperm.data.design.matrix import Shape
from dperm.data.holding.holder import DryRunHolder
from dperm.errors import InvalidBounds, Unsupported
from dperm.objective import Objective
from dperm.privacy.accounting import gdp
from dperm.privacy.accounting.budget import Budget, default_delta
from dperm.privacy.accounting.calibration import CalibratedPlan, Plan, calibrate
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.ledger import Ledger
from dperm.queries.quantiles import INNERMOST_LEVEL, rank_error, with_purchase
from dperm.queries.statistics import QuantileScores, TargetQuantileScores
from dperm.solvers import Progress, Solver
from dperm.types import BoolArray

__all__ = ["CLASSES", "NUMBERS", "FitRequest", "PreparedFit", "dry_run", "prepare", "resolve_bounds"]

#: what a target is
CLASSES, NUMBERS = "classes", "numbers"

_LEAST_EPSILON = 1e-12


@dataclass(frozen=True)
class FitRequest:
    """Everything a fit needs besides the data; all of it public.

    ``n_heads`` is the number of two-class problems that a one-vs-rest fit solves inside one plan, else 1.
    """

    objective: Objective
    solver: Solver
    budget_epsilon: float
    budget_delta: float | None
    bounds: Bounds
    neighbours: Neighbours
    fit_intercept: bool
    ledger: Ledger | None
    insecure_seed: int | None
    purpose: str
    assumptions: tuple[str, ...]
    feature_names: Sequence[str] | None = None
    boolean: BoolArray | None = None
    target: str = CLASSES
    n_classes: int = 2
    n_heads: int = 1
    progress: Progress | None = None
    calibration: str = "certified"

    @property
    def target_ends(self) -> tuple[float, float]:
        """Public bounds of the scaled target, or of the class codes."""
        if self.target == NUMBERS:
            return -1.0, 1.0
        return 0.0, 1.0 if self.n_heads > 1 else self.n_classes - 1.0

    @property
    def buys_target(self) -> bool:
        """Whether the range of the target is bought."""
        return self.target == NUMBERS and self.bounds.target is None

    @property
    def purchase(self) -> QuantilePurchase:
        """How whatever is not declared is bought."""
        return self.bounds.purchase or QuantilePurchase()

    def buys_features(self, n_features: int) -> bool:
        """Whether the range of any column is bought."""
        return bool(self.bounds.bought_columns(n_features, self.boolean).any())

    def n_columns_bought(self, n_features: int) -> int:
        """Number of columns whose ranges are bought."""
        return int(self.bounds.bought_columns(n_features, self.boolean).sum())

    def n_bought(self, n_features: int) -> int:
        """Number of ranges that are bought."""
        return self.n_columns_bought(n_features) + int(self.buys_target)

    @property
    def height(self) -> float:
        """Height of the constant column, 0 without one."""
        return 1.0 if self.fit_intercept else 0.0


@dataclass(frozen=True)
class PreparedFit:
    """A plan with its noise, rehearsed without data; nothing is reserved yet."""

    budget: Budget
    facts: Facts
    #: the solver that was asked for, or the one that an automatic rule chose
    solver: Solver
    calibrated: CalibratedPlan
    #: the same plan as the solver sees it: with its own part of the budget
    for_solver: CalibratedPlan
    #: why the result will carry no guarantee, if so
    unbounded: str | None = None


def resolve_bounds(bounds: Bounds | str | None) -> Bounds:
    """Return the bounds to use: as declared, or bought when None."""
    if bounds is None:
        return Bounds.private_quantiles()
    if not isinstance(bounds, Bounds):
        raise InvalidBounds(f"bounds must be a Bounds, 'declare' or None, not {type(bounds).__name__}.")
    return bounds


def facts_of(request: FitRequest, n: int, n_features: int) -> Facts:
    """Return the public facts of a fit, known before any data."""
    bounds = request.bounds
    shape = Shape.of(n, n_features, bounds.scaled_clip, bounds.row_norm, request.height, bounds.spread)
    return Facts.of_design(shape, *request.target_ends)


def plan_of(request: FitRequest, solver: Solver, facts: Facts) -> Plan:
    """Return the data-free plan of a fit: bought ranges, then the solver's releases for every head."""
    plan = solver.plan(request.objective, facts)
    if request.n_heads > 1:
        # every head makes the same releases with equal noise: K times as many of each, one share
        plan = Plan(tuple(replace(r, count=r.count * request.n_heads) for r in plan.releases))
    if not request.n_bought(facts.n_features):
        return plan
    return with_purchase(plan, request.purchase, request.n_columns_bought(facts.n_features), request.buys_target)


def prepare(request: FitRequest, n: int, n_features: int) -> PreparedFit:
    """Choose, plan, calibrate and dry_run a fit: whatever is refused is refused here, at no cost."""
    delta = default_delta(n) if request.budget_delta is None else request.budget_delta
    budget, facts = Budget(request.budget_epsilon, delta), facts_of(request, n, n_features)
    own = _own_part(request, budget, n_features)
    solver = request.solver.configured(request.objective, facts, own, request.neighbours)
    solver.check_neighbours(request.neighbours)
    unbounded = None
    if request.calibration == "paper":
        if request.n_bought(n_features):
            raise Unsupported("a printed calibration has no room for buying bounds: declare them.")
        if request.neighbours is not Neighbours.REPLACE_ONE:
            raise Unsupported("printed calibrations are stated for replace-one: use neighbours='replace-one'.")
        if request.n_heads > 1:
            raise Unsupported("printed calibrations are stated for one problem: give two classes.")
        printed = solver.printed(request.objective, facts, budget)
        calibrated, unbounded = printed.calibrated, printed.reason
    else:
        calibrated = calibrate(plan_of(request, solver, facts), budget)
    _refuse_ruin(request, calibrated, n)
    made = PreparedFit(budget, facts, solver, calibrated, replace(calibrated, budget=own), unbounded)
    dry_run(request, made)
    return made


def _refuse_ruin(request: FitRequest, calibrated: CalibratedPlan, n: int) -> None:
    """Refuse to buy the target's range where it may come out anywhere: predictions would then be off without limit."""
    if not request.buys_target:
        return
    needed = rank_error(request.purchase, calibrated, TargetQuantileScores) / INNERMOST_LEVEL
    if needed > n:
        features = "" if request.bounds.purchase is not None else "features=..., "
        raise Unsupported(
            f"{n} rows are too few to buy the target's range with this budget, which takes about {math.ceil(needed)}: "
            f"declare it, bounds=Bounds({features}target=(lo, hi)) with publicly known numbers, or raise epsilon."
        )


def dry_run(request: FitRequest, prepared: PreparedFit) -> None:
    """Try the solver without data: whatever it would be refused for is refused here."""
    calibrated = prepared.calibrated
    bought = (QuantileScores.name, TargetQuantileScores.name)
    releases = [r for r in calibrated.plan.releases if r.query not in bought]
    trial = DryRunHolder(prepared.facts, request.neighbours, {r.query: r.event(calibrated.scale) for r in releases})
    trial.run(lambda holder: prepared.solver.solve(request.objective, holder, prepared.for_solver))


def _own_part(request: FitRequest, budget: Budget, n_features: int) -> Budget:
    """Return the part of the budget that the solver has for one problem: what is not bought with, over all heads.

    A solver reads its noise from the plan; the budget tells it how much noise to expect.
    """
    bought = request.purchase.budget_share if request.n_bought(n_features) else 0.0
    part = (1.0 - bought) / request.n_heads
    if part == 1.0:
        return budget
    epsilon = gdp.epsilon_of(budget.mu * math.sqrt(part), budget.delta)
    return Budget(max(epsilon, _LEAST_EPSILON), budget.delta)
