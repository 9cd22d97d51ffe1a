"""The experiments of the local paper: populations, algorithms, and what the runs show."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dperm import Marginals
from dperm.errors import InvalidInput
from dperm.experiments.datasets import DataFolder
from dperm.experiments.local import marginals, projection, queries, risk, server, table1
from dperm.experiments.local.people import LogisticPopulation, drawn, logistic_risk
from dperm.experiments.local.published import (
    ALGORITHMS,
    mechanism_named,
    published_weights,
    scaled_lipschitz,
    scaled_loss,
    weights_at,
)
from dperm.experiments.result import Measured
from dperm.experiments.running import run
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import LinearTask
from dperm.solvers.theory import local_rates


def result_of(module, tmp_path, data=None):
    folder = DataFolder(data)
    return run(module.EXPERIMENT, tmp_path, folder, fast=True, force=False, show=lambda *_: None)[0]


# ------------------------------------------------------------------------------------------ populations
def test_the_true_weights_are_best():
    population = LogisticPopulation.of(2, np.random.default_rng(1))
    rng = np.random.default_rng(2)
    assert population.excess(population.weights) == 0.0
    assert min(population.excess(population.weights + 0.3 * rng.normal(size=2)) for _ in range(20)) > 0.0


def test_drawn_counts_have_the_law_of_simulated_people():
    population = LogisticPopulation.of(2, np.random.default_rng(3))
    task = LinearTask("logistic", 1.0, (1.0, 1.0), 2.0, 2.0).task
    rng = np.random.default_rng(4)
    simulated = task.collect(population.records(200_000, rng), RandomSource(5))
    counts = drawn(task, population.chances(task), 200_000, rng)
    shares = [one.ones / one.n for one in (simulated, counts)]
    assert shares[0] == pytest.approx(shares[1], abs=6.0 * 0.5 / math.sqrt(counts.n.min() / 2))
    with pytest.raises(InvalidInput, match="one-bit"):
        population.chances(LinearTask("logistic", 1.0, (1.0, 1.0), 2.0, 2.0, n_levels=4).task)


def test_the_empirical_excess_is_measured_from_the_empirical_minimiser():
    population = LogisticPopulation.of(2, np.random.default_rng(6))
    records = population.records(500, np.random.default_rng(7))
    grid = np.linspace(-2, 2, 81)
    best = min(logistic_risk(records, np.array([a, b])) for a in grid for b in grid)
    found = logistic_risk(records, population.weights) - population.unit * population.empirical_excess(
        population.weights, records
    )
    assert found <= best
    assert found == pytest.approx(best, abs=1e-3)


# ------------------------------------------------------------------------------------------ published algorithms
@pytest.mark.parametrize("p", [1, 3, 6])
def test_the_scaled_loss_lies_between_0_and_1_with_its_lipschitz_constant(p):
    rng = np.random.default_rng(p)
    records = rng.normal(size=(2_000, p))
    records /= np.linalg.norm(records, axis=1, keepdims=True)
    points, others = rng.random((2, 2_000, p))
    values, nearby = scaled_loss(points, records), scaled_loss(others, records)
    assert values.min() >= 0.0
    assert values.max() <= 1.0
    slopes = np.abs(values - nearby) / np.linalg.norm(points - others, axis=1)
    assert slopes.max() <= scaled_lipschitz(p)
    corner = scaled_loss(np.zeros((1, p)), np.full((1, p), 1.0 / math.sqrt(p)))
    assert corner[0] == pytest.approx(1.0)
    assert weights_at(np.array([0.0, 0.5, 1.0])).tolist() == [-2.0, 0.0, 2.0]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_published_algorithms_find_the_weights_with_many_people(name):
    population = LogisticPopulation.of(1, np.random.default_rng(8))
    records = population.records(100_000, np.random.default_rng(9))
    found = published_weights(name, 3, records, epsilon=8.0)
    assert set(found) == {1, 2, 3}
    assert population.excess(found[3]) < 0.3 * population.excess(np.zeros(1))
    assert mechanism_named(name, 1, 3, 8.0).epsilon == 8.0


# ------------------------------------------------------------------------------------------ table 1
@pytest.mark.parametrize("p", [4, 5, 9])
def test_crossings_are_where_both_need_equally_many(p):
    for fewer in (local_rates.smooth_people, local_rates.very_smooth_people):
        at = table1.crossing(fewer, local_rates.convex_people, p)
        assert fewer(at, p, 1.0) / local_rates.convex_people(at, p, 1.0) == pytest.approx(1.0, rel=1e-6)
        assert fewer(at / 10, p, 1.0) < local_rates.convex_people(at / 10, p, 1.0)


@pytest.mark.parametrize("p", [1, 2])
def test_for_few_parameters_smooth_losses_never_need_fewer_people(p):
    """The exponents are 2 + p/2 and p + 1: the claim under the table needs p of 3 or more."""
    assert table1.crossing(local_rates.smooth_people, local_rates.convex_people, p) == 0.0
    assert local_rates.smooth_people(1e-12, p, 1.0) > local_rates.convex_people(1e-12, p, 1.0)


def test_the_table_shows_all_rows_and_a_number_that_reaches_the_error(tmp_path):
    result = result_of(table1, tmp_path)
    rows = {row.what: row for row in result.rows}
    row = rows["p = 1, error 0.01, Smith et al., Theorem 10 (convex): people"]
    assert row.paper == "formula, constants 1: 2e+04"
    assert row.difference.startswith("n^(1/(p+1)) bits")
    assert float(row.difference.split("error ")[1].split(";")[0]) <= 0.01
    assert 500 < float(row.certified) < 50_000
    none = rows["p = 1: error below which (8, T)-smooth needs fewer people than Theorem 10"]
    assert (none.certified, none.without_noise) == (None, "none")
    assert "Smith et al., Claim 4 (Lipschitz)" in result.panels[0].labels


# ------------------------------------------------------------------------------------------ risk, server
def test_the_risk_falls_and_the_bound_is_drawn(tmp_path):
    result = result_of(risk, tmp_path)
    curves = {curve.label: curve.points for curve in result.panels[0].curves}
    assert {"dperm, moments", "bound (3), without constants", *ALGORITHMS} == set(curves)
    assert curves["dperm, moments"][-1][1] < curves["dperm, moments"][0][1]
    assert curves["bound (3), without constants"][0][1] == local_rates.bernstein_error(1_000, 2, 2, 1.0)
    assert any("population excess" in row.what for row in result.rows)


def test_options_are_chosen_on_other_runs():
    found = {"a": [[0, 1.0], [0, 9.0]], "b": [[0, 2.0], [0, 0.0]]}
    option, _, population = risk._chosen(found)
    assert option == "a"
    assert population == Measured.over([9.0])


def test_the_server_takes_more_than_three_parameters(tmp_path):
    rows = {row.what: row for row in result_of(server, tmp_path).rows}
    assert rows["p = 4, polynomial time: excess"].certified.mean < 0.2
    assert "p = 4, grid: excess" not in rows
    assert "p = 2, grid: excess" in rows


# ------------------------------------------------------------------------------------------ projection
def test_the_printed_projection_stands_in_the_printed_column_only(tmp_path):
    rows = result_of(projection, tmp_path).rows
    printed = [row for row in rows if row.what.startswith("Algorithm 4, ") and "repaired" not in row.what]
    assert printed
    for row in printed:
        assert row.certified is None
        assert row.difference.startswith("no guarantee")
        assert float(row.difference.rsplit(" ", 1)[1]) > 1.0  # epsilon that its noise certifies
    for row in rows:
        if "repaired" in row.what:
            assert row.printed is None
    widths = [row for row in rows if row.what.startswith("Gaussian width")]
    for row in widths:
        computed = float(row.what.rsplit(" ", 1)[1])
        assert row.certified is None
        assert row.without_noise.mean == pytest.approx(computed, abs=6.0 * row.without_noise.error + 1e-3)


# ------------------------------------------------------------------------------------------ queries
def test_the_worst_population_has_the_stated_bias():
    model = Marginals(16.0, n_bits=8, k=4, n_people=200_000, degree=2)
    bits, zeros = marginals.worst_population(model, 200_000, np.random.default_rng(10))
    assert (bits[:, :4].sum(axis=1) == 4 - zeros).all()
    assert not bits[:, :4].all(axis=1).any()
    model.fit(bits)
    off = [abs(marginals.uncut(model, range(start, start + 4))) for start in (0, 4)]
    assert np.mean(off) == pytest.approx(model.polynomial.bias, abs=0.04)


def test_marginals_say_what_they_state(tmp_path):
    result = result_of(marginals, tmp_path)
    assert {row.what.split(",")[0] for row in result.rows} == {"made", "a9a", "worst"}
    for row in result.rows:
        assert 0.0 < row.certified.mean < 0.5
    assert all(one.data.startswith("made") for one in result.baselines)


def test_a_wrong_file_in_place_of_a9a_is_refused(tmp_path):
    (tmp_path / "a9a.npz").write_bytes(b"nothing")
    with pytest.raises(InvalidInput, match=r"a9a\.npz"):
        result_of(marginals, tmp_path / "out", tmp_path)


def test_a9a_is_read_where_it_is(tmp_path):
    rng = np.random.default_rng(11)
    X = (rng.random((3_000, 30)) < np.linspace(0.05, 0.95, 30)).astype(np.int8)
    np.savez(tmp_path / "a9a.npz", X=X, y=np.zeros(3_000))
    result = result_of(marginals, tmp_path / "out", tmp_path)
    one = next(one for one in result.baselines if one.problem.startswith("a9a"))
    assert (one.data, one.n, one.p) == ("real, a9a.npz", 3_000, 8)


def test_smooth_functions_have_values_from_0_to_1_and_small_errors(tmp_path):
    rng = np.random.default_rng(12)
    x = queries.population(2, 500, rng)
    assert np.abs(x).max() <= 1.0
    for each in queries.smooth_functions(2, 5, rng).values():
        for one in each:
            assert one(x).min() >= 0.0
            assert one(x).max() <= 1.0
    result = result_of(queries, tmp_path)
    null = {one.p: one.null for one in result.baselines}
    assert all(row.certified.mean < null[int(row.what[4])] for row in result.rows)
