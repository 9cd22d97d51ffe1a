"""Ranks are exact counts of records, one per person, for every storage of the table."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dperm.data.holding.table_data import TableData
from dperm.data.tables.row_source import RowSource

GRID = np.array([-8.0, -1.0, 0.0, 0.5, 1.0, 64.0])
values = st.sampled_from([-9.0, -8.0, -1.0, -0.5, -0.0, 0.0, 0.5, 0.7, 1.0, 64.0, 1e300])


@settings(max_examples=60, deadline=None)
@given(st.lists(values, min_size=1, max_size=12), st.booleans())
def test_ranks_count_records(column, strict):
    X = np.array(column)[:, None]
    below = X < GRID if strict else X <= GRID
    for form in (X, sp.csr_array(X), sp.csc_array(X), sp.coo_array(X)):
        assert TableData(form).ranks(0, GRID, strict=strict).tolist() == below.sum(axis=0).tolist()


class Blocks(RowSource):
    """Rows that are read in parts of two."""

    shape = (3, 5)

    def __init__(self, X):
        self.X = X

    def _parts(self):
        yield from (self.X[start : start + 2] for start in (0, 2))


def test_rows_that_are_read_in_blocks_are_counted_alike():
    X = np.random.default_rng(0).choice([-9.0, -1.0, 0.0, 0.7, 64.0], (3, 5))  # more columns than rows
    for column in range(5):
        for strict in (False, True):
            found = TableData(Blocks(X)).ranks(column, GRID, strict=strict)
            assert found.tolist() == TableData(X).ranks(column, GRID, strict=strict).tolist()


def test_duplicate_sparse_entries_count_once():
    """Five entries of 0.2 in one cell are one record of value 1."""
    X = sp.csr_matrix((np.full(5, 0.2), np.zeros(5, int), [0, 5, 5]), shape=(2, 1))
    for form in (X, sp.csc_matrix((np.full(5, 0.2), np.zeros(5, int), [0, 5]), shape=(2, 1))):
        before = form.data.copy(), form.indptr.copy()
        assert TableData(form).ranks(0, GRID).tolist() == [0, 0, 1, 1, 2, 2]
        assert (form.data == before[0]).all()
        assert (form.indptr == before[1]).all()


def test_explicit_zeros_count_as_zeros():
    X = sp.csr_array((np.zeros(2), [0, 0], [0, 1, 2]), shape=(2, 1))
    assert TableData(X).ranks(0, GRID).tolist() == [0, 0, 2, 2, 2, 2]


def test_facts_are_the_shape_only():
    facts = TableData(np.zeros((3, 2)), n=4).facts
    assert (facts.n, facts.n_features, facts.d) == (4, 2, 2)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_its_repr_shows_no_value(make):
    assert "77.125" not in repr(TableData(make(np.full((3, 2), 77.125))))
