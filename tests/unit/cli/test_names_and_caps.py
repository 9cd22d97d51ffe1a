"""``dperm fit``: no name lets a table pass by a cap, and an interruption speaks of its own reservation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dperm import Ledger
from dperm.cli.output import Output
from dperm.data.tables.files import name_without_suffix
from dperm.privacy.accounting.events import Gaussian

FIT = ("fit", "people.csv", "--epsilon", "0.5", "--schema", "schema.toml", "--out")


def uses(dperm):
    return {one["dataset"]: one["n_fits"] for one in json.loads(dperm("ledger", "list", "--json").out)["datasets"]}


@pytest.mark.parametrize("score", [(), ("--test-fraction", "0.3", "--test-epsilon", "0.1")])
def test_the_cap_of_the_given_name_applies_to_a_known_file(dperm, people, home, score):
    assert dperm(*FIT, "a.json").code == 0
    assert dperm("ledger", "cap", "patients", "--epsilon", "0.6", "--yes").code == 0
    again = ("fit", "people.csv", "--epsilon", "5", "--schema", "schema.toml", "--out", "b.json", *score)
    done = dperm(*again, "--dataset", "patients")
    assert done.code == 3
    assert "known as 'people', which has no cap, while 'patients' has one: set the cap on 'people'" in done.err
    assert not (home / "b.json").exists()
    assert uses(dperm) == {"people": 1, "patients": 0}
    assert dperm(*again).code == 0


TABLES = {"A": ("age", "smoker", "ill"), "B": ("age", "smoker", "ill", "score")}


def test_rows_of_one_capped_data_set_in_the_file_of_another_are_refused(dperm, home):
    rows = [(20 + i % 60, "yes" if i % 3 else "no", "ill" if i % 2 else "well", i % 7) for i in range(200)]
    declared = {
        "age": 'kind = "number"\nlow = 0\nhigh = 100',
        "smoker": 'kind = "boolean"',
        "score": 'kind = "number"\nlow = 0\nhigh = 9',
    }
    target = 'format = 1\n[target]\ncolumn = "ill"\nkind = "classes"\nclasses = ["ill", "well"]\n'
    for name, columns in TABLES.items():
        lines = [columns, *(row[: len(columns)] for row in rows)]
        (home / f"{name}.csv").write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
        parts = [f"[columns.{one}]\n{declared[one]}\n" for one in columns if one != "ill"]
        (home / f"{name}.toml").write_text(target + "".join(parts))
        assert dperm("fit", f"{name}.csv", "--epsilon", "0.3", "--schema", f"{name}.toml", "--out", name).code == 0
    assert dperm("ledger", "cap", "A", "--epsilon", "10", "--yes").code == 0
    assert dperm("ledger", "cap", "B", "--epsilon", "0.6", "--yes").code == 0
    ignored = (home / "B.toml").read_text().replace(declared["score"], 'kind = "ignore"')
    (home / "ignored.toml").write_text(ignored)
    fit = ("fit", "B.csv", "--dataset", "B", "--schema", "ignored.toml", "--out", "c.json")
    done = dperm(*fit, "--epsilon", "5")
    assert done.code == 3
    assert "known as 'B' and as 'A'" in done.err
    assert uses(dperm) == {"A": 1, "B": 1}


def test_ctrl_c_does_not_take_a_colleagues_reservation_for_its_own(dperm, people, home, monkeypatch):
    """Their fit, of the same kind of model, begins while ours is about to: nothing of ours was reserved."""

    def progress(self, what):
        other = Ledger(home.parent / "home" / "ledger.db", dataset="theirs")
        other.reserve(Gaussian(20.0), "replace-one", "DPLogisticRegression of their rows")
        raise KeyboardInterrupt

    monkeypatch.setattr(Output, "progress", progress)
    done = dperm(*FIT, "a.json")
    assert done.code == 1
    assert "interrupted before anything was reserved: nothing was spent" in done.err


@pytest.mark.parametrize("name", ["ünï 目录", "plain"])
def test_commands_in_hints_can_be_pasted(dperm, people, home, name):
    folder = home / name
    folder.mkdir()
    shown = f"'{name}/s c.toml'"
    drafted = dperm("schema", "people.csv", "--target", "state", "--out", f"{name}/s c.toml")
    assert f"`dperm schema --confirm {shown}`" in drafted.out
    assert f"#     dperm schema --confirm {shown}\n" in (folder / "s c.toml").read_text()
    refused = dperm("fit", "people.csv", "--epsilon", "1", "--schema", f"{name}/s c.toml")
    assert f"`dperm schema --confirm {shown}`" in refused.err
    (home / "p q.csv").write_text("a b,y\n1,0\n2,1\n")
    refused = dperm("fit", "p q.csv", "--epsilon", "1", "--target", "a b")
    assert "`dperm schema 'p q.csv' --target 'a b'`" in refused.err


def test_an_error_that_was_cut_off_at_0_is_shown_as_an_upper_bound():
    from dperm import Budget
    from dperm.cli.summary import score_sentence
    from dperm.estimators.central.scoring import PaidScore

    said = score_sentence(PaidScore("root mean squared error", 0.0, 0.0, 1.1012, Budget(1.0, 1e-6), 90))
    assert (
        said
        == "root mean squared error of at most 1.101 on 90 held-out people, given its noise; paid for with epsilon 1"
    )
    said = score_sentence(PaidScore("root mean squared error", 0.5, 0.0, 1.1012, Budget(1.0, 1e-6), 90))
    assert "root mean squared error 0.5 on 90 held-out people, between 0 and 1.101 given its noise" in said


def test_a_fit_and_its_score_are_two_uses(dperm, people, home):
    done = dperm(*FIT, "a.json", "--test-fraction", "0.3", "--test-epsilon", "2")
    assert "data set 'people' has 2 uses: " in done.out
    assert ", in 2 uses" in (home / "a.html").read_text()
    assert dperm("ledger", "list").out.split()[:3] == ["data", "set", "uses"]


def test_a_score_is_checked_against_the_cap_of_the_name_its_rows_are_known_by(dperm, people, home):
    """The file is new and given by a name without a cap; its rows are known by one that has one."""
    score = ("--test-fraction", "0.3", "--test-epsilon")
    assert dperm(*FIT, "a.json", "--dataset", "A", *score, "0.5").code == 0
    assert dperm("ledger", "cap", "A", "--epsilon", "2", "--yes").code == 0
    (home / "copy.csv").write_text((home / "people.csv").read_text().replace(",", ";"))  # other bytes, the same rows
    fit = ("fit", "copy.csv", "--dataset", "B", "--epsilon", "1", "--schema", "schema.toml", "--out", "b.json", *score)
    done = dperm(*fit, "1.5")
    assert done.code == 3
    assert "data set 'A' has room for the fit but not for its paid score too, and nothing was charged" in done.err
    assert "% is left" in done.err
    assert "`dperm ledger show A`" in done.err
    assert not (home / "b.json").exists()
    assert uses(dperm) == {"A": 2}
    done = dperm(*fit, "0.3")
    assert done.code == 0
    assert done.err.count("known to the ledger as 'A'") == 1
    assert uses(dperm) == {"A": 4}


def test_the_fit_and_its_score_are_recognised_by_the_fingerprints(dperm, people, home, monkeypatch):
    from dperm.estimators.central import scoring

    made = []
    monkeypatch.setattr(
        scoring,
        "fingerprints_of_fit_and_score",
        lambda *a, of=scoring.fingerprints_of_fit_and_score: made.append((a[-1], of(*a))) or made[-1][1],
    )
    numbers = (home / "schema.toml").read_text().replace('[columns.cost]\nkind = "ignore"\n', "")
    numbers = numbers.replace(
        'column = "state"\nkind = "classes"\nclasses = ["ill", "well"]',
        'column = "cost"\nkind = "number"\nlow = 0\nhigh = 4000',
    )
    (home / "numbers.toml").write_text(numbers + '[columns.state]\nkind = "ignore"\n')
    for schema in ("schema.toml", "numbers.toml"):
        done = dperm(
            "fit",
            "people.csv",
            "--epsilon",
            "1",
            "--schema",
            schema,
            "--out",
            f"{schema}.json",
            "--test-fraction",
            "0.3",
            "--test-epsilon",
            "1",
        )
        assert done.code == 0
        book, marks = made[-1]
        assert [book.known_as(mark) for mark in marks] == ["people", "people"]


def test_a_label_of_held_out_rows_alone_is_refused_before_the_fit_has_spent(dperm, home):
    from dperm.cli.training import held_out

    labels = ["c" if alone else "ab"[i % 2] for i, alone in enumerate(held_out(60, 0.1))]
    (home / "rare.csv").write_text("x,y\n" + "".join(f"{i % 7},{label}\n" for i, label in enumerate(labels)))
    fit = ("fit", "rare.csv", "--target", "y", "--buy-bounds", "--model", "logistic", "--epsilon", "1")
    done = dperm(*fit, "--test-fraction", "0.1", "--test-epsilon", "1")
    assert done.code == 2
    assert "a label is in held-out rows only" in done.err
    assert not (home / "model.json").exists()
    assert uses(dperm) == {}


DOTTED = ("--epsilon", "0.3", "--schema", "schema.toml", "--force")


def other_rows(path):
    """The same table a month later: one row more, so that it is recognised by its name alone."""
    path.write_text(path.read_text() + "P300,40,1,clerk,yes,1970-01-01,1,ill\n")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("2020.01.people.csv", "2020.01.people"),
        ("people.CSV.gz", "people"),
        ("people.v2.parquet", "people.v2"),
        ("people.csv.feather", "people.csv"),
        (".people.tsv", ".people"),
    ],
)
def test_only_the_ending_of_a_format_is_no_part_of_a_name(file, name):
    assert name_without_suffix(Path("1.2") / file) == name


def test_a_name_with_dots_is_the_whole_name(dperm, people, home):
    people.rename(home / "2020.01.people.csv")
    done = dperm("fit", "2020.01.people.csv", *DOTTED)
    assert (done.code, "charged there" in done.err) == (0, False)
    assert uses(dperm) == {"2020.01.people": 1}
    dperm("ledger", "cap", "2020", "--epsilon", "0.1", "--yes")
    done = dperm("fit", "2020.01.people.csv", *DOTTED)  # known by its own name: the shorter one says nothing of it
    assert done.code == 0, done.err
    assert uses(dperm) == {"2020.01.people": 2, "2020": 0}


def test_a_data_set_named_up_to_the_first_dot_keeps_its_name(dperm, people, home):
    """That was the default once: neither a known file nor a new version of it passes by what is spent or capped."""
    people = people.rename(home / "2020.01.people.csv")
    assert dperm("fit", "2020.01.people.csv", *DOTTED, "--dataset", "2020").code == 0
    assert dperm("ledger", "cap", "2020", "--epsilon", "1", "--yes").code == 0
    done = dperm("fit", "2020.01.people.csv", *DOTTED)
    assert (done.code, "charged there" in done.err) == (0, False)
    assert "given as" not in done.out
    assert uses(dperm) == {"2020": 2}
    other_rows(people)
    done = dperm("fit", "2020.01.people.csv", *DOTTED)
    assert done.code == 0
    assert "note: the ledger knows a data set '2020', so 2020.01.people.csv is charged there" in done.err
    assert uses(dperm) == {"2020": 3}
    other_rows(people)
    assert dperm("fit", "2020.01.people.csv", *DOTTED, "--epsilon", "5").code == 3
    assert dperm("fit", "2020.01.people.csv", *DOTTED, "--dataset", "2020.01.people").code == 0
    assert uses(dperm) == {"2020": 3, "2020.01.people": 1}


def test_tables_of_one_file_name_share_an_account_whatever_their_folders(dperm, people, home):
    (home / "other").mkdir()
    (home / "other" / "people.csv").write_text(people.read_text())
    other_rows(home / "other" / "people.csv")
    for file in ("people.csv", "other/people.csv"):
        assert dperm("fit", file, *DOTTED).code == 0
    assert uses(dperm) == {"people": 2}
