"""Carries out a fit. Its stops, in order:

1. check parameters and data           ``base.py``, ``data_checks.py``
2. plan, calibrate and dry-run         ``request.py``: :func:`prepare`, from public facts only
3. scale with declared bounds          :meth:`FitRun.scale_declared`; a mistake in them costs nothing
4. warn of little use                  :meth:`FitRun.fit`; from public numbers, before anything is charged
5. reserve the whole plan              :meth:`FitRun.reserve`
6. buy ranges, scale, solve            :meth:`FitRun.solve`; every release is checked against the plan
7. settle                              :func:`check_settled`: the ledger's records equal the plan
8. report                              :meth:`FitRun.result`; coefficients in the user's units
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dperm.data.design.matrix import Scaling
from dperm.data.design.target_range import TargetRange
from dperm.data.executors.executor import Executor, PlacedData, TargetView
from dperm.data.executors.placing import place
from dperm.data.executors.target_rules import AsGiven, OneAgainstRest, ScaledTarget, TargetRule
from dperm.data.executors.threads import one_thread_for_linear_algebra
from dperm.data.holding.holder import DataHolder, Released
from dperm.data.holding.table_data import TableData
from dperm.data.tables.row_source import RowSource
from dperm.errors import InvalidBounds, PlanViolation, UtilityWarning
from dperm.estimators.central.data_checks import TrainingData
from dperm.estimators.central.ranges import RangePurchase
from dperm.estimators.central.report import dense_notes, report_of
from dperm.estimators.central.request import NUMBERS, PreparedFit
from dperm.privacy.accounting import composition
from dperm.privacy.ledger import Ledger
from dperm.privacy.ledger.scope import InnerScope, Scope, SearchScope
from dperm.privacy.randomness import RandomSource
from dperm.reporting.report import PrivacyReport
from dperm.solvers import Progress, Solution
from dperm.types import FloatArray

__all__ = ["FitResult", "FitRun", "Solved", "check_settled", "warn_caller"]

SEEDED = "insecure_seed makes the noise reproducible"

#: public constants of the scaling, and the scaled rows with their targets, where they are
ScaledRows = tuple[Scaling, Executor]


@dataclass(frozen=True)
class FitResult:
    """Coefficients in the user's units, the public constants of the scaling, and the report."""

    coefficients: FloatArray
    intercept: FloatArray
    n_steps: tuple[int, ...]
    scaling: Scaling
    target_range: TargetRange | None
    report: PrivacyReport


@dataclass(frozen=True)
class Solved:
    """The solver's weights, in the scaled design, and everything that was released on the way."""

    weights: FloatArray
    n_steps: tuple[int, ...]
    scaling: Scaling
    rows: Executor
    target_range: TargetRange | None
    released: tuple[Released, ...]
    #: doubts about the model that follow from the released values
    notes: tuple[str, ...] = ()

    @cached_property
    def in_user_units(self) -> tuple[FloatArray, FloatArray]:
        """Coefficients and intercept in the user's units."""
        height = self.rows.shape.intercept_height
        coefficients, intercept = self.scaling.coefficients_in_user_units(self.weights, height)
        if self.target_range is not None:
            coefficients = coefficients * self.target_range.half_width
            intercept = self.target_range.centre + self.target_range.half_width * intercept
        return coefficients, intercept


