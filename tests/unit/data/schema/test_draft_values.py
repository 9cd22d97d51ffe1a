"""Drafts of columns whose numbers have decimal commas, or are labels of a category."""

from __future__ import annotations

import numpy as np
import pytest

from dperm.data.schema.draft import draft_schema
from dperm.data.tables.files import open_table
from dperm.errors import InvalidData

ADVICE = "numbers with a decimal comma: save the table with a decimal point."


def written(tmp_path, columns):
    rows = zip(*columns.values(), strict=True)
    (tmp_path / "t.csv").write_text("\n".join([";".join(columns), *(";".join(row) for row in rows)]) + "\n")
    return open_table(tmp_path / "t.csv")


@pytest.mark.parametrize("distinct", [3, 200])
def test_decimal_commas_get_advice(tmp_path, distinct):
    dose = ["", "7", *(f"-{i % distinct},5" for i in range(198))]
    table = written(
        tmp_path,
        {
            "dose": dose,
            "words": [f"{i},5 mg" for i in range(200)],
            "age": [f"{20 + i % 50},5" for i in range(200)],
            "y": [str(i % 2) for i in range(200)],
        },
    )
    made = draft_schema(table, "y")
    kinds = {one.name: one.kind for one in made.schema.columns}
    assert kinds == {"dose": "ignore", "words": "ignore", "age": "number"}
    assert made.ignored["dose"] == f"It holds {ADVICE}"
    assert "Free text" in made.ignored["words"]
    assert made.unusual == {"age": f"column 'age' holds {ADVICE}"}


@pytest.mark.parametrize("distinct", [4, 100])
def test_a_target_with_decimal_commas_gets_advice(tmp_path, distinct):
    y = [f"{i % distinct},25" for i in range(100)]
    with pytest.raises(InvalidData) as refused:
        draft_schema(written(tmp_path, {"x": [f"{i}.5" for i in range(100)], "y": y}), "y")
    assert str(refused.value) == f"target 'y' holds {ADVICE}"


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_labels_that_are_numbers_are_categories_by_their_type(tmp_path, ending):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    n = 120
    columns = {
        "ward": np.arange(n) % 3 + 1,
        "month": np.arange(n) % 4 + 1,  # its name has usual bounds, its type says that it is no amount
        "half": (np.arange(n) % 3) / 2,
        "zip": np.arange(n)[::-1] + 10_000,
        "patient_id": np.arange(n) % 5,
        "alone": np.full(n, 7),
        "y": np.arange(n) % 15,
    }
    table = pa.table({name: pa.array(values).dictionary_encode() for name, values in columns.items()})
    table = table.append_column("plain", pa.array(np.arange(n) % 3 + 1))
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, str(path))
    made = draft_schema(open_table(path), "y")
    found = {one.name: one for one in made.schema.columns}
    assert found["ward"].categories == ("1", "2", "3")
    assert found["ward"].unconfirmed == ("categories",)
    assert found["half"].categories == ("0", "0.5", "1")
    assert found["month"].categories == ("1", "2", "3", "4")
    assert {name for name, one in found.items() if one.kind == "ignore"} == {"zip", "patient_id", "alone"}
    assert "More than 50 labels" in made.notes["zip"]
    assert found["plain"].kind == "number"
    assert made.schema.target.classes == tuple(range(15))
    encoded = made.schema.confirm().encode(open_table(path), with_target=True)
    assert len(encoded.X) == n
    ward = encoded.X[:, list(encoded.names).index("ward=1")]
    assert ward.tolist() == (columns["ward"] == 1).astype(float).tolist()


def test_a_parquet_file_without_arrow_metadata_has_no_categories(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table({"ward": pa.array(np.arange(9) % 3).dictionary_encode(), "y": np.arange(9) % 2})
    parquet.write_table(table, tmp_path / "t.parquet", store_schema=False)
    assert not open_table(tmp_path / "t.parquet").has_numeric_categories("ward")
