"""``dperm collect``: from a description to an estimate, with clear refusals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from dperm.cli.main import cli, main
from dperm.collect.estimate import interval_answer
from dperm.collect.store import store
from dperm.errors import InvalidInput, RunError
from dperm.estimators.local.queries import QueryAnswer

SPEED = ["--name", "speed", "--column", "seconds:0:10", "--column", "mobile:0:1", "--classes", "left,stayed"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["collect", *arguments], catch_exceptions=False, standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return done.output

    return call


def test_from_a_description_to_an_estimate(run: Any) -> None:
    about = json.loads(run("init", "speed.json", *SPEED, "--people", "100000", "--json"))
    assert about["enough"] is True
    assert len(about["hash"]) == 64
    assert run("init", "speed.json", *SPEED, "--people", "100000", "-q") == ""  # the same file again
    with pytest.raises(InvalidInput, match="immutable"):
        run("init", "speed.json", *SPEED, "--epsilon", "2")
    run("simulate", "speed.json", "--people", "100000")
    data = json.loads(run("estimate", "speed", "--json"))
    assert data["n"] == 100_000
    assert data["hash"] == about["hash"]
    assert data["model"]["coef"][0][0] > 0
    text = run("estimate", "speed")
    assert "seconds" in text
    assert "epsilon 1 per person" in text
    assert "the ends of a 95% interval" in text
    # another collector's counts, merged twice
    run("simulate", "speed.json", "--people", "5000", "--database", "other.db")
    run("counts", "speed", "other.json", "--database", "other.db")
    assert "5000 new reports" in run("merge", "other.json")
    assert "0 new reports" in run("merge", "other.json")
    run("backup", "copy.db")
    assert json.loads(run("estimate", "speed", "--database", "copy.db", "--json"))["n"] == 105_000


def test_an_estimate_states_that_it_is_shrunk(run: Any) -> None:
    """The unshrunk value is in the middle of the interval; the estimate need not be inside."""
    run("init", "speed.json", *SPEED)
    run("init", "k.json", "--name", "kinds", "--column", "age:0:100", "--classes", "a,b,c", "--epsilon", "4")
    run("simulate", "speed.json", "--people", "100000")
    run("simulate", "k.json", "--people", "100000")
    for name in ("speed", "kinds"):
        model = json.loads(run("estimate", name, "--json"))["model"]
        ends, middle = np.array(model["intervals"]), np.array(model["unshrunk"])
        np.testing.assert_allclose(middle, ends.mean(axis=-1))
        assert middle.shape == ends.shape[:-1]
        assert "shrunk towards 0" in model["shrinkage"]
        assert "a single one may grow" in model["shrinkage"]
        text = run("estimate", name)
        assert "the estimates are shrunk towards 0" in " ".join(text.split())
        assert "unshrunk" in text
        assert all(f"{value:.4g}" in text for value in middle.ravel())
    assert np.abs(model["kept"]).max() < 1.0


def test_an_attacked_estimate_is_marked_and_trimmed(run: Any) -> None:
    run("init", "speed.json", *SPEED)
    run("simulate", "speed.json", "--people", "200000")
    text = " ".join(run("estimate", "speed").split())
    assert "answered as often as devices draw them (p = " in text
    assert "SUSPICIOUS" not in text
    assert "nothing was left out" in run("estimate", "speed", "--trimmed")
    honest = json.loads(run("estimate", "speed", "--json"))
    n = 20_000
    with store.open_store("collect.db") as opened:
        one = opened.find("speed")
        opened.add([store.Entry(one.digest, np.arange(n), np.ones(n, np.uint64), np.zeros(n, np.int64))], 0.0)
    text = " ".join(run("estimate", "speed").split())
    assert "SUSPICIOUS: some questions were answered more often than devices draw them" in text
    assert "answered too unevenly (p = 1e-300 or less, marked below 1e-06)" in text
    # the words of the page, and as many reports as it shows
    assert re.search(r"question 0 \(target × seconds\): \d\d,\d{3} reports, \d\d,\d{3} expected", text)
    assert "No intervals: the counts contradict each other, as made-up reports can make them." in text
    assert "radius" not in text
    assert "See it with --trimmed." in text
    data = json.loads(run("estimate", "speed", "--json"))
    assert data["suspicious"]
    first = [one["model"]["coef"][0][0] for one in (honest, data, data["trimmed"])]
    assert first[0] > 0.2
    assert first[1] < -0.3
    assert first[2] > -0.02
    trimmed = " ".join(run("estimate", "speed", "--trimmed").split())
    assert f"Trimmed estimate: {data['trimmed']['removed']:,} reports are left out" in trimmed
    assert f"seconds {first[2]:.4g}" in trimmed


def test_an_interval_stays_in_its_range_and_in_order() -> None:
    """With few people, noise may put an answer far below its range: both ends are then at the end of the range."""
    for value, expected in ((-0.5, [0.0, 0.0]), (1.5, [1.0, 1.0]), (0.5, [0.4, 0.6])):
        made = interval_answer(QueryAnswer(value, 0.0, 0.1), 0.0, 1.0)
        assert made["interval"] == pytest.approx(expected)
        assert made["interval"][0] <= made["value"] <= made["interval"][1]


def test_other_models(run: Any) -> None:
    run("init", "m.json", "--name", "habits", "--model", "marginals", "--people", "50000", "--epsilon", "4",
        *(part for name in ("a", "b", "c") for part in ("--column", name)))  # fmt: skip
    run("simulate", "m.json", "--people", "50000")
    assert (
        0 <= json.loads(run("estimate", "habits", "--query", "a=1", "--query", "c=0", "--json"))["query"]["value"] <= 1
    )
    assert "share" in run("estimate", "habits", "--query", "a=1")
    run("init", "s.json", "--name", "ages", "--model", "smooth", "--column", "age:0:100", "--epsilon", "4")
    run("simulate", "s.json", "--people", "50000")
    assert "age" in run("estimate", "ages")
    run(
        "init",
        "l.json",
        "--name",
        "pay",
        "--model",
        "linear",
        "--column",
        "age:0:100",
        "--target",
        "0:9",
        "--epsilon",
        "4",
    )
    run("simulate", "l.json", "--people", "50000")
    assert "intercept" in run("estimate", "pay")
    run(
        "init",
        "k.json",
        "--name",
        "kinds",
        "--column",
        "age:0:100",
        "--classes",
        "a,b,c",
        "--epsilon",
        "4",
        "--levels",
        "8",
    )
    run("simulate", "k.json", "--people", "100000")
    assert "class b" in run("estimate", "kinds")


def test_columns_of_a_schema(run: Any, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(
        'format = 1\n[target]\ncolumn = "ill"\nkind = "classes"\nclasses = [false, true]\n'
        '[columns.age]\nkind = "number"\nlow = 0\nhigh = 100\n'
        '[columns.town]\nkind = "category"\ncategories = ["a", "b", "c"]\n'
    )
    run("init", "x.json", "--name", "ill", "--schema", "schema.toml")
    made = json.loads((tmp_path / "x.json").read_text())
    assert made["columns"] == ["age", "town=a", "town=b", "town=c"]
    assert made["record"]["classes"] == [False, True]
    run("simulate", "x.json", "--people", "100")
    assert "No estimate yet" in run("estimate", "ill")


def test_tokens(run: Any, tmp_path: Path) -> None:
    run("init", "speed.json", *SPEED, "--tokens")
    minted = run("tokens", "speed.json", "--token-key", "key", "--count", "3").split()
    assert len(set(minted)) == 3
    assert all(len(one) == 64 for one in minted)
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    with pytest.raises(InvalidInput, match="--token-key"):
        run("serve", "speed.json")
    with pytest.raises(InvalidInput, match="cannot be simulated"):
        run("simulate", "speed.json")
    (tmp_path / "short").write_bytes(b"x")
    with pytest.raises(InvalidInput, match="shorter than 32"):
        run("serve", "speed.json", "--token-key", "short")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["init", "x.json", "--name", "X!", "--column", "a:0:1", "--classes", "0,1"], "lower-case letters"),
        (["init", "x.json", "--name", "x"], "--schema or with --column"),
        (["init", "x.json", "--name", "x", "--column", "a:0", "--classes", "0,1"], "NAME:LOW:HIGH"),
        (["init", "x.json", "--name", "x", "--column", "a:0:1"], "needs --classes"),
        (["init", "x.json", "--name", "x", "--model", "linear", "--column", "a:0:1"], "needs --target"),
        (["init", "x.json", "--name", "x", "--model", "marginals", "--column", "a"], "--people"),
        (["init", "x.json", "--name", "x", "--model", "smooth"], "needs its columns"),
        (["init", "x.json", "--name", "x", "--column", "a:1:0", "--classes", "0,1"], "bounds"),
        (["init", "x.json", "--name", "x", "--column", "a:0:1", "--classes", "0,1", "--epsilon", "99"], "epsilon"),
        (["init", "x.json", "--name", "health", "--column", "a:0:1", "--classes", "0,1"], "its own page at /health"),
        (
            [
                "init",
                "x.json",
                "--name",
                "x",
                "--model",
                "marginals",
                "--column",
                "a",
                "--column",
                "a",
                "--people",
                "9",
            ],
            "different",
        ),
        (["init", "x.json", "--name", "x", "--model", "smooth", "--column", "a:0:1", "--column", "a:0:1"], "different"),
        (
            ["init", "x.json", "--name", "x", "--model", "marginals", "--column", "a", "--levels", "4"],
            "does not use --levels",
        ),
        (
            ["init", "x.json", "--name", "x", "--model", "marginals", "--column", "a", "--schema", "no.toml"],
            "does not use --schema",
        ),
        (
            ["init", "x.json", "--name", "x", "--model", "smooth", "--column", "a:0:1", "--classes", "u,v"],
            "does not use --classes",
        ),
        (
            ["init", "x.json", "--name", "x", "--column", "a:0:1", "--classes", "u,v", "--target", "0:1"],
            "does not use --target",
        ),
        (["init", "x.json", "--name", "x", "--schema", "no.toml", "--classes", "u,v"], "leave out --classes"),
        (["serve"], "no collection to serve"),
        (["serve", "missing.json"], "cannot be read"),
        (["estimate", "x", "--database", "missing.db"], "no collector's database"),
        (["merge", "missing.json", "--database", "missing.db"], "no collector's database"),
    ],
)
def test_one_clear_sentence(run: Any, arguments: list[str], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        run(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "speed.json", "--people", "-5"],
        ["estimate", "speed", "--window", "99999999999999999999"],
        ["estimate", "speed", "--version", "0"],
        ["tokens", "speed.json", "--token-key", "key", "--count", "0"],
        ["serve", "speed.json", "--most-connections", "0"],
        ["serve", "speed.json", "--idle-seconds", "-5"],
    ],
)
def test_numbers_outside_their_range(run: Any, arguments: list[str]) -> None:
    with pytest.raises(click.BadParameter, match="range"):
        run(*arguments)


def test_a_restored_copy_counts_under_a_new_name(run: Any, tmp_path: Path) -> None:
    run("init", "speed.json", *SPEED)
    run("simulate", "speed.json", "--people", "1000")
    (tmp_path / "copy.db").write_bytes((tmp_path / "collect.db").read_bytes())
    assert "from now on" in run("restored", "--database", "copy.db")
    run("simulate", "speed.json", "--people", "500", "--database", "copy.db")
    run("counts", "speed", "copy.json", "--database", "copy.db")
    assert "500 new reports" in run("merge", "copy.json")
    assert json.loads(run("estimate", "speed", "--json"))["n"] == 1500


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "speed.json"], "dperm: interrupted before the collector started; no report was accepted.\n"),
        (["simulate", "speed.json"], "dperm: interrupted; what was written before remains.\n"),
    ],
)
def test_ctrl_c_does_not_mention_budgets(
    run: Any, arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A collector has no ledger; the message says what happened to the reports."""

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    run("init", "speed.json", *SPEED)
    monkeypatch.setattr(store, "open_store", stop)
    monkeypatch.setattr(sys, "argv", ["dperm", "collect", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err.lstrip("\n")) == (1, says)


def test_a_collector_that_is_not_there(run: Any) -> None:
    with pytest.raises(RunError, match="cannot be reached"):
        run("send", "http://127.0.0.1:9/v1/x", "--value", "a=1")
    with pytest.raises(RunError, match="cannot be reached"):
        run("estimate", "x", "--url", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8000", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1/speed/schema",
     "http://127.0.0.1:8000/speed", "ftp://127.0.0.1/v1/speed"],
)  # fmt: skip
def test_a_wrong_address_names_the_right_form(run: Any, url: str) -> None:
    run("init", "speed.json", *SPEED)
    with pytest.raises(InvalidInput, match=r"write it like http://127\.0\.0\.1:8000/v1/NAME\."):
        run("send", url, "--value", "a=1")
    if url.endswith("/speed") and url.startswith("http"):
        return  # a collector may be at a path of its own
    both = r"write it like http://127\.0\.0\.1:8000/v1/NAME or http://127\.0\.0\.1:8000\."
    for command in (["estimate", "speed"], ["simulate", "speed.json"]):
        with pytest.raises(InvalidInput, match=both):
            run(*command, "--url", url)


