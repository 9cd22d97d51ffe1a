"""Results must explain differences and show baselines; data are found, or made and marked."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dperm.errors import InvalidInput
from dperm.experiments.charts import Bars, Curve, Line, Panel, picture
from dperm.experiments.datasets import DataFolder, Dataset
from dperm.experiments.registry import EXPERIMENTS, experiment_named
from dperm.experiments.result import Baseline, Measured, Result, ResultRow, formula
from dperm.experiments.writing import ROW_COLUMNS, row_cells

BASELINE = Baseline("a", "made", 1, 1, 0, "objective", 1.0, 2.0)


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (lambda: Result((), (BASELINE,)), "at least one row"),
        (lambda: Result((ResultRow("a", 1.0, None, 2.0, "b"),), ()), "baselines, or a reason"),
        (lambda: Result((ResultRow("a", 1.0, None, 2.0, "b"),), (BASELINE,), no_data="c"), "baselines, or a reason"),
        (lambda: Result((ResultRow("a", 1.0, None, 2.0, ""),), (BASELINE,)), "'a' does not"),
    ],
)
def test_an_incomplete_result_is_refused(result, says):
    with pytest.raises(InvalidInput, match=says):
        result()


def test_a_mean_has_its_standard_error_and_range():
    measured = Measured.over([1.0, 3.0, 5.0, 7.0])
    values = np.array([1.0, 3.0, 5.0, 7.0])
    assert (measured.mean, measured.low, measured.high, measured.runs) == (4.0, 1.0, 7.0, 4)
    assert measured.error == pytest.approx(values.std(ddof=1) / 2.0)


# ------------------------------------------------------------------------------------------------- pictures
def drawn(panels, **options):
    return ET.fromstring(picture(panels, "a & b <c>", **options))


def test_a_picture_is_valid_xml_with_all_its_parts():
    curve = Curve("one & two", ((0.0, 1.0), (1.0, 0.5)), (0.9, 0.4), (1.1, 0.6))
    panels = [
        Panel("first", "x", "y", (curve,), lines=(Line("null", 0.7),)),
        Panel("second", "x", "y", bars=(Bars("bars", (0.0, 1.0, 2.0), (3.0, 0.0)),), lines=(Line("at", 1.0, True),)),
    ]
    root = drawn(panels, columns=2)
    space = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in root.iter(f"{space}text")]
    assert root.find(f"{space}title").text == "a & b <c>"
    assert {"first", "second", "one & two", "null", "bars", "at"} <= set(texts)
    assert len(list(root.iter(f"{space}g"))) == 2
    assert len(list(root.iter(f"{space}rect"))) == 2  # the paper, and one bar: the other has no height


def test_the_legend_shows_dashes_and_has_room_above_one_panel():
    curves = tuple(Curve(f"a method with a long name {k}", ((0.0, 1.0), (1.0, 0.5))) for k in range(3))
    text = picture([Panel("a", "x", "y", curves, lines=(Line("null", 0.7),))], "a", columns=1)
    root = ET.fromstring(text)
    assert root.get("viewBox").split()[2] == "640"  # as wide as two panels
    assert text.count("stroke-dasharray") == 2  # in the panel and in the legend
    tall = picture([Panel("a", "x", "y", (*curves, *(Curve(f"b{k}", ((0.0, 1.0),)) for k in range(4))))], "a")
    assert "viewBox" in tall  # seven labels have seven colours


def test_two_labels_never_share_a_colour():
    curves = tuple(Curve(f"curve {k}", ((0.0, 1.0), (1.0, 0.5))) for k in range(8))
    with pytest.raises(InvalidInput, match="7 colours, and 8 labels"):
        picture([Panel("a", "x", "y", curves)], "a")


def test_numbers_without_noise_have_a_column_of_their_own():
    cells = row_cells(ResultRow("gap", None, None, formula("at most 1"), "a bound", 0.5))
    assert dict(zip(ROW_COLUMNS, cells, strict=True)) == {
        "what": "gap",
        "ours, certified": "-",
        "ours, printed noise": "-",
        "ours, no noise": "0.5",
        "paper": "formula, constants 1: at most 1",
        "why they differ": "a bound",
    }


def test_a_logarithmic_axis_takes_zeros():
    panel = Panel("a", "x", "y", (Curve("b", ((0.0, 0.0), (10.0, 0.01), (100.0, 1.0))),), log_x=True, log_y=True)
    assert "nan" not in picture([panel], "a").lower()


# ------------------------------------------------------------------------------------------------- data
MADE = Dataset(np.eye(2), np.ones(2), 2, "made, ones", 5)


def test_a_missing_file_is_replaced_by_made_data(tmp_path):
    for folder in (DataFolder(None), DataFolder(tmp_path)):
        assert folder.read("a.npz", lambda: MADE) is MADE
        assert not folder.has("a.npz")
        assert folder.digest("a.npz") is None


def test_dense_and_sparse_files_are_read(tmp_path):
    np.savez(tmp_path / "dense.npz", X=np.eye(3, dtype=np.int8), y=np.array([1, -1, 1]), n_train=2)
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_matrix(np.eye(3)))
    with np.load(tmp_path / "sparse.npz") as stored:
        parts = dict(stored)
    np.savez(tmp_path / "sparse.npz", **parts, y=np.array([1, -1, 1]))
    folder = DataFolder(tmp_path)
    dense, sparse = folder.read("dense.npz", lambda: MADE), folder.read("sparse.npz", lambda: MADE, "stand-in for b")
    assert (dense.X.dtype, dense.n_train, dense.origin) == (float, 2, "real, dense.npz")
    assert (sparse.n_train, sparse.origin) == (3, "stand-in for b, sparse.npz")
    np.testing.assert_array_equal(sparse.X.toarray(), dense.X)
    assert folder.digest("dense.npz") != folder.digest("sparse.npz")


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut"])
def test_a_damaged_file_gets_one_sentence(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"a.npz' is not a data set of the experiments"):
        DataFolder(tmp_path).read("a.npz", lambda: MADE)


def test_a_folder_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setenv("DPERM_DATA", "nowhere")
    with pytest.raises(InvalidInput, match="DPERM_DATA names 'nowhere', which is not a folder"):
        DataFolder.of_environment()
    monkeypatch.setenv("DPERM_DATA", "")
    assert DataFolder.of_environment() == DataFolder(None)
    monkeypatch.setenv("DPERM_DATA", ".")
    assert DataFolder.of_environment() == DataFolder(Path("."))


# ------------------------------------------------------------------------------------------------- registry
def test_every_experiment_is_described():
    for name, one in EXPERIMENTS.items():
        assert experiment_named(name) is one
        assert one.what[0].islower() or one.what[0].isupper()
        assert len(one.what) <= 80
        assert one.paper
        assert 0.0 < one.minutes <= 30.0
        assert type(one.full) is type(one.fast)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(InvalidInput, match="no experiment is called 'gcd': choose one of gcd-"):
        experiment_named("gcd")
