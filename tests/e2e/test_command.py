"""The command as a person runs it: real processes, exit codes, one sentence for bad input."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dperm.reporting.report import PrivacyReport


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "dperm", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


def test_demo_ends_with_a_result_and_the_path_of_its_report(tmp_path):
    done = run("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "epsilon = 1" in done.stdout
    assert "accuracy on new patients" in done.stdout
    last = done.stdout.strip().splitlines()[-1]
    page = tmp_path / last.removeprefix("Report (open it in a browser): ")
    assert page.read_text().startswith("<!doctype html>")
    path = page.with_suffix(".json")
    report = PrivacyReport.from_json(path.read_text())
    assert report.guarantee is not None
    assert report.guarantee.epsilon <= 1.0
    assert json.loads(path.read_text())["guarantee"]["neighbours"] == "replace-one"


def test_version(tmp_path):
    import dperm

    assert dperm.__version__ in run("--version", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("demo", "--epsilon", "0"), 2, "epsilon must be above 0"),
        (("demo", "--epsilon", "nan"), 2, "not NaN"),
        (("demo", "--epsilon", "much"), 2, "not a valid float"),
        (("demo", "--out", "taken"), 2, "is a file"),
        (("demo", "--out", "."), 2, "'model.json' exists"),
        (("unknown",), 2, "No such command"),
    ],
)
def test_bad_input_gets_one_sentence_and_no_traceback(tmp_path, arguments, code, says):
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "model.json").write_text("somebody's model")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {
        "taken": "a file",
        "model.json": "somebody's model",
    }
