"""Several collections under one task: second collections, repeated descents, and counts of the wrong shape."""

from __future__ import annotations

import numpy as np
import pytest

from dperm import Bounds, Ledger, LocalLogisticRegression, Marginals
from dperm.errors import InvalidInput
from dperm.solvers.local import Counts

BOUNDS = Bounds(features=(-1, 1), classes=[False, True])


def fits(ledger):
    return ledger.spent().n_fits


def counted(ledger, counts, n_people=5000, epsilon=1.0, **options):
    model = LocalLogisticRegression(epsilon, bounds=BOUNDS, ledger=ledger, **options)
    return model.fit_counts(counts, 1, n_people=n_people)


def test_two_collections_under_one_task_are_more_reports_than_people(table):
    """Counts of one collection grow; those that do not hold one another are of different reports."""
    first, second = (LocalLogisticRegression(1.0, bounds=BOUNDS).fit(*table).counts_ for _ in range(2))
    ledger = Ledger(dataset="people")
    counted(ledger, first)
    counted(ledger, first)
    with pytest.raises(InvalidInput, match="10000 reports from 5000 people"):
        counted(ledger, second)
    with pytest.raises(InvalidInput, match="10000 reports from 5000 people"):
        counted(ledger, second)  # asking again does not help
    counted(Ledger(dataset="others"), second)
    shards = Ledger(dataset="people")
    for counts in (first, second, first + second, second):
        counted(shards, counts, n_people=10_000)
    assert fits(shards) == 1


def test_two_handles_on_one_ledger_are_one(table, tmp_path):
    first, second = (LocalLogisticRegression(1.0, bounds=BOUNDS).fit(*table).counts_ for _ in range(2))
    counted(Ledger(tmp_path / "book.db", dataset="people"), first)
    with pytest.raises(InvalidInput, match="10000 reports from 5000 people"):
        counted(Ledger(tmp_path / "book.db", dataset="people"), second)
    counted(Ledger(tmp_path / "book.db", dataset="others"), second)
    memory = Ledger(dataset="people")
    counted(memory, first)
    with pytest.raises(InvalidInput, match="10000 reports from 5000 people"):
        counted(memory.for_dataset("others").for_dataset("people"), second)
    counted(memory.for_dataset("others"), second)


def test_counts_that_differ_in_answers_alone_are_two_collections(table):
    """As many reports on every statistic, other bits."""
    first = LocalLogisticRegression(1.0, bounds=BOUNDS).fit(*table).counts_
    second = Counts(first.task, first.n, first.n - first.ones)
    ledger = Ledger(dataset="people")
    counted(ledger, first)
    with pytest.raises(InvalidInput, match="10000 reports from 5000 people"):
        counted(ledger, second)


def test_two_collections_of_queries_are_more_reports_than_people():
    bits, ledger = np.random.default_rng(0).random((500, 3)) < 0.5, Ledger(dataset="people")
    marginals = Marginals(1.0, n_bits=3, k=2, n_people=500, ledger=ledger)
    first, second = (Marginals(1.0, n_bits=3, k=2, n_people=500).fit(bits).counts_ for _ in range(2))
    marginals.fit_counts(first, n_people=500)
    with pytest.raises(InvalidInput, match="1000 reports from 500 people"):
        marginals.fit_counts(second, n_people=500)
    assert fits(ledger) == 1


@pytest.mark.parametrize("size", [1, 2, 9])
def test_counts_of_another_shape_are_refused_before_a_charge(table, size):
    """Under the right digest; nothing of them is remembered either."""
    right = LocalLogisticRegression(1.0, bounds=BOUNDS).fit(*table).counts_
    bits = np.ones((5000, 3), bool)
    of_bits = Marginals(1.0, n_bits=3, k=2, n_people=5000).fit(bits).counts_
    ledger = Ledger(dataset="people")
    marginals = Marginals(1.0, n_bits=3, k=2, n_people=5000, ledger=ledger)
    for kept, fit in ((right, lambda one: counted(ledger, one)), (of_bits, marginals.fit_counts)):
        cells = np.full(size, 20, np.int64)
        for wrong in (Counts(kept.task, cells, cells // 2), Counts(kept.task, kept.n, np.zeros((len(kept.n), 3), int))):
            with pytest.raises(InvalidInput, match="these counts are damaged") as refused:
                fit(wrong)
            assert str(refused.value).count(". ") == 0
            with pytest.raises(InvalidInput, match="cannot be merged"):
                kept + wrong
    assert fits(ledger) == 0
    counted(ledger, right)
    marginals.fit_counts(of_bits, n_people=5000)
    assert fits(ledger) == 2
    with pytest.raises(InvalidInput, match="for every statistic"):
        Counts(right.task, np.array(5), np.array(2))
