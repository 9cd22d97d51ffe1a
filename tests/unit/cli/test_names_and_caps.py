"""``dperm fit``: no name lets a table pass by a cap, and an interruption speaks of its own reservation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dperm import Ledger, load
from dperm.cli.output import Output
from dperm.data.tables.files import name_without_suffix
from dperm.privacy.accounting.events import Gaussian
from dperm.testing.repeatable_noise import keys_named

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
    assert "data set 'people' has 2 uses: " in done.err
    assert dperm("ledger", "list").out.split()[:3] == ["data", "set", "uses"]


def test_a_score_is_checked_against_the_cap_of_the_name_its_rows_are_known_by(dperm, people, home):
    """The file is new and given by a name without a cap; its rows are known by one that has one."""
    score = ("--test-fraction", "0.3", "--test-epsilon")
    assert dperm(*FIT, "a.json", "--dataset", "A", *score, "0.5").code == 0
    assert dperm("ledger", "cap", "A", "--epsilon", "2", "--yes").code == 0
    (home / "copy.csv").write_text((home / "people.csv").read_text().replace("P", "Q"))  # other ids, which are ignored
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
    note = "note, for the owner only: the ledger knows a data set '2020', so 2020.01.people.csv is charged there"
    assert note in done.err
    assert "charged there" not in done.out
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


@pytest.mark.parametrize("score", [(), ("--test-fraction", "0.3", "--test-epsilon", "0.5")])
@pytest.mark.parametrize("shown", ["--json", "-q", None])
def test_what_a_fit_writes_and_prints_does_not_say_that_the_file_was_recognised(
    dperm, people, home, monkeypatch, score, shown
):
    """In one world the ledger has seen this file as 'hosp', in the other a file with one record changed."""
    text, told = people.read_text(), []
    lines = text.splitlines()
    changed = "\n".join([lines[0], lines[2].replace(lines[2].split(",")[0], "51", 1), *lines[2:]]) + "\n"
    assert changed.count("\n") == text.count("\n")
    for k, before in enumerate((text, changed)):
        address = str(home / f"ledger{k}.db")
        (home / "before.csv").write_text(before)
        fit = ("--epsilon", "0.5", "--schema", "schema.toml", "--ledger", address, *score)
        assert dperm("fit", "before.csv", *fit, "--dataset", "hosp", "--out", "first.json", "--force").code == 0
        options = () if shown is None else (shown,)
        with keys_named("equal noise"):
            done = dperm("fit", "people.csv", *fit, *options, "--out", "model.json", "--force")
        assert done.code == 0, done.err
        id_ = load("model.json").privacy_report_.ledger["reservation"]
        files = [(home / f"model.{end}").read_text() for end in ("json", "html")]
        told.append([one.replace(id_, "ID") for one in (done.out, *files)])
        owner = dperm("ledger", "receipt", "model.json", "--ledger", address).out
        assert ("given as 'people'; the ledger knows them as 'hosp'" in owner) == (k == 0)
        if shown != "-q":
            assert ("given as 'people'; the ledger knows them as 'hosp'" in done.err) == (k == 0)
    assert told[0] == told[1]
    assert "hosp" not in "".join(told[0])


def rewritten(home, columns, order):
    """The same table as Parquet: other types, other order of columns and rows."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    csv_module = pytest.importorskip("pyarrow.csv")
    texts = csv_module.ConvertOptions(strings_can_be_null=False, column_types={"patient_id": pa.string()})
    table = csv_module.read_csv(home / "people.csv", convert_options=texts).select(columns).take(order)
    pq.write_table(table, home / "copy.parquet", row_group_size=50)


COLUMNS = ["state", "born", "cost", "age", "smoker", "job", "visits", "patient_id"]


def test_a_file_is_known_in_another_format_order_and_schema(dperm, people, home):
    """Types of columns, dates among them, come with the format; the schema clips, so that the encoded rows differ."""
    rewritten(home, COLUMNS, list(range(299, -1, -1)))
    assert dperm(*FIT, "a.json", "--dataset", "hosp").code == 0
    assert dperm("ledger", "cap", "hosp", "--epsilon", "0.8", "--yes").code == 0
    text = (home / "schema.toml").read_text().replace("high = 100", "high = 50")
    (home / "other.toml").write_text(text)
    fit = ("fit", "copy.parquet", "--schema", "other.toml", "--out", "b.json", "--epsilon")
    done = dperm(*fit, "0.5")
    assert done.code == 3
    assert "data set 'hosp'" in done.err
    assert uses(dperm) == {"hosp": 1}
    done = dperm(*fit, "0.05")
    assert done.code == 0, done.err
    assert "given as 'copy'; the ledger knows them as 'hosp'" in done.err
    assert "resemble" not in done.err


