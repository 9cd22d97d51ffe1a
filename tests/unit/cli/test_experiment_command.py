"""`dperm experiment list` and `run`: what they print and write, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest

from dperm.experiments import registry
from dperm.experiments.datasets import DataFolder
from dperm.experiments.experiment import Experiment
from dperm.experiments.result import Baseline, Result, ResultRow


@dataclass(frozen=True)
class Options:
    runs: int


def measure(run):
    found = run.pieces({f"piece {k}": lambda k=k: k for k in range(run.settings.runs)})
    baseline = Baseline("tiny", "made, nothing", 4, 2, 7, "objective", 0.5, 0.75)
    return Result((ResultRow("tiny: sum", float(sum(found.values())), None, 5.0, "another sum"),), (baseline,))


def stopped(run):
    def stop():
        raise KeyboardInterrupt

    return run.pieces({"first": lambda: 1, "second": stop})


TINY = Experiment("tiny", "A. Paper 2020", "a sum", 0.1, measure, Options(3), Options(2), ("tiny.npz",))
TINY_AS_STOPPED = Experiment("stopped", "A. Paper 2020", "a sum", 0.1, measure, Options(3), Options(2))
STOPPED = Experiment("stopped", "A. Paper 2020", "an interruption", 0.1, stopped, Options(1), Options(1))


@pytest.fixture(autouse=True)
def experiments(monkeypatch):
    monkeypatch.delenv("DPERM_DATA", raising=False)
    monkeypatch.setattr(registry, "EXPERIMENTS", {"tiny": TINY})


def test_the_list_says_whether_the_data_are_there(dperm, home, monkeypatch):
    done = dperm("experiment", "list")
    assert done.code == 0
    assert "tiny missing" in done.out
    assert "DPERM_DATA names no folder" in done.out
    (home / "tiny.npz").write_bytes(b"")
    monkeypatch.setenv("DPERM_DATA", str(home))
    assert "tiny there" in dperm("experiment", "list").out
    (one,) = json.loads(dperm("experiment", "list", "--json").out)
    assert one["data"] == {"tiny.npz": True}
    assert one["minutes"] == 0.1


def test_a_run_prints_and_writes_its_result(dperm, home):
    done = dperm("experiment", "run", "tiny")
    assert done.code == 0
    assert "tiny: sum  3 " in done.out
    assert "without privacy" in done.out
    assert "tiny.npz missing; it runs on data that it makes" in done.err
    assert sorted(path.name for path in (home / "dperm-experiments").iterdir()) == ["tiny.json", "tiny.md"]
    fast = dperm("experiment", "run", "tiny", "--fast", "--json")
    assert json.loads(fast.out)[0]["written"] == ["dperm-experiments-fast/tiny.json", "dperm-experiments-fast/tiny.md"]
    assert "Fast run" in (home / "dperm-experiments-fast" / "tiny.md").read_text()


def test_all_leaves_out_what_is_finished(dperm, home):
    assert dperm("experiment", "run", "all", "--out", "here").code == 0
    again = dperm("experiment", "run", "all", "--out", "here")
    assert again.code == 0
    assert "tiny is finished in here" in again.err
    assert dperm("experiment", "run", "all", "--out", "here", "--force", "--quiet").out == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "nothing"), "no experiment is called 'nothing': choose one of tiny, or all."),
        (("run",), "Missing argument 'NAME'"),
        (("run", "tiny", "--out", "a-file"), "Directory 'a-file' is a file"),
    ],
)
def test_wrong_usage_is_one_sentence(dperm, home, arguments, says):
    (home / "a-file").write_text("")
    done = dperm("experiment", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert says in done.err
    assert done.err.count("\n") == 1


def test_a_finished_result_is_not_overwritten(dperm):
    assert dperm("experiment", "run", "tiny").code == 0
    done = dperm("experiment", "run", "tiny")
    assert done.code == 2
    assert "exists: choose another --out, or --force" in done.err


def test_a_wrong_folder_of_data_is_one_sentence(dperm, monkeypatch):
    monkeypatch.setenv("DPERM_DATA", "nowhere")
    for arguments in (("list",), ("run", "tiny")):
        done = dperm("experiment", *arguments)
        assert done.code == 2
        assert done.err.startswith("dperm: DPERM_DATA names 'nowhere'")


def test_ctrl_c_keeps_finished_pieces(dperm, home, monkeypatch):
    monkeypatch.setattr(registry, "EXPERIMENTS", {"stopped": STOPPED})
    done = dperm("experiment", "run", "stopped")
    assert done.code == 1
    assert "finished pieces are kept, and the same command goes on from there" in done.err
    assert (home / "dperm-experiments" / "stopped.pieces" / "first.json").exists()


def test_ctrl_c_under_force_says_how_to_go_on_and_it_does(dperm, home, monkeypatch):
    other = replace(TINY, name="other")
    monkeypatch.setattr(registry, "EXPERIMENTS", {"stopped": TINY_AS_STOPPED, "other": other})
    assert dperm("experiment", "run", "all").code == 0
    monkeypatch.setattr(registry, "EXPERIMENTS", {"stopped": STOPPED, "other": other})
    done = dperm("experiment", "run", "all", "--force")
    assert done.code == 1
    assert "finished pieces are kept, and the same command without --force goes on from there" in done.err
    # the old result of what was not reached would count as a new one
    assert [path.name for path in (home / "dperm-experiments").iterdir()] == ["stopped.pieces"]
    again = dperm("experiment", "run", "stopped")
    assert "exists" not in again.err
    assert "interrupted" in again.err


def test_results_of_a_fast_run_do_not_count_for_all(dperm, home):
    assert dperm("experiment", "run", "all", "--fast", "--out", "here").code == 0
    done = dperm("experiment", "run", "all", "--out", "here")
    assert done.code == 2
    assert "tiny.md' is the result of a run that differs in its --fast and settings" in done.err
    assert dperm("experiment", "run", "all", "--out", "here", "--force").code == 0
    assert json.loads((home / "here" / "tiny.json").read_text())["fast"] is False


def test_all_goes_on_without_what_needs_a_missing_package(dperm, home, monkeypatch):
    monkeypatch.setattr("dperm.experiments.experiment.EXTRAS", {"no-such-package": "extra"})
    needy = replace(TINY, name="needy", needs=("no-such-package",))
    monkeypatch.setattr(registry, "EXPERIMENTS", {"needy": needy, "tiny": TINY})
    assert "no-such-package missing" in dperm("experiment", "list").out
    assert json.loads(dperm("experiment", "list", "--json").out)[0]["needs"] == {"no-such-package": False}
    done = dperm("experiment", "run", "all")
    assert done.code == 1
    assert "needy needs no-such-package" in done.err
    assert done.err.splitlines()[-1] == "dperm: left out, for want of a package: needy."
    assert (home / "dperm-experiments" / "tiny.md").exists()
    alone = dperm("experiment", "run", "needy")
    assert alone.code == 1
    assert alone.err.startswith("dperm: needy needs no-such-package")


def test_json_is_the_result(dperm):
    (one,) = json.loads(dperm("experiment", "run", "tiny", "--json").out)
    assert one["name"] == "tiny"
    assert one["rows"][0] | {"certified": 3.0, "paper": 5.0} == one["rows"][0]
    assert one["baselines"][0]["null_error"] == 0.5


def test_a_full_disk_is_one_sentence(dperm, home, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("dperm.experiments.experiment.write_atomically", full)
    done = dperm("experiment", "run", "tiny")
    assert done.code == 1
    assert "No space left on device" in done.err
    assert done.err.splitlines()[-1].startswith("dperm: ")
    monkeypatch.undo()


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("list", "--help"), ("list",)])
def test_no_data_are_read_for_the_help_and_the_list(dperm, home, monkeypatch, arguments):
    def read(*_):
        raise AssertionError("data are read")

    (home / "tiny.npz").write_bytes(b"")
    monkeypatch.setenv("DPERM_DATA", str(home))
    monkeypatch.setattr(DataFolder, "read", read)
    monkeypatch.setattr(DataFolder, "digest", read)
    done = dperm("experiment", *arguments)
    assert done.code == 0
    # the two patches see data that are read
    assert "unexpected AssertionError" in dperm("experiment", "run", "tiny").err
