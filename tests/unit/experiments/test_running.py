"""Pieces are kept, picked up again under the same settings only, and dropped when the result is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dperm.atomic_files import write_atomically
from dperm.errors import InvalidInput, MissingDependency
from dperm.experiments import writing
from dperm.experiments.datasets import DataFolder
from dperm.experiments.experiment import EXTRAS
from dperm.experiments.registry import EXPERIMENTS
from dperm.experiments.running import check_finished, is_finished, run

NO_DATA = DataFolder(None)


def run_small(small, out, *, data=NO_DATA, fast=False, force=False, show=lambda done, in_all: None):
    return run(small, out, data, fast=fast, force=force, show=show)


def test_a_result_is_written_in_three_forms(small, tmp_path):
    result, written = run_small(small, tmp_path)
    assert sorted(path.name for path in written) == ["small.json", "small.md", "small.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.json", "small.md", "small.svg"]
    stored = json.loads((tmp_path / "small.json").read_text())
    assert stored["rows"][0]["certified"]["mean"] == pytest.approx(0.15)
    assert stored["baselines"][0]["null_error"] == pytest.approx(0.5)
    assert stored["settings"] == {"runs": 4}
    page = (tmp_path / "small.md").read_text()
    assert "| small: error | 0.15 +- 0.065 | - | - | 0.5 | another problem |" in page
    assert "| small | made, nothing | 7 | 4 | 2 | objective | 0.5 | 0.75 | 0.5 |" in page
    assert "![a small table](small.svg)" in page
    assert result.notes == ("a note",)


def test_an_interrupted_run_goes_on_where_it_was(small, counting, tmp_path):
    counting.stop_at = 2
    with pytest.raises(KeyboardInterrupt):
        run_small(small, tmp_path)
    assert counting.computed == [0, 1]
    counting.stop_at = None
    run_small(small, tmp_path)
    assert counting.computed == [0, 1, 2, 3]


def interrupted(small, counting, out, **options):
    counting.stop_at = 1
    with pytest.raises(KeyboardInterrupt):
        run_small(small, out, **options)
    counting.stop_at = None


def test_pieces_of_other_settings_are_refused_and_force_drops_them(small, counting, tmp_path):
    interrupted(small, counting, tmp_path)
    with pytest.raises(InvalidInput, match=r"small.pieces.*differs in its --fast and settings: choose another --out"):
        run_small(small, tmp_path, fast=True)
    run_small(small, tmp_path, fast=True, force=True)
    assert counting.computed == [0, 0, 1]


def test_pieces_of_other_data_are_refused(small, counting, tmp_path):
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "x.npz", X=np.eye(2), y=np.ones(2))
    interrupted(small, counting, tmp_path)
    with pytest.raises(InvalidInput, match="differs in its data"):
        run_small(small, tmp_path, data=DataFolder(tmp_path / "data"))


def test_pieces_of_other_code_are_refused(small, counting, tmp_path, monkeypatch):
    interrupted(small, counting, tmp_path)
    monkeypatch.setattr("dperm.experiments.running.code_digest", lambda: "another")
    with pytest.raises(InvalidInput, match="differs in its code"):
        run_small(small, tmp_path)


def test_a_damaged_piece_is_named(small, counting, tmp_path):
    interrupted(small, counting, tmp_path)
    (tmp_path / "small.pieces" / "piece-0.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"piece-0.json' is not a piece of this experiment"):
        run_small(small, tmp_path)


def test_a_finished_result_is_overwritten_with_force_only(small, counting, tmp_path):
    run_small(small, tmp_path)
    with pytest.raises(InvalidInput, match=r"small.*exists: choose another --out, or --force"):
        run_small(small, tmp_path)
    run_small(small, tmp_path, force=True)
    assert counting.computed == [0, 1, 2, 3] * 2


def test_progress_counts_pieces_also_those_of_before(small, counting, tmp_path):
    interrupted(small, counting, tmp_path)
    seen = []
    run_small(small, tmp_path, show=lambda done, in_all: seen.append((done, in_all)))
    assert seen == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]


def test_two_pieces_of_one_name_are_refused(small, tmp_path):
    both = replace(small, measure=lambda run: run.pieces({"a b": lambda: 0, "A-B": lambda: 0}))
    with pytest.raises(InvalidInput, match="the same name"):
        run_small(both, tmp_path)


# ------------------------------------------------------------------------------------------------- what is finished
def test_the_same_run_accepts_a_finished_result(small, tmp_path):
    run_small(small, tmp_path)
    check_finished(small, tmp_path, NO_DATA, fast=False)


def test_a_finished_fast_result_does_not_count_for_a_full_run(small, tmp_path):
    run_small(small, tmp_path, fast=True)
    with pytest.raises(InvalidInput, match=r"small.md' is the result of a run that differs in its --fast and settings"):
        check_finished(small, tmp_path, NO_DATA, fast=False)


def test_a_finished_result_on_made_data_does_not_count_once_the_data_are_there(small, tmp_path):
    run_small(small, tmp_path)
    (tmp_path / "x.npz").write_bytes(b"data")
    with pytest.raises(InvalidInput, match="differs in its data: choose another --out"):
        check_finished(small, tmp_path, DataFolder(tmp_path), fast=False)


def test_a_finished_result_of_other_code_does_not_count(small, tmp_path, monkeypatch):
    run_small(small, tmp_path)
    monkeypatch.setattr("dperm.experiments.running.code_digest", lambda: "another")
    with pytest.raises(InvalidInput, match="differs in its code"):
        check_finished(small, tmp_path, NO_DATA, fast=False)


@pytest.mark.parametrize("damage", ["", "{}", "[]", None])
def test_a_finished_result_without_its_facts_does_not_count(small, tmp_path, damage):
    run_small(small, tmp_path)
    path = tmp_path / "small.json"
    path.unlink() if damage is None else path.write_text(damage)
    with pytest.raises(InvalidInput, match="differs in its settings"):
        check_finished(small, tmp_path, NO_DATA, fast=False)


@pytest.mark.parametrize("written", [["svg"], ["svg", "json"]])
def test_a_run_that_is_stopped_between_its_files_is_not_finished_and_resumes(
    small, counting, tmp_path, monkeypatch, written
):
    def stop_later(path, content):
        if path.suffix[1:] not in written:
            raise KeyboardInterrupt
        return write_atomically(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(writing, "write_atomically", stop_later)
        with pytest.raises(KeyboardInterrupt):
            run_small(small, tmp_path)
    assert {path.suffix[1:] for path in tmp_path.glob("small.*") if path.is_file()} == set(written)
    assert not is_finished(small, tmp_path)
    run_small(small, tmp_path)
    assert is_finished(small, tmp_path)
    assert counting.computed == [0, 1, 2, 3]


def test_a_forced_run_that_is_stopped_goes_on_without_force(small, counting, tmp_path):
    run_small(small, tmp_path)
    counting.stop_at, counting.computed = 2, []
    with pytest.raises(KeyboardInterrupt):
        run_small(small, tmp_path, force=True)
    counting.stop_at = None
    assert not is_finished(small, tmp_path)
    run_small(small, tmp_path)
    assert counting.computed == [0, 1, 2, 3]


# ------------------------------------------------------------------------------------------------- packages
def test_a_missing_package_is_named_and_nothing_is_dropped(small, counting, tmp_path, monkeypatch):
    run_small(small, tmp_path)
    monkeypatch.setattr("dperm.experiments.experiment.EXTRAS", {"no-such-package": "extra"})
    needy = replace(small, needs=("no-such-package",))
    with pytest.raises(MissingDependency, match=r"small needs no-such-package, .*: pip install 'dperm\[extra\]'"):
        run_small(needy, tmp_path, force=True)
    assert is_finished(small, tmp_path)
    assert counting.computed == [0, 1, 2, 3]


KEPT = Path(__file__).parents[3] / "benchmarks" / "results" / "experiments"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_listed_minutes_are_those_of_the_kept_result(name):
    minutes = json.loads((KEPT / f"{name}.json").read_text())["seconds"] / 60.0
    # another load of the machine may double them; below twelve seconds nobody minds
    assert minutes / 2.0 - 0.2 <= EXPERIMENTS[name].minutes <= 2.0 * minutes + 0.2


def test_all_packages_that_experiments_need_have_an_extra():
    assert {package for one in EXPERIMENTS.values() for package in one.needs} <= set(EXTRAS)
