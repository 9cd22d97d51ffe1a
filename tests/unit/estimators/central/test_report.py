"""What a fit says about its privacy: true when there is a guarantee, silent when there is none."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

from dperm import Bounds, DPLogisticRegression, DPTuner, Guarantee, Ledger, PrivacyReport
from dperm.errors import DataSetRenamed, InvalidInput
from dperm.estimators.central.base import prepare_fit
from dperm.privacy.accounting import composition
from dperm.privacy.accounting.events import Composed, Gaussian, Repeat, Selection
from dperm.reporting.page import report_page
from dperm.solvers import GradientDescent

UNIT = Bounds(features=(-1, 1))


def people(n=200, seed=0):
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 3))
    return X, (X[:, 0] > 0).astype(int)


def fit(n=200, **options):
    return DPLogisticRegression(**{"bounds": UNIT, **options}).fit(*people(n))


def strict(text):
    """Read JSON as its standard has it: no NaN, no Infinity."""

    def refuse(word):
        raise AssertionError(word)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
@pytest.mark.parametrize(("bounds", "epsilon"), [(UNIT, 0.1), (UNIT, 1.0), (UNIT, 20.0), (None, 1.0)])
def test_a_secure_fit_has_a_guarantee_within_its_budget(neighbours, bounds, epsilon):
    report = fit(
        epsilon=epsilon, neighbours=neighbours, bounds=bounds, ledger=Ledger(neighbours=neighbours)
    ).privacy_report_
    guarantee = report.guarantee
    assert isinstance(guarantee, Guarantee)
    assert report.reason is None
    assert 0.98 * epsilon <= guarantee.epsilon <= epsilon
    assert guarantee.epsilon == report.planned.epsilon == report.epsilon
    assert guarantee.neighbours == neighbours
    assert guarantee.view == "model"
    assert "label included" in guarantee.unit
    assert "each person has at most one row" in guarantee.assumptions
    assert "the number of rows is public" in guarantee.assumptions
    assert "keyed by the operating system" in report.randomness
    assert f"epsilon {guarantee.epsilon:.4g}" in report.summary()


@pytest.mark.parametrize("bounds", [UNIT, None], ids=["declared", "bought"])
def test_a_seeded_fit_has_none_and_never_gets_one(bounds):
    model = fit(insecure_seed=0, bounds=bounds)
    report = model.privacy_report_
    saved = [PrivacyReport.from_json(report.to_json()), pickle.loads(pickle.dumps(model)).privacy_report_]
    for one in (report, *saved):
        assert one.guarantee is None
        assert one.reason == "insecure_seed makes the noise reproducible."
        assert one.epsilon == math.inf
        assert one.planned.epsilon <= 1.0
        assert one.randomness == "insecure seed (reproducible)"
        assert one.summary().startswith("No guarantee: insecure_seed")
    assert strict(report.to_json())["guarantee"] is None


def test_the_seed_itself_is_not_in_the_report():
    assert "918273645" not in fit(insecure_seed=918273645).privacy_report_.to_json()


def test_a_seeded_fit_spoils_a_ledger_for_good():
    ledger = Ledger()
    fit(ledger=ledger, insecure_seed=0)
    assert ledger.receipt(fit(ledger=ledger).privacy_report_.ledger).spent.epsilon == math.inf
    assert ledger.spent().unbounded


def test_zero_out_needs_half_the_noise():
    lines = [
        fit(neighbours=which, solver="gradient").privacy_report_.releases[0] for which in ("replace-one", "zero-out")
    ]
    assert lines[0].noise_multiplier == pytest.approx(lines[1].noise_multiplier)
    solver = GradientDescent(clip=0.5)
    scales = [fit(neighbours=w, solver=solver).privacy_report_.releases[0] for w in ("replace-one", "zero-out")]
    assert (scales[0].sensitivity, scales[1].sensitivity) == (1.0, 0.5)
    assert scales[0].noise_scale == pytest.approx(2 * scales[1].noise_scale, rel=1e-2)


def test_a_zero_out_fit_on_a_replace_one_ledger_is_charged_more():
    ledger = Ledger(neighbours="replace-one")
    report = fit(neighbours="zero-out", ledger=ledger, delta=1e-6).privacy_report_
    assert report.guarantee.epsilon <= 1.0
    assert report.guarantee.neighbours == "zero-out"
    assert 1.5 < ledger.spent(delta=1e-6).epsilon < 3.0
    assert report.ledger["neighbours"] == "replace-one"


def test_releases_are_listed_and_explain_the_epsilon():
    report = fit(bounds=None, solver=GradientDescent(n_steps=7), delta=1e-6).privacy_report_
    assert [(line.query, line.kind, line.count, line.forfeited) for line in report.releases] == [
        ("quantile", "selection", 6, 0),
        ("gradient", "gaussian", 7, 0),
    ]
    quantile, gradient = (line.noise_multiplier for line in report.releases)
    event = Composed((Repeat(Selection(quantile, 1.0), 6), Repeat(Gaussian(gradient), 7)))
    assert composition.epsilon(event, 1e-6).epsilon == pytest.approx(report.guarantee.epsilon)
    for line in report.releases:
        assert line.noise_scale >= 0.99 * line.sensitivity * line.noise_multiplier
        assert line.size > 0


@pytest.mark.parametrize(("n", "delta"), [(20, 1e-5), (316, 1e-5), (400, 1 / 400**2), (2000, 1 / 2000**2)])
def test_default_delta(n, delta):
    report = fit(n).privacy_report_
    assert report.guarantee.delta == report.planned.delta == pytest.approx(delta)
    assert fit(n, delta=1e-3).privacy_report_.guarantee.delta == 1e-3


@pytest.mark.parametrize("options", [{}, {"bounds": None}, {"insecure_seed": 0}, {"neighbours": "zero-out"}])
def test_json_is_strict_and_round_trips(options):
    report = fit(**options).privacy_report_
    text = report.to_json()
    strict(text)
    again = PrivacyReport.from_json(text)
    assert again == report
    assert again.to_json() == text
    assert PrivacyReport.from_dict(report.to_dict()) == report


def test_json_holds_numbers_of_any_type():
    solver = GradientDescent(n_steps=np.int64(5), clip=np.float32(0.5))
    report = fit(solver=solver, strength=np.float32(0.25), epsilon=np.float32(1.0)).privacy_report_
    assert strict(report.to_json())["public"]["solver_options"]["clip"] == 0.5
    assert strict(report.to_json())["public"]["strength"] == 0.25
    odd = replace(report, public={"array": np.arange(2), "what": {1, 2}, "low": -math.inf})
    assert strict(odd.to_json())["public"] == {"array": [0, 1], "what": "{1, 2}", "low": "-inf"}


def test_a_data_set_may_be_called_infinity():
    report = fit(ledger=Ledger(dataset="infinity"), insecure_seed=0).privacy_report_
    assert PrivacyReport.from_json(report.to_json()) == report
    assert PrivacyReport.from_json(report.to_json()).ledger["dataset"] == "infinity"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '"x"', "{}", '{"format": "dperm privacy report 99"}'])
def test_what_is_not_a_report(text):
    with pytest.raises(InvalidInput, match="this is not a privacy report"):
        PrivacyReport.from_json(text)


def test_damaged_reports():
    good = fit().privacy_report_.to_dict()
    for name in ("planned", "guarantee", "reason", "releases", "ledger", "not_covered"):
        with pytest.raises(InvalidInput):
            PrivacyReport.from_dict({key: value for key, value in good.items() if key != name})
    for change in ({"planned": 3}, {"guarantee": {"epsilon": 1}}, {"releases": [{"x": 1}]}, {"guarantee": None}):
        with pytest.raises(InvalidInput):
            PrivacyReport.from_dict({**good, **change})
    with pytest.raises(InvalidInput):
        PrivacyReport.from_dict({**good, "reason": "none"})  # both a guarantee and a reason for none


def test_saving_is_whole_or_not_at_all(tmp_path):
    report = fit().privacy_report_
    path = report.save(tmp_path / "report.json")
    assert PrivacyReport.from_json(path.read_text()) == report
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_public_facts_and_what_is_not_covered():
    report = fit(
        bounds=Bounds(features=([-1, -2, 0], [1, 2, 4]), row_norm=1.5), penalty="l1", strength=0.1, solver="gradient"
    ).privacy_report_
    public = report.public
    assert (public["records"], public["features"], public["bounds"]) == (200, 3, "declared")
    assert public["centre"] == [0.0, 0.0, 2.0]
    assert public["scale"] == [1.0, 2.0, 2.0]
    assert public["row_norm"] == 1.5
    assert (public["solver"], public["loss"], public["penalty"], public["strength"]) == (
        "gradient",
        "logistic",
        "l1",
        0.1,
    )
    assert any("running time" in text for text in report.not_covered)
    assert report.version
    epsilons = [epsilon for epsilon, _ in report.planned.curve]
    assert epsilons == sorted(epsilons)


def test_the_owners_receipt_has_balance_and_head():
    ledger = Ledger(dataset="patients")
    first = fit(ledger=ledger, delta=1e-6).privacy_report_
    assert sorted(first.ledger) == ["dataset", "neighbours", "reservation"]
    assert first.ledger["dataset"] == "patients"
    receipt = ledger.receipt(first.ledger)
    assert (receipt.dataset, receipt.head) == ("patients", ledger.head)
    assert receipt.spent.epsilon == pytest.approx(first.guarantee.epsilon, rel=1e-3)
    second = fit(ledger=ledger, delta=1e-6).privacy_report_
    assert ledger.receipt(second.ledger).head == ledger.head != receipt.head
    assert ledger.receipt(first.ledger["reservation"]).head == receipt.head
    ledger.verify(receipt.head)
    # the second fit spends again: 64 more releases of the same kind
    assert ledger.spent().n_fits == 2
    mu = math.sqrt(2) * first.planned.mu
    assert ledger.spent(delta=1e-6).epsilon == pytest.approx(
        composition.epsilon(Gaussian(1 / mu), 1e-6).epsilon, rel=1e-3
    )


def test_without_a_ledger_every_fit_stands_alone():
    model = DPLogisticRegression(bounds=UNIT, delta=1e-6)
    first, second = (model.fit(*people()).privacy_report_ for _ in range(2))
    assert first.ledger["reservation"] != second.ledger["reservation"]
    with pytest.raises(InvalidInput, match="it is of another ledger"):
        Ledger().receipt(first.ledger)
    with pytest.raises(InvalidInput, match="names no reservation"):
        Ledger().receipt({})


def test_a_renamed_copy_is_charged_to_the_first_name_and_only_the_owner_is_told():
    ledger = Ledger(dataset="patients")
    fit(ledger=ledger)
    with pytest.warns(DataSetRenamed):
        report = fit(ledger=ledger.for_dataset("something else")).privacy_report_
    assert report.ledger["dataset"] == "something else"
    assert "patients" not in report.to_json()
    receipt = ledger.receipt(report.ledger)
    assert (receipt.dataset, receipt.spent.n_fits) == ("patients", 2)
    assert PrivacyReport.from_json(report.to_json()) == report


def test_the_report_holds_no_data():
    X, y = people()
    X[0, 0] = 0.123456789
    model = DPLogisticRegression(bounds=UNIT).fit(X, y)
    assert "123456789" not in model.privacy_report_.to_json()


@pytest.mark.parametrize(("classes", "how", "rest"), [([0, 1], "multinomial", False), ([0, 1, 2], "ovr", True)])
def test_the_report_says_whether_classes_were_fitted_one_by_one(classes, how, rest):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (300, 2)), rng.integers(0, len(classes), 300)
    model = DPLogisticRegression(4.0, bounds=Bounds(features=(-1, 1), classes=classes), multi_class=how)
    assert model.fit(X, y).privacy_report_.public["one_vs_rest"] is rest
    # each class against the others is a target of 0 and 1, whatever the number of classes
    assert prepare_fit(model, 300, 2).request.target_ends == (0.0, 1.0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_report_counts_weights_that_are_not_zero(n_classes):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 4))
    y = np.digitize(X[:, 0], np.linspace(-1, 1, n_classes + 1)[1:-1])
    options = {"bounds": UNIT, "epsilon": 20.0, "solver": "pursuit", "insecure_seed": 0, "multi_class": "ovr"}
    model = DPLogisticRegression(penalty="l1", strength=0.05, **options).fit(X, y)
    report, count = model.privacy_report_, np.count_nonzero(model.coef_)
    assert 0 < count < model.coef_.size
    assert (report.public["nonzero_weights"], report.public["weights"]) == (count, model.coef_.size)
    line = f"Weights that are not zero: {count} of {model.coef_.size}."
    assert line in report.summary().splitlines()
    assert line in PrivacyReport.from_json(report.to_json()).summary().splitlines()
    assert f"<dt>weights that are not zero</dt><dd>{count} of {model.coef_.size}</dd>" in report_page(report)
    smooth = DPLogisticRegression(**options).fit(X, y).privacy_report_
    assert "not zero" not in smooth.summary() + report_page(smooth)


def test_reports_plans_and_bounds_are_one_short_line():
    n_features = 3000
    X = np.random.default_rng(0).uniform(-1, 1, (300, n_features))
    bounds = Bounds(features=([-1.0] * n_features, dict.fromkeys(map(str, range(n_features)), 1.0)), classes=["a", "b"])
    assert repr(bounds) == (
        "Bounds(features=([-1.0, -1.0, -1.0, -1.0, ... 3,000 in all], "
        "{'0': 1.0, '1': 1.0, '2': 1.0, '3': 1.0, ... 3,000 in all}), classes=['a', 'b'])"
    )
    assert repr(Bounds(centre=np.zeros(9), scale=2.0, clip=3)) == (
        "Bounds(centre=[0.0, 0.0, 0.0, 0.0, ... 9 in all], scale=2.0, clip=3)"
    )
    assert repr(UNIT) == "Bounds(features=(-1, 1))"
    model = DPLogisticRegression(bounds=Bounds(features=([-1.0] * n_features, [1.0] * n_features)))
    plan, searched = model.plan(300, n_features), DPTuner(model, {"strength": [0.1, 1.0]}).plan(300, n_features)
    report = model.fit(X, (X[:, 0] > 0).astype(int)).privacy_report_
    count = sum(line.count for line in report.releases)
    assert repr(report) == f"PrivacyReport(epsilon 1, delta 1e-05, 300 records, 3,000 features, {count} releases)"
    assert repr(plan).startswith("PlanSummary(DPLogisticRegression on 300 rows and 3000 columns: epsilon 1 of 1, delta")
    assert repr(searched).startswith("SearchSummary(search over 2 candidates of DPLogisticRegression on 300 rows")
    assert repr(fit(insecure_seed=0).privacy_report_).startswith("PrivacyReport(no guarantee, delta 1e-05, 200 records")
    for one in (report, plan, searched):
        assert len(repr(one)) < 250
        assert "\n" not in repr(one)
