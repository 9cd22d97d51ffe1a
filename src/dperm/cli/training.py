"""Reads and checks the table of ``dperm fit`` before anything is charged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dperm.data.design.bounds import Bounds
from dperm.data.schema.draft import reason_to_ignore
from dperm.data.schema.encoded_rows import encoded_rows
from dperm.data.schema.encoding import parse_numbers
from dperm.data.schema.schema import CLASSES, Schema
from dperm.data.tables.files import TableFile
from dperm.data.tables.raw_columns import BOOLEAN
from dperm.data.tables.target_source import TargetSource
from dperm.errors import InvalidBounds, InvalidData, InvalidInput
from dperm.types import BoolArray, FloatArray

__all__ = ["Training", "held_out", "numeric", "read_by_schema", "read_to_buy_bounds"]

#: copies of the table that a fit holds at once: the table, its scaled design, and room to work
_COPIES = 4.0
#: share of the free memory that they may take
_PART_OF_MEMORY = 0.6


@dataclass(frozen=True)
class Training:
    """Encoded rows, in memory, read in blocks or on a cluster, with everything public about them."""

    X: Any
    y: Any
    names: list[str]
    bounds: Bounds | None
    schema: Schema | None
    classification: bool
    n_columns: int

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None for a numeric target. Without a schema the labels of the target count as public."""
        if not self.classification:
            return None
        return len(np.unique(self.y)) if self.schema is None else len(self.schema.target.classes)

    @property
    def in_memory(self) -> bool:
        """Whether the rows are an array."""
        return isinstance(self.X, np.ndarray)


def read_by_schema(table: TableFile, path: Path, target: str | None, cluster: Any = None) -> Training:
    """Read and encode a table by a schema, here or on the workers of a cluster; refuses whatever does not fit it."""
    schema = Schema.read(path)
    if target is not None and target != schema.target.name:
        raise InvalidInput(
            f"--target is {target!r} and {path.name} is for target {schema.target.name!r}: draft another."
        )
    schema.require_confirmed(str(path))
    table.require([schema.target.name, *(column.name for column in schema.used)])
    known = {schema.target.name, *(column.name for column in schema.columns)}
    unknown = [name for name in table.names if name not in known]
    if unknown:
        raise InvalidBounds(
            f"{table.path.name} has a column {unknown[0]!r} that {path.name} does not know: declare it there, with "
            'kind = "ignore" if it is not to be used.'
        )
    X: Any
    y: Any
    if cluster is not None:
        from dperm.data.schema.cluster_rows import rows_on_cluster

        X, y = rows_on_cluster(schema, table, cluster)
    elif _fits_memory(table, len(schema.encoded_names)):
        encoded = schema.encode(table, with_target=True)
        X, y = encoded.X, encoded.y
    else:
        X, y = encoded_rows(schema, table)
    assert y is not None
    classification = schema.target.kind == CLASSES
    _check_target(y, schema.target.name)
    return Training(X, y, schema.encoded_names, schema.bounds(), schema, classification, len(schema.used))


def read_to_buy_bounds(table: TableFile, target: str, drop: tuple[str, ...], regression: bool | None) -> Training:
    """Read the numeric columns of a table whose ranges will be bought."""
    table.require([target, *drop])
    if regression is None and table.kind(target) != BOOLEAN:
        # choosing from the values would have to be paid for
        raise InvalidInput(
            "--model is missing: with --buy-bounds only the model determines whether to predict classes or a number."
        )
    classification = not regression
    names = [name for name in table.names if name != target and name not in drop]
    if not names:
        raise InvalidInput("no column is left to learn from: drop fewer.")
    for name in names:
        kind = table.kind(name)
        if advice := reason_to_ignore(name, kind):
            why = advice[0].lower() + advice[1:]  # in the middle of a sentence
            raise InvalidData(f"column {name!r} is not taken: {why} Leave it out with --drop, or draft a schema.")
    if not _fits_memory(table, len(names)):
        raise InvalidInput("this table does not fit into memory: draft a schema, with which it is read in blocks.")
    parts: list[FloatArray] = []
    targets: list[Any] = []
    for chunk in table.chunks([*names, target]):
        parts.append(np.column_stack([numeric(chunk[name], name) for name in names]))
        targets.extend(chunk[target])
    if not parts:
        raise InvalidData(f"{table.path.name} has column names but no rows.")
    if any(one is None or (isinstance(one, str) and not one.strip()) for one in targets):
        raise InvalidData(f"target {target!r} has missing values: remove those rows by a rule that is public.")
    y: NDArray[Any] | None
    if classification:
        y = np.array([one.strip() if isinstance(one, str) else one for one in targets])
    else:
        y = _as_numbers(targets)
    if y is None:
        raise InvalidData(f"target {target!r} holds text: choose a model for classes, logistic or svm.")
    _check_target(y, target)
    return Training(np.vstack(parts), y, names, None, None, classification, len(names))


def _as_numbers(values: list[Any]) -> FloatArray | None:
    try:
        found = parse_numbers(values)
    except (TypeError, ValueError):
        return None
    return found if np.isfinite(found).all() else None


#: refusals of columns to learn from: not numbers, missing values
_TO_LEARN = (
    "column {!r} does not hold numbers only, and --buy-bounds takes no others: draft a schema, or --drop it.",
    "column {!r} has missing or infinite values: declare in a schema what replaces them.",
)


def numeric(raw: Any, name: str, refusals: tuple[str, str] = _TO_LEARN) -> FloatArray:
    """Return a column as finite numbers; ``refusals`` are the sentences for text and for missing values."""
    if not isinstance(raw, np.ndarray):
        try:
            # an empty cell is a missing value, not a text
            raw = parse_numbers(one if one and one.strip() else "nan" for one in raw)
        except (TypeError, ValueError):
            raw = None
    if raw is None:
        raise InvalidData(refusals[0].format(name))
    if not np.isfinite(raw).all():
        raise InvalidData(refusals[1].format(name))
    return np.asarray(raw, np.float64)


def _check_target(y: Any, name: str) -> None:
    """Refuse a target that does not vary; only the owner of the data sees this, before anything is charged."""
    one_value = not y.varies() if isinstance(y, TargetSource) else len(y) and (y == y[0]).all()
    if one_value:
        raise InvalidData(f"target {name!r} has only one value: there is nothing to predict.")


def held_out(n: int, fraction: float) -> BoolArray:
    """Mark the rows to hold out: spread evenly over the file by position, whatever they contain.

    >>> int(held_out(10, 0.3).sum())
    3
    """
    spread = (np.arange(1, n + 1) * 0.6180339887498949) % 1.0
    chosen = np.zeros(n, bool)
    chosen[np.argsort(spread, kind="stable")[: round(fraction * n)]] = True
    return chosen


def _fits_memory(table: TableFile, n_columns: int) -> bool:
    free = _free_memory()
    return free is None or _COPIES * 8.0 * table.approximate_rows() * n_columns <= _PART_OF_MEMORY * free


def _free_memory() -> int | None:
    """Return the bytes that this process may still use; None where the system does not report them."""
    try:
        with Path("/proc/meminfo").open() as lines:
            found = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        try:
            found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return None
    for group in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            found = min(found, int(Path(group).read_text()))
        except (OSError, ValueError):
            continue
    return found