class FitRun:
    """One fit with its prepared plan, its data and its noise; a search makes one for each of its candidates."""

    def __init__(self, prepared: PreparedFit, data: TrainingData, source: RandomSource) -> None:
        self.prepared, self.data, self.source = prepared, data, source
        self.request = prepared.request
        #: rows scaled with declared bounds; None where ranges are bought
        self.scaled: ScaledRows | None = None

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger to charge: the one that is given, or a new one in memory."""
        given = self.request.ledger
        return Ledger(neighbours=self.request.neighbours) if given is None else given

    def fit(self) -> FitResult:
        """Carry out the whole fit."""
        self.scale_declared()
        warn_caller(self.prepared.utility_warnings)
        with self.reserve() as scope:
            solved = self.solve(scope)
        check_settled(scope)
        warn_caller(solved.notes)
        return self.result(scope, solved)

    # ---------------------------------------------------------------------------------- before anything is reserved
    def scale_declared(self, known: Iterable[ScaledRows] = ()) -> None:
        """Scale the rows with declared bounds; where ranges are bought, refuse what can be refused already.

        A ``known`` design of the same data is used again.
        """
        request, X, bounds = self.request, self.data.X, self.request.bounds
        if not request.buys_features(X.shape[1]):
            scaling = bounds.scaling(X.shape[1], request.feature_names, request.fit_intercept, request.boolean)
            for one in known:
                if _same(one[0], scaling) and (one[1].shape.intercept_height > 0.0) == request.fit_intercept:
                    self.scaled = one
                    return
            self.scaled = scaling, self._placed(scaling)
            return
        if sp.issparse(X) and bounds.row_norm is not None and request.fit_intercept:
            raise InvalidBounds(
                "row_norm with sparse data and bought bounds is not possible: declare the bounds, with centre=0."
            )
        if isinstance(X, RowSource):  # its values are read later, so it is checked now
            X.check_with(self.data.target)

    def reserve(self) -> Scope:
        """Reserve the whole plan in the ledger; the scope that is returned admits nothing else."""
        request, prepared = self.request, self.prepared
        return Scope(
            prepared.calibrated,
            self.ledger,
            request.neighbours,
            request.purpose,
            fingerprint=self.data.fingerprint(request.ledger),
            unbounded=prepared.unbounded if self.source.secure else SEEDED,
        )

    # ---------------------------------------------------------------------------------- inside the scope
    def solve(self, scope: InnerScope) -> Solved:
        """Make the releases of the plan: ranges that are bought, then the solver's."""
        with one_thread_for_linear_algebra():
            return self._solve(scope)

    def _solve(self, scope: InnerScope) -> Solved:
        request, ranges, released = self.request, self._purchase(scope), list[Released]()
        scaling, rows = self.scaled or self._scale_bought(ranges)
        target_range = self._target_range(ranges)
        if ranges is not None:
            released += ranges.released
        solutions = []
        for head, rule in enumerate(self._target_rules(target_range)):
            holder = self._holder(PlacedData(rows, TargetView(*request.target_ends, rule)), scope)
            solutions.append(self._solve_head(head, holder))
            released += holder.released
        paid = Counter[str]()
        for one in released:
            paid[one.query] += one.units
        if paid != scope.used:  # each value that left was charged, and each charge gave a value
            raise PlanViolation("a fit was charged for another number of releases than it made.")
        weights = solutions[0].weights if len(solutions) == 1 else np.column_stack([s.weights for s in solutions])
        notes = () if request.buys_target else tuple(dict.fromkeys(note for s in solutions for note in s.notes))
        if ranges is not None:
            notes += ranges.notes(scaling, target_range)
        notes += dense_notes(self.prepared, weights[: self.prepared.facts.n_features])
        steps = tuple(s.n_steps for s in solutions)
        return Solved(weights, steps, scaling, rows, target_range, tuple(released), notes)

    def _holder(self, data: Any, scope: InnerScope) -> DataHolder:
        return DataHolder(data, scope, self.source, self.request.neighbours)

    def _purchase(self, scope: InnerScope) -> RangePurchase | None:
        if not self.request.n_bought(self.prepared.facts.n_features):
            return None
        return RangePurchase(self.prepared, lambda table: self._holder(TableData(table), scope))

    def _scale_bought(self, ranges: RangePurchase | None) -> ScaledRows:
        if ranges is None:
            raise PlanViolation("rows with declared bounds must be scaled before the plan is reserved.")
        scaling = ranges.features(self.data.X)
        return scaling, self._placed(scaling)

    def _placed(self, scaling: Scaling) -> Executor:
        return place(self.data.X, self.data.target, scaling, self.request.height, self.request.reading)

    def _target_range(self, ranges: RangePurchase | None) -> TargetRange | None:
        """Return the range of a numeric target, declared or bought."""
        if self.request.target != NUMBERS:
            return None
        if self.request.bounds.target is not None:
            low, high = self.request.bounds.target
        else:
            assert ranges is not None  # a target that is not declared is bought
            low, high = ranges.target(self.data.target)
        if not self.request.fit_intercept:  # only the columns may move predictions away from zero
            low, high = -max(abs(low), abs(high)), max(abs(low), abs(high))
        return TargetRange(float(low), float(high))

    def _target_rules(self, target_range: TargetRange | None) -> Iterator[TargetRule]:
        """Targets of the problems to solve: one, or one per class against the rest."""
        if target_range is not None:
            yield ScaledTarget(target_range)
        elif self.request.n_heads == 1:
            yield AsGiven()
        else:
            yield from map(OneAgainstRest, range(self.request.n_heads))

    def _solve_head(self, head: int, holder: DataHolder) -> Solution:
        """Solve one problem; the solver reaches the data through the holder only."""
        if holder.facts != self.prepared.facts:
            raise PlanViolation("the data's public facts differ from those the plan was made from.")
        solver, objective, plan = self.prepared.solver, self.request.objective, self.prepared.for_solver
        solution = solver.solve(objective, holder, plan, self._progress(head))
        if holder.shared:
            raise PlanViolation("un-noised values left the holder of a fit that claims a guarantee.")
        return solution

    def _progress(self, head: int) -> Progress | None:
        """Report the steps of one head as a part of the steps of all."""
        report, n_heads = self.request.progress, self.request.n_heads
        if report is None:
            return None
        return lambda done, in_all: report(head * in_all + done, n_heads * in_all)

    # ---------------------------------------------------------------------------------- after the scope is settled
    def result(self, scope: Scope | SearchScope, solved: Solved) -> FitResult:
        """Return coefficients in the user's units, and the report."""
        report = report_of(self, scope, solved)
        return FitResult(*solved.in_user_units, solved.n_steps, solved.scaling, solved.target_range, report)


def check_settled(scope: Scope | SearchScope) -> None:
    """Refuse a settled scope whose records are not what was planned."""
    recorded: Counter[Any] = Counter()
    for record in scope.records:
        recorded.update(composition.leaves(record.event))
    planned = Counter(composition.leaves(scope.event))
    if scope.unbounded is not None:
        recorded = Counter({event: count for event, count in recorded.items() if event in planned})
    if recorded != planned:
        raise PlanViolation("the releases recorded in the ledger differ from the plan.")


def warn_caller(texts: Iterable[str]) -> None:
    """Warn of little use; the warning points to the nearest caller outside dperm."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "dperm":
        depth, frame = depth + 1, frame.f_back
    for text in texts:
        warnings.warn(f"{text}.", UtilityWarning, stacklevel=depth)


def _same(one: Scaling, other: Scaling) -> bool:
    return all(np.array_equal(value, vars(other)[name]) for name, value in vars(one).items())
