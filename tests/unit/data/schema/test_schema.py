"""Schemas: refusals, encoding, values that a draft reads, and the bounds that hold by construction."""

from __future__ import annotations

import gzip
import os
import signal
import tomllib

import numpy as np
import pytest

from dperm import Bounds, DPLogisticRegression
from dperm.data.schema.draft import draft_schema
from dperm.data.schema.encoding import _numbers
from dperm.data.schema.schema import Column, Schema, Target
from dperm.data.schema.schema_file import confirmed_text, parse_schema, read_schema, schema_to_dict, schema_to_toml
from dperm.data.tables.files import open_table
from dperm.errors import InvalidBounds, InvalidData

TARGET = Target("y", "classes", ("a", "b"))
NUMBER = Column("x", "number", 0, 10)
JOB = Column("job", "category", categories=("clerk", "driver", "none"))


def schema_of(*columns, target=TARGET, **options):
    return Schema(columns, target, **options)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Column("x", "number", 0), "needs publicly known numbers low and high"),
        (lambda: Column("x", "number", 1, 1), "contradict"),
        (lambda: Column("x", "number", 0, float("inf")), "needs publicly known numbers low and high"),
        (lambda: Column("x", "number", 0, 1, scale=0), "scale"),
        (lambda: Column("x", "number", 0, 1, missing="median"), "missing of column 'x'"),
        (lambda: Column("x", "category", categories=("a",)), "at least 2"),
        (lambda: Column("x", "category", categories=("a", "a")), "distinct"),
        (lambda: Column("x", "category", categories=("a", "b"), missing="c"), "one of its categories"),
        (lambda: Column("x", "category", categories=tuple(map(str, range(1001)))), "more than 1000"),
        (lambda: Column("x", "date"), "derive a number"),
        (lambda: Column("x", "id"), "predicts nothing"),
        (lambda: Column("x", "colour"), "number, boolean, category or ignore"),
        (lambda: Target("y", "classes", ("a",)), "at least 2"),
        (lambda: Target("y", "classes", ("a", 1)), "all texts, all numbers"),
        (lambda: Target("y", "number", low=3, high=2), "contradict"),
        (lambda: Target("y", "text"), "classes or number"),
        (lambda: schema_of(NUMBER, NUMBER), "twice"),
        (lambda: schema_of(Column("y", "number", 0, 1)), "twice"),
        (lambda: schema_of(Column("x", "ignore")), "uses no column"),
        (lambda: schema_of(JOB, Column("job=clerk", "boolean")), "rename one"),
    ],
)
def test_contradictions_are_refused(make, says):
    with pytest.raises(InvalidBounds, match=says):
        make()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("format = 2", "format = 1"),
        ("format = 1", r"\[target\]"),
        ('format = 1\n[target]\ncolumn = "y"\nkind = "classes"\nclasses = ["a", "b"]', r"\[columns"),
        ("format = ", "not valid TOML"),
        ('format = 1\nlow = 3\n[target]\ncolumn = "y"', "must not have a line 'low'"),
        ('format = 1\n[target]\ncolumn="y"\nkind="number"\nlow=0\nhigh=1\n[columns.x]\nlow=1', "needs a kind"),
        (
            'format = 1\n[target]\ncolumn="y"\nkind="number"\nlow=0\nhigh=1\n[columns.x]\nkind="number"\nmin=1',
            "not have a line 'min'",
        ),
    ],
)
def test_files_with_unknown_lines_are_refused(tmp_path, text, says):
    path = tmp_path / "schema.toml"
    path.write_text(text)
    with pytest.raises(InvalidBounds, match=says):
        read_schema(path)


@pytest.mark.parametrize("name", ["plain", "two words", 'a "quoted" one', "ü\\n=[]#", "\x7f"])
def test_any_name_survives_the_file(tmp_path, name):
    column = Column(name, "category", categories=("a", 'b"', "#c"), unconfirmed=("kind", "categories"))
    schema = schema_of(column, NUMBER, target=Target("y\n", "classes", (False, True)))
    path = tmp_path / "schema.toml"
    path.write_text(schema_to_toml(schema, "t\n.csv", notes={name: "a\nnote"}), encoding="utf-8")
    assert read_schema(path) == schema
    assert parse_schema(schema_to_dict(schema)) == schema
    path.write_text(confirmed_text(path.read_text(encoding="utf-8")), encoding="utf-8")
    assert read_schema(path) == schema.confirm()
    assert read_schema(path).columns[0].confirmed == ("kind", "categories")


