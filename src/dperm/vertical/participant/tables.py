"""A participant's own table: reads the declared columns and puts the rows into the common order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dperm.atomic_files import write_atomically
from dperm.data.design.matrix import DesignMatrix, Scaling
from dperm.data.design.target_range import TargetRange
from dperm.data.schema.schema import Column, Schema, Target
from dperm.data.schema.schema_file import parse_schema
from dperm.data.tables.files import open_table
from dperm.errors import DpermError, InvalidBounds, InvalidData, InvalidInput
from dperm.types import FloatArray, IntArray
from dperm.vertical.identity.names import require_safe_name
from dperm.vertical.participant.config import Config, TableSource

__all__ = [
    "LabelTable",
    "OwnRows",
    "PartyTable",
    "RowOrder",
    "UnusableOrder",
    "order_path",
    "own_rows",
    "read_identifiers",
    "read_order",
    "table_digest",
    "write_order",
]


_ORDER = "dperm order 2"
_NOTHING = "(nothing)"


def read_identifiers(source: TableSource) -> list[Any] | None:
    """Return the identifier column in the order of the file, or None if none is declared."""
    if source.id is None:
        return None
    table = open_table(source.file)
    table.require([source.id])
    identifiers: list[Any] = []
    for chunk in table.chunks([source.id]):
        values = chunk[source.id]
        if isinstance(values, np.ndarray):
            if not np.isfinite(values).all() or not (values == np.rint(values)).all():
                raise InvalidData(
                    f"column {source.id!r} contains numbers that are not whole: give a column of identifiers."
                )
            identifiers += [str(int(value)) for value in values]
        else:
            identifiers += ["" if value is None else value for value in values]
    return identifiers


class UnusableOrder(InvalidData):
    """A table has identifiers, but no order file that was made for it."""


@dataclass(frozen=True)
class RowOrder:
    """Rows of a table in the common order, and the alignment that determined it."""

    rows: IntArray
    run: str


def order_path(config: Config, source: TableSource) -> Path:
    """Return the path of a table's order file."""
    return source.order or config.state / f"order-{'predict' if source is config.predict else 'data'}.json"


def table_digest(identifiers: Sequence[Any]) -> str:
    """Return the digest of an identifier column, row by row; the file that contains it stays with its owner."""
    made = hashlib.sha256()
    for one in identifiers:
        data = str(one).encode()
        made.update(len(data).to_bytes(8, "little") + data)
    return made.hexdigest()


def write_order(path: Path, order: IntArray, run: str, table: str) -> Path:
    """Write the rows of a table in the common order, with the digest that identifies the table.

    The order file of an earlier alignment is kept beside it under that alignment's name: an unfinished run needs it.
    """
    before = _alignment_in(path)
    if before not in ("", run):
        write_atomically(path.with_name(f"{path.stem}.{before}{path.suffix}"), path.read_text("utf-8"), private=True)
    data = {"format": _ORDER, "run": run, "table": table, "rows": order.tolist()}
    return write_atomically(path, json.dumps(data) + "\n", private=True)


def _alignment_in(path: Path) -> str:
    """Return the name of the alignment in an order file, or "" if there is no valid order file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return require_safe_name(data["run"], "an alignment") if data["format"] == _ORDER else ""
    except (OSError, ValueError, KeyError, TypeError, InvalidInput):
        return ""


def read_order(path: Path, identifiers: Sequence[Any]) -> RowOrder:
    """Read the order file of the table with these identifiers; refuse a table that changed since the alignment."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = np.array(data["rows"], np.int64)
        if data["format"] != _ORDER or rows.ndim != 1 or len(np.unique(rows)) < len(rows) or not len(rows):
            raise ValueError
        run, table = str(data["run"]), data["table"]
    except OSError:
        raise UnusableOrder(f"there is no order file {path}: run `dperm vertical align` first.") from None
    except (ValueError, KeyError, TypeError, OverflowError):
        raise UnusableOrder(f"{path} is not an order file of `dperm vertical align`: align again.") from None
    if table != table_digest(identifiers) or rows.min() < 0 or rows.max() >= len(identifiers):
        raise UnusableOrder(f"{path} was made for another table than the current one: align again.")
    return RowOrder(rows, run)