@pytest.mark.parametrize("end", ["", "/", "/v1/speed", "/v1/speed/"])
def test_simulate_and_estimate_take_both_forms_of_an_address(run: Any, tmp_path: Path, end: str) -> None:
    run("init", "speed.json", *SPEED)
    (tmp_path / "batch.txt").write_text("a" * 32)
    for command in (["estimate", "speed"], ["simulate", "speed.json", "--batch-secret", "batch.txt"]):
        with pytest.raises(RunError, match="cannot be reached"):
            run(*command, "--url", f"http://127.0.0.1:9{end}")
        with pytest.raises(InvalidInput, match="another collection than 'speed'"):
            run(*command, "--url", "http://127.0.0.1:9/v1/other")


@pytest.mark.parametrize("content", [None, "secret"])
def test_a_refused_secret_names_the_command_that_makes_one(run: Any, tmp_path: Path, content: str | None) -> None:
    """The command makes a file that is accepted."""
    run("init", "speed.json", *SPEED)
    if content is not None:
        (tmp_path / "my batch.txt").write_text(content)
    command = ["simulate", "speed.json", "--url", "http://127.0.0.1:9", "--batch-secret", "my batch.txt"]
    with pytest.raises(InvalidInput) as refused:
        run(*command)
    made = str(refused.value).partition("Make one: ")[2]
    assert made in (Path(__file__).parents[4] / "docs/collect.md").read_text().replace("batch.txt", "'my batch.txt'")
    subprocess.run(made.replace("python ", f"{sys.executable} ", 1), shell=True, check=True, cwd=tmp_path)
    with pytest.raises(RunError, match="cannot be reached"):
        run(*command)


def test_too_few_people_are_reported(run: Any) -> None:
    about = json.loads(run("init", "speed.json", *SPEED, "--people", "50", "--json"))
    assert about["enough"] is False
    assert re.search(r"enough people +no\b", run("init", "speed.json", *SPEED, "--people", "50"))
    assert about["people_needed"] > 50
    run("simulate", "speed.json", "--people", "50", "--database", "few.db")
    said = json.loads(run("estimate", "speed", "--database", "few.db", "--json"))["reason"]
    assert said.startswith("50 people are too few")
    assert said.endswith("raise epsilon, use fewer columns.")  # an option of Python's estimators is no advice here
