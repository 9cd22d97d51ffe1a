"""``dperm audit``: verdict, files, exit codes, and one sentence for every mistake."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest

from dperm.audit.attacks import ATTACKS
from dperm.audit.claim import RELATIONS
from dperm.audit.estimators import ESTIMATORS
from dperm.audit.releases import all_cases
from dperm.cli import start
from dperm.cli.audit import audit
from dperm.cli.audit_files import told
from dperm.cli.audit_options import ATTACK_NAMES, ESTIMATOR_NAMES
from dperm.cli.output import Output
from dperm.errors import MissingDependency
from dperm.testing.weaker_noise import weaker_noise

SUBJECTS = Path(__file__).resolve().parents[1] / "audit"
QUICK = ("--features", "1", "--runs", "1500", "--workers", "1", "--timeout", "600", "--path", SUBJECTS)


def test_the_command_knows_all_attacks_estimators_and_neighbours():
    assert tuple(ATTACKS) == ATTACK_NAMES
    assert ESTIMATORS == ESTIMATOR_NAMES
    (choice,) = [one.type for one in audit.params if one.name == "neighbours"]
    assert tuple(choice.choices) == tuple(RELATIONS)


def test_a_violation_ends_with_code_1_and_is_written(dperm, home):
    done = dperm(
        "audit", "subjects:too_little_noise", "--epsilon", "1", *QUICK, "--attacks", "canary", "--out", "found"
    )
    assert done.code == 1, done.err
    assert "The claim does not hold: epsilon is at least" in done.out
    assert "canary" in done.out
    data = json.loads((home / "found" / "audit.json").read_text())
    assert data["verdict"] == "violation"
    assert data["epsilon_found"] > data["claim"]["epsilon"] == 1.0
    page = (home / "found" / "audit.html").read_text()
    assert "<svg" in page
    assert "subjects:too_little_noise" in page
    again = dperm("audit", "subjects:right", "--epsilon", "1", *QUICK, "--out", "found")
    assert again.code == 2
    assert "exists: choose another --out, or --force" in again.err


def test_a_right_function_ends_with_code_0_and_says_its_power(dperm):
    done = dperm("audit", "subjects:right", "--epsilon", "1", *QUICK, "--attacks", "canary,side-channels", "--json")
    assert done.code == 0, done.err
    data = json.loads(done.out)
    assert data["verdict"] == "nothing found"
    assert data["epsilon_found"] <= 1.0
    assert 0.0 < data["noise_factor_found_with_probability_0.95"] < 1.0
    assert data["confidence"] == 0.9999
    assert [one["attack"] for one in data["attacks"]] == ["side-channels", "canary"]


@pytest.mark.long
def test_an_estimator_is_audited_by_name(dperm):
    done = dperm(
        "audit", "DPLinearRegression", "--epsilon", "1", "--set", "solver=gradient", "--features", "1", "--runs", "60",
        "--timeout", "600", "--attacks", "determinism", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    data = json.loads(done.out)
    assert data["subject"] == "DPLinearRegression(epsilon=1, solver='gradient')"
    assert data["claim"]["delta"] == 1e-5
    assert data["public"]["classes"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing:here"], "nothing:here cannot be audited: there is no module 'nothing' in this environment"),
        (["subjects:missing"], "module 'subjects' has no function 'missing'."),
        (["subjects:not_a_function"], "module 'subjects' has no function 'not_a_function'."),
        (["subjects:raises"], "subjects:raises raised RuntimeError: no licence found"),
        (
            ["subjects:returns_nan"],
            "it returned NaN or an infinite number; it fails on every table of the audit, first on 8 rows",
        ),
        (["DPMagic"], "'DPMagic' is neither of the form module:function nor one of dperm's estimators:"),
        ([":fit"], "':fit' is not of the form module:function"),
        (["subjects:right", "--set", "a=1"], "--set is for dperm's estimators"),
        (["subjects:right", "--set", "a"], "'a' is not of the form name=value"),
        (["subjects:right", "--gaussian"], "Gaussian noise has no guarantee at delta 0"),
        (["subjects:right", "--epsilon", "0"], "--epsilon must be a finite number above 0"),
        (
            ["subjects:right", "--classes", "1", "--target-range", "0", "1"],
            "give --classes or --target-range, not both.",
        ),
        (["subjects:right", "--attacks", "magic"], "--attacks must be among determinism"),
        (["subjects:right", "--rows", "1", "--neighbours", "add-remove"], "needs --rows of 2 or more"),
        (["DPRidge", "--python", "python3"], "--python is for module:function"),
        (["DPRidge", "--gaussian"], "--gaussian is for module:function"),
        (["DPRidge", "--neighbours", "add-remove"], "claim replace-one or zero-out neighbours"),
        (["DPRidge", "--set", "magic=1"], "DPRidge has no setting magic; it has "),
        (["DPRidge", "--set", "solver=3"], "solver"),
        (["DPRidge", "--classes", "0,1"], "DPRidge has no classes: leave out --classes."),
        (["subjects:right", "--path", "/nope"], "--path /nope is not a folder."),
        (["subjects:right", "--fast"], "give one of --fast and --runs: each sets the effort."),
        (["subjects:right", "--fast", "--seconds", "9"], "give one of --fast and --seconds and --runs"),
        (["subjects:right", "--runs", "20"], "--runs 20 are too few: these attacks need"),
        (["subjects:one_argument"], "it must take fit(X, y), a table and its target, but takes one_argument(X)."),
        (["DPRidge", "--set", "epsilon=2"], "--set epsilon is not possible"),
        (["DPRidge", "--set", "insecure_seed=3"], "there is no claim to audit"),
        (["DPLogisticRegression", "--target-range", "0", "1"], "DPLogisticRegression predicts classes"),
    ],
)
def test_mistakes_are_one_sentence(dperm, arguments, sentence):
    done = dperm("audit", *arguments[:1], "--epsilon", "1", *QUICK, *arguments[1:])
    assert done.code == 2, (done.out, done.err)
    assert sentence in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_all_of_dperm_is_audited_release_by_release(dperm, home, monkeypatch):
    chosen = [
        replace(case, quick=case.name != "few-levels report")
        for case in all_cases()
        if case.name in ("one-bit report", "few-levels report", "blocks-over-parties")
    ]
    monkeypatch.setattr("dperm.audit.releases.all_cases", lambda: chosen)
    done = dperm("audit", "all", "--fast", "--out", "found")
    assert done.code == 0, done.err
    assert "Every release has at least the noise that was charged for it." in done.out
    assert "weighted rows of south" in done.out
    data = json.loads((home / "found" / "releases.json").read_text())
    assert [case["case"] for case in data["cases"]] == ["one-bit report", "blocks-over-parties"]
    assert "<svg" in (home / "found" / "releases.html").read_text()
    with weaker_noise():
        done = dperm("audit", "all", "--fast", "--json")
    assert done.code == 1
    assert json.loads(done.out)["verdict"] == "violation"


@pytest.mark.parametrize(
    "option",
    ["--features=2", "--rows=8", "--range=-1 1", "--neighbours=zero-out", "--gaussian", "--seconds=9", "--workers=1",
     "--timeout=9", "--runs=900", "--attacks=canary", "--epsilon=1", "--path=.", "--classes=0,1", "--in-range"],
)  # fmt: skip
def test_an_audit_of_all_refuses_what_it_does_not_use(dperm, option):
    name, _, value = option.partition("=")
    done = dperm("audit", "all", name, *value.split())
    assert done.code == 2
    assert f"{name} cannot be given with all" in done.err


def test_mistakes_in_options_are_told_before_anything_is_imported():
    code = "import sys; from dperm.cli.main import main\ntry: main()\nfinally: print('dperm.audit' in sys.modules)"
    for wrong in (
        ["DPRidg", "--epsilon", "1"],
        ["a:b", "--epsilon", "1", "--fast", "--runs", "9"],
        ["all", "--rows", "3"],
    ):
        done = subprocess.run([sys.executable, "-c", code, "audit", *wrong], capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert done.stdout.strip() == "False"


def test_a_pipe_gets_a_line_for_each_step_unless_it_is_quiet(dperm):
    arguments = ("audit", "subjects:right", "--epsilon", "1", *QUICK, "--attacks", "side-channels,canary")
    lines = dperm(*arguments).err.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "dperm: side-channels",
        "dperm: preparing: trying pairs of tables",
        "dperm: canary",
    ]
    assert dperm(*arguments, "--quiet").err == ""


def test_a_violation_is_explained_in_plain_words(dperm):
    done = dperm("audit", "subjects:naive_float", "--epsilon", "1", *QUICK, "--runs", "4000", "--attacks", "float-grid")
    assert done.code == 1
    assert "use noise that is drawn on a grid" in done.out
    assert "upper corner" not in done.out
    header = next(line for line in done.out.splitlines() if line.startswith("attack "))
    assert max(map(len, done.out.partition(header)[2].partition("\n\n")[0].splitlines())) < 80


def test_a_claim_needs_its_epsilon(dperm):
    done = dperm("audit", "subjects:right")
    assert done.code == 2
    assert "--epsilon" in done.err


def plain_install(monkeypatch):
    """Hide dp_accounting, which only an extra installs."""
    for name in [one for one in sys.modules if one.partition(".")[0] == "dp_accounting"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)


def test_a_plain_install_audits_what_it_can(dperm, monkeypatch):
    plain_install(monkeypatch)
    own = ("DPRidge", "--epsilon", "1", "--attacks", "determinism,releases", "--runs", "60", "--workers", "1")
    done = dperm("audit", *own)
    assert done.code == 0, done.err
    assert "Not checked: sensitivities and totals on real neighbouring tables (install dperm[sgd])." in done.out
    chosen = [case for case in all_cases() if case.name in ("one-bit report", "gradient")]
    monkeypatch.setattr("dperm.audit.releases.all_cases", lambda: chosen)
    done = dperm("audit", "all")
    assert done.code == 0, done.err
    assert "install dperm[sgd]" in done.out


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (MissingDependency("pip install more."), 2, "the audit could not be made: pip install more."),
        (OSError(28, "No space left", "audit"), 2, "the audit could not be made: No space left (audit)."),
        (click.Abort(), 2, "not confirmed"),
        (KeyboardInterrupt(), 130, "the audit was interrupted"),
        (MemoryError(), 2, "too little memory"),
        (ZeroDivisionError(), 2, "unexpected ZeroDivisionError"),
    ],
)
def test_no_error_ends_with_code_1(dperm, monkeypatch, error, code, sentence):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr("dperm.audit.run_audit", fails)
    done = dperm("audit", "subjects:right", "--epsilon", "1", *QUICK)
    assert done.code == code
    assert sentence in done.err


def test_an_audit_that_ran_nothing_is_no_pass(dperm, monkeypatch):
    done = dperm("audit", "subjects:right", "--epsilon", "1", *QUICK, "--attacks", "releases")
    assert done.code == 2
    assert "No attack was run" in done.out
    monkeypatch.setattr("dperm.audit.releases.all_cases", list)
    done = dperm("audit", "all")
    assert done.code == 2
    assert "No release was measured" in done.out


def test_a_reader_that_closes_the_output_does_not_change_the_verdict(dperm, monkeypatch):
    def closed(self, data, show):
        raise BrokenPipeError

    monkeypatch.setattr("dperm.cli.output.Output.result", closed)
    monkeypatch.setattr("os.dup2", lambda one, two: None)
    done = dperm("audit", "subjects:same_seed", "--epsilon", "1", *QUICK, "--attacks", "determinism")
    assert done.code == 1


@pytest.mark.parametrize(("command", "code"), [("audit", 130), ("fit", 1)])
def test_ctrl_c_during_imports_is_no_violation(monkeypatch, command, code):
    ended = []
    monkeypatch.setattr(sys, "argv", ["dperm", command])
    monkeypatch.setattr("os._exit", ended.append)
    monkeypatch.setattr(start, "_print_error", lambda text: None)
    start._stop_at_once()
    assert ended == [code]


def test_a_terminal_says_first_that_the_audit_prepares(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with told(Output()) as tell:
        tell.step("canary (50% done)")
        tell.progress(1, 2)
    assert terminal.getvalue().index("preparing") < terminal.getvalue().index("canary (50% done)")
