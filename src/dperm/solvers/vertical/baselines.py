"""Baselines for a vertical run: the same method with one party's columns alone, and with all columns in one place.

The literature reports both next to vertical results (Hu et al. 2019, section 5). They keep the method, options, budget
and noise of a task and give it one holder. A vertical run exists to avoid pooling tables, so the pooled baseline is for
experiments in which one owner has all columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from dperm.data.design.facts import Facts
from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.errors import InvalidInput
from dperm.solvers.vertical.task import VerticalTask

__all__ = ["EVERYONE", "centralised", "local_only"]

#: the one holder of a centralised run
EVERYONE = "everyone"

TaskKind = TypeVar("TaskKind", bound=VerticalTask)
Designs = Mapping[str, DesignMatrix]


def local_only(task: TaskKind, designs: Designs, party: str) -> tuple[TaskKind, dict[str, DesignMatrix]]:
    """Return the task and the design of one party that trains on its own columns and the label only."""
    if party not in designs:
        raise InvalidInput(f"{party!r} is not a party of this run.")
    return _held_by_one(task, designs, (party,), party)


def centralised(task: TaskKind, designs: Designs) -> tuple[TaskKind, dict[str, DesignMatrix]]:
    """Return the task and the design of one holder of all columns, in the order of the parties."""
    return _held_by_one(task, designs, tuple(designs), EVERYONE)


def _held_by_one(
    task: TaskKind, designs: Designs, names: Sequence[str], holder: str
) -> tuple[TaskKind, dict[str, DesignMatrix]]:
    """Task and design of one holder: the intercept comes last, and bounds follow from the parties' public bounds."""
    heights = [design.intercept_height for design in designs.values()]
    parts = [designs[name] for name in names]
    X = np.column_stack([_features(part) for part in parts])
    clip = max(part.shape.top * part.spacing for part in parts)
    squares = (part.row_bound**2 - part.intercept_height**2 for part in parts)
    scaling = Scaling(
        np.zeros(X.shape[1]),
        np.ones(X.shape[1]),
        clip,
        math.sqrt(sum(squares)),
        min(part.shape.spread for part in parts),
    )
    design = DesignMatrix.from_array(X, scaling, max(heights))
    return replace(task, parties={holder: Facts.of_design(design.shape)}), {holder: design}


def _features(design: DesignMatrix) -> np.ndarray:
    """Scaled values of a party's columns, without its constant column."""
    blocks = [block[:, : design.n_features] * design.spacing for _, block in design.row_chunks()]
    return np.concatenate(blocks)
