"""A small experiment that counts how often its pieces are computed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dperm.experiments.charts import Curve, Panel
from dperm.experiments.experiment import Experiment
from dperm.experiments.result import Baseline, Measured, Result, ResultRow


@dataclass(frozen=True)
class Options:
    runs: int


class Counting:
    """The measure of the small experiment; ``stop_at`` raises an error in that piece."""

    def __init__(self):
        self.computed = []
        self.stop_at = None

    def __call__(self, run):
        def piece(k):
            if k == self.stop_at:
                raise KeyboardInterrupt
            self.computed.append(k)
            return k / 10

        found = run.pieces({f"piece {k}": lambda k=k: piece(k) for k in range(run.settings.runs)})
        measured = Measured.over(list(found.values()))
        curve = Curve("ours", tuple((float(k), value) for k, value in enumerate(found.values())))
        return Result(
            (ResultRow("small: error", measured, None, 0.5, "another problem"),),
            (Baseline("small", "made, nothing", 4, 2, 7, "objective", 0.5, 0.75),),
            (Panel("small", "piece", "error", (curve,)),),
            ("a note",),
        )


@pytest.fixture
def counting():
    return Counting()


@pytest.fixture
def small(counting):
    return Experiment("small", "A. Paper 2020", "a small table", 0.1, counting, Options(4), Options(2), ("x.npz",))
