"""One person's cell changes one encoded row only: columns that mix numbers, texts and missing values."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from dperm.data.schema import encoding
from dperm.data.schema.schema import Column, Schema, Target
from dperm.data.tables import raw_columns as raw
from dperm.errors import InvalidData

NOTHING = [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT, Decimal("sNaN")]
NUMBERS = [
    *(1, 1.0, 3, -9, 0.1, -0.0, 0.0, 2**53 + 1, 10**400, -(10**400), 1e300, float("inf"), True, False),
    *(np.float32(0.1), np.float64(0.1), np.int64(2), np.uint8(2), np.bool_(True), Decimal("0.10"), Decimal("2.0")),
]
TEXTS = ["1", "1.0", " 2 ", "0.1", "-9", "-9.0", "-0", "1e400", "NA", "", "?", "nan"]
WORDS = ["x", "driver", "inf", "True"]
CELLS = {
    "job": NOTHING + NUMBERS + TEXTS + WORDS,
    "pair": NOTHING + NUMBERS + TEXTS + WORDS,
    "code": NOTHING + NUMBERS + TEXTS + WORDS,
    "v": NOTHING + NUMBERS + TEXTS,
    "z": NOTHING + NUMBERS + TEXTS,
    "flag": [*NOTHING, 0, 1.0, -0.0, True, np.bool_(False), Decimal(1), np.float32(1), -9, "yes", "F", "1", "0", "-9"],
    "y": [0, 1.0, -0.0, 2, True, np.float32(1), np.bool_(False), Decimal("2.0"), "0", " 1 ", "2"],
}
COLUMNS = (
    Column("job", "category", categories=("1", "2", "0.1", "driver")),
    Column("pair", "category", categories=("0", "-9")),
    Column("code", "category", categories=("1", "3", "x"), missing="3"),
    Column("v", "number", -20, 20),
    Column("z", "number", -20, 20, missing=7.5),
    Column("flag", "boolean"),
)
TARGETS = (
    Target("y", "classes", ("0", "1", "2")),
    Target("y", "classes", (0, 1, 2)),
    Target("y", "number", low=-1, high=1.5),
)


def schema_of(target):
    return Schema(COLUMNS, target, missing_values=("", "NA", "?", "-9", "1e999", "words"))


def bits(schema, table, kind):
    """Every encoded row and its target, as bytes."""
    if kind == "pandas":
        table = pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in table.items()})
    made = schema.encode(table, with_target=True)
    return [(x.tobytes(), y.tobytes()) for x, y in zip(made.X, made.y, strict=True)]


def others_that_change(seed, kind):
    """Number of people whose encoded row changes with the record of another."""
    rng = np.random.default_rng(seed)
    schema, n, some = schema_of(TARGETS[seed % 3]), 10, rng.random() < 0.5

    def draw(name, numeric):
        drawn = [cell for cell in CELLS[name] if not (numeric and isinstance(cell, str))]
        return drawn[rng.integers(len(drawn))]

    table = {name: [draw(name, some) for _ in range(n)] for name in CELLS}
    before, changed = bits(schema, table, kind), 0
    for _ in range(8):
        who = int(rng.integers(n))
        other = {name: [*cells[:who], draw(name, False), *cells[who + 1 :]] for name, cells in table.items()}
        after = bits(schema, other, kind)
        changed += sum(a != b for i, (a, b) in enumerate(zip(before, after, strict=True)) if i != who)
    return changed


@pytest.mark.parametrize("kind", ["dict", "pandas"])
def test_a_record_changes_its_own_row_only(kind):
    assert sum(others_that_change(seed, kind) for seed in range(60)) == 0


def by_column(values):
    """Decide for the whole column, and leave the spelling to Python: one text spells everybody anew."""
    cells = [raw.plain_cell(value) for value in values]
    if not any(isinstance(cell, str) for cell in cells):
        return np.array([np.nan if cell is None else cell for cell in cells], np.float64)
    return [None if cell is None else str(value) for cell, value in zip(cells, values, strict=True)]


@pytest.mark.parametrize(
    ("where", "name", "bug"),
    [
        (raw, "_plain", by_column),
        (encoding, "_missing_to_nan", lambda numbers, missing: numbers),  # a stand-in counts among texts only
        (encoding, "_clip", np.clip),  # -0.0 stays where there is no text
    ],
)
def test_planted_bugs_are_found(where, name, bug, monkeypatch):
    monkeypatch.setattr(where, name, bug)
    found = 0
    for seed in range(60):
        try:
            found += others_that_change(seed, "dict")
        except InvalidData:  # a label that is spelled anew is not among the classes any more
            found += 1
    assert found > 0


def test_a_text_does_not_change_how_other_cells_are_read():
    schema = Schema((Column("job", "category", categories=("1", "2", "3")),), TARGETS[0])
    jobs = [float(1 + k % 3) for k in range(30)]
    assert schema.encode({"job": jobs}).X.sum() == 30
    assert np.array_equal(schema.encode({"job": [*jobs[:-1], "who"]}).X[:-1], schema.encode({"job": jobs}).X[:-1])
    small = Schema((Column("v", "number", 0, 1),), TARGETS[0])
    single = [np.float32(0.1), 0.2]
    assert small.encode({"v": [*single, "0.4"]}).X[0, 0] == small.encode({"v": [*single, 0.4]}).X[0, 0] == single[0]


def test_a_missing_value_code_is_missing_in_every_kind_of_table():
    schema = Schema((Column("v", "number", -20, 20),), TARGETS[0], missing_values=("-9", "99.0"))
    found = [schema.encode({"v": cells}).X.ravel().tolist() for cells in ([-9, 1], [-9.0, 1], ["-9", "1"], [-9, "1"])]
    assert found == [[0.0, 1.0]] * 4
    assert schema.encode({"v": [99.0, 1]}).X[0, 0] == schema.encode({"v": [99.0, "1"]}).X[0, 0] == 20.0  # spelled "99"


@pytest.mark.parametrize("cells", [[pd.Timestamp("2020-01-01"), 1.0], [1.0, "a", pd.Timestamp("2020-01-01")]])
def test_dates_are_refused_in_mixed_columns(cells):
    with pytest.raises(InvalidData, match="neither numbers nor text"):
        Schema((COLUMNS[0],), TARGETS[0]).encode({"job": cells})


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e22, 5e-324, 1.7e308, -2.5, float(2**53), float("inf")])
def test_a_double_comes_back_from_its_canonical_text(value):
    assert float(raw.canonical_text(value)) == value
    assert float(np.array([raw.canonical_text(value)]).astype(np.float64)[0]) == value