def test_encoding_of_every_kind():
    schema = schema_of(
        NUMBER,
        Column("z", "number", -1, 1, missing=0.5),
        JOB,
        Column("sex", "category", categories=("f", "m")),
        Column("town", "category", categories=("A", "B", "C"), missing="B"),
        Column("smoker", "boolean"),
        Column("note", "ignore"),
    )
    table = {
        "x": ["3", " 12 ", "NA", "-1"],
        "z": [0.0, None, float("nan"), 2.0],
        "job": ["driver", "none", "", "astronaut"],
        "sex": ["f", "m", "?", "x"],
        "town": ["A", "B", None, "Z"],
        "smoker": ["yes", "FALSE", "", "1"],
        "y": ["a", "b", "a", "b"],
    }
    encoded = schema.encode(table, with_target=True)
    assert encoded.names == [
        "x", "z", "job=clerk", "job=driver", "job=none", "sex=m", "town=A", "town=B", "town=C", "smoker",
    ]  # fmt: skip
    assert encoded.X.tolist() == [
        [3, 0, 0, 1, 0, 0, 1, 0, 0, 1],
        [10, 0.5, 0, 0, 1, 1, 0, 1, 0, 0],
        [5, 0.5, 0, 0, 0, 0.5, 0, 1, 0, 0.5],
        [0, 1, 0, 0, 0, 0.5, 0, 1, 0, 1],
    ]
    assert encoded.y.tolist() == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("classes", "values", "wanted"),
    [
        ((0, 1), ["0", "1.0"], [0, 1]),
        ((0, 1), [0.0, True], [0, 1]),
        ((False, True), ["no", "TRUE"], [False, True]),
        ((False, True), [0, 1], [False, True]),
        (("1", "2"), [1, 2], ["1", "2"]),
    ],
)
def test_labels_mean_the_same_in_every_kind_of_file(classes, values, wanted):
    schema = schema_of(NUMBER, target=Target("y", "classes", classes))
    found = schema.encode({"x": [1, 2], "y": values}, with_target=True).y
    assert found.tolist() == wanted


def test_every_encoded_row_is_within_the_bounds():
    """Whatever the data: entries within the clip, and rows no longer than the declared norm."""
    schema = schema_of(
        NUMBER, Column("w", "number", 0, 100, scale=10), JOB, Column("sex", "category", categories=("f", "m"))
    )
    bounds = schema.bounds()
    rng = np.random.default_rng(0)
    n = 500
    table = {
        "x": rng.normal(0, 1e6, n),
        "w": rng.normal(50, 60, n),
        "job": rng.choice(["clerk", "driver", "none", "who"], n).tolist(),
        "sex": rng.choice(["f", "m", "?"], n).tolist(),
    }
    scaling = bounds.scaling(6)
    scaled = (schema.encode(table).X - scaling.centre) / scaling.scale
    assert np.abs(scaled).max() <= scaling.clip
    assert np.linalg.norm(scaled, axis=1).max() <= scaling.row_norm
    assert np.linalg.norm(scaled, axis=1).max() > 0.99 * scaling.row_norm  # and not longer than needed


def test_bounds_by_name_for_tables_and_by_position_for_arrays(tmp_path):
    schema = schema_of(NUMBER, JOB)
    path = tmp_path / "schema.toml"
    path.write_text(schema_to_toml(schema))
    by_name = Bounds.from_schema(path)
    assert by_name.classes == ["a", "b"]
    names = ["job=none", "x", "job=driver", "job=clerk"]
    assert by_name.scaling(4, names).centre.tolist() == [0.0, 5.0, 0.0, 0.0]
    assert schema.bounds().scaling(4).centre.tolist() == [5.0, 0.0, 0.0, 0.0]
    plain = schema_of(NUMBER, Column("b", "boolean")).bounds()
    assert plain.row_norm is None


