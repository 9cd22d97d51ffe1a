"""Contracts of a fit on Spark: bits of one block, nothing but releases to be seen, and sensitivities by replay."""

from __future__ import annotations

import gc
import warnings

import numpy as np
import pytest
from spark_session import MARKS, frame_of

from dperm import Bounds, DPLogisticRegression, DPRidge
from dperm.data.executors.placing import place
from dperm.data.tables.spark_rows import rows_and_target
from dperm.solvers import CoordinateDescent, GradientDescent
from dperm.testing import check_recorded, check_whole_path
from dperm.testing.executors import check_executor
from dperm.testing.whole_path import everything_about
from dperm.testing.whole_path.central_cases import CLASSES, NUMBER
from dperm.testing.whole_path.tables import class_tables, number_tables

pytestmark = MARKS


@pytest.mark.parametrize("every", [pytest.param(1000, marks=pytest.mark.sample, id="one example of each"), 10])
def test_every_query_has_the_bits_of_one_block(spark, every):
    def placed(X, y, scaling, height):
        return place(*rows_and_target(frame_of(spark, X, y), "label"), scaling, height)

    assert check_executor(placed, every=every) > 50


#: a short solver that releases sums over rows, one that keeps scores beside them, and the automatic rule with purchases
PATHS = {
    "gradient": (class_tables, DPLogisticRegression(4.0, bounds=CLASSES, solver=GradientDescent(n_steps=3))),
    "coordinate": (number_tables, DPRidge(4.0, bounds=NUMBER, solver=CoordinateDescent(n_rounds=1))),
    "bought ranges": (number_tables, DPRidge(20.0, solver=GradientDescent(n_steps=2))),
}


@pytest.mark.parametrize("name", PATHS)
def test_a_fit_shows_nothing_but_releases(spark, name):
    tables, model = PATHS[name]

    def run(table, folder):
        with warnings.catch_warnings():  # about sockets of Spark, whenever Python finds them unused
            warnings.simplefilter("ignore", ResourceWarning)
            fitted = type(model)(**model.get_params(deep=False)).fit(frame_of(spark, *table), "label")
            gc.collect()
        return everything_about(fitted, folder)

    check_whole_path(run, tables())


def test_a_recorded_fit_keeps_its_sensitivities(spark):
    pytest.importorskip("dp_accounting")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (60, 3))
    y = X[:, 0] + 0.5 * rng.normal(size=60) > 0.0
    bounds = Bounds(features=(-1, 1), classes=[False, True])
    model = DPLogisticRegression(0.4, delta=1e-5, bounds=bounds, solver=GradientDescent(n_steps=3))
    found = check_recorded(lambda X, y: model.fit(frame_of(spark, X, y), "label"), X, y, n_starts=1, n_climbs=0)
    assert max(found.reached.values()) >= 0.45
    assert found.total.lower <= found.claim.epsilon <= 0.4 + 1e-9
