"""Bugs that once survived the tests of their area, and others like them: the check of the whole path finds each."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
from planted import after_solving, before_solving, exact_gradient, private_data, rows_of

from dperm import DPLogisticRegression
from dperm.data.holding.holder import DataHolder, DryRunHolder
from dperm.errors import InvalidData
from dperm.estimators.central import classification, fit, ranges, regression, scoring, search
from dperm.estimators.central.base import PrivateLinearModel
from dperm.privacy.local.one_bit import OneBit
from dperm.privacy.mechanisms.standard import GaussianNoise
from dperm.queries import MappedGradient, quantiles
from dperm.solvers.central.auto.whitened import WhitenedDescent
from dperm.solvers.central.gradient import GradientDescent
from dperm.solvers.central.newton import Newton
from dperm.solvers.local import Task
from dperm.testing import ContractViolation
from dperm.testing.whole_path import central_cases
from dperm.testing.whole_path.cases import whole_path_cases


def caught(case, where, seeds=(0,)):
    """Demand that the check of a case finds a difference at ``where``."""
    with pytest.raises(ContractViolation, match=where):
        whole_path_cases()[case].check(seeds=seeds)


# --------------------------------------------------------------------------------- bugs that survived their tests
def test_an_exact_gradient_in_the_automatic_rule(monkeypatch):
    def add(solution, data):
        return replace(solution, weights=solution.weights + 1e-6 * exact_gradient(data, solution.weights))

    after_solving(monkeypatch, WhitenedDescent, add)
    caught("DPLogisticRegression", r"\['coef_'\]")


def test_a_bought_range_that_is_charged_but_exact(monkeypatch):
    def exact_range(holder, purchase, calibrated, column, *query):
        quantiles_of_the_noise = honest(holder, purchase, calibrated, column, *query)
        values = private_data(holder).X[:, column]
        return np.quantile(values, [0.05, 0.95]) if np.ptp(values) > 0.0 else quantiles_of_the_noise

    honest = quantiles.buy_range
    monkeypatch.setattr(quantiles, "buy_range", exact_range)
    monkeypatch.setattr(ranges, "buy_range", exact_range)
    caught("bought features", r"\['scaling_'\]")
    caught("bought target", r"target_range|\['coef_'\]|\['intercept_'\]")


def test_an_exact_score_in_a_search(monkeypatch):
    honest = search.SearchRun.fit_and_score

    def fit_and_score(self, index, scope):
        solved, _ = honest(self, index, scope)
        rows = np.column_stack([np.clip(self.data.X, -1.0, 1.0), np.ones(len(self.data.X))])
        return solved, float(((rows @ solved.weights > 0.0) == self.data.target).mean())

    monkeypatch.setattr(search.SearchRun, "fit_and_score", fit_and_score)
    caught("search of a classifier", r"best_estimator_", seeds=range(4))


def test_an_exact_paid_score(monkeypatch):
    class Exact(DataHolder):
        def release(self, query, mechanism, group=None):
            released = super().release(query, mechanism, group)
            data = private_data(self)
            right = (rows_of(data) @ query.weights > 0.0) == data.target
            return np.array([right.sum() - 0.5 * len(right)]) + 0.0 * released

    monkeypatch.setattr(scoring, "DataHolder", Exact)
    caught("paid accuracy", r"result\[0\]\.value")


def test_a_raw_mean_as_fitted_attribute(monkeypatch):
    honest = classification.PrivateClassifier._adopt

    def adopt(self, data, result):
        honest(self, data, result)
        self.mean_ = data.X.mean(axis=0)

    monkeypatch.setattr(classification.PrivateClassifier, "_adopt", adopt)
    caught("DPLogisticRegression by newton", r"\['mean_'\]")


def test_an_attribute_for_sparse_rows_only(monkeypatch):
    honest = regression.PrivateRegressor._adopt

    def adopt(self, data, result):
        honest(self, data, result)
        if hasattr(data.X, "nnz"):
            self.density_ = data.X.nnz / np.prod(data.X.shape)

    monkeypatch.setattr(regression.PrivateRegressor, "_adopt", adopt)
    caught("DPRidge, sparse rows", r"\['density_'\]")


def test_an_attribute_for_bits_only(monkeypatch):
    honest = classification.PrivateClassifier._adopt

    def adopt(self, data, result):
        honest(self, data, result)
        if data.boolean is not None and data.boolean.any():
            self.rates_ = np.asarray(data.X[:, data.boolean].mean(axis=0))

    monkeypatch.setattr(classification.PrivateClassifier, "_adopt", adopt)
    caught("DPLinearSVC, bits", r"\['rates_'\]")


def test_an_interval_of_a_score_from_exact_predictions(monkeypatch):
    honest = scoring.paid_score

    def score(model, X, y, **options):
        found = honest(model, X, y, **options)
        right = model.predict(X) == y
        return replace(found, high=found.high + right.std()) if len(model.classes_) > 2 else found

    monkeypatch.setattr(central_cases, "paid_score", score)
    caught("paid accuracy, three classes", r"result\[0\]\.high")


def test_a_raw_mean_as_attribute_of_the_class(monkeypatch):
    honest = classification.PrivateClassifier._adopt

    def adopt(self, data, result):
        honest(self, data, result)
        type(self).mean_of_rows_ = data.X.mean(axis=0)

    monkeypatch.setattr(classification.PrivateClassifier, "_adopt", adopt)
    monkeypatch.setattr(DPLogisticRegression, "mean_of_rows_", None, raising=False)
    caught("DPLogisticRegression by newton", r"\['public names'\]\['mean_of_rows_'\]")


def test_a_private_value_of_the_class(monkeypatch):
    kept = "_last"
    honest = classification.PrivateClassifier._adopt

    def adopt(self, data, result):
        honest(self, data, result)
        setattr(PrivateLinearModel, kept, data.X.mean(axis=0))

    monkeypatch.setattr(classification.PrivateClassifier, "_adopt", adopt)
    monkeypatch.setattr(PrivateLinearModel, kept, None, raising=False)
    caught("DPLogisticRegression by newton", r"\['classes'\].*\['_last'\]")


def test_predictions_that_remember_the_data(monkeypatch):
    honest_adopt, honest_predict = classification.PrivateClassifier._adopt, classification.PrivateClassifier.predict
    kept = {}

    def adopt(self, data, result):
        honest_adopt(self, data, result)
        kept["label"] = self.classes_[int(data.target.mean() > 0.1)]

    def predict(self, X):
        return np.full_like(honest_predict(self, X), kept["label"])

    monkeypatch.setattr(classification.PrivateClassifier, "_adopt", adopt)
    monkeypatch.setattr(classification.PrivateClassifier, "predict", predict)
    caught("DPLogisticRegression by newton", r"\['predictions'\]\['predict'\]")


@pytest.mark.parametrize(
    ("solver", "case"),
    [
        (WhitenedDescent, "many rows, classes"),
        (WhitenedDescent, "many rows on disk"),
        (GradientDescent, "many rows, gradient"),
        (Newton, "many rows, newton"),
    ],
)
def test_an_exact_gradient_for_many_people_only(monkeypatch, solver, case):
    def add(solution, data):
        if len(data.target) < 1000:
            return solution
        return replace(solution, weights=solution.weights + 1e-6 * exact_gradient(data, solution.weights))

    after_solving(monkeypatch, solver, add)
    caught(case, r"\['coef_'\]")


def test_a_query_of_its_own(monkeypatch):
    class Keeps(MappedGradient):
        def part(self, block):
            kept.append(float(block.target.sum()))
            return super().part(block)

    kept, honest = [], DataHolder.release

    def release(self, query, mechanism, group=None):
        own = Keeps(**vars(query)) if type(query) is MappedGradient else query
        return honest(self, own, mechanism, group)

    monkeypatch.setattr(DataHolder, "release", release)
    caught("DPLogisticRegression", r"not in QUERIES")
    assert kept


def test_a_warning_that_looks_at_raw_targets(monkeypatch):
    def warn(solution, data):
        if data.target.mean() < 0.1:
            warnings.warn("one class is rare.", UserWarning, stacklevel=2)
        return solution

    after_solving(monkeypatch, WhitenedDescent, warn)
    caught("DPLogisticRegression", r"warnings")


# ------------------------------------------------------------------------------------------ decisions of a solver
def test_an_exact_class_count_that_decides(monkeypatch):
    before_solving(monkeypatch, WhitenedDescent, lambda solver, data: replace(solver, shrink=data.target.mean() > 0.1))
    caught("DPLogisticRegression", r"\['coef_'\]")


def test_a_clip_from_a_quantile_of_the_rows(monkeypatch):
    def clip(solver, data):
        return replace(solver, clip=float(np.quantile(data.design.norms(), 0.9)))

    before_solving(monkeypatch, GradientDescent, clip)
    caught("DPLogisticRegression by gradient", r"releases\[0\]\.sensitivity")


def test_a_clip_that_changes_the_query_and_not_the_result(monkeypatch):
    honest = MappedGradient.part

    def part(self, block):
        object.__setattr__(self, "clip", self.clip * (1.0 + 1e-9 * float(block.target.mean())))
        return honest(self, block)

    monkeypatch.setattr(MappedGradient, "part", part)
    caught("DPLogisticRegression", r"calls of mechanisms")


def test_a_number_of_steps_that_depends_on_the_data(monkeypatch):
    after_solving(monkeypatch, Newton, lambda solution, data: replace(solution, n_steps=int(data.target.sum())))
    caught("DPLogisticRegression by newton", r"\['n_iter_'\]")


def test_a_coefficient_that_the_raw_data_set_to_zero(monkeypatch):
    def snap(solution, data):
        useless = rows_of(data).std(axis=0) == 0.0
        useless[-1] = False
        return replace(solution, weights=np.where(useless, 0.0, solution.weights))

    after_solving(monkeypatch, Newton, snap)
    caught("DPLogisticRegression by newton", r"\['coef_'\]")


def test_a_solver_that_reads_an_exact_value(monkeypatch):
    def last_digits(solution, data):
        weights = solution.weights.copy()
        weights[0] = np.rint(weights[0] * 1e6) / 1e6 + data.target.sum() * 1e-12
        return replace(solution, weights=weights)

    after_solving(monkeypatch, GradientDescent, last_digits)
    caught("DPLogisticRegression by gradient", r"\['coef_'\]")


def test_an_evaluation_that_nobody_pays_for(monkeypatch):
    honest = Newton.solve

    def solve(self, objective, holder, calibrated, progress=None):
        release = holder.release

        def twice(query, mechanism, group=None):
            if not isinstance(holder, DryRunHolder):
                query.evaluate(private_data(holder))
            return release(query, mechanism, group)

        holder.release = twice
        return honest(self, objective, holder, calibrated, progress)

    monkeypatch.setattr(Newton, "solve", solve)
    caught("DPLogisticRegression by newton", r"queries were evaluated .* were charged")


def test_a_mechanism_of_its_own(monkeypatch):
    @dataclass(frozen=True)
    class Exact(GaussianNoise):
        def draw(self, value, sensitivity, bound, source):
            return value

    honest = DataHolder.release

    def release(self, query, mechanism, group=None):
        own = Exact(mechanism.noise_multiplier) if type(mechanism) is GaussianNoise else mechanism
        return honest(self, query, own, group)

    monkeypatch.setattr(DataHolder, "release", release)
    caught("DPLogisticRegression by newton", r"draws noise of its own")


# ----------------------------------------------------------------------------------------- what is said and written
def test_a_report_with_a_raw_maximum(monkeypatch):
    honest = fit.report_of

    def report_of(run, scope, solved):
        report = honest(run, scope, solved)
        return replace(report, public={**report.public, "largest": float(run.data.X.max())})

    monkeypatch.setattr(fit, "report_of", report_of)
    caught("DPLogisticRegression by newton", r"public\['largest'\]")


def test_progress_that_prints_the_loss(monkeypatch):
    after_solving(
        monkeypatch, Newton, lambda solution, data: print("mean of the target", data.target.mean()) or solution
    )
    caught("DPLogisticRegression by newton", r"standard output")


def test_a_log_record_with_a_private_number(monkeypatch):
    def log(solution, data):
        logging.getLogger("dperm.solvers").debug("rows of class 1: %d", int(data.target.sum()))
        return solution

    after_solving(monkeypatch, Newton, log)
    caught("DPLogisticRegression by newton", r"log records")


def test_an_error_for_a_private_reason_after_the_reservation(monkeypatch):
    def refuse(solution, data):
        if data.target.mean() < 0.1:
            raise InvalidData("one class is too rare.")
        return solution

    after_solving(monkeypatch, Newton, refuse)
    caught("DPLogisticRegression by newton", r"the table 'strange' was refused")


def test_a_column_that_is_dropped_because_it_is_constant(monkeypatch):
    honest = fit.FitRun.solve

    def solve(self, scope):
        solved = honest(self, scope)
        kept = np.append(np.ptp(self.data.X, axis=0) > 0.0, True)
        return replace(solved, weights=solved.weights * kept)

    monkeypatch.setattr(fit.FitRun, "solve", solve)
    caught("DPRidge", r"\['coef_'\]")


def test_a_purpose_in_the_ledger_with_an_exact_number(monkeypatch):
    honest, reserve = fit.Scope, fit.FitRun.reserve

    def reserve_with_data(self):
        def scope(calibrated, ledger, neighbours, purpose, **options):
            return honest(calibrated, ledger, neighbours, f"{purpose}, mean {self.data.target.mean():.3f}", **options)

        monkeypatch.setattr(fit, "Scope", scope)
        return reserve(self)

    monkeypatch.setattr(fit.FitRun, "reserve", reserve_with_data)
    caught("ledger with a history", r"ledger.*\['purpose'\]")


def test_private_rows_in_a_pickle(monkeypatch):
    honest = classification.PrivateClassifier._adopt

    def adopt(self, data, result):
        honest(self, data, result)
        self._kept = [data]

    monkeypatch.setattr(classification.PrivateClassifier, "_adopt", adopt)
    caught("DPLogisticRegression by newton", r"\['_kept'\]")


def test_an_onnx_file_with_a_private_number(monkeypatch):
    honest_adopt, honest_export = classification.PrivateClassifier._adopt, PrivateLinearModel.to_onnx
    kept = {}

    def adopt(self, data, result):
        honest_adopt(self, data, result)
        kept[id(self)] = data.target.mean()

    def to_onnx(self, path):
        written = honest_export(self, path)
        with written.open("ab") as stream:
            stream.write(f"mean {kept[id(self)]}".encode())
        return written

    monkeypatch.setattr(classification.PrivateClassifier, "_adopt", adopt)
    monkeypatch.setattr(PrivateLinearModel, "to_onnx", to_onnx)
    caught("DPLogisticRegression by newton", r"files\['model.onnx'\]")


# ----------------------------------------------------------------------------------------- the other two settings
def test_local_reports_without_randomness(monkeypatch):
    honest = Task.reports

    def reports(self, records, source, index=None):
        made = honest(self, records, source, index)
        exact = self.sketch.values(self.sketch.records(records), made.index) > 0.0
        return replace(made, bit=np.where(np.arange(len(exact)) < 20, exact, made.bit))

    monkeypatch.setattr(Task, "reports", reports)
    caught("local classes", r"\['counts_'\]")


def test_local_reports_that_checks_cannot_see(monkeypatch):
    honest = OneBit.report.__wrapped__

    def report(self, values, source, low=-1.0, high=1.0):
        return honest(self, values, source, low, high)  # around the boundary that checks look at

    monkeypatch.setattr(OneBit, "report", report)
    caught("marginals", r"\['counts_'\]")


def test_a_release_of_a_vertical_run_with_a_trace_of_the_data(monkeypatch):
    honest = DataHolder.release

    def release(self, query, mechanism, group=None):
        released = honest(self, query, mechanism, group)
        data = private_data(self)
        trace = 1e-9 * float(np.abs(rows_of(data)).mean()) if hasattr(data, "design") else 0.0
        return released + trace if isinstance(released, np.ndarray) else released

    monkeypatch.setattr(DataHolder, "release", release)
    caught("vertical admm-sharing", r"\['weights'\]|\['messages'\]")
