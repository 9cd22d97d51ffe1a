"""Record and replay finds planted bugs: in a query, a mechanism, an event, a charge, a log and a whole fit."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from dperm import Bounds, DPLogisticRegression, DPTuner, LocalLinearRegression
from dperm.errors import InvalidInput, MissingDependency, Unsupported
from dperm.privacy.accounting.events import Gaussian, Selection
from dperm.privacy.accounting.neighbours import Neighbours
from dperm.privacy.boundary import current_observer
from dperm.privacy.local.one_bit import OneBit
from dperm.privacy.mechanisms.selection import gumbel_race, race_scale
from dperm.privacy.mechanisms.standard import GaussianNoise, Mechanism, NoisyMax
from dperm.privacy.randomness import RandomSource
from dperm.privacy.recording import PublicRelease, recording
from dperm.queries import FullGradient, GreedyScores, PerturbedMinimum, QuantileScores, SampledGradient
from dperm.solvers import GradientDescent, GreedyCoordinateDescent, PerturbedMinimiser, StochasticGradientDescent
from dperm.solvers.central import gradient as gradient_module
from dperm.testing import ContractViolation, check_recorded, check_run
from dperm.testing.replay import check
from dperm.testing.replay.check import claim_of
from dperm.testing.replay.replayer import Replayer
from dperm.testing.replay.searches import independent_search_total
from dperm.testing.replay.totals import check_claim, independent_total

pytest.importorskip("dp_accounting")

RNG = np.random.default_rng(0)
N = 40
X = RNG.uniform(-1.0, 1.0, (N, 3))
LABELS = X[:, 0] + 0.5 * RNG.normal(size=N) > 0.0
CLASSES = Bounds(features=(-1, 1), classes=[False, True])
SHORT = GradientDescent(n_steps=4)
GREEDY = GreedyCoordinateDescent(n_steps=4)


def model(solver=SHORT, **options):
    return DPLogisticRegression(**{"epsilon": 1.0, "delta": 1e-5, "bounds": CLASSES, "solver": solver} | options)


def checked(fit, X=X, y=LABELS, **options):
    return check_recorded(fit, X, y, **{"n_starts": 1, "n_climbs": 0, "check_noise": False} | options)


def recorded(fitted=None):
    with recording() as recorder:
        fitted = (fitted or model()).fit(X, LABELS)
    return recorder, claim_of(fitted)


# ------------------------------------------------------------------------------------------------ nothing planted
def test_a_right_fit_passes_and_says_what_was_found():
    found = check_recorded(model().fit, X, LABELS, n_starts=1, n_climbs=2)
    assert found.reached["gradient"] >= 0.9
    assert found.total.lower <= found.claim.epsilon <= found.total.upper * 1.005
    assert len(found.log) == 4
    assert found.n_replays > 5
    text = str(found)
    assert "claimed epsilon 1" in text
    assert "gradient: moved by" in text


def test_the_observer_is_gone_after_a_violation(monkeypatch):
    monkeypatch.setattr(check, "check_run", lambda *args, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        checked(model().fit)
    assert current_observer() is None


# ------------------------------------------------------------------------------------------------ wrong queries
def halve(monkeypatch, query, method="zero_out_sensitivity"):
    honest = getattr(query, method)
    monkeypatch.setattr(query, method, lambda self, facts: 0.5 * honest(self, facts))


@pytest.mark.parametrize(
    ("query", "solver", "options"),
    [
        (FullGradient, SHORT, {}),
        (GreedyScores, GREEDY, {}),
        pytest.param(QuantileScores, SHORT, {"bounds": None, "epsilon": 3.0}, marks=pytest.mark.long),
        (SampledGradient, StochasticGradientDescent(n_steps=3, rate=1.0), {"neighbours": "zero-out"}),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_halved_sensitivity_is_found(monkeypatch, query, solver, options):
    checked(model(solver, **options).fit)
    halve(monkeypatch, query)
    with pytest.raises(ContractViolation, match="times what its sensitivity allows"):
        checked(model(solver, **options).fit, n_starts=2)


def test_a_halved_gradient_bound_of_a_perturbed_objective_is_found(monkeypatch):
    solver = PerturbedMinimiser(curvature_part=3.0)
    checked(model(solver, neighbours="zero-out").fit)
    halve(monkeypatch, PerturbedMinimum)
    with pytest.raises(ContractViolation, match="times what its sensitivity allows"):
        checked(model(solver, neighbours="zero-out").fit, n_starts=2)


def test_a_query_that_reads_other_people_is_found(monkeypatch):
    honest = SampledGradient.evaluate

    def evaluate(self, data):
        mean = data.only_block.target.mean()
        return honest(replace(self, weights=self.weights + mean), data)

    monkeypatch.setattr(SampledGradient, "evaluate", evaluate)
    solver = StochasticGradientDescent(n_steps=3, rate=1.0)
    with pytest.raises(ContractViolation, match="part of other people"):
        checked(model(solver, neighbours="zero-out").fit)


def test_a_bound_that_is_exceeded_is_found(monkeypatch):
    monkeypatch.setattr(FullGradient, "bound", lambda self, facts: 1e-3)
    with pytest.raises(ContractViolation, match="exceeds its public bound"):
        checked(model().fit)


# ------------------------------------------------------------------------------------------------ wrong mechanisms
def test_halved_noise_is_found(monkeypatch):
    check_run(*recorded())
    honest = GaussianNoise.draw

    def draw(self, value, sensitivity, bound, source):
        return value + 0.5 * (honest(self, value, sensitivity, bound, source) - value)

    monkeypatch.setattr(GaussianNoise, "draw", draw)
    with pytest.raises(ContractViolation, match=r"fit its law|recorded scale"):
        check_run(*recorded())


def test_halved_noise_of_selections_is_found(monkeypatch):
    check_run(*recorded(model(GREEDY)))

    def draw(self, value, sensitivity, bound, source):
        return gumbel_race(np.clip(value, -bound, bound), 0.5 * race_scale(sensitivity, self.noise_multiplier), source)

    monkeypatch.setattr(NoisyMax, "draw", draw)
    with pytest.raises(ContractViolation, match="fit its law"):
        check_run(*recorded(model(GREEDY)))


def test_a_halved_noise_scale_is_found(monkeypatch):
    honest = GaussianNoise.noise_scale
    monkeypatch.setattr(GaussianNoise, "noise_scale", lambda self, *numbers: 0.5 * honest(self, *numbers))
    with pytest.raises(ContractViolation, match="charged for noise of"):
        checked(model().fit)


def test_noise_beyond_what_the_lattice_adds_is_found(monkeypatch):
    honest = GaussianNoise.noise_scale
    monkeypatch.setattr(GaussianNoise, "noise_scale", lambda self, *numbers: (1 + 2**-10) * honest(self, *numbers))
    with pytest.raises(ContractViolation, match=r"but is charged for .* only"):
        checked(model().fit)


def test_very_large_noise_on_a_coarse_lattice_is_as_charged():
    recorder, _ = recorded()
    # noise of two billion sensitivities on a thousand values: the largest scale of the sampler decides the step
    noise, size = GaussianNoise(2.0**31), 1000
    scale = noise.noise_scale(1.0, 1.0, size)
    assert scale > 2.0**31 * 1.01
    entry = replace(recorder.releases[0], sensitivity=1.0, noise_scale=scale, size=size, event=noise.event(2.0))
    check.check_events([entry])
    with pytest.raises(ContractViolation, match=r"but is charged for .* only"):
        check.check_events([replace(entry, size=1)])


def test_an_understated_event_is_found(monkeypatch):
    # half of the planned noise, charged as all of it
    monkeypatch.setattr(gradient_module, "GaussianNoise", lambda multiplier: GaussianNoise(0.5 * multiplier))
    monkeypatch.setattr(GaussianNoise, "event", lambda self, ratio: Gaussian(2.0 * self.noise_multiplier, ratio))
    with pytest.raises(ContractViolation, match="charged for noise of"):
        checked(model().fit)
    # the independent total finds it without looking at events
    monkeypatch.setattr(check, "check_events", lambda entries: None)
    with pytest.raises(ContractViolation, match="which the recorded noise attains"):
        checked(model().fit)


def test_an_event_of_another_kind_is_found():
    recorder, claim = recorded()
    entry = recorder.releases[0]
    recorder.releases[0] = replace(entry, event=Selection(entry.event.noise_multiplier))
    recorder.charges[0] = (entry.query, recorder.releases[0].event)
    with pytest.raises(ContractViolation, match="not as noise of kind 'gaussian'"):
        check_run(recorder, claim)


def test_a_query_that_keeps_private_data_is_found(monkeypatch):
    class Keeps(FullGradient):
        def part(self, block):
            kept.append(float(block.target.sum()))
            return super().part(block)

    kept = []
    monkeypatch.setattr(gradient_module, "FullGradient", Keeps)
    with pytest.raises(ContractViolation, match="not in QUERIES"):
        checked(model().fit)
    assert kept


# ------------------------------------------------------------------------------------------------ wrong charges
def test_a_release_without_a_charge_is_found():
    def fit(X, y):
        fitted = model().fit(X, y)
        GaussianNoise(1.0).apply(np.array([X.sum()]), 2.0, 1e9, RandomSource())
        return fitted

    with pytest.raises(ContractViolation, match="not charged"):
        checked(fit)


def test_a_charge_without_a_release_is_found(monkeypatch):
    def apply(self, value, sensitivity, bound, source):  # passes by the boundary
        return self.draw(value, sensitivity, bound, source)

    honest, used = Mechanism.apply, []

    def sometimes(self, *args):
        used.append(1)
        return (apply if len(used) == 2 else honest)(self, *args)

    monkeypatch.setattr(Mechanism, "apply", sometimes)
    with pytest.raises(ContractViolation, match="1 charges of 'gradient' have no release"):
        checked(model().fit)


def test_a_dropped_log_entry_is_found():
    recorder, claim = recorded()
    check_run(recorder, claim, check_noise=False)
    recorder.releases.pop()
    with pytest.raises(ContractViolation, match="1 charges of 'gradient' have no release"):
        check_run(recorder, claim)
    recorder.charges.pop()
    with pytest.raises(ContractViolation, match="the report counts other releases"):
        check_run(recorder, claim)
    with pytest.raises(ContractViolation, match="something was charged that is not in the log"):
        check_run(recorder, replace(claim, counts=None))


def test_an_empty_record_is_found():
    with pytest.raises(ContractViolation, match="released nothing"):
        checked(lambda X, y: model().fit(X, y) if current_observer() is None else FITTED)


FITTED = model(insecure_seed=None).fit(X, LABELS)


# ------------------------------------------------------------------------------------------------ wrong fits
def test_a_fit_that_depends_on_the_data_outside_its_releases_is_found():
    def by_sum(X, y):
        return model(GradientDescent(n_steps=4, step=1.0 + (X.sum() > 0.0))).fit(X, y)

    with pytest.raises(ContractViolation, match="another query is asked"):
        checked(by_sum)

    def by_range(X, y):
        return model(bounds=Bounds(features=(-1, 1 + (X.min() < -5.0)), classes=[False, True])).fit(X, y)

    with pytest.raises(ContractViolation, match=r"times what its sensitivity allows|has another"):
        checked(by_range)


def test_a_data_dependent_number_of_releases_is_found():
    def fit(X, y):
        fitted = model().fit(X, y)
        return model().fit(X, y) if X[:, 0].min() < -5.0 else fitted

    with pytest.raises(ContractViolation, match="more releases"):
        checked(fit)
    with pytest.raises(ContractViolation, match="has another noise_scale"):
        checked(lambda X, y: model(GradientDescent(n_steps=4 if X[:, 0].min() < -5.0 else 6)).fit(X, y))
    recorder, _ = recorded()
    replayer = Replayer(recorder, 0, Neighbours.REPLACE_ONE)
    with pytest.raises(ContractViolation, match="fewer releases"):
        replayer.finish()


def test_a_scaler_in_front_of_local_reports_is_found():
    local = LocalLinearRegression(epsilon=1.0, bounds=Bounds(features=(-1, 1), target=(-1, 1)), refuse_hopeless=False)
    y = np.random.default_rng(1).uniform(-1.0, 1.0, N)
    checked(local.fit, y=y)
    with pytest.raises(ContractViolation, match="changes what other people report"):
        checked(lambda X, y: local.fit(X - X.mean(axis=0), y), y=y)


def test_local_reports_that_say_too_much_are_found(monkeypatch):
    local = LocalLinearRegression(epsilon=1.0, bounds=Bounds(features=(-1, 1), target=(-1, 1)), refuse_hopeless=False)
    y = np.random.default_rng(1).uniform(-1.0, 1.0, N)
    with pytest.raises(ContractViolation, match="likelihood ratio"):
        checked(local.fit, y=y, claim=lambda fitted: replace(claim_of(fitted), epsilon=0.9))
    with pytest.raises(ContractViolation, match="people sent"):
        checked(local.fit, y=y, claim=lambda fitted: replace(claim_of(fitted), n_records=N - 1))
    honest = OneBit.thresholds
    monkeypatch.setattr(OneBit, "thresholds", lambda self, *args: honest(replace(self, epsilon=2.0), *args))
    with recording() as recorder:
        OneBit(1.0).report(np.array([0.5]), RandomSource())
    with pytest.raises(ContractViolation, match=r"likelihood ratio|law"):
        check_run(recorder, check.ClaimedTotal(1.0, 0.0, Neighbours.REPLACE_ONE))


def test_a_search_that_claims_too_little_is_found():
    tuner = DPTuner(model(), {"strength": [1e-3, 1.0]}, epsilon=1.0, delta=1e-5)
    tuner.estimator.set_params(delta=None)
    recorder, claim = recorded(tuner)
    assert check_run(recorder, claim, check_noise=False).total.upper == pytest.approx(1.0, rel=0.02)
    with pytest.raises(ContractViolation, match="smaller than"):
        check_run(recorder, replace(claim, epsilon=0.97), check_noise=False)


def test_a_run_without_a_guarantee_is_refused():
    with pytest.raises(InvalidInput, match="no guarantee"):
        checked(model(insecure_seed=1).fit)
    with pytest.raises(InvalidInput, match="give claim="):
        checked(lambda X, y: model().fit(X, y).coef_)


# ------------------------------------------------------------------------------------------------ the calculator
def line(kind, multiplier, **more):
    return PublicRelease("query", kind, "l2", 2.0, 10.0, 3, 2.0 * multiplier, Gaussian(1e9), **more)


def test_the_total_uses_sensitivity_and_scale_and_no_event():
    found = independent_total([line("gaussian", 30.0)] * 10, 1e-6)
    assert found.lower <= 0.41985 <= found.upper
    assert found.upper - found.lower < 2e-4
    assert set(found.bounds) == {"zCDP, OpenDP", "Renyi, dp-accounting", "loss distribution, dp-accounting"}


@pytest.mark.parametrize(
    ("log", "exact"),
    [
        # figures of dperm's own accounting, which the tests of composition compare with exact ones
        ([line("laplace", 8.0)] * 6 + [line("gaussian", 10.0)] * 2, 1.18052),
        ([line("selection", 2.0)], 0.99841),
        ([line("gaussian", 30.0)] * 10 + [line("selection", 40.0)] * 30, 0.76333),
        ([line("gaussian", 30.0)] * 10 + [line("selection", 40.0)] * 2, 0.44968),
        ([line("objective", 5.0, curvature_ratio=0.2, output_multiplier=40.0)], 1.05405),
        ([line("poisson-gaussian", 10.0, rate=1.0)], 0.41986),
    ],
    ids=["laplace", "selection", "mix", "few selections", "objective", "everyone sampled"],
)
def test_totals_of_other_kinds(log, exact):
    found = independent_total(log, 1e-6)
    if log[0].kind == "poisson-gaussian":
        exact = independent_total([line("gaussian", 10.0)], 1e-6).upper
    assert found.lower <= exact <= found.upper * 1.0005
    assert found.lower >= 0.75 * found.upper
    check_claim(exact, found)
    with pytest.raises(ContractViolation, match=r"attains|the best independent bound"):
        check_claim(0.97 * exact, found)
    with pytest.raises(ContractViolation, match="attains"):
        check_claim(0.7 * exact, found)
    with pytest.raises(ContractViolation, match="not in the log"):
        check_claim(1.05 * exact, found)


def test_what_cannot_be_recomputed_is_refused():
    with pytest.raises(Unsupported, match="kind 'laplace-inside-max'"):
        independent_total([line("laplace-inside-max", 5.0)], 1e-6)
    perturbed = line("objective", 5.0, curvature_ratio=0.2, output_multiplier=40.0)
    with pytest.raises(Unsupported, match="next to other"):
        independent_total([perturbed, line("selection", 5.0)], 1e-6)


def test_the_search_total_is_that_of_its_costliest_run():
    cheap, dear = [line("gaussian", 20.0)], [line("gaussian", 10.0)]
    both = independent_search_total([cheap, dear], 4.0, 1e-6)
    assert both.upper == independent_search_total([dear], 4.0, 1e-6).upper
    assert both.upper > independent_total(dear, 1e-6).upper


def test_a_search_is_bounded_by_three_formulas():
    """From below by an exact search, from above by a profile and, further up, by the Renyi curve that dperm claims."""
    for log in ([line("gaussian", 10.0)] * 3, [line("gaussian", 9.0)] * 2 + [line("selection", 30.0)] * 5):
        found, one_run = independent_search_total([log], 10.0, 1e-6), independent_total(log, 1e-6)
        assert one_run.upper < found.lower < found.bounds["search, profile"] < found.upper


def test_the_lower_bound_of_a_search_is_exact_for_gaussian_noise():
    mu, mean_runs, delta = 0.5, 5.0, 1e-6
    found = independent_search_total([[line("gaussian", 1.0 / mu)]], mean_runs, delta).lower
    at = np.linspace(-8.0, 8.0, 200_001)  # the largest of K is above a threshold, or the smallest is
    first, second = norm.sf(at - mu), norm.sf(at)
    largest = [t / (1.0 / mean_runs + (1.0 - 1.0 / mean_runs) * t) for t in (first, second)]
    smallest = [t / (mean_runs - (mean_runs - 1.0) * t) for t in (first, second)]
    exact = max(np.log(np.maximum(one - delta, 1e-300) / two).max() for one, two in (largest, smallest))
    assert exact - 2e-3 < found <= exact + 1e-9


def test_a_search_of_pure_runs_costs_three_times_one_run():
    """Liu & Talwar 2019 (arXiv 1811.07971); both upper bounds come close to it as delta goes to zero, and not above."""
    found = independent_search_total([[line("laplace", 2.0)]], 10.0, 1e-12)
    assert found.lower > 1.5 * 0.5
    assert found.bounds["search, profile"] <= 3.0 * 0.5 * 1.01
    assert found.bounds["search, profile"] == pytest.approx(found.upper, rel=0.02)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingDependency, match="dp-accounting"):
        independent_total([line("gaussian", 10.0)], 1e-6)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    assert "zCDP, OpenDP" not in independent_total([line("gaussian", 10.0)], 1e-6).bounds


def test_runs_of_a_search_are_split_at_their_scores():
    log = [replace(line("gaussian", 9.0), query=q) for q in ("gradient", "correct predictions") * 2]
    assert [len(run) for run in check._runs(log)] == [2, 2]
    with pytest.raises(ContractViolation, match="no score"):
        check._runs(log[:-1])


def test_counts_come_from_the_report():
    _, claim = recorded()
    assert claim.counts == Counter({"gradient": 4})
