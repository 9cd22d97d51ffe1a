"""Marginals and smooth queries: polynomials, unbiasedness, stated errors, bad input."""

from __future__ import annotations

import copy
import pickle
from itertools import product

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dperm import Ledger
from dperm.errors import InvalidBounds, InvalidData, InvalidInput
from dperm.estimators.local.queries import Marginals, SmoothQueries
from dperm.privacy.randomness import RandomSource
from dperm.solvers.local import Moments, Parity, Task
from dperm.solvers.local.chebyshev_expansion import chebyshev_expansion
from dperm.solvers.local.conjunctions import conjunction, krawtchouk


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_conjunctions(k):
    """g(0) = 1 and at most the stated bias elsewhere, rebuilt from parities of all bit strings."""
    for degree in range(1, k + 1):
        one = conjunction(k, degree)
        for t in range(k + 1):
            g = sum(w * krawtchouk(r, t, k) for r, w in enumerate(one.weights))
            assert abs(g - (t == 0)) <= one.bias + 1e-12
            assert abs(g - 1.0) < 1e-9 or t > 0
        assert one.bias == 0.0 or degree < k


def test_krawtchouk_counts_parities():
    bits = np.array(list(product((0, 1), repeat=4)))
    for r in range(5):
        subsets = [s for s in product((0, 1), repeat=4) if sum(s) == r]
        for x in bits:
            total = sum((-1) ** int(x @ np.array(s)) for s in subsets)
            assert total == krawtchouk(r, int(x.sum()), 4)


def test_the_error_of_wide_marginals_at_epsilon_one():
    """32 bits, 8 at a time, ten million people; exact parities would be worse."""
    error = Marginals(1.0, n_bits=32, k=8, n_people=10_000_000).expected_error
    assert error.error <= 0.045
    exact = conjunction(8, 8)
    assert exact.deviation(32, 10_000_000, 2.164) > error.error


def test_marginals_are_right_within_their_error():
    rng = np.random.default_rng(0)
    bits = rng.random((200_000, 6)) < [0.9, 0.8, 0.9, 0.3, 0.5, 0.9]
    model = Marginals(2.0, n_bits=6, k=3, n_people=200_000, insecure_seed=0).fit(bits)
    off, outside = [], 0
    for columns in ([0], [3], [0, 1], [0, 1, 2], [0, 3, 5], [2, 4, 5], [5, 1, 0]):
        for values in product((0, 1), repeat=len(columns)):
            answer = model.query(columns, values)
            truth = float((bits[:, columns] == np.array(values)).all(axis=1).mean())
            off.append(abs(answer.value - truth))
            outside += abs(answer.value - truth) > answer.bias + 4.0 * answer.deviation
    assert outside == 0
    assert np.mean(off) < 0.02
    assert model.query([0, 1]) == model.query([0, 1], [1, 1])


def test_scaled_sums_are_unbiased_where_hardly_anybody_answers():
    """Fewer people than statistics: the mean over many collections, against the truth and against 0.8 of it."""
    task = Task("t", 4.0, Parity(8, (1.0, 1.0, 1.0)))
    records = np.zeros((60, 8))
    source = RandomSource(1)
    runs = np.array([task.scaled_sums(task.collect(records, source))[0] for _ in range(1500)])
    assert runs.mean() == pytest.approx(1.0, abs=0.05)
    _, variance = task.scaled_sums(task.collect(records, source))
    assert (runs.var(axis=0) < 1.25 * variance).all()
    moments = Task("t", 1.0, Moments(((2,),), (1.0,), 1))
    with pytest.raises(InvalidInput, match="symmetric"):
        moments.scaled_sums(moments.no_counts())
    with pytest.raises(InvalidInput, match="another task"):
        task.scaled_sums(Task("u", 4.0, task.sketch).no_counts())


def bump(x):
    return np.exp(-(((x - 2.0) / 3.0) ** 2).sum(axis=1))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_smooth_queries_are_right_within_their_error(d):
    x = np.random.default_rng(d).normal(1.0, 1.5, (150_000, d)).clip(-5, 5)
    model = SmoothQueries(2.0, low=[-5] * d, high=[5] * d, n_degrees=7, insecure_seed=d).fit(x)
    answer = model.query(bump)
    assert abs(answer.value - bump(x).mean()) <= answer.bias + 4.0 * answer.deviation
    assert answer.error < 0.25
    constant = model.query(lambda x: np.full(len(x), 3.0))
    assert constant.value == pytest.approx(3.0)
    assert constant.deviation == pytest.approx(0.0, abs=1e-12)