def test_the_owner_is_told_of_a_file_that_resembles_another_before_anything_is_charged(
    dperm, people, home, monkeypatch
):
    assert dperm(*FIT, "a.json", "--dataset", "hosp").code == 0
    assert dperm("ledger", "cap", "hosp", "--epsilon", "2", "--yes").code == 0
    lines = people.read_text().splitlines()
    (home / "census.csv").write_text("\n".join(lines[:292]) + "\n")
    says = (
        "note, for the owner only: all of the different rows of the data given as 'census' are also in 'hosp', "
        "which has a cap: "
    )
    fit = ("fit", "census.csv", "--epsilon", "0.5", "--schema", "schema.toml", "--out", "b.json")

    def stopped(self, what):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Output, "progress", stopped)
        told = dperm(*fit).err
    assert says in told
    assert "nothing was spent" in told
    done = dperm(*fit, "--test-fraction", "0.3", "--test-epsilon", "0.5")
    assert done.code == 0, done.err
    assert done.err.count("are also in 'hosp'") == 1
    assert says in done.err
    for published in (done.out, (home / "b.json").read_text(), (home / "b.html").read_text()):
        assert "hosp" not in published
    assert uses(dperm) == {"hosp": 1, "census": 2}
    (home / "again.csv").write_text("\n".join(lines[:280]) + "\n")
    named = dperm("fit", "again.csv", *fit[2:], "--dataset", "hosp", "--force")
    assert named.code == 0, named.err
    assert uses(dperm) == {"hosp": 2, "census": 2}


def shuffled(home, people):
    """The same people in another order, in a file of another name."""
    first, *rest = people.read_text().splitlines()
    (home / "shuffled.csv").write_text("\n".join([first, *rest[::-1]]) + "\n")
    return ("fit", "shuffled.csv", "--schema", "schema.toml", "--out", "b.json", "--force", "--epsilon")


def test_the_owner_sees_under_which_name_data_were_given_and_nobody_else_does(dperm, people, home):
    assert dperm(*FIT, "a.json").code == 0
    assert "given as" not in dperm("ledger", "show", "people").out
    done = dperm(*shuffled(home, people), "0.5")
    assert done.code == 0, done.err
    shown = dperm("ledger", "show", "people").out
    assert next(line for line in shown.splitlines() if line.startswith("time")).endswith("given as")
    lines = [line for line in shown.splitlines() if "DPLogistic" in line]
    assert [line.endswith("shuffled") for line in lines] == [False, True]
    assert "for you alone" in shown
    entries = json.loads(dperm("ledger", "show", "people", "--json").out)["entries"]
    assert [one.get("given_as") for one in entries if one["kind"] == "reserve"] == [None, "shuffled"]
    # a report has the name that was given, and never both
    for published in (done.out, (home / "b.json").read_text(), (home / "b.html").read_text()):
        assert "shuffled" in published
        assert "given_as" not in published
        assert "'people'" not in published
    assert dperm("ledger", "export", "--out", "ledger.json").code == 0
    assert "shuffled" not in (home / "ledger.json").read_text()
    assert dperm("ledger", "verify").code == 0


def test_a_refusal_by_a_cap_says_by_which_name_the_data_are_known(dperm, people, home):
    assert dperm(*FIT, "a.json").code == 0
    assert dperm("ledger", "cap", "people", "--epsilon", "1", "--yes").code == 0
    done = dperm(*shuffled(home, people), "5")
    assert done.code == 3
    assert "These data were given as 'shuffled'; the ledger knows them as 'people'." in done.err
    assert done.out == ""
    assert "given as" not in dperm("fit", "people.csv", *shuffled(home, people)[2:], "5").err


def test_an_owner_may_have_resembling_tables_refused(dperm, people, home):
    assert dperm(*FIT, "a.json", "--dataset", "hosp").code == 0
    lines = people.read_text().splitlines()
    (home / "census.csv").write_text("\n".join(lines[:200]) + "\n")
    fit = ("fit", "census.csv", "--epsilon", "0.5", "--schema", "schema.toml", "--out", "b.json")
    done = dperm(*fit, "--refuse-resembling")
    assert (done.code, done.out) == (3, "")
    assert "all of the different rows of the data given as 'census' are also in 'hosp'" in done.err
    assert "nothing was charged" in done.err
    assert uses(dperm) == {"hosp": 1}
    assert not (home / "b.json").exists()
    assert dperm(*fit, "--refuse-resembling", "--dataset", "hosp").code == 0
    assert uses(dperm) == {"hosp": 2}


def test_every_head_that_is_printed_can_be_verified(dperm, people, home):
    """The message and the documentation name the commands that print a head."""
    wrong = dperm("ledger", "verify", "--head", "abc")
    assert wrong.code == 2
    told = dperm(*FIT, "a.json").err
    printed = {
        "fit": told,
        "ledger show": dperm("ledger", "show", "people").out,
        "ledger receipt": dperm("ledger", "receipt", "a.json").out,
    }
    documented = (Path(__file__).parents[3] / "docs/commands.md").read_text()
    named = next(line for line in documented.splitlines() if line.startswith("dperm ledger verify"))
    for command, text in printed.items():
        assert f"`dperm {command}`" in wrong.err
        assert f"`{command.split()[-1]}`" in named
        (head,) = re.findall("[0-9a-f]{64}", text)
        assert dperm("ledger", "verify", "--head", head).code == 0


def test_a_note_about_one_data_set_does_not_hide_that_about_another(dperm, people, home, monkeypatch):
    """Notes before and after the fit are compared by the name of the data set, whatever their text."""
    from dperm.cli import fit as module

    assert dperm(*FIT, "a.json", "--dataset", "hosp").code == 0
    (home / "census.csv").write_text("\n".join(people.read_text().splitlines()[:200]) + "\n")
    monkeypatch.setattr(module, "_tell_resemblances", lambda *_: ["census"])  # a name that is in the text too
    done = dperm("fit", "census.csv", *FIT[2:], "b.json")
    assert done.code == 0, done.err
    assert done.err.count("are also in 'hosp'") == 1
