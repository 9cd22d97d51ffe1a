"""Rows in memory, on one thread or several."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from dperm.data.design.scaling import Scaling
from dperm.data.executors import threads
from dperm.data.executors.executor import TargetView
from dperm.data.executors.threads import MemoryExecutor, Threads, n_threads, read_ahead
from dperm.testing.executors import check_executor

PLAIN = Scaling(np.zeros(5), np.ones(5), 1.0)


@pytest.mark.parametrize("count", ["1", "2", pytest.param("7", marks=pytest.mark.long)])
def test_every_query_has_the_bits_of_one_block(count, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", count)
    monkeypatch.setattr(threads, "_LEAST_ENTRIES", 10)
    assert check_executor(MemoryExecutor) > 200


def test_the_number_of_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert n_threads() == 3
    for given in ("", "many", "0"):
        monkeypatch.setenv("OMP_NUM_THREADS", given)
        assert n_threads() >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "2,1")  # the first level counts
    assert n_threads() == 2


def test_small_and_sparse_tables_stay_one_block(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    X, y = np.ones((50, 5)), np.zeros(50)
    assert MemoryExecutor(X, y, PLAIN).only_block(TargetView()) is not None
    monkeypatch.setattr(threads, "_LEAST_ENTRIES", 10)
    assert MemoryExecutor(X, y, PLAIN).only_block(TargetView()) is None
    assert MemoryExecutor(sp.csr_array(X), y, PLAIN).only_block(TargetView()) is not None
    assert MemoryExecutor(np.zeros((50, 5)), y, PLAIN).only_block(TargetView()) is not None  # stored as sparse


def test_results_come_in_order_and_few_items_are_taken_ahead():
    taken = []

    def items():
        for k in range(100):
            taken.append(k)
            yield k

    results = Threads(3).map(lambda k: k * k, items())
    assert next(results) == 0
    assert len(taken) <= 5
    assert list(results) == [k * k for k in range(1, 100)]


def test_an_error_in_a_thread_is_raised_here_after_the_others_ended():
    ended = []

    def work(k):
        if k == 1:
            raise ValueError("one")
        ended.append(k)
        return k

    with pytest.raises(ValueError, match="one"):
        list(Threads(2).map(work, range(10)))
    assert threading.active_count() < 50


def test_reading_ahead_passes_errors_on_and_stops_early():
    def fails():
        yield 1
        raise OSError("gone")

    ahead = read_ahead(fails())
    assert next(ahead) == 1
    with pytest.raises(OSError, match="gone"):
        next(ahead)
    endless = read_ahead(iter(int, 1))
    assert next(endless) == 0
    endless.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "dperm reader"]


def test_threads_work_after_a_fork():
    """A pool that was started before a fork has no threads in the child."""
    code = """
import os, sys
from dperm.data.executors.threads import Threads
pool = Threads(2)
assert list(pool.map(abs, [-1, 2])) == [1, 2]
child = os.fork()
if child == 0:
    os._exit(0 if list(pool.map(abs, [-3, 4])) == [3, 4] else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=120, check=False)
    assert done.returncode == 0