def test_smooth_queries_spread_as_stated():
    x = np.random.default_rng(5).uniform(-1, 1, (2000, 1))
    f = lambda z: np.cos(2.0 * z[:, 0])  # noqa: E731
    answers = [SmoothQueries(1.0, low=[-1], high=[1], insecure_seed=i).fit(x).query(f) for i in range(200)]
    spread = np.std([answer.value for answer in answers])
    assert 0.8 * answers[0].deviation < spread < 1.15 * answers[0].deviation


def test_bad_input():
    def marginals(**options):
        return Marginals(1.0, **{"n_bits": 4, "k": 2, "n_people": 1000, **options})

    for options in ({"k": 5}, {"k": 0}, {"n_bits": 2.5}, {"n_people": -1}, {"degree": 3}, {"n_bits": 99}):
        with pytest.raises(InvalidInput):
            marginals(**options)
    with pytest.raises(NotFittedError, match="fit_counts"):
        marginals().query([0])
    fitted = marginals(insecure_seed=0).fit(np.ones((1000, 4), bool))
    for columns, values in (([], None), ([0, 1, 2], None), ([0, 0], None), ([4], None), ([0], [2]), ([0], [1, 1])):
        with pytest.raises(InvalidInput):
            fitted.query(columns, values)
    with pytest.raises(InvalidData, match="4 columns"):
        fitted.fit(np.ones((10, 3)))
    with pytest.raises(InvalidData, match="numbers"):
        fitted.fit(np.full((10, 4), "x"))
    for options in ({"low": [1], "high": [0]}, {"low": [0] * 4, "high": [1] * 4}, {"low": [0], "high": [1, 2]}):
        with pytest.raises(InvalidBounds):
            SmoothQueries(1.0, **options)
    for options in ({"n_degrees": 1}, {"n_degrees": 99}, {"decay": 0.0}):
        with pytest.raises(InvalidInput):
            SmoothQueries(1.0, low=[0], high=[1], **options)
    smooth = SmoothQueries(1.0, low=[0], high=[1], insecure_seed=0)
    with pytest.raises(NotFittedError, match="fit_counts"):
        smooth.query(bump)
    with pytest.raises(InvalidData, match="1 columns"):
        smooth.fit(np.ones((10, 2)))
    with pytest.raises(InvalidInput, match="one finite number"):
        smooth.fit(np.ones((10, 1))).query(lambda x: x)


@pytest.mark.parametrize(
    "queries",
    [
        Marginals(2.0, n_bits=3, k=2, n_people=500, version=4),
        SmoothQueries(2.0, low=[0, 1], high=[1, 2], n_degrees=3, window="May"),
        SmoothQueries(2.0, low=np.zeros(1), high=np.ones(1), n_degrees=3),
    ],
    ids=lambda one: type(one).__name__,
)
def test_copies(queries):
    ledger = Ledger()
    queries = clone(queries).set_params(ledger=ledger)
    again = clone(queries)
    assert again.task.digest == queries.task.digest
    assert again.ledger is ledger
    assert copy.deepcopy(queries).ledger is ledger
    columns = again.task.sketch.n_columns
    fitted = again.fit(np.ones((500, columns)))
    assert pickle.loads(pickle.dumps(fitted.set_params(ledger=None))).counts_.n_people == 500


def test_changed_parameters_make_another_task():
    queries = Marginals(2.0, n_bits=3, k=2, n_people=500).fit(np.ones((500, 3)))
    before = queries.task.digest
    queries.epsilon = 1.0
    assert queries.task.epsilon == 1.0
    assert queries.task.digest != before
    with pytest.raises(InvalidInput, match="parameters have changed"):
        queries.query([0])
    assert queries.set_params(epsilon=2.0).query([0]).value > 0.5
    with pytest.raises(InvalidInput, match="k must be at most"):
        queries.set_params(k=4).fit(np.ones((500, 3)))


def test_bounds_that_differ_in_the_last_digit_are_different_tasks():
    queries = SmoothQueries(1.0, low=np.array([0.0]), high=np.array([0.1234567891]))
    assert queries.set_params(high=np.array([0.1234567899])).task.inputs["high"] == [0.1234567899]


