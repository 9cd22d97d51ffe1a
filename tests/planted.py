"""How planted bugs reach the data of a solver, and the exact numbers that they take from them."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from dperm.data.design.matrix import DesignMatrix
from dperm.data.executors.executor import PlacedData
from dperm.data.holding.design_data import DesignData
from dperm.data.holding.holder import DryRunHolder


def private_data(holder: Any) -> Any:
    """Return the data of a holder through the memory of the interpreter, because no attribute leads there."""
    data = inspect.getclosurevars(holder._DataHolder__release).nonlocals["data"]
    return whole_data(data) if isinstance(data, PlacedData) else data


class Thief:
    """Work for an executor that takes the rows of every block along."""

    name, reads_columns = "thief", False

    def __init__(self):
        self.blocks = []

    def part_size(self, facts):
        return 1

    def part(self, block):
        self.blocks.append((block.first, block.design.columns(np.dtype(float)).T, block.target))
        return np.zeros(1)


def whole_data(placed):
    """The data of all blocks of an executor in this process as one."""
    thief = Thief()
    list(placed.parts(thief))
    blocks = sorted(thief.blocks, key=lambda one: one[0])
    rows, target = (np.concatenate([one[k] for one in blocks]) for k in (1, 2))
    shape = placed.executor.shape
    return DesignData(DesignMatrix(rows, np.zeros(shape.n_features), shape), target, placed.view.low, placed.view.high)


def after_solving(monkeypatch, solver, bug):
    """Let ``bug(solution, data)`` have the last word on what a solver returns; ``data`` are those of its holder."""
    honest = solver.solve

    def solve(self, objective, holder, calibrated, progress=None):
        solution = honest(self, objective, holder, calibrated, progress)
        return solution if isinstance(holder, DryRunHolder) else bug(solution, private_data(holder))

    monkeypatch.setattr(solver, "solve", solve)


def before_solving(monkeypatch, solver, bug):
    """Let a solver be what ``bug(solver, data)`` returns."""
    honest = solver.solve

    def solve(self, objective, holder, calibrated, progress=None):
        other = self if isinstance(holder, DryRunHolder) else bug(self, private_data(holder))
        return honest(other, objective, holder, calibrated, progress)

    monkeypatch.setattr(solver, "solve", solve)


def rows_of(data):
    """The scaled rows, computed by hand: a bug need not evaluate a query."""
    return np.concatenate([block * data.design.spacing for _, block in data.design.row_chunks()])


def exact_gradient(data, weights):
    """Gradient of the logistic loss, without noise."""
    rows = rows_of(data)
    return rows.T @ (1.0 / (1.0 + np.exp(-rows @ weights)) - data.target) / len(rows)