def test_a_fit_says_what_was_confirmed():
    column = Column("x", "number", 0, 10, unconfirmed=("low", "high"))
    schema = schema_of(column)
    with pytest.raises(InvalidBounds, match=r"x: low, high"):
        schema.bounds()
    X = np.linspace(0, 10, 100)[:, None]
    model = DPLogisticRegression(bounds=schema.confirm().bounds()).fit(X, np.where(X[:, 0] > 5, "a", "b"))
    (said,) = [text for text in model.privacy_report_.guarantee.assumptions if "confirmed" in text]
    assert said.endswith("x (low, high)")


def draft(tmp_path, text, target="y"):
    path = tmp_path / "t.csv"
    path.write_text(text)
    return draft_schema(open_table(path), target)


def test_a_draft_reads_values_only_if_names_are_not_sufficient(tmp_path):
    head = "id,patient_age,age_group,hours-per-week,pct,joined,value,flag,code,y"
    rows = [
        f"{i},{20 + i % 50},g{i % 3},40,{i % 90},2020-01-{10 + i % 18},{i % 7}.5,{i % 2},K{i},{'ab'[i % 2]}"
        for i in range(80)
    ]
    made = draft(tmp_path, "\n".join([head, *rows]) + "\n")
    found = {column.name: column for column in made.schema.columns}
    looked = {name: column.unconfirmed for name, column in found.items() if column.unconfirmed}
    assert looked == {
        "age_group": ("kind", "categories"),
        "joined": ("kind",),
        "value": ("kind", "low", "high"),
        "flag": ("kind",),
        "code": ("kind",),
    }
    assert [name for name, column in found.items() if column.kind == "ignore"] == ["id", "joined", "code"]
    assert set(made.ignored) == {"id", "joined", "code"}
    assert found["hours-per-week"].range == (0.0, 168.0)
    assert found["value"].range == (0.0, 10.0)
    assert found["flag"].kind == "boolean"
    assert made.schema.target.classes == ("a", "b")


def test_a_row_number_is_treated_as_an_id(tmp_path):
    made = draft(tmp_path, "n,x,y\n" + "".join(f"{i},{i % 5},{i % 2}\n" for i in range(60)))
    assert made.schema.columns[0].kind == "ignore"
    assert made.schema.target.classes == (0, 1)