def test_whole_numbers_of_an_array_are_taken_as_they_are():
    n_bits, k, n_people = np.array([3, 2, 500])
    plain = Marginals(1.0, n_bits=3, k=2, n_people=500)
    assert Marginals(1.0, n_bits=n_bits, k=k, n_people=n_people).task.digest == plain.task.digest
    for degree in (1, np.int64(1)):
        assert Marginals(1.0, n_bits=n_bits, k=k, n_people=500, degree=degree).task.sketch.n_bits == 3


def test_a_dict_asks_for_columns_and_values():
    bits = np.random.default_rng(0).random((2000, 3)) < 0.5
    marginals = Marginals(4.0, n_bits=3, k=2, n_people=2000, insecure_seed=0).fit(bits)
    assert marginals.query({0: 0, 2: 1}) == marginals.query([0, 2], [0, 1])
    with pytest.raises(InvalidInput, match="not both"):
        marginals.query({0: 1}, [1])


@pytest.mark.parametrize("wrong", [2.0, -1.0, 0.5, np.nan, np.inf])
def test_entries_that_are_no_bits_or_no_numbers_are_refused_before_a_charge(wrong):
    ledger = Ledger()
    records = np.ones((20, 2))
    records[3, 1] = wrong
    with pytest.raises(InvalidData, match="0 and 1"):
        Marginals(1.0, n_bits=2, k=1, n_people=20, ledger=ledger).fit(records)
    if not np.isfinite(wrong):
        with pytest.raises(InvalidData, match="NaN or infinite"):
            SmoothQueries(1.0, low=[0, 0], high=[1, 1], ledger=ledger).fit(records)
    assert ledger.spent().n_fits == 0


def test_the_bias_of_a_marginal_is_reached_in_the_worst_population():
    """Everybody misses the marginal by one zero, where a polynomial of low degree is furthest from 0."""
    k, n = 4, 400_000
    bits = ~np.eye(k, dtype=bool)[np.random.default_rng(0).integers(0, k, n)]
    answer = Marginals(8.0, n_bits=k, k=k, n_people=n, degree=2, insecure_seed=0).fit(bits).query(range(k))
    g = sum(w * krawtchouk(r, 1, k) for r, w in enumerate(conjunction(k, 2).weights))
    assert abs(abs(g) - answer.bias) < 1e-12
    assert abs(answer.value - abs(g)) < 4.0 * answer.deviation
    assert answer.bias > 10.0 * answer.deviation


def test_the_bias_of_a_smooth_query_holds_what_was_not_asked_for():
    """0.3 T_9 where degrees below 8 are asked, and everybody where it is largest."""
    model = SmoothQueries(8.0, low=[-1], high=[1], insecure_seed=0).fit(np.ones((100_000, 1)))

    def wave(x):
        return 1.0 + 0.3 * np.cos(9.0 * np.arccos(np.clip(x[:, 0], -1.0, 1.0)))

    for answer in (model.query(wave), model.query(wave, lipschitz=0.3 * 81.0)):
        assert abs(answer.value - 1.3) == pytest.approx(0.3, abs=4.0 * answer.deviation + 1e-9)
        assert answer.bias + 1e-12 >= 0.3
        assert answer.bias < 0.35
    assert model.query(lambda x: x[:, 0] ** 7).bias < 1e-12


@pytest.mark.parametrize(
    "function", [lambda x: (abs(x[:, 0] - 5) < 0.12) * 1.0, lambda x: np.cos(128 * np.arccos((x[:, 0] - 5) / 5))]
)
def test_functions_that_hide_between_the_nodes_are_refused(function):
    model = SmoothQueries(4.0, low=[0], high=[10], insecure_seed=0).fit(np.full((1000, 1), 5.0))
    with pytest.raises(InvalidInput, match="varies too fast"):
        model.query(function)


