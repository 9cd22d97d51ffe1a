"""A plan that is prepared once serves the warnings, the paid score and the fit, and no other fit."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from dperm import Bounds, DPLogisticRegression, DPRidge, DPTuner, Ledger
from dperm.errors import InvalidBounds, InvalidData, InvalidInput
from dperm.estimators.central import base
from dperm.estimators.central.base import fit_prepared, prepare_fit
from dperm.estimators.central.plan import summarise
from dperm.solvers import GradientDescent

UNIT = Bounds(features=(-1, 1), target=(-2, 2))
QUICK = GradientDescent(n_steps=4)
seeded = pytest.mark.filterwarnings("ignore::dperm.errors.DpermWarning")


def people(n=300, p=3):
    X = np.random.default_rng(0).uniform(-1, 1, (n, p))
    return X, X[:, 0]


def ridge(**options):
    return DPRidge(**{"bounds": UNIT, "solver": QUICK, **options})


def refused(model, prepared, X, y, match="the prepared plan belongs to other"):
    with pytest.raises(InvalidInput, match=match):
        fit_prepared(model, prepared, X, y)
    if model.ledger is not None:
        assert model.ledger.spent().n_fits == 0
    assert not hasattr(model, "coef_")


@seeded
@pytest.mark.parametrize("bounds", [UNIT, None], ids=["declared", "bought"])
def test_a_prepared_fit_is_the_fit(bounds):
    X, y = people(3000)
    one, other = (ridge(epsilon=4.0, bounds=bounds, insecure_seed=3, ledger=Ledger()) for _ in range(2))
    prepared = prepare_fit(one, 3000, 3)
    assert summarise(prepared) == other.plan(3000, 3)
    fit_prepared(one, prepared, X, y)
    other.fit(X, y)
    assert one.coef_.tobytes() == other.coef_.tobytes()
    first, second = (json.loads(model.privacy_report_.to_json()) for model in (one, other))
    for report in (first, second):
        del report["ledger"]["reservation"]
    assert first == second


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 2.0},
        {"delta": 1e-9},
        {"strength": 0.5},
        {"residual_clip": 0.5},
        {"neighbours": "zero-out"},
        {"fit_intercept": False},
        {"solver": GradientDescent(n_steps=5)},
        {"solver": "auto"},
        {"bounds": Bounds(features=(-1, 1), target=(-3, 3))},
        {"bounds": Bounds(features=([-1, -1, -1], [1, 1, 1]), target=(-2, 2))},
        {"bounds": Bounds(features=(-1, 1))},
        {"insecure_seed": 1},
    ],
    ids=repr,
)
def test_a_plan_for_other_parameters_is_refused(changes):
    model = ridge(ledger=Ledger())
    prepared = prepare_fit(model, 300, 3)
    refused(model.set_params(**changes), prepared, *people())


def test_a_plan_for_other_data_is_refused():
    model = ridge(ledger=Ledger())
    prepared = prepare_fit(model, 300, 3)
    refused(model, prepared, *people(301))
    refused(model, prepared, *people(300, 4))
    X, y = people()
    refused(model, prepared, pd.DataFrame(X > 0), y)  # columns of type bool have bounds by their type
    refused(ridge(ledger=Ledger()), prepared, X, y)  # another ledger
    classes = DPLogisticRegression(bounds=Bounds(features=(-1, 1)), solver=QUICK)
    three = prepare_fit(classes, 300, 3, n_classes=3)
    refused(classes, three, X, y > 0)
    refused(model, three, X, y)


def test_data_and_parameters_are_checked_as_in_a_fit():
    X, y = people()
    model = ridge(ledger=Ledger())
    prepared = prepare_fit(model, 300, 3)
    bad = X.copy()
    bad[0, 0] = np.nan
    with pytest.raises(InvalidData, match="NaN"):
        fit_prepared(model, prepared, bad, y)
    with pytest.raises(InvalidBounds, match="declare"):
        fit_prepared(model.set_params(bounds="declare"), prepared, X, y)
    assert model.ledger.spent().n_fits == 0


def test_equal_bounds_and_names_do_not_matter():
    X, y = people()
    model = ridge(bounds=Bounds(features=([-1, -1, -1], [1, 1, 1]), target=(-2, 2)))
    prepared = prepare_fit(model, 300, 3)
    model.set_params(bounds=Bounds(features=([-1, -1, -1], [1, 1, 1]), target=(-2, 2)))
    fit_prepared(model, prepared, pd.DataFrame(X, columns=["a", "b", "c"]), y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    bought = ridge(bounds=None, epsilon=8.0)
    assert fit_prepared(bought, prepare_fit(bought, 300, 3), X, y).coef_.shape == (3,)


def count_forecasts(monkeypatch):
    made = []
    forecast = GradientDescent.forecast
    monkeypatch.setattr(GradientDescent, "forecast", lambda *a, **o: made.append(a) or forecast(*a, **o))
    return made


def test_the_forecast_is_made_once_per_fit(monkeypatch):
    made = count_forecasts(monkeypatch)
    X, y = people()
    model = ridge().fit(X, y)
    assert len(made) == 1
    prepared = prepare_fit(model, 300, 3)
    assert prepared.utility_warnings == summarise(prepared).warnings
    fit_prepared(model, prepared, X, y)
    assert len(made) == 2
    DPTuner(ridge(), {"strength": [0.1, 1.0]}, epsilon=3.0).fit(X, y)
    assert len(made) == 4  # one for each candidate


def test_the_command_line_plans_once(monkeypatch, tmp_path):
    from click.testing import CliRunner

    from dperm.cli.main import cli

    made = []
    prepare = base.prepare
    monkeypatch.setattr(base, "prepare", lambda *a: made.append(a) or prepare(*a))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPERM_HOME", str(tmp_path))
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i % 7},{'ab'[i % 2]}\n" for i in range(400)))
    options = ["--target", "y", "--buy-bounds", "--model", "logistic", "--epsilon", "2", "--ledger", "own.db"]
    score = ["--test-fraction", "0.2", "--test-epsilon", "1"]
    Ledger(tmp_path / "own.db", create=True)
    done = CliRunner().invoke(cli, ["fit", "t.csv", *options, *score], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert len(made) == 1