def test_in_typed_files_only_the_kind_of_numbers_needs_no_values(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "value": [k % 7 + 0.5 for k in range(80)],
        "digits": [str(k % 7) for k in range(80)],
        "town": ["ABC"[k % 3] for k in range(80)],
        "y": ["ab"[k % 2] for k in range(80)],
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    made = draft_schema(open_table(tmp_path / "t.parquet"), "y").schema
    assert {column.name: column.unconfirmed for column in made.columns} == {
        "value": ("low", "high"),
        "digits": ("kind", "low", "high"),
        "town": ("kind", "categories"),
    }


def test_lines_without_unconfirmed_do_not_depend_on_values(tmp_path):
    """Whatever the values are, what a name tells stays as it is; what they look like is told to the owner alone."""
    usual, scaled = (
        draft(tmp_path, "age,bmi,patient_age,y\n" + "".join(f"{row(i)},{'ab'[i % 2]}\n" for i in range(80)))
        for row in (
            lambda i: f"{20 + i % 60},{15 + i % 30},{20 + i}",
            lambda i: f"{(i - 40) / 100},{15 + i % 30},{20 + i if i else 999}",
        )
    )
    assert usual.schema.columns == scaled.schema.columns
    assert [(one.range, one.unconfirmed) for one in scaled.schema.columns] == [
        ((0.0, 120.0), ()),
        ((10.0, 80.0), ()),
        ((0.0, 120.0), ()),
    ]
    assert usual.notes == scaled.notes  # they are written into the file
    assert usual.unusual == {}
    assert list(scaled.unusual) == ["age"]  # one error in the table does not matter
    assert "outside the usual bounds of its name, 0 to 120" in scaled.unusual["age"]


def test_few_whole_numbers_are_drafted_as_classes(tmp_path):
    made = draft(tmp_path, "x,y\n" + "".join(f"{i % 4}.5,{i % 3}.0\n" for i in range(30)))
    assert (made.schema.target.kind, made.schema.target.classes) == ("classes", (0, 1, 2))
    assert made.schema.target.unconfirmed == ("kind", "classes")
    assert 'write kind = "number"' in made.notes["y"]
    encoded = made.schema.confirm().encode(open_table(tmp_path / "t.csv"), with_target=True)
    assert encoded.y.tolist() == [i % 3 for i in range(30)]
    for text in ("".join(f"1,{i % 11}\n" for i in range(99)), "".join(f"1,{i % 3}.5\n" for i in range(99))):
        assert draft(tmp_path, "x,y\n" + text).schema.target.kind == "number"


def test_an_interrupt_while_numbers_are_read_is_not_lost():
    class Stopped(KeyboardInterrupt):
        pass

    def stop(*args):
        raise Stopped

    texts = [f"{i}.5" for i in range(300_000)]
    # this process's own time: another one must not make the first reading long and the alarm late
    took = min(_own_seconds(lambda: _numbers(texts, frozenset(), "x")) for _ in range(2))
    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        for share in (0.2, 0.4):
            signal.setitimer(signal.ITIMER_VIRTUAL, share * took)
            with pytest.raises(Stopped):
                _numbers(texts, frozenset(), "x")
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _own_seconds(function):
    start = os.times().user
    function()
    return max(os.times().user - start, 0.01)


def test_numeric_targets_and_refusals_of_drafts(tmp_path):
    made = draft(tmp_path, "x,y\n1,17\n2,90\n3,40\n")
    assert (made.schema.target.low, made.schema.target.high) == (0, 100)
    for text, says in [
        ("x,y\n1,a\n2,a\n", "only one value"),
        ("x,y\n1,5.0\n2,5.0\n", "only one value"),
        ("x,y\n1,5\n2,5.0\n", "only one value"),
        ("x,y\n1,inf\n2,-inf\n", "has no values"),
        ("x,y\n1,\n2,\n", "has no values"),
        ("y\n1\n2\n", "only one column"),
        ("x,y\n", "no rows"),
        ("x,y\n1,2020-01-01\n2,2021-01-01\n", "neither numbers nor classes"),
    ]:
        with pytest.raises(InvalidData, match=says):
            draft(tmp_path, text)


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("csv", ";"), ("tsv", "\t"), ("csv.gz", ",")])
def test_separators_quotes_and_compression(tmp_path, ending, delimiter):
    rows = ("x,job,y", '1,"driver",a', "", "2,clerk,b", "")
    text = "\ufeff" + "\r\n".join(rows).replace(",", delimiter)
    path = tmp_path / f"t.{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    encoded = schema_of(NUMBER, JOB).encode(open_table(path), with_target=True)
    assert encoded.X[:, :3].tolist() == [[1, 0, 1], [2, 1, 0]]
    assert encoded.y.tolist() == ["a", "b"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_names_of_columns_may_hold_line_ends_and_separators(tmp_path, separator):
    path = tmp_path / "t.csv"
    header = ['"age\nin years"', '"pay, gross; total"', "y"]
    path.write_text("\n".join(separator.join(cells) for cells in (header, ["30", "5", "a"], ["40", "6", "b"])) + "\n")
    table = open_table(path)
    assert table.names == ("age\nin years", "pay, gross; total", "y")
    assert list(next(table.chunks(["age\nin years", "y"])).values()) == [["30", "40"], ["a", "b"]]
    made = draft_schema(table, "y")
    again = parse_schema(tomllib.loads(schema_to_toml(made.schema, notes=made.notes)))
    assert again == made.schema


def test_a_sentence_names_some_columns_and_counts_the_others():
    columns = tuple(Column(f"x{k}", "number", 0, 1, confirmed=("low", "high")) for k in range(100))
    (told,) = Schema(columns, Target("y", "classes", ("a", "b"))).assumptions
    assert "x11 (low, high) and 88 more, in the model file" in told
    assert "x12" not in told


@pytest.mark.parametrize(("n", "more"), [(1, "low)"), (2, "low and 1 more column)"), (3, "low and 2 more columns)")])
def test_unconfirmed_columns_are_counted_in_words(n, more):
    columns = [Column(f"x{k}", "number", 0, 10, unconfirmed=("low",)) for k in range(n)]
    with pytest.raises(InvalidBounds) as refused:
        schema_of(*columns).require_confirmed()
    assert f"(x0: {more}:" in str(refused.value)
