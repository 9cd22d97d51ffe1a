"""Fits of ``solver="sgd"``: gradient descent in rounds, simulated or answered by people.

Proof: ``linear_models.proof.md``, and ``solvers/local/descent.proof.md`` for the rounds.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from dperm.errors import InvalidInput, Unsupported
from dperm.estimators.central.data_checks import TrainingData
from dperm.estimators.local.report import charge_simulation, charge_task, check_collection
from dperm.estimators.local.row_transform import RowTransform, dense_blocks
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import DescentState, Estimate, LinearTask, LocalDescent

__all__ = ["LocalRounds"]

ROUNDS_DISJOINT = "each person is in one round only, drawn without looking at the record"


class LocalRounds:
    """The part of a local model that asks people in rounds, ``solver="sgd"``."""

    solver: str
    n_rounds: int
    ledger: Any
    _bounds_assumptions: Any
    _check_parameters: Any
    _declared_classes: Any
    _declared_target: Any
    _linear: Any
    _n_outputs: Any
    _penalty_of_rows: Any
    _records: Any
    _refuse_hopeless_fit: Any
    _rows: Any
    _set_fitted_attributes: Any
    _set_feature_names: Any
    _write_report: Any

    def _refuse_rounds(self) -> None:
        if self.solver == "sgd":
            raise Unsupported(
                "solver='sgd' asks people in rounds, each with the weights of the round before, so it has no single "
                "task or count: run the rounds of descent(...) and pass the last state to fit_rounds, or use "
                "solver='moments'."
            )

    def _descent(self, linear: LinearTask, rows: RowTransform) -> LocalDescent:
        return LocalDescent.from_linear_task(linear, rows.mean_squares, self.n_rounds, self._penalty_of_rows(rows))

    def descent(self, n_features: int, names: Any = None) -> LocalDescent:
        """Return the rounds in which people are asked, for ``solver="sgd"``; each person may answer in one of them."""
        return self._public_rounds(n_features, names)[2]

    def _public_rounds(self, n_features: int, names: Any) -> tuple[LinearTask, RowTransform, LocalDescent]:
        self._check_parameters()
        if self.solver != "sgd":
            raise Unsupported("solver='moments' asks everybody once, not in rounds: use task and fit_counts.")
        rows = self._rows(n_features, names)
        linear = self._linear(rows, self._n_outputs(None), 2, names, self._declared_target())
        return linear, rows, self._descent(linear, rows)

    def fit_rounds(
        self, state: DescentState, n_features: int, names: Any = None, *, n_people: int | None = None
    ) -> Self:
        """Fit from a descent that people answered; charges the ledger once for all its rounds.

        Parameters
        ----------
        state : DescentState
            The last state of :meth:`descent`.
        n_features, names :
            As given to :meth:`descent`.
        n_people : int, optional
            Number of people who were asked in all rounds together; see :meth:`fit_counts`.
        """
        linear, rows, descent = self._public_rounds(n_features, names)
        if not isinstance(state, DescentState) or state.descent != descent.digest:
            raise InvalidInput("this is not the state of a descent with these parameters, columns and labels.")
        people = check_collection(self.ledger, state, n_people)
        # the reports have been sent, so they are charged before anything else can be refused
        charged = charge_task(self.ledger, descent, people, secure=state.secure)
        self._refuse_hopeless_fit(state.n_people, n_features, None)
        self._set_feature_names(rows, names)
        self._set_fitted_rounds(linear, rows, descent, state, self._declared_classes())
        report_facts = {"people": people, "reports": state.n_people, "simulated": False, "secure": state.secure}
        assumptions = (ROUNDS_DISJOINT, *self._bounds_assumptions())
        self._write_report(linear, descent.task(descent.start()), assumptions, charged, **report_facts)
        return self

    def _set_fitted_rounds(
        self, linear: LinearTask, rows: RowTransform, descent: LocalDescent, state: DescentState, classes: Any
    ) -> None:
        weights, kept = descent.shrunk(state)
        reason = "solver='sgd' gives no intervals: use solver='moments'"
        estimate = Estimate(weights, descent.estimate(state), None, reason, kept)
        self._set_fitted_attributes(linear, rows, None, (estimate,), classes)

    def _fit_in_rounds(
        self, linear: LinearTask, rows: RowTransform, problem: TrainingData, source: RandomSource
    ) -> Self:
        """Simulate a descent: every person is in one group, and groups are asked one after the other."""
        descent = self._descent(linear, rows)
        start, targets = 0, []
        for block in dense_blocks(problem.X):
            targets.append(self._records(rows.apply(block), problem.target_here[start : start + len(block)], linear))
            start += len(block)
        first = descent.task(descent.start())
        with charge_simulation(self.ledger, first, source, problem.fingerprint(self.ledger)) as charged:
            state = descent.run(np.concatenate(targets), source)
        self._set_fitted_rounds(linear, rows, descent, state, problem.classes)
        assumptions = (ROUNDS_DISJOINT, *problem.assumptions, *self._bounds_assumptions())
        report_facts = {"people": state.n_people, "simulated": True, "secure": source.secure}
        self._write_report(linear, first, assumptions, charged, **report_facts)
        return self