@pytest.mark.parametrize("d", [1, 2])
def test_with_a_lipschitz_constant_the_bias_is_a_bound(d):
    """A narrow tent between any two points that are looked at: what is missed is within the bound."""
    rng = np.random.default_rng(d)
    model = SmoothQueries(8.0, low=[0] * d, high=[10] * d, insecure_seed=0).fit(np.full((1000, d), 5.0))
    for _ in range(5):
        centre = rng.uniform(0, 10, d)

        def tent(x, centre=centre):
            return np.sin(x.sum(axis=1) / 5) + np.maximum(0.0, 0.05 - np.linalg.norm(x - centre, axis=1))

        answer = model.query(tent, lipschitz=np.sqrt(d) / 5 + 1.0)
        near = centre + rng.uniform(-0.05, 0.05, (2000, d))
        everywhere = np.vstack([near, rng.uniform(0, 10, (2000, d)), centre[None]]).clip(0, 10)
        asked, _ = chebyshev_expansion(tent, np.zeros(d), np.full(d, 10.0), 8, None)
        at = [np.polynomial.chebyshev.chebvander(column / 5 - 1, 7) for column in everywhere.T]
        stands = at[0] @ asked if d == 1 else np.einsum("ma,mb,ab->m", *at, asked)
        assert np.abs(tent(everywhere) - stands).max() <= answer.bias


def test_bad_arguments_are_refused_with_one_sentence():
    fitted = Marginals(4.0, n_bits=3, k=2, n_people=2000, insecure_seed=0).fit(np.ones((2000, 3), bool))
    for columns, values in (([0.7], None), ([0], [0.5]), (["a"], None), ({0: 0.5}, None), ("01", None), (0.5, None)):
        with pytest.raises(InvalidInput, match="whole numbers"):
            fitted.query(columns, values)
    assert fitted.query(np.array([0, 2])) == fitted.query([0, 2], [True, True])
    with pytest.raises(InvalidInput, match="degree"):
        Marginals(1.0, n_bits=3, k=2, n_people=100, degree="x")
    with pytest.raises(InvalidInput, match="decay"):
        SmoothQueries(1.0, low=[0], high=[1], decay="a")
    with pytest.raises(InvalidBounds, match="numbers"):
        SmoothQueries(1.0, low=["a"], high=[1])
    smooth = SmoothQueries(1.0, low=[0], high=[1], insecure_seed=0).fit(np.ones((10, 1)))
    for lipschitz in ("a", -1.0, np.inf):
        with pytest.raises(InvalidInput, match="lipschitz"):
            smooth.query(lambda x: x[:, 0], lipschitz=lipschitz)


def test_a_wrong_entry_is_found_in_any_block():
    records = np.ones((200_000, 1))
    records[150_000] = 2.0
    with pytest.raises(InvalidData, match="0 and 1"):
        Marginals(1.0, n_bits=1, k=1, n_people=10).fit(records)


def expanded(d=1, n_degrees=8):
    queries = SmoothQueries(1.0, low=[-1.0] * d, high=[1.0] * d, n_degrees=n_degrees)
    return queries.fit(np.zeros((1000, d)))


def test_the_bias_of_a_smooth_query_holds_what_no_coefficient_sees():
    """A Chebyshev polynomial that is 0 at all nodes."""
    answer = expanded().query(lambda x: x[:, 0] + 0.05 * np.cos(64.0 * np.arccos(x[:, 0])))
    assert 0.049 < answer.bias < 0.06


def test_the_bound_holds_what_both_functions_change_between_points():
    """x is its own expansion: nothing is missed at any point, and both change by 1 per unit up to the next one."""
    assert expanded().query(lambda x: x[:, 0], lipschitz=1.0).bias == pytest.approx(2.0 / 4096, rel=1e-6)
    assert expanded().query(lambda x: x[:, 0], lipschitz=3.0).bias == pytest.approx(4.0 / 4096, rel=1e-6)


@pytest.mark.parametrize(("d", "lipschitz"), [(1, 0.0), (1, 1.9), (3, 1.0)])
def test_a_lipschitz_constant_that_the_values_contradict_is_refused(d, lipschitz):
    model = expanded(d, 4)
    with pytest.raises(InvalidInput, match="too small: this function changes by"):
        model.query(lambda x: x[:, -1] ** 2, lipschitz=lipschitz)
    assert model.query(lambda x: x[:, -1] ** 2, lipschitz=2.0).bias < 1.0
    assert model.query(lambda x: np.full(len(x), 1e9), lipschitz=0.0).bias < 1e-3


def test_functions_that_are_nothing_on_every_grid_are_refused():
    """Three columns: 0 at all 32 nodes and in the middles of all 40 cells of the first one."""

    def hidden(x):
        return x[:, 0] + np.cos(32.0 * np.arccos(x[:, 0])) * np.cos(20.0 * np.pi * (x[:, 0] + 1.0))

    with pytest.raises(InvalidInput, match="varies too fast"):
        expanded(3, 4).query(hidden)