def _row_order(config: Config, source: TableSource, n_rows: int) -> RowOrder:
    """Return a table's order: from its order file, or the file's own order if no identifiers are declared."""
    identifiers = read_identifiers(source)
    if identifiers is not None:
        return read_order(order_path(config, source), identifiers)
    if source.order is not None:
        raise InvalidInput(
            f"{config.path.name} has `order` without `id`: add `id`, with which the order is checked against the table."
        )
    return RowOrder(np.arange(n_rows), "")


@dataclass(frozen=True)
class OwnRows:
    """The people of the common order in a participant's own table: their identifiers and rows there."""

    id: str
    identifiers: tuple[str, ...]
    rows: IntArray


def own_rows(config: Config, alignment: str) -> OwnRows | None:
    """Return the people that an alignment ordered, from the participant's own table, or None if it has none."""
    for source in (config.predict, config.data):
        if not alignment or source is None or source.id is None:
            continue
        try:
            identifiers = read_identifiers(source) or []
            order = read_order(order_path(config, source), identifiers)
        except DpermError:  # a missing or differently aligned table does not identify these people
            continue
        if order.run == alignment:
            return OwnRows(source.id, tuple(str(identifiers[row]) for row in order.rows), order.rows)
    return None


@dataclass(frozen=True)
class PartyTable:
    """A party's columns and their declared scaling; ``alignment`` is the run that ordered the rows."""

    X: FloatArray
    names: tuple[str, ...]
    scaling: Scaling
    alignment: str = ""

    @classmethod
    def read(cls, config: Config, source: TableSource) -> PartyTable:
        """Read the declared columns of a file, in the common order."""
        target = {"column": _NOTHING, "kind": "number", "low": 0.0, "high": 1.0}
        try:
            schema = parse_schema({"format": 1, "target": target, "columns": config.need("columns")})
        except InvalidBounds as error:
            error.add_place(f"in [columns] of {config.path.name}")
            raise
        X = schema.encode(open_table(source.file)).X
        order, names = _row_order(config, source, len(X)), tuple(schema.encoded_names)
        return cls(X[order.rows], names, schema.bounds().scaling(X.shape[1], names), order.run)

    def design(self, intercept: bool) -> DesignMatrix:
        """Return the scaled design, with a constant column if the party holds the intercept."""
        return DesignMatrix.from_array(self.X, self.scaling, 1.0 if intercept else 0.0)


@dataclass(frozen=True)
class LabelTable:
    """The label holder's target (codes of two classes, or numbers scaled to [-1, 1]) in the order of ``alignment``."""

    target: FloatArray
    low: float
    high: float
    public: Mapping[str, Any]
    alignment: str = ""

    @classmethod
    def read(cls, config: Config, source: TableSource) -> LabelTable:
        """Read the declared target of a file, in the common order."""
        given = dict(config.need("target"))
        try:
            name = str(given.pop("column"))
            settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
            kind = Target(name, **settings)
        except (KeyError, TypeError):
            raise InvalidBounds(
                f"[target] of {config.path.name} needs `column`, `kind`, and `classes` or `low` and `high`."
            ) from None
        table = open_table(source.file)
        table.require([name])
        chunks = [chunk[name] for chunk in table.chunks([name])]
        whole: Any = (
            np.concatenate(chunks) if all(isinstance(c, np.ndarray) for c in chunks) else [v for c in chunks for v in c]
        )
        schema = Schema((Column(_NOTHING, "number", 0.0, 1.0),), kind)
        y = schema.encode({_NOTHING: np.zeros(len(whole)), name: whole}, with_target=True).y
        assert y is not None
        order = _row_order(config, source, len(y))
        y = y[order.rows]
        if kind.kind == "classes":
            if len(kind.classes) != 2:
                raise InvalidBounds(f"[target] of {config.path.name} must name two classes.")
            codes = (y == schema.labels()[1]).astype(np.float64)
            return cls(codes, 0.0, 1.0, {"kind": "classes", "classes": list(kind.classes)}, order.run)
        assert kind.low is not None
        assert kind.high is not None
        scaled = TargetRange(float(kind.low), float(kind.high)).scaled(np.asarray(y, np.float64))
        public = {"kind": "number", "low": float(kind.low), "high": float(kind.high)}
        return cls(scaled, -1.0, 1.0, public, order.run)
